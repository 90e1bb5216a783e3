"""Notes about columns that may be misread: numbers that may mean "missing", and labels that differ only in case."""

import re
from collections.abc import Sequence

import numpy as np

from anchored.tables import dates, values
from anchored.tables.columns import CategoryColumn, Column, DateColumn, NumberColumn
from anchored.tables.rows import RowBatch

MIN_REPEATS = 3  # smallest number of rows with a number that may be a code for "missing"
CODE = re.compile("-?9{2,}(\\.0*)?|-1(\\.0*)?")  # numbers that may be such codes, if they are far from all others
MOSTLY = 0.9  # smallest share of a column's labels with numbers in them, for the column to be "text with numbers in it"
MIN_DIGITS = 0.4  # smallest share of digits among the characters, without spaces, of a label with numbers in it
IDENTIFIER = re.compile(r"[A-Za-z]+[-_ ]?\d+")  # such as P0001
TEXT = "text, different in most rows"


def about(rows: RowBatch, column: Column) -> list[str]:
    """Return notes about what may be misread in `column`, which was learnt from `rows`."""
    if isinstance(column, CategoryColumn):
        return _different_cases([*column.levels, *column.rare])
    codes = [end for end in (column.low, column.high) if _may_be_code(column, end)]
    if not codes:
        return []
    read = values.numbers if isinstance(column, NumberColumn) else dates.days
    known = read(rows, column.name, column.written)
    known = known[np.isfinite(known)]
    first, last = column.range.split(" to ")
    shown = {column.low: first, column.high: last}
    return [
        f"{shown[code]} occurs in {np.sum(known == code):,} rows, far from all other values; if it means "
        f'"missing", use --na {shown[code]}'
        for code in codes
        if _is_far(known, code)
    ]


def _may_be_code(column: NumberColumn | DateColumn, end: float) -> bool:
    """Whether `end`, the lowest or highest value of `column`, may mean "missing"."""
    if isinstance(column, DateColumn):
        return not dates.is_clock(column.written.date)
    return bool(CODE.fullmatch(f"{end:.1f}"))


def _is_far(known: np.ndarray, code: float) -> bool:
    """Whether several of the values `known` equal `code`, at a distance from the others larger than their range."""
    others = known[known != code]
    if len(known) - len(others) < MIN_REPEATS or len(others) == 0:
        return False
    return bool(np.abs(others - code).min() > max(np.ptp(others), 1.0))


def _different_cases(labels: Sequence[str]) -> list[str]:
    """Return a note if some of the `labels` differ only in upper and lower case."""
    spellings: dict[str, list[str]] = {}
    for label in labels:
        spellings.setdefault(label.casefold(), []).append(label)
    repeated = [" and ".join(map(repr, same)) for same in spellings.values() if len(same) > 1]
    return [f"{repeated[0]} are different categories; use the same spelling if they are the same"] if repeated else []


def why_unread(labels: Sequence[str]) -> str:
    """Return why a column of text with the distinct `labels` is left out; some may be numbers or dates."""
    sample = labels[:1000]
    read_as = dates.formats_of(sample) if all(re.search(r"\d", label) for label in sample) else {}
    if len(read_as) > 1:
        first, second = [repr(label) for label in read_as.values()][:2]
        return f"dates that are written in several ways, such as {first} and {second}; write them alike"
    has_numbers = [_has_numbers(label) for label in sample]
    if np.mean(has_numbers) < MOSTLY:
        return TEXT
    example = sample[has_numbers.index(True)]
    return f"text with numbers in it, different in most rows, such as {example[:30]!r}"


def _has_numbers(label: str) -> bool:
    """Whether much of a `label` is digits, and it is not an identifier such as P0001."""
    n_digits = sum(character.isdigit() for character in label)
    return n_digits >= MIN_DIGITS * len(label.replace(" ", "")) > 0 and not IDENTIFIER.fullmatch(label)
