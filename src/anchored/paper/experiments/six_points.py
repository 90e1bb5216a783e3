"""The problem of figures 1 and 2: six points of a curve, one wide hidden layer, and the exact Gaussian process.

What every method is compared by stands here: the gap of means and the ratio of standard deviations to the process, and
the 2-Wasserstein distance between marginal normals, averaged over a grid. Their standard errors are those of the
members or draws that a method ends with (grouped jackknife, so that draws of a chain may be correlated).
"""

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from anchored import metrics
from anchored.exact.kernels import kernel_of
from anchored.exact.processes import GaussianProcess
from anchored.inference.posterior import Posterior
from anchored.model.bayesian_model import BayesianModel
from anchored.model.layered_prior import default_layer_scales, layered_prior
from anchored.model.likelihoods import Gaussian
from anchored.model.networks import MLP
from anchored.paper.experiments.exhibit import Table
from anchored.types import Data

INPUTS = np.array([-1.5, -1.1, -0.6, 0.7, 1.0, 1.6])
TARGETS = np.array([-0.7, 0.1, 0.9, -0.4, -0.9, 0.3])
N_GROUPS = 20  # of members left out in turn, for standard errors


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


@cache
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


def standard_errors(problem: Problem, posterior: Any) -> dict[str, float]:
    """Of what `compare` gives; 0 of the exact process."""
    names = list(compare(problem, *problem.exact()))
    errors = jackknife(problem, posterior, lambda mean, std: list(compare(problem, mean, std).values()))
    return dict(zip(names, np.broadcast_to(errors, len(names)).tolist(), strict=True))


def jackknife(problem: Any, posterior: Any, numbers: Callable[[np.ndarray, np.ndarray], Any]) -> np.ndarray:
    """Standard errors of numbers made from marginals, by leaving out each of N_GROUPS consecutive parts of the members.

    Members of an ensemble are independent; draws of a chain are nearly so from part to part.
    """
    if not isinstance(posterior, Posterior):
        return np.zeros(())
    outputs = posterior.outputs(problem.points.astype(posterior.dtype))[..., 0]
    n_groups = min(N_GROUPS, len(outputs))
    group = np.arange(len(outputs)) * n_groups // len(outputs)
    left = [outputs[group != i] for i in range(n_groups)]
    without = [numbers(some.mean(0), some.std(0, ddof=1)) for some in left]
    return np.sqrt((n_groups - 1) * np.var(without, axis=0))


def timed_fit(problem: Any, method: Any, rehearsal: Any, seed: int = 0) -> tuple[Any, float, float]:
    """The posterior, its seconds, and those that compilation took.

    A rehearsal, if any, compiles the same programs before; a sampler needs none, for it tells the two apart itself.
    """
    model, data = problem.model(), problem.data()
    started = time.perf_counter()
    if rehearsal is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a rehearsal is too short for anything else
            rehearsal.fit(jax.random.key(seed + 1), model, data)
    rehearsed = time.perf_counter()
    posterior = method.fit(jax.random.key(seed), model, data)
    ended = time.perf_counter()
    seconds = getattr(posterior.record, "seconds", ended - rehearsed)
    return posterior, seconds, ended - started - seconds


def table(rows: dict[str, dict[str, Any]]) -> Table:
    """A line for each method: what `compare` found, with the standard errors under the same names in `errors`."""
    columns = {
        "mean_gap": "mean gap, s.d.",
        "std_ratio": "s.d. ratio",
        "std_ratio_between": "between the points",
        "std_ratio_at_points": "at the points",
        "wasserstein": "2-Wasserstein",
    }
    timed = {"seconds": "seconds", "compile_seconds": "compilation"}
    lines = [
        (
            name,
            *(f"{row[column]:.3f} ± {row['errors'][column]:.3f}" for column in columns),
            *(f"{row[column]:.2f}" for column in timed),
        )
        for name, row in rows.items()
    ]
    caption = "Distances to the exact process on the grid; seconds without compilation, and those of it"
    return Table(("method", *columns.values(), *timed.values()), tuple(lines), caption, tuple(timed.values()))


def measured(row: dict[str, Any], name: str, digits: int = 2) -> str:
    """A number of `compare` with its standard error."""
    return f"{row[name]:.{digits}f} ± {row['errors'][name]:.{digits}f}"
