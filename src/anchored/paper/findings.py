"""The findings of an experiment: figures, claims with their measured numbers, and tables.

An experiment is a module of `paper.experiments` with

- the configurations `FULL` and `QUICK`; with `QUICK` the experiment takes a few seconds,
- `run(config, on_progress)`, which returns numbers, and
- `figures(config, results)`, which tests the claims with these numbers and draws the pictures.

All experiments test claims by one rule: a measured effect is compared with a threshold, and if it is within two
standard errors of it, the claim is undecided (`Condition`). Benchmarks (scripts in `benchmarks/`) make their tables
with `markdown`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

N_ERRORS = 2  # number of standard errors within which an effect cannot be distinguished from its threshold
Progress = Callable[[float], None]  # called with the fraction of the work that has just been done


class Verdict(StrEnum):
    """What the measurements say about a claim."""

    HOLDS = "holds"
    FAILS = "fails"
    UNDECIDED = "undecided"  # an effect is within N_ERRORS standard errors of its threshold
    CORRECTED = "corrected"  # wrong as printed in the paper, right in the corrected form


WORDS = {  # verdicts as readers see them
    Verdict.HOLDS: "holds",
    Verdict.CORRECTED: "corrected",
    Verdict.UNDECIDED: "undecided",
    Verdict.FAILS: "does not hold",
}


@dataclass(frozen=True)
class Condition:
    """A condition of a claim: an effect must be above, or below, a threshold."""

    effect: float  # the measured number
    error: float  # its standard error; 0 if it is exact
    threshold: float
    is_upper_bound: bool  # whether the effect must be below the threshold

    @property
    def verdict(self) -> Verdict:
        """Whether the condition holds, fails, or is undecided."""
        margin = (self.effect - self.threshold) * (-1 if self.is_upper_bound else 1)
        if not abs(margin) > N_ERRORS * self.error:
            return Verdict.UNDECIDED
        return Verdict.HOLDS if margin > 0 else Verdict.FAILS


def above(effect: float, error: float, threshold: float) -> Condition:
    """Return the condition that `effect`, with the standard error `error`, is above `threshold`."""
    return Condition(float(effect), float(error), float(threshold), is_upper_bound=False)


def below(effect: float, error: float, threshold: float) -> Condition:
    """Return the condition that `effect`, with the standard error `error`, is below `threshold`."""
    return Condition(float(effect), float(error), float(threshold), is_upper_bound=True)


def within(effect: float, error: float, centre: float, distance: float) -> tuple[Condition, Condition]:
    """Return the conditions that `effect`, with the standard error `error`, is within `distance` of `centre`."""
    return above(effect, error, centre - distance), below(effect, error, centre + distance)


def less(values: np.ndarray, others: np.ndarray) -> Condition:
    """Return the condition that the mean of `values`, (runs,), is below the mean of the independent `others`."""
    return above(np.mean(others) - np.mean(values), np.hypot(standard_error(values), standard_error(others)), 0)


def verdict_of(conditions: Iterable[Condition]) -> Verdict:
    """Return the verdict on a claim with these `conditions`.

    A claim fails if one of its conditions fails; otherwise it is undecided if one is undecided; otherwise it holds.
    """
    verdicts = {condition.verdict for condition in conditions}
    return next((v for v in (Verdict.FAILS, Verdict.UNDECIDED) if v in verdicts), Verdict.HOLDS)


@dataclass(frozen=True)
class Claim:
    """A statement of the paper in our words, and the verdict on it."""

    text: str  # the statement
    verdict: Verdict
    measured: str  # the measured number with its uncertainty
    timed: bool = False  # whether the number is a time, which differs from run to run
    is_main: bool = False  # whether the conclusions of the report list it

    @classmethod
    def tested(
        cls, text: str, conditions: Iterable[Condition], measured: str, timed: bool = False, is_main: bool = False
    ) -> "Claim":
        """Return a claim that holds if all `conditions` do; the other arguments are fields of a `Claim`."""
        return cls(text, verdict_of(conditions), measured, timed, is_main)

    @classmethod
    def compared(
        cls,
        text: str,
        printed: Iterable[Condition],
        corrected: Iterable[Condition],
        measured: str,
        is_main: bool = False,
    ) -> "Claim":
        """Return a claim about a formula that is printed in the paper, and has a corrected form.

        Its verdict is CORRECTED if the conditions `printed` of the printed form fail, and the conditions `corrected`
        of the corrected form hold. The other arguments are fields of a `Claim`.
        """
        as_printed, as_corrected = verdict_of(printed), verdict_of(corrected)
        is_corrected = as_printed is Verdict.FAILS and as_corrected is Verdict.HOLDS
        if is_corrected or as_printed is not Verdict.FAILS:
            return cls(text, Verdict.CORRECTED if is_corrected else as_printed, measured, is_main=is_main)
        return cls(text, as_corrected, measured, is_main=is_main)


@dataclass(frozen=True)
class Table:
    """A table of a figure; all cells are text."""

    header: tuple[str, ...]  # titles of the columns
    rows: tuple[tuple[str, ...], ...]  # each has one cell for each column
    caption: str = ""  # title of the table; "" for none
    timed: tuple[str, ...] = ()  # titles of the columns that are times

    def markdown(self) -> str:
        """Return this table in Markdown, without its caption."""
        return markdown(self.header, self.rows)


@dataclass(frozen=True)
class Figure:
    """One figure of the report, with its claims and tables."""

    name: str  # identifies it, such as figure_1
    title: str  # heading in the report
    paper: str  # what the paper shows and says; for figures that are not in the paper, what is done
    picture: bytes  # PNG
    description: str  # alternative text of the picture
    claims: tuple[Claim, ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()  # how it was measured, and how the paper's words are interpreted
    ours: bool = False  # whether the figure is not in the paper


def no_progress(fraction: float) -> None:
    """Do nothing; passed as `on_progress` by callers that show no progress."""


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown, with the column titles `header`, and a cell for each column in each of `rows`."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def mean_of(values: np.ndarray, digits: int = 1) -> str:
    """Return the mean of `values`, (runs,), and its standard error as text, with `digits` decimals."""
    return f"{np.mean(values):.{digits}f} ± {standard_error(values):.{digits}f}"


def standard_error(values: np.ndarray) -> float:
    """Return the standard error of the mean of independent `values`, (runs,)."""
    return float(np.std(values, ddof=1) / len(values) ** 0.5)
