"""Convert data frames of pandas and polars, Arrow tables and NumPy arrays to rows."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sklearn.utils import check_array

from anchored.errors import ArgumentError
from anchored.tables import typed_files
from anchored.tables.rows import RowBatch


def as_rows(X: Any) -> RowBatch:
    """Return the rows of `X`, a data frame of pandas or polars, an Arrow table, or an array, (rows, columns).

    Columns of an array are called x0, x1 and so on. Rows are numbered from 0 in messages. An ArgumentError is raised if
    two columns have the same name, or there are no rows.
    """
    if isinstance(X, pa.Table):
        names, arrays = list(X.column_names), list(X.columns)
    elif hasattr(X, "to_arrow"):  # polars
        names, arrays = list(X.columns), list(X.to_arrow().columns)
    elif hasattr(X, "iloc"):  # pandas
        names = [str(name) for name in X.columns]
        arrays = [_from_pandas(X.iloc[:, i]) for i in range(X.shape[1])]
    else:
        matrix = check_array(X, dtype=None, ensure_all_finite=False, estimator="TableEncoder")
        names = [f"x{i}" for i in range(matrix.shape[1])]
        arrays = [_from_sequence(column) for column in matrix.T]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ArgumentError("X", f"has more than one column named {repeated[0]!r}", "rename all but one")
    if not arrays or len(arrays[0]) == 0:
        raise ArgumentError("X", "Found array with 0 sample(s) while a minimum of 1 is required")
    return RowBatch("X", 0, {name: _simple(array) for name, array in zip(names, arrays, strict=True)})


def _from_pandas(series: Any) -> pa.Array | pa.ChunkedArray:
    """Return a pandas Series as an Arrow array; values of mixed types become text."""
    try:
        return pa.array(series, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return _from_sequence(series.to_numpy(dtype=object, na_value=None))


def _from_sequence(values: np.ndarray) -> pa.Array:
    """Return the values of one column as an Arrow array; values of mixed types become text."""
    if values.dtype.kind in "biufM":
        return pa.array(values, from_pandas=True)
    if values.dtype.kind == "c":
        raise ArgumentError("X", "holds complex numbers. Complex data not supported")
    if any(isinstance(value, dict | list | set | tuple) for value in values):
        raise TypeError("X: argument must be a string or a number, not a container")
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([None if _is_missing(value) else str(value) for value in values], pa.string())


def _is_missing(value: Any) -> bool:
    """Whether `value` is None, or a NaN of any library."""
    return value is None or bool(value != value)


def _simple(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return `array` in one chunk, not dictionary-encoded, and text as `pa.string()`."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    array = typed_files.decoded(array)
    is_text = pa.types.is_large_string(array.type) or pa.types.is_string_view(array.type)
    return pc.cast(array, pa.string()) if is_text else array
