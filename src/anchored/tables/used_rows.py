"""Recognise rows that a model has already used: for its fit, or for the guarantee of its coverage."""

from enum import StrEnum

import numpy as np

from anchored.estimators.fingerprints import fingerprint
from anchored.tables.model import TableModel
from anchored.tables.rows import RowBatch

HOLD_OUT_SEED = 3  # combined with the seed, so that rows are held out independently of all other draws


class RowsUsed(StrEnum):
    """What the labelled rows of a table were used for."""

    NOTHING = "nothing"
    TRAINING = "training"
    GUARANTEE = "guarantee"
    BOTH = "training and guarantee"

    @property
    def has_training(self) -> bool:
        """Whether the model was fitted to some of the rows."""
        return self in (RowsUsed.TRAINING, RowsUsed.BOTH)

    @property
    def has_guarantee(self) -> bool:
        """Whether the guarantee was computed from some of the rows."""
        return self in (RowsUsed.GUARANTEE, RowsUsed.BOTH)


def rows_used(model: TableModel, rows: RowBatch) -> RowsUsed:
    """Return what `model` has used the labelled rows of `rows` for.

    The rows are recognised if they are the training rows, the rows held out for a guarantee, or both, in the order of
    the file that was fitted. Other selections of these rows are not recognised.
    """
    y, has_target = model.targets(rows)
    guarantee = model.estimator.guarantee_
    n_guarantee = 0 if guarantee is None else guarantee.n_rows
    if len(y) not in (model.n_rows, n_guarantee, model.n_rows + n_guarantee):
        return RowsUsed.NOTHING
    X = model.schema.encode(rows.take(np.flatnonzero(has_target)), clip=True)[0]
    found = fingerprint(X, y, np.ones(len(y)))
    if found == model.estimator.fingerprint_:
        return RowsUsed.TRAINING
    if guarantee is not None and found == guarantee.fingerprint:
        return RowsUsed.GUARANTEE
    training = training_positions(model, len(y))
    if fingerprint(X[training], y[training], np.ones(len(training))) == model.estimator.fingerprint_:
        return RowsUsed.BOTH
    return RowsUsed.NOTHING


def training_positions(model: TableModel, n_rows: int) -> np.ndarray:
    """Return the positions of the training rows in the whole file that was fitted, with `n_rows` labelled rows.

    They are all positions, unless `n_rows` is the number of training rows plus that of rows held out for a guarantee.
    """
    guarantee, seed = model.estimator.guarantee_, model.estimator.random_state
    if guarantee is None or n_rows != model.n_rows + guarantee.n_rows or not isinstance(seed, int):
        return np.arange(n_rows)
    return np.setdiff1d(np.arange(n_rows), guarantee_positions(n_rows, guarantee.n_rows, seed))


def guarantee_positions(n_rows: int, n_chosen: int, seed: int) -> np.ndarray:
    """Return the sorted positions of the `n_chosen` rows out of `n_rows` that are held out for a guarantee."""
    return np.sort(np.random.default_rng([seed, HOLD_OUT_SEED]).permutation(n_rows)[:n_chosen])
