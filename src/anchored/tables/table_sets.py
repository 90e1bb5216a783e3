"""Several files with the same columns, or the files of a folder, read as one table."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from anchored.errors import TableError
from anchored.tables.files import BATCH_SIZE, Table, open_table
from anchored.tables.rows import RowBatch
from anchored.tables.typed_files import ARROW, PARQUET

SUFFIXES = (*PARQUET, *ARROW, ".csv", ".tsv", ".csv.gz", ".tsv.gz")  # of the files that are read from a folder


@dataclass(frozen=True)
class TableSet:
    """One or more files whose rows follow each other.

    Attributes
    ----------
    tables : tuple of Table
        The files; each has the columns of the first one.
    """

    tables: tuple[Table, ...]

    @property
    def source(self) -> str:
        """Name of the files in messages."""
        more = f" and {len(self.tables) - 1} more files" if len(self.tables) > 1 else ""
        return self.tables[0].source + more

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return self.tables[0].names

    @property
    def identity(self) -> np.ndarray:
        """Size and time of modification of each file, (files, 2), by which a checkpoint recognises them."""
        status = [table.path.stat() for table in self.tables]
        return np.array([(file.st_size, file.st_mtime_ns) for file in status])

    def batches(self, columns: Sequence[str], size: int = BATCH_SIZE) -> Iterator[RowBatch]:
        """Yield the rows of the columns named in `columns` in batches of at most `size` rows."""
        for table in self.tables:
            yield from table.batches(columns, size)

    def read(self, columns: Sequence[str]) -> RowBatch:
        """Return all rows of the columns named in `columns`."""
        if len(self.tables) == 1:
            return self.tables[0].read(columns)
        return joined(self.source, list(self.batches(columns)), None)


def open_tables(paths: Sequence[Path], encoding: str | None = None) -> TableSet:
    """Return the files `paths`, or those in a folder, as one table; raises a TableError if their columns differ.

    `encoding` is that of CSV files; None is UTF-8.
    """
    tables = [open_table(path, encoding) for given in paths for path in _files(Path(given))]
    first = tables[0]
    for table in tables[1:]:
        table.require(first.names, f"which {first.source} has")
        first.require(table.names, f"which {table.source} has")
    return TableSet(tuple(tables))


def joined(source: str, parts: Sequence[RowBatch], numbers: np.ndarray | None) -> RowBatch:
    """Return the rows of several batches as one, called `source`.

    `numbers`, (rows,), are the positions of the rows in the table, from 0; None if all its rows are joined.
    """
    columns = {}
    for name in parts[0].columns:
        try:
            columns[name] = pa.concat_arrays([part.columns[name] for part in parts])
        except pa.ArrowInvalid as error:
            kinds = " and ".join(sorted({str(part.columns[name].type) for part in parts}))
            problem = f"the column {name!r} has values of the types {kinds}"
            raise TableError(source, problem, "Write all files with the same types") from error
    return RowBatch(source, 1, columns, numbers)


def _files(path: Path) -> list[Path]:
    """Return the table files in the folder `path`, sorted by name, or the path itself if it is not a folder."""
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.iterdir() if file.name.lower().endswith(SUFFIXES) and file.is_file())
    if not found:
        raise TableError(str(path), "this folder has no CSV, Parquet or Arrow file", "Name another folder, or a file")
    return found
