"""Gaussian priors over the parameters of a network."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from anchored import trees
from anchored.trees import Tree
from anchored.types import Array, Key, Params


@trees.register
@dataclass(frozen=True)
class Prior:
    """Independent normals N(μ, s²), one for each parameter.

    `mean` and `scale` are pytrees with the structure of the parameters. Each of their leaves broadcasts to the shape of
    the corresponding leaf of the parameters.
    """

    mean: Params  # μ
    scale: Params  # s, standard deviations

    def sample(self, key: Key, like: Tree) -> Tree:
        """Return one draw from the prior, made with the random key `key`, in the shapes of the pytree `like`."""
        return self.unwhiten(trees.normal_like(key, like))

    def whiten(self, params: Tree) -> Tree:
        """Return z = (θ − μ)/s for θ = `params`. If θ is a draw from the prior, z is standard normal."""
        return jax.tree.map(lambda p, m, s: (p - m) / s, params, self.mean, self.scale)

    def unwhiten(self, normals: Tree) -> Tree:
        """Return μ + s z for z = `normals`, the inverse of `whiten`."""
        return jax.tree.map(lambda z, m, s: m + s * z, normals, self.mean, self.scale)

    def log_density(self, params: object) -> Array:
        """Return log N(θ; μ, s²) for θ = `params`, summed over all parameters."""

        def log_normal_density(z: Array, s: Array) -> Array:
            return -0.5 * z**2 - jnp.log(s) - 0.5 * jnp.log(2 * jnp.pi)

        return trees.total(jax.tree.map(log_normal_density, self.whiten(params), self.scale))
