"""The kinds of columns (numbers, categories and dates), and how each is encoded as features.

Every kind has the same interface. `fit` learns a column from rows, given the format of its values; if the column does
not vary, `fit` returns why it is left out. `feature_names` are the names of the features, `encode` computes them, and
`refitted` learns the same kind of column from other rows. A category column holds labels; the most frequent labels are
its levels.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from anchored.tables import dates, values
from anchored.tables.formats import Format
from anchored.tables.novelties import Novelty, NoveltyKind, novelty
from anchored.tables.rows import RowBatch

MAX_LEVELS = 30  # largest number of levels of a category column; all rarer labels share one more feature
MIN_COUNT = 5  # smallest number of rows with a label that is a level; smaller in tables of less than a hundred rows
MAX_RARE = 100  # largest number of rare labels that are stored, to distinguish them from labels that never occurred
MIN_MISSING = 3  # smallest number of missing values in training for which a feature marks missing values
# Largest distance from the median, in multiples of the training range (high − low): beyond it, sums could overflow.
MAX_DISTANCE = 1e9
CYCLES = {"year": 365.2425, "week": 7.0, "day": 1.0}  # lengths in days
# (rows,): whether a value is an unseen label, or missing in a column that had no missing values
UnknownMask = np.ndarray


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers.

    A missing number is encoded as the median. If at least MIN_MISSING numbers were missing in training, one more
    feature marks missing numbers.

    Attributes
    ----------
    name : str
        Name of the column.
    written : Format
        How its numbers are written.
    median, low, high : float
        Median, minimum and maximum in training, in units of the column.
    n_missing : int
        Number of training rows where the value was missing.
    """

    name: str
    written: Format
    median: float
    low: float
    high: float
    n_missing: int
    kind: ClassVar[str] = "number"

    @classmethod
    def fit(cls, rows: RowBatch, name: str, written: Format) -> "NumberColumn | str":
        """Learn the column called `name` from `rows`; return why it is left out if it does not vary."""
        numbers = values.numbers(rows, name, written)
        known = numbers[np.isfinite(numbers)]
        if len(known) == 0 or known.min() == known.max():
            return _why_constant(f"{known[0]:g}" if len(known) else None, len(known) < len(numbers))
        return cls(name, written, *_summary(known), len(numbers) - len(known))

    @property
    def feature_names(self) -> list[str]:
        """Names of the features that `encode` returns, in their order."""
        return [self.name, *_missing_feature(self)]

    def refitted(self, rows: RowBatch) -> "NumberColumn | str":
        """Return the same kind of column, learnt from other `rows`, or why it is left out."""
        return self.fit(rows, self.name, self.written)

    def encode(self, rows: RowBatch, features: np.ndarray, clip: bool = False) -> tuple[UnknownMask, list[Novelty]]:
        """Encode this column of `rows` into `features`, (rows, features of this column), which must hold zeros.

        Returns a mask of the unknown values, (rows,), and the values unlike the training data. A number farther than
        MAX_DISTANCE training ranges from the median raises a TableError; if `clip`, it is set to the farthest allowed
        number.
        """
        numbers = values.numbers(rows, self.name, self.written)
        is_missing = np.isnan(numbers)
        if clip:
            farthest = MAX_DISTANCE * (self.high - self.low)
            numbers = np.clip(numbers, self.median - farthest, self.median + farthest)
        else:
            self._check_distance(rows, numbers)
        features[:, 0] = np.where(is_missing, self.median, numbers) if is_missing.any() else numbers
        novelties = _out_of_range(rows, self, features[:, 0], lambda value: f"{value:g}")
        return _mark_missing(rows, self, features, is_missing, novelties)

    def _check_distance(self, rows: RowBatch, numbers: np.ndarray) -> None:
        """Raise a TableError for the first of `numbers` farther than MAX_DISTANCE training ranges from the median."""
        is_far = np.abs(numbers - self.median) > MAX_DISTANCE * (self.high - self.low)
        if is_far.any():
            index = int(np.argmax(is_far))
            problem = f"{numbers[index]:g} is far outside the training range, {self.low:g} to {self.high:g}"
            raise rows.error(index, self.name, problem, "Check its units")

    def __str__(self) -> str:
        return ", ".join(part for part in (self.range, str(self.written)) if part)

    @property
    def range(self) -> str:
        """The minimum and maximum in training, as text."""
        return f"{self.low:g} to {self.high:g}"


@dataclass(frozen=True)
class CategoryColumn:
    """A column of labels, encoded as one feature per level.

    Levels are labels that occur at least MIN_COUNT times in training, at most MAX_LEVELS of them. All other labels set
    the rare-label feature, if training had any; a label that never occurred is also reported as unseen.

    Attributes
    ----------
    name : str
        Name of the column.
    written : Format
        How its labels are written.
    levels : tuple of str
        The most frequent labels in training, sorted.
    others : bool
        Whether training had labels that are not levels, so that one more feature marks all of them.
    rare : tuple of str
        The labels in training that are not levels, sorted; empty if there were more than MAX_RARE, and then unseen
        labels cannot be distinguished from rare labels.
    n_missing : int
        Number of training rows where the value was missing.
    """

    name: str
    written: Format
    levels: tuple[str, ...]
    others: bool
    rare: tuple[str, ...]
    n_missing: int
    kind: ClassVar[str] = "category"

    @classmethod
    def fit(cls, rows: RowBatch, name: str, written: Format) -> "CategoryColumn | str":
        """Learn the most frequent labels of the column called `name`; return why it is left out if it does not vary."""
        codes, names = values.labels(rows, name, written)
        known = codes[codes >= 0]
        counts = np.bincount(known, minlength=len(names))
        present = sorted(((-count, label) for label, count in zip(names, counts.tolist(), strict=True) if count))
        n_missing = len(codes) - len(known)
        # One label is enough if other values are missing, as in a column of crosses
        if len(present) < (1 if n_missing >= MIN_MISSING else 2):
            return _why_constant(repr(present[0][1]) if present else None, len(known) < len(codes))
        least = min(MIN_COUNT, max(1, len(known) // 20))
        levels = [label for count, label in present[:MAX_LEVELS] if -count >= least]
        if not levels:
            return f"text, and no value occurs {least} times"
        rare = sorted({label for _, label in present} - set(levels))
        remembered = tuple(rare) if len(rare) <= MAX_RARE else ()
        return cls(name, written, tuple(sorted(levels)), bool(rare), remembered, n_missing)

    @property
    def feature_names(self) -> list[str]:
        """Names of the features that `encode` returns, in their order."""
        levels = [f"{self.name} = {level}" for level in self.levels] + [f"{self.name} is rare"] * self.others
        return levels + _missing_feature(self)

    def refitted(self, rows: RowBatch) -> "CategoryColumn | str":
        """Return the same kind of column, learnt from other `rows`, or why it is left out."""
        return self.fit(rows, self.name, self.written)

    def encode(self, rows: RowBatch, features: np.ndarray, clip: bool = False) -> tuple[UnknownMask, list[Novelty]]:
        """Encode this column of `rows` into `features`, as for numbers; `clip` has no effect on labels."""
        codes, names = values.labels(rows, self.name, self.written)
        position = {level: i for i, level in enumerate(self.levels)} | dict.fromkeys(self.rare, len(self.levels))
        unseen = len(self.levels) if self.others and not self.rare else -1  # −1: neither a level nor known to be rare
        level_of_code = np.array([*(position.get(label, unseen) for label in names), -2], np.int16)
        levels = level_of_code[codes]  # −2: missing
        for i in range(len(self.levels) + self.others):
            features[:, i] = levels == i
        is_unseen = levels == -1
        novelties = []
        if is_unseen.any():
            if self.others:
                features[is_unseen, len(self.levels)] = 1.0
            kind = NoveltyKind.UNSEEN_CATEGORY
            novelties.append(novelty(rows, self.name, kind, is_unseen, lambda index: repr(names[codes[index]])))
        is_unknown, novelties = _mark_missing(rows, self, features, levels == -2, novelties)
        return is_unknown | is_unseen, novelties

    def __str__(self) -> str:
        shown = ", ".join(self.levels[:4]) + (", ..." if len(self.levels) > 4 else "")
        return f"{len(self.levels)} levels: {shown}" + (" and rare ones" if self.others else "")


@dataclass(frozen=True)
class DateColumn:
    """A column of dates, or of times of day.

    It is encoded as days since 1970, and as the sine and cosine of the phase in each of `cycles`. A missing date is
    encoded as the median, and its sines and cosines as 0.

    Attributes
    ----------
    name : str
        Name of the column.
    written : Format
        How its dates are written.
    median, low, high : float
        Median, minimum and maximum in training, in days since 1970; fractions of a day for times of day.
    cycles : tuple of str
        Those of "year", "week" and "day" that are no longer than the range of the training dates; "day" only if some
        dates have a time of day.
    n_missing : int
        Number of training rows where the value was missing.
    is_ambiguous : bool
        Whether day and month could be swapped in all training dates.
    """

    name: str
    written: Format
    median: float
    low: float
    high: float
    cycles: tuple[str, ...]
    n_missing: int
    is_ambiguous: bool = False
    kind: ClassVar[str] = "date"

    @classmethod
    def fit(cls, rows: RowBatch, name: str, written: Format, is_ambiguous: bool = False) -> "DateColumn | str":
        """Learn the column called `name`; return why it is left out if it does not vary.

        `is_ambiguous` is stored as given.
        """
        days = dates.days(rows, name, written)
        known = days[np.isfinite(days)]
        if len(known) == 0 or known.min() == known.max():
            return _why_constant(_date(known[0], written) if len(known) else None, len(known) < len(days))
        median, low, high = _summary(known)
        resolution = 1.0 if np.all(known == np.floor(known)) else 0.0  # in days; 1 if no date has a time of day
        cycles = tuple(cycle for cycle, length in CYCLES.items() if high - low >= length > resolution)
        cycles = ("day",) if dates.is_clock(written.date) else cycles
        return cls(name, written, median, low, high, cycles, len(days) - len(known), is_ambiguous)

    @property
    def feature_names(self) -> list[str]:
        """Names of the features that `encode` returns, in their order."""
        phases = [f"{self.name}, {wave} of the {cycle}" for cycle in self.cycles for wave in ("sine", "cosine")]
        return [self.name, *phases, *_missing_feature(self)]

    def refitted(self, rows: RowBatch) -> "DateColumn | str":
        """Return the same kind of column, learnt from other `rows`, or why it is left out."""
        return self.fit(rows, self.name, self.written, self.is_ambiguous)

    def encode(self, rows: RowBatch, features: np.ndarray, clip: bool = False) -> tuple[UnknownMask, list[Novelty]]:
        """Encode this column of `rows` into `features`, as for numbers; `clip` has no effect on dates."""
        days = dates.days(rows, self.name, self.written)
        is_missing = np.isnan(days)
        features[:, 0] = np.where(is_missing, self.median, days)
        for i, cycle in enumerate(self.cycles):
            phase = features[:, 0] / CYCLES[cycle]
            angle = (2 * np.pi * (phase - np.floor(phase))).astype(np.float32)  # members are trained in float32 too
            features[:, 2 * i + 1], features[:, 2 * i + 2] = np.sin(angle), np.cos(angle)
        if is_missing.any():
            features[is_missing, 1 : 2 * len(self.cycles) + 1] = 0.0
        novelties = _out_of_range(rows, self, features[:, 0], lambda value: _date(value, self.written))
        return _mark_missing(rows, self, features, is_missing, novelties)

    def __str__(self) -> str:
        if self.written.date == dates.ISO:
            return self.range
        return f"{self.range}, written {dates.in_words(self.written.date)}"

    @property
    def range(self) -> str:
        """The first and the last date in training, as text."""
        return f"{_date(self.low, self.written)} to {_date(self.high, self.written)}"


Column = NumberColumn | CategoryColumn | DateColumn


def _summary(known: np.ndarray) -> tuple[float, float, float]:
    """Return the median, minimum and maximum of the values `known`, none of which is missing."""
    return float(np.median(known)), float(known.min()), float(known.max())


def _why_constant(value: str | None, has_missing: bool) -> str:
    """Return why a column that does not vary is left out; `value` is its only value as text, None if it has none."""
    if value is None:
        return "empty"
    return f"always {value} or missing" if has_missing else "constant"


def _missing_feature(column: Column) -> list[str]:
    """Return the name of the feature that marks missing values; none if fewer than MIN_MISSING were in training."""
    return [f"{column.name} is missing"] if column.n_missing >= MIN_MISSING else []


def _mark_missing(
    rows: RowBatch, column: Column, features: np.ndarray, is_missing: np.ndarray, novelties: list[Novelty]
) -> tuple[UnknownMask, list[Novelty]]:
    """Mark missing values in the last of `features`; return a mask of unknown values, and all novelties.

    Missing values are unknown, and a novelty, if there were none in training.
    """
    if column.n_missing >= MIN_MISSING:
        features[:, -1] = is_missing
    if column.n_missing or not is_missing.any():
        return np.zeros(len(is_missing), bool), novelties
    newly = novelty(rows, column.name, NoveltyKind.NEWLY_MISSING, is_missing, lambda index: "")
    return is_missing, [newly, *novelties]


def _out_of_range(
    rows: RowBatch, column: NumberColumn | DateColumn, numbers: np.ndarray, to_text: Callable[[float], str]
) -> list[Novelty]:
    """Return one novelty if `numbers` lie outside the training range, else none; `to_text` writes a number."""
    is_outside = (numbers < column.low) | (numbers > column.high)
    if not is_outside.any():
        return []

    def example(index: int) -> str:
        return f"{to_text(numbers[index])}; training range {column.range}"

    return [novelty(rows, column.name, NoveltyKind.OUT_OF_RANGE, is_outside, example)]


def _date(days: float, written: Format) -> str:
    """Return days since 1970 as an ISO date, or as a time if the format `written` is one of times of day."""
    if dates.is_clock(written.date):
        minutes = round(days * 24 * 60)
        return f"{minutes // 60:02d}:{minutes % 60:02d}"
    return str(np.datetime64(0, "D") + np.timedelta64(int(np.floor(days)), "D"))
