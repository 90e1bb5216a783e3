"""The rows of each minibatch, and the mean loss of each epoch."""

import jax
import numpy as np

from anchored.types import Key


class Batches:
    """The order in which steps take the training rows: a random permutation for each epoch.

    The permutation depends only on the key and the number of the epoch.

    Parameters
    ----------
    key : Key
        Random key.
    n_rows : int
        Number of training rows.
    batch_size : int or None
        Number of rows of a batch; None for all rows.
    """

    def __init__(self, key: Key, n_rows: int, batch_size: int | None) -> None:
        self.seed = np.asarray(jax.random.key_data(key))
        self.n_rows, self.batch_size = n_rows, batch_size
        self.steps_per_epoch = 1 if batch_size is None else -(-n_rows // batch_size)

    def rows(self, first: int, stop: int, n_padded: int) -> np.ndarray | None:
        """Return the row indices of steps `first` to `stop` − 1, or None if each step takes all rows.

        The result has the shape (n_padded, batch_size). Entries from `stop − first` on are padding, to be ignored.
        """
        if self.batch_size is None:
            return None
        epochs = range(first // self.steps_per_epoch, -(-stop // self.steps_per_epoch))
        steps = np.concatenate([self._epoch(epoch) for epoch in epochs])[first % self.steps_per_epoch :][: stop - first]
        result = np.zeros((n_padded, self.batch_size), np.int32)
        result[: len(steps)] = steps
        return result

    def mean_per_epoch(self, losses: np.ndarray) -> np.ndarray:
        """Return the mean of `losses`, (steps, members), over the steps of each epoch, (epochs, members).

        The first step is the first of an epoch; the last epoch may be incomplete.
        """
        starts = np.arange(0, len(losses), self.steps_per_epoch)
        n_steps = np.diff([*starts, len(losses)])
        with np.errstate(all="ignore"):  # the losses of members that diverged may be infinite or NaN
            return np.add.reduceat(losses, starts) / n_steps[:, None].astype(losses.dtype)

    def _epoch(self, epoch: int) -> np.ndarray:
        """Return the rows of all batches of an epoch, (batches, batch_size).

        If the last batch is too small, it is filled by starting the permutation again.
        """
        order = np.random.default_rng([*self.seed, epoch]).permutation(self.n_rows)
        return np.resize(order, (self.steps_per_epoch, self.batch_size or self.n_rows))
