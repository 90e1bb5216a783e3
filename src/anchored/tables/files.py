"""Read tables in CSV and Parquet files, in batches of rows."""

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from anchored.errors import ArgumentError, TableError
from anchored.tables import csv_files
from anchored.tables.rows import RowBatch

BATCH_SIZE = 2**14  # rows
PARQUET = (".parquet", ".pq")  # suffixes of Parquet files
MAX_SHOWN = 12  # column names listed in a message


@dataclass(frozen=True)
class Table:
    """A file with named columns.

    Attributes
    ----------
    path : Path
        The file.
    names : tuple of str
        Names of its columns, stripped of whitespace; some may be empty.
    delimiter : str or None
        The character between the values of a CSV file; None for a Parquet file.
    """

    path: Path
    names: tuple[str, ...]
    delimiter: str | None

    def require(self, names: Sequence[str], why: str) -> None:
        """Raise a TableError unless the file has all columns in `names`.

        `why` ends the message, and says what needs the column: "which the model reads".
        """
        missing = self._first_missing(names)
        if missing is not None:
            raise TableError(str(self.path), f"it has no column {missing!r}, {why}", self._hint(missing))

    def require_argument(self, argument: str, names: Sequence[str]) -> None:
        """Raise an ArgumentError unless the file has all columns in `names`, the value of the argument `argument`."""
        missing = self._first_missing(names)
        if missing is not None:
            reason = f"names the column {missing!r}, which {self.path} does not have. {self._hint(missing)}"
            raise ArgumentError(argument, reason)

    def read(self, columns: Sequence[str]) -> RowBatch:
        """Return all rows of the columns named in `columns`."""
        parts = list(self.batches(columns))
        joined = {name: pa.concat_arrays([part.columns[name] for part in parts]) for name in columns}
        return RowBatch(str(self.path), 1, joined)

    def batches(self, columns: Sequence[str], size: int = BATCH_SIZE) -> Iterator[RowBatch]:
        """Yield the rows of the columns named in `columns` in batches of at most `size` rows."""
        positions = [self.names.index(name) for name in columns]
        first_row = 1
        for block in self._blocks(positions, size):
            for start in range(0, len(block), size):
                part = block.slice(start, size)
                yield RowBatch(str(self.path), first_row, {name: part.column(i) for i, name in enumerate(columns)})
                first_row += len(part)
        if first_row == 1:
            raise TableError(str(self.path), csv_files.NO_ROWS)

    def _blocks(self, positions: list[int], size: int) -> Iterator[pa.RecordBatch]:
        """Return an iterator over blocks of rows of the columns at these positions."""
        if self.delimiter is None:
            return _parquet_batches(self.path, [self.names[position] for position in positions], size)
        return csv_files.batches(self.path, len(self.names), self.delimiter, positions)

    def _first_missing(self, names: Sequence[str]) -> str | None:
        """Return the first of `names` that is not a column, or None."""
        return next((name for name in names if name not in self.names), None)

    def _hint(self, missing: str) -> str:
        """Return a remedy for the message: a column with a name similar to `missing`, or a list of the columns."""
        near = difflib.get_close_matches(missing, self.names, 1, 0.6)
        if near:
            return f"Did you mean {near[0]!r}?"
        more = f" and {len(self.names) - MAX_SHOWN} more" if len(self.names) > MAX_SHOWN else ""
        return f"It has {', '.join(map(repr, self.names[:MAX_SHOWN]))}{more}"


def open_table(path: Path | str) -> Table:
    """Read the format and the column names of the file at `path`; raises a TableError if it cannot be read."""
    path = Path(path)
    if not path.exists():
        raise TableError(str(path), "there is no such file")
    if path.is_dir():
        raise TableError(str(path), "this is a folder", "Name a CSV or Parquet file in it")
    delimiter: str | None = None
    try:
        with path.open("rb") as file:
            magic = file.read(4)
        if magic == b"PAR1" or path.suffix.lower() in PARQUET:
            names = _parquet_names(path)
        else:
            names, delimiter = csv_files.header(path, magic)
    except OSError as error:
        raise TableError(str(path), f"it cannot be read: {error.strerror or error}") from error
    repeated = sorted({name for name in names if name and names.count(name) > 1})
    if repeated:
        raise TableError(str(path), f"there is more than one column named {repeated[0]!r}", "Rename all but one")
    return Table(path, tuple(names), delimiter)


def _parquet_names(path: Path) -> list[str]:
    """Return the names of the columns of a Parquet file."""
    try:
        return list(pyarrow.parquet.read_schema(path).names)
    except pa.ArrowException as error:
        raise TableError(str(path), "it is not a Parquet file, or it is damaged", "Write it again") from error


def _parquet_batches(path: Path, names: list[str], size: int) -> Iterator[pa.RecordBatch]:
    """Yield batches of at most `size` rows of a Parquet file."""
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(size, columns=names):
                by_name = {name: _decoded(batch.column(name)) for name in names}
                yield pa.RecordBatch.from_pydict(by_name)
    except (pa.ArrowException, OSError) as error:
        raise TableError(str(path), "it is damaged and cannot be read to the end", "Write it again") from error


def _decoded(array: pa.Array) -> pa.Array:
    """Return `array` with its values in place of indices, if it is encoded by a dictionary."""
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
