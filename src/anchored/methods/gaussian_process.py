"""The Gaussian process of an infinitely wide network (Neal 1996; Williams 1996): the exact answer, without members.

With K the kernel of the model's network under its own prior and N = σ²/w the noise of the rows, the function has

    mean K_*X (K_XX + N)⁻¹ y,    covariance K_** − K_*X (K_XX + N)⁻¹ K_X*,

computed in float64 whatever JAX's flag. It is the posterior of the model itself only where that has no hidden layers.
Without data it is the prior: mean zero, covariance K.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import numpy as np

from anchored import checks
from anchored.exact import gaussian_process as exact
from anchored.exact.kernels import diagonal, gram, kernel_of
from anchored.inference.training import OnProgress
from anchored.model.bayesian_model import BayesianModel
from anchored.model.likelihoods import Gaussian
from anchored.model.predictive import Predictive
from anchored.types import Data, Key


@dataclass(frozen=True)
class GaussianProcess:
    """The exact posterior of the infinitely wide network, for the Gaussian likelihood; time grows as rows³."""

    n_draws: int = 100  # of functions, where members are asked for
    max_rows: int = 10_000  # more are refused, before memory or patience run out

    def fit(
        self, key: Key, model: BayesianModel, data: Data, on_progress: OnProgress | None = None
    ) -> "ProcessPosterior":
        """Condition on the rows; the key is for `outputs` alone."""
        self.check(model)
        _check_size(len(data.weights), self.max_rows)
        weights = np.broadcast_to(data.weights, np.shape(data.targets))
        if np.any((weights > 0).any(1) != (weights > 0).all(1)):
            raise ValueError("weights: a row must count for all outputs or for none; fit such outputs one by one")
        notes = {"method": self, "key": np.asarray(jax.random.key_data(key)), "model": model}
        posterior = ProcessPosterior(model, Data(*map(np.asarray, data)), notes)
        notes["log_marginal_likelihood"] = posterior.log_marginal_likelihood
        if on_progress is not None:
            on_progress(1.0, -posterior.log_marginal_likelihood)
        return posterior

    def check(self, model: BayesianModel) -> None:
        """Raise where a setting cannot be used, or not with this model."""
        for name in ("n_draws", "max_rows"):
            checks.whole(name, getattr(self, name))
        kernel_of(model)
        if not isinstance(model.likelihood, Gaussian):
            kind = type(model.likelihood).__name__
            raise ValueError(
                f"likelihood: GaussianProcess is exact for Gaussian noise alone, got {kind}. HMC and "
                "VariationalInference take any likelihood."
            )


@dataclass(frozen=True, eq=False)
class ProcessPosterior:
    """The process given data, where other methods have members: `predict` is exact, `outputs` are draws."""

    model: BayesianModel
    data: Data  # all that it needs to be made again
    diagnostics: dict[str, Any] = field(default_factory=dict)

    @property
    def n_members(self) -> int:
        """How many functions `outputs` draws."""
        return self.diagnostics["method"].n_draws

    @property
    def n_effective(self) -> float:
        """Draws are independent."""
        return self.n_members

    @property
    def dtype(self) -> np.dtype:
        """The precision inputs are given in."""
        return np.dtype(np.float64)

    @property
    def log_marginal_likelihood(self) -> float:
        """log p(y) with the rows' noise variances σ²/w, summed over outputs; 0 without data."""
        return 0.0 if self._given is None else self._given.log_marginal_likelihood

    def predict(self, inputs: np.ndarray) -> Predictive:
        """Mean and variance in closed form: as of infinitely many members."""
        if self._given is None:
            variance = np.repeat(diagonal(self._prior.kernel, inputs)[:, None], self.data.targets.shape[1], axis=1)
            mean = np.zeros_like(variance)
        else:
            mean, std = self._given.predict(inputs, return_std=True)
            variance = std**2
        noise = np.broadcast_to(np.asarray(self._prior.noise_variance, np.float64), mean.shape)
        return Predictive(mean, variance, noise, np.inf)

    def covariance(self, inputs: np.ndarray) -> np.ndarray:
        """Between rows, of the function, (rows, rows, outputs)."""
        _check_size(len(inputs), self.diagnostics["method"].max_rows)
        if self._given is None:
            return np.repeat(gram(self._prior.kernel, inputs)[..., None], self.data.targets.shape[1], axis=-1)
        return self._given.predict(inputs, return_cov=True)[1]

    def outputs(self, inputs: np.ndarray) -> np.ndarray:
        """Functions drawn from the process, joint over these rows, (n_members, rows, outputs); the same every time."""
        _check_size(len(inputs), self.diagnostics["method"].max_rows)
        seed = int.from_bytes(self.diagnostics["key"].tobytes(), "little")
        if self._given is None:
            return self._prior.sample(inputs, self.n_members, self.data.targets.shape[1], seed)
        return self._given.sample(inputs, self.n_members, seed)

    @cached_property
    def _prior(self) -> exact.GaussianProcess:
        return exact.GaussianProcess(kernel_of(self.model), self.model.likelihood.noise_variance)  # type: ignore[attr-defined]

    @cached_property
    def _given(self) -> exact.ConditionedProcess | None:
        """The process given the rows that count; None if there are none."""
        counted = np.any(self.data.weights > 0, axis=1)
        return self._prior.condition(*(part[counted] for part in self.data)) if counted.any() else None


def _check_size(n_rows: int, most: int) -> None:
    if n_rows > most:
        raise ValueError(
            f"GaussianProcess: {n_rows:,} rows are more than max_rows={most:,}; their covariances take "
            f"{8 * n_rows**2 / 1e9:,.1f} GB. Take a part of the rows, raise max_rows, or use another method."
        )
