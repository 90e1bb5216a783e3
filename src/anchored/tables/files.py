"""Read tables in CSV, Parquet, Arrow and Excel files, or from standard input, in batches of rows."""

import atexit
import difflib
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from anchored.errors import ArgumentError, TableError
from anchored.tables import csv_files, typed_files
from anchored.tables.rows import RowBatch

BATCH_SIZE = 2**14  # rows
STANDARD_STREAM = Path("-")  # stands for standard input or output
MAGIC_SIZE = 6  # first bytes of a file, which tell its format
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
    csv_format : CsvFormat or None
        Delimiter and encoding of a CSV file; None for a file whose columns have types.
    source : str
        Name of the file in messages.
    """

    path: Path
    names: tuple[str, ...]
    csv_format: csv_files.CsvFormat | None
    source: str

    def require(self, names: Sequence[str], why: str) -> None:
        """Raise a TableError unless the file has all columns in `names`.

        `why` ends the message, and says what needs the column: "which the model reads".
        """
        missing = self._first_missing(names)
        if missing is not None:
            raise TableError(self.source, f"it has no column {missing!r}, {why}", self._hint(missing))

    def require_argument(self, argument: str, names: Sequence[str]) -> None:
        """Raise an ArgumentError unless the file has all columns in `names`, the value of the argument `argument`."""
        missing = self._first_missing(names)
        if missing is not None:
            reason = f"names the column {missing!r}, which {self.source} does not have. {self._hint(missing)}"
            raise ArgumentError(argument, reason)

    def read(self, columns: Sequence[str]) -> RowBatch:
        """Return all rows of the columns named in `columns`."""
        parts = list(self.batches(columns))
        joined = {name: pa.concat_arrays([part.columns[name] for part in parts]) for name in columns}
        return RowBatch(self.source, 1, joined)

    def batches(self, columns: Sequence[str], size: int = BATCH_SIZE) -> Iterator[RowBatch]:
        """Yield the rows of the columns named in `columns` in batches of at most `size` rows."""
        positions = [self.names.index(name) for name in columns]
        first_row = 1
        for block in self._blocks(positions, size):
            for start in range(0, len(block), size):
                part = block.slice(start, size)
                yield RowBatch(self.source, first_row, {name: part.column(i) for i, name in enumerate(columns)})
                first_row += len(part)
        if first_row == 1:
            raise TableError(self.source, csv_files.NO_ROWS)

    def _blocks(self, positions: list[int], size: int) -> Iterator[pa.RecordBatch]:
        """Return an iterator over blocks of rows of the columns at these positions."""
        if self.csv_format is None:
            columns = [self.names[position] for position in positions]
            return typed_files.batches(self.path, _magic(self.path), columns, size)
        return csv_files.batches(self.path, self.source, len(self.names), self.csv_format, positions)

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


def open_table(path: Path | str, encoding: str | None = None) -> Table:
    """Read the format and the column names of a file; raises a TableError if it cannot be read.

    Parameters
    ----------
    path : path
        The file; "-" is standard input.
    encoding : str or None
        Encoding of a CSV file, such as "latin-1"; None is UTF-8, or UTF-16 if the file begins with its byte order mark.
    """
    path = Path(path)
    if path == STANDARD_STREAM:
        return _open(_copy_of_standard_input(), encoding, "standard input")
    if not path.exists():
        raise TableError(str(path), "there is no such file")
    if path.is_dir():
        raise TableError(str(path), "this is a folder", "Name a CSV or Parquet file in it")
    return _open(path, encoding, str(path))


def _open(path: Path, encoding: str | None, source: str) -> Table:
    """Return the table in the file `path`, which messages call `source`."""
    csv_format: csv_files.CsvFormat | None = None
    try:
        magic = _magic(path)
        if typed_files.is_typed(path, magic):
            names = typed_files.names(path, magic)
        else:
            names, csv_format = csv_files.header(path, source, magic, encoding)
    except OSError as error:
        raise TableError(source, f"it cannot be read: {error.strerror or error}") from error
    if len(names) > 2 and names[0] and not any(names[1:]):
        problem = f"the first row must name the columns, but seems to be a title, {names[0]!r}"
        raise TableError(source, problem, "Remove all rows above the names of the columns")
    repeated = sorted({name for name in names if name and names.count(name) > 1})
    if repeated:
        raise TableError(source, f"there is more than one column named {repeated[0]!r}", "Rename all but one")
    return Table(path, tuple(names), csv_format, source)


def _magic(path: Path) -> bytes:
    """Return the first bytes of the file at `path`."""
    with path.open("rb") as file:
        return file.read(MAGIC_SIZE)


def _copy_of_standard_input() -> Path:
    """Copy standard input, which cannot be read twice, to a temporary file that is removed at exit; return its path."""
    with tempfile.NamedTemporaryFile(prefix="anchored-", delete=False) as file:
        atexit.register(Path(file.name).unlink, missing_ok=True)
        shutil.copyfileobj(sys.stdin.buffer, file)
        return Path(file.name)
