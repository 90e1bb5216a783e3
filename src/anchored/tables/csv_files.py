"""Read CSV files: the names of their columns, and their rows as text. Errors say why a file cannot be read."""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader, StringIO, TextIOWrapper
from pathlib import Path

import pyarrow as pa
import pyarrow.csv

from anchored.errors import ArgumentError, TableError

BLOCK_SIZE = 2**20  # bytes per read; larger blocks are hardly faster and need more memory
UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # byte order marks at the beginning of UTF-16 files
DELIMITERS = ",;\t|"
NO_ROWS = "the file has a header but no rows"


@dataclass(frozen=True)
class CsvFormat:
    """The format of a CSV file: the `delimiter` between its values, and the `encoding` of its text."""

    delimiter: str
    encoding: str


def header(path: Path, where: str, magic: bytes, encoding: str | None) -> tuple[list[str], CsvFormat]:
    """Return the names of the columns of the CSV file at `path`, and its format.

    Parameters
    ----------
    path : Path
        The file.
    where : str
        Name of the file in messages.
    magic : bytes
        First bytes of the file, by which a zip archive is recognised.
    encoding : str or None
        Encoding of the file; None is UTF-8, or UTF-16 if the file begins with its byte order mark.
    """
    if magic[:4] == b"PK\x03\x04":
        raise TableError(where, "this is a zip archive, not a CSV file", "Unpack it, or save it as CSV")
    with _stream(path) as stream:
        start = stream.read(BLOCK_SIZE)
    if encoding is None:
        encoding = "utf-16" if start[:2] in UTF_16 else "utf-8-sig"
    _check_text(where, start, encoding)
    try:
        decoded = start.decode(encoding, errors="surrogateescape" if encoding == "utf-8-sig" else "replace")
    except LookupError:
        raise ArgumentError("encoding", f"is not known: {encoding!r}", "use latin-1 or cp1252, for example") from None
    first_line = next(StringIO(decoded, newline=""), "")
    if not first_line.strip():
        raise TableError(where, "the first line is empty, but must name the columns", "Remove it")
    if not first_line.endswith("\n") and len(start) < BLOCK_SIZE:
        raise TableError(where, NO_ROWS)
    if any("\udc80" <= letter <= "\udcff" for letter in first_line):
        raise _not_utf8(path, where)
    names, delimiter = _split(where, first_line)
    if len(start) < BLOCK_SIZE:  # in a longer file, pyarrow raises for a value that is longer than a block
        _check_quotes(where, decoded, delimiter)
    if all(_is_number(name) for name in names):
        raise TableError(where, "the first row must name the columns, but holds numbers", "Add a row of names above it")
    return names, CsvFormat(delimiter, encoding)


def batches(
    path: Path, where: str, n_columns: int, written: CsvFormat, positions: list[int]
) -> Iterator[pa.RecordBatch]:
    """Yield blocks of rows, with every value as text, since types inferred for each block could differ between blocks.

    Parameters
    ----------
    path : Path
        The file.
    where : str
        Name of the file in messages.
    n_columns : int
        Number of columns of the file.
    written : CsvFormat
        Format of the file.
    positions : list of int
        Positions of the columns to read, from 0.
    """
    names = [str(position) for position in range(n_columns)]
    try:
        with _stream(path) as stream:
            yield from pyarrow.csv.open_csv(
                stream,
                pyarrow.csv.ReadOptions(
                    column_names=names,
                    skip_rows=1,
                    block_size=BLOCK_SIZE,
                    use_threads=False,
                    encoding="utf8" if written.encoding == "utf-8-sig" else written.encoding,
                ),
                pyarrow.csv.ParseOptions(
                    delimiter=written.delimiter, newlines_in_values=True, ignore_empty_lines=len(names) > 1
                ),
                pyarrow.csv.ConvertOptions(
                    include_columns=[names[position] for position in positions],
                    column_types=dict.fromkeys(names, pa.string()),
                    strings_can_be_null=False,
                ),
            )
    except pa.ArrowInvalid as error:
        raise _diagnose(path, where, n_columns, written, error) from error
    except UnicodeDecodeError as error:
        problem = f"this is not {written.encoding} text: {error.reason}"
        raise TableError(where, problem, "Name its encoding", (("encoding", "latin-1"),)) from error
    except OSError as error:
        raise TableError(where, f"it cannot be read as CSV: {error}") from error


def _check_text(where: str, start: bytes, encoding: str) -> None:
    """Raise a TableError if the first block of the file, `start`, is binary or empty."""
    if b"\0" in start and not encoding.lower().replace("_", "-").startswith(("utf-16", "utf-32")):
        raise TableError(where, "this is not text", "Pass a CSV or Parquet file")
    if not start.strip():
        raise TableError(where, "the file is empty")


def _split(where: str, first_line: str) -> tuple[list[str], str]:
    """Return the names in the first line, and the delimiter: of DELIMITERS, the first that gives the most names."""
    try:
        split = {delimiter: next(csv.reader([first_line], delimiter=delimiter)) for delimiter in DELIMITERS}
    except csv.Error as error:
        problem = f"the first line, which must name the columns, cannot be read: {error}"
        raise TableError(where, problem) from error
    delimiter = max(split, key=lambda delimiter: len(split[delimiter]))
    return [name.strip() for name in split[delimiter]], delimiter


def _check_quotes(where: str, content: str, delimiter: str) -> None:
    """Raise a TableError if a quote is never closed, since all rows below it would be read as one value."""
    if content.count('"') % 2 == 0:
        return
    text = StringIO(content, newline="")
    n_rows, value = -1, ""
    try:
        for row in csv.reader(text, delimiter=delimiter):
            n_rows, value = n_rows + 1, row[-1] if row else ""
    except csv.Error:  # a value beyond the size limit of the csv module
        value = "\n"
    if "\n" in value:
        raise TableError(f"{where}, row {n_rows}", "a quote is opened and never closed", "Close it")


def _stream(path: Path) -> pa.NativeFile:
    """Open the file for reading, decompressed if it begins like a gzip file, or its suffix is .bz2, .lz4 or .zst."""
    with path.open("rb") as file:
        is_gzip = file.read(2) == b"\x1f\x8b"
    return pa.input_stream(str(path), compression="gzip" if is_gzip else "detect")


def _diagnose(path: Path, where: str, n_columns: int, written: CsvFormat, error: Exception) -> TableError:
    """Return a TableError that says why pyarrow raised `error`; the file is read line by line to find out."""
    if written.encoding == "utf-8-sig" and _first_line_not_utf8(path):
        return _not_utf8(path, where)
    ragged = _first_ragged_row(path, n_columns, written)
    if ragged:
        number, row = ragged
        problem = f"{len(row)} values, but there are {n_columns} columns"
        return TableError(f"{where}, row {number}", problem, _remedy_of_ragged(row, n_columns))
    if "straddling" in str(error):  # the only sign of this in pyarrow's error
        problem = f"a row is longer than {BLOCK_SIZE // 2**20} MB"
        return TableError(where, problem, "Look for a quote that is never closed")
    return TableError(where, f"it cannot be read as CSV: {error}")


def _remedy_of_ragged(row: list[str], n_columns: int) -> str:
    """Return what to do about a `row` that has not as many values as there are columns."""
    if n_columns == 1:
        return "If the first line is a title, remove all lines above the names of the columns"
    if len(row) == n_columns + 1 and not row[-1].strip():
        return "Rows end with a delimiter: add one to the first line too, or remove them"
    return "Put text that holds the delimiter in quotes, close every quote, and leave missing values empty"


def _first_ragged_row(path: Path, n_columns: int, written: CsvFormat) -> tuple[int, list[str]] | None:
    """Return the number of the first row with too few or too many values, and its values; None if there is none."""
    with _stream(path) as stream, TextIOWrapper(stream, written.encoding, errors="replace", newline="") as text:
        try:
            for number, row in enumerate(csv.reader(text, delimiter=written.delimiter)):
                if row and len(row) != n_columns:
                    return number, row
        except csv.Error:  # a value beyond the size limit of the csv module
            pass
    return None


def _not_utf8(path: Path, where: str) -> TableError:
    """Return the TableError for a file that is not UTF-8, with the number of the first such line."""
    where = f"{where}, line {_first_line_not_utf8(path)}"
    settings = (("encoding", "latin-1"), ("encoding", "cp1252"))
    return TableError(where, "this is not UTF-8 text", "Name its encoding, or convert it", settings)


def _first_line_not_utf8(path: Path) -> int | None:
    """Return the number of the first line that is not UTF-8, from 1; None if there is none."""
    with _stream(path) as stream:
        return next((number for number, line in enumerate(BufferedReader(stream), 1) if not _is_utf8(line)), None)


def _is_utf8(line: bytes) -> bool:
    """Whether `line` is UTF-8."""
    try:
        return line.decode("utf-8") is not None
    except UnicodeDecodeError:
        return False


def _is_number(name: str) -> bool:
    """Whether `name` is a number."""
    try:
        return float(name) is not None
    except ValueError:
        return False
