"""The environment as JSON, and back, without running anything that a file names.

A compiled environment is one of a table. A Gymnasium environment is an id that must already be registered when it is
loaded, with plain arguments; entry points, modules and wrappers never come from a file. What is registered may name a
module that has yet to be imported: a file must not choose that either.
"""

import re
import sys
from dataclasses import fields, replace
from typing import Any, NamedTuple

from anchored.rl import settings
from anchored.rl.environments import Acrobot, Bandit, CartPole, DeepSea, MountainCar, NChain
from anchored.rl.worlds import CompiledWorld, SteppedWorld
from anchored.storage.headers import Header, StorageError, is_number, is_text

COMPILED = {cls.__name__: cls for cls in (Acrobot, Bandit, CartPole, DeepSea, MountainCar, NChain)}
LARGEST_SEED = 2**32 - 1  # of a compiled environment
MOST_ENTRIES, LONGEST_NAME = 64, 200
PLAIN_TEXT = re.compile(r"[A-Za-z0-9_ -]{0,64}")  # neither a path nor the address of any code
# Layers that change nothing of what an agent sees. Rendering is not stored: loading a file opens no window.
TRANSPARENT = ("PassiveEnvChecker", "OrderEnforcing", "HumanRendering", "RenderCollection")
RENDERING = "render_mode"
NEVER_PASSED = (  # what means something to Gymnasium itself, or names a file
    *("id", "entry_point", "vector_entry_point", "additional_wrappers", "apply_api_compatibility", "autoreset"),
    *("kwargs", "max_episode_steps", "order_enforce", "disable_env_checker", "model_path", "xml_file", RENDERING),
)
PURE = ("gymnasium.envs.classic_control", "gymnasium.envs.toy_text")  # importing these imports no other package
PASS_IT = "pass the environment as it was then, load(path, env=...)"


class Recipe(NamedTuple):
    """How to make a Gymnasium environment again."""

    id: str
    kwargs: dict[str, Any]  # beyond those that it is registered with
    max_episode_steps: int | None
    wrappers: list[str]  # their names, outermost first
    left_out: list[str]  # names of arguments that are not plain


def written(world: CompiledWorld | SteppedWorld) -> dict[str, Any]:
    """How to make the environment again; empty where it is code of the user's."""
    if isinstance(world, SteppedWorld):
        recipe = _recipe(world.adapter.env)
        return {} if recipe is None else {"gymnasium": recipe._asdict()}
    environment: Any = world.environment
    if type(environment) not in COMPILED.values():
        return {}
    values = {part.name: part.type(getattr(environment, part.name)) for part in fields(environment)}  # type: ignore[operator]
    return {"ours": type(environment).__name__, "fields": values}


def read(header: Header, env: Any) -> Any:
    """`env` where it is given, otherwise the environment made again; a StorageError asks for it where it cannot be."""
    header.require_only([], ["ours", "fields"] if "ours" in header else ["gymnasium"])
    compiled = _compiled(header) if "ours" in header else None
    recipe = _read_recipe(header.child("gymnasium")) if "gymnasium" in header else None
    if env is not None:
        return env
    if compiled is None and recipe is None:
        raise StorageError(f"it was trained in an environment of your own: {PASS_IT}")
    return compiled if recipe is None else _made(recipe)


def check_alike(header: Header, world: CompiledWorld | SteppedWorld) -> None:
    """Raise where the agent was saved in an environment of another kind."""
    then, now = header.value("ours") if "ours" in header else None, written(world).get("ours")
    if then != now:
        raise StorageError(
            f"it does not fit this environment: it was saved in {then or 'one that is not compiled'}, and this is "
            f"{now or 'none of anchored.rl.environments'}"
        )


def _compiled(header: Header) -> Any:
    cls: Any = COMPILED[header.text("ours", COMPILED)]
    values = header.child("fields")
    try:
        environment = values.as_dataclass(cls)
    except StorageError:
        raise
    except ValueError as error:  # it begins with the field's name
        raise StorageError(f"{values.path()}.{error}") from error
    for part in fields(cls):
        if part.type is int:
            values.whole(part.name, most=LARGEST_SEED if part.name == "mapping_seed" else settings.LARGEST)
    return environment


def _recipe(env: Any) -> Recipe | None:
    """None where what `env` was made by is not what is registered under its id."""
    from gymnasium import registry

    spec = env.spec
    registered = None if spec is None else registry.get(spec.id)
    if registered is None or registered.entry_point != spec.entry_point or ":" in spec.id:
        return None
    changed = {name: value for name, value in spec.kwargs.items() if not _is_registered(registered, name, value)}
    kept = {name: value for name, value in changed.items() if _may_pass(name) and _is_plain(value)}
    left_out = [name for name in changed if name not in kept and name != RENDERING]
    return Recipe(spec.id, kept, spec.max_episode_steps, _wrappers(env), left_out)


def _is_registered(registered: Any, name: str, value: Any) -> bool:
    try:
        return name in registered.kwargs and bool(registered.kwargs[name] == value)
    except Exception:  # whatever comparing two objects of the user's may do
        return False


def _read_recipe(header: Header) -> Recipe:
    header.require_only(Recipe._fields)
    kwargs = header.child("kwargs")
    for name in kwargs:
        if not _may_pass(name):
            kwargs.refuse("is no argument that a file may pass to an environment", name)
        if not _is_plain(kwargs.value(name)):
            kwargs.refuse("must be a plain number, word or list of these", name)
    limit = None if header.value("max_episode_steps") is None else header.whole("max_episode_steps", 1)
    wrappers, left_out = (header.listed(name, is_text, "names", MOST_ENTRIES) for name in ("wrappers", "left_out"))
    values = {name: kwargs.value(name) for name in kwargs}
    return Recipe(header.text("id", longest=LONGEST_NAME), values, limit, wrappers, left_out)


def _made(recipe: Recipe) -> Any:
    """An environment of what is registered here; nothing else is imported or called."""
    from gymnasium import make, registry

    if ":" in recipe.id or recipe.id not in registry:
        raise StorageError(
            f"field 'environment.gymnasium.id' names {recipe.id!r}, which is not registered in Gymnasium: import the "
            f"package that registers it first, or {PASS_IT}"
        )
    if recipe.left_out:
        raise StorageError(
            f"its environment was made with arguments that are not stored ({_listed(recipe.left_out)}): {PASS_IT}"
        )
    registered = registry[recipe.id]
    _check_imported(registered)
    kwargs = {**registered.kwargs, **recipe.kwargs}
    try:
        env = make(replace(registered, kwargs=kwargs, max_episode_steps=recipe.max_episode_steps))
    except Exception as error:  # whatever a constructor raises for arguments that are not its own
        raise StorageError(f"its environment {recipe.id!r} cannot be made again: {error}; {PASS_IT}") from error
    if _wrappers(env) != recipe.wrappers:
        made = _listed(_wrappers(env))
        env.close()
        raise StorageError(
            f"its environment {recipe.id!r} had the wrappers {_listed(recipe.wrappers)}, and gymnasium.make applies "
            f"{made}. Wrappers are not stored: {PASS_IT}"
        )
    return env


def _check_imported(registered: Any) -> None:
    """Raise where making the environment would import a module that nobody has asked for."""
    for code in (registered.entry_point, *(wrapper.entry_point for wrapper in registered.additional_wrappers)):
        module = code.split(":")[0] if isinstance(code, str) else None
        if module is not None and module not in sys.modules and not module.startswith(tuple(f"{p}." for p in PURE)):
            raise StorageError(
                f"field 'environment.gymnasium.id' names {registered.id!r}, an environment of the module {module!r}, "
                f"which is not imported because a file asks for it: import it first, or {PASS_IT}"
            )


def _may_pass(name: str) -> bool:
    return name.isidentifier() and not name.startswith("_") and name not in NEVER_PASSED and len(name) <= LONGEST_NAME


def _is_plain(value: Any) -> bool:
    """A truth value, a finite number, a word or nothing, or a short list of these."""
    if isinstance(value, list):
        return len(value) <= MOST_ENTRIES and all(not isinstance(entry, list) and _is_plain(entry) for entry in value)
    if type(value) is str:
        return PLAIN_TEXT.fullmatch(value) is not None
    return value is None or type(value) is bool or (type(value) in (int, float) and is_number(value))


def _wrappers(env: Any) -> list[str]:
    """Names of the layers about an environment that matter, outermost first."""
    from gymnasium import Wrapper

    names = []
    while isinstance(env, Wrapper):
        names.append(type(env).__name__)
        env = env.env
    return [name for name in names if name not in TRANSPARENT]


def _listed(names: list[str]) -> str:
    return ", ".join(name[:LONGEST_NAME] for name in names) or "none"
