"""The environment as JSON, and back, without running anything that a file names.

A compiled environment is one of a fixed list. A Gymnasium environment is an id that must already be registered when it
is loaded, with plain arguments; entry points, modules and wrappers never come from a file. A registered id may belong
to a module that has not been imported yet: a file must not cause that import either.
"""

import re
import sys
from dataclasses import fields, replace
from typing import TYPE_CHECKING, NamedTuple

from anchored.rl.arguments import LARGEST
from anchored.rl.environments import Acrobot, Bandit, CartPole, DeepSea, GymnasiumAdapter, MountainCar, NChain
from anchored.rl.environments.environment import Environment
from anchored.rl.saved_arguments import Json
from anchored.storage.headers import Header, StorageError, is_number, is_text

if TYPE_CHECKING:
    import gymnasium
    from gymnasium.envs.registration import EnvSpec

COMPILED: dict[str, type] = {cls.__name__: cls for cls in (Acrobot, Bandit, CartPole, DeepSea, MountainCar, NChain)}
LARGEST_SEED = 2**32 - 1  # of a compiled environment
MOST_ENTRIES, LONGEST_NAME = 64, 200
PLAIN_TEXT = re.compile(r"[A-Za-z0-9_ -]{0,64}")  # neither a path nor the address of any code
# Wrappers that do not change what an agent observes. Rendering is not stored: loading a file opens no window.
TRANSPARENT = ("PassiveEnvChecker", "OrderEnforcing", "HumanRendering", "RenderCollection")
RENDERING = "render_mode"
NEVER_PASSED = (  # names that Gymnasium itself uses, or that name a file
    *("id", "entry_point", "vector_entry_point", "additional_wrappers", "apply_api_compatibility", "autoreset"),
    *("kwargs", "max_episode_steps", "order_enforce", "disable_env_checker", "model_path", "xml_file", RENDERING),
)
PURE = ("gymnasium.envs.classic_control", "gymnasium.envs.toy_text")  # importing these imports no other package
PASS_IT = "pass the same environment again, load(path, env=...)"


class Description(NamedTuple):
    """How to make a Gymnasium environment again."""

    id: str
    kwargs: dict[str, Json]  # beyond those that it is registered with
    max_episode_steps: int | None
    wrappers: list[str]  # their names, outermost first
    omitted_kwargs: list[str]  # names of arguments that are not plain


def to_json(env: Environment | GymnasiumAdapter) -> dict[str, Json]:
    """How to make the environment again; empty for an environment of the user's own."""
    if isinstance(env, GymnasiumAdapter):
        description = _describe(env.env)
        return {} if description is None else {"gymnasium": description._asdict()}
    if type(env) not in COMPILED.values():
        return {}
    values = {field.name: field.type(getattr(env, field.name)) for field in fields(env)}  # type: ignore[arg-type, operator]
    return {"compiled": type(env).__name__, "fields": values}


def from_json(header: Header, env: "Environment | gymnasium.Env | str | None") -> "Environment | gymnasium.Env | str":
    """`env` if it is given, otherwise the environment made again; a StorageError if that is not possible."""
    header.require_only([], ["compiled", "fields"] if "compiled" in header else ["gymnasium"])
    compiled = _compiled(header) if "compiled" in header else None
    description = _read_description(header.child("gymnasium")) if "gymnasium" in header else None
    if env is not None:
        return env
    if description is not None:
        return _make(description)
    if compiled is None:
        raise StorageError(f"it was trained in an environment of your own: {PASS_IT}")
    return compiled


def check_same_kind(header: Header, env: Environment | GymnasiumAdapter) -> None:
    """Raise if the agent was saved in an environment of another kind than `env`."""
    saved, given = header.value("compiled") if "compiled" in header else None, to_json(env).get("compiled")
    if saved != given:
        raise StorageError(
            f"it does not fit this environment: it was saved in {saved or 'one that is not compiled'}, and this is "
            f"{given or 'none of anchored.rl.environments'}"
        )


def _compiled(header: Header) -> Environment:
    cls = COMPILED[header.text("compiled", COMPILED)]
    values = header.child("fields")
    try:
        environment: Environment = values.as_dataclass(cls)
    except StorageError:
        raise
    except ValueError as error:  # which begins with the field's name
        raise StorageError(f"{values.path()}.{error}") from error
    for field in fields(cls):
        if field.type is int:
            values.whole(field.name, most=LARGEST_SEED if field.name == "mapping_seed" else LARGEST)
    return environment


def _describe(env: "gymnasium.Env") -> Description | None:
    """None if `env` was not made by what is registered under its id."""
    from gymnasium import registry

    spec = env.spec
    registered = None if spec is None else registry.get(spec.id)
    if spec is None or registered is None or registered.entry_point != spec.entry_point or ":" in spec.id:
        return None
    changed = {name: value for name, value in spec.kwargs.items() if not _is_registered(registered, name, value)}
    kept = {name: value for name, value in changed.items() if _may_pass(name) and _is_plain(value)}
    omitted = [name for name in changed if name not in kept and name != RENDERING]
    return Description(spec.id, kept, spec.max_episode_steps, _wrappers(env), omitted)


def _is_registered(registered: "EnvSpec", name: str, value: object) -> bool:
    try:
        return name in registered.kwargs and bool(registered.kwargs[name] == value)
    except Exception:  # whatever comparing two objects of the user's may raise
        return False


def _read_description(header: Header) -> Description:
    header.require_only(Description._fields)
    kwargs = header.child("kwargs")
    for name in kwargs:
        if not _may_pass(name):
            kwargs.refuse("is no argument that a file may pass to an environment", name)
        if not _is_plain(kwargs.value(name)):
            kwargs.refuse("must be a plain number, word or list of these", name)
    limit = None if header.value("max_episode_steps") is None else header.whole("max_episode_steps", 1)
    wrappers = header.listed("wrappers", is_text, "names", MOST_ENTRIES)
    omitted = header.listed("omitted_kwargs", is_text, "names", MOST_ENTRIES)
    values = {name: kwargs.value(name) for name in kwargs}
    return Description(header.text("id", longest=LONGEST_NAME), values, limit, wrappers, omitted)


def _make(description: Description) -> "gymnasium.Env":
    """An environment made by what is registered here; nothing else is imported or called."""
    from gymnasium import make, registry

    if ":" in description.id or description.id not in registry:
        raise StorageError(
            f"field 'environment.gymnasium.id' names {description.id!r}, which is not registered in Gymnasium: import "
            f"the package that registers it first, or {PASS_IT}"
        )
    if description.omitted_kwargs:
        omitted = _listed(description.omitted_kwargs)
        raise StorageError(f"its environment was made with arguments that are not stored ({omitted}): {PASS_IT}")
    registered = registry[description.id]
    _check_imported(registered)
    kwargs = {**registered.kwargs, **description.kwargs}
    try:
        env = make(replace(registered, kwargs=kwargs, max_episode_steps=description.max_episode_steps))
    except Exception as error:  # whatever a constructor raises for arguments that are not its own
        raise StorageError(f"its environment {description.id!r} cannot be made again: {error}; {PASS_IT}") from error
    if _wrappers(env) != description.wrappers:
        applied = _listed(_wrappers(env))
        env.close()
        raise StorageError(
            f"its environment {description.id!r} had the wrappers {_listed(description.wrappers)}, and gymnasium.make "
            f"applies {applied}. Wrappers are not stored: {PASS_IT}"
        )
    return env


def _check_imported(registered: "EnvSpec") -> None:
    """Raise if making the environment would import a module."""
    for code in (registered.entry_point, *(wrapper.entry_point for wrapper in registered.additional_wrappers)):
        module = code.split(":")[0] if isinstance(code, str) else None
        if module is not None and module not in sys.modules and not module.startswith(tuple(f"{p}." for p in PURE)):
            raise StorageError(
                f"field 'environment.gymnasium.id' names {registered.id!r}, an environment of the module {module!r}, "
                f"which is not imported because of a file: import it first, or {PASS_IT}"
            )


def _may_pass(name: str) -> bool:
    return name.isidentifier() and not name.startswith("_") and name not in NEVER_PASSED and len(name) <= LONGEST_NAME


def _is_plain(value: object) -> bool:
    """Whether it is a truth value, a finite number, a word, None, or a short list of these."""
    if isinstance(value, list):
        return len(value) <= MOST_ENTRIES and all(not isinstance(entry, list) and _is_plain(entry) for entry in value)
    if type(value) is str:
        return PLAIN_TEXT.fullmatch(value) is not None
    return value is None or type(value) is bool or (type(value) in (int, float) and is_number(value))


def _wrappers(env: "gymnasium.Env") -> list[str]:
    """Names of the wrappers that change what an agent observes, outermost first."""
    from gymnasium import Wrapper

    names = []
    while isinstance(env, Wrapper):
        names.append(type(env).__name__)
        env = env.env
    return [name for name in names if name not in TRANSPARENT]


def _listed(names: list[str]) -> str:
    return ", ".join(name[:LONGEST_NAME] for name in names) or "none"
