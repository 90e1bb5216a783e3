"""Values of a table that are unlike those the model was fitted to."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

from anchored.storage.json_values import JsonObject


class NoveltyKind(StrEnum):
    """In which way values are unlike those of the fit."""

    UNSEEN_CATEGORY = "category never seen at the fit"
    NEWLY_MISSING = "missing, never so at the fit"
    OUT_OF_RANGE = "outside the range"


@dataclass(frozen=True)
class Novelty:
    """The values of one column that are unlike those of the fit in one way.

    Attributes
    ----------
    column : its name
    kind : in which way
    n_rows : how many rows have such a value
    first_row : number in the file of the first of them
    example : the value of that row, for messages; empty where it is missing
    """

    column: str
    kind: NoveltyKind
    n_rows: int
    first_row: int
    example: str

    @property
    def is_unknown(self) -> bool:
        """Whether the model has learnt nothing about such values; a number outside the range is only far away."""
        return self.kind != NoveltyKind.OUT_OF_RANGE

    def to_json(self) -> JsonObject:
        """All fields by name."""
        return asdict(self)

    def __str__(self) -> str:
        count = "1 row" if self.n_rows == 1 else f"{self.n_rows:,} rows"
        shown = f" ({self.example})" if self.example else ""
        return f"{self.column}: {self.kind}{shown} in {count}, the first row {self.first_row}"


def merged(novelties: Sequence[Novelty]) -> list[Novelty]:
    """The novelties of several batches of a file, in the order of its rows, as one for each column and kind."""
    found: dict[tuple[str, NoveltyKind], Novelty] = {}
    for one in novelties:
        before = found.get((one.column, one.kind))
        n_rows = one.n_rows + (before.n_rows if before else 0)
        first = before or one
        found[one.column, one.kind] = Novelty(one.column, one.kind, n_rows, first.first_row, first.example)
    return list(found.values())
