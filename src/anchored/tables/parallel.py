"""Work on columns and batches of a table in threads: Arrow, NumPy and JAX release Python's lock while they compute."""

import contextvars
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
MIN_ROWS = 100_000  # smallest number of rows for which threads are faster


def map_columns(function: Callable[[Item], Result], columns: Iterable[Item], n_rows: int) -> list[Result]:
    """Return the result of `function` for each of `columns`; in threads if a column has MIN_ROWS rows or more.

    If several calls raise an error, the error of the first column is raised.
    """
    if n_rows < MIN_ROWS:
        return [function(column) for column in columns]
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        return list(threads.map(function, columns))


def map_ahead(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[tuple[Item, Result]]:
    """Yield pairs of each of `items` and its result of `function`, in the order of the items.

    Meanwhile, threads compute the results of the next items, of which two more are taken than there are processors.
    """
    pending = deque[tuple[Item, Future[Result]]]()
    n_threads = os.cpu_count() or 1
    threads = ThreadPoolExecutor(n_threads)
    try:
        for item in items:
            pending.append((item, threads.submit(contextvars.copy_context().run, function, item)))
            if len(pending) > n_threads + 1:
                first, future = pending.popleft()
                yield first, future.result()
        while pending:
            first, future = pending.popleft()
            yield first, future.result()
    finally:  # also if an item raises an error, or the caller stops early
        threads.shutdown(cancel_futures=True)
