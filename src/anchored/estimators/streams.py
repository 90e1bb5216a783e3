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
        """All labels that occur, for a classifier; a regressor does not use it."""

    @property
    def identity(self) -> np.ndarray:
        """Numbers by which a checkpoint recognises the files that rows are read from."""

    def first_piece(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the inputs, (rows, columns), and the targets, (rows,), of the rows `pieces.first_piece(n_rows)`."""

    def batches(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the inputs and the targets of all rows."""


@contextmanager
def store_folder(checkpoint: Path | str | None) -> Iterator[Path]:
    """Context manager with a folder for a store, which it removes: in that of a checkpoint, or a temporary one."""
    if checkpoint is None:
        with TemporaryDirectory(prefix="anchored-rows-") as temporary:
            yield Path(temporary)
        return
    folder = Path(checkpoint) / STORE
    folder.mkdir(exist_ok=True)  # an interrupted fit has left it, and its files are written again
    try:
        yield folder
    finally:
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()


def write_store(folder: Path, n_rows: int, parts: Iterable[Data], on_progress: OnProgress | None) -> StoredData:
    """Write standardised rows to memory-mapped files, dealt to pieces, and return them.

    Parameters
    ----------
    folder : Path
        The folder for the files.
    n_rows : int
        Number of all rows.
    parts : iterable of Data
        Rows in their order.
    on_progress : function or None
        Called with the share of the rows of each part, after it is written, and NaN in the place of a loss.
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
    assert first == n_rows, "the stream has another number of rows than it says"
    for stored in maps:
        stored.flush()
    return StoredData(*maps)


def encoded(stored: StoredData, encoding: PiecewiseLinearEncoding | None) -> StoredData:
    """Return stored rows whose inputs are encoded when they are gathered."""
    if encoding is None:
        return stored
    return stored._replace(inputs=EncodedInputs(stored.inputs, encoding))  # type: ignore[arg-type]  # acts like one
