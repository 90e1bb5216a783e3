"""What a column means: numbers, categories or dates, each with its way into a matrix."""

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anchored.storage.headers import Header
from anchored.tables import cells
from anchored.tables.cells import Rows

MOST_LEVELS = 30  # of a category; rarer ones share a level
FARTHEST = 1e9  # ranges of the training data, beyond which arithmetic would overflow
CYCLES = {"year": 365.2425, "week": 7.0, "day": 1.0}  # in days
UNSEEN, NEWLY_MISSING, OUTSIDE = "category never seen at the fit", "missing, never so at the fit", "outside the range"


@dataclass(frozen=True)
class Surprise:
    """Cells unlike those of the fit, in one column."""

    column: str
    what: str
    n_rows: int
    first_row: int
    example: str

    @property
    def is_strange(self) -> bool:
        """Whether nothing was learnt about such a cell; a number outside the range is only far from what was."""
        return self.what != OUTSIDE

    def __str__(self) -> str:
        times = "1 row" if self.n_rows == 1 else f"{self.n_rows:,} rows"
        shown = f" ({self.example})" if self.example else ""
        return f"{self.column}: {self.what}{shown} in {times}, the first row {self.first_row}"


@dataclass(frozen=True)
class Encoded:
    """One column in numbers: (rows, features), and what was unlike the fit."""

    features: np.ndarray
    strange: np.ndarray  # (rows,), whether nothing was learnt about the cell
    surprises: list[Surprise]


@dataclass(frozen=True)
class NumberColumn:
    """A number, the median where it is missing, and whether it is, where some were at the fit."""

    name: str
    median: float
    low: float
    high: float
    n_missing: int  # at the fit
    kind: ClassVar = "number"

    @classmethod
    def of(cls, rows: Rows, name: str) -> "NumberColumn":
        """Learn from all rows."""
        values = cells.numbers(rows, name)
        known = values[np.isfinite(values)]
        return cls(name, *_summary(known), len(values) - len(known))

    @property
    def features(self) -> list[str]:
        return [self.name] + [f"{self.name} is missing"] * (self.n_missing > 0)

    def learnt_again(self, rows: Rows) -> "NumberColumn":
        return self.of(rows, self.name)

    def encode(self, rows: Rows, clip: bool = False) -> Encoded:
        values = cells.numbers(rows, self.name)
        absent = np.isnan(values)
        if clip:
            farthest = FARTHEST * (self.high - self.low)
            values = np.clip(values, self.median - farthest, self.median + farthest)
        self._check_far(rows, values)
        filled = np.where(absent, self.median, values)
        surprises = _newly_missing(rows, self, absent) + _outside(rows, self, filled, lambda value: f"{value:g}")
        return _encoded([filled], absent, np.zeros(len(values), bool), self.n_missing > 0, surprises)

    def _check_far(self, rows: Rows, values: np.ndarray) -> None:
        far = np.abs(values - self.median) > FARTHEST * (self.high - self.low)
        if far.any():
            index = int(np.argmax(far))
            told = f"{values[index]:g} is far beyond the {self.low:g} to {self.high:g} of the fit. Check its units."
            raise rows.error(index, self.name, told)

    def __str__(self) -> str:
        return self.span

    @property
    def span(self) -> str:
        return f"{self.low:g} to {self.high:g}"


@dataclass(frozen=True)
class CategoryColumn:
    """One feature a level; one that was never seen is none of them, which no member has learnt anything about."""

    name: str
    levels: tuple[str, ...]
    others: bool  # whether rare levels share one
    n_missing: int  # at the fit
    kind: ClassVar = "category"

    @classmethod
    def of(cls, rows: Rows, name: str) -> "CategoryColumn":
        """Learn from all rows: the commonest levels."""
        labels = cells.labels(rows, name)
        counted = sorted(pc.value_counts(labels.drop_null()).to_pylist(), key=lambda c: (-c["counts"], c["values"]))
        levels = tuple(sorted(count["values"] for count in counted[:MOST_LEVELS]))
        return cls(name, levels, len(counted) > MOST_LEVELS, labels.null_count)

    @property
    def features(self) -> list[str]:
        levels = [f"{self.name} = {level}" for level in self.levels] + [f"{self.name} is another"] * self.others
        return levels + [f"{self.name} is missing"] * (self.n_missing > 0)

    def learnt_again(self, rows: Rows) -> "CategoryColumn":
        return self.of(rows, self.name)

    def encode(self, rows: Rows, clip: bool = False) -> Encoded:
        labels = cells.labels(rows, self.name)
        absent = pc.is_null(labels).to_numpy(zero_copy_only=False)
        levels = pc.index_in(labels, value_set=pa.array(self.levels, pa.string()))
        codes = pc.fill_null(levels, -1).to_numpy(zero_copy_only=False)
        other = (codes < 0) & ~absent
        surprises = _newly_missing(rows, self, absent)
        unseen = other & (not self.others)
        if unseen.any():
            surprises.append(_surprise(rows, self.name, UNSEEN, unseen, lambda index: repr(labels[index].as_py())))
        features = [codes == code for code in range(len(self.levels))] + [other] * self.others
        return _encoded(features, absent, unseen, self.n_missing > 0, surprises)

    def __str__(self) -> str:
        shown = ", ".join(self.levels[:4]) + (", ..." if len(self.levels) > 4 else "")
        return f"{len(self.levels)} levels: {shown}" + (" and rare ones" if self.others else "")


@dataclass(frozen=True)
class DateColumn:
    """Days since 1970, and where it stands in the year, the week and the day, where those vary."""

    name: str
    date_format: str
    median: float
    low: float
    high: float
    cycles: tuple[str, ...]
    n_missing: int  # at the fit
    is_ambiguous: bool = False  # whether days may be months, for all that is written
    kind: ClassVar = "date"

    @classmethod
    def of(cls, rows: Rows, name: str, date_format: str, is_ambiguous: bool = False) -> "DateColumn":
        """Learn from all rows; a cycle that the dates go through less than once tells nothing."""
        days = cells.times(rows, name, date_format)
        known = days[np.isfinite(days)]
        median, low, high = _summary(known)
        finest = 1.0 if np.all(known == np.floor(known)) else 0.0
        cycles = tuple(cycle for cycle, length in CYCLES.items() if high - low >= length > finest)
        return cls(name, date_format, median, low, high, cycles, len(days) - len(known), is_ambiguous)

    @property
    def features(self) -> list[str]:
        waves = [f"{self.name}, {wave} of the {cycle}" for cycle in self.cycles for wave in ("sine", "cosine")]
        return [self.name, *waves] + [f"{self.name} is missing"] * (self.n_missing > 0)

    def learnt_again(self, rows: Rows) -> "DateColumn":
        return self.of(rows, self.name, self.date_format, self.is_ambiguous)

    def encode(self, rows: Rows, clip: bool = False) -> Encoded:
        days = cells.times(rows, self.name, self.date_format)
        absent = np.isnan(days)
        filled = np.where(absent, self.median, days)
        features = [filled]
        for cycle in self.cycles:
            angle = 2 * np.pi * filled / CYCLES[cycle]
            features += [np.where(absent, 0.0, np.sin(angle)), np.where(absent, 0.0, np.cos(angle))]
        surprises = _newly_missing(rows, self, absent) + _outside(rows, self, filled, _day)
        return _encoded(features, absent, np.zeros(len(days), bool), self.n_missing > 0, surprises)

    def __str__(self) -> str:
        order = self.date_format.split(" ")[0].replace("%d", "day").replace("%m", "month").replace("%Y", "year")
        return self.span + ("" if self.date_format == cells.ISO else f", written {order}")

    @property
    def span(self) -> str:
        return f"{_day(self.low)} to {_day(self.high)}"


Column = NumberColumn | CategoryColumn | DateColumn
KINDS: dict[str, Any] = {kind.kind: kind for kind in (NumberColumn, CategoryColumn, DateColumn)}


def to_json(column: Column) -> dict[str, Any]:
    """Its fields and its kind."""
    return {"kind": column.kind, **asdict(column)}


def from_json(described: Header) -> Column:
    """What `to_json` described; a StorageError where that is no column."""
    column = described.as_dataclass(KINDS[described.text("kind", KINDS)], beside=("kind",))
    described.whole("n_missing")
    if isinstance(column, CategoryColumn):
        if not 1 <= len(set(column.levels)) == len(column.levels) <= MOST_LEVELS:
            described.refuse(f"must hold from 1 to {MOST_LEVELS} levels, all different", "levels")
        return column
    farthest = cells.FARTHEST_DAY if isinstance(column, DateColumn) else cells.LARGEST
    described.number("low", -farthest, column.median)
    described.number("high", column.median, farthest)
    if isinstance(column, DateColumn):
        described.text("date_format", cells.FORMATS)
        if list(column.cycles) != [cycle for cycle in CYCLES if cycle in column.cycles]:
            described.refuse(f"must hold some of {list(CYCLES)}", "cycles")
    return column


def _summary(known: np.ndarray) -> tuple[float, float, float]:
    return float(np.median(known)), float(known.min()), float(known.max())


def _encoded(
    features: list[np.ndarray], absent: np.ndarray, unseen: np.ndarray, some_missing: bool, surprises: list[Surprise]
) -> Encoded:
    columns = [*features, absent] if some_missing else features
    strange = unseen if some_missing else unseen | absent
    return Encoded(np.stack(columns, axis=1).astype(np.float64), strange, surprises)


def _newly_missing(rows: Rows, column: Column, absent: np.ndarray) -> list[Surprise]:
    if column.n_missing or not absent.any():
        return []
    return [_surprise(rows, column.name, NEWLY_MISSING, absent, lambda index: "")]


def _outside(rows: Rows, column: NumberColumn | DateColumn, values: np.ndarray, written: Any) -> list[Surprise]:
    outside = (values < column.low) | (values > column.high)
    if not outside.any():
        return []
    return [
        _surprise(rows, column.name, OUTSIDE, outside, lambda index: f"{written(values[index])}, not {column.span}")
    ]


def _surprise(rows: Rows, name: str, what: str, where: np.ndarray, example: Any) -> Surprise:
    index = int(np.argmax(where))
    return Surprise(name, what, int(where.sum()), rows.number(index), example(index))


def _day(days: float) -> str:
    return str(np.datetime64(0, "D") + np.timedelta64(int(np.floor(days)), "D"))
