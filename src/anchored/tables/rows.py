"""A batch of rows of a table, stored by column, with the number of each row in its file."""

from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from anchored.errors import TableError

Read = TypeVar("Read")


@dataclass(frozen=True)
class RowBatch:
    """Consecutive rows of a file, or a selection of them.

    Attributes
    ----------
    source : str
        The file, for messages.
    first_row : int
        Number of the first row in the file, where the row below the header is row 1; if `selected` is not None, the
        number that its offsets are relative to.
    columns : dict of str to Arrow array
        The columns by name, all of the same length.
    selected : (rows,) or None
        Offsets of the rows from `first_row`; None if the rows are consecutive.
    """

    source: str
    first_row: int
    columns: dict[str, pa.Array]
    selected: np.ndarray | None = None
    _read: dict[Hashable, Any] = field(init=False, default_factory=dict, compare=False, repr=False)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def once(self, key: Hashable, read: Callable[[], Read]) -> Read:
        """Return `read()`, called only once for each `key`, so that inference and encoding share the result."""
        if key not in self._read:
            self._read[key] = read()
        return self._read[key]

    def take(self, indices: np.ndarray) -> "RowBatch":
        """Return the rows at the positions `indices`; they keep their numbers in the file."""
        columns = {name: column.take(pa.array(indices)) for name, column in self.columns.items()}
        return replace(self, columns=columns, selected=indices if self.selected is None else self.selected[indices])

    def without(self, names: Collection[str]) -> "RowBatch":
        """Return the same rows without the columns called `names`."""
        return replace(self, columns={name: column for name, column in self.columns.items() if name not in names})

    def row_number(self, index: int) -> int:
        """Return the number in the file of the row at position `index` of this batch."""
        return self.first_row + int(index if self.selected is None else self.selected[index])

    def error(self, index: int, column: str, problem: str, remedy: str = "") -> TableError:
        """Return an error about the value at position `index` of the column `column`.

        `problem` and `remedy` are those of a TableError.
        """
        return TableError(f"{self.source}, row {self.row_number(index)}, column {column!r}", problem, remedy)

    def column_error(self, column: str, problem: str, remedy: str = "") -> TableError:
        """Return an error about the column called `column`; `problem` and `remedy` are those of a TableError."""
        return TableError(f"{self.source}, column {column!r}", problem, remedy)
