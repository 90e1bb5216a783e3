"""The table schema: what each column means and how it becomes numbers, as a little JSON."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anchored.storage.headers import Header
from anchored.tables import cells, columns
from anchored.tables.cells import Rows
from anchored.tables.columns import CategoryColumn, Column, DateColumn, NumberColumn, Surprise
from anchored.tables.errors import TableError

STRANGE = "cells unlike any at the fit"
# customer_id, CustomerID and customer.id are told by their words; these are written as one.
ONE_WORD = (
    "(account|case|client|customer|device|employee|event|item|order|passenger|patient|person|product|record|row|"
    "sample|session|student|subject|transaction|user)id"
)


@dataclass(frozen=True)
class Schema:
    """The columns a model reads, and why it does not read the others.

    The last feature counts a row's cells about which nothing was learnt: categories never seen, and cells missing
    where none were. It is 0 in every row of the fit, so members differ on what follows from it as their priors do,
    and such a row is predicted with less confidence.
    """

    columns: tuple[Column, ...]
    left_out: dict[str, str]

    @classmethod
    def infer(
        cls, rows: Rows, ignore: Sequence[str] = (), categories: Sequence[str] = (), day_first: bool = False
    ) -> "Schema":
        """Learn what the columns mean."""
        kept, left_out = [], {}
        for name in rows.columns:
            try:
                column = "by --ignore" if name in ignore else _inferred(rows, name, name in categories, day_first)
            except TableError as error:
                told = (
                    f"{error} Or leave the column out, --ignore {name!r}, or read it as categories, --category {name!r}"
                )
                raise TableError(told) from error
            if isinstance(column, str):
                left_out[name] = column
            else:
                kept.append(column)
        return cls(_some(rows, kept, left_out), left_out)

    def learnt_again(self, rows: Rows) -> "Schema":
        """The same kinds of columns, learnt from some of the rows; those that are constant there are left out."""
        kept, left_out = [], dict(self.left_out)
        for column in self.columns:
            is_category = isinstance(column, CategoryColumn)
            why = _tells_nothing(_written(rows, column.name, is_category), is_category)
            if why is None:
                kept.append(column.learnt_again(rows))
            else:
                left_out[column.name] = why
        return Schema(_some(rows, kept, left_out), left_out)

    @property
    def names(self) -> list[str]:
        """Of the columns it reads."""
        return [column.name for column in self.columns]

    @property
    def features(self) -> list[str]:
        """Names of the matrix's columns."""
        return [feature for column in self.columns for feature in column.features] + [STRANGE]

    def gives(self, names: Sequence[str]) -> bool:
        """Whether these are its features, which are not all written out: a file's may be long."""
        own = chain(chain.from_iterable(column.features for column in self.columns), [STRANGE])
        return all(name == feature for name, feature in zip_longest(names, own))

    def encode(self, rows: Rows, strict: bool = False, clip: bool = False) -> tuple[np.ndarray, list[Surprise]]:
        """The matrix (rows, features), and what was unlike the fit, which `strict` makes an error.

        A number too far from those of the fit to compute with is an error; with `clip` it is brought nearer.
        """
        encoded = [column.encode(rows, clip) for column in self.columns]
        surprises = [surprise for column in encoded for surprise in column.surprises]
        strange = [surprise for surprise in surprises if surprise.is_strange]
        if strict and strange:
            raise TableError(
                f"{rows.source}, column {strange[0]}; leave out --strict to predict it with less certainty"
            )
        n_strange = np.sum([column.strange for column in encoded], axis=0, dtype=np.float64)
        return np.column_stack([*(column.features for column in encoded), n_strange]), surprises

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {"columns": [columns.to_json(column) for column in self.columns], "left_out": self.left_out}

    @classmethod
    def from_json(cls, described: Header) -> "Schema":
        """What `to_json` described; a StorageError where that is no schema."""
        described.require_only(("columns", "left_out"))
        left_out = described.child("left_out")
        kept = tuple(columns.from_json(column) for column in described.children("columns"))
        if not 1 <= len({column.name for column in kept}) == len(kept):
            described.refuse("must hold columns with different names", "columns")
        return cls(kept, {name: left_out.text(name) for name in left_out})


def merged(surprises: Sequence[Surprise]) -> list[Surprise]:
    """Those of several pieces of a file, told together."""
    found: dict[tuple[str, str], Surprise] = {}
    for one in surprises:
        before = found.get((one.column, one.what))
        n_rows = one.n_rows + (before.n_rows if before else 0)
        first = before or one
        found[one.column, one.what] = Surprise(one.column, one.what, n_rows, first.first_row, first.example)
    return list(found.values())


def _some(rows: Rows, kept: list[Column], left_out: dict[str, str]) -> tuple[Column, ...]:
    if not kept:
        reasons = "; ".join(f"{name!r}: {why}" for name, why in left_out.items()) or "there is no other column"
        raise TableError(f"{rows.source} has no column to predict from ({reasons})")
    return tuple(kept)


def _written(rows: Rows, name: str, as_category: bool) -> pa.Array:
    return cells.labels(rows, name) if as_category else cells.text(rows.columns[name])


def _tells_nothing(written: pa.Array, as_category: bool) -> str | None:
    """Why not, where all cells are one: one label, or else one number."""
    known = written.drop_null()
    if len(known) == 0:
        return "empty"
    if (pc.count_distinct(known).as_py() if as_category else cells.n_distinct(known)) > 1:
        return None
    return "constant" if not written.null_count else f"{known[0].as_py()!r} or missing, nothing else"


def _inferred(rows: Rows, name: str, as_category: bool, day_first: bool) -> Column | str:
    """What a column is, or why it is left out."""
    array = rows.columns[name]
    if not name or name.startswith("__index_level_"):
        return "has no name"
    if not cells.is_readable(array):
        return f"cells of type {array.type}"
    written = _written(rows, name, as_category)
    known = written.drop_null()
    n_distinct = pc.count_distinct(known).as_py()
    nothing = _tells_nothing(written, as_category)
    if nothing is not None:
        return nothing
    if as_category:
        return CategoryColumn.of(rows, name)
    if cells.is_time(array):
        return DateColumn.of(rows, name, cells.ISO)
    if cells.is_number(array) or cells.mostly_numbers(known):
        is_identifier = n_distinct == len(known) and _means_identifier(name) and _are_whole(cells.numbers(rows, name))
        return "identifies rows" if is_identifier else NumberColumn.of(rows, name)
    date_format = cells.date_format_of(written, day_first)
    if date_format is not None:
        return DateColumn.of(rows, name, *date_format)
    if n_distinct > len(known) / 2:
        return "text, different in most rows"
    return CategoryColumn.of(rows, name)


def _means_identifier(name: str) -> bool:
    words = [word.lower() for word in re.findall("[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]
    return any(word in ("id", "index", "uuid") or re.fullmatch(ONE_WORD, word) for word in words)


def _are_whole(values: np.ndarray) -> bool:
    known = values[np.isfinite(values)]
    return bool(np.all(known == np.floor(known)))
