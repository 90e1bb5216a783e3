"""Cells of a table as numbers, labels or times; a cell that cannot be read is named by its row and column."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np

from anchored.tables.errors import TableError

try:
    import pyarrow as pa
    import pyarrow.compute as pc
except ImportError as error:
    raise ImportError("tables need pyarrow: pip install 'anchored[tables]'") from error

LARGEST = 1e100  # what can still be squared and summed
ISO = "ISO 8601"
MONTH_FIRST, DAY_FIRST = "%m/%d/%Y", "%d/%m/%Y"
DATE_FORMATS = (ISO, "%d.%m.%Y", MONTH_FIRST, DAY_FIRST, "%Y/%m/%d", "%d-%m-%Y")
CLOCKS = ("", " %H:%M", " %H:%M:%S")
FORMATS = [day + clock for day in DATE_FORMATS for clock in (CLOCKS if day != ISO else ("",))]
DAY = 86_400_000_000  # in microseconds
FARTHEST_DAY = 365_000  # a thousand years from 1970; 1.2.3 is a version, not a day in the year 3
# What stands for "not known".
MISSING = (
    "",
    "?",
    "NA",
    "N/A",
    "n/a",
    "<NA>",
    "#N/A",
    "#NA",
    "NaN",
    "nan",
    "NAN",
    "Nan",
    "-nan",
    "-NaN",
    "null",
    "NULL",
    "Null",
    "None",
    "none",
    "NONE",
    "NaT",
)
NUMBER = r"^[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|(?i:inf|infinity))$"

# Meant as a number by people: $1,234.50, 12 %, 1 234 567 €.
ADORNED = (
    "^[+-]?[$€£¥]? ?[+-]?([\\d,]*\\.?\\d+|\\d{1,3}([ '\u2019\u00a0\u202f]\\d{3})+([.,]\\d+)?)[ \u00a0\u202f]?[%‰$€£¥]?$"
)


@dataclass(frozen=True)
class Rows:
    """Some rows of a file, column by column, and where in the file they begin."""

    source: str
    first: int  # number of the first of them; the first row below the names is row 1
    columns: dict[str, pa.Array]
    taken: np.ndarray | None = None  # which of the rows from the first on, where not all

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def take(self, indices: np.ndarray) -> "Rows":
        """Some of them, which keep their numbers."""
        columns = {name: column.take(pa.array(indices)) for name, column in self.columns.items()}
        return replace(self, columns=columns, taken=indices if self.taken is None else self.taken[indices])

    def number(self, index: int) -> int:
        """Of one of these rows, in the file."""
        return self.first + int(index if self.taken is None else self.taken[index])

    def error(self, index: int, column: str, message: str) -> TableError:
        """What is wrong with one cell."""
        return TableError(f"{self.source}, row {self.number(index)}, column {column!r}: {message}")


def is_number(array: pa.Array) -> bool:
    """Whether the cells are numbers already, as Parquet's may be."""
    kind = array.type
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def is_time(array: pa.Array) -> bool:
    """Whether the cells are dates or times already."""
    return pa.types.is_date(array.type) or pa.types.is_timestamp(array.type)


def is_readable(array: pa.Array) -> bool:
    """Whether a cell is one value, not a list, a record or bytes."""
    kind = array.type
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    empty_or_truth = pa.types.is_null(kind) or pa.types.is_boolean(kind)
    return is_number(array) or is_time(array) or is_text or empty_or_truth


def text(array: pa.Array) -> pa.Array:
    """Cells as text without blanks around it, null where missing. Whole numbers are written without a point."""
    if pa.types.is_floating(array.type) or pa.types.is_decimal(array.type):
        values = array.to_numpy(zero_copy_only=False).astype(np.float64)
        return pa.array([None if np.isnan(v) else f"{v:.0f}" if v.is_integer() else repr(float(v)) for v in values])
    trimmed = pc.utf8_trim_whitespace(pc.cast(array, pa.string()))
    return pc.if_else(pc.is_in(trimmed, value_set=pa.array(MISSING)), pa.scalar(None, pa.string()), trimmed)


def looks_numeric(cells: pa.Array) -> np.ndarray:
    """Which cells of text are numbers; missing ones are not."""
    return _true(pc.match_substring_regex(cells, NUMBER))


def mostly_numbers(cells: pa.Array) -> bool:
    """Whether more than half of the cells are meant as numbers, be it in a way that `numbers` complains of."""
    return len(cells) > 0 and _meant_as_numbers(cells).mean() > 0.5


def n_distinct(known: pa.Array) -> int:
    """Different values among cells of text, none missing; 1 and 1.0 are one."""
    numeric = looks_numeric(known)
    n_numbers = len(np.unique(_as_floats(known.filter(pa.array(numeric)))))
    return n_numbers + pc.count_distinct(known.filter(pa.array(~numeric))).as_py()


def numbers(rows: Rows, name: str) -> np.ndarray:
    """A column as numbers, NaN where missing."""
    array = rows.columns[name]
    if is_time(array):
        raise TableError(f"{rows.source}, column {name!r}: dates stand where numbers belong")
    try:
        values = _as_floats(array)
    except pa.ArrowInvalid:
        cells = text(array)
        wrong = ~looks_numeric(cells) & _true(pc.is_valid(cells))
        if wrong.any():
            index = int(np.argmax(wrong))
            raise rows.error(index, name, _not_a_number(cells[index].as_py())) from None
        values = _as_floats(cells)
    large = np.abs(values) > LARGEST
    if large.any():
        index = int(np.argmax(large))
        raise rows.error(
            index, name, f"{values[index]:g} is too large to compute with. Correct it, or leave the cell empty."
        )
    return values


def labels(rows: Rows, name: str) -> pa.Array:
    """A column as text that names a category, null where missing; true and false in small letters, 1.0 as 1."""
    cells = pc.replace_substring_regex(text(rows.columns[name]), r"^([+-]?\d+)\.0+$", r"\1")
    small = pc.utf8_lower(cells)
    truth = pc.is_in(small, value_set=pa.array(["true", "false"]))
    return pc.if_else(truth, small, cells)


def times(rows: Rows, name: str, date_format: str) -> np.ndarray:
    """A column of dates as days since 1970, NaN where missing."""
    array = rows.columns[name]
    if is_number(array):
        raise TableError(f"{rows.source}, column {name!r}: numbers stand where dates belong")
    cells = array if is_time(array) else text(array)
    days = as_days(cells, date_format)
    wrong = np.isnan(days) & _true(pc.is_valid(cells))
    if wrong.any():
        index = int(np.argmax(wrong))
        example = "2024-01-31" if date_format == ISO else datetime(2024, 1, 31, tzinfo=UTC).strftime(date_format)
        raise rows.error(
            index, name, f"{cells[index].as_py()!r} is no date like {example}. Correct it, or leave the cell empty."
        )
    return days


def date_format_of(cells: pa.Array, day_first: bool = False) -> tuple[str, bool] | None:
    """The format that reads most cells of text, where it reads more than half, and whether days may be months in it.

    Where 3/4/2024 could be either in all cells, `day_first` decides.
    """
    known = cells.drop_null()
    sample = known.slice(0, 1000)
    read = [np.isfinite(as_days(sample, date_format)).sum() for date_format in FORMATS]
    best = int(np.argmax(read))
    if read[best] <= len(sample) / 2:
        return None
    # 3/4/2024 is read by two formats, 31/4/2024 by one: all cells decide.
    rivals = [date_format for date_format, n in zip(FORMATS, read, strict=True) if n == read[best]]
    read = [int(np.isfinite(as_days(known, date_format)).sum()) for date_format in rivals]
    equals = [date_format for date_format, n in zip(rivals, read, strict=True) if n == max(read)]
    by_day = [date_format for date_format in equals if date_format.startswith(DAY_FIRST)]
    is_ambiguous = bool(by_day) and equals[0].startswith(MONTH_FIRST)
    return (by_day if is_ambiguous and day_first else equals)[0], is_ambiguous


def as_days(cells: pa.Array, date_format: str) -> np.ndarray:
    """Days since 1970 of dates, or of text in a format; NaN where missing or not in it."""
    if is_time(cells):
        moments = pc.cast(cells, pa.timestamp("us"), safe=False)
    elif date_format == ISO:
        moments = _from_iso(cells)
    else:
        moments = pc.strptime(cells, format=date_format, unit="us", error_is_null=True)
    days = pc.cast(pc.cast(moments, pa.int64()), pa.float64(), safe=False).to_numpy(zero_copy_only=False) / DAY
    return np.where(np.abs(days) < FARTHEST_DAY, days, np.nan)


def _from_iso(cells: pa.Array) -> pa.Array:
    for kind in (pa.timestamp("us"), pa.timestamp("us", tz="UTC")):
        try:
            return pc.cast(pc.cast(cells, kind), pa.timestamp("us"))
        except pa.ArrowInvalid:
            continue
    return pa.array([None if cell is None else _moment(cell) for cell in cells.to_pylist()], pa.timestamp("us"))


def _moment(cell: str) -> datetime | None:
    """One cell; a time without a zone is taken for universal time."""
    try:
        moment = datetime.fromisoformat(cell) if cell.count("-") >= 2 else None
    except ValueError:
        return None
    if moment is None or moment.tzinfo is None:
        return moment
    return moment.astimezone(UTC).replace(tzinfo=None)


def _as_floats(array: pa.Array) -> np.ndarray:
    return pc.cast(array, pa.float64()).to_numpy(zero_copy_only=False)


def _true(mask: pa.Array) -> np.ndarray:
    return pc.fill_null(mask, False).to_numpy(zero_copy_only=False)


def _meant_as_numbers(cells: pa.Array) -> np.ndarray:
    return looks_numeric(pc.replace_substring(cells, ",", "")) | _true(pc.match_substring_regex(cells, ADORNED))


def _not_a_number(cell: str) -> str:
    shown = cell if len(cell) <= 40 else cell[:37] + "..."
    if _meant_as_numbers(pa.array([cell]))[0]:
        return f"{shown!r} is not a number. Write 1234.5: a point, nothing between thousands, and no unit."
    return f"{shown!r} is not a number. Correct it, or leave the cell empty if it is not known."
