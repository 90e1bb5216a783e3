"""Continue the training of a fitted estimator on other rows, from its members' present parameters.

Data are padded to a few sizes with rows of weight zero, which have no effect, so that adding a point needs no
compilation.
"""

import copy
from dataclasses import replace
from typing import Protocol

import jax
import numpy as np

from anchored.inference.posterior import MemberPosterior
from anchored.inference.solvers.first_order import FirstOrder
from anchored.methods import AnchoredEnsemble
from anchored.types import Data

CAPACITIES = (64, 256)  # numbers of rows to which points are padded


class Model(Protocol):
    """The part of a fitted AnchoredRegressor or AnchoredClassifier that is used here."""

    posterior_: MemberPosterior
    seed_: int

    def _standardised_data(self, X: np.ndarray, y: np.ndarray, weights: np.ndarray) -> Data: ...

    def _fitted_method(self) -> AnchoredEnsemble: ...


def padded(data: Data) -> Data:
    """Return `data` with rows of weight zero, up to the next of CAPACITIES."""
    n_rows = len(data.weights)
    size = next((capacity for capacity in CAPACITIES if capacity >= n_rows), n_rows)

    def with_zeros(part: np.ndarray) -> np.ndarray:
        return np.concatenate([part, np.zeros((size - n_rows, *part.shape[1:]), part.dtype)])

    return Data(*(with_zeros(np.asarray(part)) for part in data))


def data_of(model: Model, X: np.ndarray, y: np.ndarray) -> Data:
    """Return the rows X, y standardised as in the fit of `model`, in float64."""
    with jax.enable_x64(True):
        return Data(*map(np.asarray, model._standardised_data(X, y, np.ones(len(y)))))


def solver_of(model: Model, n_epochs: int, decay: bool) -> FirstOrder:
    """Return the solver of the fit of `model`, for `n_epochs` epochs in which all rows are one batch.

    `decay` says whether the learning rate decays.
    """
    solver = model._fitted_method().solver
    assert isinstance(solver, FirstOrder)
    return replace(solver, max_iter=n_epochs, batch_size=None, decay=decay, early_stopping=False)


def trained_further(model: Model, X: np.ndarray, y: np.ndarray, solver: FirstOrder) -> Model:
    """Return a copy of `model` whose members have been trained further on the rows X, y, standardised as in its fit.

    Members keep their anchors and the noise of their targets: `AnchoredEnsemble.resume` is called with the key of the
    fit.
    """
    method, posterior = replace(model._fitted_method(), solver=solver), model.posterior_
    data = padded(data_of(model, X, y))
    data = Data(*(part.astype(posterior.dtype) if part.dtype.kind == "f" else part for part in data))
    return with_posterior(model, method.resume(jax.random.key(model.seed_), posterior, data))


def with_posterior(model: Model, posterior: MemberPosterior) -> Model:
    """Return a copy of `model` with the members of `posterior`."""
    copied = copy.copy(model)
    copied.posterior_ = posterior
    return copied
