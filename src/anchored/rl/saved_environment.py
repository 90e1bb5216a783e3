"""Convert an environment to JSON and back, without importing or calling any code that a file names.

A compiled environment is one of a fixed list. A Gymnasium environment is stored as its id and its plain arguments. The
id must already be registered when the agent is loaded; entry points, modules and wrappers are never read from a file.
A registered id may belong to a module that has not been imported yet: loading a file does not import it either.
"""

import re
import sys
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from anchored.rl.arguments import MAX_INTEGER
from anchored.rl.environments import (
    Acrobot,
    Asterix,
    Bandit,
    Breakout,
    CartPole,
    DeepSea,
    Freeway,
    GymnasiumAdapter,
    MountainCar,
    NChain,
    Seaquest,
    SpaceInvaders,
)
from anchored.rl.environments.environment import Environment
from anchored.rl.environments.gymnasium_adapter import time_limit, wrapper_names
from anchored.storage.headers import Header, StorageError, is_number, is_text
from anchored.storage.json_values import JsonObject

if TYPE_CHECKING:
    import gymnasium
    from gymnasium.envs.registration import EnvSpec

COMPILED: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        Acrobot, Bandit, CartPole, DeepSea, MountainCar, NChain, Asterix, Breakout, Freeway, Seaquest, SpaceInvaders,
    )
}  # fmt: skip
MAX_MAPPING_SEED = 2**32 - 1  # the largest `mapping_seed` of a compiled environment
MAX_ENVS = 4096  # environments at once
MAX_LIST_LENGTH, MAX_NAME_LENGTH = 64, 200
SAFE_TEXT = re.compile(r"[A-Za-z0-9_ -]{0,64}")  # cannot be a path or name any code
RENDERING = "render_mode"  # not stored, so that loading a file opens no window
FORBIDDEN_KWARGS = (  # arguments of gymnasium.make itself, and arguments that are paths of files
    "id", "entry_point", "vector_entry_point", "additional_wrappers", "apply_api_compatibility", "autoreset",
    "kwargs", "max_episode_steps", "order_enforce", "disable_env_checker", "model_path", "xml_file", RENDERING,
)  # fmt: skip
SELF_CONTAINED_PACKAGES = (
    "gymnasium.envs.classic_control",
    "gymnasium.envs.toy_text",
)  # importing these imports no other package
PASS_ENV_AGAIN = "pass the same environment again, load(path, env=...)"


class Description(NamedTuple):
    """The stored description of a Gymnasium environment, from which it is made again."""

    id: str  # under which it is registered in Gymnasium
    kwargs: JsonObject  # arguments that differ from the registered ones; of `make_vec` for vectorised environments
    max_episode_steps: int | None  # time limit; None for none
    wrappers: list[str]  # their names, outermost first
    omitted_kwargs: list[str]  # names of arguments that also differ, but cannot be stored


def to_json(env: Environment | GymnasiumAdapter) -> JsonObject:
    """Return a description from which `env` can be made again; empty for an environment class that the user wrote."""
    if isinstance(env, GymnasiumAdapter):
        description = _describe(env.env)
        return {} if description is None else {"gymnasium": description._asdict()}
    if type(env) not in COMPILED.values():
        return {}
    values = {field.name: field.type(getattr(env, field.name)) for field in fields(env)}  # type: ignore[arg-type, operator]
    return {"compiled": type(env).__name__, "fields": values}


def from_json(header: Header, env: "Environment | gymnasium.Env | str | None") -> "Environment | gymnasium.Env | str":
    """Return `env`, or the environment that `header` describes if `env` is None.

    Raises a StorageError if the header is invalid or the environment cannot be made again.
    """
    header.require_only([], ["compiled", "fields"] if "compiled" in header else ["gymnasium"])
    compiled = _compiled(header) if "compiled" in header else None
    description = _read_description(header.child("gymnasium")) if "gymnasium" in header else None
    if env is not None:
        return env
    if description is not None:
        return _make(description)
    if compiled is None:
        raise StorageError(f"it was trained in an environment of your own: {PASS_ENV_AGAIN}")
    return compiled


def check_same_kind(header: Header, env: Environment | GymnasiumAdapter) -> None:
    """Raise if `env` is not of the class of compiled environments that `header` describes."""
    saved, current = header.value("compiled") if "compiled" in header else None, to_json(env).get("compiled")
    if saved != current:
        raise StorageError(
            f"it does not fit this environment: it was saved in {saved or 'one outside anchored.rl.environments'}, but "
            f"this is {current or 'one outside anchored.rl.environments'}"
        )


def _compiled(header: Header) -> Environment:
    """Return the compiled environment that `header` describes."""
    cls = COMPILED[header.text("compiled", COMPILED)]
    values = header.child("fields")
    try:
        environment: Environment = values.as_dataclass(cls)
    except StorageError:
        raise
    except ValueError as error:  # its message begins with the field's name
        raise StorageError(f"{values.field_name()}.{error}") from error
    for field in fields(cls):
        if field.type is int:
            # only a check
            values.whole(field.name, most=MAX_MAPPING_SEED if field.name == "mapping_seed" else MAX_INTEGER)
    return environment


def _describe(env: "gymnasium.Env") -> Description | None:
    """Return the description of `env`; None if it was not made by the entry point that is registered under its id."""
    from gymnasium import registry

    spec = env.spec
    registered = None if spec is None else registry.get(spec.id)
    if spec is None or registered is None or registered.entry_point != spec.entry_point or ":" in spec.id:
        return None
    kwargs = {name: value for name, value in spec.kwargs.items() if name != "max_episode_steps"}
    changed = {name: value for name, value in kwargs.items() if not _is_registered(registered, name, value)}
    stored = {name: value for name, value in changed.items() if _is_allowed_name(name) and _is_allowed_value(value)}
    omitted = [name for name in changed if name not in stored and name != RENDERING]
    return Description(spec.id, stored, time_limit(spec), wrapper_names(env), omitted)


def _is_registered(registered: "EnvSpec", name: str, value: object) -> bool:
    """Return whether the environment is registered with this value of the argument `name`."""
    try:
        return name in registered.kwargs and bool(registered.kwargs[name] == value)
    except Exception:  # comparing two objects of the user may raise anything
        return False


def _read_description(header: Header) -> Description:
    """Return the description in `header`, with every field checked."""
    header.require_only(Description._fields)
    kwargs = header.child("kwargs")
    for name in kwargs:
        if not _is_allowed_name(name):
            kwargs.refuse("is not an argument that a file may pass to an environment", name)
        if not _is_allowed_value(kwargs.value(name)):
            kwargs.refuse("must be a number, a short string or a list of these", name)
    limit = None if header.value("max_episode_steps") is None else header.whole("max_episode_steps", 1)
    wrappers = header.listed("wrappers", is_text, "names", MAX_LIST_LENGTH)
    omitted = header.listed("omitted_kwargs", is_text, "names", MAX_LIST_LENGTH)
    if "num_envs" in kwargs:
        kwargs.whole("num_envs", 1, most=MAX_ENVS)  # only a check
    values = {name: kwargs.value(name) for name in kwargs}
    return Description(header.text("id", longest=MAX_NAME_LENGTH), values, limit, wrappers, omitted)


def _make(description: Description) -> Any:
    """Make the environment, or several at once, from the entry point that is registered under its id."""
    from gymnasium import make, make_vec, registry

    if ":" in description.id or description.id not in registry:
        raise StorageError(
            f"field 'environment.gymnasium.id' names {description.id!r}, which is not registered in Gymnasium: import "
            f"the package that registers it first, or {PASS_ENV_AGAIN}"
        )
    if description.omitted_kwargs:
        omitted = _comma_separated(description.omitted_kwargs)
        raise StorageError(f"its environment was made with arguments that are not stored ({omitted}): {PASS_ENV_AGAIN}")
    registered = registry[description.id]
    _check_imported(registered)
    kwargs = {**registered.kwargs, **description.kwargs}
    try:
        spec = replace(registered, kwargs=kwargs, max_episode_steps=description.max_episode_steps)
        env: Any = make_vec(spec) if "vectorization_mode" in kwargs else make(spec)
    except Exception as error:  # a constructor may raise anything for arguments that it does not know
        raise StorageError(
            f"its environment {description.id!r} cannot be made again: {error}; {PASS_ENV_AGAIN}"
        ) from error
    if wrapper_names(env) != description.wrappers:
        applied = _comma_separated(wrapper_names(env))
        env.close()
        raise StorageError(
            f"its environment {description.id!r} had the wrappers {_comma_separated(description.wrappers)}, but "
            f"gymnasium.make applies {applied}. Wrappers are not stored: {PASS_ENV_AGAIN}"
        )
    return env


def _check_imported(registered: "EnvSpec") -> None:
    """Raise if making the environment would import a module that is not imported yet."""
    entry_points = registered.entry_point, registered.vector_entry_point
    for code in (*entry_points, *(wrapper.entry_point for wrapper in registered.additional_wrappers)):
        module = code.split(":")[0] if isinstance(code, str) else None
        if (
            module is not None
            and module not in sys.modules
            and not module.startswith(tuple(f"{p}." for p in SELF_CONTAINED_PACKAGES))
        ):
            raise StorageError(
                f"field 'environment.gymnasium.id' names {registered.id!r}, an environment of the module {module!r}, "
                f"which is not imported; loading a file does not import it. Import it first, or {PASS_ENV_AGAIN}"
            )


def _is_allowed_name(name: str) -> bool:
    """Return whether a file may pass an argument of this name to an environment."""
    return (
        name.isidentifier()
        and not name.startswith("_")
        and name not in FORBIDDEN_KWARGS
        and len(name) <= MAX_NAME_LENGTH
    )


def _is_allowed_value(value: object) -> bool:
    """Return whether `value` is a boolean, a finite number, a short string, None, or a short list of these."""
    if isinstance(value, list):
        return len(value) <= MAX_LIST_LENGTH and all(
            not isinstance(entry, list) and _is_allowed_value(entry) for entry in value
        )
    if type(value) is str:
        return SAFE_TEXT.fullmatch(value) is not None
    return value is None or type(value) is bool or (type(value) in (int, float) and is_number(value))


def _comma_separated(names: list[str]) -> str:
    """Return names in one line, each truncated to MAX_NAME_LENGTH."""
    return ", ".join(name[:MAX_NAME_LENGTH] for name in names) or "none"
