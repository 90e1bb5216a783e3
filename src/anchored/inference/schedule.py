"""Learning-rate schedule."""

from anchored.types import Array


def half_cosine(share: Array) -> Array:
    """Return the factor of the learning rate when the fraction `share` of the steps is done; it falls from 1 to 0."""
    namespace = share.__array_namespace__()  # NumPy, or in a compiled program jax.numpy
    return 0.5 * (1 + namespace.cos(namespace.pi * share))
