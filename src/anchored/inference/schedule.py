"""Learning-rate schedule."""

import jax.numpy as jnp

from anchored.types import Array


def half_cosine(share: Array) -> Array:
    """Return the factor of the learning rate when the fraction `share` of the steps is done; it falls from 1 to 0."""
    return 0.5 * (1 + jnp.cos(jnp.pi * share))
