"""Collect the warnings of a task on a worker, so that they can be sent to the user's process and shown there."""

import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

_lock = threading.Lock()
_collected = threading.local()  # .warnings is the list of the task that this thread runs, if any
_n_tasks = 0  # number of tasks that collect warnings now, in all threads
_unchanged = warnings.catch_warnings()  # restores the filters when the last of these tasks ends


@contextmanager
def collecting() -> Iterator[list[Warning]]:
    """Context manager that yields a list, to which every warning that this thread issues in the block is added.

    `warnings.catch_warnings` alone would mix up the warnings of tasks in several threads.
    """
    _begin()
    _collected.warnings = []
    try:
        yield _collected.warnings
    finally:
        del _collected.warnings
        _end()


def show(collected: Sequence[Warning], stacklevel: int) -> None:
    """Issue the warnings `collected` by a worker; `stacklevel` is as if the caller called `warnings.warn` itself."""
    for warning in collected:
        warnings.warn(warning, stacklevel=stacklevel + 1)


def _begin() -> None:
    """Make the warnings of all threads reach `collect` every time they are issued."""
    global _n_tasks, _unchanged
    with _lock:
        _n_tasks += 1
        if _n_tasks > 1:
            return
        _unchanged = warnings.catch_warnings()
        _unchanged.__enter__()
        show_otherwise = warnings.showwarning

        def collect(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if hasattr(_collected, "warnings"):
                _collected.warnings.append(message if isinstance(message, Warning) else category(message))
            else:
                show_otherwise(message, category, filename, lineno, file, line)

        warnings.showwarning = collect
        warnings.simplefilter("always")


def _end() -> None:
    """Restore the filters if no other task collects warnings."""
    global _n_tasks
    with _lock:
        _n_tasks -= 1
        if _n_tasks == 0:
            _unchanged.__exit__(None, None, None)
