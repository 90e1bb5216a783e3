"""Deep sea: a reward that random actions find once in 2^N episodes (Osband et al. 2019), as in bsuite 0.3.6."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from anchored import checks
from anchored.rl.environments.environment import Step
from anchored.types import Array, Key

MOVE_COST = 0.01  # total cost of an episode that always moves right


class DeepSeaState(NamedTuple):
    """The agent's position, and what bsuite records about the episode."""

    row: Array  # an int32 scalar, from 0 at the top; N after the last step
    column: Array  # an int32 scalar, from 0 at the left
    bad: Array  # whether the agent has moved left while the treasure could still be reached
    denoised_return: Array  # sum of treasures, without noise and move costs


class Noise(NamedTuple):
    """The random numbers of one step, which only the stochastic form uses."""

    reward: Array  # standard normal, added to the reward in the two corners of the last row
    current: Array  # uniform on [0, 1); a move to the right fails unless it exceeds 1/N


@dataclass(frozen=True)
class DeepSea:
    """Descend through an N × N grid, one row per step, moving left or right, to a treasure at the bottom right.

    The treasure is a reward of 1; each move to the right costs 0.01/N. Which action moves right is drawn for each cell
    from `mapping_seed`. Observations are row · N + column, with rows and columns counted from 0. The stochastic form is
    bsuite's `deep_sea_stochastic`.

    Parameters
    ----------
    size
        N, the number of rows, of columns, and of steps in an episode.
    mapping_seed
        Random seed of `right_actions`.
    stochastic
        Whether moves to the right fail with probability 1/N, and rewards in the two corners of the last row are noisy.
    """

    size: int = 10
    mapping_seed: int = 42
    stochastic: bool = False

    def __post_init__(self) -> None:
        checks.whole("size", self.size, 1)
        checks.whole("mapping_seed", self.mapping_seed, 0)

    @property
    def n_actions(self) -> int:
        """The number of actions."""
        return 2

    @property
    def max_episode_steps(self) -> int:
        """Number of steps in an episode."""
        return self.size

    @property
    def n_observations(self) -> int:
        """The number of different integer observations."""
        return self.size**2

    @property
    def observation_size(self) -> int:
        """The length of an observation, which is 1 for integers."""
        return 1

    @property
    def right_actions(self) -> np.ndarray:
        """The action that moves right in each cell, (rows, columns)."""
        actions = np.random.RandomState(self.mapping_seed).binomial(1, 0.5, [self.size, self.size])
        return actions.astype(np.int32)

    @property
    def observation_bounds(self) -> None:
        """None, since observations are integers."""
        return None

    def reset(self, key: Key) -> DeepSeaState:
        """Return the initial state of an episode; `key` is not used."""
        start = np.zeros((), np.int32)
        return DeepSeaState(start, start, np.zeros((), bool), np.zeros((), jnp.result_type(float)))

    def observe(self, state: DeepSeaState) -> Array:
        """Return the observation of `state`, row · N + column."""
        # Below the last row bsuite returns an empty grid. That observation is never used; any valid index will do.
        return (jnp.minimum(state.row, self.size - 1) * self.size + state.column).astype(jnp.int32)

    def step(self, key: Key, state: DeepSeaState, action: Array) -> Step:
        """Return the `Step` that follows `action` in `state`, with random numbers from `key`."""
        reward_key, current_key = jax.random.split(key)
        dtype = jnp.result_type(float)
        noise = Noise(jax.random.normal(reward_key, (), dtype), jax.random.uniform(current_key, (), dtype))
        return self.transition(state, action, noise)

    def transition(self, state: DeepSeaState, action: Array, noise: Noise) -> Step:
        """Return the `Step` that follows `action` in `state`, with the random numbers `noise`."""
        last = self.size - 1
        is_right = action == jnp.asarray(self.right_actions)[state.row, state.column]
        treasure = jnp.where(is_right & (state.column == last), 1.0, 0.0)
        reward = treasure
        succeeds = is_right
        if self.stochastic:
            in_corner = (state.row == last) & ((state.column == 0) | (state.column == last))
            reward = reward + jnp.where(in_corner, noise.reward, 0.0)
            succeeds = is_right & (noise.current > 1 / self.size)
        reward = reward - jnp.where(is_right, MOVE_COST / self.size, 0.0)
        # a failed move to the right stays in the same column
        shift = jnp.where(is_right, succeeds.astype(jnp.int32), -1)
        next_state = DeepSeaState(
            state.row + 1,
            jnp.clip(state.column + shift, 0, last),
            state.bad | (~is_right & (state.row == state.column)),
            state.denoised_return + treasure,
        )
        return Step(next_state, reward.astype(jnp.result_type(float)), next_state.row == self.size)
