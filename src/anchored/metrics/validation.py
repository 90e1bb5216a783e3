"""Check the arguments of metrics, and convert them to arrays. An invalid argument raises a ValueError."""

from typing import SupportsInt, cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import _check_sample_weight, column_or_1d

Weights = ArrayLike | None  # (rows,); None for equal weights
Labels = ArrayLike | None  # (classes,), the sorted classes of the columns of probabilities; None for those in y_true


def as_numbers(
    name: str, values: ArrayLike, shape: tuple[int, ...] | None = None, allow_infinite: bool = False
) -> np.ndarray:
    """Return `values`, the argument `name`, in float64.

    NaN raises a ValueError, and so do infinities unless `allow_infinite` is true. Unless `shape` is None,
    `values` must have this shape, or be a single number, which is broadcast to it.
    """
    array = np.asarray(values, np.float64)
    if np.isnan(array).any() or (not allow_infinite and np.isinf(array).any()):
        raise ValueError(f"{name} has entries that are NaN or infinite")
    if shape is None:
        return array
    if array.shape not in ((), shape):  # otherwise (rows,) and (rows, 1) would broadcast to (rows, rows)
        raise ValueError(f"{name} must be one number or have the shape {shape}, got {array.shape}")
    return np.broadcast_to(array, shape)


def as_targets(values: ArrayLike, name: str = "y_true") -> np.ndarray:
    """Return `values`, the argument `name`, in float64; they must have at least one row."""
    array = as_numbers(name, values)
    if array.ndim == 0 or array.size == 0:
        raise ValueError(f"{name} must have at least one row, got an array of shape {array.shape}")
    return array


def as_positive(name: str, values: ArrayLike, shape: tuple[int, ...]) -> np.ndarray:
    """Return `values`, the argument `name`, in float64, broadcast to `shape`; they must be positive."""
    array = as_numbers(name, values, shape)
    if not np.all(array > 0):
        raise ValueError(f"{name} must be positive, got {array.min()}")
    return array


def as_normals(y_true: ArrayLike, mean: ArrayLike, std: ArrayLike) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return targets, means and standard deviations in float64, all in the shape of `y_true`."""
    y = as_targets(y_true)
    return y, as_numbers("mean", mean, y.shape), as_positive("std", std, y.shape)


def as_members(name: str, values: ArrayLike, y: np.ndarray) -> np.ndarray:
    """Return `values`, the argument `name`, in float64; they must have the shape (members, *y.shape)."""
    array = as_numbers(name, values)
    if array.ndim == 0 or len(array) == 0 or array.shape[1:] != y.shape:
        raise ValueError(f"{name} must have one more axis in front of those of y_true, {y.shape}; got {array.shape}")
    return array


def as_intervals(lower: ArrayLike, upper: ArrayLike, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends `lower` and `upper` of intervals in float64, broadcast to `shape`; they may be infinite."""
    lower = as_numbers("lower", lower, shape, allow_infinite=True)
    upper = as_numbers("upper", upper, shape, allow_infinite=True)
    if np.any(lower > upper):
        raise ValueError("lower must not be above upper")
    return lower, upper


def as_levels(name: str, values: ArrayLike) -> np.ndarray:
    """Return `values`, the argument `name`, in float64; they must lie above 0 and below 1."""
    array = as_numbers(name, values)
    if not np.all((array > 0) & (array < 1)):
        raise ValueError(f"{name} must lie above 0 and below 1, got {values!r}")
    return array


def as_count(name: str, value: object) -> int:
    """Return `value`, the argument `name`, which must be a whole number of at least 1, as an int."""
    count = int(cast(SupportsInt, value))
    if count != value or count < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
    return count


def as_classes(
    y_true: ArrayLike, probabilities: ArrayLike, labels: Labels
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the class of each row, the probabilities in float64, and the class of each column.

    `y_true`, `probabilities` and `labels` are as in `brier_score`. A ValueError is raised unless they match.
    """
    y = column_or_1d(y_true)
    labels = np.unique(y) if labels is None else np.asarray(labels)
    probabilities = as_numbers("probabilities", probabilities)
    if not np.array_equal(labels, np.unique(labels)):
        raise ValueError("labels must be sorted, as the columns of predict_proba are")
    if probabilities.shape != (len(y), len(labels)):
        raise ValueError(
            f"probabilities must have {len(y)} rows and {len(labels)} classes, got the shape {probabilities.shape}; "
            "if a class does not occur in y_true, pass all classes as labels"
        )
    if np.any((probabilities < 0) | (probabilities > 1)):
        raise ValueError("probabilities must lie between 0 and 1")
    if not np.isin(y, labels).all():
        raise ValueError(f"y_true has classes that are not among labels={labels.tolist()}")
    return y, probabilities, labels


def as_weights(sample_weight: Weights, n_rows: int) -> np.ndarray:
    """Return the weights of `n_rows` rows in float64; ones if `sample_weight` is None."""
    return _check_sample_weight(sample_weight, np.empty((n_rows, 1)), dtype=np.float64, ensure_non_negative=True)


def average(scores: np.ndarray, sample_weight: Weights) -> float:
    """Return the mean of `scores`, (rows, ...), over outputs, and then over rows, weighted by `sample_weight`."""
    rows = scores.reshape(len(scores), -1).mean(axis=1)
    return float(np.average(rows, weights=as_weights(sample_weight, len(rows))))
