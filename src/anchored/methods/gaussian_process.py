"""The Gaussian process of an infinitely wide network (Neal 1996; Williams 1996): the exact answer, without members.

With K the kernel of the model's network under its own prior and N = σ²/w the noise of the rows, the function has

    mean K_*X (K_XX + N)⁻¹ y,    covariance K_** − K_*X (K_XX + N)⁻¹ K_X*,

computed in float64 whatever JAX's flag. It is the posterior of the model itself only where that has no hidden layers.
Without data it is the prior: mean zero, covariance K.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from anchored import checks
from anchored.exact import evidence
from anchored.exact.kernels import Kernel, diagonal, gram, kernel_of, tangent_kernel
from anchored.exact.processes import ConditionedProcess
from anchored.exact.processes import GaussianProcess as Process
from anchored.inference.posterior import FitRecord, Posterior, key_numbers
from anchored.model.bayesian_model import BayesianModel
from anchored.model.likelihoods import Gaussian
from anchored.model.networks import MLP
from anchored.model.predictive import Predictive
from anchored.types import Array, Data, Key, OnProgress

KERNELS = ("nngp", "ntk")


@dataclass(frozen=True)
class GaussianProcess:
    """The exact posterior of the infinitely wide network, for the Gaussian likelihood; time grows as rows³."""

    kernel: str = (
        "nngp"  # the network itself, or "ntk", its tangent kernel: the process that training all layers moves in
    )
    n_draws: int = 100  # of functions, where members are wanted
    max_rows: int = 10_000  # more are refused, before memory or patience run out
    in_double: ClassVar = True  # rows and numbers are wanted in float64
    max_rows_to_choose: ClassVar = 1_000  # two numbers are settled well enough by a part of a large table

    def fit(
        self, key: Key, model: BayesianModel, data: Data, on_progress: OnProgress | None = None
    ) -> "ProcessPosterior":
        """Condition on the rows; the key is for `outputs` alone."""
        self.check(model)
        _check_size(len(data.weights), self.max_rows)
        weights = np.broadcast_to(data.weights, np.shape(data.targets))
        if np.any((weights > 0).any(1) != (weights > 0).all(1)):
            raise ValueError("weights: a row must count for all outputs or for none; fit such outputs one by one")
        record = FitRecord(self, key_numbers(key), model)
        posterior = ProcessPosterior(model, Data(*map(np.asarray, data)), record)
        if on_progress is not None:
            on_progress(1.0, -posterior.log_marginal_likelihood)
        return posterior

    def check(self, model: BayesianModel) -> None:
        """Raise a ValueError if a setting cannot be used, or not with this model."""
        checks.one_of("kernel", self.kernel, KERNELS)
        for name in ("n_draws", "max_rows"):
            checks.whole(name, getattr(self, name))
        self.kernel_of(model)
        if not isinstance(model.likelihood, Gaussian):
            kind = type(model.likelihood).__name__
            raise ValueError(
                f"likelihood: GaussianProcess is exact for Gaussian noise alone, got {kind}. HMC and "
                "VariationalInference take any likelihood."
            )

    def kernel_of(self, model: BayesianModel) -> Kernel:
        """The covariance between rows under the model's prior."""
        return tangent_kernel(kernel_of(model)) if self.kernel == "ntk" else kernel_of(model)

    def choose(
        self, network: MLP, layer_scales: tuple[float, ...], noise: np.ndarray | None, free_scale: bool, data: Data
    ) -> tuple[float, np.ndarray]:
        """The first layer's prior scale and the noise variances that maximise the log marginal likelihood.

        Args:
            network: Whose infinitely wide form is meant.
            layer_scales: Prior scales; the first is a placeholder where `free_scale`.
            noise: (outputs,) noise variances of standardised targets; None to choose one for all.
            free_scale: Whether the first scale is to be chosen.
            data: Standardised rows in float64.
        """
        kernel = evidence.LayeredKernel(layer_scales[0], layer_scales[1:], network.activation, self.kernel == "ntk")
        start = np.ones(data.targets.shape[1]) if noise is None else noise
        kernel, chosen = evidence.maximise_evidence(kernel, start, data, (free_scale, noise is None))
        return float(kernel.first_scale), chosen


@dataclass(frozen=True, eq=False)
class ProcessPosterior(Posterior):
    """The process given data, where other methods have members: `predict` is exact, `outputs` are draws."""

    model: BayesianModel
    data: Data  # all that it needs to be made again
    record: FitRecord

    @property
    def method(self) -> GaussianProcess:
        """How it was found."""
        assert isinstance(self.record.method, GaussianProcess)
        return self.record.method

    @property
    def n_members(self) -> int:
        return self.method.n_draws

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(np.float64)

    @property
    def log_marginal_likelihood(self) -> float:
        """log p(y), over all rows and outputs; a weight is a power of its row's likelihood. 0 without data."""
        if self._given is None:
            return 0.0
        noise = np.broadcast_to(np.asarray(self._prior.noise_variance, np.float64), self.data.targets.shape[1:])
        correction = evidence.log_weight_correction(noise, self.data.weights[self._counted])
        return self._given.log_marginal_likelihood + correction

    def predict(self, inputs: Array) -> Predictive:
        """Mean and variance in closed form: as of infinitely many members."""
        if self._given is None:
            variance = np.repeat(diagonal(self._prior.kernel, inputs)[:, None], self.data.targets.shape[1], axis=1)
            mean = np.zeros_like(variance)
        else:
            mean, std = self._given.predict(inputs, return_std=True)
            variance = std**2
        noise = np.broadcast_to(np.asarray(self._prior.noise_variance, np.float64), mean.shape)
        return Predictive(mean, variance, noise, np.inf)

    def covariance(self, inputs: Array) -> np.ndarray:
        _check_size(len(inputs), self.method.max_rows)
        if self._given is None:
            return np.repeat(gram(self._prior.kernel, inputs)[..., None], self.data.targets.shape[1], axis=-1)
        return self._given.predict(inputs, return_cov=True)[1]

    def outputs(self, inputs: Array) -> np.ndarray:
        """Functions drawn from the process, joint over these rows, (n_members, rows, outputs); the same every time."""
        _check_size(len(inputs), self.method.max_rows)
        seed = int.from_bytes(self.record.key.tobytes(), "little")
        if self._given is None:
            return self._prior.sample(inputs, self.n_members, self.data.targets.shape[1], seed)
        return self._given.sample(inputs, self.n_members, seed)

    def sample_outputs(self, inputs: Array, n_samples: int, rng: np.random.RandomState) -> np.ndarray:
        """Functions drawn anew, joint over these rows, (n_samples, rows, outputs)."""
        _check_size(len(inputs), self.method.max_rows)
        seed = rng.randint(np.iinfo(np.int32).max)
        if self._given is None:
            return self._prior.sample(inputs, n_samples, self.data.targets.shape[1], seed)
        return self._given.sample(inputs, n_samples, seed)

    @cached_property
    def _prior(self) -> Process:
        noise = self.model.likelihood.noise_variance  # type: ignore[attr-defined]  # checked by the method
        return Process(self.method.kernel_of(self.model), noise)

    @cached_property
    def _counted(self) -> np.ndarray:
        return np.any(self.data.weights > 0, axis=1)

    @cached_property
    def _given(self) -> ConditionedProcess | None:
        """The process given the rows that count; None if there are none."""
        if not self._counted.any():
            return None
        return self._prior.condition(*(part[self._counted] for part in self.data))


def _check_size(n_rows: int, most: int) -> None:
    if n_rows > most:
        raise ValueError(
            f"GaussianProcess: {n_rows:,} rows are more than max_rows={most:,}; their covariances take "
            f"{8 * n_rows**2 / 1e9:,.1f} GB. Take a part of the rows, raise max_rows, or use another method."
        )
