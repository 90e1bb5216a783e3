"""MountainCar: drive out of a valley with an engine too weak for the slope (Moore 1990), as in Gymnasium."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from anchored import checks
from anchored.rl.environments.environment import Step
from anchored.types import Array, Key

MIN_POSITION, MAX_POSITION = -1.2, 0.6
MAX_SPEED = 0.07
GOAL = 0.5  # position
FORCE = 0.001
GRAVITY = 0.0025


@dataclass(frozen=True)
class MountainCar:
    """Push the car left (action 0), not at all (1) or right (2); the reward is −1 until it reaches the goal.

    State and observation are (position, change of position per step).

    Parameters
    ----------
    max_episode_steps
        Time limit of an episode, in steps.
    """

    max_episode_steps: int = 200

    def __post_init__(self) -> None:
        checks.whole("max_episode_steps", self.max_episode_steps, 1)

    @property
    def n_actions(self) -> int:
        """The number of actions."""
        return 3

    @property
    def n_observations(self) -> None:
        """None, since observations are vectors."""
        return None

    @property
    def observation_size(self) -> int:
        """The length of an observation."""
        return 2

    @property
    def observation_bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper bounds of the entries of an observation."""
        return np.array([MIN_POSITION, -MAX_SPEED]), np.array([MAX_POSITION, MAX_SPEED])

    def reset(self, key: Key) -> Array:
        """Return the initial state of an episode, drawn from `key`."""
        dtype = jnp.result_type(float)
        return jnp.stack([jax.random.uniform(key, (), dtype, -0.6, -0.4), np.zeros((), dtype)])

    def observe(self, state: Array) -> Array:
        """Return the observation of `state`: the state itself."""
        return state

    def step(self, key: Key, state: Array, action: Array) -> Step:
        """Return the `Step` that follows `action` in `state`; `key` is not used."""
        position, velocity = state
        velocity = velocity + ((action - 1) * FORCE - jnp.cos(3 * position) * GRAVITY)
        velocity = jnp.clip(velocity, -MAX_SPEED, MAX_SPEED)
        position = jnp.clip(position + velocity, MIN_POSITION, MAX_POSITION)
        # the car stops at the left end
        velocity = jnp.where((position == MIN_POSITION) & (velocity < 0), 0.0, velocity)
        terminated = (position >= GOAL) & (velocity >= 0)
        return Step(jnp.stack([position, velocity]), np.full((), -1.0, state.dtype), terminated)
