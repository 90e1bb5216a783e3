"""Values of a table that are unlike the training data."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

from anchored.storage.json_values import JsonObject


class NoveltyKind(StrEnum):
    """In which way values are unlike the training data."""

    UNSEEN_CATEGORY = "category not seen in training"
    NEWLY_MISSING = "missing, but never missing in training"
    OUT_OF_RANGE = "outside the training range"


@dataclass(frozen=True)
class Novelty:
    """The values of one column that are unlike the training data in one way.

    Attributes
    ----------
    column : str
        Name of the column.
    kind : NoveltyKind
        In which way they are unlike the training data.
    n_rows : int
        Number of rows with such a value.
    first_row : int
        Number in the file of the first of these rows.
    example : str
        The value in that row, for messages; empty if it is missing.
    """

    column: str
    kind: NoveltyKind
    n_rows: int
    first_row: int
    example: str

    @property
    def is_unknown(self) -> bool:
        """Whether no such value occurred in training; a number outside the training range is not counted."""
        return self.kind != NoveltyKind.OUT_OF_RANGE

    def to_json(self) -> JsonObject:
        """Return all fields by name."""
        return asdict(self)

    def __str__(self) -> str:
        count = "1 row" if self.n_rows == 1 else f"{self.n_rows:,} rows"
        shown = f" ({self.example})" if self.example else ""
        return f"{self.column}: {self.kind}{shown} in {count}, first in row {self.first_row}"


def merged(novelties: Sequence[Novelty]) -> list[Novelty]:
    """Return one novelty for each column and kind from the `novelties` of successive batches of a file."""
    found: dict[tuple[str, NoveltyKind], Novelty] = {}
    for novelty in novelties:
        before = found.get((novelty.column, novelty.kind))
        n_rows = novelty.n_rows + (before.n_rows if before else 0)
        first = before or novelty
        found[novelty.column, novelty.kind] = Novelty(
            novelty.column, novelty.kind, n_rows, first.first_row, first.example
        )
    return list(found.values())
