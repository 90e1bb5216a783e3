"""Gaussian priors: a mean and a standard deviation for each parameter leaf."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from anchored import trees
from anchored.types import Array, Key, Params


@trees.register
@dataclass(frozen=True)
class Prior:
    """Independent normals; the leaves of `mean` and `scale` broadcast against the parameters'."""

    mean: Params
    scale: Params  # standard deviations

    def sample(self, key: Key, like: Params) -> Params:
        """One draw in the shape of `like`."""
        return self.unwhiten(trees.normal_like(key, like))

    def whiten(self, params: Params) -> Params:
        """(θ − μ) / s: a draw from the prior becomes standard normal."""
        return jax.tree.map(lambda p, m, s: (p - m) / s, params, self.mean, self.scale)

    def unwhiten(self, draw: Params) -> Params:
        """μ + s z, the inverse of `whiten`."""
        return jax.tree.map(lambda z, m, s: m + s * z, draw, self.mean, self.scale)

    def log_density(self, params: Params) -> Array:
        """log N(θ; μ, s²), summed over all parameters."""

        def terms(z: Array, s: Array) -> Array:
            return -0.5 * z**2 - jnp.log(s) - 0.5 * jnp.log(2 * jnp.pi)

        return trees.total(jax.tree.map(terms, self.whiten(params), self.scale))
