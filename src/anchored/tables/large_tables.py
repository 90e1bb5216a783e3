"""Tables larger than memory: how columns are written is inferred from a random sample, and rows are read in batches.

The sample is the first piece of the training rows (see `inference.pieces`), from which the estimator also learns
everything but its members. The piece of a row depends on its position among the rows that have a target and are not
held out, so the target is read first.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from anchored.errors import ArgumentError
from anchored.inference import pieces
from anchored.tables.formats import ReadingOptions
from anchored.tables.kinds import infer as infer_kinds
from anchored.tables.rows import RowBatch
from anchored.tables.schema import Schema
from anchored.tables.table_sets import TableSet, joined
from anchored.tables.target import Target, Task

MAX_HELD_OUT = 20_000  # largest number of held-out rows, which score the model
HOLD_OUT_SEED = 5  # combined with the seed, so that rows are held out independently of all other draws


@dataclass(frozen=True)
class LargeTable:
    """The training rows of a table in files, as a `RowStream` of features and targets, and rows that are held out.

    Attributes
    ----------
    files : TableSet
        The files.
    target : Target
        The column to predict.
    schema : Schema
        How the other columns are read, inferred from the first piece.
    n_rows : int
        Number of training rows.
    labels : (classes,)
        All classes; the number 0 alone for regression.
    n_all : int
        Number of rows of the files, including those without a target.
    held_out : (held-out rows,)
        Positions of the held-out rows among the rows that have a target, ascending.
    sample : RowBatch
        The rows of the first piece.
    scored : RowBatch
        The held-out rows.
    """

    files: TableSet
    target: Target
    schema: Schema
    n_rows: int
    labels: np.ndarray
    n_all: int
    held_out: np.ndarray
    sample: RowBatch
    scored: RowBatch

    @property
    def identity(self) -> np.ndarray:
        """Size and time of modification of each file."""
        return self.files.identity

    @property
    def n_unknown(self) -> int:
        """Number of rows without a target."""
        return self.n_all - self.n_rows - len(self.held_out)

    def first_piece(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the features, (rows, features), and the targets, (rows,), of the first piece."""
        return self._encoded(self.sample)

    def held_out_rows(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the features and the targets of the held-out rows."""
        return self.schema.encode(self.scored, clip=True)[0], self.target.read(self.scored)[0]

    def batches(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the features and the targets of all training rows."""
        names = list(dict.fromkeys([*self.schema.names, self.target.name]))
        for rows, _, is_held_out in _labelled(self.files, names, self.target, self.held_out):
            if not is_held_out.all():
                yield self._encoded(rows.take(np.flatnonzero(~is_held_out)))

    def _encoded(self, rows: RowBatch) -> tuple[np.ndarray, np.ndarray]:
        """Return the features and the targets of training rows.

        A category that is not in the sample is not counted as an unknown value, since members are trained with it.
        """
        matrix = self.schema.encode(rows, clip=True)[0]
        matrix[:, -1] = 0
        return matrix, self.target.read(rows)[0]


def is_large(files: TableSet, target: str) -> bool:
    """Return whether the files have more than one piece of rows; reads the column `target` until this is known."""
    n_rows = 0
    for rows in files.batches([target]):
        n_rows += len(rows)
        if n_rows > pieces.PIECE_ROWS:
            return True
    return False


def prepare(files: TableSet, target: str, task: str, options: ReadingOptions, hold_out: float, seed: int) -> LargeTable:
    """Infer how a large table is written, and choose the held-out rows.

    Parameters
    ----------
    files : TableSet
        The files.
    target : str
        Name of the column to predict.
    task : str
        "regression", "classification", or "auto" to infer it from the target.
    options : ReadingOptions
        What the user specified about the format of the table.
    hold_out : float
        Share of the rows to hold out; at most MAX_HELD_OUT rows are held out.
    seed : int
        Random seed of the held-out rows.
    """
    n_all = sum(len(rows) for rows in files.batches([target]))
    column = _sample(files, [target], n_all)
    target_column = Target.infer(column, target, task, infer_kinds(column, options).get(target))
    n_labelled, labels = 0, np.zeros(1)
    for rows in files.batches([target]):
        y = target_column.read(rows)[0]
        n_labelled += len(y)
        if target_column.task == Task.CLASSIFICATION:
            labels = np.unique(y) if n_labelled == len(y) else np.union1d(labels, y)
    n_held_out = min(int(hold_out * n_labelled), MAX_HELD_OUT)
    if hold_out > 0 and n_held_out == 0:
        reason = f"is {hold_out:g}, which rounds down to no row of {n_labelled}"
        raise ArgumentError("hold_out", reason, "use a larger fraction")
    rng = np.random.default_rng([seed, HOLD_OUT_SEED])
    held_out = np.sort(rng.choice(n_labelled, n_held_out, replace=False))
    n_rows = n_labelled - n_held_out
    sample, scored = _first_piece(files, target_column, held_out, n_rows)
    inputs = sample.without([target])
    schema = Schema.infer(inputs, options, infer_kinds(inputs, options))
    return LargeTable(files, target_column, schema, n_rows, labels, n_all, held_out, sample, scored)


def _sample(files: TableSet, columns: Sequence[str], n_rows: int) -> RowBatch:
    """Return the first piece of all `n_rows` rows of the files, with or without a target."""
    parts, numbers, first = list[RowBatch](), list[np.ndarray](), 0
    for rows in files.batches(columns):
        chosen = _in_first_piece(n_rows, first, first + len(rows))
        parts.append(rows.take(chosen))
        numbers.append(first + chosen)
        first += len(rows)
    return joined(files.source, parts, np.concatenate(numbers))


def _first_piece(files: TableSet, target: Target, held_out: np.ndarray, n_rows: int) -> tuple[RowBatch, RowBatch]:
    """Return the first piece of the `n_rows` training rows, and the held-out rows, with all columns."""
    parts: dict[bool, list[RowBatch]] = {True: [], False: []}
    numbers: dict[bool, list[np.ndarray]] = {True: [], False: []}
    first = 0
    names = [name for name in files.names if name]
    for rows, places, is_held_out in _labelled(files, names, target, held_out):
        trained = np.flatnonzero(~is_held_out)
        chosen = trained[_in_first_piece(n_rows, first, first + len(trained))]
        first += len(trained)
        for is_sample, indices in ((True, chosen), (False, np.flatnonzero(is_held_out))):
            if len(indices):
                parts[is_sample].append(rows.take(indices))
                numbers[is_sample].append(places[indices])
    sample, scored = (
        joined(files.source, parts[flag], np.concatenate(numbers[flag])) if parts[flag] else None
        for flag in (True, False)
    )
    assert sample is not None
    return sample, scored if scored is not None else sample.take(np.zeros(0, int))


def _labelled(
    files: TableSet, names: Sequence[str], target: Target, held_out: np.ndarray
) -> Iterator[tuple[RowBatch, np.ndarray, np.ndarray]]:
    """Yield the rows that have a target, their positions in the table, and a mask of those that are held out."""
    n_before, n_labelled = 0, 0
    for rows in files.batches(names):
        has_target = target.read(rows)[1]
        indices = np.flatnonzero(has_target)
        labelled = rows if len(indices) == len(rows) else rows.take(indices)
        begin, end = np.searchsorted(held_out, [n_labelled, n_labelled + len(indices)])
        is_held_out = np.zeros(len(indices), bool)
        is_held_out[held_out[begin:end] - n_labelled] = True
        yield labelled, n_before + indices, is_held_out
        n_before += len(rows)
        n_labelled += len(indices)


def _in_first_piece(n_rows: int, first: int, stop: int) -> np.ndarray:
    """Return which of the rows `first` to `stop` − 1 out of `n_rows` are in the first piece, counted from `first`."""
    return np.flatnonzero(pieces.positions(n_rows, first, stop) < pieces.starts(n_rows)[1])
