"""Read the values of a column as numbers or labels; an error names the row and column of an invalid value."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anchored.tables.rows import RowBatch

MAX_NUMBER = 1e100  # the sum of squares of such numbers does not overflow
MISSING = (  # values that mean "missing"
    "", "?", "NA", "N/A", "n/a", "<NA>", "#N/A", "#NA", "NaN", "nan", "NAN", "Nan", "-nan", "-NaN", "null", "NULL",
    "Null", "None", "none", "NONE", "NaT",
)  # fmt: skip
NUMBER = r"^[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|(?i:inf|infinity))$"

# Numbers with separators or units, which raise an error with a hint: $1,234.50, 12 %, 1 234 567 €.
FORMATTED_NUMBER = (
    "^[+-]?[$€£¥]? ?[+-]?([\\d,]*\\.?\\d+|\\d{1,3}([ '\u2019\u00a0\u202f]\\d{3})+([.,]\\d+)?)[ \u00a0\u202f]?[%‰$€£¥]?$"
)


def is_number(column: pa.Array) -> bool:
    """Whether the type of `column` is numeric, as in a Parquet file; columns of a CSV file are text."""
    kind = column.type
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def is_date(column: pa.Array) -> bool:
    """Whether the type of `column` is a date or a timestamp."""
    return pa.types.is_date(column.type) or pa.types.is_timestamp(column.type)


def is_readable(column: pa.Array) -> bool:
    """Whether `column` has scalar values that can be read; lists, records and bytes cannot."""
    kind = column.type
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    is_null_or_boolean = pa.types.is_null(kind) or pa.types.is_boolean(kind)
    return is_number(column) or is_date(column) or is_text or is_null_or_boolean


def text(column: pa.Array) -> pa.Array:
    """Return `column` as text without outer whitespace, null if missing.

    Whole numbers of a float or decimal column are written without a decimal point; text stays as it is, such as "1.0".
    """
    if pa.types.is_floating(column.type) or pa.types.is_decimal(column.type):
        numbers = column.to_numpy(zero_copy_only=False).astype(np.float64)
        return pa.array([None if np.isnan(v) else f"{v:.0f}" if v.is_integer() else repr(float(v)) for v in numbers])
    trimmed = pc.utf8_trim_whitespace(pc.cast(column, pa.string()))
    return pc.if_else(pc.is_in(trimmed, value_set=pa.array(MISSING)), pa.scalar(None, pa.string()), trimmed)


def looks_numeric(column: pa.Array) -> np.ndarray:
    """Return a mask, (rows,), of the values of `column`, text, that are numbers; False where a value is missing."""
    return as_mask(pc.match_substring_regex(column, NUMBER))


def mostly_numbers(column: pa.Array) -> bool:
    """Whether more than half of the values of `column`, text, are numbers, also with separators or units."""
    return len(column) > 0 and bool(_resemble_numbers(column).mean() > 0.5)


def n_distinct(known: pa.Array) -> int:
    """Return the number of different values in `known`, text without missing values; 1 and 1.0 are equal."""
    is_numeric = looks_numeric(known)
    n_numbers = len(np.unique(_as_floats(known.filter(pa.array(is_numeric)))))
    return n_numbers + pc.count_distinct(known.filter(pa.array(~is_numeric))).as_py()


def numbers(rows: RowBatch, name: str) -> np.ndarray:
    """Return the column of `rows` called `name` as numbers, (rows,), NaN where the value is missing.

    A value that is not a number, or is larger than MAX_NUMBER, raises a TableError that names its row.
    """
    column = rows.columns[name]
    if is_date(column):
        raise rows.column_error(name, "it holds dates, but numbers are expected")
    try:
        converted = _as_floats(column)
    except pa.ArrowInvalid:
        written = text(column)
        is_wrong = ~looks_numeric(written) & as_mask(pc.is_valid(written))
        if is_wrong.any():
            index = int(np.argmax(is_wrong))
            raise rows.error(index, name, *_not_a_number(written[index].as_py())) from None
        converted = _as_floats(written)
    is_large = np.abs(converted) > MAX_NUMBER
    if is_large.any():
        index = int(np.argmax(is_large))
        raise rows.error(index, name, f"{converted[index]:g} is too large", "Correct it, or leave it empty")
    return converted


def labels(rows: RowBatch, name: str) -> pa.Array:
    """Return the column of `rows` called `name` as labels of categories, null where the value is missing.

    True and False are written in lower case, and 1.0 as 1.
    """
    written = pc.replace_substring_regex(text(rows.columns[name]), r"^([+-]?\d+)\.0+$", r"\1")
    lower = pc.utf8_lower(written)
    is_boolean = pc.is_in(lower, value_set=pa.array(["true", "false"]))
    return pc.if_else(is_boolean, lower, written)


def as_mask(mask: pa.Array) -> np.ndarray:
    """Return `mask`, an Arrow array of booleans, as a NumPy array, False where null."""
    return pc.fill_null(mask, False).to_numpy(zero_copy_only=False)


def _as_floats(column: pa.Array) -> np.ndarray:
    """Return a column as float64; text that is not a number raises pa.ArrowInvalid."""
    return pc.cast(column, pa.float64()).to_numpy(zero_copy_only=False)


def _resemble_numbers(column: pa.Array) -> np.ndarray:
    """Return a mask of the values that are numbers, including those with separators or units."""
    without_commas = pc.replace_substring(column, ",", "")
    return looks_numeric(without_commas) | as_mask(pc.match_substring_regex(column, FORMATTED_NUMBER))


def _not_a_number(value: str) -> tuple[str, str]:
    """Return the problem and the remedy of the error about a `value` that is not a number."""
    shown = value if len(value) <= 40 else value[:37] + "..."
    problem = f"{shown!r} is not a number"
    if _resemble_numbers(pa.array([value]))[0]:
        return problem, "Write 1234.5: a decimal point, no thousands separator, and no unit"
    return problem, "Correct it, or leave it empty if it is unknown"
