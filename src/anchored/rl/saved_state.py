"""What an agent has become and lived through, as named arrays and JSON, and back.

Nothing is taken on trust: names, shapes, precision and ranges of the arrays, and whether counters, history and place
agree, are looked at before any of it is used.
"""

from itertools import pairwise
from typing import Any, NamedTuple

import jax
import numpy as np

from anchored import trees
from anchored.headers import Header, StorageError, is_finite_number, is_whole
from anchored.rl import training
from anchored.rl.environments import DeepSea
from anchored.rl.history import History
from anchored.rl.saved_environment import COMPILED
from anchored.rl.training import Agent, Mind
from anchored.rl.worlds import CompiledWorld, SteppedWorld

MOST_EPISODES = 2**31  # whole numbers of 32 bits count them
Arrays = dict[str, np.ndarray]


class State(NamedTuple):
    """What `read` gives back."""

    mind: Mind  # NumPy arrays, its key as the numbers that it is made of
    history: History
    evaluations: list[tuple[int, list[float]]]


def written(mind: Mind, history: History, evaluations: list[tuple[int, list[float]]]) -> tuple[dict[str, Any], Arrays]:
    """Fields of a header, and arrays named by where they stand in the mind."""
    leaves = jax.tree.leaves(_bare(mind))
    arrays = {name: np.asarray(leaf) for name, leaf in zip(_names(_bare(mind)), leaves, strict=True)}
    return {"history": history.as_dict(), "evaluations": evaluations}, arrays


def check_room(asked: dict[str, Any], world: CompiledWorld | SteppedWorld, arrays: Arrays) -> None:
    """Raise where more numbers are asked for than the file holds, before anything of that size is made."""
    held = sum(array.size for array in arrays.values())
    kind = world.kind
    sizes = (kind.n_observations or kind.observation_size, *asked["hidden_layer_sizes"], kind.n_actions)
    n_weights = sum((n + 1) * m for n, m in pairwise(sizes)) if asked["network"] is None else 1
    members = 2 * asked["n_estimators"] * n_weights  # their weights and anchors
    steps = asked["buffer_size"] * (2 * world.observation.size + 4)
    for names, needed in (("n_estimators and hidden_layer_sizes", members), ("buffer_size", steps)):
        if needed > held:
            raise StorageError(
                f"it does not fit this environment or network: its arguments.{names} ask for {needed} numbers, and it "
                f"holds {held}"
            )


def read(header: Header, arrays: Arrays, world: CompiledWorld | SteppedWorld, agent: Agent, seed: int) -> State:
    """The state in `header` and `arrays` of this agent in this world; all of it fits them, and itself."""
    form = jax.eval_shape(lambda key: _bare(training.new_mind(key, agent, world.observation)), jax.random.key(0))
    names = _names(form)
    places = world.leaves(world.start)  # type: ignore[arg-type]
    _check_forms(arrays, {**dict(zip(names, jax.tree.leaves(form), strict=True)), **places})
    mind = jax.tree.unflatten(jax.tree.structure(form), [arrays[name] for name in names])
    for name in names:
        _check_numbers(name, arrays[name])
    _check_key(mind, seed)
    _check_transitions(mind.buffer.transitions, world.kind)
    _check_counters(mind, agent)
    _check_place(arrays, world, mind)
    history = _history(header.child("history"), mind, _n_under_way(arrays, world))
    return State(mind, history, _evaluations(header, int(mind.n_steps)))


def _bare(mind: Mind) -> Mind:
    """With its key as the numbers that it is made of."""
    return mind._replace(key=jax.random.key_data(mind.key))


def on_device(mind: Mind) -> Mind:
    """The mind of a `State`, to go on learning with."""
    mind = jax.tree.map(jax.device_put, mind)
    return mind._replace(key=jax.random.wrap_key_data(mind.key))


def _names(mind: Any) -> list[str]:
    return ["/".join(("mind", *path)) for path in trees.paths(mind)]


def _check_forms(arrays: Arrays, needed: dict[str, Any]) -> None:
    """Exactly the arrays needed, each of its shape and precision; an episode has any number of actions."""
    unknown, missing = sorted(set(arrays) - set(needed)), sorted(set(needed) - set(arrays))
    if unknown or missing:
        what, names = ("needs", missing) if missing else ("does not know", unknown)
        raise StorageError(f"it does not fit this environment or network, which {what} the array {names[0][:200]!r}")
    for name, form in needed.items():
        array = arrays[name]
        shape = array.shape if name == "world/actions" and array.ndim == 1 else form.shape
        if array.shape != shape:
            raise StorageError(
                f"it does not fit this environment or network: array {name!r} has shape {array.shape}, and "
                f"{form.shape} is needed"
            )
        if array.dtype != form.dtype:
            raise StorageError(
                f"it was saved in another precision (array {name!r} is {array.dtype}, and now {form.dtype}): set JAX's "
                "jax_enable_x64 as it was then"
            )


def _check_numbers(name: str, array: np.ndarray) -> None:
    """Finite, and whole numbers not negative. An optimiser's moments may have grown beyond all numbers."""
    if array.dtype.kind == "f":
        wrong = np.isnan(array) if "/optimizer_state/" in name else ~np.isfinite(array)
        _refuse_where(wrong, name, "holds numbers that are not finite")
    elif array.dtype.kind == "i":
        _refuse_where(array < 0, name, "holds negative numbers")
    elif array.dtype.kind == "b":
        _refuse_where(array.view(np.uint8) > 1, name, "holds bytes that are neither true nor false")


def _refuse_where(wrong: Any, name: str, why: str) -> None:
    if np.any(wrong):
        raise StorageError(f"array {name!r} {why}")


def _check_key(mind: Mind, seed: int) -> None:
    own = np.asarray(jax.random.key_data(jax.random.key(seed)))
    _refuse_where(mind.key != own, "mind/key", f"is not the key of arguments.seed, {seed}")


def _check_transitions(rows: Any, kind: Any) -> None:
    where = "mind/buffer/transitions/"
    _refuse_where(rows.action >= kind.n_actions, where + "action", f"holds more than the {kind.n_actions} actions")
    if kind.n_observations is not None:
        for name in ("observation", "next_observation"):
            beyond = getattr(rows, name) >= kind.n_observations
            _refuse_where(beyond, where + name, f"holds more than the {kind.n_observations} observations")
    _refuse_where(rows.terminated & ~rows.last, where + "terminated", "holds ends that are not the last of an episode")


def _check_counters(mind: Mind, agent: Agent) -> None:
    """Steps, rounds, episodes and updates follow from one another."""
    n_steps, n_rounds, n_episodes = int(mind.n_steps), int(mind.n_rounds), int(mind.n_episodes)
    _refuse_where(mind.buffer.n_seen != n_steps, "mind/buffer/n_seen", f"is not the number of steps, {n_steps}")
    if agent.learn_every is None:
        _refuse_where(not n_episodes <= n_rounds <= n_steps, "mind/n_rounds", "does not fit the steps and episodes")
    else:
        _refuse_where(n_rounds * agent.learn_every != n_steps, "mind/n_rounds", "does not fit the number of steps")
    _refuse_where(n_episodes > n_steps, "mind/n_episodes", f"is more than the number of steps, {n_steps}")
    n_updates = max(0, n_rounds - agent.burn_in) * agent.learning.n_updates
    _refuse_where(
        mind.members.n_updates != n_updates, "mind/members/n_updates", f"is not the {n_updates} of its rounds"
    )


def _check_place(arrays: Arrays, world: CompiledWorld | SteppedWorld, mind: Mind) -> None:
    """Where the environment stands; what the state of a user's own may be is not known."""
    if isinstance(world, SteppedWorld):
        return _check_stepped_place(arrays, world, mind)
    if type(world.environment) not in COMPILED.values():
        return None
    environment: Any = world.environment
    limit = environment.size if isinstance(environment, DeepSea) else environment.n_observations
    for name in world.leaves(world.start):
        _check_numbers(name, arrays[name])
        if arrays[name].dtype.kind == "i" and name != _steps_name(world):
            _refuse_where(arrays[name] >= limit, name, f"must be below {limit}")
    late = arrays[_steps_name(world)] >= environment.max_episode_steps
    return _refuse_where(late, _steps_name(world), "is beyond the end of the episode")


def _check_stepped_place(arrays: Arrays, world: SteppedWorld, mind: Mind) -> None:
    kind, actions, observation = world.kind, arrays["world/actions"], arrays["world/observation"]
    _check_numbers("world/observation", observation)
    if kind.n_observations is not None:
        _refuse_where(observation >= kind.n_observations, "world/observation", "is not one of the environment's")
    _refuse_where(arrays["world/number"] != mind.n_episodes, "world/number", "is not the number of episodes")
    _refuse_where((actions < 0) | (actions >= kind.n_actions), "world/actions", "holds more than the actions there are")
    rows, n_seen = mind.buffer.transitions, int(mind.buffer.n_seen)
    n_remembered = min(len(actions), n_seen, len(rows.action))
    newest = (n_seen - 1 - np.arange(n_remembered)) % len(rows.action)
    _refuse_where(rows.action[newest] != actions[::-1][:n_remembered], "world/actions", "are not those remembered")
    if n_remembered:
        led_to = rows.next_observation[newest[0]]
        _refuse_where(led_to != observation, "world/observation", "is not where the newest step led")


def _steps_name(world: CompiledWorld) -> str:
    """The last leaf of a compiled world's place: steps in this episode."""
    return f"world/{len(jax.tree.leaves(world.start)) - 1}"


def _n_under_way(arrays: Arrays, world: CompiledWorld | SteppedWorld) -> int:
    """Steps of the episode under way."""
    return int(arrays[_steps_name(world)]) if isinstance(world, CompiledWorld) else len(arrays["world/actions"])


def _history(header: Header, mind: Mind, n_under_way: int) -> History:
    header.require_only(["returns", "lengths", "explored", "under_way"])
    returns = header.listed("returns", is_finite_number, "finite numbers", MOST_EPISODES)
    lengths, explored = (header.listed(n, is_whole, "whole numbers", MOST_EPISODES) for n in ("lengths", "explored"))
    for name, column in (("returns", returns), ("lengths", lengths), ("explored", explored)):
        if len(column) != int(mind.n_episodes):
            header.refuse(f"must have one entry for each of {int(mind.n_episodes)} episodes, not {len(column)}", name)
    if any(not (0 <= some <= length and length > 0) for some, length in zip(explored, lengths, strict=True)):
        header.refuse("must be between 0 and the episodes' lengths, which are at least 1", "explored")
    under_way = header.listed("under_way", is_finite_number, "finite numbers", 3)
    if len(under_way) != 3 or not all(map(is_whole, under_way[1:])) or not 0 <= under_way[2] <= under_way[1]:
        header.refuse("must be a return, a length and how many steps of it explored", "under_way")
    if under_way[1] != n_under_way:
        header.refuse(f"must be {n_under_way} steps long, as the episode under way is", "under_way")
    if sum(lengths) + n_under_way > int(mind.n_steps):
        header.refuse(f"must not be more than the {int(mind.n_steps)} steps lived through", "lengths")
    return History([float(total) for total in returns], lengths, explored, (float(under_way[0]), *under_way[1:]))


def _evaluations(header: Header, n_steps: int) -> list[tuple[int, list[float]]]:
    listed = header.listed("evaluations", _is_evaluation, "pairs of a step and its returns", MOST_EPISODES)
    steps = [step for step, _ in listed]
    if steps != sorted(steps) or any(not 1 <= step <= n_steps for step in steps):
        header.refuse(f"must be in the order of their steps, from 1 to {n_steps}", "evaluations")
    return [(step, [float(total) for total in returns]) for step, returns in listed]


def _is_evaluation(entry: Any) -> bool:
    if not isinstance(entry, list) or len(entry) != 2 or not is_whole(entry[0]):
        return False
    return isinstance(entry[1], list) and len(entry[1]) > 0 and all(map(is_finite_number, entry[1]))
