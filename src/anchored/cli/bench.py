"""Measure how fast this machine fits and predicts."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

N_ROWS, N_FEATURES, N_MEMBERS, N_PREDICTED = 500, 13, 10, 200_000
DEFAULTS = {"random_state": 0}  # arguments of a fit with default settings
# Code that a new process runs, after the number of rows is filled in
FIT = "from anchored import AnchoredRegressor; from anchored.cli.bench import DEFAULTS, rows; "
FIT += "AnchoredRegressor(**DEFAULTS).fit(*rows({}))"


class Measurement(NamedTuple):
    """One measurement: its name, value and unit."""

    name: str
    value: float
    unit: str


def rows(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return `n` random inputs, (n, N_FEATURES), and targets, (n,), a smooth function of them plus noise.

    `seed` is the random seed.
    """
    random = np.random.default_rng(seed)
    X = random.standard_normal((n, N_FEATURES))
    return X, np.sin(X[:, 0]) + 0.5 * X[:, 1] + 0.1 * random.standard_normal(n)


def measure() -> list[Measurement]:
    """Return how long two fits in new processes take, and how fast fits and predictions are with compiled programs."""
    from anchored import AnchoredRegressor

    with tempfile.TemporaryDirectory() as cache:
        first_fit, second_fit = (seconds_of(lambda: fit_in_new_process(cache)) for _ in range(2))
    X, y = rows(N_ROWS)
    given = {"noise_variance": 0.01, "prior_scale": 2.0, "random_state": 0}
    model = AnchoredRegressor(N_MEMBERS, **given).fit(X, y)  # compiles
    given_fit = seconds_of(lambda: AnchoredRegressor(N_MEMBERS, **given).fit(X, y))
    large_fit = seconds_of(lambda: AnchoredRegressor(5 * N_MEMBERS, **given).fit(X, y))
    default_fit = min(seconds_of(lambda: AnchoredRegressor(**DEFAULTS).fit(X, y)) for _ in range(2))
    X_new, _ = rows(N_PREDICTED)
    model.predict(X_new, return_std=True)
    prediction = seconds_of(lambda: model.predict(X_new, return_std=True))
    shape = f"{N_ROWS} rows × {N_FEATURES}"
    return [
        Measurement(f"first fit in a new process, {shape}", first_fit, "s"),
        Measurement("second fit in a new process, with cached programs", second_fit, "s"),
        Measurement(f"fit with compiled programs, defaults, {N_MEMBERS} members", default_fit, "s"),
        Measurement(f"fit with compiled programs, noise and prior given, {N_MEMBERS} members", given_fit, "s"),
        Measurement(f"training {5 * N_MEMBERS} members", 5 * N_MEMBERS / large_fit, "members/s"),
        Measurement(f"predicting mean and s.d., {N_MEMBERS} members", N_PREDICTED / prediction, "rows/s"),
    ]


def fit_in_new_process(cache: str) -> None:
    """Fit a model in a new process, which imports the library and caches compiled programs in the folder `cache`."""
    variables = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    subprocess.run([sys.executable, "-c", FIT.format(N_ROWS)], env=variables | {"ANCHORED_CACHE": cache}, check=True)


def seconds_of(work: Callable[[], object]) -> float:
    """Return the seconds that a call of `work` takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
