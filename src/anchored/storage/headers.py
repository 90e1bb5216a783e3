"""Read a JSON header field by field, before anything is built from it.

A file may come from anywhere. A field that is missing, unknown, of the wrong type or out of range raises a StorageError
that names it, such as `params.max_iter`.
"""

import json
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from types import NoneType, UnionType
from typing import Any, NoReturn, TypeVar, get_args, get_origin

from anchored.storage.json_values import JsonObject, JsonValue

LARGEST_WHOLE = 2**53  # whole numbers that JSON readers agree on
LONGEST_TEXT = 100_000  # characters of one entry
MOST_PARTS = 2**17  # objects and lists of a header: a few bytes each in a file, and a hundred in memory
LONGEST_SHOWN = 200  # characters of a field's name in an error
Class = TypeVar("Class")


class StorageError(ValueError):
    """A file that cannot be read as a saved model.

    Attributes
    ----------
    reason : str
        What is wrong with it: "field 'kind' is missing".
    path : str
        The file; empty until it is known.
    """

    def __init__(self, reason: str, path: str = ""):
        super().__init__(reason, path)  # both, so that the error survives pickling
        self.reason, self.path = reason, path

    def __str__(self) -> str:
        return f"{self.path!r}: {self.reason}" if self.path else self.reason


def parse(text: str) -> "Header":
    """The header that `text` holds: JSON as the standard has it, without NaN or infinities."""
    n_parts = text.count("{") + text.count("[")
    if n_parts > MOST_PARTS:
        raise StorageError(f"its header holds {n_parts:,} objects and lists, and at most {MOST_PARTS:,} are read")
    try:
        return Header(json.loads(text, parse_constant=_refuse_constant))
    except StorageError:
        raise
    except (ValueError, RecursionError) as error:
        raise StorageError(f"its header cannot be read: {error}") from error


class Header:
    """A JSON object whose fields are read by name and type; one that does not fit raises a StorageError.

    Parameters
    ----------
    content : what JSON gave; must be an object
    where : where in the file's header it stands, such as "params"; empty for the whole header
    """

    def __init__(self, content: JsonValue, where: str = ""):
        self.where = where
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
        """Raise a StorageError that says what is wrong with the field `name`, or with this object."""
        path = self.path(name)[:LONGEST_SHOWN]
        raise StorageError(f"field {path!r} {why}" if path else f"its header {why}")

    def path(self, name: str = "") -> str:
        """The field's name from the top of the header, with dots between objects."""
        return ".".join(part for part in (self.where, name) if part)

    def require_only(self, required: Collection[str], optional: Collection[str] = ()) -> None:
        """Raise unless all `required` fields are there, and no others than these and the `optional` ones."""
        for name in required:
            self.value(name)
        for name in self._content:
            if name not in required and name not in optional:
                self.refuse("is not known", name)

    def value(self, name: str) -> JsonValue:
        """The field as JSON has it; it must be there."""
        if name not in self._content:
            self.refuse("is missing", name)
        return self._content[name]

    def text(self, name: str, known: Collection[str] | None = None, longest: int = LONGEST_TEXT) -> str:
        """A string of at most `longest` characters, one of `known` if that is given."""
        value = self.value(name)
        if not isinstance(value, str) or not is_text(value, longest) or (known is not None and value not in known):
            wanted = f"text of at most {longest} characters" if known is None else f"one of {sorted(known)}"
            self.refuse(f"must be {wanted}, not {_shown(value)}", name)
        return value

    def flag(self, name: str) -> bool:
        """A boolean."""
        value = self.value(name)
        if not isinstance(value, bool):
            self.refuse(f"must be true or false, not {_shown(value)}", name)
        return value

    def whole(self, name: str, least: int = 0, most: int = LARGEST_WHOLE) -> int:
        """A whole number from `least` to `most`."""
        value = self.value(name)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            self.refuse(f"must be a whole number from {least} to {most}, not {_shown(value)}", name)
        return value

    def number(self, name: str, least: float = -math.inf, most: float = math.inf) -> float:
        """A finite number from `least` to `most`, as a float."""
        value = self.value(name)
        if not isinstance(value, int | float) or not is_finite_number(value) or not least <= value <= most:
            limits = "" if (least, most) == (-math.inf, math.inf) else f" from {least:g} to {most:g}"
            self.refuse(f"must be a finite number{limits}, not {_shown(value)}", name)
        return float(value)

    def typed(self, name: str, kind: object) -> Any:
        """A value of the type that an annotation `kind` names; a list comes back as a tuple.

        Known are bool, int, float, str, None, tuples and sequences of these, and unions.
        """
        value = self.value(name)
        if not _fits(value, kind):
            self.refuse(f"must be {_in_words(kind)}, not {_shown(value)}", name)
        return tuple(value) if isinstance(value, list) else value

    def as_dataclass(self, kind: type[Class], beside: Collection[str] = ()) -> Class:
        """An instance of the dataclass `kind`, from exactly its fields and those `beside` them, each of its type."""
        types = {field.name: field.type for field in fields(kind)}  # type: ignore[arg-type]
        self.require_only([*types, *beside])
        return kind(**{name: self.typed(name, type_) for name, type_ in types.items()})

    def child(self, name: str) -> "Header":
        """A field that is an object itself."""
        return Header(self.value(name), self.path(name))

    def listed(self, name: str, is_valid: Callable[[Any], bool], what: str, longest: int = LONGEST_TEXT) -> list[Any]:
        """A list of at most `longest` entries, each of which `is_valid`; `what` says in words what they must be."""
        value = self.value(name)
        if not isinstance(value, list) or len(value) > longest:
            self.refuse(f"must be a list of at most {longest} {what}, not {_shown(value)}", name)
        for entry in value:
            if not is_valid(entry):
                self.refuse(f"must be a list of {what}, and holds {_shown(entry)}", name)
        return value

    def children(self, name: str, longest: int = LONGEST_TEXT) -> list["Header"]:
        """A list of at most `longest` objects."""
        entries = self.listed(name, lambda entry: isinstance(entry, dict), "objects", longest)
        return [Header(entry, f"{self.path(name)}[{i}]") for i, entry in enumerate(entries)]


def is_text(value: object, longest: int = LONGEST_TEXT) -> bool:
    """Whether `value` is a string of at most `longest` characters that UTF-8 can hold: no lone surrogates."""
    if not isinstance(value, str) or len(value) > longest:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_finite_number(value: object) -> bool:
    """Whether `value` is a number that floating point can hold; booleans are not numbers."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


def is_whole(value: object) -> bool:
    """Whether `value` is a whole number that all JSON readers agree on."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGEST_WHOLE


def is_number(value: object) -> bool:
    """Whether `value` is a finite number; one without a decimal point must be a whole number as above."""
    return is_whole(value) if isinstance(value, int) else is_finite_number(value)


KINDS: dict[object, tuple[Callable[[object], bool], str]] = {  # how to recognise one, and its name
    NoneType: (lambda value: value is None, "null"),
    bool: (lambda value: isinstance(value, bool), "true or false"),
    int: (is_whole, "a whole number"),
    float: (is_number, "a finite number"),
    str: (is_text, "text"),
}


def _fits(value: JsonValue, kind: object) -> bool:
    """Whether a value is of the type that an annotation names."""
    if get_origin(kind) is UnionType:
        return any(_fits(value, part) for part in get_args(kind))
    if get_origin(kind) in (tuple, Sequence):
        entry = get_args(kind)[0]
        return isinstance(value, list) and len(value) <= LONGEST_TEXT and all(_fits(item, entry) for item in value)
    return kind in KINDS and KINDS[kind][0](value)


def _in_words(kind: object) -> str:
    if get_origin(kind) is UnionType:
        return " or ".join(dict.fromkeys(filter(None, map(_in_words, get_args(kind)))))
    if get_origin(kind) in (tuple, Sequence):
        return f"a list, each {_in_words(get_args(kind)[0])}"
    return KINDS[kind][1] if kind in KINDS else ""


def _refuse_constant(name: str) -> NoReturn:
    raise StorageError(f"its header holds {name}, which is not a number")


def _shown(value: JsonValue) -> str:
    """An entry in an error message, cut short. Huge whole numbers are not written out, which would take long."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > LARGEST_WHOLE:
        return "a whole number beyond 2**53"
    if isinstance(value, dict | list):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    text = repr(value[:60] if isinstance(value, str) else value)
    return text if len(text) <= 60 else text[:60] + "…"


@contextmanager
def naming(prefix: str) -> Iterator[None]:
    """Turn what a check says, which begins with an argument's name, into what is wrong with a field."""
    try:
        yield
    except StorageError:
        raise
    except ValueError as error:
        raise StorageError(f"field {prefix}{error}") from error
