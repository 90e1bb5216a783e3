"""Freeway: cross a road with eight lanes, again and again, as in the package `minatar`."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from anchored.rl.environments.environment import Step
from anchored.rl.environments.minatar import (
    LAST,
    LONGEST_TIMER,
    SIZE,
    Action,
    MinAtarGame,
    cell,
    int32,
    lanes,
    moved,
    step_right,
)
from anchored.types import Array, Key

N_LANES = 8
LANE_ROWS = np.arange(1, N_LANES + 1, dtype=np.int32)
SLOWEST = 5  # the largest number of steps that a car waits between moves
PLAYER_COLUMN = 4
PLAYER_INTERVAL = 3  # the player can move in every third step at most
TIME_LIMIT = LONGEST_TIMER  # the episode ends in the step after this many


class FreewayState(NamedTuple):
    """The player, and one car in each lane."""

    row: Array  # of the player
    player_timer: Array  # steps until the player can move
    columns: Array  # (lanes,), of the cars
    moves_right: Array  # (lanes,)
    interval: Array  # (lanes,), steps that a car waits between moves, from 1 to SLOWEST
    car_timer: Array  # (lanes,), steps until a car moves
    n_steps_left: Array
    last_action: Array


class Noise(NamedTuple):
    """The random numbers of one step, uniform on [0, 1)."""

    sticky: Array
    interval: Array  # (lanes,), for the cars' new intervals after a crossing
    direction: Array  # (lanes,), for their new directions


@dataclass(frozen=True)
class Freeway(MinAtarGame):
    """Move up or down through the traffic; each crossing is a reward of 1.

    A player who is hit by a car, or has crossed the road, is back at the bottom; after a crossing the cars have new
    speeds and directions. An episode ends after 2,501 steps. The channels are the player, the cars, and for each of the
    five speeds, fastest first, the trails behind cars, which show their directions. The actions are NOOP, UP and DOWN.

    Parameters
    ----------
    sticky_action_prob, max_episode_steps
        See `MinAtarGame`.
    """

    actions: ClassVar = (Action.NOOP, Action.UP, Action.DOWN)
    n_channels: ClassVar = 2 + SLOWEST

    def reset(self, key: Key) -> FreewayState:
        """Return the initial state of an episode, with speeds and directions of cars drawn from `key`."""
        interval, direction = jax.random.uniform(key, (2, N_LANES))
        return self.start(interval, direction)

    def start(self, interval: Array, direction: Array) -> FreewayState:
        """Return the initial state for random numbers `interval` and `direction`, (lanes,) each, uniform on [0, 1)."""
        interval, moves_right = _random_cars(interval, direction)
        return FreewayState(
            row=int32(LAST),
            player_timer=int32(PLAYER_INTERVAL),
            columns=np.zeros(N_LANES, np.int32),
            moves_right=moves_right,
            interval=interval,
            car_timer=interval,
            n_steps_left=int32(TIME_LIMIT),
            last_action=int32(0),
        )

    def observe(self, state: FreewayState) -> Array:
        """Return the observation of `state`, (10, 10, 7)."""
        behind = (state.columns - step_right(state.moves_right)) % SIZE
        return jnp.stack(
            [
                cell(state.row, PLAYER_COLUMN),
                lanes(state.columns, np.ones(N_LANES, bool)),
                *(lanes(behind, state.interval == interval) for interval in range(1, SLOWEST + 1)),
            ],
            axis=-1,
        )

    def step(self, key: Key, state: FreewayState, action: Array) -> Step:
        """Return the `Step` that follows `action` in `state`, with random numbers from `key`."""
        uniform = jax.random.uniform(key, (1 + 2 * N_LANES,))
        return self.transition(state, action, Noise(uniform[0], uniform[1 : N_LANES + 1], uniform[N_LANES + 1 :]))

    def transition(self, state: FreewayState, action: Array, noise: Noise) -> Step:
        """Return the `Step` that follows `action` in `state`, with the random numbers `noise`."""
        action = self.taken_action(action, state.last_action, noise.sticky)
        can_move = state.player_timer == 0
        goes_up, goes_down = can_move & (action == Action.UP), can_move & (action == Action.DOWN)
        row = moved(state.row, goes_up, goes_down)
        player_timer = jnp.where(goes_up | goes_down, PLAYER_INTERVAL, state.player_timer)

        has_crossed = row == 0
        row = jnp.where(has_crossed, LAST, row)
        interval, moves_right = _random_cars(noise.interval, noise.direction)
        interval = jnp.where(has_crossed, interval, state.interval)
        moves_right = jnp.where(has_crossed, moves_right, state.moves_right)
        car_timer = jnp.where(has_crossed, interval, state.car_timer)

        is_due = car_timer == 0
        columns = jnp.where(is_due, (state.columns + step_right(moves_right)) % SIZE, state.columns)
        is_hit = (row == LANE_ROWS) & ((state.columns == PLAYER_COLUMN) | (columns == PLAYER_COLUMN))
        next_state = FreewayState(
            row=jnp.where(jnp.any(is_hit), LAST, row).astype(np.int32),
            player_timer=jnp.maximum(player_timer - 1, 0).astype(np.int32),
            columns=columns,
            moves_right=moves_right,
            interval=interval,
            car_timer=jnp.where(is_due, interval, car_timer - 1),
            n_steps_left=state.n_steps_left - 1,
            last_action=action,
        )
        return Step(next_state, has_crossed.astype(jnp.result_type(float)), next_state.n_steps_left < 0)


def _random_cars(interval: Array, direction: Array) -> tuple[Array, Array]:
    """Return the intervals between moves of all cars, and whether they move right, (lanes,) each, from uniforms."""
    return 1 + jnp.floor(SLOWEST * interval).astype(np.int32), direction > 1 / 2
