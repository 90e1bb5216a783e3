"""Encode inputs piecewise linearly, so that a network can bend at the quantiles of every column.

Each column x is divided into bins between its quantiles e₀ < e₁ < …, and gets a feature for each bin that rises from −1
to 1 inside the bin and is constant outside (Gorishniy et al. 2022). The standardised column itself stays beside them:
it alone varies outside of the training data. The map is fixed before training, so everything that is exact for a
network, such as its Gaussian process, is exact for the encoded inputs.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from anchored.types import Array

N_BINS = 8  # per column; fewer if quantiles coincide
MIN_WIDTH = 1e-6  # of a bin, in standard deviations


@dataclass(frozen=True)
class PiecewiseLinearEncoding:
    """Maps standardised inputs, (rows, columns), to features, (rows, columns + bins)."""

    n_columns: int
    column: np.ndarray  # (bins,), the column of each bin
    lower: np.ndarray  # (bins,), the lower end of each bin
    upper: np.ndarray  # (bins,), its upper end

    @classmethod
    def fit(cls, inputs: np.ndarray, weights: np.ndarray) -> "PiecewiseLinearEncoding":
        """Learn the bins from the quantiles of standardised `inputs`; a constant column has none.

        `weights` (rows,) are those of the rows; a weight of two counts its row twice.
        """
        probabilities = np.linspace(0, 1, N_BINS + 1)
        quantiles = [
            np.quantile(column, probabilities, method="inverted_cdf", weights=weights)
            for column in np.asarray(inputs, np.float64).T
        ]
        edges = [_distinct(values) for values in quantiles]
        return cls(
            len(edges),
            np.repeat(np.arange(len(edges)), [len(e) - 1 for e in edges]),
            np.concatenate([e[:-1] for e in edges]),
            np.concatenate([e[1:] for e in edges]),
        )

    @property
    def n_features(self) -> int:
        """Number of features."""
        return self.n_columns + len(self.column)

    def transform(self, inputs: Array) -> Array:
        """Return the features of standardised `inputs`, in their data type: first the columns, then their bins.

        Features are scaled so that, under a prior with equal variances of all weights, every column has the same share
        of a pre-activation's variance, one half of it through the column itself and the other through its bins.
        """
        xp = jnp if isinstance(inputs, jax.Array) else np
        dtype = inputs.dtype
        n_features = self.n_features
        bins_of_column = np.bincount(self.column, minlength=self.n_columns)
        column_scale = np.sqrt(0.5 * n_features / self.n_columns)
        bin_scale = np.sqrt(0.5 * n_features / (self.n_columns * bins_of_column[self.column]))
        share = (inputs[..., self.column] - self.lower.astype(dtype)) / (self.upper - self.lower).astype(dtype)
        bins = (2 * xp.clip(share, 0, 1) - 1) * bin_scale.astype(dtype)
        return xp.concatenate([inputs * dtype.type(column_scale), bins], axis=-1)


def _distinct(ascending: np.ndarray) -> np.ndarray:
    """Those of `ascending` that exceed the one before them by more than MIN_WIDTH."""
    return ascending[np.concatenate([[True], np.diff(ascending) > MIN_WIDTH])]


class EncodedInputs:
    """Encoded inputs that are computed when rows are taken, since all of them at once may need much memory."""

    def __init__(self, inputs: np.ndarray, encoding: PiecewiseLinearEncoding):
        self._inputs, self._encoding = inputs, encoding

    def __len__(self) -> int:
        return len(self._inputs)

    def __getitem__(self, rows: slice) -> np.ndarray:
        return np.asarray(self._encoding.transform(self._inputs[rows]))
