"""Likelihoods: what a network's outputs say about the targets, row by row.

A likelihood is one frozen dataclass: its fields are positive numbers, its methods are everything the library asks of
it (training, prediction, units, files). A subclass of `Likelihood` is known by its name when a file is loaded.
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

LARGEST_LOG_RATIO = 4.0


class Likelihood(ABC):
    """p(target | outputs of the network). Every field is an array of positive numbers, one or one for each output."""

    kinds: ClassVar[dict[str, type["Likelihood"]]] = {}  # all subclasses by name
    predictive: ClassVar[Callable[..., Predictive | CategoricalPredictive]] = Predictive  # of what `summarise` gives

    outputs_a_target: ClassVar[int] = 1  # of the network

    def __init_subclass__(cls) -> None:
        taken = Likelihood.kinds.get(cls.__name__)
        if taken is not None and taken.__module__ == __name__ != cls.__module__:
            raise TypeError(
                f"{cls.__name__} is a likelihood of anchored's own, and files name it so; choose another name"
            )
        Likelihood.kinds[cls.__name__] = cls

    @classmethod
    def number_names(cls) -> list[str]:
        """The names of its fields."""
        return [field.name for field in fields(cls)]  # type: ignore[arg-type]  # every subclass is a dataclass

    @property
    def loss_scale(self) -> Number:
        """What the negative log posterior is multiplied by to read as the paper's loss."""
        return jnp.ones(())

    @abstractmethod
    def misfit(self, outputs: Array, targets: Array) -> Array:
        """The negative log-likelihood, up to a constant that no parameter of the network changes.

        Args:
            outputs: (rows, outputs) of one member.
            targets: (rows, outputs), or (rows,) of class indices.

        Returns:
            (rows, terms): a term for each independent output, so that weights can tell them apart.
        """

    @abstractmethod
    def summarise(self, outputs: Array) -> tuple[Array, Array, Array]:
        """Members' outputs, (members, rows, outputs), as the first three fields of the predictive, row by row."""

    def in_units_of(self, scale: np.ndarray) -> Self:
        """The likelihood of targets divided by `scale`, one number for each output."""
        return self


@trees.register
@dataclass(frozen=True)
class Gaussian(Likelihood):
    """y ~ N(f(x), σ²) with σ² known, one for all outputs or one each."""

    noise_variance: Number

    @property
    def loss_scale(self) -> Array:
        """2σ²: turns the negative log posterior into eq. 2, squared errors plus σ²/s² times the anchor term."""
        return 2 * jnp.mean(self.noise_variance)

    def misfit(self, outputs: Array, targets: Array) -> Array:
        return 0.5 * (targets - outputs) ** 2 / self.noise_variance

    def summarise(self, outputs: Array) -> tuple[Array, Array, Array]:
        noise = jnp.broadcast_to(self.noise_variance, outputs.shape[1:])
        return outputs.mean(0), between_members(outputs), noise

    def in_units_of(self, scale: np.ndarray) -> Self:
        return replace(self, noise_variance=self.noise_variance / scale**2)


@trees.register
@dataclass(frozen=True)
class HeteroscedasticGaussian(Likelihood):
    """y ~ N(f(x), exp g(x)): the network's outputs are the means f, then the log-variances g."""

    outputs_a_target: ClassVar[int] = 2

    def misfit(self, outputs: Array, targets: Array) -> Array:
        mean, log_variance = jnp.split(outputs, 2, axis=-1)
        return 0.5 * ((targets - mean) ** 2 * jnp.exp(-log_variance) + log_variance)

    def summarise(self, outputs: Array) -> tuple[Array, Array, Array]:
        mean, log_variance = jnp.split(outputs, 2, axis=-1)
        return mean.mean(0), between_members(mean), jnp.exp(log_variance).mean(0)


@trees.register
@dataclass(frozen=True)
class CenteredGaussian(Likelihood):
    """y ~ N(0, σ₀² exp g(x)): residuals, of which the network learns only how large they are.

    g is bounded: a log-variance that goes on in a straight line would explode, or vanish, away from the data.
    """

    base_variance: Array  # σ₀²; g is how far the log-variance departs from it

    def misfit(self, outputs: Array, targets: Array) -> Array:
        log_ratio = self.log_ratio(outputs)
        return 0.5 * (targets**2 / self.base_variance * jnp.exp(-log_ratio) + log_ratio)

    def summarise(self, outputs: Array) -> tuple[Array, Array, Array]:
        zero = jnp.zeros(outputs.shape[1:], outputs.dtype)
        return zero, zero, self.base_variance * jnp.exp(self.log_ratio(outputs)).mean(0)

    @staticmethod
    def log_ratio(outputs: Array) -> Array:
        """g, within ±4: a standard deviation of at most e² times the base."""
        tanh = np.tanh if isinstance(outputs, np.ndarray) else jnp.tanh  # an eager JAX operation would be compiled
        return LARGEST_LOG_RATIO * tanh(outputs / LARGEST_LOG_RATIO)


@trees.register
@dataclass(frozen=True)
class Categorical(Likelihood):
    """Class indices; the network gives one logit a class.

    A temperature below 1 trusts the data more than Bayes' rule does, as a smaller noise variance does for the
    Gaussian; it acts on the training alone.
    """

    temperature: Number
    predictive: ClassVar = CategoricalPredictive

    @property
    def loss_scale(self) -> Number:
        return self.temperature

    def misfit(self, outputs: Array, targets: Array) -> Array:
        log_probabilities = jax.nn.log_softmax(outputs)
        return -jnp.take_along_axis(log_probabilities, targets[:, None], axis=-1) / self.temperature

    def summarise(self, outputs: Array) -> tuple[Array, Array, Array]:
        log_p = jax.nn.log_softmax(outputs)
        p = jnp.exp(log_p)
        entropy = -jnp.sum(p * log_p, axis=-1)
        return p.mean(0), entropy.mean(0), between_members(p)


def between_members(values: Array) -> Array:
    """The variance over members; 0 for one, as Algorithm 1 needs for a single network."""
    return values.var(0, ddof=min(1, values.shape[0] - 1))
