"""Training rows that are read from files in batches, and the store on disk that members are trained from."""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

import numpy as np

from anchored.estimators.encoding import EncodedInputs, PiecewiseLinearEncoding
from anchored.inference import pieces
from anchored.types import Data, OnProgress, StoredData

STORE = "rows"  # name of the store in the folder of a checkpoint


class RowStream(Protocol):
    """Training rows that can be read several times, in batches, always in the same order."""

    @property
    def n_rows(self) -> int:
        """Number of rows."""

    @property
    def labels(self) -> np.ndarray:
        """All labels that occur, for a classifier; a regressor does not use them."""

    @property
    def identity(self) -> np.ndarray:
        """Numbers that identify the files that rows are read from, so that a checkpoint can recognise them."""

    def first_piece(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the inputs, (rows, columns), and the targets, (rows,), of the first piece.

        Its indices are `anchored.inference.pieces.first_piece(n_rows)`. Preprocessing, noise and prior scale are learnt
        from these rows, and the members from all rows.
        """

    def batches(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the inputs, (rows, columns), and the targets, (rows,), of each batch, until all rows are read."""


@contextmanager
def store_folder(checkpoint: Path | str | None) -> Iterator[Path]:
    """Context manager that yields a folder for a store, and removes it at the end.

    The folder lies in the folder `checkpoint`, or among the system's temporary files if `checkpoint` is None.
    """
    if checkpoint is None:
        with TemporaryDirectory(prefix="anchored-rows-") as temporary:
            yield Path(temporary)
        return
    folder = Path(checkpoint) / STORE
    folder.mkdir(exist_ok=True)  # an interrupted fit may have left the folder; its files are written again
    try:
        yield folder
    finally:
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()


def write_store(folder: Path, n_rows: int, parts: Iterable[Data], on_progress: OnProgress | None) -> StoredData:
    """Write standardised rows to memory-mapped files, in which one piece of `inference.pieces` follows the other.

    Parameters
    ----------
    folder : Path
        The folder for the files.
    n_rows : int
        Number of all rows.
    parts : iterable of Data
        The rows, part by part, in the order of the stream.
    on_progress : function or None
        Called after each part is written, with its share of all rows, and NaN in place of a loss.

    Returns
    -------
    StoredData
        The rows on disk.
    """
    maps: list[np.memmap] = []
    first = 0
    for part in parts:
        arrays = [np.asarray(array) for array in part]
        if not maps:
            maps = [
                np.memmap(folder / name, array.dtype, "w+", shape=(n_rows, *array.shape[1:]))
                for name, array in zip(Data._fields, arrays)
            ]
        places = pieces.positions(n_rows, first, first + len(arrays[0]))
        for stored, array in zip(maps, arrays):
            stored[places] = array
        first += len(places)
        if on_progress is not None:
            on_progress(len(places) / n_rows, math.nan)
    assert first == n_rows, "the stream does not have as many rows as its n_rows says"
    for stored in maps:
        stored.flush()
    return StoredData(*maps)


def encoded(stored: StoredData, encoding: PiecewiseLinearEncoding | None) -> StoredData:
    """Return `stored` with inputs that are encoded when rows are read; unchanged if `encoding` is None."""
    if encoding is None:
        return stored
    return stored._replace(inputs=EncodedInputs(stored.inputs, encoding))  # type: ignore[arg-type]  # acts like an array
