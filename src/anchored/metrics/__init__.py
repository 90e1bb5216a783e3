"""Metrics of predictive distributions: proper scores, intervals, calibration, and scikit-learn scorers.

Scores are averaged over outputs, and then over rows with weights `sample_weight`, of shape (rows,). Lower is better,
except for the scorers. Targets `y_true` have the shape (rows,) or (rows, outputs). A `distribution` is what
`predict_dist` returns. `mean` and `std` are the means and standard deviations of predictive normals in units of y, in
the shape of the targets or as single numbers.

>>> from anchored.metrics import gaussian_crps
>>> round(gaussian_crps([0.0], mean=[0.0], std=[1.0]), 4)
0.2337
"""

from sklearn.metrics import log_loss, root_mean_squared_error

from anchored.metrics.classification_scores import (
    brier_score,
    expected_calibration_error,
    out_of_distribution_auroc,
    reliability_curve,
)
from anchored.metrics.distribution_scores import Distribution, crps, nll, normal_scores
from anchored.metrics.regression_scores import (
    calibration_curve,
    calibration_error,
    coverage,
    gaussian_crps,
    gaussian_interval,
    gaussian_kl,
    gaussian_nll,
    gaussian_wasserstein,
    interval_score,
    interval_width,
    mixture_nll,
    pit,
    sample_crps,
)
from anchored.metrics.scorers import PredictsStd, neg_crps_scorer, neg_interval_score_scorer, neg_nll_scorer

__all__ = [
    "Distribution",
    "PredictsStd",
    "brier_score",
    "calibration_curve",
    "calibration_error",
    "coverage",
    "crps",
    "expected_calibration_error",
    "gaussian_crps",
    "gaussian_interval",
    "gaussian_kl",
    "gaussian_nll",
    "gaussian_wasserstein",
    "interval_score",
    "interval_width",
    "log_loss",
    "mixture_nll",
    "neg_crps_scorer",
    "neg_interval_score_scorer",
    "neg_nll_scorer",
    "nll",
    "normal_scores",
    "out_of_distribution_auroc",
    "pit",
    "reliability_curve",
    "root_mean_squared_error",
    "sample_crps",
]
