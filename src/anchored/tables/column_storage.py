"""Columns as JSON, in the header of a model's file."""

from dataclasses import asdict, fields

from anchored.storage.headers import Header
from anchored.storage.json_values import JsonObject
from anchored.tables import dates, values
from anchored.tables.columns import CYCLES, MAX_LEVELS, MAX_RARE, CategoryColumn, Column, DateColumn, NumberColumn
from anchored.tables.formats import Format

KINDS: dict[str, type[Column]] = {column.kind: column for column in (NumberColumn, CategoryColumn, DateColumn)}


def to_json(column: Column) -> JsonObject:
    """Return the fields of `column` and its kind as JSON."""
    return {"kind": column.kind, **asdict(column), "written": column.written.to_json()}


def from_json(header: Header) -> Column:
    """Return the column that `to_json` wrote to `header`; raises a StorageError that names an invalid field."""
    kind = KINDS[header.text("kind", KINDS)]
    types = {field.name: field.type for field in fields(kind) if field.name != "written"}
    header.require_only([*types, "kind", "written"])
    written = Format.from_json(header.child("written"))
    column = kind(written=written, **{name: header.typed(name, type_) for name, type_ in types.items()})
    header.whole("n_missing")  # this call and those below only check the field
    if isinstance(column, CategoryColumn):
        _check_labels(header, column)
        return column
    farthest = dates.MAX_DAYS if isinstance(column, DateColumn) else values.MAX_NUMBER
    header.number("low", -farthest, column.median)
    header.number("high", column.median, farthest)
    if isinstance(column, DateColumn):
        header.child("written").text("date", longest=dates.MAX_FORMAT_LENGTH)
        if list(column.cycles) != [cycle for cycle in CYCLES if cycle in column.cycles]:
            header.refuse(f"must be a subset of {list(CYCLES)}, in this order, without repeats", "cycles")
    return column


def _check_labels(header: Header, column: CategoryColumn) -> None:
    """Raise a StorageError unless levels and rare labels are all different, and not too many."""
    if not 1 <= len(set(column.levels)) == len(column.levels) <= MAX_LEVELS:
        header.refuse(f"must hold from 1 to {MAX_LEVELS} levels, all different", "levels")
    if len(column.rare) > MAX_RARE or set(column.rare) & set(column.levels) or (column.rare and not column.others):
        header.refuse(f"must hold at most {MAX_RARE} labels that are not levels, and none unless others is set", "rare")
