"""Write tables to CSV or Parquet files, or to standard output; an interrupted write leaves no file."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from anchored.errors import ArgumentError, TableError
from anchored.storage import atomic
from anchored.tables.files import STANDARD_STREAM
from anchored.tables.typed_files import PARQUET

TEXT = (".csv", ".tsv", ".txt")  # suffixes of CSV files
Columns = dict[str, pa.Array | np.ndarray]  # by name, (rows,) each


def check_writable(out: Path, inputs: Sequence[Path]) -> None:
    """Raise an ArgumentError if `out` cannot be written, or is one of the files `inputs`.

    Call it before a long computation, so that the error comes early. "-", standard output, can always be written.
    """
    if out == STANDARD_STREAM:
        return
    try:
        atomic.check_writable(out)
    except OSError as error:
        raise ArgumentError("out", f"cannot be written: {error}") from error
    if any(out.resolve() == path.resolve() for path in inputs):
        raise ArgumentError("out", f"would overwrite {out}, which is an input", "choose another name")


def check_format(out: Path) -> None:
    """Raise an ArgumentError unless the suffix of `out` is that of a CSV or Parquet file."""
    if out != STANDARD_STREAM and out.suffix.lower() not in TEXT + PARQUET:
        raise ArgumentError("out", f"must end with one of {', '.join(TEXT + PARQUET)}, got {out}")


@contextmanager
def writing(out: Path) -> Iterator[Callable[[Columns], None]]:
    """Write a table to the file `out`, which is replaced when the block ends without an error.

    Yields a function that appends rows, given as columns by name. The suffix of `out` decides the format: Parquet, CSV,
    or CSV with tabs for .tsv. If `out` is "-", CSV is written to standard output as it is computed.
    """
    target = nullcontext(sys.stdout.buffer) if out == STANDARD_STREAM else atomic.replacing(out)
    with target as destination:
        writers: list[pyarrow.parquet.ParquetWriter | pyarrow.csv.CSVWriter] = []

        def write(columns: Columns) -> None:
            batch = pa.RecordBatch.from_pydict({name: pa.array(values) for name, values in columns.items()})
            if not writers:
                writers.append(_writer(out.suffix.lower(), destination, batch.schema))
            writers[0].write_batch(batch)

        try:
            yield write
        finally:
            for writer in writers:
                writer.close()


def _writer(
    suffix: str, path: Path | BinaryIO, schema: pa.Schema
) -> pyarrow.parquet.ParquetWriter | pyarrow.csv.CSVWriter:
    """Return a writer of rows with `schema` to `path`, in the format that `suffix` stands for."""
    if suffix in PARQUET:
        return pyarrow.parquet.ParquetWriter(path, schema)
    for field in schema:
        if pa.types.is_nested(field.type):
            problem = f"values of type {field.type} cannot be written as CSV"
            raise TableError(f"column {field.name!r}", problem, "Write to a file that ends with .parquet")
    delimiter = "\t" if suffix == ".tsv" else ","
    return pyarrow.csv.CSVWriter(path, schema, write_options=pyarrow.csv.WriteOptions(delimiter=delimiter))
