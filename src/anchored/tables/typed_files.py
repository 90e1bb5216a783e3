"""Read files whose columns have types: Parquet, Arrow, and the first sheet of an Excel workbook."""

from collections.abc import Iterator
from datetime import date, datetime, time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from anchored.errors import MissingPackageError, TableError

PARQUET = (".parquet", ".pq")  # suffixes
ARROW = (".arrow", ".feather", ".ipc")
WORKBOOK = (".xlsx", ".xlsm")


def is_typed(path: Path, magic: bytes) -> bool:
    """Whether this module can read the file at `path`, whose first six bytes are `magic`."""
    is_workbook = magic[:4] == b"PK\x03\x04" and path.suffix.lower() in WORKBOOK
    return magic[:4] == b"PAR1" or magic == b"ARROW1" or is_workbook or path.suffix.lower() in PARQUET + ARROW


def names(path: Path, magic: bytes) -> list[str]:
    """Return the names of the columns of the file at `path`, whose first six bytes are `magic`."""
    if magic[:4] == b"PK\x03\x04":
        return _sheet(path).column_names
    try:
        if magic == b"ARROW1":
            with pa.memory_map(str(path)) as file:
                return list(pa.ipc.open_file(file).schema.names)
        return list(pyarrow.parquet.read_schema(path).names)
    except (pa.ArrowException, OSError) as error:
        kind = "an Arrow file" if path.suffix.lower() in ARROW else "a Parquet file"
        raise TableError(str(path), f"it is not {kind}, or it is damaged", "Export it again") from error


def batches(path: Path, magic: bytes, columns: list[str], size: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `columns` in batches of at most `size` rows; `magic` are the first six bytes of the file.

    The batches of an Arrow file are those that it stores, of any size.
    """
    try:
        if magic[:4] == b"PK\x03\x04":
            parts = iter(_sheet(path).select(columns).to_batches(size))
        else:
            parts = _arrow_batches(path, columns) if magic == b"ARROW1" else _parquet_batches(path, columns, size)
        for batch in parts:
            yield pa.RecordBatch.from_pydict({name: decoded(batch.column(name)) for name in columns})
    except (pa.ArrowException, OSError) as error:
        raise TableError(str(path), "it is damaged and cannot be read to the end", "Export it again") from error


def decoded(array: pa.Array) -> pa.Array:
    """Return `array`, decoded if it is dictionary-encoded."""
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _parquet_batches(path: Path, columns: list[str], size: int) -> Iterator[pa.RecordBatch]:
    """Yield batches of a Parquet file."""
    with pyarrow.parquet.ParquetFile(path, pre_buffer=False) as file:  # a buffer would keep all that has been read
        yield from file.iter_batches(size, columns=columns)


def _arrow_batches(path: Path, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield the batches of an Arrow file."""
    with pa.memory_map(str(path)) as file:
        reader = pa.ipc.open_file(file)
        for i in range(reader.num_record_batches):
            yield reader.get_batch(i).select(columns)


def _sheet(path: Path) -> pa.Table:
    """Return the first sheet of the workbook at `path`; its first row that is not empty must name the columns."""
    try:
        import openpyxl
    except ImportError as error:
        raise MissingPackageError("Excel workbooks", "openpyxl", "excel") from error
    try:
        workbook = openpyxl.load_workbook(path, read_only=True, data_only=True)
    except Exception as error:  # openpyxl raises errors of many kinds for a damaged file
        raise TableError(
            str(path), "it is not an Excel workbook, or it is damaged", "Save it again, or as CSV"
        ) from error
    with_values = (row for row in workbook.worksheets[0].iter_rows(values_only=True) if any(v is not None for v in row))
    header = next(with_values, ())
    cells = list(zip(*with_values, strict=False))
    workbook.close()
    found = ["" if name is None else str(name).strip() for name in header]
    if not cells:
        raise TableError(str(path), "the first sheet has no rows below the names of the columns")
    return pa.Table.from_arrays([_column(values) for values in cells], names=found)


def _column(values: tuple) -> pa.Array:
    """Return the cells of one column of a sheet: numbers, dates, times or booleans if all cells are, otherwise text."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float}:
        return pa.array([None if value is None else float(value) for value in values], pa.float64())
    if kinds <= {datetime, date}:
        return pa.array(values, pa.timestamp("us"))
    if kinds in ({bool}, {time}, {str}):
        return pa.array(values)
    return pa.array([None if value is None else str(value) for value in values], pa.string())
