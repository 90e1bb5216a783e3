"""An agent as a JSON header and named arrays, and back: nothing is lost, so that a run can go on bit for bit."""

import json
from collections.abc import Sequence
from dataclasses import asdict, fields, is_dataclass
from numbers import Real
from pathlib import Path
from typing import Any

import jax
import numpy as np

from anchored import storage
from anchored.rl import environments, exploration
from anchored.rl.history import History
from anchored.rl.worlds import CompiledWorld

KIND = "QEnsembleAgent"


def check(agent: Any, path: Any) -> None:
    """Raise now where `save` would later."""
    asked = agent.arguments
    if callable(asked["optimizer"]):
        raise TypeError("optimizer: an agent whose optimiser is code cannot be saved; name one of optax's instead")
    _check_exploration(asked["exploration"])
    for name, value in asked.items():
        try:
            json.dumps(_plain(value) if name != "network" else None)
        except TypeError as error:
            raise TypeError(f"{name}: {value!r} cannot be saved; use plain numbers or strings") from error
    folder = Path(path).absolute().parent
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {str(folder)!r} to save an agent in")
    if Path(path).is_dir():
        raise IsADirectoryError(f"{str(path)!r} is a folder: name a file in it to save an agent to")


def _check_exploration(kind: Any) -> None:
    """Whatever it is made of is the library's own."""
    if is_dataclass(kind):
        for part in fields(kind):
            _check_exploration(getattr(kind, part.name))
    if not isinstance(kind, str) and callable(kind) and type(kind).__module__ != exploration.__name__:
        raise TypeError(
            f"exploration: an agent that explores by code of your own ({type(kind).__name__}) cannot be saved"
        )


def save(agent: Any, path: Any) -> None:
    """Write an agent, its buffer, optimiser and counters, and where its environment stands."""
    check(agent, path)
    asked = {name: _plain(value) for name, value in agent.arguments.items() if name != "network"}
    header = {
        "kind": KIND,
        "arguments": asked,
        "own_network": agent.arguments["network"] is not None,
        "environment": _described(agent.world),
        "history": agent.history.as_dict(),
        "evaluations": agent.evaluations,
    }
    storage.write(path, header, {**_mind_arrays(agent.mind), **agent.world.leaves(agent.now.place)})


def load(cls: Any, path: Any, env: Any, network: Any) -> Any:
    """A new agent with everything that `save` stored of the old one."""
    content, arrays = storage.read(path)
    header = {name: content.value(name) for name in content}
    if header.get("kind") != KIND:
        raise storage.StorageError(f"{str(path)!r} holds a {header.get('kind')}, not an agent: use anchored.load")
    if header["own_network"] and network is None:
        raise ValueError(
            f"{str(path)!r} was trained with a network of your own: pass it again, load(path, network=...)"
        )
    arguments = {name: _restored(value) for name, value in header["arguments"].items()}
    agent = cls(_environment(header["environment"], env, path), **arguments, network=network)
    mind, history = _restored_mind(agent.mind, arrays, path), History(**header["history"])
    _check_world(agent, header["environment"], arrays, path)
    place, reached = agent.world.restore(arrays)
    agent.now = agent.now._replace(mind=mind, place=place, history=history if reached else history.begin_again())
    agent.evaluations = [(step, returns) for step, returns in header["evaluations"]]
    return agent


def _described(world: Any) -> dict[str, Any]:
    """How to make the environment again, where it is not code of the user's."""
    if isinstance(world, CompiledWorld):
        environment = world.environment
        ours = type(environment).__module__.startswith("anchored.")
        return {"ours": type(environment).__name__, "fields": asdict(environment)} if ours else {}  # type: ignore[call-overload]
    spec = world.adapter.env.spec
    return {"gymnasium": spec.to_json()} if spec is not None and _is_plain(spec) else {}


def _is_plain(spec: Any) -> bool:
    """Whether a Gymnasium spec can be written as JSON: those with code in them cannot."""
    try:
        spec.to_json()
    except (TypeError, ValueError):
        return False
    return True


def _environment(description: dict[str, Any], env: Any, path: Any) -> Any:
    if env is not None:
        return env
    if "ours" in description:
        return getattr(environments, description["ours"])(**description["fields"])
    if "gymnasium" in description:
        from gymnasium.envs.registration import EnvSpec

        return EnvSpec.from_json(description["gymnasium"])
    raise ValueError(f"{str(path)!r} was trained in an environment of your own: pass it again, load(path, env=...)")


def _check_world(agent: Any, description: dict[str, Any], arrays: dict[str, np.ndarray], path: Any) -> None:
    """Raise where the agent was saved in an environment of another kind."""
    then, now = description.get("ours"), _described(agent.world).get("ours")
    if then != now:
        raise storage.StorageError(
            f"{str(path)!r} does not fit this environment: it was saved in {then or 'one that is not compiled'}, and "
            f"this is {now or 'none of anchored.rl.environments'}"
        )
    stored = {name: array for name, array in arrays.items() if name.startswith("world/")}
    needed = agent.world.leaves(agent.now.place)
    if _forms(stored) != _forms(needed):
        raise storage.StorageError(
            f"{str(path)!r} does not fit this environment: where it stood is {_forms(stored)}, and {_forms(needed)} is "
            "needed"
        )


def _forms(arrays: dict[str, np.ndarray]) -> dict[str, tuple]:
    """Shapes and dtypes; the actions of an episode are of any number."""
    return {
        name: (*(array.shape if name != "world/actions" else ("any",)), str(array.dtype))
        for name, array in sorted(arrays.items())
    }


def _mind_arrays(mind: Any) -> dict[str, np.ndarray]:
    leaves = jax.tree.leaves(mind._replace(key=jax.random.key_data(mind.key)))
    return {f"mind/{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}


def _restored_mind(mind: Any, arrays: dict[str, np.ndarray], path: Any) -> Any:
    """The stored leaves in the structure of a new agent's."""
    bare = mind._replace(key=jax.random.key_data(mind.key))
    leaves, structure = jax.tree.flatten(bare)
    for i, leaf in enumerate(leaves):
        stored = arrays.get(f"mind/{i}")
        if stored is None or stored.shape != leaf.shape:
            raise storage.StorageError(
                f"{str(path)!r} does not fit this environment or network: an array has shape "
                f"{None if stored is None else stored.shape} where {leaf.shape} is needed"
            )
        if stored.dtype != leaf.dtype:
            raise storage.StorageError(
                f"{str(path)!r} was saved in another precision ({stored.dtype}, and now {leaf.dtype}): set JAX's "
                "jax_enable_x64 as it was then"
            )
    restored = jax.tree.unflatten(structure, [jax.device_put(arrays[f"mind/{i}"]) for i in range(len(leaves))])
    return restored._replace(key=jax.random.wrap_key_data(restored.key))


def _plain(value: Any) -> Any:
    """An argument as JSON: explorations by their names and fields."""
    if is_dataclass(value):
        return {type(value).__name__: {f.name: _plain(getattr(value, f.name)) for f in fields(value)}}
    if isinstance(value, np.generic | np.ndarray | jax.Array):
        return value.tolist()
    if isinstance(value, str | bool | int):
        return value
    if isinstance(value, Real):
        return float(value)
    return [_plain(entry) for entry in value] if isinstance(value, Sequence) else value


def _restored(value: Any) -> Any:
    if isinstance(value, dict):
        ((name, settings),) = value.items()
        return getattr(exploration, name)(**{key: _restored(inner) for key, inner in settings.items()})
    return value
