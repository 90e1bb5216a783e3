"""The schema of a table: what each column means and how it becomes numbers, as a little JSON."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anchored.errors import ArgumentError, TableError
from anchored.storage.headers import Header
from anchored.storage.json_values import JsonObject
from anchored.tables import columns, dates, values
from anchored.tables.columns import CategoryColumn, Column, DateColumn, NumberColumn
from anchored.tables.novelties import Novelty
from anchored.tables.rows import RowBatch

UNKNOWN = "number of unknown values"  # name of the last feature
# customer_id, CustomerID and customer.id are recognised by their words; these are written as one.
ONE_WORD = (
    "(account|case|client|customer|device|employee|event|item|order|passenger|patient|person|product|record|row|"
    "sample|session|student|subject|transaction|user)id"
)


@dataclass(frozen=True)
class Schema:
    """The columns a model reads, and why it does not read the others.

    The last feature counts the values of a row about which nothing was learnt: categories never seen, and values
    missing where none were. It is 0 in every row of the fit, so members differ on what follows from it as their
    priors do, and such a row is predicted with less confidence.

    Attributes
    ----------
    columns : those it reads, in the order of the matrix
    left_out : the names of the others, and why each is left out
    """

    columns: tuple[Column, ...]
    left_out: dict[str, str]

    @classmethod
    def infer(
        cls, rows: RowBatch, ignore: Sequence[str] = (), categories: Sequence[str] = (), day_first: bool = False
    ) -> "Schema":
        """Learn what the columns of these rows mean.

        Columns named by `ignore` are left out, those named by `categories` are read as categories whatever they hold;
        `day_first` reads 3/4/2024 as the third of April where all dates of a column could be either.
        """
        kept, left_out = [], {}
        for name in rows.columns:
            try:
                column = "ignored" if name in ignore else _inferred(rows, name, name in categories, day_first)
            except TableError as error:
                instead = (("ignore", name), ("categories", name))
                raise TableError(error.where, error.problem, error.remedy, instead) from error
            if isinstance(column, str):
                left_out[name] = column
            else:
                kept.append(column)
        return cls(_at_least_one(rows, kept, left_out), left_out)

    def refitted(self, rows: RowBatch) -> "Schema":
        """The same kinds of columns, learnt from other rows; those that are constant there are left out."""
        kept, left_out = [], dict(self.left_out)
        for column in self.columns:
            is_category = isinstance(column, CategoryColumn)
            why = _why_constant(_written(rows, column.name, is_category), is_category)
            if why is None:
                kept.append(column.refitted(rows))
            else:
                left_out[column.name] = why
        return Schema(_at_least_one(rows, kept, left_out), left_out)

    @property
    def names(self) -> list[str]:
        """Names of the columns it reads."""
        return [column.name for column in self.columns]

    @property
    def features(self) -> list[str]:
        """Names of the matrix's columns."""
        return [feature for column in self.columns for feature in column.features] + [UNKNOWN]

    def gives(self, names: Sequence[str]) -> bool:
        """Whether its features have these names. They are compared one by one: a file's may be very many."""
        own = chain(chain.from_iterable(column.features for column in self.columns), [UNKNOWN])
        return all(name == feature for name, feature in zip_longest(names, own))

    def encode(self, rows: RowBatch, strict: bool = False, clip: bool = False) -> tuple[np.ndarray, list[Novelty]]:
        """The matrix (rows, features), and what was unlike the fit.

        With `strict`, values about which nothing was learnt raise an ArgumentError. A number too far from those of the
        fit to compute with raises a TableError, or with `clip` is brought nearer.
        """
        encoded = [column.encode(rows, clip) for column in self.columns]
        novelties = [novelty for column in encoded for novelty in column.novelties]
        unknown = [novelty for novelty in novelties if novelty.is_unknown]
        if strict and unknown:
            reason = f"is set, and {rows.source} has values that the model knows nothing about: column {unknown[0]}"
            raise ArgumentError("strict", reason, "leave it out to predict such rows with more uncertainty")
        n_unknown = np.sum([column.unknown for column in encoded], axis=0, dtype=np.float64)
        return np.column_stack([*(column.features for column in encoded), n_unknown]), novelties

    def to_json(self) -> JsonObject:
        """Both fields, in JSON's types."""
        return {"columns": [columns.to_json(column) for column in self.columns], "left_out": dict(self.left_out)}

    @classmethod
    def from_json(cls, described: Header) -> "Schema":
        """The schema that `to_json` described; a StorageError names the field that does not fit."""
        described.require_only(("columns", "left_out"))
        left_out = described.child("left_out")
        kept = tuple(columns.from_json(column) for column in described.children("columns"))
        if not 1 <= len({column.name for column in kept}) == len(kept):
            described.refuse("must hold columns with different names", "columns")
        return cls(kept, {name: left_out.text(name) for name in left_out})


def _at_least_one(rows: RowBatch, kept: list[Column], left_out: dict[str, str]) -> tuple[Column, ...]:
    if not kept:
        reasons = "; ".join(f"{name!r}: {why}" for name, why in left_out.items()) or "there is no other column"
        raise TableError(rows.source, f"there is no column to predict from ({reasons})")
    return tuple(kept)


def _written(rows: RowBatch, name: str, as_category: bool) -> pa.Array:
    return values.labels(rows, name) if as_category else values.text(rows.columns[name])


def _why_constant(written: pa.Array, as_category: bool) -> str | None:
    """In which way all values are one label or one number, or None where they vary."""
    known = written.drop_null()
    if len(known) == 0:
        return "empty"
    if (pc.count_distinct(known).as_py() if as_category else values.n_distinct(known)) > 1:
        return None
    return "constant" if not written.null_count else f"{known[0].as_py()!r} or missing, nothing else"


def _inferred(rows: RowBatch, name: str, as_category: bool, day_first: bool) -> Column | str:
    """What a column is, or why it is left out."""
    array = rows.columns[name]
    if not name or name.startswith("__index_level_"):
        return "has no name"
    if not values.is_readable(array):
        return f"values of type {array.type}"
    written = _written(rows, name, as_category)
    known = written.drop_null()
    n_distinct = pc.count_distinct(known).as_py()
    constant = _why_constant(written, as_category)
    if constant is not None:
        return constant
    if as_category:
        return CategoryColumn.of(rows, name)
    if values.is_date(array):
        return DateColumn.of(rows, name, dates.ISO)
    if values.is_number(array) or values.mostly_numbers(known):
        is_identifier = n_distinct == len(known) and _means_identifier(name) and _are_whole(values.numbers(rows, name))
        return "identifies rows" if is_identifier else NumberColumn.of(rows, name)
    date_format = dates.infer_format(written, day_first)
    if date_format is not None:
        return DateColumn.of(rows, name, *date_format)
    if n_distinct > len(known) / 2:
        return "text, different in most rows"
    return CategoryColumn.of(rows, name)


def _means_identifier(name: str) -> bool:
    words = [word.lower() for word in re.findall("[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]
    return any(word in ("id", "index", "uuid") or re.fullmatch(ONE_WORD, word) for word in words)


def _are_whole(numbers: np.ndarray) -> bool:
    known = numbers[np.isfinite(numbers)]
    return bool(np.all(known == np.floor(known)))
