"""The learning-rate schedule."""

from anchored.types import Array


def half_cosine(fraction: Array) -> Array:
    """Return the factor of the learning rate when `fraction` of the steps are done. It falls from 1 to 0.

    `fraction` is between 0 and 1, and the result has its shape.
    """
    namespace = fraction.__array_namespace__()  # jax.numpy in a compiled program, otherwise NumPy
    return 0.5 * (1 + namespace.cos(namespace.pi * fraction))
