"""Fits of many shapes in one process: each compiles new programs, whose number in a process is limited."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import reporting

from anchored import AnchoredRegressor
from faults.trial import HELD, Case, Check, Trial, n_maps

MAX_MAPS = 20_000
MAX_BYTES = 1.5e9
ROWS = (20, 100, 300, 600, 1100)
SIZE = 500


def cases(seed: int, folder: Path) -> Iterator[Case]:
    """Yield numbers of rows and columns, different ones in every case, and `seed`; `folder` is not used."""
    for number in range(SIZE):
        n_columns, n_rows = 1 + number // len(ROWS), ROWS[number % len(ROWS)] + seed + number // len(ROWS)
        yield Case(f"{n_rows} rows, {n_columns} columns", (n_rows, n_columns, seed))


def start(folder: Path, scratch: Path) -> Check:
    """Return a check that fits and predicts; all cases run in one process, and the folders are not used."""

    def check(case: tuple[int, int, int]) -> str:
        n_rows, n_columns, seed = case
        X = np.random.default_rng(seed).normal(size=(n_rows, n_columns))
        model = AnchoredRegressor(
            max_iter=5, random_state=0
        )  # automatic choices compile the largest number of programs
        mean = model.fit(X, X.sum(1)).predict(X)
        if not np.isfinite(mean).all():
            return "predictions that are not finite"
        if n_maps() >= MAX_MAPS:
            return f"{n_maps():,} memory maps"
        if reporting.memory_peak() >= MAX_BYTES:
            return f"{reporting.memory_peak() / 1e6:,.0f} MB"
        return HELD

    return check


TRIAL = Trial(
    "shapes",
    "after fits to tables with many different numbers of rows and columns, the process holds fewer than "
    f"{MAX_MAPS:,} memory maps and {MAX_BYTES / 1e9:g} GB",
    size=SIZE,
    quick=2,
    cases=cases,
    start=start,
    seconds=60,
    processes=1,
)
