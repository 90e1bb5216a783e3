"""Read the values of a column as numbers or labels; an error names the row and column of an invalid value."""

import re
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anchored.tables.formats import MISSING, YES_AND_NO, Format
from anchored.tables.rows import RowBatch

TOTALS = (  # words that begin a row of totals
    "total", "totals", "grand total", "subtotal", "sum", "total general", "totale", "summe", "gesamt", "gesamtsumme",
    "somme", "suma", "average", "mean",
)  # fmt: skip
MAX_NUMBER = 1e100  # the sum of squares of such numbers does not overflow
SPACES = r"[\s\x{a0}\x{2007}\x{2009}\x{202f}]"
MARKS = {"": "", ",": ",", ".": r"\.", " ": SPACES, "'": "['’]", "_": "_"}  # marks of formats, as regular expressions


class Labels(NamedTuple):
    """A column of labels: `codes`, (rows,), positions in `names`, −1 where missing; and `names`, each only once."""

    codes: np.ndarray
    names: list[str]


def is_number(column: pa.Array) -> bool:
    """Whether the type of `column` is numeric, as in a Parquet file; columns of a CSV file are text."""
    kind = column.type
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def is_date(column: pa.Array) -> bool:
    """Whether the type of `column` is a date, a timestamp or a time of day."""
    kind = column.type
    return pa.types.is_date(kind) or pa.types.is_timestamp(kind) or pa.types.is_time(kind)


def is_text(column: pa.Array) -> bool:
    """Whether the type of `column` is text, as all columns of a CSV file are."""
    kind = column.type
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def is_readable(column: pa.Array) -> bool:
    """Whether `column` has scalar values that can be read; lists, records and bytes cannot."""
    is_null_or_boolean = pa.types.is_null(column.type) or pa.types.is_boolean(column.type)
    return is_number(column) or is_date(column) or is_text(column) or is_null_or_boolean


def text(column: pa.Array, missing: tuple[str, ...] = ()) -> pa.Array:
    """Return `column` as text without outer whitespace, null if it is missing: one of MISSING or of `missing`.

    Whole numbers of a float or decimal column are written without a decimal point; text stays as it is, such as "1.0".
    """
    if pa.types.is_floating(column.type) or pa.types.is_decimal(column.type):
        numbers = column.to_numpy(zero_copy_only=False).astype(np.float64)
        column = pa.array(
            [None if np.isnan(v) else f"{v:.0f}" if v.is_integer() else repr(float(v)) for v in numbers], pa.string()
        )
    trimmed = pc.utf8_trim_whitespace(pc.cast(column, pa.string()))
    is_missing = pc.is_in(trimmed, value_set=pa.array([*MISSING, *missing]))
    return pc.if_else(is_missing, pa.scalar(None, pa.string()), trimmed)


def numbers(rows: RowBatch, name: str, written: Format | None = None) -> np.ndarray:
    """Return the column `name` of `rows` as numbers, (rows,), NaN where the value is missing.

    A value that is not a number in the format `written`, or is larger than MAX_NUMBER, raises a TableError that names
    its row.
    """
    written = written or Format()
    return rows.once(("numbers", name, written), lambda: _read_numbers(rows, name, written))


def _read_numbers(rows: RowBatch, name: str, written: Format) -> np.ndarray:
    """Return the result of `numbers`, read from the column."""
    column = rows.columns[name]
    if is_date(column):
        raise rows.column_error(name, "it holds dates, but numbers are expected")
    converted = column_of_plain_numbers(rows, name) if written.is_plain or not is_text(column) else None
    if converted is None:
        converted = _read_marked(rows, name, column if is_text(column) else text(column), written)
    is_large = np.abs(converted) > MAX_NUMBER
    if is_large.any():
        index = int(np.argmax(is_large))
        raise rows.error(index, name, f"{converted[index]:g} is too large", "Correct it, or leave it empty")
    return converted


def column_of_plain_numbers(rows: RowBatch, name: str) -> np.ndarray | None:
    """Return `plain_numbers` of the column of `rows` called `name`."""
    return rows.once(("plain numbers", name), lambda: plain_numbers(rows.columns[name]))


def first_word(rows: RowBatch, name: str, written: Format) -> str | None:
    """Return the first value of the column `name` that is not a number and has no digit; None if there is none."""
    known = text(rows.columns[name], written.missing)
    is_word = pc.and_(pc.is_null(as_plain(known, written)), pc.invert(pc.match_substring_regex(known, r"\d")))
    words = known.filter(pc.fill_null(is_word, False))
    return words[0].as_py() if len(words) else None


def plain_numbers(column: pa.Array) -> np.ndarray | None:
    """Return `column` as float64, NaN where null; None if some text is not a plain number, such as 1234.5."""
    found = cast_or_none(column, pa.float64())
    return None if found is None else found.to_numpy(zero_copy_only=False)


def cast_or_none(column: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """Return `column` cast to the type `kind`, null where it is empty; None if some value cannot be cast."""
    is_empty = pc.equal(pc.binary_length(column), 0) if pa.types.is_string(column.type) else None
    if is_empty is not None and pc.any(is_empty).as_py():
        column = pc.if_else(is_empty, pa.scalar(None, pa.string()), column)
    try:
        pc.cast(column.slice(0, 100), kind)  # Arrow is slow where many values cannot be cast
        return pc.cast(column, kind)
    except pa.ArrowInvalid:
        return None


def _read_marked(rows: RowBatch, name: str, column: pa.Array, written: Format) -> np.ndarray:
    """Return the text `column` of `rows`, called `name`, as numbers with marks or units.

    Simple values, usually almost all, are read several times faster than the others.
    """
    simple = is_simple(column, written)
    is_other = ~as_mask(simple)
    found = np.empty(len(column))
    read = plain_numbers(_without_marks(column.filter(simple), written))
    assert read is not None, "simple numbers are numbers"
    found[~is_other] = read
    if is_other.any():
        others = np.flatnonzero(is_other)
        known = text(column.take(pa.array(others)), written.missing)
        plain = as_plain(known, written)
        converted = plain_numbers(plain)
        is_wrong = as_mask(pc.and_(pc.is_null(plain), pc.is_valid(known)))
        if is_wrong.any() or converted is None:
            index = int(np.argmax(is_wrong))
            raise rows.error(int(others[index]), name, *_not_a_number(known[index].as_py(), written))
        found[others] = converted
    return found


def is_simple(column: pa.Array, written: Format) -> pa.Array:
    """Return a mask of the values of `column`, text, that are empty or simple numbers in the format `written`.

    A simple number is an optional minus sign and digits with the marks of `written`, with at most one space between
    them and a unit. Spaces and apostrophes are not simple marks, since each stands for several characters.
    """
    before = rf"(?:{re.escape(written.prefix)} ?)?" if written.prefix else ""
    after = rf"(?: ?{re.escape(written.suffix)})?" if written.suffix else ""
    plain = replace(written, thousands="") if written.thousands in (" ", "'") else written
    matches = pc.match_substring_regex(column, rf"^(?:-?{before}(?:{digits_pattern(plain)}){after})?$")
    if not written.codes:
        return matches
    return pc.and_not(matches, pc.is_in(column, value_set=pa.array(written.codes)))


def _without_marks(column: pa.Array, written: Format) -> pa.Array:
    """Return simple numbers, text in the format `written`, in plain form, such as 1234.5."""
    space = " " if written.prefix or written.suffix else ""
    for removed in filter(None, (written.prefix, written.suffix, space, written.thousands)):
        column = pc.replace_substring(column, removed, "")
    return pc.replace_substring(column, ",", ".") if written.decimal == "," else column


def as_plain(column: pa.Array, written: Format) -> pa.Array:
    """Return `column`, trimmed text, with its numbers in plain form, such as 1234.5, and null for everything else."""
    if written.prefix:
        column = pc.replace_substring_regex(column, rf"^([(+\-−]*)\s*{re.escape(written.prefix)}\s*", r"\1")
    if written.suffix:
        column = pc.replace_substring_regex(column, rf"{SPACES}*{re.escape(written.suffix)}(\)?)$", r"\1")
    column = pc.replace_substring_regex(column, r"^\((.*)\)$", r"-\1")  # accountants write −5 as (5)
    column = pc.replace_substring_regex(column, r"^([+\-])\s+", r"\1")
    column = pc.replace_substring(column, "−", "-")
    is_number = pc.match_substring_regex(
        column, rf"^[+-]?({digits_pattern(written)})([eE][+-]?\d+)?$|^[+-]?(?i:inf|infinity)$"
    )
    column = pc.if_else(is_number, column, pa.scalar(None, pa.string()))
    if written.thousands:
        column = pc.replace_substring_regex(column, MARKS[written.thousands], "")
    return pc.replace_substring(column, ",", ".") if written.decimal == "," else column


def digits_pattern(written: Format) -> str:
    """Return the regular expression of digits with the marks of `written`; Indian groups, 12,34,567, are allowed."""
    mark, point = MARKS[written.thousands], MARKS[written.decimal]
    grouped = rf"\d{{1,3}}(?:{mark}\d{{2,3}})*{mark}\d{{3}}|" if mark else ""
    return rf"(?:{grouped}\d+)(?:{point}\d*)?|{point}\d+"


def labels(rows: RowBatch, name: str, written: Format | None = None) -> Labels:
    """Return the column `name` of `rows`, in the format `written`, as labels of categories.

    True and False become lower case, and 1.0 becomes 1.
    """
    written = written or Format()
    return rows.once(("labels", name, written), lambda: _read_labels(rows.columns[name], written))


def _read_labels(column: pa.Array, written: Format) -> Labels:
    """Return the result of `labels`, read from `column`."""
    encoded = column.dictionary_encode() if is_text(column) else text(column).dictionary_encode()
    found = _as_labels(text(encoded.dictionary, written.missing), written)
    names = pc.unique(found.drop_null())
    positions = pc.fill_null(pc.index_in(found, value_set=names), -1).to_numpy(zero_copy_only=False)
    indices = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False)
    return Labels(np.append(positions, -1)[indices], names.to_pylist())


def _as_labels(known: pa.Array, written: Format) -> pa.Array:
    """Return text as labels: words for yes and no in one spelling, and 1.0 as 1."""
    composed = pc.utf8_normalize(known, form="NFC")  # é may be one character, or e and an accent
    found = pc.replace_substring_regex(composed, r"^([+-]?\d+)\.0+$", r"\1")
    lower = pc.utf8_lower(found)
    if written.yes:
        pair = next(pair for pair in YES_AND_NO if pair[0] == written.yes)
        spelt = {word: pair[i] for words in YES_AND_NO for i, word in enumerate(words)}
        return pa.array([spelt.get(value, value) for value in lower.to_pylist()], pa.string())
    is_boolean = pc.is_in(lower, value_set=pa.array(["true", "false"]))
    return pc.if_else(is_boolean, lower, found)


def is_total(value: str) -> bool:
    """Whether text is the name of a row of totals."""
    return value.casefold().strip(" :") in TOTALS


def as_mask(mask: pa.Array) -> np.ndarray:
    """Return `mask`, an Arrow array of booleans, as a NumPy array, False where null."""
    return pc.fill_null(mask, False).to_numpy(zero_copy_only=False)


def _not_a_number(value: str, written: Format) -> tuple[str, str]:
    """Return the problem and the remedy of the error about a `value` that is not a number in the format `written`."""
    shown = value if len(value) <= 40 else value[:37] + "..."
    if is_total(value):
        return f"{shown!r} is not a number; the row seems to hold totals", "Remove it"
    like = f" with {written}, like the others" if str(written) else ""
    return f"{shown!r} is not a number{like}", "Correct it, or leave it empty if it is unknown"
