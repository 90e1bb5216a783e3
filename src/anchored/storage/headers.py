"""Check a JSON header field by field before anything is built from it.

Files are not trusted. A StorageError that names the field, such as `params.max_iter`, is raised if a field is missing,
unknown, of the wrong type or out of range.
"""

import json
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from types import NoneType, UnionType
from typing import Any, NoReturn, TypeVar, get_args, get_origin

from anchored.storage.json_values import JsonObject, JsonValue

MAX_WHOLE = 2**53  # every whole number up to this one is exact in floating point
MAX_LENGTH = 100_000  # characters of a string, or entries of a list
MAX_BRACKETS = 2**17  # opening brackets in a header; each object or list takes about a hundred bytes of memory
MAX_NAME_SHOWN = 200  # characters of a field's name in an error message
Class = TypeVar("Class")


class StorageError(ValueError):
    """Raised if a file cannot be read as a saved model.

    Attributes
    ----------
    reason : str
        What is wrong with the file, such as "field 'kind' is missing".
    path : str
        Path of the file. Empty if it is not known yet.
    """

    def __init__(self, reason: str, path: str = ""):
        super().__init__(reason, path)  # pickle rebuilds the error from these arguments
        self.reason, self.path = reason, path

    def __str__(self) -> str:
        return f"{self.path!r}: {self.reason}" if self.path else self.reason


def parse(text: str) -> "Header":
    """Return the JSON object `text` as a Header.

    Raises a StorageError if it is not valid JSON, or contains NaN or Infinity.
    """
    n_brackets = text.count("{") + text.count("[")
    if n_brackets > MAX_BRACKETS:
        raise StorageError(f"its header has {n_brackets:,} opening brackets; at most {MAX_BRACKETS:,} are allowed")
    try:
        return Header(json.loads(text, parse_constant=_refuse_constant))
    except StorageError:
        raise
    except (ValueError, RecursionError) as error:
        raise StorageError(f"its header cannot be read: {error}") from error


class Header:
    """A JSON object whose fields are read by name, each with a check of its type and range.

    Methods that read a field raise a StorageError that names it if it is missing or invalid.

    Parameters
    ----------
    content : JsonValue
        The parsed JSON, which must be an object.
    prefix : str
        Dotted name of this object in the header of the file, such as "params". Empty for the header itself.
    """

    def __init__(self, content: JsonValue, prefix: str = ""):
        self.prefix = prefix
        if not isinstance(content, dict):
            self.refuse(f"must be an object, not {_shown(content)}")
        self._content: JsonObject = content

    def __contains__(self, name: str) -> bool:
        return name in self._content

    def __iter__(self) -> Iterator[str]:
        return iter(self._content)

    def __len__(self) -> int:
        return len(self._content)

    def refuse(self, why: str, name: str = "") -> NoReturn:
        """Raise a StorageError about the field `name`, or about this object if it is empty.

        `why` is the rest of the sentence, after the name.
        """
        field_name = self.field_name(name)[:MAX_NAME_SHOWN]
        raise StorageError(f"field {field_name!r} {why}" if field_name else f"its header {why}")

    def field_name(self, name: str = "") -> str:
        """Return the dotted name of the field `name` in the header of the file, such as "params.max_iter"."""
        return ".".join(part for part in (self.prefix, name) if part)

    def require_only(self, required: Collection[str], optional: Collection[str] = ()) -> None:
        """Raise a StorageError unless the object has all `required` fields, and no others but the `optional` ones."""
        for name in required:
            self.value(name)
        for name in self._content:
            if name not in required and name not in optional:
                self.refuse("is not known", name)

    def value(self, name: str) -> JsonValue:
        """Return the value of the field `name`, which may have any type."""
        if name not in self._content:
            self.refuse("is missing", name)
        return self._content[name]

    def text(self, name: str, known: Collection[str] | None = None, longest: int = MAX_LENGTH) -> str:
        """Return the field `name`: a string of at most `longest` characters, and one of `known` unless that is None."""
        value = self.value(name)
        if not isinstance(value, str) or not is_text(value, longest) or (known is not None and value not in known):
            required = f"text of at most {longest} characters" if known is None else f"one of {sorted(known)}"
            self.refuse(f"must be {required}, not {_shown(value)}", name)
        return value

    def flag(self, name: str) -> bool:
        """Return the field `name`, a boolean."""
        value = self.value(name)
        if not isinstance(value, bool):
            self.refuse(f"must be true or false, not {_shown(value)}", name)
        return value

    def whole(self, name: str, least: int = 0, most: int = MAX_WHOLE) -> int:
        """Return the field `name`, a whole number from `least` to `most`."""
        value = self.value(name)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            self.refuse(f"must be a whole number from {least} to {most}, not {_shown(value)}", name)
        return value

    def number(self, name: str, least: float = -math.inf, most: float = math.inf) -> float:
        """Return the field `name`, a finite number from `least` to `most`, as a float."""
        value = self.value(name)
        if not isinstance(value, int | float) or not is_finite_number(value) or not least <= value <= most:
            limits = "" if (least, most) == (-math.inf, math.inf) else f" from {least:g} to {most:g}"
            self.refuse(f"must be a finite number{limits}, not {_shown(value)}", name)
        return float(value)

    def typed(self, name: str, kind: object) -> Any:
        """Return the field `name`, a value of the type `kind`. A list is returned as a tuple.

        `kind` may be bool, int, float, str, NoneType, `tuple[T, ...]` or `Sequence[T]` of one of these, or a union of
        such types. A float may be a whole number, which is returned as an int.
        """
        value = self.value(name)
        if not _fits(value, kind):
            self.refuse(f"must be {_describe(kind)}, not {_shown(value)}", name)
        return tuple(value) if isinstance(value, list) else value

    def as_dataclass(self, kind: type[Class], also_required: Collection[str] = ()) -> Class:
        """Return an instance of the dataclass `kind`, made from the fields of this object.

        The object must have the fields of the dataclass, each of its annotated type, and the fields in `also_required`,
        which are ignored. It must have no others.
        """
        types = {field.name: field.type for field in fields(kind)}  # type: ignore[arg-type]
        self.require_only([*types, *also_required])
        return kind(**{name: self.typed(name, type_) for name, type_ in types.items()})

    def child(self, name: str) -> "Header":
        """Return the field `name`, an object, as a Header."""
        return Header(self.value(name), self.field_name(name))

    def listed(self, name: str, is_valid: Callable[[Any], bool], what: str, longest: int = MAX_LENGTH) -> list[Any]:
        """Return the field `name`, a list of valid entries.

        Parameters
        ----------
        name : str
            Name of the field.
        is_valid : callable
            Function that takes an entry and returns whether it is valid.
        what : str
            What the entries must be, in the plural, such as "positive numbers". Used in the error message.
        longest : int
            Largest number of entries allowed.

        Returns
        -------
        list
            The entries.
        """
        value = self.value(name)
        if not isinstance(value, list) or len(value) > longest:
            self.refuse(f"must be a list of at most {longest} {what}, not {_shown(value)}", name)
        for entry in value:
            if not is_valid(entry):
                self.refuse(f"must be a list of {what}, and holds {_shown(entry)}", name)
        return value

    def children(self, name: str, longest: int = MAX_LENGTH) -> list["Header"]:
        """Return the field `name`, a list of at most `longest` objects, as a list of Headers."""
        entries = self.listed(name, lambda entry: isinstance(entry, dict), "objects", longest)
        return [Header(entry, f"{self.field_name(name)}[{i}]") for i, entry in enumerate(entries)]


def is_text(value: object, longest: int = MAX_LENGTH) -> bool:
    """Return whether `value` is a string of at most `longest` characters, all of which can be encoded as UTF-8."""
    if not isinstance(value, str) or len(value) > longest:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_finite_number(value: object) -> bool:
    """Return whether `value` is a number that is finite as a float. A boolean does not count as a number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


def is_whole(value: object) -> bool:
    """Return whether `value` is a whole number between −2⁵³ and 2⁵³. Every JSON parser reads these exactly."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MAX_WHOLE


def is_number(value: object) -> bool:
    """Return whether `value` is a finite float, or an int for which `is_whole` is true."""
    return is_whole(value) if isinstance(value, int) else is_finite_number(value)


KINDS: dict[object, tuple[Callable[[object], bool], str]] = {  # type -> (check, name in messages)
    NoneType: (lambda value: value is None, "null"),
    bool: (lambda value: isinstance(value, bool), "true or false"),
    int: (is_whole, "a whole number"),
    float: (is_number, "a finite number"),
    str: (is_text, "text"),
}


def _fits(value: JsonValue, kind: object) -> bool:
    """Return whether `value` has the type `kind`, which is as in `Header.typed`."""
    if get_origin(kind) is UnionType:
        return any(_fits(value, part) for part in get_args(kind))
    if get_origin(kind) in (tuple, Sequence):
        entry = get_args(kind)[0]
        return isinstance(value, list) and len(value) <= MAX_LENGTH and all(_fits(item, entry) for item in value)
    return kind in KINDS and KINDS[kind][0](value)


def _describe(kind: object) -> str:
    """Return the type `kind` in words, for an error message."""
    if get_origin(kind) is UnionType:
        return " or ".join(dict.fromkeys(filter(None, map(_describe, get_args(kind)))))
    if get_origin(kind) in (tuple, Sequence):
        return f"a list, each {_describe(get_args(kind)[0])}"
    return KINDS[kind][1] if kind in KINDS else ""


def _refuse_constant(name: str) -> NoReturn:
    """Raise a StorageError about `name`, which is NaN or an infinity. Python's parser would accept it."""
    raise StorageError(f"its header holds {name}, which is not a number")


def _shown(value: JsonValue) -> str:
    """Return `value` as text for an error message, shortened if it is long."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > MAX_WHOLE:  # repr may be slow
        return "a whole number beyond 2**53"
    if isinstance(value, dict | list):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    text = repr(value[:60] if isinstance(value, str) else value)
    return text if len(text) <= 60 else text[:60] + "…"


@contextmanager
def as_storage_errors(prefix: str) -> Iterator[None]:
    """Context manager that turns a ValueError about an argument into a StorageError about a field of a file.

    Parameters
    ----------
    prefix : str
        Dotted name of the object that holds the field, with a dot at the end, such as "params.". The message of the
        ValueError, which starts with the name of the argument, is appended to it.
    """
    try:
        yield
    except StorageError:
        raise
    except ValueError as error:
        raise StorageError(f"field {prefix}{error}") from error
