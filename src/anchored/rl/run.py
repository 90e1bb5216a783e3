"""The parts of an agent, and how they are made before training."""

import os
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import jax
import numpy as np

from anchored.errors import ArgumentError
from anchored.inference.compilation import jit
from anchored.rl import training
from anchored.rl.arguments import AgentArguments, build_config
from anchored.rl.config import AgentConfig
from anchored.rl.environments.environment import Environment
from anchored.rl.history import History
from anchored.rl.runners import GymnasiumRunner, GymnasiumState, Runner, make_runner
from anchored.rl.saved_history import Evaluations
from anchored.rl.training import EnvState, TrainState
from anchored.types import Key

if TYPE_CHECKING:
    import gymnasium


class RunState(NamedTuple):
    """Everything that a rollout changes.

    The agent replaces it by a single assignment, so that an interrupt cannot leave it half updated.
    """

    train_state: TrainState  # of the agent
    env_state: EnvState | GymnasiumState  # of the environment
    history: History  # of finished episodes and the current one


class Run(NamedTuple):
    """Everything that an agent consists of."""

    arguments: AgentArguments  # of `QEnsembleAgent`
    runner: Runner  # of its environment
    config: AgentConfig  # built from the arguments
    state: RunState  # what rollouts change
    evaluations: Evaluations  # during training


def new_run(env: "Environment | gymnasium.Env | str", arguments: AgentArguments) -> Run:
    """Return an agent with these `arguments` in the environment `env`, before training.

    If the seed is None, one is chosen at random.
    """
    if arguments.seed is None:
        arguments = replace(arguments, seed=int(np.random.SeedSequence().generate_state(1)[0] >> 1))
    arguments.check()
    arguments = replace(arguments, seed=int(arguments.seed))
    runner = make_runner(env, arguments.seed)
    _check_memory(arguments.buffer_size, runner)
    config = build_config(arguments, runner.spaces, runner.observation)
    train_state = _init_train_state(jax.random.key(arguments.seed), config.greedy, runner.observation)
    history = History().without_current(config.learning.n_envs)
    return Run(arguments, runner, config, RunState(train_state, runner.start, history), [])


def _check_memory(buffer_size: int, runner: Runner) -> None:
    """Raise if replay buffers of `buffer_size` transitions do not fit into the memory of this machine."""
    # In Gymnasium environments there is a spare buffer, so that an interrupt loses nothing.
    n_buffers = 2 if isinstance(runner, GymnasiumRunner) else 1
    n_copies = 1 if isinstance(runner, GymnasiumRunner) and runner.adapter.observes_images else 2
    needed = n_buffers * buffer_size * n_copies * runner.observation.nbytes
    if jax.default_backend() == "cpu" and needed > physical_memory():
        gigabytes = [f"{number / 1e9:,.1f} GB" for number in (needed, physical_memory())]
        raise ArgumentError(
            "buffer_size",
            f"must be smaller: {buffer_size:,} transitions with observations of shape {runner.observation.shape} need "
            f"{gigabytes[0]} of memory, but this machine has {gigabytes[1]}",
            "or make observations smaller",
        )


def physical_memory() -> float:
    """Return the bytes of memory of this machine; infinity if the number is unknown."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):
        return float("inf")


@jit
def _init_train_state(key: Key, config: AgentConfig, observation: np.ndarray) -> TrainState:
    """Call `training.init_train_state` in a compiled program."""
    return training.init_train_state(key, config, observation)
