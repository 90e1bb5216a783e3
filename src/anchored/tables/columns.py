"""What a column means: numbers, categories or dates, each with its way into a matrix.

Every kind of column has the same interface: `of` learns from rows, `features` names its columns of the matrix,
`encode` fills them, and `refitted` learns the same kind of column from other rows.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anchored.storage.headers import Header
from anchored.storage.json_values import JsonObject
from anchored.tables import dates, values
from anchored.tables.novelties import Novelty, NoveltyKind
from anchored.tables.rows import RowBatch

MOST_LEVELS = 30  # of a category; rarer ones share a level
FARTHEST = 1e9  # ranges of the training data, beyond which arithmetic would overflow
CYCLES = {"year": 365.2425, "week": 7.0, "day": 1.0}  # in days


@dataclass(frozen=True)
class Encoded:
    """One column as numbers.

    Attributes
    ----------
    features : (rows, features of this column)
    unknown : (rows,) booleans, whether the model has learnt nothing about such a value
    novelties : what was unlike the fit
    """

    features: np.ndarray
    unknown: np.ndarray
    novelties: list[Novelty]


@dataclass(frozen=True)
class NumberColumn:
    """A number, the median where it is missing, and, if some were missing at the fit, whether it is.

    Attributes
    ----------
    median, low, high : of the values at the fit, in units of the column
    n_missing : rows of the fit where it was missing
    """

    name: str
    median: float
    low: float
    high: float
    n_missing: int
    kind: ClassVar[str] = "number"

    @classmethod
    def of(cls, rows: RowBatch, name: str) -> "NumberColumn":
        """Learn from all `rows` of the column called `name`."""
        numbers = values.numbers(rows, name)
        known = numbers[np.isfinite(numbers)]
        return cls(name, *_summary(known), len(numbers) - len(known))

    @property
    def features(self) -> list[str]:
        """Names of its columns of the matrix."""
        return [self.name] + [f"{self.name} is missing"] * (self.n_missing > 0)

    def refitted(self, rows: RowBatch) -> "NumberColumn":
        """The same column learnt from other rows."""
        return self.of(rows, self.name)

    def encode(self, rows: RowBatch, clip: bool = False) -> Encoded:
        """The column of these rows. A number too far from those of the fit raises; `clip` brings it nearer instead."""
        numbers = values.numbers(rows, self.name)
        missing = np.isnan(numbers)
        if clip:
            farthest = FARTHEST * (self.high - self.low)
            numbers = np.clip(numbers, self.median - farthest, self.median + farthest)
        self._check_far(rows, numbers)
        filled = np.where(missing, self.median, numbers)
        novelties = _newly_missing(rows, self, missing) + _out_of_range(rows, self, filled, lambda value: f"{value:g}")
        return _encoded([filled], missing, np.zeros(len(numbers), bool), self.n_missing > 0, novelties)

    def _check_far(self, rows: RowBatch, numbers: np.ndarray) -> None:
        far = np.abs(numbers - self.median) > FARTHEST * (self.high - self.low)
        if far.any():
            index = int(np.argmax(far))
            problem = f"{numbers[index]:g} is far beyond the {self.low:g} to {self.high:g} of the fit"
            raise rows.error(index, self.name, problem, "Check its units")

    def __str__(self) -> str:
        return self.range

    @property
    def range(self) -> str:
        """The lowest and highest value at the fit, for people."""
        return f"{self.low:g} to {self.high:g}"


@dataclass(frozen=True)
class CategoryColumn:
    """One feature for each level; a level that was never seen is none of them, and no member has learnt about it.

    Attributes
    ----------
    levels : the commonest labels at the fit, sorted
    others : whether rarer labels share one more level
    n_missing : rows of the fit where it was missing
    """

    name: str
    levels: tuple[str, ...]
    others: bool
    n_missing: int
    kind: ClassVar[str] = "category"

    @classmethod
    def of(cls, rows: RowBatch, name: str) -> "CategoryColumn":
        """Learn the commonest levels from all `rows` of the column called `name`."""
        labels = values.labels(rows, name)
        counted = sorted(pc.value_counts(labels.drop_null()).to_pylist(), key=lambda c: (-c["counts"], c["values"]))
        levels = tuple(sorted(count["values"] for count in counted[:MOST_LEVELS]))
        return cls(name, levels, len(counted) > MOST_LEVELS, labels.null_count)

    @property
    def features(self) -> list[str]:
        """Names of its columns of the matrix."""
        levels = [f"{self.name} = {level}" for level in self.levels] + [f"{self.name} is another"] * self.others
        return levels + [f"{self.name} is missing"] * (self.n_missing > 0)

    def refitted(self, rows: RowBatch) -> "CategoryColumn":
        """The same column learnt from other rows."""
        return self.of(rows, self.name)

    def encode(self, rows: RowBatch, clip: bool = False) -> Encoded:
        """The column of these rows; `clip` has no effect."""
        labels = values.labels(rows, self.name)
        missing = pc.is_null(labels).to_numpy(zero_copy_only=False)
        levels = pc.index_in(labels, value_set=pa.array(self.levels, pa.string()))
        codes = pc.fill_null(levels, -1).to_numpy(zero_copy_only=False)
        other = (codes < 0) & ~missing
        novelties = _newly_missing(rows, self, missing)
        unseen = other & (not self.others)
        if unseen.any():
            kind = NoveltyKind.UNSEEN_CATEGORY
            novelties.append(_novelty(rows, self.name, kind, unseen, lambda index: repr(labels[index].as_py())))
        features = [codes == code for code in range(len(self.levels))] + [other] * self.others
        return _encoded(features, missing, unseen, self.n_missing > 0, novelties)

    def __str__(self) -> str:
        shown = ", ".join(self.levels[:4]) + (", ..." if len(self.levels) > 4 else "")
        return f"{len(self.levels)} levels: {shown}" + (" and rare ones" if self.others else "")


@dataclass(frozen=True)
class DateColumn:
    """Days since 1970, and the phase of the year, the week and the day as sine and cosine, where those vary.

    Attributes
    ----------
    date_format : one of `dates.FORMATS`
    median, low, high : of the dates at the fit, in days since 1970
    cycles : some of "year", "week" and "day", which the dates of the fit go through at least once
    n_missing : rows of the fit where it was missing
    is_ambiguous : whether days and months could be swapped in all dates of the fit
    """

    name: str
    date_format: str
    median: float
    low: float
    high: float
    cycles: tuple[str, ...]
    n_missing: int
    is_ambiguous: bool = False
    kind: ClassVar[str] = "date"

    @classmethod
    def of(cls, rows: RowBatch, name: str, date_format: str, is_ambiguous: bool = False) -> "DateColumn":
        """Learn from all `rows` of the column called `name`, which is written in `date_format`."""
        days = dates.days(rows, name, date_format)
        known = days[np.isfinite(days)]
        median, low, high = _summary(known)
        finest = 1.0 if np.all(known == np.floor(known)) else 0.0
        cycles = tuple(cycle for cycle, length in CYCLES.items() if high - low >= length > finest)
        return cls(name, date_format, median, low, high, cycles, len(days) - len(known), is_ambiguous)

    @property
    def features(self) -> list[str]:
        """Names of its columns of the matrix."""
        waves = [f"{self.name}, {wave} of the {cycle}" for cycle in self.cycles for wave in ("sine", "cosine")]
        return [self.name, *waves] + [f"{self.name} is missing"] * (self.n_missing > 0)

    def refitted(self, rows: RowBatch) -> "DateColumn":
        """The same column learnt from other rows."""
        return self.of(rows, self.name, self.date_format, self.is_ambiguous)

    def encode(self, rows: RowBatch, clip: bool = False) -> Encoded:
        """The column of these rows; `clip` has no effect, since dates cannot be far enough to overflow."""
        days = dates.days(rows, self.name, self.date_format)
        missing = np.isnan(days)
        filled = np.where(missing, self.median, days)
        features = [filled]
        for cycle in self.cycles:
            angle = 2 * np.pi * filled / CYCLES[cycle]
            features += [np.where(missing, 0.0, np.sin(angle)), np.where(missing, 0.0, np.cos(angle))]
        novelties = _newly_missing(rows, self, missing) + _out_of_range(rows, self, filled, _date)
        return _encoded(features, missing, np.zeros(len(days), bool), self.n_missing > 0, novelties)

    def __str__(self) -> str:
        order = self.date_format.split(" ")[0].replace("%d", "day").replace("%m", "month").replace("%Y", "year")
        return self.range + ("" if self.date_format == dates.ISO else f", written {order}")

    @property
    def range(self) -> str:
        """The first and the last date at the fit, for people."""
        return f"{_date(self.low)} to {_date(self.high)}"


Column = NumberColumn | CategoryColumn | DateColumn
KINDS: dict[str, type[Column]] = {kind.kind: kind for kind in (NumberColumn, CategoryColumn, DateColumn)}


def to_json(column: Column) -> JsonObject:
    """The fields of a column, and its kind."""
    return {"kind": column.kind, **asdict(column)}


def from_json(described: Header) -> Column:
    """The column that `to_json` described; a StorageError names the field that does not fit."""
    column = described.as_dataclass(KINDS[described.text("kind", KINDS)], beside=("kind",))
    described.whole("n_missing")
    if isinstance(column, CategoryColumn):
        if not 1 <= len(set(column.levels)) == len(column.levels) <= MOST_LEVELS:
            described.refuse(f"must hold from 1 to {MOST_LEVELS} levels, all different", "levels")
        return column
    farthest = dates.FARTHEST_DAY if isinstance(column, DateColumn) else values.LARGEST
    described.number("low", -farthest, column.median)
    described.number("high", column.median, farthest)
    if isinstance(column, DateColumn):
        described.text("date_format", dates.FORMATS)
        if list(column.cycles) != [cycle for cycle in CYCLES if cycle in column.cycles]:
            described.refuse(f"must hold some of {list(CYCLES)}", "cycles")
    return column


def _summary(known: np.ndarray) -> tuple[float, float, float]:
    return float(np.median(known)), float(known.min()), float(known.max())


def _encoded(
    features: list[np.ndarray], missing: np.ndarray, unseen: np.ndarray, some_missing: bool, novelties: list[Novelty]
) -> Encoded:
    columns = [*features, missing] if some_missing else features
    unknown = unseen if some_missing else unseen | missing
    return Encoded(np.stack(columns, axis=1).astype(np.float64), unknown, novelties)


def _newly_missing(rows: RowBatch, column: Column, missing: np.ndarray) -> list[Novelty]:
    if column.n_missing or not missing.any():
        return []
    return [_novelty(rows, column.name, NoveltyKind.NEWLY_MISSING, missing, lambda index: "")]


def _out_of_range(
    rows: RowBatch, column: NumberColumn | DateColumn, numbers: np.ndarray, written: Callable[[float], str]
) -> list[Novelty]:
    outside = (numbers < column.low) | (numbers > column.high)
    if not outside.any():
        return []

    def example(index: int) -> str:
        return f"{written(numbers[index])}, not {column.range}"

    return [_novelty(rows, column.name, NoveltyKind.OUT_OF_RANGE, outside, example)]


def _novelty(rows: RowBatch, name: str, kind: NoveltyKind, where: np.ndarray, example: Callable[[int], str]) -> Novelty:
    index = int(np.argmax(where))
    return Novelty(name, kind, int(where.sum()), rows.row_number(index), example(index))


def _date(days: float) -> str:
    return str(np.datetime64(0, "D") + np.timedelta64(int(np.floor(days)), "D"))
