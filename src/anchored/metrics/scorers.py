"""Scorers for `scoring=` of scikit-learn's cross-validation; higher is better.

Estimators need `predict(X, return_std=True)`.
"""

from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from anchored.metrics.regression_scores import gaussian_crps, gaussian_interval, gaussian_nll, interval_score
from anchored.metrics.validation import Weights


class PredictsNormals(Protocol):
    """A regressor that predicts standard deviations, as anchored's and scikit-learn's GaussianProcessRegressor do."""

    def predict(self, X: ArrayLike, return_std: bool) -> tuple[ArrayLike, ArrayLike]:
        """Return the mean and, with `return_std=True`, the standard deviation for each row of `X`, both (rows, ...)."""


def neg_nll_scorer(estimator: PredictsNormals, X: ArrayLike, y: ArrayLike, sample_weight: Weights = None) -> float:
    """Return minus the `gaussian_nll` of the predictions of `estimator` for rows `X` with targets `y`, in nats.

    `sample_weight` has the weights of the rows.
    """
    return -gaussian_nll(*_predicted(estimator, X, y), sample_weight=sample_weight)


def neg_crps_scorer(estimator: PredictsNormals, X: ArrayLike, y: ArrayLike, sample_weight: Weights = None) -> float:
    """Return minus the `gaussian_crps` of the predictions of `estimator` for rows `X` with targets `y`.

    `sample_weight` has the weights of the rows.
    """
    return -gaussian_crps(*_predicted(estimator, X, y), sample_weight=sample_weight)


def neg_interval_score_scorer(
    estimator: PredictsNormals, X: ArrayLike, y: ArrayLike, sample_weight: Weights = None
) -> float:
    """Return minus the `interval_score` of central 95 % intervals of `estimator` for rows `X` with targets `y`.

    `sample_weight` has the weights of the rows.
    """
    y, mean, std = _predicted(estimator, X, y)
    return -interval_score(y, *gaussian_interval(mean, std), sample_weight=sample_weight)


def _predicted(estimator: PredictsNormals, X: ArrayLike, y: ArrayLike) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the targets `y`, and the predicted means and standard deviations for `X`, in the same shape."""
    mean, std = (np.asarray(array) for array in estimator.predict(X, return_std=True))
    y = np.asarray(y)
    # Some estimators return (rows,) for targets of shape (rows, 1)
    return (y.reshape(mean.shape) if y.size == mean.size else y), mean, std
