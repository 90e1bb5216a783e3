"""The parts of an agent, and how they are made before training."""

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import jax
import numpy as np

from anchored.inference.compilation import jit
from anchored.rl import training
from anchored.rl.arguments import AgentArguments, build_config
from anchored.rl.config import AgentConfig
from anchored.rl.environments.environment import Environment
from anchored.rl.history import History
from anchored.rl.runners import GymnasiumState, Runner, make_runner
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
    config = build_config(arguments, runner.spaces, runner.observation)
    train_state = _init_train_state(jax.random.key(arguments.seed), config.greedy, runner.observation)
    return Run(arguments, runner, config, RunState(train_state, runner.start, History()), [])


@jit
def _init_train_state(key: Key, config: AgentConfig, observation: np.ndarray) -> TrainState:
    """Call `training.init_train_state` in a compiled program."""
    return training.init_train_state(key, config, observation)
