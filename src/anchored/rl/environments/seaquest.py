"""Seaquest: shoot enemies and rescue divers before the oxygen is used up, as in the package `minatar`.

The package keeps bullets, divers and enemies in lists, which here are arrays of fixed size. It handles the things in a
list one after another. This matters only where several share a cell, and is reproduced there.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from anchored.rl.environments.environment import Step
from anchored.rl.environments.minatar import (
    COLUMNS,
    LAST,
    ROWS,
    Action,
    MinAtarGame,
    cell,
    cells,
    int32,
    is_on_grid,
    moved,
    step_right,
)
from anchored.rl.environments.seaquest_things import (
    N_BULLETS,
    N_DIVERS,
    N_ENEMIES,
    NOWHERE,
    Bullets,
    Divers,
    Enemies,
    appearance,
    compacted,
    first_free,
    nothing,
    only_first,
    put,
    trails,
)
from anchored.types import Array, Key

MAX_OXYGEN = 200
MAX_ABOARD = 6  # number of divers
RELOAD_TIME = 5  # steps between shots of the player
DIVER_SPAWN_INTERVAL, DIVER_MOVE_INTERVAL = 30, 5  # in steps
ENEMY_SPAWN_INTERVAL, ENEMY_MOVE_INTERVAL = 20, 5  # at the start, in steps
SHORTEST_MOVE_INTERVAL = 2  # of enemies
SHOT_INTERVAL = 10  # steps that an enemy submarine waits between shots


class SeaquestState(NamedTuple):
    """The player and everything in the sea."""

    row: Array  # of the player's submarine, 0 at the surface
    column: Array  # of its front
    faces_right: Array
    reload_timer: Array  # steps until the player can shoot
    oxygen: Array  # steps that it lasts
    n_aboard: Array  # number of rescued divers; −1 after six have been brought to the surface, as in the package
    is_at_surface: Array  # whether the surface has been reached and counted
    bullets: Bullets
    divers: Divers
    enemies: Enemies
    next_enemy: Array  # index of the next enemy in the ring
    diver_spawn_timer: Array
    enemy_spawn_timer: Array
    enemy_spawn_interval: Array
    enemy_move_interval: Array
    n_ramps: Array  # how often the game has become faster
    last_action: Array


class Noise(NamedTuple):
    """The random numbers of one step, uniform on [0, 1)."""

    sticky: Array
    enemy_direction: Array
    enemy_kind: Array
    enemy_row: Array
    diver_direction: Array
    diver_row: Array


@dataclass(frozen=True)
class Seaquest(MinAtarGame):
    """Move in four directions and shoot; each enemy hit is a reward of 1.

    At the surface the oxygen is filled up, one diver leaves, and enemies become faster. With six divers aboard, the
    reward there is the number of cells that the oxygen gauge shows. The episode ends when an enemy or its bullet hits
    the player, when the oxygen is used up, and when the player surfaces without a diver. The channels are the front
    and the back of the submarine, its bullets, the trails behind things, which show their direction, bullets, fish and
    submarines of the enemy, the gauges of oxygen and of divers aboard, and divers. All six actions have an effect.

    Parameters
    ----------
    sticky_action_prob, max_episode_steps
        See `MinAtarGame`.
    difficulty_ramping
        Whether enemies become faster and more frequent whenever the player surfaces.
    """

    difficulty_ramping: bool = True

    actions: ClassVar = tuple(Action)
    n_channels: ClassVar = 10

    def reset(self, key: Key) -> SeaquestState:
        """Return the initial state of an episode; `key` is not used."""
        enemies = nothing(Enemies, N_ENEMIES)._replace(bullet_column=np.full(N_ENEMIES, NOWHERE))
        return SeaquestState(
            row=int32(0),
            column=int32(5),
            faces_right=np.zeros((), bool),
            reload_timer=int32(0),
            oxygen=int32(MAX_OXYGEN),
            n_aboard=int32(0),
            is_at_surface=np.ones((), bool),
            bullets=nothing(Bullets, N_BULLETS),
            divers=nothing(Divers, N_DIVERS),
            enemies=enemies,
            next_enemy=int32(0),
            diver_spawn_timer=int32(DIVER_SPAWN_INTERVAL),
            enemy_spawn_timer=int32(ENEMY_SPAWN_INTERVAL),
            enemy_spawn_interval=int32(ENEMY_SPAWN_INTERVAL),
            enemy_move_interval=int32(ENEMY_MOVE_INTERVAL),
            n_ramps=int32(0),
            last_action=int32(0),
        )

    def observe(self, state: SeaquestState) -> Array:
        """Return the observation of `state`, (10, 10, 10)."""
        bullets, divers, enemies = state.bullets, state.divers, state.enemies
        n_oxygen_cells = jnp.maximum(state.oxygen, 0) * 10 // MAX_OXYGEN
        is_bottom = ROWS == LAST
        return jnp.stack(
            [
                cell(state.row, state.column),
                cell(state.row, state.column - step_right(state.faces_right)),
                cells(bullets.row, bullets.column, bullets.exists),
                trails(divers) | trails(enemies),
                cells(enemies.row, enemies.bullet_column, np.ones(N_ENEMIES, bool)),
                cells(enemies.row, enemies.column, enemies.exists & ~enemies.is_submarine),
                cells(enemies.row, enemies.column, enemies.exists & enemies.is_submarine),
                is_bottom & (n_oxygen_cells > COLUMNS),
                is_bottom & (COLUMNS < LAST) & (LAST - state.n_aboard <= COLUMNS),
                cells(divers.row, divers.column, divers.exists),
            ],
            axis=-1,
        )

    def step(self, key: Key, state: SeaquestState, action: Array) -> Step:
        """Return the `Step` that follows `action` in `state`, with random numbers from `key`."""
        return self.transition(state, action, Noise(*jax.random.uniform(key, (6,))))

    def transition(self, state: SeaquestState, action: Array, noise: Noise) -> Step:
        """Return the `Step` that follows `action` in `state`, with the random numbers `noise`."""
        action = self.taken_action(action, state.last_action, noise.sticky)
        state = _spawn_diver(_spawn_enemy(state, noise), noise)
        state = _move_player(state, action)
        state, n_shot = _move_bullets(state)
        state = _move_divers(state)
        state, n_met, is_hit = _move_enemies(state)
        state, surface_reward, is_drowned = self._breathe(state)
        reward = (n_shot + n_met + surface_reward).astype(jnp.result_type(float))
        return Step(state, reward, is_hit | is_drowned)

    def _breathe(self, state: SeaquestState) -> tuple[SeaquestState, Array, Array]:
        """Use up or fill up the oxygen; return the state, the reward at the surface, and whether the episode ends."""
        is_below, is_empty = state.row > 0, state.oxygen <= 0
        surfaces = ~is_below & ~state.is_at_surface
        is_counted = surfaces & (state.n_aboard != 0)
        is_full = state.n_aboard == MAX_ABOARD
        reward = jnp.where(is_counted & is_full, state.oxygen * 10 // MAX_OXYGEN, 0)
        n_left = jnp.where(is_full, 0, state.n_aboard) - 1
        next_state = state._replace(
            oxygen=jnp.where(is_counted, MAX_OXYGEN, state.oxygen - is_below).astype(np.int32),
            n_aboard=jnp.where(is_counted, n_left, state.n_aboard).astype(np.int32),
            is_at_surface=~is_below & (state.is_at_surface | is_counted),
        )
        if self.difficulty_ramping:
            next_state = _ramp(next_state, is_counted)
        return next_state, reward, is_empty | (surfaces & ~is_counted)


def _spawn_enemy(state: SeaquestState, noise: Noise) -> SeaquestState:
    """Return the state with a new enemy, if it is time and its row has no enemy of the opposite direction."""
    enemies, is_due = state.enemies, state.enemy_spawn_timer == 0
    row, column, moves_right = appearance(noise.enemy_direction, noise.enemy_row)
    is_blocked = jnp.any(enemies.exists & (enemies.row == row) & (enemies.moves_right != moves_right))
    appears = is_due & ~is_blocked
    new = Enemies(
        row=row,
        column=column,
        moves_right=moves_right,
        is_submarine=noise.enemy_kind < 1 / 3,
        timer=state.enemy_move_interval,
        shot_timer=int32(SHOT_INTERVAL),
        bullet_column=NOWHERE,
        exists=np.ones((), bool),
    )
    return state._replace(
        enemies=put(enemies, new, appears & (np.arange(N_ENEMIES, dtype=np.int32) == state.next_enemy)),
        next_enemy=(state.next_enemy + appears) % N_ENEMIES,
        enemy_spawn_timer=_countdown(is_due, state.enemy_spawn_interval, state.enemy_spawn_timer),
    )


def _spawn_diver(state: SeaquestState, noise: Noise) -> SeaquestState:
    """Return the state with a new diver, if it is time."""
    is_due = state.diver_spawn_timer == 0
    row, column, moves_right = appearance(noise.diver_direction, noise.diver_row)
    new = Divers(row, column, moves_right, timer=int32(DIVER_MOVE_INTERVAL), exists=np.ones((), bool))
    return state._replace(
        divers=put(state.divers, new, is_due & first_free(state.divers.exists)),
        diver_spawn_timer=_countdown(is_due, DIVER_SPAWN_INTERVAL, state.diver_spawn_timer),
    )


def _move_player(state: SeaquestState, action: Array) -> SeaquestState:
    """Return the state after the player has moved or shot."""
    goes_left, goes_right = action == Action.LEFT, action == Action.RIGHT
    fires = (action == Action.FIRE) & (state.reload_timer == 0)
    new = Bullets(state.row, state.column, state.faces_right, exists=np.ones((), bool))
    return state._replace(
        row=moved(state.row, action == Action.UP, action == Action.DOWN, 0, LAST - 1),
        column=moved(state.column, goes_left, goes_right),
        faces_right=(state.faces_right | goes_right) & ~goes_left,
        bullets=put(state.bullets, new, fires & first_free(state.bullets.exists)),
        reload_timer=_countdown(fires, RELOAD_TIME, state.reload_timer),
        last_action=action,
    )


def _move_bullets(state: SeaquestState) -> tuple[SeaquestState, Array]:
    """Return the state after the player's bullets have moved, and the number of enemies that they hit.

    The newest bullet is first to hit, and hits the oldest of several enemies in its cell, fish before submarines.
    """
    bullets, enemies = state.bullets, state.enemies
    column = bullets.column + step_right(bullets.moves_right)
    exists = bullets.exists & is_on_grid(column)
    age = _age(state)
    order = jnp.where(enemies.is_submarine, age, age + N_ENEMIES)
    is_left, is_used = enemies.exists, []
    for i in reversed(range(N_BULLETS)):
        is_here = is_left & exists[i] & (enemies.row == bullets.row[i]) & (enemies.column == column[i])
        is_left = is_left & ~only_first(is_here, order)
        is_used.append(jnp.any(is_here))
    exists = exists & ~jnp.stack(is_used[::-1])
    state = state._replace(
        bullets=bullets._replace(column=column, exists=exists), enemies=enemies._replace(exists=is_left)
    )
    return state, sum(is_used[1:], start=is_used[0].astype(np.int32))


def _move_divers(state: SeaquestState) -> SeaquestState:
    """Return the state after divers have moved or come aboard, the newest first, as long as there is room."""
    divers = state.divers
    is_due = divers.timer == 0
    column = jnp.where(is_due, divers.column + step_right(divers.moves_right), divers.column)
    meets = divers.exists & (divers.row == state.row)
    meets = meets & ((divers.column == state.column) | (column == state.column))
    n_aboard, comes_aboard = state.n_aboard, []
    for i in reversed(range(N_DIVERS)):
        comes_aboard.append(meets[i] & (n_aboard < MAX_ABOARD))
        n_aboard = n_aboard + comes_aboard[-1]
    divers = divers._replace(
        column=column,
        timer=jnp.where(is_due, DIVER_MOVE_INTERVAL, divers.timer - 1).astype(np.int32),
        exists=divers.exists & is_on_grid(column) & ~jnp.stack(comes_aboard[::-1]),
    )
    return state._replace(divers=compacted(divers), n_aboard=n_aboard)


def _move_enemies(state: SeaquestState) -> tuple[SeaquestState, Array, Array]:
    """Move enemies and their bullets. A submarine that is hit, or leaves the grid, still shoots.

    Returns
    -------
    tuple
        The state, the number of enemies that are hit, and whether the player is hit.
    """
    enemies = state.enemies
    in_row = enemies.row == state.row
    moves = enemies.exists & (enemies.timer == 0)
    column = jnp.where(moves, enemies.column + step_right(enemies.moves_right), enemies.column)
    meets_player = enemies.exists & in_row & ((enemies.column == state.column) | (column == state.column))

    bullets, is_shot = _meet_bullets(state, column, moves & ~(in_row & (column == state.column)))

    shoots = enemies.exists & enemies.is_submarine & (enemies.shot_timer == 0)
    bullet_column = jnp.where(shoots, column, enemies.bullet_column)
    next_column = bullet_column + step_right(enemies.moves_right)
    next_column = jnp.where(is_on_grid(bullet_column) & is_on_grid(next_column), next_column, NOWHERE)
    meets_bullet = in_row & ((bullet_column == state.column) | (next_column == state.column))

    next_enemies = enemies._replace(
        column=column,
        timer=jnp.where(moves, state.enemy_move_interval, enemies.timer - 1),
        shot_timer=jnp.where(shoots, SHOT_INTERVAL, enemies.shot_timer - 1).astype(np.int32),
        bullet_column=next_column,
        exists=enemies.exists & is_on_grid(column) & ~is_shot,
    )
    state = state._replace(enemies=next_enemies, bullets=compacted(bullets))
    return state, is_shot.sum(dtype=np.int32), jnp.any(meets_player | meets_bullet)


def _meet_bullets(state: SeaquestState, column: Array, can_be_hit: Array) -> tuple[Bullets, Array]:
    """Return the player's bullets that are left after enemies have moved to `column`, and which enemies are hit.

    The oldest bullet is the first to hit, and hits the newest of several enemies in its cell, submarines before fish.
    """
    enemies, bullets = state.enemies, state.bullets
    order = jnp.where(enemies.is_submarine, 2 * N_ENEMIES, N_ENEMIES) - _age(state)
    is_shot, is_used = np.zeros(N_ENEMIES, bool), []
    for i in range(N_BULLETS):
        is_here = bullets.exists[i] & (enemies.row == bullets.row[i]) & (column == bullets.column[i])
        is_here = is_here & can_be_hit & ~is_shot
        is_shot = is_shot | only_first(is_here, order)
        is_used.append(jnp.any(is_here))
    return bullets._replace(exists=bullets.exists & ~jnp.stack(is_used)), is_shot


def _ramp(state: SeaquestState, is_due: Array) -> SeaquestState:
    """Return the state after the game has become faster, if `is_due`; movement is faster only every other time."""
    can_move_faster = state.enemy_move_interval > SHORTEST_MOVE_INTERVAL
    can_spawn_faster = state.enemy_spawn_interval > 1
    return state._replace(
        enemy_move_interval=state.enemy_move_interval - (is_due & can_move_faster & (state.n_ramps % 2 == 1)),
        enemy_spawn_interval=state.enemy_spawn_interval - (is_due & can_spawn_faster),
        n_ramps=state.n_ramps + (is_due & (can_move_faster | can_spawn_faster)),
    )


def _countdown(restarts: Array, interval: Array | int, timer: Array) -> Array:
    """Return the timer after a step, from `interval` if it `restarts`; it stops at 0."""
    return jnp.maximum(jnp.where(restarts, interval, timer) - 1, 0).astype(np.int32)


def _age(state: SeaquestState) -> Array:
    """Return the rank of each enemy in the order of their appearance, (N_ENEMIES,), 0 for the newest."""
    return (state.next_enemy - 1 - np.arange(N_ENEMIES, dtype=np.int32)) % N_ENEMIES
