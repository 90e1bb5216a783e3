"""Splits of rows in which copies of a row stay together.

A member that was trained on a row predicts its copies too well, so that copies must not fall on both sides of a split.
Without copies, splits follow a random permutation of the rows.
"""

import numpy as np

from anchored.types import Array

MIN_DIFFERENT_ROWS = 10  # per fold; if there are fewer, folds get equal numbers of different rows


def first_copies(*columns: Array) -> np.ndarray:
    """Return, for every row, the index of the first row that equals it in all `columns`, (rows,).

    Each of `columns` is an array of shape (rows,) or (rows, n).
    """
    rows = np.concatenate([np.asarray(c, np.float64).reshape(len(c), -1) for c in columns], axis=1)
    _, first, group = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    return first[group.reshape(-1)]


def folds(first: np.ndarray, n_folds: int, seed: int) -> np.ndarray:
    """Return the fold of every row, (rows,), from 0 to the number of folds − 1.

    Parameters
    ----------
    first : (rows,)
        The first copy of every row, as returned by `first_copies`.
    n_folds : int
        Number of folds; fewer if there are fewer different rows.
    seed : int
        Random seed.
    """
    different, group = np.unique(first, return_inverse=True)
    rng, n = np.random.default_rng(seed), len(different)
    if n < MIN_DIFFERENT_ROWS * n_folds:  # no fold may be empty, or much larger than the others
        return (rng.permutation(n) % min(n_folds, n))[group]
    return (rng.permutation(len(first)) % n_folds)[first]


def held_out(first: np.ndarray, order: np.ndarray, n_rows: int) -> np.ndarray:
    """Return whether each row is held out, (rows,).

    At most `n_rows` are held out, unless every row has more copies. If all rows are copies of one, all are held out.

    Parameters
    ----------
    first : (rows,)
        The first copy of every row, as returned by `first_copies`.
    order : (rows,)
        A permutation of the rows: those that come first are held out, together with their copies.
    n_rows : int
        The number of rows to hold out.
    """
    different, group, size = np.unique(first, return_inverse=True, return_counts=True)
    position = np.argsort(order)
    is_chosen, remaining = np.zeros(len(different), bool), n_rows
    for candidate in np.argsort(position[different]):
        if remaining == 0:
            break
        if size[candidate] <= remaining:
            is_chosen[candidate] = True
            remaining -= size[candidate]
    if not is_chosen.any():
        is_chosen[np.argmin(size)] = True
    return is_chosen[group]
