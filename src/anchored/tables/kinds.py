"""Infer from all values of a column whether they are numbers, categories or dates, and how they are written."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anchored.errors import TableError
from anchored.tables import dates, values
from anchored.tables.formats import DASHES, YES_AND_NO, Format, ReadingOptions
from anchored.tables.parallel import map_columns
from anchored.tables.rows import RowBatch

CURRENCY = r"[A-Z]{0,3}\p{Sc}|(?:USD|EUR|GBP|CHF|JPY|CNY|INR|CAD|AUD|NZD|SEK|NOK|DKK|PLN|CZK|BRL|Rs\.?|kr\.?)\s|'"
DIGITS = r"\d[\d.,'’_\s\x{a0}\x{2007}\x{2009}\x{202f}]*\d|\d|[.,]\d+"
UNIT = r"[^\d\s.,:;+\-/'()][^\d()]{0,11}[23]?"
NUMBER = (
    rf"^\(?[+\-−]?\s*(?P<prefix>{CURRENCY})?\s*[+\-−]?\s*(?P<digits>{DIGITS})(?P<exponent>[eE][+\-]?\d+)?"
    rf"{values.SPACES}*(?P<suffix>{UNIT})?\)?$"
)
CONVENTIONS = [Format(decimal=".", thousands=mark) for mark in ("", ",", " ", "'", "_")] + [
    Format(decimal=",", thousands=mark) for mark in ("", ".", " ", "'")
]
GROUPED = r"^[+-]?[1-9]\d{0,2}(\.\d{3})+$"  # 1.234, which may be 1234 where the decimal mark is a comma
FIRST_DAY, LAST_DAY = 19_000_101, 21_001_231  # of dates written as 20240131
MIN_COMPACT = 5  # smallest number of such dates in a column; fewer numbers may look like dates by chance
MAX_WORDS = 12  # largest number of different spellings of yes and no in a column
SAMPLE, MAX_TEXT = 1000, 0.8  # a column is not numbers if a larger share of its first SAMPLE distinct values is not


@dataclass(frozen=True)
class Kind:
    """What a column holds, and how it is written.

    Attributes
    ----------
    name : str
        "number", "category" or "date".
    written : Format
        How its values are written.
    note : str
        What the user should know about this reading; may be empty.
    is_ambiguous : bool
        Whether day and month could be swapped in all its dates.
    decimal_marks : str
        The decimal marks with which all its numbers can be read: ".", "," or ".,"; empty if no number has a mark.
    """

    name: str
    written: Format
    note: str = ""
    is_ambiguous: bool = False
    decimal_marks: str = ""


def infer(rows: RowBatch, options: ReadingOptions) -> dict[str, Kind]:
    """Return the kind of each column of `rows` by its name; columns that are ignored or cannot be read have none.

    If the decimal mark of a column is in doubt, as in 1,234, the marks of other columns decide; if these show none, or
    different ones, a TableError names the options that decide.
    """
    options.check()
    if options.date_format is not None:
        dates.check_format(options.date_format)
    readable = [n for n, array in rows.columns.items() if n not in options.ignore and values.is_readable(array)]
    inferred = map_columns(lambda name: _infer_column(rows, name, options), readable, len(rows))
    kinds = dict(zip(readable, inferred, strict=True))
    shown = {kind.decimal_marks for kind in kinds.values() if len(kind.decimal_marks) == 1}
    return {name: _settle(rows, name, kind, shown, options) for name, kind in kinds.items()}


def _settle(rows: RowBatch, name: str, kind: Kind, shown: set[str], options: ReadingOptions) -> Kind:
    """Return `kind` with its decimal mark decided; `shown` are the marks that columns show beyond doubt."""
    if kind.decimal_marks != ".,":
        return kind
    is_point_plain = not kind.written.thousands and kind.written.decimal == "."
    if shown == {","}:
        return replace(kind, written=replace(kind.written, decimal=",", thousands="." if is_point_plain else ""))
    if shown == {"."} or is_point_plain:  # 1.234 has a decimal point, unless other columns have decimal commas
        return kind
    known = values.text(rows.columns[name], options.missing)
    index = int(np.argmax(values.as_mask(pc.match_substring(known, ","))))
    problem = f"{known[index].as_py()!r} has a comma that may be a decimal mark or a thousands mark"
    error = rows.error(index, name, problem)
    raise TableError(error.where, error.problem, settings=(("decimal", ","), ("thousands", ",")))


def _infer_column(rows: RowBatch, name: str, options: ReadingOptions) -> Kind:
    """Return the kind of one column; its decimal mark may still be in doubt."""
    array, requested = rows.columns[name], (options.types or {}).get(name)
    if not values.is_text(array):
        return _typed_kind(array, requested, options)
    # Plain numbers, such as 1234.5, are recognised without looking at the text
    may_be_number = requested not in ("category", "date")
    numbers = None if options.na_values or not may_be_number else values.column_of_plain_numbers(rows, name)
    simple = _simple_format(array, options) if may_be_number and numbers is None else None
    if simple is not None:
        return simple
    written = array if numbers is not None else array.unique()
    known = written.drop_null() if numbers is not None else values.text(written, options.missing).drop_null()
    if requested == "category":
        return _category(values.text(written, options.na_values), options)
    if requested == "date":
        return _requested_date(rows, name, known, options)
    numbers = values.plain_numbers(known) if numbers is None else numbers[~np.isnan(numbers)]
    if numbers is not None and options.decimal != ",":
        return _plain_numbers(known, numbers, requested, options)
    found = number_kind(pc.unique(known), options, is_requested=requested == "number")
    if found is not None:
        return found
    date = dates.infer_format(known, options.date_format)
    if date is not None:
        return _date(options, *date)
    return _category(values.text(written, options.na_values), options)


def _typed_kind(array: pa.Array, requested: str | None, options: ReadingOptions) -> Kind:
    """Return the kind of a column that is not text: numbers, dates, or truth values, which are categories.

    `requested` is the kind that the user specified.
    """
    written = Format(missing=options.missing)
    if requested == "category" or not (values.is_number(array) or values.is_date(array)):
        return Kind("category", written)
    if values.is_date(array):
        return Kind("date", replace(written, date=dates.CLOCKS[1] if pa.types.is_time(array.type) else dates.ISO))
    numbers = values.plain_numbers(array.drop_null())
    assert numbers is not None
    compact = _compact_format(lambda: values.text(array).drop_null(), numbers) if requested != "number" else None
    if requested == "date":
        compact = compact or dates.COMPACT
    return Kind("number", written) if compact is None else Kind("date", replace(written, date=compact))


def _plain_numbers(known: pa.Array, numbers: np.ndarray, requested: str | None, options: ReadingOptions) -> Kind:
    """Return the kind of a column of text whose values are all plain numbers, such as 1234.5."""
    compact = _compact_format(lambda: known, numbers) if requested is None else None
    if compact is not None:
        return _date(options, compact, False)
    starts_with_zero = known.filter(pc.starts_with(known, "0"))
    if requested is None and values.as_mask(pc.match_substring_regex(starts_with_zero, r"^0\d+$")).any():
        example = starts_with_zero.filter(pc.match_substring_regex(starts_with_zero, r"^0\d+$"))[0].as_py()
        note = f"values such as {example} begin with a zero, so they are read as categories, not as numbers"
        return replace(_category(known, options), note=note)
    return Kind("number", Format(missing=options.missing), decimal_marks=_marks_of_points(known))


def _marks_of_points(known: pa.Array) -> str:
    """Return the decimal marks with which plain numbers can be read.

    They are "" if no number has a point, ".," if all points may also be thousands marks, and "." otherwise.
    """
    for part in (known.slice(0, SAMPLE), known):
        with_point = part.filter(pc.match_substring(part, "."))
        if len(with_point) and not values.as_mask(pc.match_substring_regex(with_point, GROUPED)).all():
            return "."
    return ".," if len(with_point) else ""


def _compact_format(text: Callable[[], pa.Array], numbers: np.ndarray) -> str | None:
    """Return the format of `numbers` that are all dates like 20240131 or 202401311430, or None if they are not.

    `text` is a function that returns them as text.
    """
    if len(numbers) < MIN_COMPACT or np.any(numbers != np.floor(numbers)):
        return None
    for date_format, times_per_day in dates.COMPACT_FORMATS.items():
        is_in_range = numbers.min() / times_per_day >= FIRST_DAY and numbers.max() / times_per_day < LAST_DAY + 1
        if is_in_range and np.isfinite(dates.parsed_days(text(), date_format)).all():
            return date_format
    return None


def _requested_date(rows: RowBatch, name: str, known: pa.Array, options: ReadingOptions) -> Kind:
    """Return the kind of a column that the user says holds dates; raises a TableError if no format fits most values."""
    date = dates.infer_format(known, options.date_format) if len(known) else None
    if date is None:
        problem = "no format of dates fits most of its values"
        raise rows.column_error(name, problem, "Give their format, such as date_format='%d/%m/%Y'")
    return _date(options, *date)


def _date(options: ReadingOptions, date_format: str, is_ambiguous: bool) -> Kind:
    """Return the kind of a column of dates in `date_format`."""
    return Kind("date", Format(missing=options.missing, date=date_format), is_ambiguous=is_ambiguous)


def _category(known: pa.Array, options: ReadingOptions) -> Kind:
    """Return the kind of a column with the labels `known`, trimmed text; dashes mean "missing", unless "+" is one."""
    distinct = known.drop_null().unique()
    dashes = () if pc.is_in(pa.array(["+"]), value_set=distinct)[0].as_py() else DASHES
    written = Format(missing=tuple(dict.fromkeys([*dashes, *options.na_values])))
    if len(distinct) <= MAX_WORDS:
        words = {value.lower() for value in distinct.to_pylist()} - {*written.missing}
        if len(words) > 1 and words <= {word for pair in YES_AND_NO for word in pair} and words != {"0", "1"}:
            written = replace(written, yes="yes" if words & {"yes", "no", "y", "n"} else "true")
    return Kind("category", written)


def number_kind(distinct: pa.Array, options: ReadingOptions, is_requested: bool = False) -> Kind | None:
    """Return the kind of a column of numbers with marks or units; None if at most half of the values are such numbers.

    Parameters
    ----------
    distinct : Arrow array of text
        The different values of the column, without missing ones.
    options : ReadingOptions
        What the user specified about the marks.
    is_requested : bool
        Whether the user says that the column holds numbers, even if few values look like numbers.
    """
    sample = pc.extract_regex(distinct.slice(0, SAMPLE), NUMBER)
    if sample.null_count > MAX_TEXT * len(sample) and not is_requested:
        return None
    parts = pc.extract_regex(distinct, NUMBER)
    parts = parts.filter(pc.is_valid(parts))
    if len(parts) == 0 or (len(parts) <= len(distinct) / 2 and not is_requested):
        return Kind("number", Format(missing=options.missing)) if is_requested else None
    n_values = 0 if is_requested else len(distinct)
    prefix, suffix = (_shared_unit(parts.field(name), n_values) for name in ("prefix", "suffix"))
    if prefix is None or suffix is None:
        return None
    digits = parts.field("digits")
    n_read = {convention: _n_read(digits, convention) for convention in CONVENTIONS}
    if max(n_read.values()) <= n_values / 2:  # no numbers, such as 31.01.2024
        return None
    allowed = [c for c in CONVENTIONS if options.decimal in (None, c.decimal)]
    if values.as_mask(pc.not_equal(parts.field("exponent"), "")).any():  # 1,234e-03 has no groups of digits
        allowed = [c for c in allowed if not c.thousands]
    if options.thousands is not None:
        allowed = [c for c in allowed if c.thousands in ("", options.thousands) and c.decimal != options.thousands]
    most = max(n_read[convention] for convention in allowed)
    best = [convention for convention in allowed if n_read[convention] == most]
    by_mark = {mark: next((c for c in best if c.decimal == mark), None) for mark in ".,"}
    found = by_mark["."] or by_mark[","]
    assert found is not None
    written = replace(found, missing=options.missing, prefix=prefix, suffix=suffix)
    return Kind("number", written, decimal_marks=_marks_in_doubt(by_mark, digits))


def _marks_in_doubt(by_mark: dict[str, Format | None], digits: pa.Array) -> str:
    """Return the decimal marks with which numbers can be read, as in `Kind.decimal_marks`."""
    point, comma = by_mark["."], by_mark[","]
    if point is None or comma is None:
        return "," if point is None else "."
    if point.thousands == "," or comma.thousands == ".":
        return ".,"
    return "." if values.as_mask(pc.match_substring(digits, ".")).any() else ""


def _simple_format(array: pa.Array, options: ReadingOptions) -> Kind | None:
    """Return the kind of a column of numbers whose first values leave no doubt about their format; None for others.

    There is no doubt if the first values show the decimal mark, and all values are simple numbers in this format: any
    other format that reads all values would also read the first ones.
    """
    kind = number_kind(values.text(array.slice(0, SAMPLE), options.missing).drop_null().unique(), options)
    if kind is None or len(kind.decimal_marks) != 1:
        return None
    return kind if pc.all(values.is_simple(array, kind.written)).as_py() else None


def _shared_unit(texts: pa.Array, n_values: int) -> str | None:
    """Return the most common of the `texts` before or after numbers, trimmed; empty if there are none.

    Returns None unless more than half of `n_values` values have this text or no text.
    """
    counts = {entry["values"]: entry["counts"] for entry in pc.value_counts(pc.utf8_trim_whitespace(texts)).to_pylist()}
    n_bare = counts.pop("", 0)
    commonest = max(counts, key=lambda unit: counts[unit], default="")
    return commonest if n_bare + counts.get(commonest, 0) > n_values / 2 else None


def _n_read(digits: pa.Array, convention: Format) -> int:
    """Return how many of `digits` are numbers with the marks of `convention`."""
    return int(values.as_mask(pc.match_substring_regex(digits, f"^(?:{values.digits_pattern(convention)})$")).sum())


def is_identifier_name(name: str) -> bool:
    """Whether a column called `name`, such as "customer_id", identifies rows."""
    words = [word.lower() for word in re.findall("[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]
    is_row_index = "index" in words and set(words) <= {"row", "index"}  # a heat index is a number
    return is_row_index or any(word in ("id", "uuid") or re.fullmatch(IDENTIFIER, word) for word in words)


# Names of identifiers that are single words; in customer_id, CustomerID and customer.id, "id" is a word by itself.
IDENTIFIER = (
    "(account|case|client|customer|device|employee|event|item|order|passenger|patient|person|product|record|row|"
    "sample|session|student|subject|transaction|user)id"
)
