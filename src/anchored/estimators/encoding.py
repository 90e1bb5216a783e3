"""Encode inputs piecewise linearly, so that a network can easily change its slope at quantiles of each column.

Each column is divided into bins at its quantiles. Each bin gives a feature, which rises linearly from −1 to 1 inside
the bin and is constant outside (Gorishniy et al. 2022). The standardised column itself is also kept: outside of the
training data, no other feature varies. The encoding is fixed before training, so that exact results for a network, such
as its Gaussian process, also hold for encoded inputs.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from anchored.types import Array

N_BINS = 8  # per column; fewer if quantiles coincide
MIN_WIDTH = 1e-6  # smallest width of a bin, in standard deviations of the column


@dataclass(frozen=True)
class PiecewiseLinearEncoding:
    """Maps standardised inputs, (rows, columns), to features, (rows, columns + bins)."""

    n_columns: int
    column: np.ndarray  # (bins,), the index of each bin's column
    lower: np.ndarray  # (bins,), the lower end of each bin
    upper: np.ndarray  # (bins,), the upper end of each bin

    @classmethod
    def fit(cls, inputs: np.ndarray, weights: np.ndarray) -> "PiecewiseLinearEncoding":
        """Return the encoding whose bins lie between the quantiles of each column; a constant column has no bins.

        Parameters
        ----------
        inputs : (rows, columns)
            Standardised inputs.
        weights : (rows,)
            Weights of the rows. A row of weight 2 counts twice.
        """
        probabilities = np.linspace(0, 1, N_BINS + 1)
        quantiles = [
            np.quantile(column, probabilities, method="inverted_cdf", weights=weights)
            for column in np.asarray(inputs, np.float64).T
        ]
        edges = [_distinct(values) for values in quantiles]
        return cls(
            len(edges),
            np.repeat(np.arange(len(edges)), [len(of_column) - 1 for of_column in edges]),
            np.concatenate([of_column[:-1] for of_column in edges]),
            np.concatenate([of_column[1:] for of_column in edges]),
        )

    @property
    def n_features(self) -> int:
        """Number of features."""
        return self.n_columns + len(self.column)

    def transform(self, inputs: Array) -> Array:
        """Return the features of standardised `inputs`, (..., columns): first the columns, then the bins.

        Features are scaled so that each column contributes equally to the prior variance of a pre-activation, if all
        weights have the same prior variance. Half of this contribution comes from the column itself and half from its
        bins. The features have the data type of `inputs`.
        """
        xp = jnp if isinstance(inputs, jax.Array) else np
        dtype = inputs.dtype
        n_features = self.n_features
        n_bins_of_column = np.bincount(self.column, minlength=self.n_columns)
        column_scale = np.sqrt(0.5 * n_features / self.n_columns)
        bin_scale = np.sqrt(0.5 * n_features / (self.n_columns * n_bins_of_column[self.column]))
        position = (inputs[..., self.column] - self.lower.astype(dtype)) / (self.upper - self.lower).astype(dtype)
        bins = (2 * xp.clip(position, 0, 1) - 1) * bin_scale.astype(dtype)
        return xp.concatenate([inputs * dtype.type(column_scale), bins], axis=-1)


def _distinct(ascending: np.ndarray) -> np.ndarray:
    """Return the first value of `ascending`, and each later one that exceeds the value before it by MIN_WIDTH."""
    return ascending[np.concatenate([[True], np.diff(ascending) > MIN_WIDTH])]


class EncodedInputs:
    """Inputs that are encoded only when they are sliced, because all of them together may take much memory."""

    def __init__(self, inputs: np.ndarray, encoding: PiecewiseLinearEncoding):
        self._inputs, self._encoding = inputs, encoding

    def __len__(self) -> int:
        return len(self._inputs)

    def __getitem__(self, rows: slice | np.ndarray) -> np.ndarray:
        return np.asarray(self._encoding.transform(self._inputs[rows]))
