"""Bullets, divers and enemies of Seaquest, in arrays of fixed size where the package `minatar` has lists."""

from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from anchored.rl.environments.minatar import LAST, cells, int32, step_right
from anchored.types import Array

# A bullet crosses the grid in 10 steps, and the player can shoot in every fifth step; a diver crosses it in 60 steps,
# and a diver appears in every thirtieth step. An enemy is gone before the next 32 have appeared, which takes at least
# 32 steps.
N_BULLETS, N_DIVERS, N_ENEMIES = 2, 2, 32
NOWHERE = int32(-1)  # the column of a bullet that does not exist


class Bullets(NamedTuple):
    """The player's bullets, (N_BULLETS,) each, the oldest first."""

    row: Array
    column: Array
    moves_right: Array
    exists: Array


class Divers(NamedTuple):
    """Divers in the sea, (N_DIVERS,) each, the oldest first."""

    row: Array
    column: Array
    moves_right: Array
    timer: Array  # steps until it moves
    exists: Array


class Enemies(NamedTuple):
    """Fish and submarines, (N_ENEMIES,) each: a ring, in which the next one replaces the oldest.

    A submarine has at most one bullet, in its own row and direction, which may outlive it.
    """

    row: Array
    column: Array
    moves_right: Array
    is_submarine: Array
    timer: Array  # steps until it moves
    shot_timer: Array  # steps until it shoots
    bullet_column: Array  # NOWHERE if it has no bullet
    exists: Array


Things = TypeVar("Things", Bullets, Divers, Enemies)


def nothing(kind: type[Things], size: int) -> Things:
    """Return `size` things of a `kind`, none of which exists."""
    types = {"moves_right": bool, "is_submarine": bool, "exists": bool}
    return kind(**{name: np.zeros(size, types.get(name, np.int32)) for name in kind._fields})


def trails(things: Divers | Enemies) -> Array:
    """Return a grid of the cells behind things."""
    return cells(things.row, things.column - step_right(things.moves_right), things.exists)


def appearance(direction: Array, row: Array) -> tuple[Array, Array, Array]:
    """Return row, column and direction of a new diver or enemy, from two uniform random numbers."""
    moves_right = direction < 1 / 2
    return 1 + jnp.floor(row * 8).astype(np.int32), jnp.where(moves_right, 0, LAST).astype(np.int32), moves_right


def only_first(mask: Array, order: Array) -> Array:
    """Return `mask` with only the true entry of the largest `order` left; orders are different and at least 0."""
    rank = jnp.where(mask, order, -1)
    return mask & (rank == jnp.max(rank))


def first_free(exists: Array) -> Array:
    """Return a mask of the first entry that does not exist; entries that exist come first."""
    return ~exists & jnp.concatenate([np.ones(1, bool), exists[:-1]])


def put(things: Things, new: Things, mask: Array) -> Things:
    """Return `things` with `new` at the entry that `mask` selects, if any."""
    return jax.tree.map(lambda old, value: jnp.where(mask, value, old), things, new)


def compacted(things: Things) -> Things:
    """Return a pair of things, (2,) in each field, with the second in the place of the first if the first is gone."""
    return jax.tree.map(lambda leaf: jnp.where(things.exists[0], leaf, leaf[::-1]), things)
