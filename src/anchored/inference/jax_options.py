"""Set an option of JAX for the duration of a block of code."""

from collections.abc import Iterator
from contextlib import contextmanager

import jax


@contextmanager
def jax_option(name: str, value: bool) -> Iterator[None]:
    """Set the option `name` of `jax.config` to `value`, in all threads, and restore its old value at the end."""
    before = jax.config.values[name]
    jax.config.update(name, value)
    try:
        yield
    finally:
        jax.config.update(name, before)
