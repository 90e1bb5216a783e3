"""Acrobot: swing a double pendulum up by its middle joint (Sutton 1996), as in Gymnasium."""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from anchored import checks
from anchored.rl.environments.environment import Step
from anchored.types import Array, Key

# Both links have mass 1 kg, length 1 m and moment of inertia 1 kg m²: factors of 1 are left out below.
CENTRE = 0.5  # position of the centre of mass along a link, in m
GRAVITY = 9.8  # m/s²
TIME_STEP = 0.2  # seconds; one step of the classical Runge–Kutta method
MAX_ANGULAR_VELOCITIES = np.array([4 * math.pi, 9 * math.pi])  # rad/s


@dataclass(frozen=True)
class Acrobot:
    """Apply a torque of −1, 0 or 1 N m (action 0, 1 or 2) to the middle joint, to swing the tip up.

    An episode terminates when the tip is more than one link's length above the fixed end. The reward of every step is
    −1, except for 0 at the step that terminates the episode.

    The state is (angle of the first link, angle of the second relative to the first, and their velocities), in rad and
    rad/s; the observation has cosines and sines in place of the angles. The dynamics are those of Sutton and Barto's
    book, Gymnasium's default, without noise.

    Parameters
    ----------
    max_episode_steps
        Time limit of an episode, in steps.
    """

    max_episode_steps: int = 500

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
        return 6

    @property
    def observation_bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper bounds of the entries of an observation."""
        high = np.array([1, 1, 1, 1, *MAX_ANGULAR_VELOCITIES])
        return -high, high

    def reset(self, key: Key) -> Array:
        """Return the initial state of an episode, drawn from `key`."""
        return jax.random.uniform(key, (4,), jnp.result_type(float), -0.1, 0.1)

    def observe(self, state: Array) -> Array:
        """Return the observation of `state`, (6,)."""
        cosines, sines = jnp.cos(state[:2]), jnp.sin(state[:2])
        return jnp.concatenate([jnp.stack([cosines[0], sines[0], cosines[1], sines[1]]), state[2:]])

    def step(self, key: Key, state: Array, action: Array) -> Step:
        """Return the `Step` that follows `action` in `state`; `key` is not used."""
        torque = action - 1.0
        slope_1 = _derivative(state, torque)
        slope_2 = _derivative(state + TIME_STEP / 2 * slope_1, torque)
        slope_3 = _derivative(state + TIME_STEP / 2 * slope_2, torque)
        slope_4 = _derivative(state + TIME_STEP * slope_3, torque)
        state = state + TIME_STEP / 6 * (slope_1 + 2 * slope_2 + 2 * slope_3 + slope_4)
        bounds = MAX_ANGULAR_VELOCITIES.astype(state.dtype)
        state = jnp.concatenate([_wrap(state[:2]), jnp.clip(state[2:], -bounds, bounds)])
        terminated = -jnp.cos(state[0]) - jnp.cos(state[0] + state[1]) > 1
        return Step(state, jnp.where(terminated, 0.0, -1.0).astype(state.dtype), terminated)


def _derivative(state: Array, torque: Array) -> Array:
    """Return the time derivative of `state`, (4,), under `torque`, in N m."""
    angle_1, angle_2, angular_velocity_1, angular_velocity_2 = state
    cosine, sine = jnp.cos(angle_2), jnp.sin(angle_2)
    # The equations of motion, in which `weight_1` also has the centrifugal and Coriolis terms.
    inertia_1 = CENTRE**2 + (1 + CENTRE**2 + 2 * CENTRE * cosine) + 2
    inertia_2 = CENTRE**2 + CENTRE * cosine + 1
    # cos(x − π/2) instead of sin x: the two round differently, and Gymnasium uses the former.
    weight_2 = CENTRE * GRAVITY * jnp.cos(angle_1 + angle_2 - math.pi / 2)
    weight_1 = (
        -CENTRE * angular_velocity_2**2 * sine
        - 2 * CENTRE * angular_velocity_2 * angular_velocity_1 * sine
        + (CENTRE + 1) * GRAVITY * jnp.cos(angle_1 - math.pi / 2)
        + weight_2
    )
    torque_2 = torque + inertia_2 / inertia_1 * weight_1 - CENTRE * angular_velocity_1**2 * sine - weight_2
    angular_acceleration_2 = torque_2 / (CENTRE**2 + 1 - inertia_2**2 / inertia_1)
    angular_acceleration_1 = -(inertia_2 * angular_acceleration_2 + weight_1) / inertia_1
    return jnp.stack([angular_velocity_1, angular_velocity_2, angular_acceleration_1, angular_acceleration_2])


def _wrap(angles: Array) -> Array:
    """Return the angles wrapped to [−π, π]; both −π and π stay as they are, as in Gymnasium."""
    turns = jnp.ceil(jnp.maximum(jnp.abs(angles) - math.pi, 0.0) / (2 * math.pi))
    return angles - jnp.sign(angles) * turns * (2 * math.pi)
