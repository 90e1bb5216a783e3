"""A batch of a table's rows, column by column, that knows where in the file each row stands."""

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from anchored.errors import TableError


@dataclass(frozen=True)
class RowBatch:
    """Consecutive rows of a file, or a selection of them.

    Attributes
    ----------
    source : the file, for messages
    first_row : number in the file of the first row; the row below the names of the columns is row 1
    columns : by name, one Arrow array each, all of the same length
    selected : (rows,) offsets from `first_row`, or None where the rows are consecutive
    """

    source: str
    first_row: int
    columns: dict[str, pa.Array]
    selected: np.ndarray | None = None

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def take(self, indices: np.ndarray) -> "RowBatch":
        """The rows at these positions, which keep their numbers in the file."""
        columns = {name: column.take(pa.array(indices)) for name, column in self.columns.items()}
        return replace(self, columns=columns, selected=indices if self.selected is None else self.selected[indices])

    def without(self, names: Collection[str]) -> "RowBatch":
        """The same rows without the columns of these names."""
        return replace(self, columns={name: column for name, column in self.columns.items() if name not in names})

    def row_number(self, index: int) -> int:
        """The number in the file of the row at this position."""
        return self.first_row + int(index if self.selected is None else self.selected[index])

    def error(self, index: int, column: str, problem: str, remedy: str = "") -> TableError:
        """An error about one value: its row (by position), its column, what is wrong, and what to do."""
        return TableError(f"{self.source}, row {self.row_number(index)}, column {column!r}", problem, remedy)

    def column_error(self, column: str, problem: str, remedy: str = "") -> TableError:
        """An error about a whole column."""
        return TableError(f"{self.source}, column {column!r}", problem, remedy)
