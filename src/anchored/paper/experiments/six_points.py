"""The task of figures 1 and 2: six points of a curve, one wide hidden layer, and the exact Gaussian process.

Every method is compared by its distances to the process, averaged over a grid, with their standard errors over the
members or draws that it ends with.
"""

from dataclasses import dataclass
from typing import TypedDict

import jax
import numpy as np

from anchored.certification.distances import distances
from anchored.inference.posterior import Method
from anchored.model.bayesian_model import BayesianModel
from anchored.model.layered_prior import default_layer_scales, layered_prior
from anchored.model.likelihoods import Gaussian
from anchored.model.networks import MLP
from anchored.paper.experiments.regression_tasks import (
    Fit,
    Marginals,
    exact_marginals,
    marginals,
    standard_errors,
    timed_fit,
)
from anchored.paper.findings import Table
from anchored.types import Data

INPUTS = np.array([-1.5, -1.1, -0.6, 0.7, 1.0, 1.6])
TARGETS = np.array([-0.7, 0.1, 0.9, -0.4, -0.9, 0.3])
STATISTICS = ("mean_gap", "std_ratio", "std_ratio_between", "std_ratio_at_points", "wasserstein")


class Row(TypedDict):
    """A method's distances to the process (`compare`), their standard errors, and what it took."""

    distances: dict[str, float]
    errors: dict[str, float]
    seconds: float
    compile_seconds: float


@dataclass(frozen=True)
class SixPoints:
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


def compare(task: SixPoints, mean: np.ndarray, std: np.ndarray) -> dict[str, float]:
    """STATISTICS of how far marginals, (points,) each, are from the process."""
    exact_mean, exact_std = exact_marginals(task)
    distance = np.abs(task.grid[:, None] - INPUTS).min(1)
    between = (distance > 0.3) & (np.abs(task.grid) < np.abs(INPUTS).max())
    parts = {"std_ratio_between": between, "std_ratio_at_points": distance < 0.05}
    found = distances(exact_mean, exact_std, mean, std, task.noise_variance)
    found |= {name: float(np.mean(std[part] / exact_std[part])) for name, part in parts.items()}
    return {name: found[name] for name in STATISTICS}


def fit_and_compare(
    task: SixPoints, reference: SixPoints, method: Method, rehearsal: Method | None, seed: int
) -> tuple[Fit, Marginals, Row]:
    """Fit a method to `task`, and compare it with the process of `reference`, whose width may be another."""
    fit = timed_fit(task, method, rehearsal, seed)
    band = marginals(reference, fit.posterior)
    errors = standard_errors(reference, fit.posterior, lambda mean, std: list(compare(reference, mean, std).values()))
    return (
        fit,
        band,
        {
            "distances": compare(reference, *band),
            "errors": dict(zip(STATISTICS, errors.tolist(), strict=True)),
            "seconds": fit.seconds,
            "compile_seconds": fit.compile_seconds,
        },
    )


def table(rows: dict[str, Row]) -> Table:
    """A line for each method."""
    columns = {
        "mean_gap": "mean gap, s.d.",
        "std_ratio": "s.d. ratio",
        "std_ratio_between": "between the points",
        "std_ratio_at_points": "at the points",
        "wasserstein": "2-Wasserstein",
    }
    timed = ("seconds", "compilation")
    lines = [
        (
            name,
            *(measured(row, column, 3) for column in columns),
            f"{row['seconds']:.2f}",
            f"{row['compile_seconds']:.2f}",
        )
        for name, row in rows.items()
    ]
    caption = "Distances to the exact process on the grid; seconds without compilation, and those of it"
    return Table(("method", *columns.values(), *timed), tuple(lines), caption, timed)


def measured(row: Row, name: str, digits: int = 2) -> str:
    """A distance of a row with its standard error, as text."""
    return f"{row['distances'][name]:.{digits}f} ± {row['errors'][name]:.{digits}f}"
