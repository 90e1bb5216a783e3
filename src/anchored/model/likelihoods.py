"""Likelihoods: what a network's outputs say about the targets, row by row.

`misfit` is the negative log-likelihood up to a constant that no parameter changes. It has one term for each
row and independent output, so that weights can tell them apart.
"""

from dataclasses import dataclass
from typing import Protocol

import jax
import jax.numpy as jnp

from anchored import trees
from anchored.types import Array

LARGEST_LOG_RATIO = 4.0


class Likelihood(Protocol):
    """What the library asks of a likelihood."""

    @property
    def loss_scale(self) -> Array:
        """What the negative log posterior is multiplied by to read as the paper's loss."""

    def misfit(self, outputs: Array, targets: Array) -> Array:
        """−log p(target | outputs) + constant, shape (rows, terms)."""


@trees.register
@dataclass(frozen=True)
class Gaussian:
    """y ~ N(f(x), σ²) with σ² known, one for all outputs or one each."""

    noise_variance: Array

    @property
    def loss_scale(self) -> Array:
        """2σ²: turns the negative log posterior into eq. 2, squared errors plus σ²/s² times the anchor term."""
        return 2 * jnp.mean(self.noise_variance)

    def misfit(self, outputs: Array, targets: Array) -> Array:
        return 0.5 * (targets - outputs) ** 2 / self.noise_variance


@trees.register
@dataclass(frozen=True)
class HeteroscedasticGaussian:
    """y ~ N(f(x), exp g(x)): the network's outputs are the means f, then the log-variances g."""

    @property
    def loss_scale(self) -> Array:
        return jnp.ones(())

    def misfit(self, outputs: Array, targets: Array) -> Array:
        mean, log_variance = jnp.split(outputs, 2, axis=-1)
        return 0.5 * ((targets - mean) ** 2 * jnp.exp(-log_variance) + log_variance)


@trees.register
@dataclass(frozen=True)
class CenteredGaussian:
    """y ~ N(0, σ₀² exp g(x)): residuals, of which the network learns only how large they are.

    g is bounded: a log-variance that goes on in a straight line would explode, or vanish, away from the data.
    """

    base_variance: Array  # σ₀²; g is how far the log-variance departs from it

    @property
    def loss_scale(self) -> Array:
        return jnp.ones(())

    def misfit(self, outputs: Array, targets: Array) -> Array:
        log_ratio = self.log_ratio(outputs)
        return 0.5 * (targets**2 / self.base_variance * jnp.exp(-log_ratio) + log_ratio)

    @staticmethod
    def log_ratio(outputs: Array) -> Array:
        """g, within ±4: a standard deviation of at most e² times the base."""
        return LARGEST_LOG_RATIO * jnp.tanh(outputs / LARGEST_LOG_RATIO)


@trees.register
@dataclass(frozen=True)
class Categorical:
    """Class indices; the network gives one logit a class.

    A temperature below 1 trusts the data more than Bayes' rule does, as a smaller noise variance does for the
    Gaussian; it acts on the training alone.
    """

    temperature: Array

    @property
    def loss_scale(self) -> Array:
        return self.temperature

    def misfit(self, outputs: Array, targets: Array) -> Array:
        log_probabilities = jax.nn.log_softmax(outputs)
        return -jnp.take_along_axis(log_probabilities, targets[:, None], axis=-1) / self.temperature
