"""CSV files: the names of their columns, their rows as text, and what is wrong with one that cannot be read."""

import csv
from collections.abc import Iterator
from io import BufferedReader, StringIO, TextIOWrapper
from pathlib import Path

import pyarrow as pa
import pyarrow.csv

from anchored.errors import TableError

BLOCK_SIZE = 2**20  # bytes read at a time; larger blocks are hardly faster, and cost memory
DELIMITERS = ",;\t|"
NO_ROWS = "there are names of columns, but no rows below them"


def header(path: Path, magic: bytes) -> tuple[list[str], str]:
    """The names of the columns, and the delimiter, of the file whose first four bytes are `magic`."""
    where = str(path)
    if magic == b"PK\x03\x04":
        raise TableError(where, "this is a zip archive or a workbook, not a CSV file", "Unpack it, or save it as CSV")
    with _stream(path) as stream:
        start = stream.read(BLOCK_SIZE)
    _check_text(where, start)
    first_line = next(StringIO(start.decode("utf-8-sig", errors="surrogateescape"), newline=""), "")
    if not first_line.strip():
        raise TableError(where, "the first line is empty, and must name the columns", "Remove it")
    if not first_line.endswith("\n") and len(start) < BLOCK_SIZE:
        raise TableError(where, NO_ROWS)
    if any("\udc80" <= letter <= "\udcff" for letter in first_line):
        raise _not_utf8(path)
    names, delimiter = _split(where, first_line)
    if len(start) < BLOCK_SIZE:  # in a longer file, pyarrow notices a value that is longer than a block
        _check_quotes(path, start, delimiter)
    if all(_is_number(name) for name in names):
        raise TableError(where, "the first row must name the columns, and holds numbers", "Put names above")
    return names, delimiter


def batches(path: Path, n_columns: int, delimiter: str, positions: list[int]) -> Iterator[pa.RecordBatch]:
    """The columns at these positions, block by block, with every value as text: a column then means the same in all."""
    names = [str(position) for position in range(n_columns)]
    try:
        with _stream(path) as stream:
            yield from pyarrow.csv.open_csv(
                stream,
                pyarrow.csv.ReadOptions(column_names=names, skip_rows=1, block_size=BLOCK_SIZE, use_threads=False),
                pyarrow.csv.ParseOptions(
                    delimiter=delimiter, newlines_in_values=True, ignore_empty_lines=len(names) > 1
                ),
                pyarrow.csv.ConvertOptions(
                    include_columns=[names[position] for position in positions],
                    column_types=dict.fromkeys(names, pa.string()),
                    strings_can_be_null=False,
                ),
            )
    except pa.ArrowInvalid as error:
        raise _explained(path, n_columns, delimiter, error) from error
    except OSError as error:
        raise TableError(str(path), f"it cannot be read as CSV: {error}") from error


def _check_text(where: str, start: bytes) -> None:
    if start[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise TableError(where, "this is UTF-16 text", "Save it as UTF-8 (iconv -f UTF-16 -t UTF-8)")
    if b"\0" in start:
        raise TableError(where, "this is not text", "Give a CSV or Parquet file")
    if not start.strip():
        raise TableError(where, "the file is empty")


def _split(where: str, first_line: str) -> tuple[list[str], str]:
    """The names, and the delimiter that gives most of them; of equals, the first."""
    try:
        split = {delimiter: next(csv.reader([first_line], delimiter=delimiter)) for delimiter in DELIMITERS}
    except csv.Error as error:
        problem = f"the first line must name the columns, and cannot be read: {error}"
        raise TableError(where, problem) from error
    delimiter = max(split, key=lambda delimiter: len(split[delimiter]))
    return [name.strip() for name in split[delimiter]], delimiter


def _check_quotes(path: Path, content: bytes, delimiter: str) -> None:
    """Raise if a quote is never closed, which would make all rows below it one value."""
    if content.count(b'"') % 2 == 0:
        return
    text = StringIO(content.decode("utf-8-sig", errors="replace"), newline="")
    n_rows, value = -1, ""
    try:
        for row in csv.reader(text, delimiter=delimiter):
            n_rows, value = n_rows + 1, row[-1] if row else ""
    except csv.Error:  # a value longer than any that makes sense
        value = "\n"
    if "\n" in value:
        raise TableError(f"{path}, row {n_rows}", "a quote is opened and never closed", "Close it")


def _stream(path: Path) -> pa.NativeFile:
    """The file's bytes, unpacked if its name ends with .gz or the like."""
    return pa.input_stream(str(path))


def _explained(path: Path, n_columns: int, delimiter: str, error: Exception) -> TableError:
    """What is wrong with a file that pyarrow cannot read, found by reading it line by line."""
    if _first_line_not_utf8(path):
        return _not_utf8(path)
    ragged = _first_ragged_row(path, n_columns, delimiter)
    if ragged:
        number, n_values = ragged
        return TableError(
            f"{path}, row {number}",
            f"{n_values} values where there are {n_columns} columns",
            "Put text that holds the delimiter in quotes, close every quote, and leave missing values empty",
        )
    if "straddling" in str(error):  # all that pyarrow tells
        problem = f"a row is longer than {BLOCK_SIZE // 2**20} MB"
        return TableError(str(path), problem, "Look for a quote that is never closed")
    return TableError(str(path), f"it cannot be read as CSV: {error}")


def _first_ragged_row(path: Path, n_columns: int, delimiter: str) -> tuple[int, int] | None:
    """The number of the first row with too few or too many values, counted below the names, and how many it has."""
    with _stream(path) as stream, TextIOWrapper(stream, "utf-8-sig", newline="") as text:
        try:
            for number, row in enumerate(csv.reader(text, delimiter=delimiter)):
                if row and len(row) != n_columns:
                    return number, len(row)
        except csv.Error:  # a value longer than any that makes sense
            pass
    return None


def _not_utf8(path: Path) -> TableError:
    where = f"{path}, line {_first_line_not_utf8(path)}"
    return TableError(where, "this is not UTF-8 text", "Convert it (iconv -f LATIN1 -t UTF-8, for example)")


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
