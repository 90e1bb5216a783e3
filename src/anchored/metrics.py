"""How good predictive distributions are: proper scores, intervals, calibration, and scorers made of them.

Scores are averaged over outputs, then over rows by `sample_weight`. Lower is better, except for the scorers.

>>> from anchored.metrics import gaussian_crps
>>> round(gaussian_crps([0.0], mean=[0.0], std=[1.0]), 4)
0.2337
"""

from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy import special, stats
from sklearn.metrics import brier_score_loss, roc_auc_score
from sklearn.metrics import log_loss as log_loss
from sklearn.metrics import root_mean_squared_error as root_mean_squared_error
from sklearn.utils.validation import _check_sample_weight, column_or_1d

Weights = ArrayLike | None  # (rows,), None for equal ones
Labels = ArrayLike | None  # (classes,) of the columns, sorted; None for those in y_true


class PredictsNormals(Protocol):
    """A regressor that gives a mean and a standard deviation, as ours and scikit-learn's Gaussian process do."""

    def predict(self, X: ArrayLike, return_std: bool) -> tuple[ArrayLike, ArrayLike]:
        """With `return_std=True`: the mean and the standard deviation of each row's target, both (rows, ...)."""


# Regression


def gaussian_nll(y_true: ArrayLike, mean: ArrayLike, std: ArrayLike, *, sample_weight: Weights = None) -> float:
    """Negative log likelihood of normals, mean of −log N(y; μ, σ²)."""
    y, mean, std = _normal(y_true, mean, std)
    return _average(-stats.norm.logpdf(y, mean, std), sample_weight)


def mixture_nll(y_true: ArrayLike, member_means: ArrayLike, std: ArrayLike, *, sample_weight: Weights = None) -> float:
    """Negative log likelihood of the members' equal mixture, mean of −log (1/M) Σₘ N(y; μₘ, σ²).

    `member_means` is (members, *shape of y_true). `std`, of the noise, is one number, of the shape of y_true, or of
    the shape of `member_means` where each member has its own.
    """
    y = _targets(y_true)
    means = _members("member_means", member_means, y)
    std = _positive("std", std, means.shape if np.ndim(std) == means.ndim else y.shape)
    log_density = special.logsumexp(stats.norm.logpdf(y, means, std), axis=0) - np.log(len(means))
    return _average(-log_density, sample_weight)


def gaussian_crps(y_true: ArrayLike, mean: ArrayLike, std: ArrayLike, *, sample_weight: Weights = None) -> float:
    """Continuous ranked probability score of normals, in units of y.

    CRPS = ∫ (F(x) − 1[x ≥ y])² dx = σ (z (2Φ(z) − 1) + 2φ(z) − 1/√π) with z = (y − μ)/σ.
    """
    y, mean, std = _normal(y_true, mean, std)
    z = (y - mean) / std
    scores = std * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi))
    return _average(scores, sample_weight)


def sample_crps(y_true: ArrayLike, samples: ArrayLike, *, sample_weight: Weights = None) -> float:
    """Continuous ranked probability score from samples (n, *shape of y_true), the fair estimator.

    (1/n) Σᵢ |xᵢ − y| − 1/(2n(n − 1)) Σᵢⱼ |xᵢ − xⱼ|, whose expectation is the score of the distribution the samples
    were drawn from, whatever their number: more samples are not rewarded. It can be slightly negative.
    """
    y = _targets(y_true)
    errors = np.sort(_members("samples", samples, y) - y, axis=0)
    n_samples = len(errors)
    if n_samples < 2:
        raise ValueError("samples: the fair estimator needs at least two samples, got one")
    # In sorted order, the i-th of n is the larger of a pair i − 1 times, and the smaller n − i times.
    rank = 2 * np.arange(1, n_samples + 1) - n_samples - 1
    spread = np.tensordot(rank, errors, axes=1) / (n_samples * (n_samples - 1))
    return _average(np.abs(errors).mean(axis=0) - spread, sample_weight)


def coverage(y_true: ArrayLike, lower: ArrayLike, upper: ArrayLike, *, sample_weight: Weights = None) -> float:
    """Share of targets inside their interval, ends included."""
    y = _targets(y_true)
    lower, upper = _ends(lower, upper, y.shape)
    return _average((lower <= y) & (y <= upper), sample_weight)


def interval_width(lower: ArrayLike, upper: ArrayLike, *, sample_weight: Weights = None) -> float:
    """Mean of u − l, in units of y."""
    lower, upper = _ends(lower, upper, np.shape(lower) or np.shape(upper))
    return _average(np.atleast_1d(upper - lower), sample_weight)


def interval_score(
    y_true: ArrayLike, lower: ArrayLike, upper: ArrayLike, coverage: float = 0.95, *, sample_weight: Weights = None
) -> float:
    """Winkler's score of central intervals, mean of (u − l) + (2/α) (max(l − y, 0) + max(y − u, 0)).

    α = 1 − coverage, where `coverage` is what the intervals claim.
    """
    y = _targets(y_true)
    lower, upper = _ends(lower, upper, y.shape)
    miss = np.maximum(lower - y, 0) + np.maximum(y - upper, 0)
    return _average(upper - lower + 2 / (1 - _probability("coverage", coverage)) * miss, sample_weight)


def gaussian_interval(mean: ArrayLike, std: ArrayLike, coverage: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
    """Central intervals of normals, μ ± σ Φ⁻¹((1 + coverage)/2): lower and upper ends."""
    mean = _numbers("mean", mean)
    return stats.norm.interval(_probability("coverage", coverage), mean, _positive("std", std, mean.shape))


def gaussian_kl(mean: ArrayLike, std: ArrayLike, other_mean: ArrayLike, other_std: ArrayLike) -> np.ndarray:
    """KL(N(μ, σ²) ‖ N(μ', σ'²)) in nats, point by point; arguments broadcast. The first is the truth."""
    mean, other_mean = _numbers("mean", mean), _numbers("other_mean", other_mean)
    std, other_std = _numbers("std", std), _numbers("other_std", other_std)
    if np.any(std <= 0) or np.any(other_std <= 0):
        raise ValueError("std and other_std must be positive: the divergence from or to a point is infinite")
    ratio = (std / other_std) ** 2
    return 0.5 * (ratio + ((mean - other_mean) / other_std) ** 2 - 1 - np.log(ratio))


def gaussian_wasserstein(mean: ArrayLike, std: ArrayLike, other_mean: ArrayLike, other_std: ArrayLike) -> np.ndarray:
    """2-Wasserstein distance √((μ − μ')² + (σ − σ')²), point by point, in units of y; arguments broadcast."""
    mean, other_mean = _numbers("mean", mean), _numbers("other_mean", other_mean)
    std, other_std = _numbers("std", std), _numbers("other_std", other_std)
    return np.hypot(mean - other_mean, std - other_std)


def pit(y_true: ArrayLike, mean: ArrayLike, std: ArrayLike) -> np.ndarray:
    """Probability integral transform Φ((y − μ)/σ) of each target: uniform on [0, 1] where the normals are right."""
    y, mean, std = _normal(y_true, mean, std)
    return stats.norm.cdf(y, mean, std)


def calibration_curve(
    y_true: ArrayLike, mean: ArrayLike, std: ArrayLike, levels: int | ArrayLike = 19, *, sample_weight: Weights = None
) -> tuple[np.ndarray, np.ndarray]:
    """Expected and observed coverage of the normals' central intervals, (levels,) each.

    `levels` are probabilities, or how many to space evenly between 0 and 1. The interval of level p has the targets
    with |2 PIT − 1| ≤ p.
    """
    if np.ndim(levels) == 0:
        n_levels = _count("levels", levels)
        levels = np.arange(1, n_levels + 1) / (n_levels + 1)
    expected = _probability("levels", levels)
    smallest_level = np.abs(2 * pit(y_true, mean, std) - 1)
    observed = np.array([_average(smallest_level <= level, sample_weight) for level in expected])
    return expected, observed


def calibration_error(
    y_true: ArrayLike, mean: ArrayLike, std: ArrayLike, levels: int | ArrayLike = 19, *, sample_weight: Weights = None
) -> float:
    """Mean of |observed − expected| coverage over the levels of `calibration_curve`."""
    expected, observed = calibration_curve(y_true, mean, std, levels, sample_weight=sample_weight)
    return float(np.abs(observed - expected).mean())


# Classification


def brier_score(
    y_true: ArrayLike, probabilities: ArrayLike, *, labels: Labels = None, sample_weight: Weights = None
) -> float:
    """Brier score, mean of Σ꜀ (1[y = c] − p꜀)²: between 0 and 2, for two classes as for more.

    `labels` are those of the columns, sorted; they must be given where `y_true` lacks a class.
    """
    y, _, labels = _classes(y_true, probabilities, labels)
    # The probabilities as given, not as doubles: how closely their sum is checked depends on their precision.
    return brier_score_loss(y, probabilities, labels=labels, sample_weight=sample_weight, scale_by_half=False)


def reliability_curve(
    y_true: ArrayLike,
    probabilities: ArrayLike,
    n_bins: int = 15,
    *,
    labels: Labels = None,
    sample_weight: Weights = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean confidence, accuracy and share of rows in bins ((i − 1)/n, i/n] of confidence, (n_bins,) each.

    The confidence of a row is its largest probability. Bins without rows have NaN for confidence and accuracy.
    """
    y, probabilities, labels = _classes(y_true, probabilities, labels)
    weights = _weights(sample_weight, len(y))
    confidence = probabilities.max(axis=1)
    correct = labels[probabilities.argmax(axis=1)] == y
    edges = np.linspace(0, 1, _count("n_bins", n_bins) + 1)
    bins = np.digitize(confidence, edges[1:-1], right=True)
    totals, confidences, hits = (
        np.bincount(bins, weights * values, minlength=n_bins) for values in (np.ones(len(y)), confidence, correct)
    )
    filled = np.where(totals > 0, totals, np.nan)
    return confidences / filled, hits / filled, totals / totals.sum()


def expected_calibration_error(
    y_true: ArrayLike,
    probabilities: ArrayLike,
    n_bins: int = 15,
    *,
    labels: Labels = None,
    sample_weight: Weights = None,
) -> float:
    """Σ_bins share · |accuracy − confidence| of the most probable class, in bins of equal width."""
    curve = reliability_curve(y_true, probabilities, n_bins, labels=labels, sample_weight=sample_weight)
    confidence, accuracy, share = curve
    return float(np.nansum(share * np.abs(accuracy - confidence)))


def out_of_distribution_auroc(uncertainty_in: ArrayLike, uncertainty_out: ArrayLike) -> float:
    """Probability that a row from elsewhere is more uncertain than one from the training distribution.

    P(u_out > u_in) + ½ P(u_out = u_in): 1 tells them apart without error, ½ not at all.
    """
    inside, outside = _targets(uncertainty_in, "uncertainty_in"), _targets(uncertainty_out, "uncertainty_out")
    is_outside = np.repeat([0, 1], [inside.size, outside.size])
    return float(roc_auc_score(is_outside, np.concatenate([inside.ravel(), outside.ravel()])))


# Scorers, for `scoring=` of cross-validation. Higher is better. Estimators need `predict(X, return_std=True)`.


def neg_nll_scorer(estimator: PredictsNormals, X: ArrayLike, y: ArrayLike, sample_weight: Weights = None) -> float:
    """Minus `gaussian_nll`."""
    return -gaussian_nll(*_predicted(estimator, X, y), sample_weight=sample_weight)


def neg_crps_scorer(estimator: PredictsNormals, X: ArrayLike, y: ArrayLike, sample_weight: Weights = None) -> float:
    """Minus `gaussian_crps`."""
    return -gaussian_crps(*_predicted(estimator, X, y), sample_weight=sample_weight)


def neg_interval_score_scorer(
    estimator: PredictsNormals, X: ArrayLike, y: ArrayLike, sample_weight: Weights = None
) -> float:
    """Minus `interval_score` of the central intervals of coverage 0.95."""
    y, mean, std = _predicted(estimator, X, y)
    return -interval_score(y, *gaussian_interval(mean, std), sample_weight=sample_weight)


def _predicted(estimator: PredictsNormals, X: ArrayLike, y: ArrayLike) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    mean, std = (np.asarray(array) for array in estimator.predict(X, return_std=True))
    y = np.asarray(y)
    # Some estimators answer a single column of targets with a vector.
    return (y.reshape(mean.shape) if y.size == mean.size else y), mean, std


# Reading arguments


def _numbers(name: str, values: ArrayLike, shape: tuple[int, ...] | None = None, infinite: bool = False) -> np.ndarray:
    """As doubles: of `shape` where given, or one number for all its entries."""
    array = np.asarray(values, np.float64)
    if np.isnan(array).any() or (not infinite and np.isinf(array).any()):
        raise ValueError(f"{name} has entries that are NaN or infinite")
    if shape is None:
        return array
    if array.shape not in ((), shape):  # (rows,) and (rows, 1) would broadcast to (rows, rows) without a word
        raise ValueError(f"{name} must be one number or have the shape {shape}, got {array.shape}")
    return np.broadcast_to(array, shape)


def _targets(values: ArrayLike, name: str = "y_true") -> np.ndarray:
    array = _numbers(name, values)
    if array.ndim == 0 or array.size == 0:
        raise ValueError(f"{name} must have at least one row, got an array of shape {array.shape}")
    return array


def _positive(name: str, values: ArrayLike, shape: tuple[int, ...]) -> np.ndarray:
    array = _numbers(name, values, shape)
    if not np.all(array > 0):
        raise ValueError(f"{name} must be positive, got {array.min()}")
    return array


def _normal(y_true: ArrayLike, mean: ArrayLike, std: ArrayLike) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    y = _targets(y_true)
    return y, _numbers("mean", mean, y.shape), _positive("std", std, y.shape)


def _members(name: str, values: ArrayLike, y: np.ndarray) -> np.ndarray:
    array = _numbers(name, values)
    if array.ndim == 0 or len(array) == 0 or array.shape[1:] != y.shape:
        raise ValueError(f"{name} must have one axis before those of y_true, {y.shape}, got the shape {array.shape}")
    return array


def _ends(lower: ArrayLike, upper: ArrayLike, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    lower, upper = _numbers("lower", lower, shape, infinite=True), _numbers("upper", upper, shape, infinite=True)
    if np.any(lower > upper):
        raise ValueError("lower must not be above upper")
    return lower, upper


def _probability(name: str, values: ArrayLike) -> np.ndarray:
    array = _numbers(name, values)
    if not np.all((array > 0) & (array < 1)):
        raise ValueError(f"{name} must lie between 0 and 1, got {values!r}")
    return array


def _count(name: str, value: Any) -> int:
    if int(value) != value or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
    return int(value)


def _classes(y_true: ArrayLike, probabilities: ArrayLike, labels: Labels) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    y = column_or_1d(y_true)
    labels = np.unique(y) if labels is None else np.asarray(labels)
    probabilities = _numbers("probabilities", probabilities)
    if not np.array_equal(labels, np.unique(labels)):
        raise ValueError("labels must be sorted, as the columns of predict_proba are")
    if probabilities.shape != (len(y), len(labels)):
        raise ValueError(
            f"probabilities must be ({len(y)} rows, {len(labels)} classes), got the shape {probabilities.shape}; "
            "name in labels the classes that y_true lacks"
        )
    if np.any((probabilities < 0) | (probabilities > 1)):
        raise ValueError("probabilities must lie between 0 and 1")
    if not np.isin(y, labels).all():
        raise ValueError(f"y_true has classes that are not among labels={labels.tolist()}")
    return y, probabilities, labels


def _weights(sample_weight: Weights, n_rows: int) -> np.ndarray:
    return _check_sample_weight(sample_weight, np.empty((n_rows, 1)), dtype=np.float64, ensure_non_negative=True)


def _average(scores: np.ndarray, sample_weight: Weights) -> float:
    """Over outputs, then over rows."""
    rows = scores.reshape(len(scores), -1).mean(axis=1)
    return float(np.average(rows, weights=_weights(sample_weight, len(rows))))
