"""The schema of a table: the kind of each column, and how the columns are encoded as a matrix of features."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, zip_longest

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anchored.errors import ArgumentError, TableError
from anchored.storage.headers import Header
from anchored.storage.json_values import JsonObject
from anchored.tables import column_storage, dates, doubts, values
from anchored.tables.columns import CategoryColumn, Column, DateColumn, NumberColumn
from anchored.tables.formats import ReadingOptions
from anchored.tables.kinds import Kind, is_identifier_name
from anchored.tables.kinds import infer as infer_kinds
from anchored.tables.novelties import Novelty
from anchored.tables.parallel import map_columns
from anchored.tables.rows import RowBatch

UNKNOWN = "number of unknown values"  # name of the last feature
MAX_EXACT = 2**53  # largest whole number that float64 holds exactly; larger ones are codes, not quantities
IGNORED = "ignored"  # the reason why a column that the user ignores is left out


@dataclass(frozen=True)
class Schema:
    """The columns that a model reads, and why it does not read the others.

    The last feature counts the unknown values of a row: unseen categories, and missing values in columns that had none
    in training. (If rare categories of a column share a feature, unseen ones set it too.) The count is 0 in every
    training row, so its weights stay at their anchors, members disagree about its effect, and rows with unknown values
    are predicted with more uncertainty.

    Attributes
    ----------
    columns : tuple of Column
        The columns it reads, in the order of their features.
    left_out : dict of str to str
        The names of the other columns, and why each is left out.
    notes : tuple of str
        What the user should know about the reading of columns; not stored in files.
    """

    columns: tuple[Column, ...]
    left_out: dict[str, str]
    notes: tuple[str, ...] = field(default=(), compare=False)

    @classmethod
    def infer(
        cls, rows: RowBatch, options: ReadingOptions | None = None, kinds: Mapping[str, Kind] | None = None
    ) -> "Schema":
        """Infer the kinds of columns and learn their encoding.

        Parameters
        ----------
        rows : RowBatch
            Training rows, without the target.
        options : ReadingOptions or None
            What the user specified about the format of the table; the rest is inferred.
        kinds : dict of str to Kind, or None
            The kinds of all columns, by name; None infers them from `rows`.
        """
        options = options or ReadingOptions()
        left_out = {name: why for name in rows.columns if (why := _why_not_read(rows, name, options)) is not None}
        readable = [name for name in rows.columns if name not in left_out]
        kept, notes = list[Column](), list[str]()
        if kinds is None:
            kinds = infer_kinds(rows, options)
        learnt = map_columns(lambda name: _learn_column(rows, name, kinds[name], options), readable, len(rows))
        for name, result in zip(readable, learnt, strict=True):
            if isinstance(result, str):
                left_out[name] = result  # why it is left out
            else:
                kept.append(result)
                notes += [f"{name}: {doubt}" for doubt in doubts.about(rows, result)]
            notes += [f"{name}: {kinds[name].note}"] * bool(kinds[name].note)
        return cls(_require_columns(rows, kept, left_out), left_out, tuple(notes))

    def refitted(self, rows: RowBatch) -> "Schema":
        """Return a schema with the same kinds of columns, learnt from other `rows`.

        Columns that are constant or empty in these rows are left out.
        """
        kept, left_out = [], dict(self.left_out)
        learnt = map_columns(lambda column: column.refitted(rows), self.columns, len(rows))
        for column, result in zip(self.columns, learnt, strict=True):
            if isinstance(result, str):
                left_out[column.name] = result
            else:
                kept.append(result)
        return Schema(_require_columns(rows, kept, left_out), left_out, self.notes)

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
            Whether an unknown value (see the class) raises an ArgumentError.
        clip : bool
            Whether a number too far from the training data is clipped, instead of raising a TableError.

        Returns
        -------
        matrix : (rows, features)
            The features.
        novelties : list of Novelty
            Unknown values, and numbers and dates outside the range of the training data.
        """
        widths = [len(column.feature_names) for column in self.columns]
        ends = np.cumsum(widths)
        matrix = np.zeros((len(rows), int(ends[-1]) + 1), order="F")  # columns are written one by one
        parts = np.split(matrix[:, :-1], ends[:-1], axis=1)
        encoded = map_columns(
            lambda i: self.columns[i].encode(rows, parts[i], clip), range(len(self.columns)), len(rows)
        )
        novelties = list[Novelty]()
        for unknown, found in encoded:
            if found:  # otherwise no value is unknown
                matrix[:, -1] += unknown
            novelties += found
        unknown_values = [novelty for novelty in novelties if novelty.is_unknown]
        if strict and unknown_values:
            reason = f"is set, but {rows.source} has values that did not occur in training: column {unknown_values[0]}"
            raise ArgumentError("strict", reason, "without it, such rows are predicted with more uncertainty")
        return matrix, novelties

    def to_json(self) -> JsonObject:
        """Return `columns` and `left_out`, in JSON's types."""
        return {"columns": [column_storage.to_json(column) for column in self.columns], "left_out": dict(self.left_out)}

    @classmethod
    def from_json(cls, header: Header) -> "Schema":
        """Return the schema that `to_json` wrote to `header`; raises a StorageError that names an invalid field."""
        header.require_only(("columns", "left_out"))
        left_out = header.child("left_out")
        kept = tuple(column_storage.from_json(column) for column in header.children("columns"))
        if not 1 <= len({column.name for column in kept}) == len(kept):
            header.refuse("must hold columns with different names", "columns")
        return cls(kept, {name: left_out.text(name) for name in left_out})


def _require_columns(rows: RowBatch, kept: list[Column], left_out: dict[str, str]) -> tuple[Column, ...]:
    """Return the columns `kept`, or raise a TableError if there are none."""
    if not kept:
        reasons = "; ".join(f"{name!r}: {why}" for name, why in left_out.items()) or "there is no other column"
        raise TableError(rows.source, f"there is no column to predict from ({reasons})")
    return tuple(kept)


def _why_not_read(rows: RowBatch, name: str, options: ReadingOptions) -> str | None:
    """Return why the column called `name` is left out before its values are looked at, or None if it is not."""
    if name in options.ignore:
        return IGNORED
    if not name or name.startswith("__index_level_"):
        return "has no name"
    array = rows.columns[name]
    return None if values.is_readable(array) else f"values of type {array.type} cannot be read"


@contextmanager
def _suggesting(rows: RowBatch, name: str, kind: Kind) -> Iterator[None]:
    """Add to a TableError raised in the block what else may be done with the column called `name`.

    A word among numbers may mean "missing", and the column may be ignored or read as categories.
    """
    try:
        yield
    except TableError as error:
        find_word = {"number": values.first_word, "date": dates.first_word}.get(kind.name)
        is_text = values.is_text(rows.columns[name])
        word = find_word(rows, name, kind.written) if find_word is not None and is_text else None
        words = () if word is None or values.is_total(word) else (("na_values", word),)
        alternatives = (*words, ("ignore", name), ("types", f"{name}=category"))
        raise TableError(error.where, error.problem, error.remedy, alternatives) from error


def _learn_column(rows: RowBatch, name: str, kind: Kind, options: ReadingOptions) -> Column | str:
    """Learn how the column called `name` is encoded; return it, or why it is left out."""
    with _suggesting(rows, name, kind):
        return _learn(rows, name, kind, has_given_type=name in (options.types or {}))


def _learn(rows: RowBatch, name: str, kind: Kind, has_given_type: bool) -> Column | str:
    """Learn the column called `name`; return why it is left out if it identifies rows or is text that hardly repeats.

    A column whose type the user gave (`has_given_type`) is not left out for these reasons.
    """
    if kind.name == "number":
        column = NumberColumn.fit(rows, name, kind.written)
        if isinstance(column, str) or has_given_type:
            return column
        if column.high > MAX_EXACT and _are_long_codes(rows.columns[name]):
            return "codes of 16 digits and more"
        if is_identifier_name(name) and _are_distinct_whole_numbers(values.numbers(rows, name, kind.written)):
            return "identifies rows"
        return column
    if kind.name == "date":
        return DateColumn.fit(rows, name, kind.written, kind.is_ambiguous)
    codes, names = values.labels(rows, name, kind.written)
    if not has_given_type:
        _require_no_totals(rows, name, codes, names)
    if len(names) > max(1, (codes >= 0).sum() / 2) and not has_given_type:
        return doubts.why_unread(names)
    return CategoryColumn.fit(rows, name, kind.written)


def _require_no_totals(rows: RowBatch, name: str, codes: np.ndarray, names: list[str]) -> None:
    """Raise a TableError if the label of the last row, which no other row has, is the name of a row of totals."""
    last = codes[-1]
    if last >= 0 and values.is_total(names[last]) and np.sum(codes == last) == 1:
        raise rows.error(len(codes) - 1, name, f"{names[last]!r} suggests that the row holds totals", "Remove it")


def _are_long_codes(column: pa.Array) -> bool:
    """Whether all values of `column` are whole numbers of 16 digits or more, which float64 would round."""
    if not (values.is_text(column) or pa.types.is_integer(column.type)):
        return False
    known = values.text(column).drop_null()
    return bool(values.as_mask(pc.match_substring_regex(known, r"^\d{16,}$")).all())


def _are_distinct_whole_numbers(numbers: np.ndarray) -> bool:
    """Whether all finite numbers are whole, and no two are equal."""
    known = numbers[np.isfinite(numbers)]
    return bool(np.all(known == np.floor(known))) and len(np.unique(known)) == len(known)
