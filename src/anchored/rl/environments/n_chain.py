"""NChain: a small immediate reward or a large one at the end of a chain (Strens 2000), as in older versions of Gym."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from anchored import checks
from anchored.rl.environments.environment import Step
from anchored.types import Array, Key


@dataclass(frozen=True)
class NChain:
    """Move forward by one (action 0), or back to the start (1) for a small reward.

    Moving forward at the end of the chain earns the large reward. State and observation are the position on the chain.
    Episodes never terminate; they are truncated at the time limit.

    Parameters
    ----------
    n_states
        Number of positions on the chain.
    slip
        Probability that the opposite action is taken.
    small_reward, large_reward
        Rewards for moving back, and for moving forward at the end.
    max_episode_steps
        Time limit of an episode, in steps.
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
        """The number of different integer observations."""
        return self.n_states

    @property
    def observation_size(self) -> int:
        """The length of an observation, which is 1 for integers."""
        return 1

    @property
    def observation_bounds(self) -> None:
        """None, since observations are integers."""
        return None

    def reset(self, key: Key) -> Array:
        """Return the initial state of an episode; `key` is not used."""
        return np.zeros((), np.int32)

    def observe(self, state: Array) -> Array:
        """Return the observation of `state`: the state itself."""
        return state

    def step(self, key: Key, state: Array, action: Array) -> Step:
        """Return the `Step` that follows `action` in `state`, with random numbers from `key`."""
        slips = jax.random.bernoulli(key, self.slip)
        moves_back = (action == 1) ^ slips
        at_end = state == self.n_states - 1
        next_state = jnp.where(moves_back, 0, jnp.where(at_end, state, state + 1)).astype(jnp.int32)
        reward = jnp.where(moves_back, self.small_reward, jnp.where(at_end, self.large_reward, 0.0))
        return Step(next_state, reward.astype(jnp.result_type(float)), np.zeros((), bool))
