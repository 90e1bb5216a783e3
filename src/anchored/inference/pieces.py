"""Divide many rows into pieces, each a random sample of all rows, and so small that a few fit in memory.

Rows are dealt to the pieces like cards: of each n_pieces consecutive rows, every piece gets one, at random. A store on
disk (see `estimators.streams`) holds one piece after the other, and is written in one pass over the rows. Which piece
gets a row depends only on the number of rows, so that members are the same whether rows are stored or in memory.
"""

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

PIECE_ROWS = 2**18  # largest number of rows of a piece
DEALING_SEED = 4  # first number of the seed sequence of dealing, which is independent of other draws
ROUNDS_PER_DRAW = 2**10  # rounds of dealing whose random numbers are drawn together


def n_pieces(n_rows: int) -> int:
    """Return the number of pieces of `n_rows` rows."""
    return -(-n_rows // PIECE_ROWS)


def starts(n_rows: int) -> np.ndarray:
    """Return the position in a store at which each piece begins, followed by `n_rows`, (pieces + 1,)."""
    count = n_pieces(n_rows)
    sizes = n_rows // count + (np.arange(count) < n_rows % count)
    return np.concatenate([[0], np.cumsum(sizes)])


def positions(n_rows: int, first: int, stop: int) -> np.ndarray:
    """Return the positions in a store of the rows `first` to `stop` − 1 out of `n_rows`, (stop − first,)."""
    count, begin = n_pieces(n_rows), starts(n_rows)
    parts = [_dealt(n_rows, count, ROUNDS_PER_DRAW, draw) for draw in _draws(count, first, stop)]
    offset = first - next(_draws(count, first, stop), 0) * ROUNDS_PER_DRAW * count
    pieces = np.concatenate([np.zeros(0, int), *parts])[offset : offset + stop - first]
    return begin[pieces] + np.arange(first, stop) // count


def rows_in_store(n_rows: int) -> np.ndarray:
    """Return the index of the row at each position of a store, (n_rows,)."""
    result = np.empty(n_rows, np.int64)
    result[positions(n_rows, 0, n_rows)] = np.arange(n_rows)
    return result


def first_piece(n_rows: int) -> np.ndarray | slice:
    """Return the indices of the first piece of `n_rows` rows, ascending; a slice of all rows if there is no other."""
    return slice(None) if n_rows <= PIECE_ROWS else rows_in_store(n_rows)[: starts(n_rows)[1]]


def _draws(count: int, first: int, stop: int) -> Iterator[int]:
    """Return the numbers of the draws that deal the rows `first` to `stop` − 1 to `count` pieces."""
    rows_per_draw = ROUNDS_PER_DRAW * count
    return iter(range(first // rows_per_draw, -(-stop // rows_per_draw)))


@lru_cache(maxsize=4)  # batches of rows are shorter than a draw
def _dealt(n_rows: int, count: int, rounds: int, draw: int) -> np.ndarray:
    """Return the piece of each row of a draw of `rounds`; an incomplete last round is dealt to the first pieces."""
    order = np.broadcast_to(np.arange(count), (rounds, count))
    dealt = np.random.default_rng([DEALING_SEED, draw]).permuted(order, axis=1).reshape(-1)
    n_complete = max(0, n_rows // count * count - draw * len(dealt))  # rows of this draw in complete rounds
    dealt[n_complete:] = np.resize(np.arange(count), max(0, len(dealt) - n_complete))
    return dealt
