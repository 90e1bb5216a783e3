"""A multi-armed bandit, like `bandit` and `bandit_noise` in bsuite 0.3.6."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from anchored import checks
from anchored.rl.environments.environment import Step
from anchored.types import Array, Key


@dataclass(frozen=True)
class Bandit:
    """Arms whose mean rewards are spread evenly from 0 to 1, in an order drawn from `mapping_seed`.

    An episode is one step: the action is the arm that is pulled. State and observation are always 0.

    Parameters
    ----------
    n_arms
        Number of arms.
    mapping_seed
        Random seed of the order of mean rewards.
    noise_scale
        Standard deviation of the normal noise that is added to the mean reward.
    """

    n_arms: int = 11
    mapping_seed: int = 0
    noise_scale: float = 0.0

    def __post_init__(self) -> None:
        checks.whole("n_arms", self.n_arms, 1)
        checks.whole("mapping_seed", self.mapping_seed, 0)
        if not self.noise_scale >= 0:
            raise ValueError(f"noise_scale must be a standard deviation of at least 0, got {self.noise_scale!r}")

    @property
    def n_actions(self) -> int:
        """The number of actions."""
        return self.n_arms

    @property
    def max_episode_steps(self) -> int:
        """Number of steps in an episode."""
        return 1

    @property
    def n_observations(self) -> int:
        """The number of different integer observations."""
        return 1

    @property
    def observation_size(self) -> int:
        """The length of an observation, which is 1 for integers."""
        return 1

    @property
    def means(self) -> np.ndarray:
        """The mean reward of each arm, (n_arms,)."""
        order = np.random.RandomState(self.mapping_seed).choice(self.n_arms, size=self.n_arms, replace=False)
        return np.linspace(0, 1, self.n_arms)[order]

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
        dtype = jnp.result_type(float)
        reward = jnp.asarray(self.means, dtype)[action]
        if self.noise_scale > 0:
            reward = reward + self.noise_scale * jax.random.normal(key, (), dtype)
        return Step(state, reward, np.ones((), bool))
