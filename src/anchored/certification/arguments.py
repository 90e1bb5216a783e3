"""Check the arguments of `certify`, and convert them to the units that members were trained in."""

import numpy as np
from numpy.typing import ArrayLike

from anchored.errors import ArgumentError
from anchored.inference.posterior import Posterior
from anchored.model.likelihoods import Gaussian
from anchored.types import Data, Units

N_POINTS = 200  # default number of points at which marginals are compared
MAX_POINTS = 500  # largest number of such points; more are thinned
N_MATRICES = 8  # number of rows × rows matrices that are in memory at the same time


def read_arguments(
    fitted: object, X: ArrayLike, y: ArrayLike, X_eval: ArrayLike | None, sample_weight: ArrayLike | None
) -> tuple[Posterior, Data, np.ndarray, Units]:
    """Check the arguments of `certify`, and convert them.

    Parameters
    ----------
    fitted, X, y, X_eval, sample_weight
        As in `certify`.

    Returns
    -------
    posterior : Posterior
        The posterior of the fit.
    data : Data
        The training rows of positive weight, in float64 and in the units that the members were trained in.
    points : (points, ...) array
        Inputs at which marginals are compared, in the same units.
    units : Units
        The units of y.
    """
    if isinstance(fitted, Posterior):
        posterior = fitted
        data, points, units = _as_data(X, y, sample_weight), X_eval, Units()
        points = None if points is None else np.asarray(points, np.float64)
    elif hasattr(fitted, "_for_certificate") and not isinstance(fitted, type):
        posterior, data, points, units = fitted._for_certificate(X, y, X_eval, sample_weight)
    else:
        raise TypeError(
            f"fitted: cannot certify a {type(fitted).__name__}. Pass a fitted AnchoredRegressor (for a pipeline, its "
            "last step and the data transformed by the other steps) or the Posterior of a method."
        )
    points = _default_points(np.asarray(data.inputs)) if points is None else points
    if points.ndim != data.inputs.ndim or points.shape[1:] != data.inputs.shape[1:] or len(points) == 0:
        raise ValueError(f"X_eval must have rows of shape {data.inputs.shape[1:]}, like X, got shape {points.shape}")
    likelihood = posterior.target.likelihood
    if not isinstance(likelihood, Gaussian):
        raise ArgumentError(
            "fitted",
            f"has the likelihood {type(likelihood).__name__}, with which the posterior has no closed form",
            "only regression with Gaussian noise can be certified, such as AnchoredRegressor, or BayesianRegressor "
            'with likelihood="auto"',
        )
    has_weight = data.weights.min(axis=1) > 0
    data = Data(*(np.asarray(part, np.float64)[has_weight] for part in data))
    if len(points) > MAX_POINTS:
        points = points[np.linspace(0, len(points) - 1, MAX_POINTS).astype(int)]
    return posterior, data, points, units


def _as_data(X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None) -> Data:
    """Return the arguments of `certify` as Data in float64; raise a ValueError if they are invalid."""
    inputs, targets = np.asarray(X, np.float64), np.asarray(y, np.float64)
    weights = np.ones(len(targets)) if sample_weight is None else np.asarray(sample_weight, np.float64)
    if not len(inputs) == len(targets) == len(weights) > 0:
        raise ValueError(
            f"X, y and sample_weight must have the same number of rows, at least one, got {len(inputs)}, "
            f"{len(targets)} and {len(weights)}"
        )
    if np.any(weights < 0) or not np.any(weights > 0):
        raise ValueError("sample_weight must not be negative, and at least one must be positive")
    return Data(inputs, targets.reshape(len(targets), -1), weights.reshape(len(targets), -1))


def _default_points(inputs: np.ndarray) -> np.ndarray:
    """Return N_POINTS random points on lines through pairs of rows of `inputs`.

    A point lies at most a quarter of the distance between its two rows beyond either of them.
    """
    rng = np.random.default_rng(0)
    first, second = rng.integers(len(inputs), size=(2, N_POINTS))
    position = rng.uniform(-0.25, 1.25, N_POINTS)  # 0 at the first row, 1 at the second
    position = position.reshape(N_POINTS, *[1] * (inputs.ndim - 1))
    return inputs[first] + position * (inputs[second] - inputs[first])


def check_memory(data: Data, points: np.ndarray, max_memory_gb: float) -> None:
    """Raise an ArgumentError if the exact posterior given `data` needs more memory at `points` than `max_memory_gb`."""
    if not isinstance(max_memory_gb, int | float) or not max_memory_gb > 0:
        raise ArgumentError("max_memory_gb", f"must be a positive number, got {max_memory_gb!r}")
    n_outputs = data.targets.shape[1]
    needed = 8 * N_MATRICES * (len(data.inputs) * n_outputs + len(points)) ** 2 / 1e9
    if needed > max_memory_gb:
        max_rows = (int(np.sqrt(max_memory_gb * 1e9 / (8 * N_MATRICES))) - len(points)) // n_outputs
        raise ArgumentError(
            "max_memory_gb",
            f"is {max_memory_gb:g}, but the exact posterior of {len(data.inputs):,} rows needs about {needed:.1f} GB",
            f"raise it, or fit and certify with at most {max(max_rows, 0):,} rows",
        )
