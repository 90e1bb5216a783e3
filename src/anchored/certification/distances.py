"""Distances between the marginals of a fit and of the exact posterior, for certificates and experiments."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from anchored import metrics

N_GROUPS = 20  # number of groups of members, which the jackknife leaves out in turn


class Range(NamedTuple):
    """Mean and central 95 % interval of a distance, over ensembles of exact draws from the posterior."""

    mean: float
    low: float  # 2.5 % quantile
    high: float  # 97.5 % quantile


class Optimisation(NamedTuple):
    """How members change if a second-order solver continues their training, which shows whether they had converged.

    For a member's loss with gradient g and Gauss–Newton Hessian H at the trained parameters, √(gᵀ H⁻¹ g) is the length
    of the step to the minimum, in posterior standard deviations (s.d.).
    """

    gradient: float  # √(gᵀ H⁻¹ g), mean over members
    mean_shift: float  # change of the ensemble's mean, root mean square over points, in posterior s.d.
    std_shift: float  # change of the ensemble's s.d., root mean square over points, in posterior s.d.
    n_members: int  # number of members that were trained further


def distances(
    exact_mean: np.ndarray,
    exact_std: np.ndarray,
    mean: np.ndarray,
    std: np.ndarray,
    noise_variance: ArrayLike,
    fit_noise_variance: ArrayLike | None = None,
    y_scale: ArrayLike = 1.0,
) -> dict[str, float]:
    """Return distances between a fit's marginals N(μ, σ²) and the exact marginals N(m, s²) at the same points.

    Parameters
    ----------
    exact_mean, exact_std : (points,) or (points, outputs) array
        m and s, without observation noise.
    mean, std : array of the same shape
        μ and σ, without observation noise.
    noise_variance : float or array
        Noise variance of the exact model. Only `kl` depends on it.
    fit_noise_variance : float or array, optional
        Noise variance of the fit, if it differs from that of the exact model. Only `kl` depends on it.
    y_scale : float or array
        Factor that converts the means and standard deviations to the units of `wasserstein`.

    Returns
    -------
    dict of str to float
        Distances by name:

        - `mean_gap`: root mean square over points of (μ − m)/s
        - `std_ratio`, `std_ratio_low`, `std_ratio_high`: mean, minimum and maximum over points of σ/s; 1 means equal
        - `kl`: mean over points of KL(exact ‖ fit) between the distributions of a noisy observation, in nats
        - `wasserstein`: mean over points of the 2-Wasserstein distance between the marginals without noise, multiplied
          by `y_scale`
    """
    is_certain = exact_std <= 1e-7 * exact_std.max()  # the exact s.d. is 0, for example at x = 0 in a linear model
    divisor = np.where(is_certain, 1.0, exact_std)
    ratio, gap = np.where(is_certain, 1.0, std / divisor), np.where(is_certain, 0.0, (mean - exact_mean) / divisor)
    noise = np.asarray(noise_variance)
    observation_std = np.sqrt(std**2 + (noise if fit_noise_variance is None else np.asarray(fit_noise_variance)))
    exact_observation_std = np.sqrt(exact_std**2 + noise)
    wasserstein = metrics.gaussian_wasserstein(exact_mean, exact_std, mean, std) * np.asarray(y_scale)
    return {
        "mean_gap": float(np.sqrt(np.mean(gap**2))),
        "std_ratio": float(np.mean(ratio)),
        "std_ratio_low": float(np.min(ratio)),
        "std_ratio_high": float(np.max(ratio)),
        "kl": float(np.mean(metrics.gaussian_kl(exact_mean, exact_observation_std, mean, observation_std))),
        "wasserstein": float(np.mean(wasserstein)),
    }


def jackknife(outputs: np.ndarray, statistics: Callable[[np.ndarray, np.ndarray], list[float]]) -> np.ndarray:
    """Return jackknife standard errors of statistics of the ensemble's marginals.

    Groups of consecutive members are left out in turn. Groups are independent for ensembles, and nearly independent for
    the draws of a Markov chain.

    Parameters
    ----------
    outputs : (members, points) array
        Outputs of the members.
    statistics : callable
        `statistics(mean, std)` returns a list of numbers, computed from the mean and s.d. over members, (points,) each.

    Returns
    -------
    (numbers,) array
        The standard error of each number in the list.
    """
    n_groups = min(N_GROUPS, len(outputs))
    group = np.arange(len(outputs)) * n_groups // len(outputs)
    remaining = [outputs[group != i] for i in range(n_groups)]
    leave_one_out = [statistics(kept.mean(0), kept.std(0, ddof=1)) for kept in remaining]
    return np.sqrt((n_groups - 1) * np.var(leave_one_out, axis=0))
