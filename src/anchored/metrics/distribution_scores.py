"""Scores and calibration of any predictive distribution with the methods `logpdf`, `cdf` and `crps`."""

from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from anchored.metrics.validation import Weights, as_targets, average

MAX_NORMAL_SCORE = 30.0  # replaces the infinite score of a target whose probability is 0 or 1 in float64


class Distribution(Protocol):
    """The interface of predictive distributions, one for each target, such as `predict_dist` returns."""

    def logpdf(self, y: np.ndarray) -> np.ndarray:
        """Return the log density of each distribution at its target in `y`."""

    def cdf(self, y: np.ndarray) -> np.ndarray:
        """Return the cumulative probability of each distribution at its target in `y`."""

    def crps(self, y: np.ndarray) -> np.ndarray:
        """Return the continuous ranked probability score of each distribution for its target in `y`."""


def nll(y_true: ArrayLike, distribution: Distribution, *, sample_weight: Weights = None) -> float:
    """Return the negative log-likelihood of targets `y_true` under `distribution`: the mean of −log p(y), in nats.

    `sample_weight`, (rows,), holds the weights of the rows.
    """
    return average(-distribution.logpdf(as_targets(y_true)), sample_weight)


def crps(y_true: ArrayLike, distribution: Distribution, *, sample_weight: Weights = None) -> float:
    """Return the continuous ranked probability score of `distribution` for targets `y_true`, in units of y.

    `sample_weight`, (rows,), holds the weights of the rows.
    """
    return average(distribution.crps(as_targets(y_true)), sample_weight)


def normal_scores(y_true: ArrayLike, distribution: Distribution) -> np.ndarray:
    """Return Φ⁻¹(F(y)) for each target y, in the shape of `y_true`.

    F is the cumulative distribution function of the target in `distribution`, and Φ that of the standard normal. If the
    distributions are right, the scores are standard normal. Metrics for normals can therefore be used for any
    distribution, such as `calibration_error(normal_scores(y, distribution), 0.0, 1.0)`.
    """
    scores = special.ndtri(distribution.cdf(as_targets(y_true)))
    return np.clip(scores, -MAX_NORMAL_SCORE, MAX_NORMAL_SCORE)
