"""What every experiment shows: a picture, the paper's claims, whether each holds, and the numbers behind that.

An experiment is a module with a frozen `Config` at full size, `QUICK`, the same in a few seconds, `run(config,
on_progress)`, which is told the shares of the work as they are done, and `exhibits(config, results)`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

HOLDS, FAILS, CORRECTED = VERDICTS = ("holds", "does not hold", "corrected")
Progress = Callable[[float], None]  # the share of the work just done


@dataclass(frozen=True)
class Claim:
    """A statement in our words, what became of it, and the measured number with its uncertainty.

    "corrected": wrong as the paper has it, and right in the form that `measured` gives.
    """

    text: str
    verdict: str
    measured: str
    timed: bool = False  # whether the number is a time, which no two runs share

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ValueError(f"verdict={self.verdict!r}: must be one of {', '.join(VERDICTS)}")


@dataclass(frozen=True)
class Table:
    """Numbers beside the picture, as text."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""
    timed: tuple[str, ...] = ()  # columns that are times


@dataclass(frozen=True)
class Exhibit:
    """One figure of the report."""

    name: str
    title: str
    paper: str  # what the paper shows and says here; what we do, where it has nothing
    picture: bytes  # PNG
    description: str  # of the picture, for those who cannot see it
    claims: tuple[Claim, ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    ours: bool = False  # not of the paper


def ignored(share: float) -> None:
    """Progress that nobody watches."""


def judged(text: str, holds: bool, measured: str, timed: bool = False) -> Claim:
    """A claim that holds or does not."""
    return Claim(text, HOLDS if holds else FAILS, measured, timed)


def mean_of(values: np.ndarray, digits: int = 1) -> str:
    """The mean of independent runs and its standard error."""
    return f"{np.mean(values):.{digits}f} ± {standard_error(values):.{digits}f}"


def standard_error(values: np.ndarray) -> float:
    """Of the mean of independent values."""
    return float(np.std(values, ddof=1) / len(values) ** 0.5)
