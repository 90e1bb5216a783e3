"""Scores and calibration of any predictive distribution with the methods `logpdf`, `cdf` and `crps`."""

from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from anchored.metrics.validation import Weights, as_targets, average

MAX_NORMAL_SCORE = 30.0  # float64 has no probability that is farther out


class Distribution(Protocol):
    """The distributions of all targets, such as `predict_dist` returns."""

    def logpdf(self, y: np.ndarray) -> np.ndarray:
        """Return the log density of each target at `y`."""

    def cdf(self, y: np.ndarray) -> np.ndarray:
        """Return the probability that each target is below `y`."""

    def crps(self, y: np.ndarray) -> np.ndarray:
        """Return the continuous ranked probability score of each target for `y`."""


def nll(y_true: ArrayLike, distribution: Distribution, *, sample_weight: Weights = None) -> float:
    """Return the negative log-likelihood of targets `y_true` under `distribution`, the mean of −log p(y), in nats.

    `sample_weight` has the weights of the rows.
    """
    return average(-distribution.logpdf(as_targets(y_true)), sample_weight)


def crps(y_true: ArrayLike, distribution: Distribution, *, sample_weight: Weights = None) -> float:
    """Return the continuous ranked probability score of `distribution` for targets `y_true`, in units of y.

    `sample_weight` has the weights of the rows.
    """
    return average(distribution.crps(as_targets(y_true)), sample_weight)


def normal_scores(y_true: ArrayLike, distribution: Distribution) -> np.ndarray:
    """Return Φ⁻¹(F(y)) of each target y of `y_true`, with the distribution function F of `distribution`.

    Φ is that of the standard normal. The scores are standard normal if the distributions are right, so every metric of
    normals can judge any distribution: `calibration_error(normal_scores(y, distribution), 0.0, 1.0)`.
    """
    scores = special.ndtri(distribution.cdf(as_targets(y_true)))
    return np.clip(scores, -MAX_NORMAL_SCORE, MAX_NORMAL_SCORE)
