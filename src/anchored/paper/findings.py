"""Evidence: figures, claims with what was measured, and tables, as the report and the documents show them.

An experiment is a module of `paper.experiments` with the configurations `FULL` and `QUICK` (the same in a few
seconds), `run(config, on_progress)`, which gives numbers, and `figures(config, results)`, which tests the claims and
draws the pictures. A benchmark is a script of `benchmarks/` that stores numbers with their goals, and makes the same
kind of tables from them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

HOLDS, FAILS, CORRECTED = STATUSES = ("holds", "does not hold", "corrected")
Progress = Callable[[float], None]  # is told the share of the work just done


@dataclass(frozen=True)
class Claim:
    """A statement in our words, its status, and the measured number with its uncertainty.

    "corrected": wrong as the paper has it, and right in the form that `measured` gives.
    """

    text: str
    status: str
    measured: str
    timed: bool = False  # whether the number is a time, which no two runs share

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ValueError(f"status={self.status!r}: must be one of {', '.join(STATUSES)}")

    @classmethod
    def tested(cls, text: str, holds: bool, measured: str, timed: bool = False) -> "Claim":
        """A claim that holds or does not; the other arguments are the fields."""
        return cls(text, HOLDS if holds else FAILS, measured, timed)


@dataclass(frozen=True)
class Table:
    """Numbers beside a figure, as text."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""
    timed: tuple[str, ...] = ()  # columns that are times

    def markdown(self) -> str:
        """The table in Markdown, without its caption."""
        return markdown(self.header, self.rows)


@dataclass(frozen=True)
class Figure:
    """One figure of the report, with its claims and tables."""

    name: str
    title: str
    paper: str  # what the paper shows and says here; what we do, where it has nothing
    picture: bytes  # PNG
    description: str  # of the picture, for those who cannot see it
    claims: tuple[Claim, ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    ours: bool = False  # not of the paper


def no_progress(share: float) -> None:
    """An `on_progress` that ignores the share of the work it is told."""


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown: a line for the header, and one for each row."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def mean_of(values: np.ndarray, digits: int = 1) -> str:
    """The mean of independent runs, (runs,), and its standard error, as text."""
    return f"{np.mean(values):.{digits}f} ± {standard_error(values):.{digits}f}"


def standard_error(values: np.ndarray) -> float:
    """The standard error of the mean of independent values, (runs,)."""
    return float(np.std(values, ddof=1) / len(values) ** 0.5)
