"""Types used throughout the package: arrays, random keys, parameters and data."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

# Outside compiled programs most arrays are NumPy's, because JAX compiles every operation that runs outside of one
Array = jax.Array | np.ndarray
Number = Array | float  # a Python number or an array, such as a learning rate or a noise variance
Key = jax.Array  # a random key of JAX
Params = Any  # a pytree of arrays
RandomState = int | np.random.RandomState | np.random.Generator | None  # as in scikit-learn
OnProgress = Callable[[float, float], None]  # arguments: fraction of the work done since the last call, mean loss


class Data(NamedTuple):
    """Training rows.

    A weight multiplies the log-likelihood of its row: a weight of 2 counts the row twice, and 0 ignores it. With a
    Gaussian likelihood of noise variance σ², a row whose noise variance is known to be σᵢ² has the weight σ²/σᵢ².
    """

    inputs: Array  # (rows, ...)
    targets: Array  # (rows, outputs), or (rows,) of class indices
    weights: Array  # (rows, 1), or (rows, outputs) if the weight of a row differs between outputs


class StoredData(Data):
    """Training rows on disk, memory-mapped, in the order that `inference.pieces` deals them in."""


class Units(NamedTuple):
    """The units of y: `standardised * scale + mean` converts standardised targets to them.

    The defaults are for targets that are not standardised.
    """

    scale: np.ndarray = np.ones(1)  # (outputs,), or (1,) if it is the same for all outputs
    mean: np.ndarray = np.zeros(1)  # (outputs,), or (1,) if it is the same for all outputs
