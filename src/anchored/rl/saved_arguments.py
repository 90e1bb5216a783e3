"""An agent's arguments as JSON, and back: numbers, names and the library's own explorations, nothing else."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import fields
from numbers import Real
from typing import Any

import jax
import numpy as np

from anchored.rl import settings
from anchored.rl.exploration import EpsilonGreedy, Exploration, GaussianIndex, Greedy, OneMember, Thompson, Until
from anchored.storage.headers import Header, StorageError, is_number

KNOWN = {cls.__name__: cls for cls in (EpsilonGreedy, GaussianIndex, Greedy, OneMember, Thompson, Until)}
MOST_EXPLORATIONS = 8  # in all, each of which may hold others
MOST_NUMBERS = 100  # hidden layers, and scales for them
LONGEST_NAME = 100


def written(asked: dict[str, Any]) -> dict[str, Any]:
    """All arguments but the network as JSON has them; a TypeError where one cannot be stored."""
    if callable(asked["optimizer"]):
        raise TypeError("optimizer: an agent whose optimiser is code cannot be saved; name one of optax's instead")
    plain = {name: _plain(value) for name, value in asked.items() if name not in ("network", "exploration")}
    plain["exploration"] = _written_exploration(asked["exploration"])
    try:
        _read(Header(plain))
    except StorageError as error:
        raise TypeError(f"{error}: it cannot be saved; use plain numbers or strings") from error
    return plain


def read(header: Header, names: Collection[str], network: Any) -> dict[str, Any]:
    """The arguments called `names`, and the network, which a file does not hold."""
    header.require_only(names)
    header.whole("seed", most=settings.LARGEST)
    asked = {**_read(header), "network": network}
    try:
        settings.check(asked)
    except (ValueError, TypeError) as error:  # it begins with the argument's name
        raise StorageError(f"{header.path()}.{error}") from error
    return asked


def _read(header: Header) -> dict[str, Any]:
    return {name: _exploration(header, name) if name == "exploration" else _value(header, name) for name in header}


def _value(header: Header, name: str) -> Any:
    """A number, some text, a truth value, nothing, or a list of numbers."""
    value = header.value(name)
    if isinstance(value, str):
        return header.text(name, longest=LONGEST_NAME)
    if isinstance(value, list):
        return header.listed(name, is_number, "numbers", MOST_NUMBERS)
    if value is not None and not isinstance(value, bool) and not is_number(value):
        header.refuse("must be text, a finite number or a list of numbers", name)
    return value


def _exploration(header: Header, name: str) -> Any:
    """A name, or an object whose class stands in `KNOWN`."""
    if isinstance(header.value(name), str):
        return header.text(name, longest=LONGEST_NAME)
    return _known(header, name, iter(range(MOST_EXPLORATIONS)))


def _known(header: Header, name: str, left: Iterator[int]) -> Any:
    """An object whose class stands in `KNOWN`; `left` counts those that may still be made."""
    if next(left, None) is None:
        header.refuse(f"must not be made of more than {MOST_EXPLORATIONS} explorations", name)
    described = header.child(name)
    if len(described) != 1:
        described.refuse("must name one exploration")
    (kind,) = described
    if kind not in KNOWN:
        described.refuse(f"must name one of {sorted(KNOWN)}")
    cls, inner = KNOWN[kind], described.child(kind)
    inner.require_only([part.name for part in fields(cls)])
    return cls(**{part.name: _part(inner, part, left) for part in fields(cls)})


def _part(inner: Header, part: Any, left: Iterator[int]) -> Any:
    if part.type is Exploration:
        return _known(inner, part.name, left)
    inner.number(part.name)
    return inner.value(part.name)  # a whole number stays one


def _written_exploration(kind: Any) -> Any:
    if isinstance(kind, str):
        return kind
    if type(kind) not in KNOWN.values():
        raise TypeError(
            f"exploration: an agent that explores by code of your own ({type(kind).__name__}) cannot be saved"
        )
    parts = {part.name: getattr(kind, part.name) for part in fields(kind)}
    nested = [part.name for part in fields(kind) if part.type is Exploration]
    written = {name: _written_exploration(part) if name in nested else _plain(part) for name, part in parts.items()}
    return {type(kind).__name__: written}


def _plain(value: Any) -> Any:
    """Numbers and sequences of any library as Python's own."""
    if isinstance(value, np.generic | np.ndarray | jax.Array):
        return value.tolist()
    if isinstance(value, str | bool | int):
        return value
    if isinstance(value, Real):
        return float(value)
    return [_plain(entry) for entry in value] if isinstance(value, Sequence) else value
