"""Scores, intervals and calibration of predictive distributions for regression."""

import numpy as np
from numpy.typing import ArrayLike
from scipy import special, stats

from anchored.metrics.validation import (
    Weights,
    as_count,
    as_intervals,
    as_levels,
    as_members,
    as_normals,
    as_numbers,
    as_positive,
    as_targets,
    average,
)


def gaussian_nll(y_true: ArrayLike, mean: ArrayLike, std: ArrayLike, *, sample_weight: Weights = None) -> float:
    """Return the negative log-likelihood of normals, in nats: the mean of −log N(y; μ, σ²).

    Here y = `y_true`, μ = `mean` and σ = `std`. `sample_weight`, (rows,), holds the weights of the rows.
    """
    y, mean, std = as_normals(y_true, mean, std)
    return average(-stats.norm.logpdf(y, mean, std), sample_weight)


def mixture_nll(y_true: ArrayLike, member_means: ArrayLike, std: ArrayLike, *, sample_weight: Weights = None) -> float:
    """Return the negative log-likelihood of an equal mixture of M members: the mean of −log (1/M) Σₘ N(y; μₘ, σ²).

    Parameters
    ----------
    y_true : (rows, ...) array
        Targets y.
    member_means : (members, rows, ...) array
        Mean μₘ of each member.
    std : float, (rows, ...) array or (members, rows, ...) array
        Standard deviation σ of the noise.
    sample_weight : (rows,) array, optional
        Weights of the rows.

    Returns
    -------
    float
        The score, in nats.
    """
    y = as_targets(y_true)
    means = as_members("member_means", member_means, y)
    std = as_positive("std", std, means.shape if np.ndim(std) == means.ndim else y.shape)
    log_density = special.logsumexp(stats.norm.logpdf(y, means, std), axis=0) - np.log(len(means))
    return average(-log_density, sample_weight)


def gaussian_crps(y_true: ArrayLike, mean: ArrayLike, std: ArrayLike, *, sample_weight: Weights = None) -> float:
    """Return the continuous ranked probability score (CRPS) of normals, in units of y.

    Let y = `y_true`, μ = `mean`, σ = `std` and z = (y − μ)/σ. Let F be the distribution function of the normal, and Φ
    and φ the distribution function and the density of the standard normal. Then CRPS = ∫ (F(x) − 1[x ≥ y])² dx = σ (z
    (2Φ(z) − 1) + 2φ(z) − 1/√π). `sample_weight`, (rows,), holds the weights of the rows.
    """
    y, mean, std = as_normals(y_true, mean, std)
    z = (y - mean) / std
    scores = std * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi))
    return average(scores, sample_weight)


def sample_crps(y_true: ArrayLike, samples: ArrayLike, *, sample_weight: Weights = None) -> float:
    """Return an unbiased ("fair") estimate of the continuous ranked probability score from samples, in units of y.

    For n samples xᵢ and the target y, it is (1/n) Σᵢ |xᵢ − y| − 1/(2n(n − 1)) Σᵢⱼ |xᵢ − xⱼ|. For any n, its expectation
    is the score of the distribution of the samples. The estimate can be slightly negative. `samples` has the shape
    (n, *y_true.shape), with n at least 2. `sample_weight`, (rows,), holds the weights of the rows.
    """
    y = as_targets(y_true)
    errors = np.sort(as_members("samples", samples, y) - y, axis=0)
    n_samples = len(errors)
    if n_samples < 2:
        raise ValueError("samples: the fair estimator needs at least two samples, got one")
    # Among all pairs of n sorted samples, sample i is the larger one in i − 1 pairs, and the smaller one in n − i
    coefficients = 2 * np.arange(1, n_samples + 1) - n_samples - 1
    spread = np.tensordot(coefficients, errors, axes=1) / (n_samples * (n_samples - 1))
    return average(np.abs(errors).mean(axis=0) - spread, sample_weight)


def coverage(y_true: ArrayLike, lower: ArrayLike, upper: ArrayLike, *, sample_weight: Weights = None) -> float:
    """Return the fraction of targets `y_true` that lie in their interval from `lower` to `upper`, ends included.

    `sample_weight`, (rows,), holds the weights of the rows.
    """
    y = as_targets(y_true)
    lower, upper = as_intervals(lower, upper, y.shape)
    return average((lower <= y) & (y <= upper), sample_weight)


def interval_width(lower: ArrayLike, upper: ArrayLike, *, sample_weight: Weights = None) -> float:
    """Return the mean of `upper` − `lower`, in units of y; `sample_weight`, (rows,), holds the weights of the rows."""
    lower, upper = as_intervals(lower, upper, np.shape(lower) or np.shape(upper))
    return average(np.atleast_1d(upper - lower), sample_weight)


def interval_score(
    y_true: ArrayLike, lower: ArrayLike, upper: ArrayLike, coverage: float = 0.95, *, sample_weight: Weights = None
) -> float:
    """Return Winkler's score of central intervals: the mean of (u − l) + (2/α) (max(l − y, 0) + max(y − u, 0)).

    Here y = `y_true`, l = `lower`, u = `upper` and α = 1 − `coverage`, where `coverage` is the probability of the
    intervals. The score is in units of y. `sample_weight`, (rows,), holds the weights of the rows.
    """
    y = as_targets(y_true)
    lower, upper = as_intervals(lower, upper, y.shape)
    miss = np.maximum(lower - y, 0) + np.maximum(y - upper, 0)
    return average(upper - lower + 2 / (1 - as_levels("coverage", coverage)) * miss, sample_weight)


def gaussian_interval(mean: ArrayLike, std: ArrayLike, coverage: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
    """Return the lower and the upper ends of the central intervals of normals, μ ± σ Φ⁻¹((1 + coverage)/2).

    Here μ = `mean`, σ = `std`, and Φ is the standard normal distribution function. `coverage` is the probability of the
    intervals, between 0 and 1. The ends have the shape of `mean`.
    """
    mean = as_numbers("mean", mean)
    return stats.norm.interval(as_levels("coverage", coverage), mean, as_positive("std", std, mean.shape))


def gaussian_kl(mean: ArrayLike, std: ArrayLike, other_mean: ArrayLike, other_std: ArrayLike) -> np.ndarray:
    """Return the Kullback–Leibler divergence KL(N(μ, σ²) ‖ N(μ', σ'²)) in nats, for each entry.

    `mean` is μ, `std` is σ, `other_mean` is μ' and `other_std` is σ'. They are broadcast. In a comparison with an exact
    distribution, pass the exact distribution as `mean` and `std`.
    """
    mean, other_mean = as_numbers("mean", mean), as_numbers("other_mean", other_mean)
    std, other_std = as_numbers("std", std), as_numbers("other_std", other_std)
    if np.any(std <= 0) or np.any(other_std <= 0):
        raise ValueError("std and other_std must be positive, since the divergence is infinite otherwise")
    ratio = (std / other_std) ** 2
    return 0.5 * (ratio + ((mean - other_mean) / other_std) ** 2 - 1 - np.log(ratio))


def gaussian_wasserstein(mean: ArrayLike, std: ArrayLike, other_mean: ArrayLike, other_std: ArrayLike) -> np.ndarray:
    """Return the 2-Wasserstein distance √((μ − μ')² + (σ − σ')²) of two normals, for each entry, in units of y.

    `mean` is μ, `std` is σ, `other_mean` is μ' and `other_std` is σ'. They are broadcast.
    """
    mean, other_mean = as_numbers("mean", mean), as_numbers("other_mean", other_mean)
    std, other_std = as_numbers("std", std), as_numbers("other_std", other_std)
    return np.hypot(mean - other_mean, std - other_std)


def pit(y_true: ArrayLike, mean: ArrayLike, std: ArrayLike) -> np.ndarray:
    """Return the probability integral transform (PIT) Φ((y − μ)/σ) of each target y, in the shape of `y_true`.

    Here μ = `mean`, σ = `std`, and Φ is the standard normal distribution function. The PIT is uniform on [0, 1] if the
    predictive normals are right.
    """
    y, mean, std = as_normals(y_true, mean, std)
    return stats.norm.cdf(y, mean, std)


def calibration_curve(
    y_true: ArrayLike, mean: ArrayLike, std: ArrayLike, levels: int | ArrayLike = 19, *, sample_weight: Weights = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the expected and the observed coverage of central intervals of normals.

    Note the order: scikit-learn's function of this name returns the observed fractions first.

    Parameters
    ----------
    y_true, mean, std : array
        Targets, and means and standard deviations of the normals.
    levels : int or (levels,) array
        Probabilities of the intervals, or a number of probabilities, which are then evenly spaced between 0 and 1.
    sample_weight : (rows,) array, optional
        Weights of the rows.

    Returns
    -------
    expected : (levels,) array
        The probabilities of the intervals.
    observed : (levels,) array
        Fraction of targets in the interval of each probability p, which have |2 PIT − 1| ≤ p (see `pit`).
    """
    if np.ndim(levels) == 0:
        n_levels = as_count("levels", levels)
        levels = np.arange(1, n_levels + 1) / (n_levels + 1)
    expected = as_levels("levels", levels)
    smallest_level = np.abs(2 * pit(y_true, mean, std) - 1)  # smallest probability of an interval with the target
    observed = np.array([average(smallest_level <= level, sample_weight) for level in expected])
    return expected, observed


def calibration_error(
    y_true: ArrayLike, mean: ArrayLike, std: ArrayLike, levels: int | ArrayLike = 19, *, sample_weight: Weights = None
) -> float:
    """Return the calibration error: the mean over levels of |observed − expected coverage|.

    `y_true`, `mean`, `std`, `levels` and `sample_weight` are as in `calibration_curve`.
    """
    expected, observed = calibration_curve(y_true, mean, std, levels, sample_weight=sample_weight)
    return float(np.abs(observed - expected).mean())
