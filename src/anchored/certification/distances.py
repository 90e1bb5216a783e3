"""Distances between the marginals of a fit and of the exact posterior, for certificates and experiments."""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from anchored import metrics

N_GROUPS = 20  # groups of members for the jackknife


def distances(
    exact_mean: np.ndarray,
    exact_std: np.ndarray,
    mean: np.ndarray,
    std: np.ndarray,
    noise_variance: ArrayLike,
    own_noise_variance: ArrayLike | None = None,
    y_scale: ArrayLike = 1.0,
) -> dict[str, float]:
    """Return distances of a fit's marginals N(μ, σ²) from the exact marginals N(m, s²) at the same points.

    Parameters
    ----------
    exact_mean, exact_std : (points,) or (points, outputs) array
        m and s.
    mean, std : array of the same shape
        μ and σ.
    noise_variance : float or array
        Noise variance of the exact model; it matters for `kl` only.
    own_noise_variance : float or array, optional
        Noise variance of the fit, if it differs; it matters for `kl` only.
    y_scale : float or array
        Factor from the units of the means to those of `wasserstein`.

    Returns
    -------
    dict of str to float
        `mean_gap`, the root mean square of (μ − m)/s; `std_ratio`, `std_ratio_low` and `std_ratio_high`, the mean,
        minimum and maximum of σ/s; `kl`, the mean KL(exact ‖ fit) of an observation with its noise, in nats;
        `wasserstein`, the mean 2-Wasserstein distance of the functions.
    """
    known = exact_std <= 1e-7 * exact_std.max()  # where the output is certain, such as that of a linear model at 0
    divisor = np.where(known, 1.0, exact_std)
    ratio, gap = np.where(known, 1.0, std / divisor), np.where(known, 0.0, (mean - exact_mean) / divisor)
    noise = np.asarray(noise_variance)
    observed = np.sqrt(std**2 + (noise if own_noise_variance is None else np.asarray(own_noise_variance)))
    exact_observed = np.sqrt(exact_std**2 + noise)
    apart = metrics.gaussian_wasserstein(exact_mean, exact_std, mean, std) * np.asarray(y_scale)
    return {
        "mean_gap": float(np.sqrt(np.mean(gap**2))),
        "std_ratio": float(np.mean(ratio)),
        "std_ratio_low": float(np.min(ratio)),
        "std_ratio_high": float(np.max(ratio)),
        "kl": float(np.mean(metrics.gaussian_kl(exact_mean, exact_observed, mean, observed))),
        "wasserstein": float(np.mean(apart)),
    }


def jackknife(outputs: np.ndarray, statistics: Callable[[np.ndarray, np.ndarray], list[float]]) -> np.ndarray:
    """Return jackknife standard errors of statistics of the members' marginals.

    Groups of consecutive members are left out in turn. Groups are independent for ensembles, and nearly so for the
    draws of a Markov chain.

    Parameters
    ----------
    outputs : (members, points) array
        Outputs of the members.
    statistics : callable
        `statistics(mean, std)` returns a list of numbers computed from marginals (points,).

    Returns
    -------
    array
        The standard error of each of the numbers.
    """
    n_groups = min(N_GROUPS, len(outputs))
    group = np.arange(len(outputs)) * n_groups // len(outputs)
    remaining = [outputs[group != i] for i in range(n_groups)]
    without = [statistics(some.mean(0), some.std(0, ddof=1)) for some in remaining]
    return np.sqrt((n_groups - 1) * np.var(without, axis=0))
