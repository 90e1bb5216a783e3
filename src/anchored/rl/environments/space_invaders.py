"""Space invaders: shoot a cluster of aliens that comes nearer, as in the package `minatar`."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from anchored.rl.environments.environment import Step
from anchored.rl.environments.minatar import COLUMNS, LAST, ROWS, SIZE, Action, MinAtarGame, cell, int32, moved
from anchored.types import Array, Key

WAVE = (ROWS < 4) & (COLUMNS >= 2) & (COLUMNS < 8)  # cells of a new cluster of aliens
RELOAD_TIME = 5  # steps between shots of the player
SHOT_INTERVAL = 10  # steps between shots of the aliens
MOVE_INTERVAL, SHORTEST_MOVE_INTERVAL = 12, 6  # steps between moves of the first and of later clusters


class SpaceInvadersState(NamedTuple):
    """The player, the aliens and the bullets; grids are (10, 10)."""

    column: Array  # of the player, in the bottom row
    reload_timer: Array  # steps until the player can shoot
    aliens: Array  # a grid
    step_right: Array  # 1 if the aliens move right, −1 if left
    move_interval: Array  # steps between moves of a large cluster
    move_timer: Array  # steps until the aliens move
    shot_timer: Array  # steps until an alien shoots
    bullets: Array  # a grid, of the player's
    alien_bullets: Array  # a grid
    last_action: Array


class Noise(NamedTuple):
    """The random number of one step, uniform on [0, 1)."""

    sticky: Array


@dataclass(frozen=True)
class SpaceInvaders(MinAtarGame):
    """Move left or right and shoot; each alien hit is a reward of 1, and the episode ends when the player is hit.

    The aliens move sideways, and down whenever they reach a side. Fewer aliens move faster, and the alien that is
    nearest to the player shoots. The channels are the player, aliens, aliens that move left, aliens that move right,
    the player's bullets and the aliens' bullets. The actions are NOOP, LEFT, RIGHT and FIRE.

    Parameters
    ----------
    sticky_action_prob, max_episode_steps
        See `MinAtarGame`.
    difficulty_ramping
        Whether each new cluster of aliens moves faster than the one before.
    """

    difficulty_ramping: bool = True

    actions: ClassVar = (Action.NOOP, Action.LEFT, Action.RIGHT, Action.FIRE)
    n_channels: ClassVar = 6

    def reset(self, key: Key) -> SpaceInvadersState:
        """Return the initial state of an episode; `key` is not used."""
        empty = np.zeros((SIZE, SIZE), bool)
        return SpaceInvadersState(
            column=int32(5),
            reload_timer=int32(0),
            aliens=WAVE,
            step_right=int32(-1),
            move_interval=int32(MOVE_INTERVAL),
            move_timer=int32(MOVE_INTERVAL),
            shot_timer=int32(SHOT_INTERVAL),
            bullets=empty,
            alien_bullets=empty,
            last_action=int32(0),
        )

    def observe(self, state: SpaceInvadersState) -> Array:
        """Return the observation of `state`, (10, 10, 6)."""
        moves_left = state.step_right < 0
        return jnp.stack(
            [
                cell(LAST, state.column),
                state.aliens,
                state.aliens & moves_left,
                state.aliens & ~moves_left,
                state.bullets,
                state.alien_bullets,
            ],
            axis=-1,
        )

    def step(self, key: Key, state: SpaceInvadersState, action: Array) -> Step:
        """Return the `Step` that follows `action` in `state`, with random numbers from `key`."""
        return self.transition(state, action, Noise(jax.random.uniform(key)))

    def transition(self, state: SpaceInvadersState, action: Array, noise: Noise) -> Step:
        """Return the `Step` that follows `action` in `state`, with the random number `noise`."""
        action = self.taken_action(action, state.last_action, noise.sticky)
        fires = (action == Action.FIRE) & (state.reload_timer == 0)
        # A new bullet moves at once, from the bottom row, where there are no others, to the row above.
        bullets = jnp.roll(state.bullets | (fires & cell(LAST, state.column)), -1, 0) & (ROWS < LAST)
        column = moved(state.column, action == Action.LEFT, action == Action.RIGHT)
        player = cell(LAST, column)
        alien_bullets = jnp.roll(state.alien_bullets, 1, 0) & (ROWS > 0)
        is_hit = jnp.any(player & (alien_bullets | state.aliens))

        state, has_landed = _move_aliens(state)
        is_hit |= has_landed | jnp.any(player & state.aliens)
        shoots = state.shot_timer == 0
        alien_bullets |= shoots & _nearest_alien(state.aliens, column)
        killed = state.aliens & bullets

        aliens = state.aliens & ~killed
        is_cleared = ~jnp.any(aliens)
        is_faster = is_cleared & (state.move_interval > SHORTEST_MOVE_INTERVAL) & self.difficulty_ramping
        next_state = state._replace(
            column=column,
            reload_timer=jnp.maximum(jnp.where(fires, RELOAD_TIME, state.reload_timer) - 1, 0).astype(np.int32),
            aliens=aliens | (is_cleared & WAVE),
            move_interval=state.move_interval - is_faster,
            shot_timer=(jnp.where(shoots, SHOT_INTERVAL, state.shot_timer) - 1).astype(np.int32),
            bullets=bullets & ~killed,
            alien_bullets=alien_bullets,
            last_action=action,
        )
        return Step(next_state, killed.sum(dtype=jnp.result_type(float)), is_hit)


def _move_aliens(state: SpaceInvadersState) -> tuple[SpaceInvadersState, Array]:
    """Return the state after the aliens have moved, if it is time, and whether they went down from the bottom row."""
    aliens, is_due = state.aliens, state.move_timer == 0
    side = jnp.where(state.step_right < 0, 0, LAST)
    turns = jnp.any(aliens & (side == COLUMNS))
    sideways = jnp.where(state.step_right < 0, jnp.roll(aliens, -1, 1), jnp.roll(aliens, 1, 1))
    moved_aliens = jnp.where(turns, jnp.roll(aliens, 1, 0), sideways)
    interval = jnp.minimum(aliens.sum(dtype=np.int32), state.move_interval)
    moved_state = state._replace(
        aliens=jnp.where(is_due, moved_aliens, aliens),
        step_right=jnp.where(is_due & turns, -state.step_right, state.step_right),
        move_timer=jnp.where(is_due, interval, state.move_timer) - 1,
    )
    return moved_state, is_due & turns & jnp.any(aliens[LAST])


def _nearest_alien(aliens: Array, column: Array) -> Array:
    """Return a grid with the lowest alien in the nearest column, to the left of `column` if two are equally near."""
    distance = jnp.where(jnp.any(aliens, 0), jnp.abs(COLUMNS - column), SIZE)
    lowest = jnp.max(jnp.where(aliens, ROWS, -1), 0)
    return (jnp.argmin(distance) == COLUMNS) & (lowest == ROWS)
