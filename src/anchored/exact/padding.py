"""Pad rows to a few lengths, so that data sets of similar size share a compiled program.

Every program takes several megabytes, and compiling it takes longer than running it for a few hundred rows. More rows
are not padded, since their programs take long to run.
"""

import numpy as np

from anchored.types import Array, Data

STEP = 64  # rows are padded to a multiple of this number
MAX_PADDED = 512  # more rows are not padded


def padded_length(n_rows: int) -> int:
    """Return the length to which `n_rows` rows are padded."""
    return -(-n_rows // STEP) * STEP if n_rows <= MAX_PADDED else n_rows


def with_copies(rows: Array) -> np.ndarray:
    """Return `rows`, (rows, ...), followed by copies of the first row; the caller drops the results of the copies."""
    rows = np.asarray(rows)
    n_copies = padded_length(len(rows)) - len(rows)
    return np.concatenate([rows, np.broadcast_to(rows[:1], (n_copies, *rows.shape[1:]))]) if n_copies else rows


def with_zeros(data: Data) -> Data:
    """Return `data` followed by rows of weight zero, which have no effect."""
    n_zeros = padded_length(len(data.weights)) - len(data.weights)
    return Data(*(np.pad(part, [(0, n_zeros)] + [(0, 0)] * (np.ndim(part) - 1)) for part in data))
