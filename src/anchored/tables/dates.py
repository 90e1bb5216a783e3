"""Read dates: infer the format of a column, and convert its values to days since 1970."""

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anchored.tables import values
from anchored.tables.rows import RowBatch

ISO = "ISO 8601"  # dates with hyphens, with or without time and zone; the other formats are those of strptime
MONTH_FIRST, DAY_FIRST = "%m/%d/%Y", "%d/%m/%Y"
DATE_FORMATS = (ISO, "%d.%m.%Y", MONTH_FIRST, DAY_FIRST, "%Y/%m/%d", "%d-%m-%Y")
TIME_FORMATS = ("", " %H:%M", " %H:%M:%S")
FORMATS = [day + time for day in DATE_FORMATS for time in (TIME_FORMATS if day != ISO else ("",))]
MICROSECONDS_PER_DAY = 86_400_000_000
MAX_DAYS = 365_000  # largest distance from 1970, a thousand years, so that 1.2.3 is not read as a day in the year 3
SAMPLE_SIZE = 1000  # number of values on which all formats are tried


def days(rows: RowBatch, name: str, date_format: str) -> np.ndarray:
    """Return the column of `rows` called `name` as days since 1970, (rows,), NaN where the value is missing.

    A value that is not a date in `date_format` within MAX_DAYS of 1970 raises a TableError that names its row.
    """
    array = rows.columns[name]
    if values.is_number(array):
        raise rows.column_error(name, "it holds numbers, but dates are expected")
    column = array if values.is_date(array) else values.text(array)
    since_1970 = parsed_days(column, date_format)
    is_wrong = np.isnan(since_1970) & values.as_mask(pc.is_valid(column))
    if is_wrong.any():
        index = int(np.argmax(is_wrong))
        example = "2024-01-31" if date_format == ISO else datetime(2024, 1, 31, tzinfo=UTC).strftime(date_format)
        problem = f"{column[index].as_py()!r} is not a date like {example} within a thousand years of 1970"
        raise rows.error(index, name, problem, "Correct it, or leave it empty")
    return since_1970


def infer_format(column: pa.Array, day_first: bool = False) -> tuple[str, bool] | None:
    """Return the format that fits most values of `column`, and whether day and month could be swapped in all of them.

    Returns None if no format fits more than half of the values. If day and month could be swapped in all values, as in
    3/4/2024, the day comes first if `day_first`, otherwise the month.
    """
    known = column.drop_null()
    sample = known.slice(0, SAMPLE_SIZE)
    n_read = [np.isfinite(parsed_days(sample, date_format)).sum() for date_format in FORMATS]
    best = int(np.argmax(n_read))
    if n_read[best] <= len(sample) / 2:
        return None
    # 3/4/2024 fits two formats and 31/3/2024 only one, so formats that fit the sample equally are tried on all values.
    candidates = [date_format for date_format, n in zip(FORMATS, n_read, strict=True) if n == n_read[best]]
    n_read = [int(np.isfinite(parsed_days(known, date_format)).sum()) for date_format in candidates]
    best_formats = [date_format for date_format, n in zip(candidates, n_read, strict=True) if n == max(n_read)]
    day_first_formats = [date_format for date_format in best_formats if date_format.startswith(DAY_FIRST)]
    is_ambiguous = bool(day_first_formats) and best_formats[0].startswith(MONTH_FIRST)
    return (day_first_formats if is_ambiguous and day_first else best_formats)[0], is_ambiguous


def parsed_days(column: pa.Array, date_format: str) -> np.ndarray:
    """Return `column`, dates or text in `date_format`, as days since 1970, (rows,).

    The result is NaN where a value is missing, invalid, or more than MAX_DAYS from 1970.
    """
    if values.is_date(column):
        timestamps = pc.cast(column, pa.timestamp("us"), safe=False)
    elif date_format == ISO:
        timestamps = _from_iso(column)
    else:
        timestamps = pc.strptime(column, format=date_format, unit="us", error_is_null=True)
    microseconds = pc.cast(pc.cast(timestamps, pa.int64()), pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    since_1970 = microseconds / MICROSECONDS_PER_DAY
    return np.where(np.abs(since_1970) < MAX_DAYS, since_1970, np.nan)


def _from_iso(column: pa.Array) -> pa.Array:
    """Return text as timestamps, null where a value is not such a date."""
    for kind in (pa.timestamp("us"), pa.timestamp("us", tz="UTC")):
        try:
            return pc.cast(pc.cast(column, kind), pa.timestamp("us"))
        except pa.ArrowInvalid:
            continue
    return pa.array([None if value is None else _timestamp(value) for value in column.to_pylist()], pa.timestamp("us"))


def _timestamp(value: str) -> datetime | None:
    """Return `value` as a time in UTC, or None if it is not such a date; a time without a zone is read as UTC."""
    if value.count("-") < 2:  # `fromisoformat` also accepts 20240131, which is more likely a code
        return None
    try:
        timestamp = datetime.fromisoformat(value)
        return timestamp if timestamp.tzinfo is None else timestamp.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):  # the last day of the year 9999 may not exist in UTC
        return None
