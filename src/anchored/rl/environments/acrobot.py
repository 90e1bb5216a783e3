"""Acrobot: swing a double pendulum up by its middle joint (Sutton 1996), as in Gymnasium."""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from anchored import checks
from anchored.rl.environments.environment import Step
from anchored.types import Array, Key

# Both links weigh 1, have length 1 and moment of inertia 1: factors of 1 are left out below.
CENTRE = 0.5  # of mass, along a link
GRAVITY = 9.8
SECONDS = 0.2  # between steps, by one step of the classical Runge–Kutta rule
MAX_SPINS = np.array([4 * math.pi, 9 * math.pi])


@dataclass(frozen=True)
class Acrobot:
    """Turn the middle joint by −1 (0), 0 (1) or 1 (2); every step costs 1 until the tip is above the line.

    The state is (angle of the first link, angle of the second relative to the first, and their velocities), in rad and
    rad/s; the observation has cosines and sines in place of the angles. The dynamics are those of Sutton and Barto's
    book, Gymnasium's default, without noise.

    Parameters
    ----------
    max_episode_steps
        The time limit.
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
        """None: observations are vectors."""
        return None

    @property
    def observation_size(self) -> int:
        """The length of an observation."""
        return 6

    @property
    def observation_bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper bounds of the observation's entries."""
        high = np.array([1, 1, 1, 1, *MAX_SPINS])
        return -high, high

    def reset(self, key: Key) -> Array:
        """The initial state of an episode, drawn from `key`."""
        return jax.random.uniform(key, (4,), jnp.result_type(float), -0.1, 0.1)

    def observe(self, state: Array) -> Array:
        """The observation of `state`, (6,)."""
        cosines, sines = jnp.cos(state[:2]), jnp.sin(state[:2])
        return jnp.concatenate([jnp.stack([cosines[0], sines[0], cosines[1], sines[1]]), state[2:]])

    def step(self, key: Key, state: Array, action: Array) -> Step:
        """The result of `action` in `state`; `key` is not used."""
        torque = action - 1.0
        slope_1 = _slope(state, torque)
        slope_2 = _slope(state + SECONDS / 2 * slope_1, torque)
        slope_3 = _slope(state + SECONDS / 2 * slope_2, torque)
        slope_4 = _slope(state + SECONDS * slope_3, torque)
        state = state + SECONDS / 6 * (slope_1 + 2 * slope_2 + 2 * slope_3 + slope_4)
        bounds = MAX_SPINS.astype(state.dtype)
        state = jnp.concatenate([_wrap(state[:2]), jnp.clip(state[2:], -bounds, bounds)])
        terminated = -jnp.cos(state[0]) - jnp.cos(state[0] + state[1]) > 1
        return Step(state, jnp.where(terminated, 0.0, -1.0).astype(state.dtype), terminated)


def _slope(state: Array, torque: Array) -> Array:
    """The time derivative of the state."""
    angle_1, angle_2, spin_1, spin_2 = state
    cosine, sine = jnp.cos(angle_2), jnp.sin(angle_2)
    inertia_1 = CENTRE**2 + (1 + CENTRE**2 + 2 * CENTRE * cosine) + 2
    inertia_2 = CENTRE**2 + CENTRE * cosine + 1
    # cos(x − π/2) and not sin x: the two round differently, and Gymnasium takes the former
    weight_2 = CENTRE * GRAVITY * jnp.cos(angle_1 + angle_2 - math.pi / 2)
    weight_1 = (
        -CENTRE * spin_2**2 * sine
        - 2 * CENTRE * spin_2 * spin_1 * sine
        + (CENTRE + 1) * GRAVITY * jnp.cos(angle_1 - math.pi / 2)
        + weight_2
    )
    pull = torque + inertia_2 / inertia_1 * weight_1 - CENTRE * spin_1**2 * sine - weight_2
    spin_change_2 = pull / (CENTRE**2 + 1 - inertia_2**2 / inertia_1)
    spin_change_1 = -(inertia_2 * spin_change_2 + weight_1) / inertia_1
    return jnp.stack([spin_1, spin_2, spin_change_1, spin_change_2])


def _wrap(angles: Array) -> Array:
    """The same angles between −π and π; both ends stay where they are, as in Gymnasium."""
    turns = jnp.ceil(jnp.maximum(jnp.abs(angles) - math.pi, 0.0) / (2 * math.pi))
    return angles - jnp.sign(angles) * turns * (2 * math.pi)
