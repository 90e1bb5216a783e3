"""The kinds of columns (numbers, categories and dates), and how each is encoded as features.

Every kind has the same interface: `fit` learns from rows, `features` names its features, `encode` computes them, and
`refitted` learns the same kind of column from other rows.
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

MAX_LEVELS = 30  # of a category; rarer labels share one more level
MAX_DISTANCE = 1e9  # from the median, in ranges of the training data; beyond it arithmetic could overflow
CYCLES = {"year": 365.2425, "week": 7.0, "day": 1.0}  # in days


@dataclass(frozen=True)
class Encoded:
    """One encoded column.

    Attributes
    ----------
    features : (rows, features of this column)
        The features.
    unknown : (rows,)
        Whether the value is a new category, or missing in a column that had none missing in training.
    novelties : list of Novelty
        Values unlike the training data.
    """

    features: np.ndarray
    unknown: np.ndarray
    novelties: list[Novelty]


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers: missing ones are set to the median, and marked if some were missing in training.

    Attributes
    ----------
    name : str
        Name of the column.
    median, low, high : float
        Median, minimum and maximum in training, in units of the column.
    n_missing : int
        Number of training rows where it was missing.
    """

    name: str
    median: float
    low: float
    high: float
    n_missing: int
    kind: ClassVar[str] = "number"

    @classmethod
    def fit(cls, rows: RowBatch, name: str) -> "NumberColumn":
        """Learn the column called `name` from `rows`."""
        numbers = values.numbers(rows, name)
        known = numbers[np.isfinite(numbers)]
        return cls(name, *_summary(known), len(numbers) - len(known))

    @property
    def features(self) -> list[str]:
        """Names of its features."""
        return [self.name] + [f"{self.name} is missing"] * (self.n_missing > 0)

    def refitted(self, rows: RowBatch) -> "NumberColumn":
        """Return the same kind of column, learnt from other `rows`."""
        return self.fit(rows, self.name)

    def encode(self, rows: RowBatch, clip: bool = False) -> Encoded:
        """Encode the column of these rows.

        A number too far from the training data raises a TableError; with `clip` it is clipped instead.
        """
        numbers = values.numbers(rows, self.name)
        missing = np.isnan(numbers)
        if clip:
            farthest = MAX_DISTANCE * (self.high - self.low)
            numbers = np.clip(numbers, self.median - farthest, self.median + farthest)
        self._check_distance(rows, numbers)
        filled = np.where(missing, self.median, numbers)
        novelties = _newly_missing(rows, self, missing) + _out_of_range(rows, self, filled, lambda value: f"{value:g}")
        return _encoded([filled], missing, np.zeros(len(numbers), bool), self.n_missing > 0, novelties)

    def _check_distance(self, rows: RowBatch, numbers: np.ndarray) -> None:
        """Raise a TableError that names the first number too far from the training data."""
        far = np.abs(numbers - self.median) > MAX_DISTANCE * (self.high - self.low)
        if far.any():
            index = int(np.argmax(far))
            problem = f"{numbers[index]:g} is far outside the training range, {self.low:g} to {self.high:g}"
            raise rows.error(index, self.name, problem, "Check its units")

    def __str__(self) -> str:
        return self.range

    @property
    def range(self) -> str:
        """The minimum and maximum in training, as text."""
        return f"{self.low:g} to {self.high:g}"


@dataclass(frozen=True)
class CategoryColumn:
    """A column of categories, encoded as one feature per level; all are 0 for a label that did not occur in training.

    Attributes
    ----------
    name : str
        Name of the column.
    levels : tuple of str
        The most frequent labels in training, sorted.
    others : bool
        Whether rarer labels share one more level.
    n_missing : int
        Number of training rows where it was missing.
    """

    name: str
    levels: tuple[str, ...]
    others: bool
    n_missing: int
    kind: ClassVar[str] = "category"

    @classmethod
    def fit(cls, rows: RowBatch, name: str) -> "CategoryColumn":
        """Learn the most frequent labels of the column called `name` from `rows`."""
        labels = values.labels(rows, name)
        counted = sorted(pc.value_counts(labels.drop_null()).to_pylist(), key=lambda c: (-c["counts"], c["values"]))
        levels = tuple(sorted(count["values"] for count in counted[:MAX_LEVELS]))
        return cls(name, levels, len(counted) > MAX_LEVELS, labels.null_count)

    @property
    def features(self) -> list[str]:
        """Names of its features."""
        levels = [f"{self.name} = {level}" for level in self.levels] + [f"{self.name} is rare"] * self.others
        return levels + [f"{self.name} is missing"] * (self.n_missing > 0)

    def refitted(self, rows: RowBatch) -> "CategoryColumn":
        """Return the same kind of column, learnt from other `rows`."""
        return self.fit(rows, self.name)

    def encode(self, rows: RowBatch, clip: bool = False) -> Encoded:
        """Encode the column of these rows; `clip` has no effect."""
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
    """A column of dates, encoded as days since 1970, and as sine and cosine of the time of the year, week and day.

    Attributes
    ----------
    name : str
        Name of the column.
    date_format : str
        One of `dates.FORMATS`.
    median, low, high : float
        Median, minimum and maximum in training, in days since 1970.
    cycles : tuple of str
        The cycles, of "year", "week" and "day", that are shorter than the range of the training dates. "day" is
        among them only if the dates have times.
    n_missing : int
        Number of training rows where it was missing.
    is_ambiguous : bool
        Whether day and month could be swapped in all training dates.
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
    def fit(cls, rows: RowBatch, name: str, date_format: str, is_ambiguous: bool = False) -> "DateColumn":
        """Learn the column called `name`, written in `date_format`, from `rows`; `is_ambiguous` is stored as given."""
        days = dates.days(rows, name, date_format)
        known = days[np.isfinite(days)]
        median, low, high = _summary(known)
        finest = 1.0 if np.all(known == np.floor(known)) else 0.0
        cycles = tuple(cycle for cycle, length in CYCLES.items() if high - low >= length > finest)
        return cls(name, date_format, median, low, high, cycles, len(days) - len(known), is_ambiguous)

    @property
    def features(self) -> list[str]:
        """Names of its features."""
        phases = [f"{self.name}, {wave} of the {cycle}" for cycle in self.cycles for wave in ("sine", "cosine")]
        return [self.name, *phases] + [f"{self.name} is missing"] * (self.n_missing > 0)

    def refitted(self, rows: RowBatch) -> "DateColumn":
        """Return the same kind of column, learnt from other `rows`."""
        return self.fit(rows, self.name, self.date_format, self.is_ambiguous)

    def encode(self, rows: RowBatch, clip: bool = False) -> Encoded:
        """Encode the column of these rows; `clip` has no effect, since no date is far enough away to overflow."""
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
        """The first and the last date in training, as text."""
        return f"{_date(self.low)} to {_date(self.high)}"


Column = NumberColumn | CategoryColumn | DateColumn
KINDS: dict[str, type[Column]] = {kind.kind: kind for kind in (NumberColumn, CategoryColumn, DateColumn)}


def to_json(column: Column) -> JsonObject:
    """Return the fields of `column` and its kind as JSON."""
    return {"kind": column.kind, **asdict(column)}


def from_json(header: Header) -> Column:
    """Return the column that `to_json` wrote to `header`; a StorageError names an invalid field."""
    column = header.as_dataclass(KINDS[header.text("kind", KINDS)], beside=("kind",))
    header.whole("n_missing")
    if isinstance(column, CategoryColumn):
        if not 1 <= len(set(column.levels)) == len(column.levels) <= MAX_LEVELS:
            header.refuse(f"must hold from 1 to {MAX_LEVELS} levels, all different", "levels")
        return column
    farthest = dates.MAX_DAYS if isinstance(column, DateColumn) else values.MAX_NUMBER
    header.number("low", -farthest, column.median)
    header.number("high", column.median, farthest)
    if isinstance(column, DateColumn):
        header.text("date_format", dates.FORMATS)
        if list(column.cycles) != [cycle for cycle in CYCLES if cycle in column.cycles]:
            header.refuse(f"must hold some of {list(CYCLES)}", "cycles")
    return column


def _summary(known: np.ndarray) -> tuple[float, float, float]:
    """Return median, minimum and maximum."""
    return float(np.median(known)), float(known.min()), float(known.max())


def _encoded(
    features: list[np.ndarray], missing: np.ndarray, unseen: np.ndarray, some_missing: bool, novelties: list[Novelty]
) -> Encoded:
    """Stack features; a missing value is marked by one more feature if some were missing in training."""
    columns = [*features, missing] if some_missing else features
    unknown = unseen if some_missing else unseen | missing
    return Encoded(np.stack(columns, axis=1).astype(np.float64), unknown, novelties)


def _newly_missing(rows: RowBatch, column: Column, missing: np.ndarray) -> list[Novelty]:
    """Return a novelty if values are missing in a column that had none missing in training."""
    if column.n_missing or not missing.any():
        return []
    return [_novelty(rows, column.name, NoveltyKind.NEWLY_MISSING, missing, lambda index: "")]


def _out_of_range(
    rows: RowBatch, column: NumberColumn | DateColumn, numbers: np.ndarray, to_text: Callable[[float], str]
) -> list[Novelty]:
    """Return a novelty if numbers lie outside the training range of the column."""
    outside = (numbers < column.low) | (numbers > column.high)
    if not outside.any():
        return []

    def example(index: int) -> str:
        return f"{to_text(numbers[index])}, not {column.range}"

    return [_novelty(rows, column.name, NoveltyKind.OUT_OF_RANGE, outside, example)]


def _novelty(
    rows: RowBatch, name: str, kind: NoveltyKind, is_novel: np.ndarray, example: Callable[[int], str]
) -> Novelty:
    """Return the novelty of the rows marked by `is_novel`; `example` gives the text of a value by its position."""
    index = int(np.argmax(is_novel))
    return Novelty(name, kind, int(is_novel.sum()), rows.row_number(index), example(index))


def _date(days: float) -> str:
    """Return days since 1970 as an ISO date."""
    return str(np.datetime64(0, "D") + np.timedelta64(int(np.floor(days)), "D"))
