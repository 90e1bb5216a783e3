"""What the games of MinAtar share (Young and Tian 2019): a grid of 10 × 10 cells, six actions, and sticky actions.

The rules are those of version 1.0.15 of the package `minatar`. There are two differences. An action that has no effect
in a game is not offered, as in the package's environments with names that end in -v1. And the first action of an
episode can only be replaced by NOOP, not by the last action of the episode before, since episodes are independent here.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

import jax.numpy as jnp
import numpy as np

from anchored import checks
from anchored.types import Array

SIZE = 10  # number of rows and of columns
LAST = SIZE - 1  # the bottom row, or the column at the right
ROWS = np.arange(SIZE, dtype=np.int32)[:, None]  # broadcasts with COLUMNS to the cells of the grid
COLUMNS = np.arange(SIZE, dtype=np.int32)
LONGEST_TIMER = 2500  # largest number of steps that a timer of any game counts; that of Freeway


class Action(IntEnum):
    """The actions of all games."""

    NOOP = 0
    LEFT = 1
    UP = 2
    RIGHT = 3
    DOWN = 4
    FIRE = 5


@dataclass(frozen=True)
class MinAtarGame:
    """What all games have in common; each game defines its rules.

    An observation is an image of booleans, (10, 10, channels). Each channel shows where things of one kind are.

    Parameters
    ----------
    sticky_action_prob
        Probability that the action of the previous step is taken again, instead of the chosen action.
    max_episode_steps
        Time limit of an episode, in steps; the package has none.
    """

    sticky_action_prob: float = 0.1
    max_episode_steps: int = 10_000

    actions: ClassVar[tuple[Action, ...]]  # the agent's action i is the entry with index i
    n_channels: ClassVar[int]  # of an observation

    def __post_init__(self) -> None:
        checks.whole("max_episode_steps", self.max_episode_steps, 1)
        if not 0 <= self.sticky_action_prob <= 1:
            raise ValueError(
                f"sticky_action_prob must be a probability between 0 and 1, got {self.sticky_action_prob!r}"
            )

    @property
    def n_actions(self) -> int:
        """The number of actions."""
        return len(self.actions)

    @property
    def n_observations(self) -> None:
        """None, since observations are images."""
        return None

    @property
    def observation_size(self) -> int:
        """The number of entries of an observation."""
        return SIZE * SIZE * self.n_channels

    @property
    def observation_bounds(self) -> None:
        """None, since the entries of an observation are booleans."""
        return None

    @property
    def largest_integer(self) -> int:
        """A bound on the absolute value of every integer in a state, for checks of saved states."""
        return self.max_episode_steps + LONGEST_TIMER

    def taken_action(self, action: Array, last_action: Array, uniform: Array) -> Array:
        """Return the `Action`, as int32, that is taken when the agent chooses `action`, an index of `actions`.

        It is `last_action` if the random number `uniform`, on [0, 1), is below `sticky_action_prob`.
        """
        chosen = jnp.asarray(np.array(self.actions, np.int32))[action]
        return jnp.where(uniform < self.sticky_action_prob, last_action, chosen)


def int32(value: int) -> Array:
    """Return `value` as a scalar array."""
    return np.asarray(value, np.int32)


def moved(position: Array, towards_lower: Array, towards_higher: Array, lowest: int = 0, highest: int = LAST) -> Array:
    """Return the row or column `position` after a move by one, if a boolean says so, within `lowest` and `highest`."""
    step = towards_higher.astype(np.int32) - towards_lower.astype(np.int32)
    return jnp.clip(position + step, lowest, highest)


def step_right(moves_right: Array) -> Array:
    """Return by how many columns things move to the right: 1, or −1 if they move left."""
    return jnp.where(moves_right, 1, -1).astype(np.int32)


def is_on_grid(column: Array) -> Array:
    """Return whether a column lies on the grid."""
    return (column >= 0) & (column <= LAST)


def cell(row: Array | int, column: Array | int) -> Array:
    """Return a grid, (10, 10), with only the cell at `row` and `column` true."""
    return jnp.logical_and(row == ROWS, column == COLUMNS)


def cells(rows: Array, columns: Array, exists: Array) -> Array:
    """Return a grid, (10, 10), of the cells in which at least one thing is.

    The things have `rows`, `columns` and whether each `exists`, all (things,). Those outside the grid are not shown.
    """
    is_shown = (rows == ROWS) & exists & is_on_grid(columns)  # (10, things)
    # Bit c of a row's integer says whether column c is occupied: a tenth of the work of comparing every cell.
    bits = jnp.bitwise_or.reduce(jnp.where(is_shown, 1 << jnp.clip(columns, 0, LAST), 0), axis=1)
    return (bits[:, None] >> COLUMNS) & 1 == 1


def lanes(columns: Array, exists: Array) -> Array:
    """Return a grid, (10, 10), with eight things; thing i, if it `exists`, is in row i + 1."""
    return jnp.pad((columns[:, None] == COLUMNS) & exists[:, None], ((1, 1), (0, 0)))
