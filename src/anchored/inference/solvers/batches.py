"""The rows of each minibatch, and the mean loss of each epoch."""

from functools import cached_property

import jax
import numpy as np

from anchored.inference import pieces
from anchored.types import Key


class Batches:
    """The order in which steps take the training rows: a random permutation for each epoch.

    The permutation depends only on the key and the number of the epoch. If there are several pieces of rows, it
    permutes the pieces and the rows of each piece, so that few pieces are in use at a time.

    Parameters
    ----------
    key : Key
        Random key.
    n_rows : int
        Number of training rows.
    batch_size : int or None
        Number of rows of a batch; None for all rows.
    in_store_order : bool
        Whether rows are in the order of a store, piece by piece.
    """

    def __init__(self, key: Key, n_rows: int, batch_size: int | None, in_store_order: bool = False) -> None:
        self.seed = np.asarray(jax.random.key_data(key))
        self.n_rows, self.batch_size, self.in_store_order = n_rows, batch_size, in_store_order
        self._pieces = _Pieces(self.seed, pieces.starts(n_rows)) if n_rows > pieces.PIECE_ROWS else None
        self.steps_per_epoch = 1 if batch_size is None else -(-n_rows // batch_size)

    def rows(self, first: int, stop: int, n_padded: int) -> np.ndarray | None:
        """Return the row indices of steps `first` to `stop` − 1, or None if each step takes all rows.

        The result has the shape (n_padded, batch_size). Entries from `stop − first` on are padding, to be ignored.
        """
        if self.batch_size is None:
            return None
        result = np.zeros((n_padded, self.batch_size), np.int32)
        if self._pieces is not None:
            places = np.stack([self._step_of_pieces(step, self._pieces) for step in range(first, stop)])
            result[: len(places)] = places if self.in_store_order else self._rows_in_store[places]
            return result
        epochs = range(first // self.steps_per_epoch, -(-stop // self.steps_per_epoch))
        steps = np.concatenate([self._epoch(epoch) for epoch in epochs])[first % self.steps_per_epoch :][: stop - first]
        result[: len(steps)] = steps
        return result

    def _epoch(self, epoch: int) -> np.ndarray:
        """Return the rows of all batches of an epoch, (batches, batch_size).

        If the last batch is too small, it is filled by starting the permutation again.
        """
        order = np.random.default_rng([*self.seed, epoch]).permutation(self.n_rows)
        return np.resize(order, (self.steps_per_epoch, self.batch_size or self.n_rows))

    def _step_of_pieces(self, step: int, of_pieces: "_Pieces") -> np.ndarray:
        """Return the positions in a store of the rows of a step, (batch_size,); an epoch's last batch wraps around."""
        assert self.batch_size is not None
        epoch, number = divmod(step, self.steps_per_epoch)
        first = number * self.batch_size
        batch = of_pieces.order(epoch, first, min(first + self.batch_size, self.n_rows))
        missing = self.batch_size - len(batch)
        return np.concatenate([batch, of_pieces.order(epoch, 0, missing)]) if missing else batch

    @cached_property
    def _rows_in_store(self) -> np.ndarray:
        """The row at each position of a store."""
        return pieces.rows_in_store(self.n_rows)


class LossCurve:
    """The losses of all steps, which are added a few at a time, and their mean over each epoch.

    Losses that were added last may stay on the device until they are needed.

    Parameters
    ----------
    steps_per_epoch : int
        Number of steps of an epoch.
    losses : (steps, lanes) array
        The losses of the first steps.
    """

    def __init__(self, steps_per_epoch: int, losses: np.ndarray) -> None:
        self._steps_per_epoch = steps_per_epoch
        self._parts: list[np.ndarray] = []
        self._means: list[np.ndarray] = []
        self._incomplete = losses[:0]  # the losses of the last epoch, as long as it is incomplete
        self._waiting: tuple[jax.Array | np.ndarray, int] | None = (losses, len(losses))

    def add(self, losses: jax.Array, n_steps: int) -> None:
        """Append the first `n_steps` of `losses`, (steps, lanes)."""
        self.fetch()
        self._waiting = losses, n_steps

    def fetch(self) -> None:
        """Fetch the losses that were added last from the device."""
        if self._waiting is None:
            return
        losses, n_steps = self._waiting
        part, self._waiting = np.asarray(losses)[:n_steps], None
        self._parts.append(part)
        rest = np.concatenate([self._incomplete, part]) if len(self._incomplete) else part
        n_complete = len(rest) // self._steps_per_epoch * self._steps_per_epoch
        self._means.append(_mean_per_epoch(rest[:n_complete], self._steps_per_epoch))
        self._incomplete = rest[n_complete:]

    def of_steps(self) -> np.ndarray:
        """Return the losses of all steps, (steps, lanes)."""
        self.fetch()
        self._parts = [np.concatenate(self._parts)]
        return self._parts[0]

    def of_first_step(self) -> np.ndarray:
        """Return the losses of the first step, (lanes,)."""
        self.fetch()
        return next(part[0] for part in self._parts if len(part))

    def of_epochs(self) -> np.ndarray:
        """Return the mean losses of all epochs, (epochs, lanes); the last epoch may be incomplete."""
        self.fetch()
        return np.concatenate([*self._means, _mean_per_epoch(self._incomplete, self._steps_per_epoch)])


def _mean_per_epoch(losses: np.ndarray, steps_per_epoch: int) -> np.ndarray:
    """Return the mean of `losses`, (steps, lanes), over the steps of each epoch, (epochs, lanes)."""
    starts = np.arange(0, len(losses), steps_per_epoch)
    if not len(starts):
        return losses[:0]
    n_steps = np.diff([*starts, len(losses)])
    with np.errstate(all="ignore"):  # the losses of members that diverged may be infinite or NaN
        return np.add.reduceat(losses, starts) / n_steps[:, None].astype(losses.dtype)


class _Pieces:
    """The permutation of several pieces and their rows in each epoch.

    Parameters
    ----------
    seed : array of int
        Random seed.
    starts : (pieces + 1,) array of int
        Where the pieces begin in a store.
    """

    def __init__(self, seed: np.ndarray, starts: np.ndarray):
        self._seed, self._starts = seed, starts
        self._permuted: dict[tuple[int, int], np.ndarray] = {}  # the last pieces that were used, by epoch and place

    def order(self, epoch: int, first: int, stop: int) -> np.ndarray:
        """Return the positions in a store of the rows `first` to `stop` − 1 of the permutation of an epoch."""
        order = np.random.default_rng([*self._seed, epoch]).permutation(len(self._starts) - 1)
        ends = np.cumsum(np.diff(self._starts)[order])
        parts = [np.zeros(0, np.int64)]
        for place in range(int(np.searchsorted(ends, first, "right")), len(order)):
            begin = int(ends[place - 1]) if place else 0
            if begin >= stop:
                break
            parts.append(self._piece(epoch, place, int(order[place]))[max(first - begin, 0) : stop - begin])
        return np.concatenate(parts)

    def _piece(self, epoch: int, place: int, piece: int) -> np.ndarray:
        """Return the positions of the rows of a `piece`, which is number `place` in an epoch, in that epoch's order."""
        if (epoch, place) not in self._permuted:
            while len(self._permuted) > 2:
                del self._permuted[next(iter(self._permuted))]
            rng = np.random.default_rng([*self._seed, epoch, piece + 1])
            size = int(self._starts[piece + 1] - self._starts[piece])
            self._permuted[epoch, place] = self._starts[piece] + rng.permutation(size)
        return self._permuted[epoch, place]
