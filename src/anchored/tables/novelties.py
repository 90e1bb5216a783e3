"""Values of a table that are unlike the training data."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

import numpy as np

from anchored.storage.json_values import JsonObject
from anchored.tables.rows import RowBatch


class NoveltyKind(StrEnum):
    """How values are unlike the training data."""

    UNSEEN_CATEGORY = "category not seen in training"
    NEWLY_MISSING = "missing (never missing in training)"
    OUT_OF_RANGE = "outside the training range"


@dataclass(frozen=True)
class Novelty:
    """The values of one column that are unlike the training data, all of the same kind.

    Attributes
    ----------
    column : str
        Name of the column.
    kind : NoveltyKind
        How they are unlike the training data.
    n_rows : int
        Number of rows with such a value.
    first_row : int
        Number in the file of the first of these rows; the row below the header is row 1.
    example : str
        The value in that row as text, with the training range if it is outside; empty if the value is missing.
    """

    column: str
    kind: NoveltyKind
    n_rows: int
    first_row: int
    example: str

    @property
    def is_unknown(self) -> bool:
        """Whether the values are unseen categories or newly missing, rather than out of the training range."""
        return self.kind != NoveltyKind.OUT_OF_RANGE

    def to_json(self) -> JsonObject:
        """Return all fields by name, in JSON's types."""
        return asdict(self)

    def __str__(self) -> str:
        count = "1 row" if self.n_rows == 1 else f"{self.n_rows:,} rows"
        shown = f" ({self.example})" if self.example else ""
        return f"{self.column}: {self.kind}{shown} in {count}, first in row {self.first_row}"


def novelty(
    rows: RowBatch, name: str, kind: NoveltyKind, is_novel: np.ndarray, example: Callable[[int], str]
) -> Novelty:
    """Return the novelty of the values of the column `name` that are marked by `is_novel`, (rows,).

    `example` returns the text of the value at a position.
    """
    index = int(np.argmax(is_novel))
    return Novelty(name, kind, int(is_novel.sum()), rows.row_number(index), example(index))


def merged(novelties: Sequence[Novelty]) -> list[Novelty]:
    """Return one novelty for each column and kind, with the rows of all `novelties` of that column and kind counted.

    `novelties` are those of successive batches of a file, in the order of the rows.
    """
    by_column_and_kind: dict[tuple[str, NoveltyKind], Novelty] = {}
    for found in novelties:
        earlier = by_column_and_kind.get((found.column, found.kind))
        n_rows = found.n_rows + (earlier.n_rows if earlier else 0)
        first = earlier or found
        by_column_and_kind[found.column, found.kind] = Novelty(
            found.column, found.kind, n_rows, first.first_row, first.example
        )
    return list(by_column_and_kind.values())
