"""How far a fit's marginals are from the exact posterior's: the one definition, for certificates and experiments."""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from anchored import metrics

N_GROUPS = 20  # of members left out in turn, for standard errors


def distances(
    exact_mean: np.ndarray,
    exact_std: np.ndarray,
    mean: np.ndarray,
    std: np.ndarray,
    noise_variance: ArrayLike,
    own_noise_variance: ArrayLike | None = None,
    y_scale: ArrayLike = 1.0,
) -> dict[str, float]:
    """From the exact marginals N(m, s²) to a fit's N(μ, σ²) at the same points, all (points,) or (points, outputs).

    `noise_variance` is the exact model's, `own_noise_variance` the fit's where that differs (both enter `kl` alone),
    and `y_scale` the unit that `wasserstein` is given in.

    `mean_gap` is the root mean square of (μ − m)/s; `std_ratio`, `std_ratio_low` and `std_ratio_high` are the mean and
    the range of σ/s; `kl` is the mean KL(exact ‖ fit) of an observation, noise included, in nats; `wasserstein` the
    mean 2-Wasserstein distance of the functions.
    """
    known = exact_std <= 1e-7 * exact_std.max()  # where the posterior is a point, as a linear model's at 0
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
    """Standard errors over the members of statistics of their marginals.

    `outputs` are (members, points); `statistics(mean, std)` gives numbers from marginals, (points,) each. Each of
    N_GROUPS runs of consecutive members is left out in turn: members of an ensemble are independent, and draws of a
    chain are nearly so from run to run. What comes back are as many errors as there are numbers.
    """
    n_groups = min(N_GROUPS, len(outputs))
    group = np.arange(len(outputs)) * n_groups // len(outputs)
    left = [outputs[group != i] for i in range(n_groups)]
    without = [statistics(some.mean(0), some.std(0, ddof=1)) for some in left]
    return np.sqrt((n_groups - 1) * np.var(without, axis=0))
