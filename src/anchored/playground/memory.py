"""Let the server give freed memory back to the system, since it may run for days.

By default, glibc keeps up to 64 MB of freed memory for each of a few dozen threads, as soon as large arrays have been
freed once. With fixed thresholds, large arrays go back at once. Other C libraries ignore this.
"""

import ctypes
import gc
from contextlib import suppress

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8  # parameters of glibc's mallopt
LARGE = 2**20  # bytes of an array from which on its memory goes back to the system when it is freed
MAX_ARENAS = 2  # parts of the heap that all threads share


def set_thresholds() -> None:
    """Make glibc return the memory of large arrays at once. This is for a process of one's own only."""
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(M_TRIM_THRESHOLD, LARGE)
        library.mallopt(M_MMAP_THRESHOLD, LARGE)
        library.mallopt(M_ARENA_MAX, MAX_ARENAS)


def release() -> None:
    """Return what has been freed, such as a page that was closed, to the system."""
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
