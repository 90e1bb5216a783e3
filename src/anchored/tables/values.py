"""The values of a column as numbers or labels; a value that cannot be read is named by its row and column."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anchored.tables.rows import RowBatch

LARGEST = 1e100  # what can still be squared and summed
# What stands for "not known".
MISSING = (
    "", "?", "NA", "N/A", "n/a", "<NA>", "#N/A", "#NA", "NaN", "nan", "NAN", "Nan", "-nan", "-NaN", "null", "NULL",
    "Null", "None", "none", "NONE", "NaT",
)  # fmt: skip
NUMBER = r"^[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|(?i:inf|infinity))$"

# Meant as a number by people: $1,234.50, 12 %, 1 234 567 €.
ADORNED = (
    "^[+-]?[$€£¥]? ?[+-]?([\\d,]*\\.?\\d+|\\d{1,3}([ '\u2019\u00a0\u202f]\\d{3})+([.,]\\d+)?)[ \u00a0\u202f]?[%‰$€£¥]?$"
)


def is_number(column: pa.Array) -> bool:
    """Whether the column's type is numeric, as that of a Parquet column may be."""
    kind = column.type
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def is_date(column: pa.Array) -> bool:
    """Whether the column's type is a date or a timestamp."""
    return pa.types.is_date(column.type) or pa.types.is_timestamp(column.type)


def is_readable(column: pa.Array) -> bool:
    """Whether the column holds single values, not lists, records or bytes."""
    kind = column.type
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    empty_or_truth = pa.types.is_null(kind) or pa.types.is_boolean(kind)
    return is_number(column) or is_date(column) or is_text or empty_or_truth


def text(column: pa.Array) -> pa.Array:
    """The column as text without blanks around it, null where missing. Whole numbers are written without a point."""
    if pa.types.is_floating(column.type) or pa.types.is_decimal(column.type):
        numbers = column.to_numpy(zero_copy_only=False).astype(np.float64)
        return pa.array([None if np.isnan(v) else f"{v:.0f}" if v.is_integer() else repr(float(v)) for v in numbers])
    trimmed = pc.utf8_trim_whitespace(pc.cast(column, pa.string()))
    return pc.if_else(pc.is_in(trimmed, value_set=pa.array(MISSING)), pa.scalar(None, pa.string()), trimmed)


def looks_numeric(column: pa.Array) -> np.ndarray:
    """Which values of a column of text are numbers, (rows,) of booleans; missing ones are not."""
    return as_mask(pc.match_substring_regex(column, NUMBER))


def mostly_numbers(column: pa.Array) -> bool:
    """Whether more than half of a column of text is meant as numbers, also where `numbers` would raise on them."""
    return len(column) > 0 and bool(_meant_as_numbers(column).mean() > 0.5)


def n_distinct(known: pa.Array) -> int:
    """How many values of a column of text, none missing, are different; 1 and 1.0 are equal."""
    numeric = looks_numeric(known)
    n_numbers = len(np.unique(_as_floats(known.filter(pa.array(numeric)))))
    return n_numbers + pc.count_distinct(known.filter(pa.array(~numeric))).as_py()


def numbers(rows: RowBatch, name: str) -> np.ndarray:
    """A column as numbers, (rows,), NaN where missing.

    A value that is not a number, or is larger than LARGEST, raises a TableError that names its row.
    """
    column = rows.columns[name]
    if is_date(column):
        raise rows.column_error(name, "dates stand where numbers belong")
    try:
        found = _as_floats(column)
    except pa.ArrowInvalid:
        written = text(column)
        wrong = ~looks_numeric(written) & as_mask(pc.is_valid(written))
        if wrong.any():
            index = int(np.argmax(wrong))
            raise rows.error(index, name, *_not_a_number(written[index].as_py())) from None
        found = _as_floats(written)
    large = np.abs(found) > LARGEST
    if large.any():
        index = int(np.argmax(large))
        raise rows.error(index, name, f"{found[index]:g} is too large to compute with", "Correct it, or leave it empty")
    return found


def labels(rows: RowBatch, name: str) -> pa.Array:
    """A column as text that names categories, null where missing; true and false in lower case, 1.0 as 1."""
    written = pc.replace_substring_regex(text(rows.columns[name]), r"^([+-]?\d+)\.0+$", r"\1")
    lower = pc.utf8_lower(written)
    truth = pc.is_in(lower, value_set=pa.array(["true", "false"]))
    return pc.if_else(truth, lower, written)


def as_mask(mask: pa.Array) -> np.ndarray:
    """An Arrow array of booleans as NumPy's, null as False."""
    return pc.fill_null(mask, False).to_numpy(zero_copy_only=False)


def _as_floats(column: pa.Array) -> np.ndarray:
    return pc.cast(column, pa.float64()).to_numpy(zero_copy_only=False)


def _meant_as_numbers(column: pa.Array) -> np.ndarray:
    return looks_numeric(pc.replace_substring(column, ",", "")) | as_mask(pc.match_substring_regex(column, ADORNED))


def _not_a_number(value: str) -> tuple[str, str]:
    """The problem and the remedy."""
    shown = value if len(value) <= 40 else value[:37] + "..."
    problem = f"{shown!r} is not a number"
    if _meant_as_numbers(pa.array([value]))[0]:
        return problem, "Write 1234.5: a point, nothing between thousands, and no unit"
    return problem, "Correct it, or leave it empty if it is not known"
