"""Types used throughout the package: arrays, random keys, parameters and data."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

Array = jax.Array | np.ndarray  # NumPy outside of compiled programs: JAX would compile every operation by itself
Number = Array | float  # a hyperparameter, rate or counter: a Python number, or an array
Key = jax.Array  # a random key of JAX
Params = Any  # a pytree of arrays
RandomState = int | np.random.RandomState | np.random.Generator | None  # as in scikit-learn
OnProgress = Callable[[float, float], None]  # (fraction of the work done since the last call, mean loss)


class Data(NamedTuple):
    """Training rows.

    A weight multiplies its row's log-likelihood: 2 counts the row twice, 0 leaves it out. With a Gaussian likelihood of
    noise variance σ², a row whose noise variance is known to be σᵢ² has the weight σ²/σᵢ².
    """

    inputs: Array  # (rows, ...)
    targets: Array  # (rows, outputs), or (rows,) of class indices
    weights: Array  # (rows, 1), or (rows, outputs) if they differ between outputs


class Units(NamedTuple):
    """The units of y, to which `standardised * scale + mean` converts; by default nothing is standardised."""

    scale: np.ndarray = np.ones(1)  # (outputs,), or (1,) for all
    mean: np.ndarray = np.zeros(1)  # likewise
