"""Evaluation: episodes without learning, in another environment than that in which the agent learns."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import jax
import numpy as np

from anchored.errors import ArgumentError
from anchored.inference.compilation import jit
from anchored.rl import training
from anchored.rl.compiled_runner import CompiledRunner
from anchored.rl.config import AgentConfig
from anchored.rl.environments import GymnasiumAdapter
from anchored.rl.environments.environment import Environment
from anchored.rl.environments.gymnasium_adapter import MAKE_VEC_ARGUMENTS, time_limit
from anchored.rl.q_learning import Members
from anchored.rl.runners import MAX_STEPS, GymnasiumRunner, Runner
from anchored.rl.training import EVALUATION
from anchored.types import Array, Key, Params

if TYPE_CHECKING:
    import gymnasium
    from gymnasium.envs.registration import EnvSpec

# (configuration, members, seed, number of episodes) -> returns of the episodes
Evaluator = Callable[[AgentConfig, Members, int, int], list[float]]


@contextmanager
def evaluator(env: "Environment | gymnasium.Env | str | None", runner: Runner) -> Iterator[Evaluator]:
    """Return a context manager whose value is a function that plays episodes.

    Calls with the same seed start from the same states, so that agents can be compared.

    Parameters
    ----------
    env
        Environment to play in. If it is None, another environment like that of `runner` is made, and closed at the end
        of the context.
    runner
        The runner of the environment that the agent learns in.

    Yields
    ------
    Evaluator
        A function (configuration, members, seed, number of episodes) -> returns of the episodes.
    """
    if isinstance(runner, CompiledRunner):
        yield _compiled_evaluator(env, runner)
        return
    adapter = GymnasiumAdapter(_spec(runner) if env is None else env)  # type: ignore[arg-type]
    try:
        if adapter.env.unwrapped is runner.adapter.env.unwrapped:
            raise ValueError(
                "env: this is the environment that the agent learns in, and evaluation would change its state. Pass "
                "another one, or None."
            )
        check_same_spaces(adapter, runner.adapter)
        yield partial(_play_gymnasium, adapter)
    finally:
        if adapter.env is not env:  # it was made above
            adapter.env.close()


def _compiled_evaluator(env: "Environment | gymnasium.Env | str | None", runner: CompiledRunner) -> Evaluator:
    """Return an evaluator in a compiled environment."""
    environment = runner.environment if env is None else env
    if not hasattr(environment, "observe"):
        raise TypeError(f"env: the agent learns in a compiled environment, so env must be compiled too, got {env!r}")
    check_same_spaces(environment, runner.environment)  # type: ignore[arg-type]

    def evaluate(config: AgentConfig, members: Members, seed: int, n_episodes: int) -> list[float]:
        return _play_compiled(environment, config, members.policy, jax.random.key(seed), n_episodes)[0].tolist()

    return evaluate


def _spec(runner: GymnasiumRunner) -> "EnvSpec":
    """Return the specification from which Gymnasium makes another environment like the runner's."""
    spec = runner.adapter.env.spec
    if spec is None:
        raise ValueError(
            f"env: {runner.adapter.name} was not made by gymnasium.make, so another one cannot be made for evaluation. "
            "Pass one: evaluate(env=...) or learn(eval_env=...)."
        )
    if runner.n_envs > 1:
        return _single_spec(spec, runner.adapter.name)
    return spec


def _single_spec(spec: "EnvSpec", name: str) -> "EnvSpec":
    """Return the specification of one of the environments that `gymnasium.make_vec` made from `spec`."""
    if "wrappers" in spec.kwargs:
        raise ArgumentError("env", f"must be passed, since the wrappers of {name} are not known", "evaluate(env=...)")
    kwargs = {name: value for name, value in spec.kwargs.items() if name not in MAKE_VEC_ARGUMENTS}
    return replace(spec, kwargs=kwargs, max_episode_steps=time_limit(spec))


def check_same_spaces(env: Environment | GymnasiumAdapter, training_env: Environment | GymnasiumAdapter) -> None:
    """Raise if the actions or observations of `env` differ from those of `training_env`, which the agent learns in."""
    for name in ("n_actions", "n_observations", "observation_size"):
        if getattr(env, name) != getattr(training_env, name):
            raise ValueError(
                f"env: its {name} is {getattr(env, name)}, but {getattr(training_env, name)} in the agent's environment"
            )


@partial(jit, static_argnums=(0, 4))
def _play_compiled(
    environment: Environment, config: AgentConfig, params: Params, key: Key, n_episodes: int
) -> tuple[Array, Array, Array]:
    """Call `training.play_episodes` in a compiled program."""
    return training.play_episodes(key, environment, config, params, n_episodes)


def _play_gymnasium(
    adapter: GymnasiumAdapter, config: AgentConfig, members: Members, seed: int, n_episodes: int
) -> list[float]:
    """Play `n_episodes` episodes in a Gymnasium environment, and return their returns."""
    returns = []
    for i in range(n_episodes):
        observation = adapter.reset(int(np.random.SeedSequence([seed, EVALUATION + i]).generate_state(1)[0]))
        total, done, n_steps = 0.0, False, 0
        while not done and n_steps < MAX_STEPS:
            action = int(_act_greedily(config, members.policy, observation))
            observation, reward, terminated, truncated = adapter.step(action)
            total, done, n_steps = total + reward, terminated or truncated, n_steps + 1
        if not done:
            warnings.warn(
                f"env: an episode in {adapter.name} was not over after {MAX_STEPS} steps. It is ended here, and its "
                "return so far is used. gymnasium.wrappers.TimeLimit(env, max_episode_steps) sets a shorter limit.",
                stacklevel=4,
            )
        returns.append(total)
    return returns


@jit
def _act_greedily(config: AgentConfig, params: Params, observation: Array) -> Array:
    """Return the greedy action; the exploration of `config` is `Greedy`, which needs no key, step or episode."""
    return training.act(config, jax.random.key(0), params, observation, 0, 0).action
