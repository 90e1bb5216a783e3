"""Standardise columns to mean 0 and standard deviation 1, without regard to a few values unlike all others."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from anchored.types import Array

MAX_DISTANCE = 1e15  # largest distance from the mean, in standard deviations; beyond it, float32 arithmetic overflows
INPUT_SCALE_RANGE = (1e-305, 1e305)  # smallest and largest standard deviation that float64 can divide by
TARGET_SCALE_RANGE = (1e-140, 1e140)  # the same for y, whose variance must be well within float64
SCALE_OF_CONSTANT = 0.25  # divisor of a constant column, such as the flag of a category that no training row has
OUTLIER_SHARE = 0.01  # of the weight: at most this share of a column's values on each side may be outliers


@dataclass(frozen=True)
class Standardisation:
    """Standardises columns by their mean and standard deviation.

    The quantile of 99 % and its distance from the median give an upper limit, twice as far from the median; that of 1 %
    gives a lower one. A value beyond is an outlier: mean and standard deviation are computed as if it were at the
    limit, and beyond the limit inputs grow with the logarithm only.

    A column that is constant in training, except for outliers, is divided by the distance of its farthest outlier, or
    by SCALE_OF_CONSTANT if it has none. It has no limits.
    """

    mean: np.ndarray  # (columns,)
    scale: np.ndarray  # (columns,), what columns are divided by: their standard deviations, unless they are constant
    lower: np.ndarray  # (columns,), standardised; −inf if there is no limit, or no training row lies below it
    upper: np.ndarray  # (columns,), standardised; inf if there is no limit, or no training row lies above it

    @classmethod
    def fit(
        cls, values: np.ndarray, weights: np.ndarray, name: str, scale_range: tuple[float, float] = INPUT_SCALE_RANGE
    ) -> "Standardisation":
        """Learn the mean, the standard deviation and the outlier limits of each column.

        Parameters
        ----------
        values : (rows, columns)
            The columns.
        weights : (rows,)
            Weights of the rows.
        name : str
            What the values are called in an error, "X" or "y".
        scale_range : (float, float)
            Smallest and largest standard deviation allowed; another one raises a ValueError.
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
        farthest = np.max(np.abs(values - mean), axis=0)  # the outliers of a column that is constant otherwise
        scale_of_constant = np.maximum(rounding, SCALE_OF_CONSTANT)
        scale = np.where(is_constant, np.where(farthest > rounding, farthest, scale_of_constant), scale)
        _check_range(name, scale, *scale_range)
        has_outlier_below = (values < lower).any(axis=0) & ~is_constant
        has_outlier_above = (values > upper).any(axis=0) & ~is_constant
        return cls(
            mean,
            scale,
            np.where(has_outlier_below, (lower - mean) / scale, -np.inf),
            np.where(has_outlier_above, (upper - mean) / scale, np.inf),
        )

    def transform_inputs(self, values: np.ndarray, dtype: np.dtype, name: str) -> np.ndarray:
        """Return inputs `values`, (rows, columns), standardised, with outliers compressed, in `dtype`.

        Raises a ValueError, which calls the values `name`, if one is beyond MAX_DISTANCE even so.
        """
        with np.errstate(over="ignore", invalid="ignore"):  # infinity and NaN are caught by _check_distance
            compressed = np.asarray(self.compressed((values - self.mean) / self.scale))
        _check_distance(compressed, name)
        return compressed.astype(dtype)

    def transform_targets(self, values: np.ndarray, name: str) -> np.ndarray:
        """Return targets `values`, (rows, columns), standardised, with outliers as they are.

        Raises a ValueError, which calls the values `name`, if one is beyond MAX_DISTANCE.
        """
        with np.errstate(over="ignore"):  # infinity is caught by _check_distance
            standardised = (values - self.mean) / self.scale
        _check_distance(standardised, name)
        return standardised

    def compressed(self, standardised: Array) -> Array:
        """Return standardised inputs, (..., columns), that grow with the logarithm beyond the limits."""
        if np.all(np.isinf(self.lower) & np.isinf(self.upper)):
            return standardised
        xp = jnp if isinstance(standardised, jax.Array) else np
        inner = xp.clip(standardised, self.lower, self.upper)
        beyond = standardised - inner
        return inner + xp.sign(beyond) * xp.log1p(xp.abs(beyond))

    def outlier_weights(self, standardised: np.ndarray) -> np.ndarray:
        """Return a weight for each row, (rows, 1), of standardised targets: 1, and less for outliers.

        A target beyond a limit has the weight (limit/target)², as if its noise had a standard deviation target/limit
        times as large.
        """
        limit = np.where(standardised < 0, -self.lower, self.upper)
        with np.errstate(divide="ignore"):
            ratio = np.minimum(1.0, limit / np.abs(standardised))
        return np.min(ratio, axis=1, keepdims=True) ** 2


def _check_distance(standardised: np.ndarray, name: str) -> None:
    """Raise a ValueError if a value of `standardised`, (rows, columns), is beyond MAX_DISTANCE, or has overflowed."""
    is_near = np.abs(standardised) <= MAX_DISTANCE  # false for NaN, the difference of two infinities
    if not is_near.all():
        row, column = np.argwhere(~is_near)[0]
        raise ValueError(
            f"{name}: row {row}, column {column} lies more than {MAX_DISTANCE:.0e} standard deviations from the "
            "training data, too far for float32 arithmetic. Check its units."
        )


def _outlier_limits(values: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the limits, (columns,) each, beyond which a value is an outlier; a row of weight two counts twice."""
    given = None if np.all(weights == weights[0]) else weights  # equal weights need no sorting
    probabilities = (OUTLIER_SHARE + 1e-9, 0.5, 1 - OUTLIER_SHARE - 1e-9)
    quantiles = [np.quantile(column, probabilities, method="inverted_cdf", weights=given) for column in values.T]
    low, median, high = np.transpose(quantiles)
    with np.errstate(over="ignore"):
        return low - (median - low), high + (high - median)


def _power_of_two(values: np.ndarray) -> np.ndarray:
    """Return the power of two just above each of `values`, and 1 for zero; division by it is exact."""
    return np.where((values > 0) & np.isfinite(values), np.ldexp(1.0, np.clip(np.frexp(values)[1], -1022, 1023)), 1.0)


def _check_range(name: str, scale: np.ndarray, smallest: float, largest: float) -> None:
    """Raise a ValueError that names the first column of `name` with a `scale` below `smallest` or above `largest`."""
    wrong = np.flatnonzero(~((scale >= smallest) & (scale <= largest)))
    if wrong.size:
        size, remedy = ("small", "multiply") if scale[wrong[0]] < smallest else ("large", "divide")
        raise ValueError(
            f"{name}: the values of column {wrong[0]} are too {size} for float64; {remedy} them by a constant."
        )
