"""Deep sea: a treasure that dithering finds once in 2^N episodes (Osband et al. 2019), as in bsuite 0.3.6."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from anchored import checks
from anchored.rl.environments.environment import Step
from anchored.types import Array, Key

MOVE_COST = 0.01  # of always moving right, in total


class DeepSeaState(NamedTuple):
    """The position of the diver, and what bsuite records of the episode."""

    row: Array
    column: Array
    bad: Array  # moved left while the treasure could still be reached; bsuite counts such episodes
    denoised_return: Array  # treasures alone, without the noise of rewards and without move costs


class Noise(NamedTuple):
    """The random numbers of one step, used in the stochastic form alone."""

    reward: Array  # standard normal, added at the two ends of the last row
    current: Array  # uniform on [0, 1); a move to the right fails unless it exceeds 1/N


@dataclass(frozen=True)
class DeepSea:
    """Descend through an N × N grid, one row per step, moving left or right; the reward of 1 is at the bottom right.

    Which action means right is drawn for each cell from `mapping_seed`. Observations are row · N + column. The
    stochastic form is bsuite's `deep_sea_stochastic`.

    Parameters
    ----------
    size
        N, the number of rows, of columns, and of steps in an episode.
    mapping_seed
        Random seed of the actions' meaning.
    stochastic
        Whether moves to the right fail with probability 1/N, and the last rewards are noisy.
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
        """Steps in an episode."""
        return self.size

    @property
    def n_observations(self) -> int:
        """The number of integer observations."""
        return self.size**2

    @property
    def observation_size(self) -> int:
        """1: observations are integers."""
        return 1

    @property
    def right_actions(self) -> np.ndarray:
        """The action that means right, (rows, columns)."""
        draw = np.random.RandomState(self.mapping_seed).binomial(1, 0.5, [self.size, self.size])
        return draw.astype(np.int32)

    @property
    def observation_bounds(self) -> None:
        """None: observations are integers."""
        return None

    def reset(self, key: Key) -> DeepSeaState:
        """The initial state of an episode; `key` is not used."""
        start = np.zeros((), np.int32)
        return DeepSeaState(start, start, np.zeros((), bool), np.zeros((), jnp.result_type(float)))

    def observe(self, state: DeepSeaState) -> Array:
        """The observation of `state`, row · N + column."""
        # Below the last row bsuite shows an empty grid. Its value is never used; the index stays that of a cell.
        return (jnp.minimum(state.row, self.size - 1) * self.size + state.column).astype(jnp.int32)

    def step(self, key: Key, state: DeepSeaState, action: Array) -> Step:
        """The result of `action` in `state`, with random numbers from `key`."""
        reward_key, current_key = jax.random.split(key)
        number = jnp.result_type(float)
        noise = Noise(jax.random.normal(reward_key, (), number), jax.random.uniform(current_key, (), number))
        return self.transition(state, action, noise)

    def transition(self, state: DeepSeaState, action: Array, noise: Noise) -> Step:
        """The result of `action` in `state` with the random numbers `noise`."""
        last = self.size - 1
        right = action == jnp.asarray(self.right_actions)[state.row, state.column]
        treasure = jnp.where(right & (state.column == last), 1.0, 0.0)
        reward = treasure
        moves = right
        if self.stochastic:
            at_an_end = (state.row == last) & ((state.column == 0) | (state.column == last))
            reward = reward + jnp.where(at_an_end, noise.reward, 0.0)
            moves = right & (noise.current > 1 / self.size)
        reward = reward - jnp.where(right, MOVE_COST / self.size, 0.0)
        # a move to the right that fails stays in its column
        shift = jnp.where(right, moves.astype(jnp.int32), -1)
        following = DeepSeaState(
            state.row + 1,
            jnp.clip(state.column + shift, 0, last),
            state.bad | (~right & (state.row == state.column)),
            state.denoised_return + treasure,
        )
        return Step(following, reward.astype(jnp.result_type(float)), following.row == self.size)
