"""Save an agent to one file and load it: a run resumes bit for bit, and loading runs no code from the file."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike
from pathlib import Path as FilePath
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from anchored import checks
from anchored.rl import replay, saved_arguments, saved_environment, saved_state
from anchored.rl.arguments import CHANGEABLE, AgentArguments, build_config
from anchored.rl.config import AgentConfig
from anchored.rl.environments import GymnasiumAdapter
from anchored.rl.environments.environment import Environment
from anchored.rl.run import Run, RunState
from anchored.rl.runners import Runner, make_runner
from anchored.rl.saved_history import Arrays
from anchored.rl.saved_state import Expected, SavedState
from anchored.storage import archive, atomic
from anchored.storage.headers import Header, StorageError

if TYPE_CHECKING:
    import gymnasium

KIND = "QEnsembleAgent"
Path = str | PathLike[str]


def check(arguments: AgentArguments, path: Path) -> None:
    """Raise if an agent with these `arguments` cannot be saved to `path`."""
    saved_arguments.to_json(arguments)
    atomic.check_writable(path)


def save(run: Run, path: Path) -> None:
    """Save the agent `run` to the file `path`, with its replay buffer and the states of optimiser and environment."""
    check(run.arguments, path)
    train_state, env_state, history = run.state
    env_arrays = run.runner.to_arrays(env_state)  # type: ignore[arg-type]  # made by this runner
    arrays = {**saved_state.to_arrays(SavedState(train_state, history, run.evaluations)), **env_arrays}
    header = {
        "kind": KIND,
        "arguments": saved_arguments.to_json(run.arguments),
        "own_network": run.arguments.network is not None,
        "environment": saved_environment.to_json(run.runner.spaces),
    }
    try:  # do not replace a readable file with one that cannot be read
        saved_state.check(arrays, _expected(run.runner, run.config, run.arguments.seed))
    except StorageError as error:
        raise StorageError(f"the agent cannot be saved: {error}") from error
    archive.write(path, header, arrays)


def load(
    path: Path,
    env: "Environment | gymnasium.Env | str | None",
    network: object | None,
    changed: Mapping[str, object] | None = None,
) -> Run:
    """Load the agent in the file `path`.

    Parameters
    ----------
    path
        The file.
    env
        The environment; None to make it again from what is stored.
    network
        The network, needed if the agent was constructed with one.
    changed
        Arguments whose values replace the stored ones; their names are among CHANGEABLE.

    Returns
    -------
    Run
        The agent's parts.
    """
    for name in changed or {}:
        checks.one_of("an argument that load changes", name, CHANGEABLE)
    header, arrays = archive.read(path)
    with archive.reading(path):
        kind = header.text("kind", longest=100)
        if kind != KIND:
            raise StorageError(f"it holds a {kind}, not an agent: use anchored.load")
        header.require_only(["format", "kind", "arguments", "own_network", "environment"])
        if header.flag("own_network") and network is None:
            raise StorageError("it was trained with a network of your own: pass it again, load(path, network=...)")
        arguments = saved_arguments.from_json(header.child("arguments"), network)
        if changed:
            arguments = replace(arguments, **changed)  # type: ignore[arg-type]
            arguments.check()
        runner = _runner(header.child("environment"), env, arguments, arrays)
        return _resume(arrays, arguments, runner, made_from_file=env is None)


def to_bytes(run: Run) -> tuple[bytes, object, object | None]:
    """Return the agent `run` as the content of a file, its environment if `load` cannot make it, and its network."""
    spaces = run.runner.spaces
    env = spaces.env if isinstance(spaces, GymnasiumAdapter) else spaces
    with TemporaryDirectory() as folder:
        path = FilePath(folder, "agent")
        save(run, path)
        can_be_made = bool(saved_environment.to_json(spaces))
        return path.read_bytes(), None if can_be_made else env, run.arguments.network


def from_bytes(content: bytes, env: "Environment | gymnasium.Env | str | None", network: object | None) -> Run:
    """Return the agent that `to_bytes` returned as `content`, an environment and a network."""
    with TemporaryDirectory() as folder:
        path = FilePath(folder, "agent")
        path.write_bytes(content)
        return load(path, env, network)


def _runner(
    header: Header, env: "Environment | gymnasium.Env | str | None", arguments: AgentArguments, arrays: Arrays
) -> Runner:
    """Return the runner of `env`, or of the environment that `header` describes."""
    with _errors_of_environment(made_from_file=env is None):
        environment = saved_environment.from_json(header, env)
        if env is None and "compiled" in header:  # check sizes before memory is allocated for them
            saved_state.check_size(arguments, environment, environment.observation_size, arrays)  # type: ignore
        runner = make_runner(environment, arguments.seed)
    saved_environment.check_same_kind(header, runner.spaces)
    return runner


def _resume(arrays: Arrays, arguments: AgentArguments, runner: Runner, made_from_file: bool) -> Run:
    """Return the agent with the state in `arrays`.

    `made_from_file` says whether its environment was made from the file.
    """
    saved_state.check_size(arguments, runner.spaces, runner.observation.size, arrays)
    try:
        config = build_config(arguments, runner.spaces, runner.observation)
    except ValueError as error:
        raise StorageError(f"its arguments cannot be used in this environment: {error}") from error
    saved = saved_state.from_arrays(arrays, _expected(runner, config, arguments.seed))
    with _errors_of_environment(made_from_file):
        env_state, reached = runner.restore(arrays)
    train_state, history = saved.train_state, saved.history
    if not reached:  # the current episode starts again
        n_envs = config.learning.n_envs
        train_state = train_state._replace(buffer=replay.cut_episode(train_state.buffer, n_envs))
        history = history.without_current(n_envs)
    return Run(arguments, runner, config, RunState(train_state, env_state, history), saved.evaluations)


def _expected(runner: Runner, config: AgentConfig, seed: int) -> Expected:
    """Return what `saved_state.check` compares the arrays of a file with."""
    initial = runner.to_arrays(runner.start)  # type: ignore[arg-type]  # made by this runner
    return Expected(config, runner.spaces, runner.observation, initial, seed)


@contextmanager
def _errors_of_environment(made_from_file: bool) -> Iterator[None]:
    """Turn errors of an environment that was made from a file into a StorageError; do not change other errors."""
    try:
        yield
    except StorageError:
        raise
    except Exception as error:
        if not made_from_file:
            raise
        raise StorageError(
            f"its environment cannot be used ({type(error).__name__}: {error}): {saved_environment.PASS_ENV_AGAIN}"
        ) from error
