"""The task of figures 1 and 2: six points of a curve, one wide hidden layer, and the exact Gaussian process.

Methods are compared by their distances to the process, averaged over a grid. Standard errors are over members or draws.
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
    """The distances of a method to the process, and its time."""

    distances: dict[str, float]  # see `compare`
    errors: dict[str, float]  # standard errors of the distances
    seconds: float  # without compilation
    compile_seconds: float  # compilation and warm-up


@dataclass(frozen=True)
class SixPoints:
    """The task: data, model, and the grid of inputs at which methods are compared."""

    activation: str = "relu"  # name of the activation
    width: int = 1000  # number of hidden units
    noise_variance: float = 0.01  # noise variance of the targets
    prior_scale: float = 3.0  # prior scale of the first layer
    limits: tuple[float, float] = (-2.0, 2.0)  # first and last point of the grid
    n_points: int = 161  # number of points of the grid

    @property
    def grid(self) -> np.ndarray:
        """The inputs at which methods are compared, (points,)."""
        return np.linspace(*self.limits, self.n_points)

    @property
    def grid_rows(self) -> np.ndarray:
        """The grid as rows, (points, 1)."""
        return self.grid[:, None]

    def data(self) -> Data:
        """Return the six points as training data."""
        return Data(*(a.astype(np.float32)[:, None] for a in (INPUTS, TARGETS, np.ones(len(INPUTS)))))

    def model(self) -> BayesianModel:
        """Return the network with one hidden layer, the prior of `layered_prior` and a Gaussian likelihood."""
        network = MLP((self.width,), 1, self.activation)
        params = network.init(jax.random.key(0), np.zeros((1, 1)))
        prior = layered_prior(network, params, default_layer_scales(network, self.prior_scale))
        return BayesianModel(network, prior, Gaussian(np.array([self.noise_variance], np.float32)))


def compare(task: SixPoints, mean: np.ndarray, std: np.ndarray) -> dict[str, float]:
    """Return the STATISTICS that compare marginals `mean` and `std`, (points,), with the exact process of `task`.

    The first two and the last are as in `certification.distances`. The ratio of standard deviations is also averaged
    over inputs between the points (farther than 0.3 from all six), and at the points (within 0.05).
    """
    exact_mean, exact_std = exact_marginals(task)
    distance = np.abs(task.grid[:, None] - INPUTS).min(1)  # from the nearest of the six points
    between = (distance > 0.3) & (np.abs(task.grid) < np.abs(INPUTS).max())
    parts = {"std_ratio_between": between, "std_ratio_at_points": distance < 0.05}
    statistics = distances(exact_mean, exact_std, mean, std, task.noise_variance)
    statistics |= {name: float(np.mean(std[part] / exact_std[part])) for name, part in parts.items()}
    return {name: statistics[name] for name in STATISTICS}


def fit_and_compare(
    task: SixPoints, reference: SixPoints, method: Method, warm_up: Method | None, seed: int
) -> tuple[Fit, Marginals, Row]:
    """Fit a method to `task`, and compare it with the process of `reference`.

    Parameters
    ----------
    task
        The task that the method is fitted to.
    reference
        The task whose process and grid are used; it may differ from `task` in width.
    method, warm_up, seed
        See `timed_fit`.

    Returns
    -------
    tuple
        The fit, its marginals on the grid of `reference`, and its row of the table.
    """
    fit = timed_fit(task, method, warm_up, seed)
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
    """Return a table with one line for each method in `rows`."""
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
    caption = (
        "Distances to the exact process on the grid; seconds without compilation, and seconds of compilation and "
        "warm-up"
    )
    return Table(("method", *columns.values(), *timed), tuple(lines), caption, timed)


def value_and_error(row: Row, name: str) -> tuple[float, float]:
    """Return the distance called `name`, one of STATISTICS, of a row, and its standard error."""
    return row["distances"][name], row["errors"][name]


def measured(row: Row, name: str, digits: int = 2) -> str:
    """Return the distance called `name` of a row and its standard error as text, with `digits` decimals."""
    value, error = value_and_error(row, name)
    return f"{value:.{digits}f} ± {error:.{digits}f}"
