"""Convert an agent's arguments to JSON and back.

They may be plain values, lists of numbers, and the library's own exploration rules and schedules."""

from collections.abc import Iterator
from dataclasses import Field, asdict, fields

from anchored.rl.arguments import MAX_INTEGER, AgentArguments
from anchored.rl.exploration import (
    EpsilonGreedy,
    Exploration,
    GaussianIndex,
    Greedy,
    OneMember,
    PairedThompson,
    Thompson,
    Until,
)
from anchored.rl.schedules import LinearSchedule
from anchored.storage.headers import Header, StorageError, is_number
from anchored.storage.json_values import JsonObject, JsonValue, json_value

EXPLORATION_CLASSES: dict[str, type] = {
    cls.__name__: cls for cls in (EpsilonGreedy, GaussianIndex, Greedy, OneMember, PairedThompson, Thompson, Until)
}
MAX_EXPLORATIONS = 8  # exploration rules of one agent, nested ones included
MAX_LIST_LENGTH = 100  # of hidden_layer_sizes and prior_scale
MAX_NAME_LENGTH = 100
OBJECTS = ("exploration", "learning_rate")  # arguments that may be objects of this library
STORED = [field.name for field in fields(AgentArguments) if field.name != "network"]


def to_json(arguments: AgentArguments) -> JsonObject:
    """Return `arguments`, without the network, as JSON values; raise a TypeError if one cannot be stored."""
    if callable(arguments.optimizer):
        raise TypeError("optimizer: an agent whose optimizer is a function cannot be saved; pass an optax name instead")
    values = {name: _to_json(name, getattr(arguments, name)) for name in STORED if name not in OBJECTS}
    values["exploration"] = _exploration_to_json(arguments.exploration)
    values["learning_rate"] = _learning_rate_to_json(arguments.learning_rate)
    try:
        _parse(Header(values))
    except StorageError as error:
        raise TypeError(f"{error}; otherwise it cannot be saved") from error
    return values


def _learning_rate_to_json(rate: float | LinearSchedule) -> JsonValue:
    """Return the learning rate as a number, or the fields of its schedule."""
    if not isinstance(rate, LinearSchedule):
        return _to_json("learning_rate", rate)
    return {name: _to_json(f"learning_rate.{name}", value) for name, value in asdict(rate).items()}


def _to_json(name: str, value: object) -> JsonValue:
    """Return `value` as JSON; `name` is its name in errors."""
    try:
        return json_value(value)
    except TypeError as error:
        raise TypeError(f"{name}: {value!r} cannot be saved; use plain numbers or strings") from error


def from_json(header: Header, network: object | None) -> AgentArguments:
    """Return the arguments stored in `header`, with `network`, which is not stored; raise a StorageError if invalid."""
    header.require_only(STORED)
    header.whole("seed", most=MAX_INTEGER)  # only a check
    arguments = AgentArguments(**_parse(header), network=network)  # type: ignore[arg-type]  # checked next
    try:
        arguments.check()
    except (ValueError, TypeError) as error:  # its message begins with the argument's name
        raise StorageError(f"{header.field_name()}.{error}") from error
    return arguments


def _parse(header: Header) -> "dict[str, JsonValue | Exploration | LinearSchedule]":
    """Return the arguments by name, with exploration rules and schedules as objects."""
    parsers = {"exploration": _exploration, "learning_rate": _learning_rate}
    return {name: parsers.get(name, _value)(header, name) for name in header}


def _learning_rate(header: Header, name: str) -> JsonValue | LinearSchedule:
    """Return the field `name`: a number, or the schedule that its fields describe."""
    if not isinstance(header.value(name), dict):
        return _value(header, name)
    schedule = header.child(name)
    schedule.require_only([field.name for field in fields(LinearSchedule)])
    return LinearSchedule(**{field.name: schedule.number(field.name) for field in fields(LinearSchedule)})


def _value(header: Header, name: str) -> JsonValue:
    """Return the field `name`: a number, string, boolean, None, or a list of numbers."""
    value = header.value(name)
    if isinstance(value, str):
        return header.text(name, longest=MAX_NAME_LENGTH)
    if isinstance(value, list):
        return header.listed(name, is_number, "numbers", MAX_LIST_LENGTH)
    if value is not None and not isinstance(value, bool) and not is_number(value):
        header.refuse("must be text, true or false, null, a finite number or a list of numbers", name)
    return value


def _exploration(header: Header, name: str) -> str | Exploration:
    """Return the field `name`: the name of an exploration rule, or an instance of one of `EXPLORATION_CLASSES`."""
    if isinstance(header.value(name), str):
        return header.text(name, longest=MAX_NAME_LENGTH)
    return _exploration_rule(header, name, iter(range(MAX_EXPLORATIONS)))


def _exploration_rule(header: Header, name: str, remaining: Iterator[int]) -> Exploration:
    """Return an instance of one of `EXPLORATION_CLASSES`; `remaining` yields once for each that may still be made."""
    if next(remaining, None) is None:
        header.refuse(f"must not consist of more than {MAX_EXPLORATIONS} exploration rules", name)
    description = header.child(name)
    if len(description) != 1:
        description.refuse("must name one exploration rule")
    (kind,) = description
    if kind not in EXPLORATION_CLASSES:
        description.refuse(f"must name one of {sorted(EXPLORATION_CLASSES)}")
    cls, inner = EXPLORATION_CLASSES[kind], description.child(kind)
    inner.require_only([field.name for field in fields(cls)])
    return cls(**{field.name: _field(inner, field, remaining) for field in fields(cls)})


def _field(inner: Header, field: Field, remaining: Iterator[int]) -> float | Exploration:
    """Return the value of one field of an exploration rule: a number, or another rule."""
    if field.type is Exploration:
        return _exploration_rule(inner, field.name, remaining)
    inner.number(field.name)  # only a check
    return inner.typed(field.name, int | float)  # integers stay integers


def _exploration_to_json(exploration: str | Exploration) -> JsonValue:
    """Return an exploration rule as its name, or as {class name: fields}."""
    if isinstance(exploration, str):
        return exploration
    cls = type(exploration)
    if cls not in EXPLORATION_CLASSES.values():
        raise TypeError(
            f"exploration: an agent whose exploration has a class of your own, {cls.__name__}, cannot be saved"
        )
    values: JsonObject = {}
    for field in fields(cls):  # type: ignore[arg-type]  # all of them are dataclasses
        value = getattr(exploration, field.name)
        is_rule = field.type is Exploration
        values[field.name] = _exploration_to_json(value) if is_rule else _to_json(f"exploration.{field.name}", value)
    return {cls.__name__: values}
