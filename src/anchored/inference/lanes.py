"""Data structures of training: lanes, padded rows and trained members.

A lane is one of the problems that are trained side by side in a program. It has a member number, a model with its
hyperparameters, and possibly a cross-validation fold to leave out. Lanes with the same member number use the same
random numbers, so that hyperparameters are compared on equal draws.
"""

import math
from typing import NamedTuple

import jax
import numpy as np
import optax

from anchored.inference import pieces
from anchored.model.bayesian_model import BayesianModel
from anchored.types import Array, Data, Params, StoredData

NO_FOLD = -1  # `Lanes.fold` of a lane that leaves out no fold


class Lanes(NamedTuple):
    """Problems to train side by side. Every leaf has a leading lane axis."""

    member: np.ndarray  # (lanes,) member numbers, which determine the random numbers
    model: BayesianModel  # the model of each lane
    fold: np.ndarray  # (lanes,) the fold that is left out, or NO_FOLD


class TrainingRows(NamedTuple):
    """Training rows, padded by `pad_rows`, with the fold of each row and a mask of rows held out for early stopping."""

    data: Data  # rows of weight zero are padding
    fold: Array  # (rows,) number of the fold that a row belongs to
    held_out: Array  # (rows,) True for rows that are held out for early stopping
    n_rows: int  # number of rows before padding
    in_store_order: bool = False  # whether rows are in the order of a store, see `inference.pieces`
    weight_scale: float = 1.0  # factor of all weights: size of the whole data set relative to these rows


class Trained(NamedTuple):
    """Trained members, their anchors and their loss curves, as NumPy arrays."""

    params: Params  # all parameters, including those fixed at the anchor; every leaf has a leading lane axis
    anchors: Params  # in the shapes of `params`
    loss_curve: np.ndarray  # (epochs, lanes); NaN after an early stop
    n_epochs: np.ndarray  # (lanes,) number of epochs that a lane was trained for
    optimizer_state: optax.OptState | None  # None for solvers other than FirstOrder

    def select(self, kept: slice) -> "Trained":
        """Return the lanes in the slice `kept`."""
        curve = self.loss_curve[: self.n_epochs[kept].max(), kept]  # other solvers than FirstOrder have one loss only
        return jax.tree.map(lambda leaf: leaf[kept], _without_curve(self))._replace(loss_curve=curve)


def lanes_of_members(model: BayesianModel, members: np.ndarray) -> Lanes:
    """Return one lane for each number in `members`, all with the same `model` and without a fold to leave out."""
    n = len(members)
    stacked = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (n, *np.shape(leaf))), model)
    return Lanes(members, stacked, np.full(n, NO_FOLD))


def pad_rows(data: Data, fold: np.ndarray | None = None, held_out: np.ndarray | None = None) -> TrainingRows:
    """Add rows of weight zero, so that data sets of similar size share a compiled program.

    Rows of several pieces are neither padded nor copied.

    Parameters
    ----------
    data : Data
        Training rows.
    fold : (rows,) array, optional
        Number of the cross-validation fold that each row belongs to.
    held_out : (rows,) array of bool, optional
        True for rows held out for early stopping.

    Returns
    -------
    TrainingRows
        The padded rows.
    """
    n = len(data.weights)
    size = _bucket(n) if n <= pieces.PIECE_ROWS else n

    def padded(array: Array) -> Array:
        if size == n or isinstance(data, StoredData):
            return array
        array = np.asarray(array)
        result = np.zeros((size, *array.shape[1:]), array.dtype)
        result[:n] = array
        return result

    fold = np.broadcast_to(NO_FOLD - 1, n) if fold is None else fold  # a fold that no lane leaves out
    held_out = np.broadcast_to(False, n) if held_out is None else held_out
    return TrainingRows(Data(*map(padded, data)), padded(fold), padded(held_out), n, isinstance(data, StoredData))


def concatenate(parts: list[Trained]) -> Trained:
    """Concatenate the lanes of all `parts`. Shorter loss curves are padded with NaN."""
    longest = max(len(part.loss_curve) for part in parts)
    curves = [np.pad(p.loss_curve, ((0, longest - len(p.loss_curve)), (0, 0)), constant_values=np.nan) for p in parts]
    without_curves = [_without_curve(part) for part in parts]
    whole = jax.tree.map(lambda *leaves: np.concatenate([np.asarray(leaf) for leaf in leaves]), *without_curves)
    return whole._replace(loss_curve=np.concatenate(curves, axis=1))


def _without_curve(trained: Trained) -> Trained:
    """Return the members without their loss curve, so that the first axis of every leaf is the lane axis."""
    return trained._replace(loss_curve=None)  # type: ignore[arg-type]  # None is not a leaf


def _bucket(n_rows: int) -> int:
    """Round `n_rows` up to a multiple of 8 with at most three significant bits.

    Data sets of similar size then share a compiled program.
    """
    unit = 2 ** max(3, n_rows.bit_length() - 3)
    return math.ceil(n_rows / unit) * unit
