"""Standardise columns to mean 0 and standard deviation 1."""

from dataclasses import dataclass

import numpy as np

MAX_DISTANCE = 1e15  # standard deviations from the training data beyond which float32 arithmetic overflows
INPUT_SCALE_RANGE = (1e-305, 1e305)  # standard deviations that can be divided by in float64
TARGET_SCALE_RANGE = (1e-140, 1e140)  # standard deviations whose square, a variance, is well within float64


@dataclass(frozen=True)
class Standardisation:
    """The mean and standard deviation of each column, (columns,) each; constant columns are only centred."""

    mean: np.ndarray
    scale: np.ndarray

    @classmethod
    def fit(
        cls, values: np.ndarray, weights: np.ndarray, name: str, limits: tuple[float, float] = INPUT_SCALE_RANGE
    ) -> "Standardisation":
        """Learn mean and standard deviation of each column.

        Parameters
        ----------
        values : (rows, columns)
        weights : (rows,)
        name : str
            What the values are called in an error, "X" or "y".
        limits : (float, float)
            Range of the standard deviations; one outside of it raises a ValueError.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            mean = np.average(values, axis=0, weights=weights)
            unit = _power_of_two(np.max(np.abs(values - mean), axis=0))  # so that no square overflows
            scale = unit * np.sqrt(np.average(((values - mean) / unit) ** 2, axis=0, weights=weights))
        rounding = 10 * np.finfo(np.float64).eps * np.abs(mean)
        constant = scale <= rounding  # the spread is only the rounding error of the mean
        scale = np.where(constant, np.maximum(rounding, 1.0), scale)
        _check_range(name, scale, *limits)
        return cls(np.where(constant, values[0], mean), scale)

    def transform(self, values: np.ndarray, dtype: np.dtype, name: str) -> np.ndarray:
        """Return `values`, (rows, columns), standardised and in `dtype`; `name` is what an error calls them.

        A value more than MAX_DISTANCE standard deviations from the mean raises a ValueError.
        """
        with np.errstate(over="ignore"):  # infinity is caught below
            standardised = (values - self.mean) / self.scale
        far = np.abs(standardised) > MAX_DISTANCE
        if far.any():
            row, column = np.argwhere(far)[0]
            raise ValueError(
                f"{name}: row {row}, column {column} lies {abs(standardised[row, column]):.0e} standard deviations "
                "from the training data, too far for float32 arithmetic. Check its units."
            )
        return standardised.astype(dtype)


def _power_of_two(values: np.ndarray) -> np.ndarray:
    """Return the powers of two just above `values`, and 1 for zero: dividing by them does not round."""
    return np.where((values > 0) & np.isfinite(values), np.ldexp(1.0, np.clip(np.frexp(values)[1], -1022, 1023)), 1.0)


def _check_range(name: str, scale: np.ndarray, smallest: float, largest: float) -> None:
    """Raise a ValueError that names a column of `name` whose standard deviation is out of range."""
    wrong = np.flatnonzero(~((scale >= smallest) & (scale <= largest)))
    if wrong.size:
        size, remedy = ("small", "multiply") if scale[wrong[0]] < smallest else ("large", "divide")
        raise ValueError(
            f"{name}: the values of column {wrong[0]} are too {size} for float64; {remedy} them by a constant."
        )
