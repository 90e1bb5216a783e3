"""The interface of compiled environments: pure functions of a key, a state and an action."""

from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from anchored.types import Array, Key

State = TypeVar("State")  # a pytree of arrays


class Step(NamedTuple, Generic[State]):
    """The result of one action."""

    state: State  # after the action
    reward: Array  # a scalar of dtype `jnp.result_type(float)`
    terminated: Array  # a bool scalar; the time limit is applied by the caller, since truncation is not termination


class Spaces(Protocol):
    """Actions and observations of an environment, either compiled or from Gymnasium."""

    @property
    def n_actions(self) -> int:
        """The number of actions, which are the integers 0, …, n_actions − 1."""

    @property
    def n_observations(self) -> int | None:
        """The number of different integer observations; None if observations are vectors or images."""

    @property
    def observation_size(self) -> int:
        """The number of entries of a vector or an image; 1 if observations are integers."""

    @property
    def observation_bounds(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Lower and upper bounds of the entries of a vector, −1 and 1 if unbounded; None for integers and images."""


class Environment(Spaces, Protocol[State]):
    """Interface of a compiled environment.

    It is a frozen dataclass of hashable values, so that equal environments share one compiled program. After an
    episode has ended, `step` is undefined: the caller resets the environment.
    """

    @property
    def max_episode_steps(self) -> int:
        """The time limit: the number of steps after which the caller truncates an episode."""

    def reset(self, key: Key) -> State:
        """Return the initial state of an episode, drawn from `key`."""

    def observe(self, state: State) -> Array:
        """Return the observation of `state`.

        It is a vector of dtype `jnp.result_type(float)`, an int32 scalar, or an image of booleans, (height, width,
        channels).
        """

    def step(self, key: Key, state: State, action: Array) -> Step[State]:
        """Return the `Step` that follows `action`, an int scalar, in `state`, with random numbers from `key`."""
