"""Numbers at the limits of floating point: fits give a clear error, or predictions as good as for ordinary numbers."""

import re
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np

from anchored import AnchoredClassifier, AnchoredRegressor
from anchored.inference.failures import DivergenceError
from faults import models
from faults.trial import HELD, Case, Check, Trial, describe_error

SETTINGS = {"n_estimators": 3, "hidden_layer_sizes": (8,), "max_iter": 200, "random_state": 0}
SCALES = (1e-310, 1e-300, 1e-200, 1e-150, 1e-100, 1e-40, 1e-20, 1e20, 1e40, 1e100, 1e150, 1e200, 1e300)
OFFSETS = (1e6, -1e9, 1e15, 1e30, 1e300)
CLOSE, SENSIBLE = 0.01, 0.2  # largest allowed differences from the R² of the plain problem
ARGUMENT_NAMES = re.compile(
    r"\b(X|y|sample_weight|noise_variance|prior_scale|targets?|inputs?)\b"
)  # names in clear errors
INTEGERS = np.iinfo(np.int64)


class Problem(NamedTuple):
    """A regression or classification.

    If `scale` is given, R² must differ from that of the plain problem by less than `tolerance`.
    """

    X: Any
    y: Any
    scale: float | None = None  # factor by which the plain y was multiplied
    offset: float = 0.0  # number that was added to the plain y
    tolerance: float = CLOSE
    X_new: Any = None  # rows to predict; None for X
    weights: Any = None  # weights of the rows
    settings: dict[str, Any] = {}  # arguments of the estimator, in addition to SETTINGS
    kind: type = AnchoredRegressor  # the estimator


def plain() -> tuple[np.ndarray, np.ndarray]:
    """Return X and y of the problem that all others are derived from."""
    X = models.rows(n=60)
    return X, np.sin(2 * X[:, 0]) + 0.1 * np.random.default_rng(1).normal(size=60)


def problems() -> dict[str, Problem]:
    """Return all problems by name."""
    X, y = plain()
    return {
        **scaled(X, y),
        **shifted(X, y),
        **degenerate(X, y),
        **of_other_types(X, y),
        **with_extreme_arguments(X, y),
    }


def scaled(X: np.ndarray, y: np.ndarray) -> dict[str, Problem]:
    """Return the plain problem, `X` and `y`, in other units."""
    problems_by_name = {f"y × {s:g}": Problem(X, y * s, s) for s in SCALES}
    problems_by_name |= {f"X × {s:g}": Problem(X * s, y, 1.0) for s in SCALES}
    problems_by_name |= {f"a column × {s:g}": Problem(X * [s, 1 / s], y, 1.0) for s in (1e-200, 1e-100, 1e100, 1e200)}
    problems_by_name |= {f"new rows × {s:g}": Problem(X, y, X_new=X * s) for s in (1e20, 1e40, 1e200, 1e300)}
    problems_by_name["two outputs, × 1e-200 and 1e200"] = Problem(X, np.c_[y * 1e-200, y * 1e200])
    problems_by_name |= {
        f"classes, X × {s:g}": Problem(X * s, y > 0, kind=AnchoredClassifier) for s in (1e-300, 1e-40, 1e40, 1e300)
    }
    return problems_by_name


def shifted(X: np.ndarray, y: np.ndarray) -> dict[str, Problem]:
    """Return the plain problem, `X` and `y`, far from zero; R² must be the same as long as enough digits are left."""
    problems_by_name = {f"y + {o:g}": Problem(X, y + o, 1.0 if abs(o) < 1e10 else None, o) for o in OFFSETS}
    return problems_by_name | {f"X + {o:g}": Problem(X + o, y, 1.0 if abs(o) < 1e10 else None) for o in OFFSETS}


def degenerate(X: np.ndarray, y: np.ndarray) -> dict[str, Problem]:
    """Return problems like that of `X` and `y`, with constants and outliers."""
    problems_by_name = {  # an additional column changes the prior, so that R² differs slightly
        f"a constant column of {c:g}": Problem(np.c_[X, np.full(60, c)], y, 1.0, tolerance=SENSIBLE)
        for c in (0, 1e300, 1e-310, -7)
    }
    problems_by_name |= {f"y constant, {c:g}": Problem(X, np.full(60, c)) for c in (0.0, 1.0, 1e300, 1e-300)}
    problems_by_name["X constant"] = Problem(np.zeros((60, 2)), y)
    for name, value in (("1e30", 1e30), ("1e300", 1e300), ("NaN", np.nan), ("infinity", np.inf)):
        problems_by_name[f"one y is {name}"] = Problem(X, _with_first(y, value))
        problems_by_name[f"one x is {name}"] = Problem(_with_first(X, value), y)
    return problems_by_name


def of_other_types(X: np.ndarray, y: np.ndarray) -> dict[str, Problem]:
    """Return problems like that of `X` and `y`, with integers at the limits of their types and other precisions."""
    ends = np.where(X > 0, INTEGERS.max, INTEGERS.min)
    return {
        "X of int64, at its ends": Problem(ends, y),
        "y of int64, at its ends": Problem(X, np.where(y > 0, INTEGERS.max, INTEGERS.min)),
        "X of uint64, at its ends": Problem(np.where(X > 0, np.uint64(2**64 - 1), np.uint64(0)), y),
        "X of int8": Problem((X * 60).astype(np.int8), y),
        "X of booleans": Problem(X > 0, y),
        "X of float16": Problem(X.astype(np.float16), y, 1.0),
        "y of float16": Problem(X, y.astype(np.float16), 1.0),
        "X of float16, at its ends": Problem(np.sign(X).astype(np.float16) * np.float16(65504), y),
        "X of float32, at its ends": Problem(np.sign(X).astype(np.float32) * np.finfo(np.float32).max, y),
        "y of long double": Problem(X, y.astype(np.longdouble) * np.longdouble("1e-300"), 1e-300),
        "classes at the ends of int64": Problem(
            X, np.where(y > 0, INTEGERS.max, INTEGERS.min), kind=AnchoredClassifier
        ),
    }


def with_extreme_arguments(X: np.ndarray, y: np.ndarray) -> dict[str, Problem]:
    """Return the problem of `X` and `y` with extreme weights, noise variances and prior scales."""
    problems_by_name = {
        f"all weights are {s:g}": Problem(X, y, weights=np.full(60, s)) for s in (1e-300, 1e-30, 1e30, 1e300)
    }
    problems_by_name["all weights but ten are 1e-300"] = Problem(X, y, weights=np.r_[np.ones(10), np.full(50, 1e-300)])
    for name in ("noise_variance", "prior_scale"):
        problems_by_name |= {f"{name}={value:g}": Problem(X, y, settings={name: value}) for value in (1e-300, 1e300)}
    return problems_by_name


def _with_first(array: np.ndarray, value: float) -> np.ndarray:
    """Return a copy of `array` with another first entry."""
    changed = array.copy()
    changed.flat[0] = value
    return changed


# Checking


def cases(seed: int, folder: Path) -> Iterator[Case]:
    """Yield every problem once, in a random order drawn with `seed`; `folder` is not used."""
    for name in Random(seed).sample(list(problems()), SIZE):
        yield Case(name, name)


def start(folder: Path, scratch: Path) -> Check:
    """Fit the plain problem, and return a check that compares the others with it; the folders are not used."""
    known = problems()
    X, y = plain()
    plain_r_squared = r_squared(y, AnchoredRegressor(**SETTINGS).fit(X, y).predict(X))

    def check(name: str) -> str:
        problem = known[name]
        try:
            with np.errstate(all="ignore"):
                model = problem.kind(**SETTINGS, **problem.settings).fit(problem.X, problem.y, problem.weights)
                predictions = _predictions(model, problem)
        except (ValueError, DivergenceError) as error:
            return HELD if ARGUMENT_NAMES.search(str(error)) else describe_error(error)
        if not all(np.isfinite(values).all() for values in predictions):
            return "predictions that are not finite, and no error"
        if problem.scale is None:
            return HELD
        score = r_squared(*((np.asarray(a) - problem.offset) / problem.scale for a in (problem.y, predictions[0])))
        return (
            HELD
            if abs(score - plain_r_squared) < problem.tolerance
            else f"R² is {score:.3f}, but {plain_r_squared:.3f} in the plain problem"
        )

    return check


def _predictions(model: Any, problem: Problem) -> list[np.ndarray]:
    """Return the predictions of a model."""
    X = problem.X if problem.X_new is None else problem.X_new
    if isinstance(model, AnchoredClassifier):
        return [model.predict_proba(X)]
    return list(model.predict(X, return_std=True))


def r_squared(y: np.ndarray, mean: np.ndarray) -> float:
    """Return R² of predictions `mean` of `y`."""
    return float(1 - np.mean((y - mean) ** 2) / np.var(y))


SIZE = len(problems())
TRIAL = Trial(
    "numbers",
    "numbers at the limits of floating point give a clear error, or predictions about as good as for the same problem "
    "with ordinary numbers",
    size=SIZE,
    quick=14,
    cases=cases,
    start=start,
    seconds=60,
)
