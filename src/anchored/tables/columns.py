"""The kinds of columns (numbers, categories and dates), and how each is encoded as features.

`fit` learns a column from rows; for dates it also takes their format, which `dates.infer_format` finds. The rest is the
same for every kind: `feature_names` names the features, `encode` computes them, and `refitted` learns the same kind of
column from other rows. A category column holds labels; the most frequent labels are its levels.
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

MAX_LEVELS = 30  # of a category column; all rarer labels share one more feature
# Largest distance from the median, in multiples of the training range (high − low): beyond it, sums could overflow.
MAX_DISTANCE = 1e9
CYCLES = {"year": 365.2425, "week": 7.0, "day": 1.0}  # lengths in days


@dataclass(frozen=True)
class Encoded:
    """One encoded column.

    Attributes
    ----------
    features : (rows, features of this column)
        The features.
    unknown : (rows,)
        Whether the value is a label that is neither a level nor counted as rare, or is missing in a column that had no
        missing values in training.
    novelties : list of Novelty
        Values unlike the training data.
    """

    features: np.ndarray
    unknown: np.ndarray
    novelties: list[Novelty]


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers.

    A missing number is encoded as the median; if numbers were missing in training, one more feature marks it.

    Attributes
    ----------
    name : str
        Name of the column.
    median, low, high : float
        Median, minimum and maximum in training, in units of the column.
    n_missing : int
        Number of training rows where the value was missing.
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
    def feature_names(self) -> list[str]:
        """Names of the features that `encode` returns, in their order."""
        return [self.name] + [f"{self.name} is missing"] * (self.n_missing > 0)

    def refitted(self, rows: RowBatch) -> "NumberColumn":
        """Return the same kind of column, learnt from other `rows`."""
        return self.fit(rows, self.name)

    def encode(self, rows: RowBatch, clip: bool = False) -> Encoded:
        """Encode this column of `rows`.

        A number farther than MAX_DISTANCE training ranges from the median raises a TableError; if `clip`, it is set to
        the farthest allowed number instead.
        """
        numbers = values.numbers(rows, self.name)
        is_missing = np.isnan(numbers)
        if clip:
            farthest = MAX_DISTANCE * (self.high - self.low)
            numbers = np.clip(numbers, self.median - farthest, self.median + farthest)
        else:
            self._check_distance(rows, numbers)
        filled = np.where(is_missing, self.median, numbers)
        novelties = _newly_missing(rows, self, is_missing) + _out_of_range(
            rows, self, filled, lambda value: f"{value:g}"
        )
        return _encoded(self, [filled], is_missing, np.zeros(len(numbers), bool), novelties)

    def _check_distance(self, rows: RowBatch, numbers: np.ndarray) -> None:
        """Raise a TableError for the first of `numbers` farther than MAX_DISTANCE training ranges from the median."""
        is_far = np.abs(numbers - self.median) > MAX_DISTANCE * (self.high - self.low)
        if is_far.any():
            index = int(np.argmax(is_far))
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
    """A column of labels, encoded as one feature per level.

    A label that is not a level sets the rare-label feature if there is one; otherwise all features are 0 and the value
    is reported as unseen.

    Attributes
    ----------
    name : str
        Name of the column.
    levels : tuple of str
        The most frequent labels in training, sorted.
    others : bool
        Whether training had more labels than MAX_LEVELS, so that one more feature marks all labels that are not levels.
    n_missing : int
        Number of training rows where the value was missing.
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
    def feature_names(self) -> list[str]:
        """Names of the features that `encode` returns, in their order."""
        levels = [f"{self.name} = {level}" for level in self.levels] + [f"{self.name} is rare"] * self.others
        return levels + [f"{self.name} is missing"] * (self.n_missing > 0)

    def refitted(self, rows: RowBatch) -> "CategoryColumn":
        """Return the same kind of column, learnt from other `rows`."""
        return self.fit(rows, self.name)

    def encode(self, rows: RowBatch, clip: bool = False) -> Encoded:
        """Encode this column of `rows`; `clip` has no effect on labels."""
        labels = values.labels(rows, self.name)
        is_missing = pc.is_null(labels).to_numpy(zero_copy_only=False)
        level_indices = pc.index_in(labels, value_set=pa.array(self.levels, pa.string()))
        codes = pc.fill_null(level_indices, -1).to_numpy(zero_copy_only=False)
        is_not_a_level = (codes < 0) & ~is_missing
        novelties = _newly_missing(rows, self, is_missing)
        is_unseen = is_not_a_level & (not self.others)
        if is_unseen.any():
            kind = NoveltyKind.UNSEEN_CATEGORY
            novelties.append(_novelty(rows, self.name, kind, is_unseen, lambda index: repr(labels[index].as_py())))
        features = [codes == code for code in range(len(self.levels))] + [is_not_a_level] * self.others
        return _encoded(self, features, is_missing, is_unseen, novelties)

    def __str__(self) -> str:
        shown = ", ".join(self.levels[:4]) + (", ..." if len(self.levels) > 4 else "")
        return f"{len(self.levels)} levels: {shown}" + (" and rare ones" if self.others else "")


@dataclass(frozen=True)
class DateColumn:
    """A column of dates.

    It is encoded as days since 1970, and as the sine and cosine of the phase in each of `cycles`. A missing date is
    encoded as the median, and its sines and cosines as 0.

    Attributes
    ----------
    name : str
        Name of the column.
    date_format : str
        One of `dates.FORMATS`.
    median, low, high : float
        Median, minimum and maximum in training, in days since 1970.
    cycles : tuple of str
        Those of "year", "week" and "day" that are no longer than the range of the training dates; "day" only if some
        dates have a time of day.
    n_missing : int
        Number of training rows where the value was missing.
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
        """Learn the column `name` of `rows`, whose dates are in `date_format`; `is_ambiguous` is stored as given."""
        days = dates.days(rows, name, date_format)
        known = days[np.isfinite(days)]
        median, low, high = _summary(known)
        resolution = 1.0 if np.all(known == np.floor(known)) else 0.0  # in days; 1 if no date has a time of day
        cycles = tuple(cycle for cycle, length in CYCLES.items() if high - low >= length > resolution)
        return cls(name, date_format, median, low, high, cycles, len(days) - len(known), is_ambiguous)

    @property
    def feature_names(self) -> list[str]:
        """Names of the features that `encode` returns, in their order."""
        phases = [f"{self.name}, {wave} of the {cycle}" for cycle in self.cycles for wave in ("sine", "cosine")]
        return [self.name, *phases] + [f"{self.name} is missing"] * (self.n_missing > 0)

    def refitted(self, rows: RowBatch) -> "DateColumn":
        """Return the same kind of column, learnt from other `rows`."""
        return self.fit(rows, self.name, self.date_format, self.is_ambiguous)

    def encode(self, rows: RowBatch, clip: bool = False) -> Encoded:
        """Encode this column of `rows`; `clip` has no effect, since no date is far enough away to overflow."""
        days = dates.days(rows, self.name, self.date_format)
        is_missing = np.isnan(days)
        filled = np.where(is_missing, self.median, days)
        features = [filled]
        for cycle in self.cycles:
            angle = 2 * np.pi * filled / CYCLES[cycle]
            features += [np.where(is_missing, 0.0, np.sin(angle)), np.where(is_missing, 0.0, np.cos(angle))]
        novelties = _newly_missing(rows, self, is_missing) + _out_of_range(rows, self, filled, _date)
        return _encoded(self, features, is_missing, np.zeros(len(days), bool), novelties)

    def __str__(self) -> str:
        order = self.date_format.split(" ")[0].replace("%d", "day").replace("%m", "month").replace("%Y", "year")
        return self.range + ("" if self.date_format == dates.ISO else f", written {order}")

    @property
    def range(self) -> str:
        """The first and the last date in training, as text."""
        return f"{_date(self.low)} to {_date(self.high)}"


Column = NumberColumn | CategoryColumn | DateColumn
KINDS: dict[str, type[Column]] = {column.kind: column for column in (NumberColumn, CategoryColumn, DateColumn)}


def to_json(column: Column) -> JsonObject:
    """Return the fields of `column` and its kind as JSON."""
    return {"kind": column.kind, **asdict(column)}


def from_json(header: Header) -> Column:
    """Return the column that `to_json` wrote to `header`; raises a StorageError that names an invalid field."""
    column = header.as_dataclass(KINDS[header.text("kind", KINDS)], also_required=("kind",))
    header.whole("n_missing")  # this call and those below only check the field
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
            header.refuse(f"must be a subset of {list(CYCLES)}, in this order, without repeats", "cycles")
    return column


def _summary(known: np.ndarray) -> tuple[float, float, float]:
    """Return the median, minimum and maximum of the values `known`, none of which is missing."""
    return float(np.median(known)), float(known.min()), float(known.max())


def _encoded(
    column: Column, features: list[np.ndarray], is_missing: np.ndarray, is_unseen: np.ndarray, novelties: list[Novelty]
) -> Encoded:
    """Stack `features` of `column`; if values were missing in training, one more feature marks missing values.

    `is_missing` and `is_unseen` are masks, (rows,), of missing values and of labels that are neither a level nor
    counted as rare.
    """
    missing_in_training = column.n_missing > 0
    columns = [*features, is_missing] if missing_in_training else features
    unknown = is_unseen if missing_in_training else is_unseen | is_missing
    return Encoded(np.stack(columns, axis=1).astype(np.float64), unknown, novelties)


def _newly_missing(rows: RowBatch, column: Column, is_missing: np.ndarray) -> list[Novelty]:
    """Return one novelty if values are missing in a column that had no missing values in training, else none."""
    if column.n_missing or not is_missing.any():
        return []
    return [_novelty(rows, column.name, NoveltyKind.NEWLY_MISSING, is_missing, lambda index: "")]


def _out_of_range(
    rows: RowBatch, column: NumberColumn | DateColumn, numbers: np.ndarray, to_text: Callable[[float], str]
) -> list[Novelty]:
    """Return one novelty if `numbers` lie outside the training range, else none; `to_text` writes a number."""
    is_outside = (numbers < column.low) | (numbers > column.high)
    if not is_outside.any():
        return []

    def example(index: int) -> str:
        return f"{to_text(numbers[index])}; training range {column.range}"

    return [_novelty(rows, column.name, NoveltyKind.OUT_OF_RANGE, is_outside, example)]


def _novelty(
    rows: RowBatch, name: str, kind: NoveltyKind, is_novel: np.ndarray, example: Callable[[int], str]
) -> Novelty:
    """Return the novelty of the rows marked by `is_novel`; `example` gives the text of a value by its position."""
    index = int(np.argmax(is_novel))
    return Novelty(name, kind, int(is_novel.sum()), rows.row_number(index), example(index))


def _date(days: float) -> str:
    """Return days since 1970 as an ISO date."""
    return str(np.datetime64(0, "D") + np.timedelta64(int(np.floor(days)), "D"))
