"""An agent's arguments as JSON, and back: numbers, names and the library's own explorations, nothing else."""

from collections.abc import Iterator, Sequence
from dataclasses import Field, fields
from numbers import Real
from typing import TypeAlias, cast

import jax
import numpy as np

from anchored.rl.arguments import LARGEST, AgentArguments
from anchored.rl.exploration import EpsilonGreedy, Exploration, GaussianIndex, Greedy, OneMember, Thompson, Until
from anchored.storage.headers import Header, StorageError, is_number

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

EXPLORATION_CLASSES: dict[str, type] = {
    cls.__name__: cls for cls in (EpsilonGreedy, GaussianIndex, Greedy, OneMember, Thompson, Until)
}
MOST_EXPLORATIONS = 8  # in all, nested ones included
MOST_NUMBERS = 100  # hidden layers, and scales for them
LONGEST_NAME = 100
STORED = [field.name for field in fields(AgentArguments) if field.name != "network"]


def to_json(arguments: AgentArguments) -> dict[str, Json]:
    """All arguments but the network; a TypeError if one cannot be stored."""
    if callable(arguments.optimizer):
        raise TypeError("optimizer: an agent whose optimiser is code cannot be saved; name one of optax's instead")
    plain = {name: _plain(getattr(arguments, name)) for name in STORED if name != "exploration"}
    plain["exploration"] = _exploration_to_json(arguments.exploration)
    try:
        _read(Header(plain))
    except StorageError as error:
        raise TypeError(f"{error}: it cannot be saved; use plain numbers or strings") from error
    return plain


def from_json(header: Header, network: object | None) -> AgentArguments:
    """The arguments in a header, with `network`, which a file does not hold; a StorageError if one is invalid."""
    header.require_only(STORED)
    header.whole("seed", most=LARGEST)
    arguments = AgentArguments(**_read(header), network=network)  # type: ignore[arg-type]  # checked next
    try:
        arguments.check()
    except (ValueError, TypeError) as error:  # which begins with the argument's name
        raise StorageError(f"{header.path()}.{error}") from error
    return arguments


def _read(header: Header) -> "dict[str, Json | Exploration]":
    return {name: _exploration(header, name) if name == "exploration" else _value(header, name) for name in header}


def _value(header: Header, name: str) -> Json:
    """A number, text, a truth value, null, or a list of numbers."""
    value = header.value(name)
    if isinstance(value, str):
        return header.text(name, longest=LONGEST_NAME)
    if isinstance(value, list):
        return header.listed(name, is_number, "numbers", MOST_NUMBERS)
    if value is not None and not isinstance(value, bool) and not is_number(value):
        header.refuse("must be text, a finite number or a list of numbers", name)
    return value


def _exploration(header: Header, name: str) -> str | Exploration:
    """A name, or an instance of one of `EXPLORATION_CLASSES`."""
    if isinstance(header.value(name), str):
        return header.text(name, longest=LONGEST_NAME)
    return _instance(header, name, iter(range(MOST_EXPLORATIONS)))


def _instance(header: Header, name: str, left: Iterator[int]) -> Exploration:
    """An instance of one of `EXPLORATION_CLASSES`; `left` counts those that may still be made."""
    if next(left, None) is None:
        header.refuse(f"must not consist of more than {MOST_EXPLORATIONS} explorations", name)
    described = header.child(name)
    if len(described) != 1:
        described.refuse("must name one exploration")
    (kind,) = described
    if kind not in EXPLORATION_CLASSES:
        described.refuse(f"must name one of {sorted(EXPLORATION_CLASSES)}")
    cls, inner = EXPLORATION_CLASSES[kind], described.child(kind)
    inner.require_only([field.name for field in fields(cls)])
    return cls(**{field.name: _field(inner, field, left) for field in fields(cls)})


def _field(inner: Header, field: Field, left: Iterator[int]) -> float | Exploration:
    if field.type is Exploration:
        return _instance(inner, field.name, left)
    inner.number(field.name)
    return inner.typed(field.name, int | float)  # a whole number stays one


def _exploration_to_json(exploration: str | Exploration) -> Json:
    if isinstance(exploration, str):
        return exploration
    cls = type(exploration)
    if cls not in EXPLORATION_CLASSES.values():
        raise TypeError(f"exploration: an agent that explores by code of your own ({cls.__name__}) cannot be saved")
    values: dict[str, Json] = {}
    for field in fields(cls):  # type: ignore[arg-type]  # all of them are dataclasses
        value = getattr(exploration, field.name)
        values[field.name] = _exploration_to_json(value) if field.type is Exploration else _plain(value)
    return {cls.__name__: values}


def _plain(value: object) -> Json:
    """Numbers and sequences of any library as Python's own."""
    if isinstance(value, np.generic | np.ndarray | jax.Array):
        return value.tolist()
    if isinstance(value, str | bool | int):
        return value
    if isinstance(value, Real):
        return float(value)
    return [_plain(entry) for entry in value] if isinstance(value, Sequence) else cast(Json, value)
