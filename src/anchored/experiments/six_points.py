"""The problem of figures 1 and 2: six points of a curve, one wide hidden layer, and the exact Gaussian process.

What every method is compared by stands here: the gap of means and the ratio of standard deviations to the process, and
the 2-Wasserstein distance between marginal normals, averaged over a grid.
"""

import time
import warnings
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from anchored import metrics
from anchored.exact.gaussian_process import GaussianProcess
from anchored.exact.kernels import kernel_of
from anchored.likelihoods import Gaussian
from anchored.model import BayesianModel
from anchored.networks import MLP
from anchored.priors import default_layer_scales, layered_prior
from anchored.types import Data

INPUTS = np.array([-1.5, -1.1, -0.6, 0.7, 1.0, 1.6])
TARGETS = np.array([-0.7, 0.1, 0.9, -0.4, -0.9, 0.3])


@dataclass(frozen=True)
class Problem:
    """Everything but the method."""

    activation: str = "relu"
    width: int = 1000
    noise_variance: float = 0.01
    prior_scale: float = 3.0
    limits: tuple[float, float] = (-2.0, 2.0)
    n_points: int = 161

    @property
    def grid(self) -> np.ndarray:
        """Where methods are compared, (points,)."""
        return np.linspace(*self.limits, self.n_points)

    @property
    def points(self) -> np.ndarray:
        """The same as rows, (points, 1)."""
        return self.grid[:, None]

    def data(self) -> Data:
        """The six points."""
        return Data(*(a.astype(np.float32)[:, None] for a in (INPUTS, TARGETS, np.ones(len(INPUTS)))))

    def model(self) -> BayesianModel:
        """One hidden layer under the papers' prior."""
        network = MLP((self.width,), 1, self.activation)
        params = network.init(jax.random.key(0), np.zeros((1, 1)))
        prior = layered_prior(network, params, default_layer_scales(network, self.prior_scale))
        return BayesianModel(network, prior, Gaussian(np.array([self.noise_variance], np.float32)))

    def exact(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of the process on the grid."""
        return exact_marginals(self)


def exact_marginals(problem: Any) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation at a problem's points of the process that its network is at infinite width."""
    process = GaussianProcess(kernel_of(problem.model()), problem.noise_variance).condition(*problem.data())
    mean, std = process.predict(problem.points, return_std=True)
    return mean[:, 0], std[:, 0]


def marginals(problem: Any, posterior: Any) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of a method's function at a problem's points."""
    predictive = posterior.predict(problem.points.astype(posterior.dtype))
    return predictive.mean[:, 0], np.sqrt(predictive.epistemic_variance[:, 0])


def compare(problem: Problem, mean: np.ndarray, std: np.ndarray) -> dict[str, float]:
    """How far marginals are from the process; between the points, at them, and everywhere."""
    exact_mean, exact_std = problem.exact()
    ratio, gap = std / exact_std, (mean - exact_mean) / exact_std
    distance = np.abs(problem.grid[:, None] - INPUTS).min(1)
    between = (distance > 0.3) & (np.abs(problem.grid) < np.abs(INPUTS).max())
    return {
        "mean_gap": float(np.sqrt(np.mean(gap**2))),
        "std_ratio": float(np.mean(ratio)),
        "std_ratio_between": float(np.mean(ratio[between])),
        "std_ratio_at_points": float(np.mean(ratio[distance < 0.05])),
        "wasserstein": float(np.mean(metrics.gaussian_wasserstein(exact_mean, exact_std, mean, std))),
    }


def timed_fit(problem: Any, method: Any, rehearsal: Any, seed: int = 0) -> tuple[Any, float, float]:
    """The posterior, its seconds, and those of a rehearsal before it, which compiles the same programs."""
    model, data = problem.model(), problem.data()
    started = time.perf_counter()
    if rehearsal is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a rehearsal is too short for anything else
            rehearsal.fit(jax.random.key(seed + 1), model, data)
    compiled = time.perf_counter()
    posterior = method.fit(jax.random.key(seed), model, data)
    whole = time.perf_counter() - compiled
    return posterior, posterior.diagnostics.get("seconds", whole), compiled - started  # a sampler tells them apart


def table(rows: dict[str, dict[str, float]]) -> str:
    """A line for each method."""
    columns = {
        "mean_gap": "mean gap",
        "std_ratio": "s.d. ratio",
        "std_ratio_between": "between",
        "std_ratio_at_points": "at points",
        "wasserstein": "Wasserstein",
        "seconds": "seconds",
        "compile_seconds": "first run",
    }
    lines = [f"{'':34}" + "".join(f"{title:>13}" for title in columns.values())]
    for name, row in rows.items():
        lines.append(f"{name:34}" + "".join(f"{row[c]:13.3f}" if c in row else f"{'':13}" for c in columns))
    return "\n".join(lines)


def present(results: dict[str, Any], path: Any) -> None:
    """Print the table and what became of the paper's claims."""
    print(table(results["rows"]))
    for claim, holds, number in results["claims"]:
        print(f"{'holds' if holds else 'DOES NOT HOLD':14} {claim} ({number})")
    print(f"picture {path}")
