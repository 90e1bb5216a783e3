"""Standardise columns to mean 0 and standard deviation 1, with little influence of outliers."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from anchored.types import Array

MAX_DISTANCE = 1e15  # largest distance from the mean, in standard deviations; larger distances overflow in float32
INPUT_SCALE_RANGE = (1e-305, 1e305)  # allowed standard deviations of a column of X; float64 can divide by them
TARGET_SCALE_RANGE = (1e-140, 1e140)  # allowed standard deviations of a column of y; float64 can hold their squares
SCALE_OF_CONSTANT = 0.25  # divisor of a constant column, such as the indicator of a category without training rows

# The largest fraction of a column's rows (weighted) that can be outliers, on each side
OUTLIER_FRACTION = 0.01
MIN_OUTLIERS = 2  # at least this many rows can be outliers, up to the following fraction
MAX_OUTLIER_FRACTION = 0.1


@dataclass(frozen=True)
class Standardisation:
    """Standardises columns by their mean and standard deviation.

    Each column has a lower and an upper limit, which lie twice as far from its median as its 1 % and its 99 % quantile.
    In tables of fewer than 200 rows, the limits are extrapolated from quantiles that exclude two rows, because two may
    be outliers. Values beyond a limit are outliers. In the mean and the standard deviation, the limit replaces them.
    Beyond a limit, standardised inputs grow only logarithmically.

    A column that is constant in training, except for outliers, is divided by the distance of its farthest outlier, or
    by SCALE_OF_CONSTANT if it has none. Such a column has limits only if there are further training rows (`is_part`).
    """

    mean: np.ndarray  # (columns,), means of the columns
    scale: np.ndarray  # (columns,), the divisors: standard deviations, except for constant columns
    lower: np.ndarray  # (columns,), standardised lower limits; −inf for a column without one
    upper: np.ndarray  # (columns,), standardised upper limits; inf for a column without one

    @classmethod
    def fit(
        cls,
        values: np.ndarray,
        weights: np.ndarray,
        name: str,
        scale_range: tuple[float, float] = INPUT_SCALE_RANGE,
        is_part: bool = False,
    ) -> "Standardisation":
        """Return the standardisation by the mean, standard deviation and outlier limits of each column.

        Parameters
        ----------
        values : (rows, columns)
            The columns.
        weights : (rows,)
            Weights of the rows.
        name : str
            Name of the values in an error: "X" or "y".
        scale_range : (float, float)
            Smallest and largest standard deviation allowed. A ValueError is raised outside this range.
        is_part : bool
            Whether `values` are only some of the training rows. Other rows may have outliers in columns where these
            rows have none, so all columns have limits.
        """
        lower, upper = _outlier_limits(values, weights)
        inner = np.clip(values, lower, upper)
        with np.errstate(over="ignore", invalid="ignore"):
            mean = np.average(inner, axis=0, weights=weights)
            # Values are divided by a power of two, so that no square overflows
            power = _power_of_two(np.max(np.abs(inner - mean), axis=0))
            scale = power * np.sqrt(np.average(((inner - mean) / power) ** 2, axis=0, weights=weights))
        rounding = 10 * np.finfo(np.float64).eps * np.abs(mean)
        is_constant = scale <= rounding  # differences from the mean are only rounding errors
        mean = np.where(is_constant, inner[0], mean)
        farthest = np.max(np.abs(values - mean), axis=0)  # for a constant column, distance of its farthest outlier
        scale_of_constant = np.maximum(rounding, SCALE_OF_CONSTANT)
        scale = np.where(is_constant, np.where(farthest > rounding, farthest, scale_of_constant), scale)
        _check_range(name, scale, *scale_range)
        has_lower = ((values < lower).any(axis=0) | is_part) & ~is_constant
        has_upper = ((values > upper).any(axis=0) | is_part) & ~is_constant
        without = 1 / SCALE_OF_CONSTANT if is_part else np.inf
        return cls(
            mean,
            scale,
            np.where(has_lower, (lower - mean) / scale, -without),
            np.where(has_upper, (upper - mean) / scale, without),
        )

    def transform_inputs(self, values: np.ndarray, dtype: np.dtype, name: str) -> np.ndarray:
        """Return standardised inputs, with outliers compressed.

        Parameters
        ----------
        values : (rows, columns)
            Inputs.
        dtype : numpy.dtype
            Data type of the result.
        name : str
            Name of the values in the ValueError that is raised if a compressed value is larger than MAX_DISTANCE.

        Returns
        -------
        (rows, columns)
            Standardised inputs.
        """
        with np.errstate(over="ignore", invalid="ignore"):  # infinity and NaN are caught by _check_distance
            compressed = np.asarray(self.compressed((values - self.mean) / self.scale))
        _check_distance(compressed, name)
        return compressed.astype(dtype)

    def transform_targets(self, values: np.ndarray, name: str) -> np.ndarray:
        """Return standardised targets, without compression of outliers.

        Parameters
        ----------
        values : (rows, columns)
            Targets.
        name : str
            Name of the values in the ValueError that is raised if a value lies farther than MAX_DISTANCE from the mean.

        Returns
        -------
        (rows, columns)
            Standardised targets.
        """
        with np.errstate(over="ignore"):  # infinity is caught by _check_distance
            standardised = (values - self.mean) / self.scale
        _check_distance(standardised, name)
        return standardised

    def compressed(self, standardised: Array) -> Array:
        """Return `standardised` inputs, (..., columns), whose excess z over a limit is replaced by log(1 + z)."""
        if np.all(np.isinf(self.lower) & np.isinf(self.upper)):
            return standardised
        xp = jnp if isinstance(standardised, jax.Array) else np
        inner = xp.clip(standardised, self.lower, self.upper)
        beyond = standardised - inner
        return inner + xp.sign(beyond) * xp.log1p(xp.abs(beyond))

    def outlier_weights(self, standardised: np.ndarray) -> np.ndarray:
        """Return a weight for each row of `standardised` targets, (rows, columns): 1, or less for an outlier.

        A target beyond a limit has the weight (limit/target)². This is the weight of a row whose noise has a standard
        deviation that is target/limit times as large. With several columns, a row has its smallest weight.

        Returns
        -------
        (rows, 1)
            Weights.
        """
        limit = np.where(standardised < 0, -self.lower, self.upper)
        with np.errstate(divide="ignore"):
            ratio = np.minimum(1.0, limit / np.abs(standardised))
        return np.min(ratio, axis=1, keepdims=True) ** 2


def _check_distance(standardised: np.ndarray, name: str) -> None:
    """Raise a ValueError if a value of `standardised`, (rows, columns), exceeds MAX_DISTANCE, or is NaN.

    `name` is the name of the values in the error.
    """
    is_near = np.abs(standardised) <= MAX_DISTANCE  # false for NaN
    if not is_near.all():
        row, column = np.argwhere(~is_near)[0]
        raise ValueError(
            f"{name}: row {row}, column {column} lies more than {MAX_DISTANCE:.0e} standard deviations from the "
            "training data, too far for float32 arithmetic. Check its units."
        )


def _outlier_limits(values: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the lower and the upper limit of each column, (columns,) each, beyond which a value is an outlier.

    Quantiles are weighted by `weights`, (rows,). If their sum exceeds the number of rows, it is used instead of that
    number: a weight of 2 counts as two rows. The limits of a normal distribution do not depend on the number of rows.
    """
    n_rows = max(len(values), weights.sum())
    fraction = np.clip(MIN_OUTLIERS / n_rows, OUTLIER_FRACTION, MAX_OUTLIER_FRACTION)
    excess = 2 * special.ndtri(OUTLIER_FRACTION) / special.ndtri(fraction) - 1
    weights_if_unequal = None if np.all(weights == weights[0]) else weights  # quantiles without weights are faster
    probabilities = (fraction + 1e-9, 0.5, 1 - fraction - 1e-9)
    quantiles = [
        np.quantile(column, probabilities, method="inverted_cdf", weights=weights_if_unequal) for column in values.T
    ]
    low, median, high = np.transpose(quantiles)
    with np.errstate(over="ignore"):
        return low - excess * (median - low), high + excess * (high - median)


def _power_of_two(values: np.ndarray) -> np.ndarray:
    """Return a power of two near each of `values`, by which division is exact; 1 for zero or infinity."""
    return np.where((values > 0) & np.isfinite(values), np.ldexp(1.0, np.clip(np.frexp(values)[1], -1022, 1023)), 1.0)


def _check_range(name: str, scale: np.ndarray, smallest: float, largest: float) -> None:
    """Raise a ValueError if the `scale`, (columns,), of a column is below `smallest` or above `largest`.

    `name` is the name of the values in the error.
    """
    wrong = np.flatnonzero(~((scale >= smallest) & (scale <= largest)))
    if wrong.size:
        size, remedy = ("small", "multiply") if scale[wrong[0]] < smallest else ("large", "divide")
        raise ValueError(
            f"{name}: the values of column {wrong[0]} are too {size} for float64; {remedy} them by a constant."
        )
