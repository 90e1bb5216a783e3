"""Work on the columns of a large table in threads: Arrow and NumPy release Python's lock while they compute."""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
MIN_ROWS = 100_000  # of a table, for threads to be worth their start


def map_columns(function: Callable[[Item], Result], columns: Iterable[Item], n_rows: int) -> list[Result]:
    """Return `function` of each of `columns`, in their order; in threads if a column has MIN_ROWS rows or more.

    An error is that of the first column that raises one.
    """
    if n_rows < MIN_ROWS:
        return [function(column) for column in columns]
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        return list(threads.map(function, columns))
