"""The Gaussian process of an infinitely wide network (Neal 1996; Williams 1996): an exact posterior, without members.

Let K be the kernel, X the training inputs, * the inputs to predict at, y the targets, and N the diagonal matrix of the
rows' noise variances σ²/w, with weights w. The posterior of the function has

    mean K_*X (K_XX + N)⁻¹ y,    covariance K_** − K_*X (K_XX + N)⁻¹ K_X*,

computed in float64, whatever JAX's default is. The finite network has the same posterior only if it has no hidden
layers. Without data, the posterior is the prior: mean zero, covariance K.
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
from anchored.inference.posterior import FitRecord, Posterior, key_data
from anchored.model.bayesian_model import BayesianModel
from anchored.model.likelihoods import Gaussian
from anchored.model.networks import MLP
from anchored.model.predictive import Predictive
from anchored.types import Array, Data, Key, OnProgress

KERNELS = ("nngp", "ntk")


@dataclass(frozen=True)
class GaussianProcess:
    """The exact posterior of the Gaussian process that is the limit of an infinitely wide network.

    Attributes
    ----------
    kernel : {"nngp", "ntk"}
        "nngp" is the covariance of the network's outputs under the prior, so that the posterior is that of the
        infinitely wide network. "ntk" is the network's tangent kernel.
    n_draws : int
        Number of functions that `outputs` draws, in place of members.
    max_rows : int
        Largest number of rows in fits, covariances and draws, since memory grows as rows² and time as rows³.
    """

    kernel: str = "nngp"
    n_draws: int = 100
    max_rows: int = 10_000
    needs_float64: ClassVar = True  # estimators must pass data in float64
    max_rows_to_choose: ClassVar = 1_000  # estimators pass at most this many rows to `choose`

    def fit(
        self, key: Key, model: BayesianModel, data: Data, on_progress: OnProgress | None = None
    ) -> "ProcessPosterior":
        """Return the posterior of `model` given `data`.

        The arguments are as in `Method.fit`. `key` is the random key of the functions that `outputs` draws. The loss
        reported to `on_progress` is the negative log marginal likelihood.
        """
        self.check(model)
        _check_size(len(data.weights), self.max_rows)
        weights = np.broadcast_to(data.weights, np.shape(data.targets))
        if np.any((weights > 0).any(1) != (weights > 0).all(1)):
            raise ValueError(
                "weights: a row must have weight zero for all outputs or for none; fit each output separately if "
                "they have different rows"
            )
        record = FitRecord(self, key_data(key), model)
        posterior = ProcessPosterior(model, Data(*map(np.asarray, data)), record)
        if on_progress is not None:
            on_progress(1.0, -posterior.log_marginal_likelihood)
        return posterior

    def check(self, model: BayesianModel) -> None:
        """Raise a ValueError if a setting is invalid or cannot be used with `model`."""
        checks.one_of("kernel", self.kernel, KERNELS)
        for name in ("n_draws", "max_rows"):
            checks.whole(name, getattr(self, name))
        self.kernel_of(model)  # raises if there is no such kernel
        if not isinstance(model.likelihood, Gaussian):
            name = type(model.likelihood).__name__
            raise ValueError(
                f"likelihood: GaussianProcess needs the Gaussian likelihood, got {name}. HMC and VariationalInference "
                "take any likelihood."
            )

    def kernel_of(self, model: BayesianModel) -> Kernel:
        """Return the kernel of the network of `model` in the limit of infinite width, which the setting `kernel` names.

        Raises a ValueError if there is no such kernel.
        """
        return tangent_kernel(kernel_of(model)) if self.kernel == "ntk" else kernel_of(model)

    def choose(
        self, network: MLP, layer_scales: tuple[float, ...], noise: np.ndarray | None, free_scale: bool, data: Data
    ) -> tuple[float, np.ndarray]:
        """Choose the first layer's prior scale and the noise variance by maximising the log marginal likelihood.

        Parameters
        ----------
        network : MLP
            The network.
        layer_scales : tuple of float
            Prior scales of its layers; the first is ignored if `free_scale` is true.
        noise : (outputs,) array or None
            Noise variances of standardised targets; None to choose one number for all outputs.
        free_scale : bool
            Whether the prior scale of the first layer is chosen.
        data : Data
            Standardised rows in float64.

        Returns
        -------
        scale : float
            Prior scale of the first layer.
        noise : (outputs,) array
            Noise variances.
        """
        kernel = evidence.LayeredKernel(layer_scales[0], layer_scales[1:], network.activation, self.kernel == "ntk")
        # If the noise is not given, all outputs have the same noise variance: ones times a factor that is chosen
        relative_noise = np.ones(data.targets.shape[1]) if noise is None else noise
        kernel, chosen_noise = evidence.maximise_evidence(kernel, relative_noise, data, (free_scale, noise is None))
        return float(kernel.first_scale), chosen_noise


@dataclass(frozen=True, eq=False)
class ProcessPosterior(Posterior):
    """The posterior of a Gaussian process: `predict` is exact, and `outputs` draws functions."""

    model: BayesianModel  # its network defines the kernel, and its likelihood the noise variance
    data: Data  # training rows
    record: FitRecord  # how the posterior was found, with the method and its settings

    @property
    def method(self) -> GaussianProcess:
        """The method and its settings."""
        assert isinstance(self.record.method, GaussianProcess)
        return self.record.method

    @property
    def n_members(self) -> int:
        """Number of functions that `outputs` draws."""
        return self.method.n_draws

    @property
    def dtype(self) -> np.dtype:
        """Data type that inputs must have: float64."""
        return np.dtype(np.float64)

    @property
    def log_marginal_likelihood(self) -> float:
        """log p(y) in nats, summed over outputs, where the weight of a row is the exponent of its likelihood.

        It is 0 without data.
        """
        if self._conditioned is None:
            return 0.0
        noise = np.broadcast_to(np.asarray(self._prior.noise_variance, np.float64), self.data.targets.shape[1:])
        correction = evidence.log_weight_correction(noise, self.data.weights[self._has_weight])
        return self._conditioned.log_marginal_likelihood + correction

    def predict(self, inputs: Array) -> Predictive:
        """Return the exact predictive distribution for each row of `inputs` (rows, features)."""
        if self._conditioned is None:
            variance = np.repeat(diagonal(self._prior.kernel, inputs)[:, None], self.data.targets.shape[1], axis=1)
            mean = np.zeros_like(variance)
        else:
            mean, std = self._conditioned.predict(inputs, return_std=True)
            variance = std**2
        noise = np.broadcast_to(np.asarray(self._prior.noise_variance, np.float64), mean.shape)
        return Predictive(mean, variance, noise, np.inf)

    def covariance(self, inputs: Array) -> np.ndarray:
        """Return the exact posterior covariance between rows of `inputs`, shape (rows, rows, outputs)."""
        _check_size(len(inputs), self.method.max_rows)
        if self._conditioned is None:
            return np.repeat(gram(self._prior.kernel, inputs)[..., None], self.data.targets.shape[1], axis=-1)
        return self._conditioned.predict(inputs, return_cov=True)[1]

    def outputs(self, inputs: Array) -> np.ndarray:
        """Draw functions from the posterior, and return their values at `inputs`, shape (n_members, rows, outputs).

        The random numbers are the same in every call.
        """
        _check_size(len(inputs), self.method.max_rows)
        seed = int.from_bytes(self.record.key.tobytes(), "little")
        if self._conditioned is None:
            return self._prior.sample(inputs, self.n_members, self.data.targets.shape[1], seed)
        return self._conditioned.sample(inputs, self.n_members, seed)

    def sample_outputs(self, inputs: Array, n_samples: int, rng: np.random.RandomState) -> np.ndarray:
        """Draw functions, and return their values at `inputs`, shape (n_samples, rows, outputs).

        The arguments are those of `Posterior.sample_outputs`.
        """
        _check_size(len(inputs), self.method.max_rows)
        seed = rng.randint(np.iinfo(np.int32).max)
        if self._conditioned is None:
            return self._prior.sample(inputs, n_samples, self.data.targets.shape[1], seed)
        return self._conditioned.sample(inputs, n_samples, seed)

    @cached_property
    def _prior(self) -> Process:
        """The Gaussian process before it is conditioned on data."""
        noise = self.model.likelihood.noise_variance  # type: ignore[attr-defined]  # checked by the method
        return Process(self.method.kernel_of(self.model), noise)

    @cached_property
    def _has_weight(self) -> np.ndarray:
        """Whether each row has a positive weight, (rows,)."""
        return np.any(self.data.weights > 0, axis=1)

    @cached_property
    def _conditioned(self) -> ConditionedProcess | None:
        """The process given the rows of positive weight; None if there are none."""
        if not self._has_weight.any():
            return None
        return self._prior.condition(*(part[self._has_weight] for part in self.data))


def _check_size(n_rows: int, max_rows: int) -> None:
    """Raise a ValueError if a covariance matrix would have more than `max_rows` rows."""
    if n_rows > max_rows:
        raise ValueError(
            f"GaussianProcess: {n_rows:,} rows are more than max_rows={max_rows:,}; their covariances take "
            f"{8 * n_rows**2 / 1e9:,.1f} GB. Use fewer rows, raise max_rows, or use another method."
        )
