"""Centre and scale columns on the way in, and undo it on the way out."""

from dataclasses import dataclass

import numpy as np

FARTHEST = 1e15  # standard deviations from the training data beyond which float32 arithmetic overflows


@dataclass(frozen=True)
class Standardisation:
    """Columns less their mean, over their standard deviation; constant columns are only centred."""

    mean: np.ndarray
    scale: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray, weights: np.ndarray, name: str) -> "Standardisation":
        """Learn from rows with weights."""
        with np.errstate(over="ignore", invalid="ignore"):
            mean = np.average(values, axis=0, weights=weights)
            scale = np.sqrt(np.average((values - mean) ** 2, axis=0, weights=weights))
        if not np.all(np.isfinite(scale)):
            column = int(np.flatnonzero(~np.isfinite(scale))[0])
            raise ValueError(f"{name}: the values of column {column} are too large to square; divide them first.")
        rounding = 10 * np.finfo(np.float64).eps * np.abs(mean)
        constant = scale <= rounding  # its mean is rounded, its values are not
        return cls(np.where(constant, values[0], mean), np.where(constant, np.maximum(rounding, 1.0), scale))

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
