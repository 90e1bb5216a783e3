"""Likelihoods: the distribution of a row's targets given the network's outputs.

A likelihood is a frozen dataclass whose fields are positive numbers. Training, prediction, standardisation and saving
use only the methods of the base class. A saved file refers to a likelihood by the name of its class.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np

from anchored import trees
from anchored.model.predictive import CategoricalPredictive, Predictive
from anchored.types import Array, Number

MAX_LOG_RATIO = 4.0  # upper bound of |g| in `CenteredGaussian`


class Likelihood(ABC):
    """The density p(target | outputs). Every field is one positive number, or an array with one for each target."""

    kinds: ClassVar[dict[str, type["Likelihood"]]] = {}  # class name -> class, of all likelihoods
    predictive: ClassVar[Callable[..., Predictive | CategoricalPredictive]] = Predictive  # class of the predictions
    outputs_per_target: ClassVar[int] = 1  # number of outputs that the network needs for each target

    def __init_subclass__(cls) -> None:
        existing = Likelihood.kinds.get(cls.__name__)
        if existing is not None and (existing.__module__, existing.__qualname__) != (cls.__module__, cls.__qualname__):
            raise TypeError(
                f"{cls.__name__} is already the name of a likelihood, in {existing.__module__}; choose another name, "
                "since saved files refer to likelihoods by name"
            )
        Likelihood.kinds[cls.__name__] = cls

    @classmethod
    def field_names(cls) -> list[str]:
        """Return the names of the fields."""
        return [field.name for field in fields(cls)]  # type: ignore[arg-type]  # every subclass is a dataclass

    @property
    def loss_scale(self) -> Number:
        """The factor c in the loss of eq. 2, which is c × negative log posterior / number of rows.

        The loss is defined in `inference.anchoring`.
        """
        return jnp.ones(())

    @abstractmethod
    def negative_log_likelihood(self, outputs: Array, targets: Array) -> Array:
        """Return −log p(target | outputs), up to a constant that does not depend on the network's parameters.

        Parameters
        ----------
        outputs : (rows, outputs) array
            Outputs of one member.
        targets : (rows, targets) array, or (rows,) array of class indices
            Targets. The network has `outputs_per_target` outputs for each of them.

        Returns
        -------
        (rows, terms) array
            One term for each target, so that each can have its own weight. For class indices the shape is (rows, 1).
        """

    @abstractmethod
    def summarise(self, outputs: Array) -> tuple[Array, Array, Array]:
        """Return the first three fields of `predictive`, computed from the outputs of all members.

        Parameters
        ----------
        outputs : (members, rows, outputs) array
            Outputs of all members.

        Returns
        -------
        tuple of three arrays
            The fields, whose first axis is rows: mean, epistemic variance and aleatoric variance of a `Predictive`.
        """

    def rescaled(self, scale: np.ndarray) -> Self:
        """Return the likelihood of targets that are divided by `scale`, (targets,).

        By default it is the same likelihood. Override this method if a field is in the units of the targets.
        """
        return self


@trees.register
@dataclass(frozen=True)
class Gaussian(Likelihood):
    """y ~ N(f(x), σ²) with known noise variance σ²."""

    noise_variance: Number  # σ², one number for all outputs, or (outputs,)

    @property
    def loss_scale(self) -> Array:
        """2σ², averaged over outputs."""
        return 2 * jnp.mean(self.noise_variance)

    def negative_log_likelihood(self, outputs: Array, targets: Array) -> Array:
        """Return (y − f)²/(2σ²) for `outputs` f and `targets` y. All three have the shape (rows, outputs)."""
        return 0.5 * (targets - outputs) ** 2 / self.noise_variance

    def summarise(self, outputs: Array) -> tuple[Array, Array, Array]:
        """Return means, epistemic variances and noise variances, each (rows, outputs).

        `outputs` are the outputs of all members, (members, rows, outputs).
        """
        noise = jnp.broadcast_to(self.noise_variance, outputs.shape[1:])
        return outputs.mean(0), variance_between_members(outputs), noise

    def rescaled(self, scale: np.ndarray) -> Self:
        """Return the likelihood of targets that are divided by `scale`, (outputs,)."""
        return replace(self, noise_variance=self.noise_variance / scale**2)


@trees.register
@dataclass(frozen=True)
class HeteroscedasticGaussian(Likelihood):
    """y ~ N(f(x), exp g(x)). The network's first outputs are the means f, and the others the log-variances g."""

    outputs_per_target: ClassVar[int] = 2

    def negative_log_likelihood(self, outputs: Array, targets: Array) -> Array:
        """Return ½ ((y − f)² exp(−g) + g), shape (rows, targets).

        `outputs` are f and g, (rows, 2 × targets), and `targets` are y, (rows, targets).
        """
        mean, log_variance = jnp.split(outputs, 2, axis=-1)
        return 0.5 * ((targets - mean) ** 2 * jnp.exp(-log_variance) + log_variance)

    def summarise(self, outputs: Array) -> tuple[Array, Array, Array]:
        """Return means, epistemic variances and mean noise variances, each (rows, targets).

        `outputs` are the outputs of all members, (members, rows, 2 × targets).
        """
        mean, log_variance = jnp.split(outputs, 2, axis=-1)
        return mean.mean(0), variance_between_members(mean), jnp.exp(log_variance).mean(0)


@trees.register
@dataclass(frozen=True)
class CenteredGaussian(Likelihood):
    """y ~ N(0, σ₀² exp g(x)): a model of the variance of residuals.

    g is the network's output after `log_ratio` has bounded it. Without a bound, the variance would become huge or tiny
    far away from the data.
    """

    base_variance: Array  # σ₀², one number for all outputs, or (outputs,)

    def negative_log_likelihood(self, outputs: Array, targets: Array) -> Array:
        """Return ½ (y²/σ₀² exp(−g) + g), shape (rows, outputs).

        `outputs` are the network's, before they are bounded, and `targets` are y. Both have the shape of the result.
        """
        log_ratio = self.log_ratio(outputs)
        return 0.5 * (targets**2 / self.base_variance * jnp.exp(-log_ratio) + log_ratio)

    def summarise(self, outputs: Array) -> tuple[Array, Array, Array]:
        """Return means and epistemic variances, which are 0, and mean noise variances, each (rows, outputs).

        `outputs` are the outputs of all members, (members, rows, outputs).
        """
        zero = jnp.zeros(outputs.shape[1:], outputs.dtype)
        return zero, zero, self.base_variance * jnp.exp(self.log_ratio(outputs)).mean(0)

    @staticmethod
    def log_ratio(outputs: Array) -> Array:
        """Return g = log(variance/σ₀²): the `outputs`, smoothly bounded to ±4, in their shape.

        The standard deviation is therefore within a factor e² of σ₀.
        """
        # Outside a program, JAX would compile for each shape
        tanh = np.tanh if isinstance(outputs, np.ndarray) else jnp.tanh
        return MAX_LOG_RATIO * tanh(outputs / MAX_LOG_RATIO)


@trees.register
@dataclass(frozen=True)
class Categorical(Likelihood):
    """Targets are class indices, and the network has one output (logit) for each class.

    In training, the log-likelihood is divided by the temperature. A temperature below 1 gives the data more weight than
    Bayes' rule does, as a smaller noise variance does in a Gaussian likelihood. In prediction, logits are divided by
    the predictive temperature. If it is below 1, predictions become more certain.
    """

    temperature: Number
    predictive_temperature: Number = 1.0
    predictive: ClassVar = CategoricalPredictive

    @property
    def loss_scale(self) -> Number:
        """The temperature: the loss is the cross-entropy plus the temperature times the penalty."""
        return self.temperature

    def negative_log_likelihood(self, outputs: Array, targets: Array) -> Array:
        """Return the cross-entropy divided by the temperature, shape (rows, 1).

        `outputs` are logits (rows, classes), and `targets` class indices (rows,).
        """
        log_probabilities = jax.nn.log_softmax(outputs)
        return -jnp.take_along_axis(log_probabilities, targets[:, None], axis=-1) / self.temperature

    def summarise(self, outputs: Array) -> tuple[Array, Array, Array]:
        """Return the first three fields of a `CategoricalPredictive`.

        They are mean probabilities (rows, classes), mean entropies (rows,) in nats, and the variances of the
        probabilities between members (rows, classes). `outputs` are the members' logits, (members, rows, classes).
        """
        log_p = jax.nn.log_softmax(outputs / self.predictive_temperature)
        p = jnp.exp(log_p)
        entropy = -jnp.sum(p * log_p, axis=-1)
        return p.mean(0), entropy.mean(0), variance_between_members(p)


def variance_between_members(values: Array) -> Array:
    """Return the sample variance of `values` (members, ...) over the members. It is 0 if there is only one."""
    return values.var(0, ddof=min(1, values.shape[0] - 1))
