"""Centre and scale columns on the way in, and undo it on the way out."""

from dataclasses import dataclass

import numpy as np

FARTHEST = 1e15  # standard deviations from the training data beyond which float32 arithmetic overflows
INPUT_RANGE = (1e-305, 1e305)  # of standard deviations that can be divided by
TARGET_RANGE = (1e-140, 1e140)  # of those whose square, and a small share of it, can be written as well


@dataclass(frozen=True)
class Standardisation:
    """Columns less their mean, over their standard deviation; constant columns are only centred."""

    mean: np.ndarray
    scale: np.ndarray

    @classmethod
    def of(
        cls, values: np.ndarray, weights: np.ndarray, name: str, limits: tuple[float, float] = INPUT_RANGE
    ) -> "Standardisation":
        """Learn from rows (rows, columns) with weights (rows,); raise where a standard deviation is out of range."""
        with np.errstate(over="ignore", invalid="ignore"):
            mean = np.average(values, axis=0, weights=weights)
            unit = _power_of_two(np.max(np.abs(values - mean), axis=0))  # so that no square leaves floating point
            scale = unit * np.sqrt(np.average(((values - mean) / unit) ** 2, axis=0, weights=weights))
        rounding = 10 * np.finfo(np.float64).eps * np.abs(mean)
        constant = scale <= rounding  # its mean is rounded, its values are not
        scale = np.where(constant, np.maximum(rounding, 1.0), scale)
        _check_range(name, scale, *limits)
        return cls(np.where(constant, values[0], mean), scale)

    def apply(self, values: np.ndarray, dtype: np.dtype, name: str) -> np.ndarray:
        """Standardised values."""
        with np.errstate(over="ignore"):  # to infinity, which is far as well
            standardised = (values - self.mean) / self.scale
        far = np.abs(standardised) > FARTHEST
        if far.any():
            row, column = np.argwhere(far)[0]
            raise ValueError(
                f"{name}: row {row}, column {column} lies {abs(standardised[row, column]):.0e} standard deviations "
                "from the training data, too far to compute with. Check its units."
            )
        return standardised.astype(dtype)


def _power_of_two(values: np.ndarray) -> np.ndarray:
    """The powers of two just above positive numbers, 1 for zero: dividing by them rounds nothing."""
    return np.where((values > 0) & np.isfinite(values), np.ldexp(1.0, np.clip(np.frexp(values)[1], -1022, 1023)), 1.0)


def _check_range(name: str, scale: np.ndarray, smallest: float, largest: float) -> None:
    wrong = np.flatnonzero(~((scale >= smallest) & (scale <= largest)))
    if wrong.size:
        size, remedy = ("small", "multiply") if scale[wrong[0]] < smallest else ("large", "divide")
        raise ValueError(
            f"{name}: the values of column {wrong[0]} are too {size} to compute with; {remedy} them by a constant."
        )
