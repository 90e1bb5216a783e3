"""CartPole: balance a pole on a cart (Barto, Sutton and Anderson 1983), as in Gymnasium."""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from anchored import checks
from anchored.rl.environments.environment import Step
from anchored.types import Array, Key

GRAVITY = 9.8  # m/s²
POLE_MASS = 0.1  # kg
TOTAL_MASS = POLE_MASS + 1.0  # kg
HALF_LENGTH = 0.5  # of the pole, in m
POLE_MOMENT = POLE_MASS * HALF_LENGTH  # kg m
FORCE = 10.0  # N
TIME_STEP = 0.02  # seconds; one step of the explicit Euler method
MAX_ANGLE = 12 * 2 * math.pi / 360  # 12°, in rad
MAX_POSITION = 2.4  # m


@dataclass(frozen=True)
class CartPole:
    """Push the cart left (action 0) or right (1); the reward is 1 until the pole falls or the cart leaves the track.

    State and observation are (position in m, velocity in m/s, angle in rad, angular velocity in rad/s).

    Parameters
    ----------
    max_episode_steps
        Time limit of an episode, in steps: 200 as in CartPole-v0; CartPole-v1 has 500.
    """

    max_episode_steps: int = 200

    def __post_init__(self) -> None:
        checks.whole("max_episode_steps", self.max_episode_steps, 1)

    @property
    def n_actions(self) -> int:
        """The number of actions."""
        return 2

    @property
    def n_observations(self) -> None:
        """None, since observations are vectors."""
        return None

    @property
    def observation_size(self) -> int:
        """The length of an observation."""
        return 4

    @property
    def observation_bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper bounds of the entries of an observation; −1 and 1 for velocities, which are unbounded."""
        high = np.array([2 * MAX_POSITION, 1, 2 * MAX_ANGLE, 1])
        return -high, high

    def reset(self, key: Key) -> Array:
        """Return the initial state of an episode, drawn from `key`."""
        return jax.random.uniform(key, (4,), jnp.result_type(float), -0.05, 0.05)

    def observe(self, state: Array) -> Array:
        """Return the observation of `state`: the state itself."""
        return state

    def step(self, key: Key, state: Array, action: Array) -> Step:
        """Return the `Step` that follows `action` in `state`; `key` is not used."""
        _, velocity, angle, angular_velocity = state
        cosine, sine = jnp.cos(angle), jnp.sin(angle)
        push = (jnp.where(action == 1, FORCE, -FORCE) + POLE_MOMENT * angular_velocity**2 * sine) / TOTAL_MASS
        angular_acceleration = (GRAVITY * sine - cosine * push) / (
            HALF_LENGTH * (4 / 3 - POLE_MASS * cosine**2 / TOTAL_MASS)
        )
        acceleration = push - POLE_MOMENT * angular_acceleration * cosine / TOTAL_MASS
        state = state + TIME_STEP * jnp.stack([velocity, acceleration, angular_velocity, angular_acceleration])
        terminated = (jnp.abs(state[0]) > MAX_POSITION) | (jnp.abs(state[2]) > MAX_ANGLE)
        return Step(state, np.ones((), state.dtype), terminated)
