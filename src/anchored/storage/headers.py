"""Read a JSON header field by field, before anything is built from it.

A file may come from anywhere. Whatever in its header is missing, unknown, of the wrong type or out of range is a
StorageError that names the field, such as `params.max_iter`.
"""

import json
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from types import NoneType, UnionType
from typing import Any, NoReturn, get_args, get_origin

LARGEST_WHOLE = 2**53  # whole numbers that JSON readers agree on
LONGEST_TEXT = 100_000  # characters of one entry
MOST_PARTS = 2**17  # objects and lists of a header: a few bytes each in a file, and a hundred in memory
LONGEST_SHOWN = 200  # characters of a field's name in an error


class StorageError(ValueError):
    """The file cannot be read as a saved model; the message says why."""


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
    """A JSON object whose fields are asked for by name and kind."""

    def __init__(self, content: Any, where: str = ""):
        self.where = where
        if not isinstance(content, dict):
            self.refuse(f"must be an object, not {_shown(content)}")
        self._content: dict[str, Any] = content

    def __contains__(self, name: str) -> bool:
        return name in self._content

    def __iter__(self) -> Iterator[str]:
        return iter(self._content)

    def __len__(self) -> int:
        return len(self._content)

    def refuse(self, why: str, name: str = "") -> NoReturn:
        """Raise: this object, or its field `name`, is not as it should be."""
        path = self.path(name)[:LONGEST_SHOWN]
        raise StorageError(f"field {path!r} {why}" if path else f"its header {why}")

    def path(self, name: str = "") -> str:
        """Where a field stands, from the top of the header."""
        return ".".join(part for part in (self.where, name) if part)

    def require_only(self, required: Collection[str], optional: Collection[str] = ()) -> None:
        """Raise unless all `required` fields are there, and no others than these and the `optional` ones."""
        for name in required:
            self.value(name)
        for name in self._content:
            if name not in required and name not in optional:
                self.refuse("is not known", name)

    def value(self, name: str) -> Any:
        """The field as JSON has it."""
        if name not in self._content:
            self.refuse("is missing", name)
        return self._content[name]

    def text(self, name: str, known: Collection[str] | None = None, longest: int = LONGEST_TEXT) -> str:
        """A string, one of `known` where that is given."""
        value = self.value(name)
        if not is_text(value, longest) or (known is not None and value not in known):
            wanted = f"text of at most {longest} characters" if known is None else f"one of {sorted(known)}"
            self.refuse(f"must be {wanted}, not {_shown(value)}", name)
        return value

    def flag(self, name: str) -> bool:
        """true or false."""
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
        """A finite number from `least` to `most`."""
        value = self.value(name)
        if not is_finite_number(value) or not least <= value <= most:
            limits = "" if (least, most) == (-math.inf, math.inf) else f" from {least:g} to {most:g}"
            self.refuse(f"must be a finite number{limits}, not {_shown(value)}", name)
        return float(value)

    def typed(self, name: str, kind: Any) -> Any:
        """What a type annotation asks for: bool, int, float, str, None, a tuple of these, or a union."""
        value = self.value(name)
        if not _fits(value, kind):
            self.refuse(f"must be {_in_words(kind)}, not {_shown(value)}", name)
        return tuple(value) if isinstance(value, list) else value

    def as_dataclass(self, kind: Any, beside: Collection[str] = ()) -> Any:
        """An instance of a dataclass, from exactly its fields and those `beside` them, of the types they ask for."""
        names = [field.name for field in fields(kind)]
        self.require_only([*names, *beside])
        return kind(**{field.name: self.typed(field.name, field.type) for field in fields(kind)})

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
        """A list of objects."""
        entries = self.listed(name, lambda entry: isinstance(entry, dict), "objects", longest)
        return [Header(entry, f"{self.path(name)}[{i}]") for i, entry in enumerate(entries)]


def is_text(value: Any, longest: int = LONGEST_TEXT) -> bool:
    """Whether an entry is a string of bounded length that can be written, as half a surrogate pair cannot."""
    if not isinstance(value, str) or len(value) > longest:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_finite_number(value: Any) -> bool:
    """Whether an entry is a number that floating point can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


def is_whole(value: Any) -> bool:
    """Whether an entry is a whole number."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGEST_WHOLE


def is_number(value: Any) -> bool:
    """Whether an entry is a finite number; one without a decimal point is a whole number that JSON readers agree on."""
    return is_whole(value) if isinstance(value, int) else is_finite_number(value)


KINDS: dict[Any, tuple[Callable[[Any], bool], str]] = {  # how to tell one, and its name
    NoneType: (lambda value: value is None, "null"),
    bool: (lambda value: isinstance(value, bool), "true or false"),
    int: (is_whole, "a whole number"),
    float: (is_number, "a finite number"),
    str: (is_text, "text"),
}


def _fits(value: Any, kind: Any) -> bool:
    """Whether an entry is what an annotation asks for; no entry is code."""
    if get_origin(kind) is UnionType:
        return any(_fits(value, part) for part in get_args(kind))
    if get_origin(kind) in (tuple, Sequence):
        entry = get_args(kind)[0]
        return isinstance(value, list) and len(value) <= LONGEST_TEXT and all(_fits(item, entry) for item in value)
    return kind in KINDS and KINDS[kind][0](value)


def _in_words(kind: Any) -> str:
    if get_origin(kind) is UnionType:
        return " or ".join(dict.fromkeys(filter(None, map(_in_words, get_args(kind)))))
    if get_origin(kind) in (tuple, Sequence):
        return f"a list, each {_in_words(get_args(kind)[0])}"
    return KINDS[kind][1] if kind in KINDS else ""


def _refuse_constant(name: str) -> NoReturn:
    raise StorageError(f"its header holds {name}, which is not a number")


def _shown(value: Any) -> str:
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
