"""Read dates and times of day: infer the format of a column, and convert its values to days since 1970."""

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import product

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anchored.errors import ArgumentError
from anchored.tables import values
from anchored.tables.formats import Format
from anchored.tables.rows import RowBatch

ISO = "ISO 8601"  # dates with hyphens, with or without time and zone; the other formats are those of strptime
COMPACT = "%Y%m%d"
# Formats without separators; dividing a number in such a format by the value here gives the number in COMPACT
COMPACT_FORMATS = {COMPACT: 1, "%Y%m%d%H%M": 10**4, "%Y%m%d%H%M%S": 10**6}
# Formats whose day and month can be confused; of those that fit equally, the first is used
MONTH_OR_DAY_FIRST = {
    "%m/%d/%Y": "%d/%m/%Y", "%d-%m-%Y": "%m-%d-%Y", "%m/%d/%y": "%d/%m/%y", "%d-%m-%y": "%m-%d-%y",
}  # fmt: skip
DAYS = (
    ISO, "%d.%m.%Y", *(day for pair in MONTH_OR_DAY_FIRST.items() for day in pair), "%Y/%m/%d", "%Y.%m.%d", "%d.%m.%y",
    "%d-%b-%Y", "%d-%b-%y", "%d %b %Y", "%d. %b %Y", "%d/%b/%Y", "%b %d, %Y", "%b %d %Y", "%a, %d %b %Y",
    "%a %d %b %Y", "%a, %b %d, %Y",
)  # fmt: skip
CLOCKS = ("%H:%M", "%H:%M:%S", "%I:%M %p", "%I:%M:%S %p", "%I %p")
MONTHS = ("%Y-%m", "%m/%Y", "%b %Y", "%b-%y", "%b-%Y", "%Y %b")
FORMATS = [
    *DAYS, *(f"{day} {clock}" for day, clock in product(DAYS[1:], CLOCKS)),
    *(f"%Y-%m-%d {clock}" for clock in CLOCKS[2:]), COMPACT, *MONTHS, *CLOCKS,
]  # fmt: skip
WORDS = {  # for directives of strptime
    "%d": "day", "%m": "month", "%b": "month", "%Y": "year", "%y": "year", "%a": "weekday", "%H": "hour", "%I": "hour",
    "%M": "minute", "%S": "second", "%p": "AM/PM",
}  # fmt: skip
MICROSECONDS_PER_DAY = 86_400_000_000
MAX_DAYS = 365_000  # largest distance from 1970, a thousand years, so that 1.2.3 is not read as a day in the year 3
SAMPLE_SIZES = (40, 1000)  # formats are tried on so many values first; only those that fit best are tried on all
MAX_FORMAT_LENGTH = 60


def days(rows: RowBatch, name: str, written: Format) -> np.ndarray:
    """Return the column of `rows` called `name` as days since 1970, (rows,), NaN where the value is missing.

    Times of day are fractions of a day. A value that is not a date in the format `written`, within MAX_DAYS of 1970,
    raises a TableError that names its row.
    """
    return rows.once(("days", name, written), lambda: _read_days(rows, name, written))


def _read_days(rows: RowBatch, name: str, written: Format) -> np.ndarray:
    """Return the result of `days`, read from the column."""
    array = rows.columns[name]
    if values.is_number(array) and written.date not in COMPACT_FORMATS:
        raise rows.column_error(name, "it holds numbers, but dates are expected")
    if values.is_text(array) and written.date == ISO:  # faster, if no value has outer whitespace
        timestamps = values.cast_or_none(array, pa.timestamp("us"))
        array = array if timestamps is None else timestamps
    column = array if values.is_date(array) else values.text(array, written.missing)
    since_1970 = parsed_days(column, written.date)
    is_wrong = np.isnan(since_1970)
    if is_wrong.any():
        is_wrong &= values.as_mask(pc.is_valid(column))
    if is_wrong.any():
        index = int(np.argmax(is_wrong))
        problem = f"{str(rows.columns[name][index].as_py()).strip()!r} is not a {_like(written.date)}"
        raise rows.error(index, name, problem, "Correct it, or leave it empty")
    return since_1970


def first_word(rows: RowBatch, name: str, written: Format) -> str | None:
    """Return the first value of the column `name` that is not a date and has no digit; None if there is none."""
    known = values.text(rows.columns[name], written.missing)
    words = known.filter(pc.invert(pc.match_substring_regex(known, r"\d")))
    unread = words.filter(pa.array(np.isnan(parsed_days(words, written.date))))
    return unread[0].as_py() if len(unread) else None


def _like(date_format: str) -> str:
    """Return what values in `date_format` look like, for messages: "date like 2024-01-31 ..."."""
    if is_clock(date_format):
        return "time like " + datetime(2024, 1, 31, 14, 30, tzinfo=UTC).strftime(date_format)
    example = "2024-01-31" if date_format == ISO else datetime(2024, 1, 31, tzinfo=UTC).strftime(date_format)
    return f"date like {example} within a thousand years of 1970"


def in_words(date_format: str) -> str:
    """Return `date_format` with words in place of directives, such as "day/month/year"."""
    for directive, word in WORDS.items():
        date_format = date_format.replace(directive, word)
    return date_format


def is_clock(date_format: str) -> bool:
    """Whether values in `date_format` are times of day without a date."""
    return date_format in CLOCKS


def infer_format(known: pa.Array, preferred: str | None = None) -> tuple[str, bool] | None:
    """Return the format that fits most values of `known`, and whether day and month could be swapped in all of them.

    Returns None if no format fits more than half of the values, which are text without missing values. Of formats that
    fit equally well, `preferred` is used; without it the month comes first in 3/4/2024, and the day in
    3-4-2024.
    """
    candidates = [*FORMATS] if preferred is None else [preferred, *FORMATS]
    for size in (*SAMPLE_SIZES, len(known)):
        sample = known.slice(0, size)
        n_read = [_n_read(sample, date_format) for date_format in candidates]
        if max(n_read) <= len(sample) / 2:
            return None
        # 3/4/2024 fits two formats and 31/3/2024 only one: formats that fit the sample equally are tried on more values
        candidates = [date_format for date_format, n in zip(candidates, n_read, strict=True) if n == max(n_read)]
        if len(known) <= size:
            break
    best = candidates[0]
    day, _, clock = best.partition(" ")
    swapped = f"{MONTH_OR_DAY_FIRST.get(day, '')} {clock}".strip()
    return best, best != preferred and day in MONTH_OR_DAY_FIRST and swapped in candidates


def formats_of(labels: Sequence[str]) -> dict[str, str]:
    """Return the formats in which dates are written, each with its first date; none if a label is not a date.

    The format of a date is the first that fits it.
    """
    column, found = pa.array(labels, pa.string()), dict[str, str]()
    for date_format in FORMATS:
        is_date = np.isfinite(parsed_days(column, date_format))
        if is_date.any():
            found[date_format] = column[int(np.argmax(is_date))].as_py()
            column = column.filter(pa.array(~is_date))
        if len(column) == 0:
            return found
    return {}


def _n_read(sample: pa.Array, date_format: str) -> int:
    """Return how many values of `sample` are dates in `date_format`; %y matches exactly two digits."""
    if "%y" in date_format:
        sample = sample.filter(pc.match_substring_regex(sample, r"\D\d\d(\D|$)"))
    return int(np.isfinite(parsed_days(sample, date_format)).sum())


def check_format(date_format: str) -> None:
    """Raise an ArgumentError if `date_format` is not a format of strptime that Arrow can read."""
    try:
        if len(date_format) > MAX_FORMAT_LENGTH:
            raise ArgumentError("date_format", f"must have at most {MAX_FORMAT_LENGTH} characters")
        parsed_days(pa.array(["2024-01-31"]), date_format)
    except pa.ArrowInvalid as error:
        raise ArgumentError("date_format", f"cannot be used: {error}") from error


def parsed_days(column: pa.Array, date_format: str) -> np.ndarray:
    """Return `column`, dates or text in `date_format`, as days since 1970, (rows,).

    The result is NaN where a value is missing, invalid, or more than MAX_DAYS from 1970.
    """
    if pa.types.is_time(column.type):
        timestamps = pc.cast(pc.cast(column, pa.time64("us")), pa.int64())
    elif values.is_date(column):
        timestamps = pc.cast(column, pa.timestamp("us"), safe=False)
    elif date_format == ISO:
        timestamps = _from_iso(column)
    else:
        timestamps = pc.strptime(_spelt(column, date_format), format=date_format, unit="us", error_is_null=True)
    microseconds = pc.cast(pc.cast(timestamps, pa.int64()), pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    since_1970 = microseconds / MICROSECONDS_PER_DAY
    if is_clock(date_format):
        since_1970 = since_1970 - np.floor(since_1970)  # strptime gives times a date in 1900
    since_1970[~(np.abs(since_1970) < MAX_DAYS)] = np.nan
    return since_1970


def _spelt(column: pa.Array, date_format: str) -> pa.Array:
    """Return text in which 1st, Sept and a.m. are replaced by the spellings that strptime reads: 1, Sep and am."""
    if "%b" in date_format:
        column = pc.replace_substring_regex(column, r"(\d)(st|nd|rd|th)\b", r"\1")
        column = pc.replace_substring_regex(column, r"(?i)\bsept\b", "Sep")
    return pc.replace_substring_regex(column, r"(?i)\b([ap])\.m\.", r"\1m") if "%p" in date_format else column


def _from_iso(column: pa.Array) -> pa.Array:
    """Return text as timestamps, null where a value is not an ISO date."""
    for kind in (pa.timestamp("us"), pa.timestamp("us", tz="UTC")):
        found = values.cast_or_none(column, kind)
        if found is not None:
            return pc.cast(found, pa.timestamp("us"))
    return pa.array([None if value is None else _timestamp(value) for value in column.to_pylist()], pa.timestamp("us"))


def _timestamp(value: str) -> datetime | None:
    """Return the ISO date `value` as a time in UTC, or None if it is not one; a time without a zone is read as UTC."""
    if value.count("-") < 2:  # `fromisoformat` also accepts 20240131, which has a format of its own
        return None
    try:
        timestamp = datetime.fromisoformat(value)
        return timestamp if timestamp.tzinfo is None else timestamp.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):  # the last day of the year 9999 may not exist in UTC
        return None
