"""What an agent has become and lived through, as named arrays, and back.

Nothing is taken on trust: names, shapes, precision and ranges of the arrays, and whether counters, history and place
agree, are looked at before any of it is used.
"""

from itertools import pairwise
from typing import Any, NamedTuple

import jax
import numpy as np

from anchored import trees
from anchored.rl import training
from anchored.rl.environments import DeepSea
from anchored.rl.history import History
from anchored.rl.q_network import QNetwork, Rescaled
from anchored.rl.saved_environment import COMPILED
from anchored.rl.training import Agent, Mind
from anchored.rl.worlds import CompiledWorld, SteppedWorld
from anchored.storage.headers import StorageError

OF_ANY_LENGTH = ("world/actions", *(f"history/{name}" for name in ("returns", "lengths", "explored")))
OF_ANY_LENGTH += tuple(f"evaluations/{name}" for name in ("steps", "counts", "returns"))
WEIGHTS = tuple(f"mind/members/{name}/" for name in ("params", "anchors", "targets"))
LARGEST_WEIGHT = 1e15  # of a member of any network
# What the library's own network can reach at any layer, for inputs up to the largest: squares of it, which the spread
# is made of, are finite in single precision.
LARGEST_VALUE, LARGEST_INPUT = 1e18, 1e6
WITHIN_ONE = ("tanh", "erf", "logistic", "sin")  # activations
Arrays = dict[str, np.ndarray]
Evaluations = list[tuple[int, list[float]]]  # step number, returns


class State(NamedTuple):
    """What an agent has become and lived through."""

    mind: Mind
    history: History
    evaluations: Evaluations


def written(state: State) -> Arrays:
    """Arrays named by where they stand."""
    bare = _bare(state.mind)
    members = {name: np.asarray(leaf) for name, leaf in zip(_names(bare), jax.tree.leaves(bare), strict=True)}
    return {**members, **_written_history(state.history, state.evaluations)}


def check_room(asked: dict[str, Any], kind: Any, observation_size: int, arrays: Arrays) -> None:
    """Raise where more numbers are asked for than the file holds, before anything of that size is made."""
    held = sum(array.size for array in arrays.values())
    members = 2 * asked["n_estimators"] * _n_weights(asked, kind)  # their weights and anchors
    steps = asked["buffer_size"] * (2 * observation_size + 4)
    for names, needed in (("n_estimators and hidden_layer_sizes", members), ("buffer_size", steps)):
        if needed > held:
            raise StorageError(
                f"it does not fit this environment or network: its arguments.{names} ask for {needed} numbers, and it "
                f"holds {held}"
            )


def _n_weights(asked: dict[str, Any], kind: Any) -> int:
    """Of a member, or at least so many."""
    if asked["network"] is not None:
        return 1
    sizes = (kind.n_observations or kind.observation_size, *asked["hidden_layer_sizes"], kind.n_actions)
    return sum((n + 1) * m for n, m in pairwise(sizes))


def read(arrays: Arrays, world: CompiledWorld | SteppedWorld, agent: Agent, seed: int) -> State:
    """What `written` gave, of this agent in this world."""
    mind, history, evaluations = check(arrays, world, agent, seed)
    mind = jax.tree.map(jax.device_put, mind)
    return State(mind._replace(key=jax.random.wrap_key_data(mind.key)), history, evaluations)


def check(arrays: Arrays, world: CompiledWorld | SteppedWorld, agent: Agent, seed: int) -> State:
    """The state as NumPy has it, its key as numbers; a StorageError where it does not fit agent, world or itself."""
    form = jax.eval_shape(lambda key: _bare(training.new_mind(key, agent, world.observation)), jax.random.key(0))
    names = _names(form)
    beside = {**world.leaves(world.start), **_written_history(History(), [])}  # type: ignore[arg-type]
    _check_forms(arrays, {**dict(zip(names, jax.tree.leaves(form), strict=True)), **beside})
    mind = jax.tree.unflatten(jax.tree.structure(form), [arrays[name] for name in names])
    for name in arrays:
        if not name.startswith("world/"):
            _check_numbers(name, arrays[name])
    _check_values(mind.members, agent.learning.network)
    _check_key(mind, seed)
    _check_transitions(mind.buffer.transitions, world.kind)
    _check_counters(mind, agent)
    _check_place(arrays, world, mind)
    history = _history(arrays, mind, _n_under_way(arrays, world))
    return State(mind, history, _evaluations(arrays, int(mind.n_steps)))


def _bare(mind: Mind) -> Mind:
    """With its key as the numbers that it is made of."""
    return mind._replace(key=jax.random.key_data(mind.key))


def _names(mind: Any) -> list[str]:
    return ["/".join(("mind", *path)) for path in trees.paths(mind)]


def _check_forms(arrays: Arrays, needed: dict[str, Any]) -> None:
    """Exactly the arrays needed, each of its shape and precision."""
    unknown, missing = sorted(set(arrays) - set(needed)), sorted(set(needed) - set(arrays))
    if unknown or missing:
        what, names = ("needs", missing) if missing else ("does not know", unknown)
        raise StorageError(f"it does not fit this environment or network, which {what} the array {names[0][:200]!r}")
    for name, form in needed.items():
        array = arrays[name]
        shape = array.shape if name in OF_ANY_LENGTH and array.ndim == 1 else form.shape
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
        lost = name.startswith(WEIGHTS) and np.abs(array).max(initial=0) > LARGEST_WEIGHT
        _refuse_where(lost, name, f"holds weights beyond {LARGEST_WEIGHT:g}, of a member that is lost")
    elif array.dtype.kind == "i":
        _refuse_where(array < 0, name, "holds negative numbers")
    elif array.dtype.kind == "b":
        _refuse_where(array.view(np.uint8) > 1, name, "holds bytes that are neither true nor false")


def _refuse_where(wrong: Any, name: str, why: str) -> None:
    if np.any(wrong):
        raise StorageError(f"array {name!r} {why}")


def _check_values(members: Any, network: Any) -> None:
    """Raise where the library's own network may give values that are not finite."""
    network = network.network if isinstance(network, Rescaled) else network
    if isinstance(network, QNetwork):
        for name in ("params", "anchors", "targets"):
            if getattr(members, name) is not None:
                _check_reach(f"mind/members/{name}", getattr(members, name), network)


def _check_reach(where: str, params: Any, network: QNetwork) -> None:
    """Bound each unit by the absolute weights, layer by layer."""
    inputs = None
    for name in (f"layer_{i}" for i in range(len(network.hidden_layer_sizes) + 1)):
        weights, bias = (np.abs(params[name][part]).astype(float) for part in ("weights", "bias"))
        if inputs is not None:
            reached = (inputs[:, None] @ weights)[:, 0]
        else:  # an integer picks a row
            reached = weights.sum(1) * LARGEST_INPUT if network.n_observations is None else weights.max(1)
        reached += bias
        why = f"holds weights by which values beyond {LARGEST_VALUE:g} can be reached, of a member that is lost"
        _refuse_where(reached > LARGEST_VALUE, f"{where}/{name}/weights", why)
        # Other activations than these add less than 1 to the magnitude of what they are given.
        inputs = np.ones_like(reached) if network.activation in WITHIN_ONE else reached + 1


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
    limit = None if world.adapter.env.spec is None else world.adapter.env.spec.max_episode_steps
    _refuse_where(limit is not None and len(actions) >= limit, "world/actions", f"is as long as an episode: {limit}")
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


def _written_history(history: History, evaluations: Evaluations) -> Arrays:
    """Columns of numbers, since there may be millions of episodes."""
    columns = {
        "history/returns": (history.returns, np.float64),
        "history/lengths": (history.lengths, np.int64),
        "history/explored": (history.explored, np.int64),
        "history/under_way": (history.under_way, np.float64),
        "evaluations/steps": ([step for step, _ in evaluations], np.int64),
        "evaluations/counts": ([len(returns) for _, returns in evaluations], np.int64),
        "evaluations/returns": ([total for _, returns in evaluations for total in returns], np.float64),
    }
    return {name: np.asarray(column, dtype) for name, (column, dtype) in columns.items()}


def _history(arrays: Arrays, mind: Mind, n_under_way: int) -> History:
    returns, lengths, explored, under_way = (
        arrays[f"history/{name}"] for name in ("returns", "lengths", "explored", "under_way")
    )
    n_episodes, n_steps = int(mind.n_episodes), int(mind.n_steps)
    for name in ("returns", "lengths", "explored"):
        _refuse_where(len(arrays[f"history/{name}"]) != n_episodes, f"history/{name}", f"has not {n_episodes} entries")
    _refuse_where((lengths < 1) | (lengths > n_steps), "history/lengths", f"is not between 1 and {n_steps}")
    _refuse_where(int(lengths.sum()) + n_under_way > n_steps, "history/lengths", f"is more than {n_steps} steps")
    _refuse_where(explored > lengths, "history/explored", "holds more steps than the episodes have")
    total, length, some = under_way.tolist()
    _refuse_where(length != n_under_way, "history/under_way", f"is not {n_under_way} steps long")
    _refuse_where(some != int(some) or not 0 <= some <= length, "history/under_way", "holds no number of steps")
    return History(returns.tolist(), lengths.tolist(), explored.tolist(), (total, int(length), int(some)))


def _evaluations(arrays: Arrays, n_steps: int) -> Evaluations:
    steps, counts, returns = (arrays[f"evaluations/{name}"] for name in ("steps", "counts", "returns"))
    disordered = (np.diff(steps) < 0).any() or ((steps < 1) | (steps > n_steps)).any()
    _refuse_where(disordered, "evaluations/steps", f"does not ascend from 1 to {n_steps}")
    _refuse_where(len(counts) != len(steps), "evaluations/counts", "has not as many entries as evaluations/steps")
    _refuse_where(
        (counts < 1) | (counts > len(returns)), "evaluations/counts", "holds what cannot be a number of returns"
    )
    _refuse_where(int(counts.sum()) != len(returns), "evaluations/returns", "is not as long as evaluations/counts say")
    parts = np.split(returns, np.cumsum(counts)[:-1]) if len(counts) else []
    return [(step, part.tolist()) for step, part in zip(steps.tolist(), parts, strict=True)]
