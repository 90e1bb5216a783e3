"""How a learning rate goes down."""

import jax.numpy as jnp

from anchored.types import Array


def half_cosine(share: Array) -> Array:
    """What the first learning rate is multiplied by after a share of the steps: from 1 down to 0, flat at both ends."""
    return 0.5 * (1 + jnp.cos(jnp.pi * share))
