"""Schedules: numbers that depend on the number of environment steps."""

from dataclasses import dataclass

import jax.numpy as jnp

from anchored import trees
from anchored.types import Array, Number


@trees.register
@dataclass(frozen=True)
class LinearSchedule:
    """A learning rate that changes linearly from `start` to `end`, and then stays.

    It depends only on the number of environment steps since the start of training, not on how they are divided among
    calls of `learn`, so that a run that is interrupted and resumed equals an uninterrupted run.

    Parameters
    ----------
    start, end
        The learning rate at step 0, and from step `n_steps` on.
    n_steps
        Number of environment steps over which it changes.
    """

    start: float
    end: float
    n_steps: float

    def __call__(self, step: Number) -> Array:
        """Return the learning rate after `step` environment steps."""
        fraction = jnp.clip(step / self.n_steps, 0, 1)
        return self.start + (self.end - self.start) * fraction
