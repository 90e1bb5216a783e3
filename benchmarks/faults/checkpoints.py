"""Fits killed at any time: with a checkpoint they continue, and end with the members of an uninterrupted fit."""

import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import jax
import numpy as np

from anchored import AnchoredRegressor
from anchored.inference import checkpoints
from faults.trial import CONTEXT, HELD, Case, Check, Trial
from faults.writers import temporary_files

N_ROWS, N_COLUMNS = 300, 3
ARGUMENTS = {"n_estimators": 7, "hidden_layer_sizes": (20, 20), "max_iter": 150, "random_state": 0}
SECONDS_BETWEEN_STATES = 0.02  # so that most moments fall between two states of a block
MAX_ATTEMPTS = 10  # processes that may end before they are killed


def cases(seed: int, folder: Path) -> Iterator[Case]:
    """Yield moments as fractions of the duration of a fit, drawn with the random `seed`; `folder` is not used."""
    draws = Random(seed)
    while True:
        fraction = draws.random()
        yield Case(f"killed after {fraction:.3f} of the fit", fraction)


def fitted(folder: Path | None) -> AnchoredRegressor:
    """Return an estimator that was fitted with the checkpoint `folder`, or without one if it is None."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N_ROWS, N_COLUMNS))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=N_ROWS)
    checkpoints.SECONDS_BETWEEN_STATES = SECONDS_BETWEEN_STATES
    return AnchoredRegressor(**ARGUMENTS).fit(X, y, checkpoint=folder)


def bits(estimator: AnchoredRegressor) -> list[bytes]:
    """Return the bits of everything that a fit chooses and trains."""
    chosen = [estimator.noise_variance_, estimator.prior_scale_, estimator.loss_curve_]
    leaves = jax.tree.leaves((estimator.posterior_.members, estimator.posterior_.record.training.anchors, chosen))
    return [np.asarray(leaf).tobytes() for leaf in leaves]


def report_and_fit(connection: Any, folder: Path) -> None:
    """Report over `connection` that the process is ready, and fit with the checkpoint `folder`."""
    connection.send(None)
    fitted(folder)


def kill_fit(folder: Path, after: float | None) -> float | None:
    """Fit in a process with the checkpoint `folder`, and kill it `after` seconds; None lets it end.

    Returns its duration in seconds if it ended by itself, otherwise None.
    """
    ours, theirs = CONTEXT.Pipe()
    process = CONTEXT.Process(target=report_and_fit, args=(theirs, folder))
    process.start()
    theirs.close()
    ours.recv()
    started = time.monotonic()
    process.join(after)
    has_ended = not process.is_alive()
    process.kill()
    process.join()
    if not has_ended:
        return None
    if process.exitcode:
        raise RuntimeError(f"the fit ended with exit code {process.exitcode}")
    return time.monotonic() - started


def start(folder: Path, scratch: Path) -> Check:
    """Fit without interruption, and return the check of killed fits in `scratch`; `folder` is not used."""
    expected = bits(fitted(None))
    for number in range(2):  # the first one may compile programs
        duration = kill_fit(scratch / f"whole {number}", None)
    assert duration is not None

    def check(fraction: float) -> str:
        with TemporaryDirectory(dir=scratch) as temporary:
            after = fraction * duration
            for attempt in range(MAX_ATTEMPTS):
                kept = Path(temporary) / f"kept {attempt}"
                if kill_fit(kept, after) is None:
                    break
                after *= 0.8
            else:
                raise RuntimeError("the fits ended before they were killed")
            if bits(fitted(kept)) != expected:
                return "continued, the fit has other members than one that was not interrupted"
            if left := temporary_files(kept):
                return f"left behind: {left}"
            names = {path.name for path in kept.iterdir()}
            uncut = {path.name for path in (scratch / "whole 1").iterdir()}
            return HELD if names == uncut else f"other files than those of a fit that was not interrupted: {names}"

    return check


TRIAL = Trial(
    "checkpoints",
    "a fit with a checkpoint, killed at any time, continues and ends with the same members bit for bit; no other file "
    "is left",
    size=50,
    quick=1,
    cases=cases,
    start=start,
    seconds=120,
    megabytes=2000,
    processes=1,
)
