"""Regression tasks: timed fits of methods to them, the marginals of these fits, and those of the exact process."""

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
    """Interface of a regression task.

    Implementations are frozen dataclasses: `exact_marginals` caches its result by task, so they must be hashable.
    """

    def __hash__(self) -> int: ...

    @property
    def noise_variance(self) -> float:
        """The variance of the noise on the targets."""

    @property
    def grid_rows(self) -> np.ndarray:
        """The inputs at which methods are compared, (points, features)."""

    def data(self) -> Data:
        """Return the rows to train on."""

    def model(self) -> BayesianModel:
        """Return the model to fit: network, prior and likelihood."""


class Fit(NamedTuple):
    """A fitted posterior and the time that fitting took."""

    posterior: Posterior
    seconds: float  # without compilation
    compile_seconds: float  # the remaining time: compilation and warm-up


@cache
def exact_marginals(task: Task) -> Marginals:
    """Return the posterior marginals, at the points of `task`, of its network's Gaussian process at infinite width."""
    process = GaussianProcess(kernel_of(task.model()), task.noise_variance).condition(*task.data())
    mean, std = process.predict(task.grid_rows, return_std=True)
    return mean[:, 0], std[:, 0]


def marginals(task: Task, posterior: Posterior) -> Marginals:
    """Return the marginals of a fitted `posterior` at the points of `task`."""
    predictive = posterior.predict_regression(task.grid_rows.astype(posterior.dtype))
    return predictive.mean[:, 0], np.sqrt(predictive.epistemic_variance[:, 0])


def standard_errors(
    task: Task, posterior: Posterior, statistics: Callable[[np.ndarray, np.ndarray], list[float]]
) -> np.ndarray:
    """Return the standard errors, over the members of `posterior`, of the numbers that `statistics(mean, std)` returns.

    `mean` and `std` are marginals at the points of `task`. A posterior without members, the exact process, has
    no Monte-Carlo error: its errors are 0.
    """
    if not isinstance(posterior, MemberPosterior):
        return np.zeros(len(statistics(*marginals(task, posterior))))
    return jackknife(posterior.outputs(task.grid_rows.astype(posterior.dtype))[..., 0], statistics)


def timed_fit(task: Task, method: Method, warm_up: Method | None, seed: int = 0) -> Fit:
    """Fit a method; return its time without compilation, and the remaining time (compilation and warm-up).

    Parameters
    ----------
    task
        The task to fit to.
    method
        The method.
    warm_up
        A shorter version of the method, which is fitted first to compile the same programs; None for a sampler, whose
        record has the time without compilation.
    seed
        Random seed of the fit.

    Returns
    -------
    Fit
        The posterior and the two times.
    """
    model, data = task.model(), task.data()
    started_at = time.perf_counter()
    if warm_up is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # it is too short to converge
            warm_up.fit(jax.random.key(seed + 1), model, data)
    warmed_up_at = time.perf_counter()
    posterior = method.fit(jax.random.key(seed), model, data)
    ended_at = time.perf_counter()
    seconds = getattr(posterior.record, "seconds", ended_at - warmed_up_at)
    return Fit(posterior, seconds, ended_at - started_at - seconds)
