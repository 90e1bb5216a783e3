"""Methods on a small regression task: fitted, timed, and their marginals beside those of the exact Gaussian process."""

import time
import warnings
from collections.abc import Callable
from functools import cache
from typing import NamedTuple, Protocol

import jax
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from anchored.certification.distances import jackknife
from anchored.exact.kernels import kernel_of
from anchored.exact.processes import GaussianProcess
from anchored.inference.posterior import MemberPosterior, Method, Posterior
from anchored.model.bayesian_model import BayesianModel
from anchored.types import Data

Marginals = tuple[np.ndarray, np.ndarray]  # means and standard deviations of the function, (points,) each


class Task(Protocol):
    """Everything but the method. A frozen dataclass, so that the exact answer is computed once."""

    def __hash__(self) -> int: ...

    @property
    def noise_variance(self) -> float:
        """The variance of the noise on the targets."""

    @property
    def points(self) -> np.ndarray:
        """Where methods are compared, (points, features)."""

    def data(self) -> Data:
        """The rows to train on."""

    def model(self) -> BayesianModel:
        """Network, prior and likelihood."""


class Fit(NamedTuple):
    """A posterior, the seconds it took, and those that compilation took."""

    posterior: Posterior
    seconds: float
    compile_seconds: float


@cache
def exact_marginals(task: Task) -> Marginals:
    """Marginals at the task's points of the process that its network is at infinite width."""
    process = GaussianProcess(kernel_of(task.model()), task.noise_variance).condition(*task.data())
    mean, std = process.predict(task.points, return_std=True)
    return mean[:, 0], std[:, 0]


def marginals(task: Task, posterior: Posterior) -> Marginals:
    """Marginals of a fitted method's function at the task's points."""
    predictive = posterior.predict_regression(task.points.astype(posterior.dtype))
    return predictive.mean[:, 0], np.sqrt(predictive.epistemic_variance[:, 0])


def standard_errors(
    task: Task, posterior: Posterior, statistics: Callable[[np.ndarray, np.ndarray], list[float]]
) -> np.ndarray:
    """Standard errors over the members of what `statistics(mean, std)` gives; 0 of the exact process."""
    if not isinstance(posterior, MemberPosterior):
        return np.zeros(len(statistics(*marginals(task, posterior))))
    return jackknife(posterior.outputs(task.points.astype(posterior.dtype))[..., 0], statistics)


def timed_fit(task: Task, method: Method, rehearsal: Method | None, seed: int = 0) -> Fit:
    """The method fitted to the task.

    `rehearsal`, if any, is fitted before and compiles the same programs; a sampler needs none, for it tells the two
    times apart itself.
    """
    model, data = task.model(), task.data()
    started = time.perf_counter()
    if rehearsal is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a rehearsal is too short for anything else
            rehearsal.fit(jax.random.key(seed + 1), model, data)
    rehearsed = time.perf_counter()
    posterior = method.fit(jax.random.key(seed), model, data)
    ended = time.perf_counter()
    seconds = getattr(posterior.record, "seconds", ended - rehearsed)
    return Fit(posterior, seconds, ended - started - seconds)
