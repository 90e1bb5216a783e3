"""Breakout: break bricks with a ball that a paddle must catch, as in the package `minatar`."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from anchored.rl.environments.environment import Step
from anchored.rl.environments.minatar import COLUMNS, LAST, SIZE, Action, MinAtarGame, cell, int32, is_on_grid, moved
from anchored.types import Array, Key

BRICK_ROWS = np.arange(1, 4, dtype=np.int32)


class BreakoutState(NamedTuple):
    """The paddle, the ball and the bricks."""

    paddle: Array  # its column, in the bottom row
    row: Array  # of the ball, from 0 at the top
    column: Array  # of the ball
    last_row: Array  # of the ball, one step before
    last_column: Array  # of the ball, one step before
    step_down: Array  # 1 if the ball moves down, −1 if up
    step_right: Array  # 1 if it moves right, −1 if left
    bricks: Array  # (3, 10), whether each brick is left
    is_in_bricks: Array  # whether the ball hit a brick in the last step; only the first hit of a series breaks one
    last_action: Array


class Noise(NamedTuple):
    """The random number of one step, uniform on [0, 1)."""

    sticky: Array


@dataclass(frozen=True)
class Breakout(MinAtarGame):
    """Move the paddle; each broken brick is a reward of 1, and a missed ball ends the episode.

    The ball moves diagonally. When all bricks are broken there are new ones. The channels are the paddle, the ball,
    its trail, which shows its direction, and bricks. The actions are NOOP, LEFT and RIGHT.

    Parameters
    ----------
    sticky_action_prob, max_episode_steps
        See `MinAtarGame`.
    """

    actions: ClassVar = (Action.NOOP, Action.LEFT, Action.RIGHT)
    n_channels: ClassVar = 4

    def reset(self, key: Key) -> BreakoutState:
        """Return the initial state of an episode, with the side where the ball starts drawn from `key`."""
        return self.start(jax.random.bernoulli(key))

    def start(self, from_right: Array) -> BreakoutState:
        """Return the initial state with the ball at the left, or at the right if the boolean `from_right` is true."""
        row, column = int32(3), jnp.where(from_right, LAST, 0).astype(np.int32)
        return BreakoutState(
            paddle=int32(4),
            row=row,
            column=column,
            last_row=row,
            last_column=column,
            step_down=int32(1),
            step_right=jnp.where(from_right, -1, 1).astype(np.int32),
            bricks=np.ones((len(BRICK_ROWS), SIZE), bool),
            is_in_bricks=np.zeros((), bool),
            last_action=int32(0),
        )

    def observe(self, state: BreakoutState) -> Array:
        """Return the observation of `state`, (10, 10, 4)."""
        n_above = int(BRICK_ROWS[0])
        return jnp.stack(
            [
                cell(LAST, state.paddle),
                cell(state.row, state.column),
                cell(state.last_row, state.last_column),
                jnp.pad(state.bricks, ((n_above, SIZE - n_above - len(BRICK_ROWS)), (0, 0))),
            ],
            axis=-1,
        )

    def step(self, key: Key, state: BreakoutState, action: Array) -> Step:
        """Return the `Step` that follows `action` in `state`, with random numbers from `key`."""
        return self.transition(state, action, Noise(jax.random.uniform(key)))

    def transition(self, state: BreakoutState, action: Array, noise: Noise) -> Step:
        """Return the `Step` that follows `action` in `state`, with the random number `noise`."""
        action = self.taken_action(action, state.last_action, noise.sticky)
        paddle = moved(state.paddle, action == Action.LEFT, action == Action.RIGHT)
        row, column = state.row + state.step_down, state.column + state.step_right
        step_right = jnp.where(is_on_grid(column), state.step_right, -state.step_right)
        column = jnp.clip(column, 0, LAST)

        is_at_ceiling = row < 0
        brick = state.bricks & (row == BRICK_ROWS[:, None]) & (column == COLUMNS)
        hits_brick = jnp.any(brick)
        breaks_brick = hits_brick & ~state.is_in_bricks
        bricks = state.bricks & ~(brick & breaks_brick)

        is_at_bottom = row == LAST
        bricks = bricks | (is_at_bottom & ~jnp.any(bricks))
        is_caught = is_at_bottom & (state.column == paddle)
        is_caught_by_edge = is_at_bottom & ~is_caught & (column == paddle)  # the ball returns the way it came
        returns = breaks_brick | is_caught | is_caught_by_edge

        next_state = BreakoutState(
            paddle=paddle,
            row=jnp.where(returns, state.row, jnp.maximum(row, 0)),
            column=column,
            last_row=state.row,
            last_column=state.column,
            step_down=jnp.where(returns | is_at_ceiling, -state.step_down, state.step_down),
            step_right=jnp.where(is_caught_by_edge, -step_right, step_right),
            bricks=bricks,
            is_in_bricks=hits_brick,
            last_action=action,
        )
        is_missed = is_at_bottom & ~is_caught & ~is_caught_by_edge
        return Step(next_state, breaks_brick.astype(jnp.result_type(float)), is_missed)
