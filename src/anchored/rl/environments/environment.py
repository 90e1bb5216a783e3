"""The contract of environments: pure functions of a key, a state and an action."""

from typing import Any, NamedTuple, Protocol

import numpy as np

from anchored.types import Array, Key


class Step(NamedTuple):
    """What one action leads to."""

    state: Any  # a pytree
    reward: Array
    terminated: Array  # bool; the time limit is the caller's business, since truncation is not termination


class Environment(Protocol):
    """What the library asks of an environment.

    Every environment is a frozen dataclass of plain hashable values, so that equal environments share one
    compiled program. What comes after termination is not defined: the caller resets.
    """

    @property
    def n_actions(self) -> int:
        """Actions are the integers 0, …, n_actions − 1."""

    @property
    def max_episode_steps(self) -> int:
        """After so many steps the caller cuts an episode short."""

    @property
    def n_observations(self) -> int | None:
        """How many integers are observed; None where observations are vectors."""

    @property
    def observation_size(self) -> int:
        """The length of a vector observation; 1 where observations are integers."""

    @property
    def observation_bounds(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Lowest and highest entries of a vector, (−1, 1) where they have none; None for integers."""

    def reset(self, key: Key) -> Any:
        """The state an episode starts in."""

    def observe(self, state: Any) -> Array:
        """A float vector of dtype `jnp.result_type(float)`, or an int32 scalar."""

    def step(self, key: Key, state: Any, action: Array) -> Step:
        """Where `action` leads from `state`."""
