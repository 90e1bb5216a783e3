"""Let the server give freed memory back to the system, since it may run for days.

By default, once large arrays have been freed, glibc keeps up to 64 MB of freed memory for each of a few dozen threads.
With fixed thresholds, the memory of large arrays is returned at once. Other C libraries ignore the thresholds.
"""

import ctypes
import gc
from contextlib import suppress

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8  # parameters of glibc's mallopt
LARGE = 2**20  # smallest size, in bytes, of an array whose memory is returned to the system when it is freed
MAX_ARENAS = 2  # number of arenas, parts of the heap, which all threads share


def set_thresholds() -> None:
    """Make glibc return the memory of large arrays at once, in the whole process."""
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(M_TRIM_THRESHOLD, LARGE)
        library.mallopt(M_MMAP_THRESHOLD, LARGE)
        library.mallopt(M_ARENA_MAX, MAX_ARENAS)


def release() -> None:
    """Return freed memory, such as that of a closed page, to the system."""
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
