"""Standardise columns to mean 0 and standard deviation 1."""

from dataclasses import dataclass

import numpy as np

MAX_DISTANCE = 1e15  # largest distance from the mean, in standard deviations; beyond it, float32 arithmetic overflows
INPUT_SCALE_RANGE = (1e-305, 1e305)  # smallest and largest standard deviation that float64 can divide by
TARGET_SCALE_RANGE = (1e-140, 1e140)  # the same for y, whose variance must be well within float64


@dataclass(frozen=True)
class Standardisation:
    """Standardises columns by their mean and standard deviation; a column that is constant in training is centred."""

    mean: np.ndarray  # (columns,)
    scale: np.ndarray  # (columns,), the standard deviations

    @classmethod
    def fit(
        cls, values: np.ndarray, weights: np.ndarray, name: str, limits: tuple[float, float] = INPUT_SCALE_RANGE
    ) -> "Standardisation":
        """Learn the mean and the standard deviation of each column.

        Parameters
        ----------
        values : (rows, columns)
            The columns.
        weights : (rows,)
            Weights of the rows.
        name : str
            What the values are called in an error, "X" or "y".
        limits : (float, float)
            Smallest and largest standard deviation allowed; another one raises a ValueError.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            mean = np.average(values, axis=0, weights=weights)
            unit = _power_of_two(
                np.max(np.abs(values - mean), axis=0)
            )  # values are divided by it, so no square overflows
            scale = unit * np.sqrt(np.average(((values - mean) / unit) ** 2, axis=0, weights=weights))
        rounding = 10 * np.finfo(np.float64).eps * np.abs(mean)
        is_constant = scale <= rounding  # differences from the mean are only rounding errors
        scale = np.where(is_constant, np.maximum(rounding, 1.0), scale)
        _check_range(name, scale, *limits)
        return cls(np.where(is_constant, values[0], mean), scale)

    def transform(self, values: np.ndarray, dtype: np.dtype, name: str) -> np.ndarray:
        """Return `values`, (rows, columns), standardised and in `dtype`; `name` is what an error calls them.

        A value more than MAX_DISTANCE standard deviations from the mean raises a ValueError.
        """
        with np.errstate(over="ignore"):  # infinity is caught below
            standardised = (values - self.mean) / self.scale
        is_far = np.abs(standardised) > MAX_DISTANCE
        if is_far.any():
            row, column = np.argwhere(is_far)[0]
            raise ValueError(
                f"{name}: row {row}, column {column} lies {abs(standardised[row, column]):.0e} standard deviations "
                "from the training data, too far for float32 arithmetic. Check its units."
            )
        return standardised.astype(dtype)


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
