"""NChain: a small reward at once against a large one at the end of a chain (Strens 2000), as once in Gym."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from anchored import checks
from anchored.rl.environments.environment import Step
from anchored.types import Array, Key


@dataclass(frozen=True)
class NChain:
    """Go forward by one (0), or back to the start for a small reward (1); forward at the end earns the large one.

    The state, a position on the chain, is the observation. Episodes never terminate.

    Parameters
    ----------
    n_states
        Length of the chain.
    slip
        Probability that the opposite action is taken.
    small_reward, large_reward
        For going back, and for going forward at the end.
    max_episode_steps
        The time limit.
    """

    n_states: int = 5
    slip: float = 0.2
    small_reward: float = 2.0
    large_reward: float = 10.0
    max_episode_steps: int = 1000

    def __post_init__(self) -> None:
        checks.whole("n_states", self.n_states, 1)
        checks.whole("max_episode_steps", self.max_episode_steps, 1)
        if not 0 <= self.slip <= 1:
            raise ValueError(f"slip must be a probability between 0 and 1, got {self.slip!r}")

    @property
    def n_actions(self) -> int:
        """The number of actions."""
        return 2

    @property
    def n_observations(self) -> int:
        """The number of integer observations."""
        return self.n_states

    @property
    def observation_size(self) -> int:
        """1: observations are integers."""
        return 1

    @property
    def observation_bounds(self) -> None:
        """None: observations are integers."""
        return None

    def reset(self, key: Key) -> Array:
        """The initial state of an episode; `key` is not used."""
        return np.zeros((), np.int32)

    def observe(self, state: Array) -> Array:
        """The observation of `state`: the state itself."""
        return state

    def step(self, key: Key, state: Array, action: Array) -> Step:
        """The result of `action` in `state`, with random numbers from `key`."""
        slips = jax.random.bernoulli(key, self.slip)
        back = (action == 1) ^ slips
        at_the_end = state == self.n_states - 1
        following = jnp.where(back, 0, jnp.where(at_the_end, state, state + 1)).astype(jnp.int32)
        reward = jnp.where(back, self.small_reward, jnp.where(at_the_end, self.large_reward, 0.0))
        return Step(following, reward.astype(jnp.result_type(float)), np.zeros((), bool))
