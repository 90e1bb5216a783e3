"""The words every other file speaks in: arrays, keys, parameters, data."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

Array = jax.Array | np.ndarray  # what is not yet on the device is NumPy's, since eager JAX operations compile
Number = Array | float  # a hyperparameter, rate or counter: a Python number, or an array
Key = jax.Array
Params = Any  # a pytree of arrays
RandomState = int | np.random.RandomState | np.random.Generator | None  # as scikit-learn takes it
OnProgress = Callable[[float, float], None]  # (share of the work just done, mean loss)


class Data(NamedTuple):
    """Rows to learn from.

    A weight multiplies its row's log-likelihood: 2 counts the row twice, 0 leaves it out. For the
    Gaussian likelihood it is also how much more precise than `noise_variance` the row's target is, so
    known variances σᵢ² of single rows (and outputs) are written as weights σ²/σᵢ².
    """

    inputs: Array  # (rows, ...)
    targets: Array  # (rows, outputs) for the Gaussians, (rows,) of class indices for classes
    weights: Array  # (rows, 1), or (rows, outputs) where outputs differ in precision
