"""A context manager that sets an option of JAX."""

from collections.abc import Iterator
from contextlib import contextmanager

import jax


@contextmanager
def jax_option(name: str, value: bool) -> Iterator[None]:
    """Set the option `name` of `jax.config` to `value` in all threads, and restore the old value on exit."""
    before = jax.config.values[name]
    jax.config.update(name, value)
    try:
        yield
    finally:
        jax.config.update(name, before)
