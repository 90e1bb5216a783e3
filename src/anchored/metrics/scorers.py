"""Scorers for the argument `scoring` of scikit-learn's cross-validation. Higher is better.

They score the distribution that `predict_dist` returns. If the estimator has only `predict(X, return_std=True)`, they
score normals.
"""

import math
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from anchored.metrics.distribution_scores import crps, nll
from anchored.metrics.regression_scores import interval_score
from anchored.metrics.validation import Weights, as_normals
from anchored.model.predictive import Predictive


class PredictsStd(Protocol):
    """A regressor that predicts standard deviations, such as AnchoredRegressor or GaussianProcessRegressor."""

    def predict(self, X: ArrayLike, return_std: bool) -> tuple[ArrayLike, ArrayLike]:
        """Return the mean and, with `return_std=True`, the standard deviation for each row of `X`, both (rows, ...)."""


def neg_nll_scorer(estimator: PredictsStd, X: ArrayLike, y: ArrayLike, sample_weight: Weights = None) -> float:
    """Return minus the `nll` of the predictions of `estimator` for rows `X` with targets `y`, in nats.

    `sample_weight`, (rows,), holds the weights of the rows.
    """
    return -nll(*targets_and_distribution(estimator, X, y), sample_weight=sample_weight)


def neg_crps_scorer(estimator: PredictsStd, X: ArrayLike, y: ArrayLike, sample_weight: Weights = None) -> float:
    """Return minus the `crps` of the predictions of `estimator` for rows `X` with targets `y`.

    `sample_weight`, (rows,), holds the weights of the rows.
    """
    return -crps(*targets_and_distribution(estimator, X, y), sample_weight=sample_weight)


def neg_interval_score_scorer(
    estimator: PredictsStd, X: ArrayLike, y: ArrayLike, sample_weight: Weights = None
) -> float:
    """Return minus the `interval_score` of central 95 % intervals of `estimator` for rows `X` with targets `y`.

    `sample_weight`, (rows,), holds the weights of the rows.
    """
    y, distribution = targets_and_distribution(estimator, X, y)
    return -interval_score(y, *distribution.interval(0.95), sample_weight=sample_weight)


def targets_and_distribution(estimator: PredictsStd, X: ArrayLike, y: ArrayLike) -> tuple[np.ndarray, Predictive]:
    """Return targets, and the distributions that an estimator predicts for them.

    Parameters
    ----------
    estimator : regressor
        A fitted regressor with `predict_dist(X)` or `predict(X, return_std=True)`.
    X : (rows, columns) array
        Inputs.
    y : (rows,) or (rows, outputs) array
        Targets.

    Returns
    -------
    y : array
        The targets, in the shape of the predicted means if there are as many.
    distribution : Predictive
        The predictive distributions.
    """
    y = np.asarray(y)
    if hasattr(estimator, "predict_dist"):
        distribution = estimator.predict_dist(X)
        return _in_shape(y, distribution.mean.shape), distribution
    mean, std = (np.asarray(array, np.float64) for array in estimator.predict(X, return_std=True))
    y, mean, std = as_normals(_in_shape(y, mean.shape), mean, std)
    return y, Predictive(mean, epistemic_variance=np.zeros_like(mean), aleatoric_variance=std**2, n_members=np.inf)


def _in_shape(y: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return `y` reshaped to `shape` if the sizes agree.

    Some estimators predict means of shape (rows,) for targets of shape (rows, 1).
    """
    return y.reshape(shape) if y.size == math.prod(shape) else y
