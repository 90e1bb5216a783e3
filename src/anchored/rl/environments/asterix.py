"""Asterix: collect gold and avoid enemies, as in the package `minatar`."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from anchored.rl.environments.environment import Step
from anchored.rl.environments.minatar import (
    LAST,
    Action,
    MinAtarGame,
    cell,
    int32,
    is_on_grid,
    lanes,
    moved,
    step_right,
)
from anchored.types import Array, Key

N_LANES = 8  # rows in which things move
LANE_ROWS = np.arange(1, N_LANES + 1, dtype=np.int32)
LANES_ABOVE = np.tri(N_LANES, k=-1, dtype=bool)  # for each lane, a row with a mask of the lanes above it
SPAWN_INTERVAL, MOVE_INTERVAL = 10, 5  # at the start, in steps
RAMP_INTERVAL = 100  # in steps


class AsterixState(NamedTuple):
    """The player, and at most one thing in each of the lanes."""

    row: Array  # of the player
    column: Array  # of the player
    columns: Array  # (lanes,), of the things
    moves_right: Array  # (lanes,)
    is_gold: Array  # (lanes,), otherwise the thing is an enemy
    exists: Array  # (lanes,)
    spawn_timer: Array  # steps until a thing appears
    move_timer: Array  # steps until things move
    spawn_interval: Array
    move_interval: Array
    ramp_timer: Array  # steps until the game becomes faster
    n_ramps: Array  # how often it has become faster
    last_action: Array


class Noise(NamedTuple):
    """The random numbers of one step, uniform on [0, 1)."""

    sticky: Array
    direction: Array  # of a new thing
    kind: Array
    lane: Array


@dataclass(frozen=True)
class Asterix(MinAtarGame):
    """Move in four directions; gold is a reward of 1, and an enemy ends the episode.

    Enemies and gold appear at either side and move across, faster and faster. The channels are the player, enemies,
    the trails behind things, which show their direction, and gold. The actions are NOOP, LEFT, UP, RIGHT and DOWN.

    Parameters
    ----------
    sticky_action_prob, max_episode_steps
        See `MinAtarGame`.
    difficulty_ramping
        Whether things appear and move faster the longer an episode lasts.
    """

    difficulty_ramping: bool = True

    actions: ClassVar = (Action.NOOP, Action.LEFT, Action.UP, Action.RIGHT, Action.DOWN)
    n_channels: ClassVar = 4

    def reset(self, key: Key) -> AsterixState:
        """Return the initial state of an episode; `key` is not used."""
        zero, none = int32(0), np.zeros(N_LANES, bool)
        return AsterixState(
            row=int32(5),
            column=int32(5),
            columns=np.zeros(N_LANES, np.int32),
            moves_right=none,
            is_gold=none,
            exists=none,
            spawn_timer=int32(SPAWN_INTERVAL),
            move_timer=int32(MOVE_INTERVAL),
            spawn_interval=int32(SPAWN_INTERVAL),
            move_interval=int32(MOVE_INTERVAL),
            ramp_timer=int32(RAMP_INTERVAL),
            n_ramps=zero,
            last_action=zero,
        )

    def observe(self, state: AsterixState) -> Array:
        """Return the observation of `state`, (10, 10, 4)."""
        behind = state.columns - step_right(state.moves_right)
        return jnp.stack(
            [
                cell(state.row, state.column),
                lanes(state.columns, state.exists & ~state.is_gold),
                lanes(behind, state.exists),
                lanes(state.columns, state.exists & state.is_gold),
            ],
            axis=-1,
        )

    def step(self, key: Key, state: AsterixState, action: Array) -> Step:
        """Return the `Step` that follows `action` in `state`, with random numbers from `key`."""
        return self.transition(state, action, Noise(*jax.random.uniform(key, (4,))))

    def transition(self, state: AsterixState, action: Array, noise: Noise) -> Step:
        """Return the `Step` that follows `action` in `state`, with the random numbers `noise`."""
        action = self.taken_action(action, state.last_action, noise.sticky)
        state = _spawn(state, noise)._replace(
            row=moved(state.row, action == Action.UP, action == Action.DOWN, 1, LAST - 1),
            column=moved(state.column, action == Action.LEFT, action == Action.RIGHT),
            last_action=action,
        )
        state, n_collected, is_caught = _touch(state)
        state = _move_things(state)
        state, n_collected_after, is_caught_after = _touch(state)
        if self.difficulty_ramping:
            state = _ramp(state)
        reward = (n_collected + n_collected_after).astype(jnp.result_type(float))
        return Step(state, reward, is_caught | is_caught_after)


def _spawn(state: AsterixState, noise: Noise) -> AsterixState:
    """Return the state after a thing has appeared in a random empty lane, if it is time."""
    is_due, is_empty = state.spawn_timer == 0, ~state.exists
    n_empty_above = jnp.sum(LANES_ABOVE & is_empty, 1)  # faster than a cumulative sum
    is_new = is_due & is_empty & (n_empty_above == jnp.floor(noise.lane * is_empty.sum()))
    moves_right = noise.direction < 1 / 2
    return state._replace(
        columns=jnp.where(is_new, jnp.where(moves_right, 0, LAST), state.columns).astype(np.int32),
        moves_right=jnp.where(is_new, moves_right, state.moves_right),
        is_gold=jnp.where(is_new, noise.kind < 1 / 3, state.is_gold),
        exists=state.exists | is_new,
        spawn_timer=jnp.where(is_due, state.spawn_interval, state.spawn_timer) - 1,
    )


def _touch(state: AsterixState) -> tuple[AsterixState, Array, Array]:
    """Return the state without the gold that the player collects, its amount, and whether the player meets an enemy."""
    is_here = state.exists & (state.row == LANE_ROWS) & (state.column == state.columns)
    is_collected = is_here & state.is_gold
    state = state._replace(exists=state.exists & ~is_collected)
    return state, is_collected.sum(dtype=np.int32), jnp.any(is_here & ~is_collected)


def _move_things(state: AsterixState) -> AsterixState:
    """Return the state after all things have moved by a column, if it is time."""
    is_due = state.move_timer == 0
    columns = jnp.where(is_due, state.columns + step_right(state.moves_right), state.columns)
    return state._replace(
        columns=columns,
        exists=state.exists & is_on_grid(columns),
        move_timer=jnp.where(is_due, state.move_interval, state.move_timer) - 1,
    )


def _ramp(state: AsterixState) -> AsterixState:
    """Return the state after the game has become faster, if it is time; movement is faster only every other time."""
    can_ramp = (state.spawn_interval > 1) | (state.move_interval > 1)
    is_due = can_ramp & (state.ramp_timer < 0)
    moves_faster = is_due & (state.move_interval > 1) & (state.n_ramps % 2 == 1)
    return state._replace(
        spawn_interval=state.spawn_interval - (is_due & (state.spawn_interval > 1)),
        move_interval=state.move_interval - moves_faster,
        ramp_timer=jnp.where(is_due, RAMP_INTERVAL, state.ramp_timer - can_ramp),
        n_ramps=state.n_ramps + is_due,
    )
