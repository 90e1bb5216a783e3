"""Tables in CSV and Parquet files: read some rows at a time, written whole or not at all."""

import csv
import difflib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader, StringIO, TextIOWrapper
from pathlib import Path

import numpy as np

from anchored.storage import atomic
from anchored.tables.cells import Rows
from anchored.tables.errors import TableError

import pyarrow as pa  # isort: skip  (after cells, which says what to install where it is missing)
import pyarrow.csv
import pyarrow.parquet

ROWS_AT_ONCE = 2**14
BYTES_AT_ONCE = 2**20  # of a CSV file; larger pieces are hardly faster, and cost memory
DELIMITERS = ",;\t|"
NO_ROWS = "{} has names of columns, but no rows below them"
PARQUET, TEXT = (".parquet", ".pq"), (".csv", ".tsv", ".txt")


@dataclass(frozen=True)
class Table:
    """A file with named columns."""

    path: Path
    names: tuple[str, ...]  # without blanks around them; some may be empty
    delimiter: str | None  # None: a Parquet file

    def require(self, names: Sequence[str], why: str) -> None:
        """Raise unless all these columns are there."""
        for name in names:
            if name not in self.names:
                near = difflib.get_close_matches(name, self.names, 1, 0.6)
                guess = f" Did you mean {near[0]!r}?" if near else f" It has {shown(self.names)}."
                raise TableError(f"{self.path} has no column {name!r}, {why}.{guess}")

    def read(self, columns: Sequence[str]) -> Rows:
        """All rows at once."""
        pieces = list(self.rows(columns))
        joined = {name: pa.concat_arrays([piece.columns[name] for piece in pieces]) for name in columns}
        return Rows(str(self.path), 1, joined)

    def rows(self, columns: Sequence[str], at_once: int = ROWS_AT_ONCE) -> Iterator[Rows]:
        """The file's rows, at most so many at a time."""
        places = [self.names.index(name) for name in columns]
        first = 1
        for batch in self._batches(at_once, places):
            for start in range(0, len(batch), at_once):
                piece = batch.slice(start, at_once)
                yield Rows(str(self.path), first, {name: piece.column(i) for i, name in enumerate(columns)})
                first += len(piece)
        if first == 1:
            raise TableError(NO_ROWS.format(self.path))

    def _batches(self, at_once: int, places: list[int]) -> Iterator[pa.RecordBatch]:
        return _csv_batches(self, places) if self.delimiter else _parquet_batches(self, places, at_once)


def open_table(path: Path | str) -> Table:
    """What kind of file it is, and the names of its columns."""
    path = Path(path)
    if not path.exists():
        raise TableError(f"there is no file {path}")
    if path.is_dir():
        raise TableError(f"{path} is a folder; name a CSV or Parquet file in it")
    try:
        with path.open("rb") as file:
            magic = file.read(4)
        if magic == b"PAR1" or path.suffix.lower() in PARQUET:
            names, delimiter = _parquet_names(path), None
        else:
            names, delimiter = _csv_names(path, magic)
    except OSError as error:
        raise TableError(f"{path} cannot be read: {error.strerror or error}") from error
    repeated = sorted({name for name in names if name and names.count(name) > 1})
    if repeated:
        raise TableError(f"{path} has more than one column named {repeated[0]!r}; rename all but one")
    return Table(path, tuple(names), delimiter)


def shown(names: Sequence[str], most: int = 12) -> str:
    """Names in a sentence."""
    given = [repr(name) for name in names[:most]]
    return ", ".join(given) + (f" and {len(names) - most} more" if len(names) > most else "")


# CSV


def _csv_names(path: Path, magic: bytes) -> tuple[list[str], str]:
    if magic == b"PK\x03\x04":
        raise TableError(f"{path} is a zip archive or a workbook, not a CSV file; unpack it, or save it as CSV")
    with _stream(path) as stream:
        head = stream.read(BYTES_AT_ONCE)
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise TableError(f"{path} is UTF-16 text; save it as UTF-8 (iconv -f UTF-16 -t UTF-8)")
    if b"\0" in head:
        raise TableError(f"{path} is not text; give a CSV or Parquet file")
    if not head.strip():
        raise TableError(f"{path} is empty")
    lines = StringIO(head.decode("utf-8-sig", errors="surrogateescape"), newline="")
    header = next(lines, "")
    if not header.strip():
        raise TableError(f"{path}: its first line is empty, and must name the columns; remove it")
    if not header.endswith("\n") and len(head) < BYTES_AT_ONCE:
        raise TableError(NO_ROWS.format(path))
    if any("\udc80" <= letter <= "\udcff" for letter in header):
        raise _not_utf8(path)
    try:
        cut = {delimiter: next(csv.reader([header], delimiter=delimiter)) for delimiter in DELIMITERS}
    except csv.Error as error:
        raise TableError(f"{path}: its first line must name the columns, and cannot be read: {error}") from error
    delimiter = max(cut, key=lambda delimiter: len(cut[delimiter]))  # of equals, the first
    names = [name.strip() for name in cut[delimiter]]
    if len(head) < BYTES_AT_ONCE:  # of a longer file, a cell that is longer than a piece is noticed
        _check_quotes(path, head, delimiter)
    if all(_is_number(name) for name in names):
        raise TableError(f"{path}: its first row must name the columns, and it holds numbers; put names above")
    return names, delimiter


def _check_quotes(path: Path, content: bytes, delimiter: str) -> None:
    """A quote that is never closed would swallow the rows below it."""
    if content.count(b'"') % 2 == 0:
        return
    text = StringIO(content.decode("utf-8-sig", errors="replace"), newline="")
    n_rows, cell = -1, ""
    try:
        for row in csv.reader(text, delimiter=delimiter):
            n_rows, cell = n_rows + 1, row[-1] if row else ""
    except csv.Error:  # a cell longer than any that makes sense
        cell = "\n"
    if "\n" in cell:
        raise TableError(f"{path}, row {n_rows}: a quote is opened and never closed; close it")


def _stream(path: Path) -> pa.NativeFile:
    """The file's bytes, unpacked where its name ends with .gz or the like."""
    return pa.input_stream(str(path))


def _csv_batches(table: Table, places: list[int]) -> Iterator[pa.RecordBatch]:
    """Every cell as text, so that a column means the same in all pieces."""
    names = [str(place) for place in range(len(table.names))]
    wanted = [names[place] for place in places]
    try:
        with _stream(table.path) as stream:
            reader = pyarrow.csv.open_csv(
                stream,
                pyarrow.csv.ReadOptions(column_names=names, skip_rows=1, block_size=BYTES_AT_ONCE, use_threads=False),
                pyarrow.csv.ParseOptions(
                    delimiter=table.delimiter, newlines_in_values=True, ignore_empty_lines=len(names) > 1
                ),
                pyarrow.csv.ConvertOptions(
                    include_columns=wanted,
                    column_types=dict.fromkeys(names, pa.string()),
                    strings_can_be_null=False,
                ),
            )
            yield from reader
    except pa.ArrowInvalid as error:
        raise _csv_error(table, error) from error
    except OSError as error:
        raise TableError(f"{table.path} cannot be read as CSV: {error}") from error


def _csv_error(table: Table, error: Exception) -> TableError:
    """What is wrong with a file that pyarrow cannot read: looked for again, line by line."""
    if _first_line_not_utf8(table.path):
        return _not_utf8(table.path)
    ragged = _first_ragged_row(table)
    if ragged:
        number, n_cells = ragged
        return TableError(
            f"{table.path}, row {number}: {n_cells} cells where there are {len(table.names)} columns. Put text that "
            "holds the delimiter in quotes, close every quote, and fill missing cells with nothing."
        )
    if "straddling" in str(error):
        most = BYTES_AT_ONCE // 2**20
        return TableError(f"{table.path}: a row is longer than {most} MB; is there a quote that is never closed?")
    return TableError(f"{table.path} cannot be read as CSV: {error}")


def _first_ragged_row(table: Table) -> tuple[int, int] | None:
    """The number of the first row with too few or too many cells, counted below the names, and how many it has."""
    with _stream(table.path) as stream, TextIOWrapper(stream, "utf-8-sig", newline="") as text:
        rows = csv.reader(text, delimiter=table.delimiter or ",")
        try:
            for number, row in enumerate(rows):
                if row and len(row) != len(table.names):
                    return number, len(row)
        except csv.Error:  # a cell longer than any that makes sense
            pass
    return None


def _not_utf8(path: Path) -> TableError:
    number = _first_line_not_utf8(path)
    return TableError(f"{path}, line {number}: not UTF-8 text; convert it (iconv -f LATIN1 -t UTF-8, for example)")


def _first_line_not_utf8(path: Path) -> int | None:
    with _stream(path) as stream:
        return next((number for number, line in enumerate(BufferedReader(stream), 1) if not _is_utf8(line)), None)


def _is_utf8(line: bytes) -> bool:
    try:
        return line.decode("utf-8") is not None
    except UnicodeDecodeError:
        return False


def _is_number(name: str) -> bool:
    try:
        return float(name) is not None
    except ValueError:
        return False


# Parquet


def _parquet_names(path: Path) -> list[str]:
    try:
        return list(pyarrow.parquet.read_schema(path).names)
    except pa.ArrowException as error:
        raise TableError(f"{path} is not a Parquet file, or is damaged; write it again") from error


def _parquet_batches(table: Table, places: list[int], at_once: int) -> Iterator[pa.RecordBatch]:
    names = [table.names[place] for place in places]
    try:
        with pyarrow.parquet.ParquetFile(table.path) as file:
            for batch in file.iter_batches(at_once, columns=names):
                by_name = {name: _plain(batch.column(name)) for name in names}
                yield pa.RecordBatch.from_pydict(by_name)
    except (pa.ArrowException, OSError) as error:
        raise TableError(f"{table.path} is damaged, and cannot be read to its end; write it again") from error


def _plain(array: pa.Array) -> pa.Array:
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


# Writing


def check_writable(path: Path, inputs: Sequence[Path]) -> None:
    """Raise before the work is done where its result could not be kept."""
    try:
        atomic.check_writable(path)
    except OSError as error:
        raise TableError(f"--out {error}") from error
    if any(path.resolve() == given.resolve() for given in inputs):
        raise TableError(f"--out {path} would overwrite what is read; choose another name")


def check_format(path: Path) -> None:
    """Raise where a name does not say in what form rows are to be written."""
    if path.suffix.lower() not in TEXT + PARQUET:
        raise TableError(f"--out {path}: its name must end with one of {', '.join(TEXT + PARQUET)}")


@contextmanager
def writing(path: Path) -> Iterator[Callable[[dict[str, pa.Array | np.ndarray]], None]]:
    """A function that appends columns to a new file, as its name says: Parquet, or CSV, with tabs for .tsv."""
    with atomic.replacing(path) as temporary:
        writers: list = []

        def write(columns: dict[str, pa.Array | np.ndarray]) -> None:
            batch = pa.RecordBatch.from_pydict({name: pa.array(values) for name, values in columns.items()})
            if not writers:
                writers.append(_writer(path.suffix.lower(), temporary, batch.schema))
            writers[0].write_batch(batch)

        try:
            yield write
        finally:
            for writer in writers:
                writer.close()


def _writer(suffix: str, path: Path, schema: pa.Schema) -> pyarrow.parquet.ParquetWriter | pyarrow.csv.CSVWriter:
    if suffix in PARQUET:
        return pyarrow.parquet.ParquetWriter(path, schema)
    for field in schema:
        if pa.types.is_nested(field.type):
            told = f"cells of type {field.type} cannot be written as CSV; end the name of --out with .parquet"
            raise TableError(f"column {field.name!r}: {told}")
    return pyarrow.csv.CSVWriter(
        path, schema, write_options=pyarrow.csv.WriteOptions(delimiter="\t" if suffix == ".tsv" else ",")
    )
