"""Scores and calibration of class probabilities, and detection of out-of-distribution rows."""

import numpy as np
from numpy.typing import ArrayLike
from sklearn.metrics import brier_score_loss, roc_auc_score

from anchored.metrics.validation import Labels, Weights, as_classes, as_count, as_targets, as_weights


def brier_score(
    y_true: ArrayLike, probabilities: ArrayLike, *, labels: Labels = None, sample_weight: Weights = None
) -> float:
    """Return the Brier score: the mean over rows of Σ꜀ (1[y = c] − p꜀)², which lies between 0 and 2.

    Parameters
    ----------
    y_true : (rows,) array
        The class y of each row.
    probabilities : (rows, classes) array
        Predicted probabilities p꜀.
    labels : (classes,) array, optional
        The class c of each column of `probabilities`, sorted. Required if a class does not occur in `y_true`.
    sample_weight : (rows,) array, optional
        Weights of the rows.

    Returns
    -------
    float
        The score.
    """
    y, _, labels = as_classes(y_true, probabilities, labels)
    # Probabilities are not converted to float64: scikit-learn's tolerance for their sum depends on their precision
    return brier_score_loss(y, probabilities, labels=labels, sample_weight=sample_weight, scale_by_half=False)


def reliability_curve(
    y_true: ArrayLike,
    probabilities: ArrayLike,
    n_bins: int = 15,
    *,
    labels: Labels = None,
    sample_weight: Weights = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the mean confidence, the accuracy and the fraction of rows in each bin of confidence.

    The confidence of a row is its largest probability.

    Parameters
    ----------
    y_true, probabilities, labels, sample_weight
        As in `brier_score`.
    n_bins : int
        Number of bins. Bin i of n is ((i − 1)/n, i/n].

    Returns
    -------
    confidence, accuracy : (n_bins,) array
        Mean confidence and accuracy of the rows in each bin; NaN for bins without rows.
    share : (n_bins,) array
        Fraction of all rows that are in each bin.
    """
    y, probabilities, labels = as_classes(y_true, probabilities, labels)
    weights = as_weights(sample_weight, len(y))
    confidence = probabilities.max(axis=1)
    is_correct = labels[probabilities.argmax(axis=1)] == y
    edges = np.linspace(0, 1, as_count("n_bins", n_bins) + 1)
    bins = np.digitize(confidence, edges[1:-1], right=True)
    totals, confidences, n_correct = (
        np.bincount(bins, weights * values, minlength=n_bins) for values in (np.ones(len(y)), confidence, is_correct)
    )
    divisors = np.where(totals > 0, totals, np.nan)
    return confidences / divisors, n_correct / divisors, totals / totals.sum()


def expected_calibration_error(
    y_true: ArrayLike,
    probabilities: ArrayLike,
    n_bins: int = 15,
    *,
    labels: Labels = None,
    sample_weight: Weights = None,
) -> float:
    """Return the expected calibration error: the sum over bins of share · |accuracy − confidence|.

    Share, accuracy and confidence are returned by `reliability_curve`, which has the same arguments.
    """
    curve = reliability_curve(y_true, probabilities, n_bins, labels=labels, sample_weight=sample_weight)
    confidence, accuracy, share = curve
    return float(np.nansum(share * np.abs(accuracy - confidence)))


def out_of_distribution_auroc(uncertainty_in: ArrayLike, uncertainty_out: ArrayLike) -> float:
    """Return the area under the ROC curve of out-of-distribution detection.

    The area is the probability that a random entry of `uncertainty_out` is larger than a random entry of
    `uncertainty_in`, where ties count half. 1 is perfect detection, and ½ is chance.

    Parameters
    ----------
    uncertainty_in : array of any shape
        Uncertainties of rows from the training distribution.
    uncertainty_out : array of any shape
        Uncertainties of rows from other distributions.

    Returns
    -------
    float
        The area.
    """
    inside, outside = as_targets(uncertainty_in, "uncertainty_in"), as_targets(uncertainty_out, "uncertainty_out")
    is_outside = np.repeat([0, 1], [inside.size, outside.size])
    return float(roc_auc_score(is_outside, np.concatenate([inside.ravel(), outside.ravel()])))
