"""The schema of a table: the kind of each column, and how the columns are encoded as a matrix of features."""

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
# Names of identifiers that are single words; in customer_id, CustomerID and customer.id, "id" is a word by itself.
IDENTIFIER = (
    "(account|case|client|customer|device|employee|event|item|order|passenger|patient|person|product|record|row|"
    "sample|session|student|subject|transaction|user)id"
)


@dataclass(frozen=True)
class Schema:
    """The columns that a model reads, and why it does not read the others.

    The last feature counts the unknown values of a row: unseen categories (unless the column has so many that rare ones
    share a level, as unseen ones then do), and missing values in columns that had none in training. It is 0 in every
    training row, so its weights stay at their anchors, members disagree about its effect, and rows with unknown values
    are predicted with more uncertainty.

    Attributes
    ----------
    columns : tuple of Column
        The columns it reads, in the order of their features.
    left_out : dict of str to str
        The names of the other columns, and why each is left out.
    """

    columns: tuple[Column, ...]
    left_out: dict[str, str]

    @classmethod
    def infer(
        cls, rows: RowBatch, ignore: Sequence[str] = (), categories: Sequence[str] = (), day_first: bool = False
    ) -> "Schema":
        """Infer the kinds of columns and learn their encoding.

        Parameters
        ----------
        rows : RowBatch
            Rows to learn from.
        ignore : sequence of str
            Names of columns to leave out.
        categories : sequence of str
            Names of columns to read as categories, even if their values are numbers or dates.
        day_first : bool
            Whether 3/4/2024 is the third of April, if all dates of the column are ambiguous.
        """
        kept, left_out = [], {}
        for name in rows.columns:
            try:
                result = "ignored" if name in ignore else _infer_column(rows, name, name in categories, day_first)
            except TableError as error:
                alternatives = (("ignore", name), ("categories", name))
                raise TableError(error.where, error.problem, error.remedy, alternatives) from error
            if isinstance(result, str):
                left_out[name] = result  # why it is left out
            else:
                kept.append(result)
        return cls(_require_columns(rows, kept, left_out), left_out)

    def refitted(self, rows: RowBatch) -> "Schema":
        """Return a schema with the same kinds of columns, learnt from other `rows`.

        Columns that are constant or empty in these rows are left out.
        """
        kept, left_out = [], dict(self.left_out)
        for column in self.columns:
            is_category = isinstance(column, CategoryColumn)
            why = _why_constant(_as_text(rows, column.name, is_category), is_category)
            if why is None:
                kept.append(column.refitted(rows))
            else:
                left_out[column.name] = why
        return Schema(_require_columns(rows, kept, left_out), left_out)

    @property
    def names(self) -> list[str]:
        """Names of the columns it reads."""
        return [column.name for column in self.columns]

    @property
    def feature_names(self) -> list[str]:
        """Names of the features, in the order of the matrix that `encode` returns."""
        return [name for column in self.columns for name in column.feature_names] + [UNKNOWN]

    def has_features(self, names: Sequence[str]) -> bool:
        """Return whether `names` equals `feature_names`.

        Names are compared one by one, without making the list, since a forged file may describe very many features.
        """
        expected = chain(chain.from_iterable(column.feature_names for column in self.columns), [UNKNOWN])
        return all(name == feature for name, feature in zip_longest(names, expected))

    def encode(self, rows: RowBatch, strict: bool = False, clip: bool = False) -> tuple[np.ndarray, list[Novelty]]:
        """Encode rows as a matrix of features.

        Parameters
        ----------
        rows : RowBatch
            Rows that have all columns in `names`.
        strict : bool
            Whether an unknown value, as above, raises an ArgumentError.
        clip : bool
            Whether a number too far from the training data is clipped, instead of raising a TableError.

        Returns
        -------
        matrix : (rows, features)
            The features.
        novelties : list of Novelty
            Values unlike the training data.
        """
        encoded = [column.encode(rows, clip) for column in self.columns]
        novelties = [novelty for column in encoded for novelty in column.novelties]
        unknown = [novelty for novelty in novelties if novelty.is_unknown]
        if strict and unknown:
            reason = f"is set, but {rows.source} has values that did not occur in training: column {unknown[0]}"
            raise ArgumentError("strict", reason, "without it, such rows are predicted with more uncertainty")
        n_unknown = np.sum([column.unknown for column in encoded], axis=0, dtype=np.float64)
        return np.column_stack([*(column.features for column in encoded), n_unknown]), novelties

    def to_json(self) -> JsonObject:
        """Return `columns` and `left_out`, in JSON's types."""
        return {"columns": [columns.to_json(column) for column in self.columns], "left_out": dict(self.left_out)}

    @classmethod
    def from_json(cls, header: Header) -> "Schema":
        """Return the schema that `to_json` wrote to `header`; raises a StorageError that names an invalid field."""
        header.require_only(("columns", "left_out"))
        left_out = header.child("left_out")
        kept = tuple(columns.from_json(column) for column in header.children("columns"))
        if not 1 <= len({column.name for column in kept}) == len(kept):
            header.refuse("must hold columns with different names", "columns")
        return cls(kept, {name: left_out.text(name) for name in left_out})


def _require_columns(rows: RowBatch, kept: list[Column], left_out: dict[str, str]) -> tuple[Column, ...]:
    """Return the columns `kept`, or raise a TableError if there are none."""
    if not kept:
        reasons = "; ".join(f"{name!r}: {why}" for name, why in left_out.items()) or "there is no other column"
        raise TableError(rows.source, f"there is no column to predict from ({reasons})")
    return tuple(kept)


def _as_text(rows: RowBatch, name: str, as_category: bool) -> pa.Array:
    """Return the column called `name` as text, or as labels of categories."""
    return values.labels(rows, name) if as_category else values.text(rows.columns[name])


def _why_constant(written: pa.Array, as_category: bool) -> str | None:
    """Return in which way a column, `written` as text, does not vary, or None if it varies.

    Labels of categories differ if their text differs; otherwise 1 and 1.0 are equal.
    """
    known = written.drop_null()
    if len(known) == 0:
        return "empty"
    if (pc.count_distinct(known).as_py() if as_category else values.n_distinct(known)) > 1:
        return None
    return "constant" if not written.null_count else f"always {known[0].as_py()!r} or missing"


def _infer_column(rows: RowBatch, name: str, as_category: bool, day_first: bool) -> Column | str:
    """Infer the kind of the column called `name` and learn its encoding; return it, or why it is left out."""
    array = rows.columns[name]
    if not name or name.startswith("__index_level_"):
        return "has no name"
    if not values.is_readable(array):
        return f"values of type {array.type}"
    written = _as_text(rows, name, as_category)
    known = written.drop_null()
    n_distinct = pc.count_distinct(known).as_py()
    why_constant = _why_constant(written, as_category)
    if why_constant is not None:
        return why_constant
    if as_category:
        return CategoryColumn.fit(rows, name)
    if values.is_date(array):
        return DateColumn.fit(rows, name, dates.ISO)
    if values.is_number(array) or values.mostly_numbers(known):
        is_unique = n_distinct == len(known)
        is_identifier = is_unique and _is_identifier_name(name) and _are_whole(values.numbers(rows, name))
        return "identifies rows" if is_identifier else NumberColumn.fit(rows, name)
    date_format = dates.infer_format(written, day_first)
    if date_format is not None:
        return DateColumn.fit(rows, name, *date_format)
    if n_distinct > len(known) / 2:
        return "text, different in most rows"
    return CategoryColumn.fit(rows, name)


def _is_identifier_name(name: str) -> bool:
    """Whether `name`, of a column, is that of an identifier of rows, such as "customer_id"."""
    words = [word.lower() for word in re.findall("[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]
    is_row_index = "index" in words and set(words) <= {"row", "index"}  # a heat index is a number
    return is_row_index or any(word in ("id", "uuid") or re.fullmatch(IDENTIFIER, word) for word in words)


def _are_whole(numbers: np.ndarray) -> bool:
    """Whether all finite numbers are whole."""
    known = numbers[np.isfinite(numbers)]
    return bool(np.all(known == np.floor(known)))
