"""The findings of an experiment: figures, claims with their measured numbers, and tables.

An experiment is a module of `paper.experiments` with

- the configurations `FULL` and `QUICK`; an experiment with `QUICK` takes a few seconds,
- `run(config, on_progress)`, which returns numbers, and
- `figures(config, results)`, which tests the claims with these numbers and draws the pictures.

Benchmarks (scripts in `benchmarks/`) make their tables with the same `Table` and `markdown`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

HOLDS, FAILS, CORRECTED = STATUSES = ("holds", "does not hold", "corrected")
Progress = Callable[[float], None]  # called with the fraction of the work that has just been done


@dataclass(frozen=True)
class Claim:
    """A statement of the paper in our words, and whether it holds."""

    text: str  # the statement
    status: str  # HOLDS, FAILS, or CORRECTED: wrong as printed in the paper, right in the form that `measured` states
    measured: str  # the measured number with its uncertainty
    timed: bool = False  # whether the number is a time, which differs from run to run

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ValueError(f"status={self.status!r}: must be one of {', '.join(STATUSES)}")

    @classmethod
    def tested(cls, text: str, holds: bool, measured: str, timed: bool = False) -> "Claim":
        """Return a claim that holds if `holds` is true; `text`, `measured` and `timed` are fields of a `Claim`."""
        return cls(text, HOLDS if holds else FAILS, measured, timed)


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
    """Ignore `fraction`: an `on_progress` for callers that show no progress."""


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown; `header` has the titles of the columns, and each of `rows` as many cells."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def mean_of(values: np.ndarray, digits: int = 1) -> str:
    """Return the mean of `values`, (runs,), and its standard error as text, with `digits` decimals."""
    return f"{np.mean(values):.{digits}f} ± {standard_error(values):.{digits}f}"


def standard_error(values: np.ndarray) -> float:
    """Return the standard error of the mean of independent `values`, (runs,)."""
    return float(np.std(values, ddof=1) / len(values) ** 0.5)
