"""MountainCar: leave a valley with an engine too weak for its slope (Moore 1990), as in Gymnasium."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from anchored import checks
from anchored.rl.environments.environment import Step
from anchored.types import Array, Key

MIN_POSITION, MAX_POSITION = -1.2, 0.6
MAX_SPEED = 0.07
GOAL = 0.5
FORCE = 0.001
GRAVITY = 0.0025


@dataclass(frozen=True)
class MountainCar:
    """Push the car left (0), not at all (1) or right (2); every step costs 1 until it reaches the goal.

    The state is (position, velocity), and is observed as it is.
    """

    max_episode_steps: int = 200

    def __post_init__(self) -> None:
        checks.whole("max_episode_steps", self.max_episode_steps, 1)

    @property
    def n_actions(self) -> int:
        return 3

    @property
    def n_observations(self) -> None:
        return None

    @property
    def observation_size(self) -> int:
        return 2

    @property
    def observation_bounds(self) -> tuple[np.ndarray, np.ndarray]:
        return np.array([MIN_POSITION, -MAX_SPEED]), np.array([MAX_POSITION, MAX_SPEED])

    def reset(self, key: Key) -> Array:
        number = jnp.result_type(float)
        return jnp.stack([jax.random.uniform(key, (), number, -0.6, -0.4), np.zeros((), number)])

    def observe(self, state: Array) -> Array:
        return state

    def step(self, key: Key, state: Array, action: Array) -> Step:
        position, velocity = state
        velocity = velocity + ((action - 1) * FORCE - jnp.cos(3 * position) * GRAVITY)
        velocity = jnp.clip(velocity, -MAX_SPEED, MAX_SPEED)
        position = jnp.clip(position + velocity, MIN_POSITION, MAX_POSITION)
        # the left end is a wall
        velocity = jnp.where((position == MIN_POSITION) & (velocity < 0), 0.0, velocity)
        terminated = (position >= GOAL) & (velocity >= 0)
        return Step(jnp.stack([position, velocity]), np.full((), -1.0, state.dtype), terminated)
