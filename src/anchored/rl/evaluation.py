"""Evaluation: episodes without learning, in an environment separate from the one that the agent learns in."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import jax
import numpy as np

from anchored.inference.compilation import jit
from anchored.rl import training
from anchored.rl.config import AgentConfig
from anchored.rl.environments import GymnasiumAdapter
from anchored.rl.environments.environment import Environment
from anchored.rl.runners import MAX_STEPS, CompiledRunner, GymnasiumRunner, Runner
from anchored.rl.training import EVALUATION
from anchored.types import Array, Key, Params

if TYPE_CHECKING:
    import gymnasium
    from gymnasium.envs.registration import EnvSpec

Evaluator = Callable[[AgentConfig, Params, int, int], list[float]]  # configuration, members, seed, episodes -> returns


@contextmanager
def evaluator(env: "Environment | gymnasium.Env | str | None", runner: Runner) -> Iterator[Evaluator]:
    """A function that plays episodes in `env`, or in another environment like that of `runner` if it is None.

    Every call with the same seed starts from the same states, so that agents can be compared. An environment that is
    made here is closed at the end.
    """
    if isinstance(runner, CompiledRunner):
        yield _compiled_evaluator(env, runner)
        return
    adapter = GymnasiumAdapter(_spec(runner) if env is None else env)  # type: ignore[arg-type]
    try:
        if adapter.env.unwrapped is runner.adapter.env.unwrapped:
            raise ValueError(
                "env: the agent learns in this very environment; evaluation would disturb it. Pass another, or None."
            )
        _check_same_spaces(adapter, runner.adapter)
        yield partial(_play_gymnasium, adapter)
    finally:
        if adapter.env is not env:  # it was made here
            adapter.env.close()


def _compiled_evaluator(env: "Environment | gymnasium.Env | str | None", runner: CompiledRunner) -> Evaluator:
    environment = runner.environment if env is None else env
    if not hasattr(environment, "observe"):
        raise TypeError(f"env: the agent learns in a compiled environment; pass another of these, got {env!r}")
    _check_same_spaces(environment, runner.environment)  # type: ignore[arg-type]

    def evaluate(config: AgentConfig, params: Params, seed: int, n_episodes: int) -> list[float]:
        return _play_compiled(environment, config, params, jax.random.key(seed), n_episodes)[0].tolist()

    return evaluate


def _spec(runner: GymnasiumRunner) -> "EnvSpec":
    spec = runner.adapter.env.spec
    if spec is None:
        raise ValueError(
            f"env: {runner.adapter.name} was not made by gymnasium.make, so that another one cannot be made for "
            "evaluation. Pass one: env=... to evaluate, eval_env=... to learn."
        )
    return spec


def _check_same_spaces(other: Environment | GymnasiumAdapter, own: Environment | GymnasiumAdapter) -> None:
    for name in ("n_actions", "n_observations", "observation_size"):
        if getattr(other, name) != getattr(own, name):
            raise ValueError(
                f"env: its {name} is {getattr(other, name)}, but {getattr(own, name)} where the agent learns"
            )


@partial(jit, static_argnums=(0, 4))
def _play_compiled(
    environment: Environment, config: AgentConfig, params: Params, key: Key, n_episodes: int
) -> tuple[Array, Array, Array]:
    return training.play_episodes(key, environment, config, params, n_episodes)


def _play_gymnasium(
    adapter: GymnasiumAdapter, config: AgentConfig, params: Params, seed: int, n_episodes: int
) -> list[float]:
    returns = []
    for i in range(n_episodes):
        observation = adapter.reset(int(np.random.SeedSequence([seed, EVALUATION + i]).generate_state(1)[0]))
        total, done, n_steps = 0.0, False, 0
        while not done and n_steps < MAX_STEPS:
            observation, reward, terminated, truncated = adapter.step(int(_act_greedily(config, params, observation)))
            total, done, n_steps = total + reward, terminated or truncated, n_steps + 1
        if not done:
            warnings.warn(
                f"env: an episode in {adapter.name} was not over after {MAX_STEPS} steps, and is counted as it is. "
                "gymnasium.wrappers.TimeLimit(env, max_episode_steps) sets a limit.",
                stacklevel=4,
            )
        returns.append(total)
    return returns


@jit
def _act_greedily(config: AgentConfig, params: Params, observation: Array) -> Array:
    """The exploration of `config` is `Greedy`, which depends on neither step nor episode."""
    return training.act(config, jax.random.key(0), params, observation, 0, 0).action
