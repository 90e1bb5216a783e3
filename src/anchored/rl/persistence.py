"""An agent in one file, and back: nothing is lost, so that a run can go on bit for bit, and no file runs code."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from anchored.rl import saved_arguments, saved_environment, saved_state, settings
from anchored.rl.history import History
from anchored.rl.training import Agent, Mind
from anchored.rl.worlds import CompiledWorld, SteppedWorld, world_of
from anchored.storage import archive, atomic
from anchored.storage.headers import Header, StorageError

KIND = "QEnsembleAgent"


class Saved(NamedTuple):
    """All that an agent is made of."""

    arguments: dict[str, Any]
    world: CompiledWorld | SteppedWorld
    agent: Agent
    mind: Mind
    place: Any
    history: History
    evaluations: list[tuple[int, list[float]]]


def check(agent: Any, path: Any) -> None:
    """Raise now where `save` would later."""
    saved_arguments.written(agent.arguments)
    atomic.check_writable(path)


def save(agent: Any, path: Any) -> None:
    """Write an agent, its buffer, optimiser and counters, and where its environment stands."""
    check(agent, path)
    state = saved_state.State(agent.mind, agent.history, agent.evaluations)
    arrays = {**saved_state.written(state), **agent.world.leaves(agent.now.place)}
    header = {
        "kind": KIND,
        "arguments": saved_arguments.written(agent.arguments),
        "own_network": agent.arguments["network"] is not None,
        "environment": saved_environment.written(agent.world),
    }
    try:  # a file that could not be read must not take the place of one that can
        saved_state.check(arrays, agent.world, agent.agent, agent.seed)
    except StorageError as error:
        raise StorageError(f"the agent cannot be saved: {error}") from error
    archive.write(path, header, arrays)


def load(path: Any, names: Collection[str], env: Any, network: Any) -> Saved:
    """What `save` stored, in a world made again or that of `env`; `names` are those of the agent's arguments."""
    header, arrays = archive.read(path)
    with archive.reading(path):
        kind = header.text("kind", longest=100)
        if kind != KIND:
            raise StorageError(f"it holds a {kind}, not an agent: use anchored.load")
        header.require_only(["format", "kind", "arguments", "own_network", "environment"])
        if header.flag("own_network") and network is None:
            raise StorageError("it was trained with a network of your own: pass it again, load(path, network=...)")
        arguments = saved_arguments.read(header.child("arguments"), names, network)
        world = _world(header.child("environment"), env, arguments, arrays)
        return _resumed(arrays, arguments, world, made_again=env is None)


def _world(header: Header, env: Any, arguments: dict[str, Any], arrays: Any) -> CompiledWorld | SteppedWorld:
    with _environment_of_the_file(made_again=env is None):
        environment = saved_environment.read(header, env)
        if env is None and "ours" in header:  # its sizes are known before anything is computed with them
            saved_state.check_room(arguments, environment, environment.observation_size, arrays)
        world = world_of(environment, arguments["seed"])
    saved_environment.check_alike(header, world)
    return world


def _resumed(arrays: Any, arguments: dict[str, Any], world: CompiledWorld | SteppedWorld, made_again: bool) -> Saved:
    saved_state.check_room(arguments, world.kind, world.observation.size, arrays)
    try:
        agent = settings.build(arguments, world.kind, world.observation)
    except ValueError as error:
        raise StorageError(f"its arguments cannot be used in this environment: {error}") from error
    mind, history, evaluations = saved_state.read(arrays, world, agent, arguments["seed"])
    with _environment_of_the_file(made_again):
        place, reached = world.restore(arrays)
    return Saved(arguments, world, agent, mind, place, history if reached else history.begin_again(), evaluations)


@contextmanager
def _environment_of_the_file(made_again: bool) -> Iterator[None]:
    """A StorageError for whatever an environment made of a file raises; one that was passed raises its own."""
    try:
        yield
    except StorageError:
        raise
    except Exception as error:
        if not made_again:
            raise
        raise StorageError(
            f"its environment cannot be used ({type(error).__name__}: {error}): {saved_environment.PASS_IT}"
        ) from error
