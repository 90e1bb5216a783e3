"""How good a policy is: greedy episodes in an environment of their own."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from anchored.inference.compilation import jit
from anchored.rl import training
from anchored.rl.environments import GymnasiumAdapter
from anchored.rl.environments.environment import Environment
from anchored.rl.training import Agent
from anchored.rl.worlds import MOST_STEPS, CompiledWorld, SteppedWorld
from anchored.types import Array, Key, Params

Judge = Callable[[Agent, Params, int, int], list[float]]  # agent, its members, seed, episodes -> returns
APART = 2**30  # a stream of random numbers that training does not use


@contextmanager
def judge(env: Any, world: CompiledWorld | SteppedWorld) -> Iterator[Judge]:
    """Something that plays episodes in `env`, or in another environment like the agent's own, which is closed then.

    Every call with the same seed starts from the same states, so that agents compare.
    """
    if isinstance(world, CompiledWorld):
        environment = world.environment if env is None else env
        if not hasattr(environment, "observe"):
            raise TypeError(f"env: the agent lives in a compiled environment; pass another of these, got {env!r}")
        _check_alike(environment, world.kind)
        yield lambda agent, params, seed, n: _compiled(environment, agent, params, jax.random.key(seed), n)[0].tolist()
        return
    adapter = GymnasiumAdapter(_another(world) if env is None else env)
    try:
        if adapter.env.unwrapped is world.adapter.env.unwrapped:
            raise ValueError(
                "env: the agent learns in this very environment; evaluation would disturb it. Pass another, or None."
            )
        _check_alike(adapter, world.kind)
        yield partial(_stepped, adapter)
    finally:
        if adapter.env is not env:  # it was made here
            adapter.env.close()


def _another(world: SteppedWorld) -> Any:
    spec = world.adapter.env.spec
    if spec is None:
        raise ValueError(
            f"env: {world.adapter.name} was not made by gymnasium.make, so that another one cannot be made for "
            "evaluation. Pass one: env=... to evaluate, eval_env=... to learn."
        )
    return spec


def _check_alike(other: Any, own: Any) -> None:
    for name in ("n_actions", "n_observations", "observation_size"):
        if getattr(other, name) != getattr(own, name):
            raise ValueError(
                f"env: its {name} is {getattr(other, name)}, but {getattr(own, name)} where the agent learns"
            )


@partial(jit, static_argnums=(0, 4))
def _compiled(environment: Environment, agent: Agent, params: Params, key: Key, n_episodes: int) -> Any:
    return play_episodes(key, environment, agent, params, n_episodes)


def play_episodes(key: Key, environment: Environment, agent: Agent, params: Params, n_episodes: int) -> tuple:
    """Returns, lengths and last observations of so many episodes side by side."""
    key = jax.random.fold_in(key, APART)

    def episode(number: Array) -> tuple:
        def goes_on(carry: tuple) -> Array:
            return ~carry[-1]

        def step(carry: tuple) -> tuple:
            world, total, _ = carry
            observation = environment.observe(world.state)
            count = number * environment.max_episode_steps + world.n_steps
            action = training.act(agent, key, params, observation, count, number).action
            moved = environment.step(training.stream(key, training.CHANCE, count), world.state, action)
            n_steps = world.n_steps + 1
            over = moved.terminated | (n_steps >= environment.max_episode_steps)
            return training.World(moved.state, n_steps), total + moved.reward, over

        first = training.first_step(environment, key, number)
        start = (first, jnp.zeros((), jnp.result_type(float)), jnp.zeros((), bool))
        world, total, _ = jax.lax.while_loop(goes_on, step, start)
        return total, world.n_steps, environment.observe(world.state)

    return jax.vmap(episode)(jnp.arange(n_episodes, dtype=jnp.int32))


def _stepped(adapter: GymnasiumAdapter, agent: Agent, params: Params, seed: int, n_episodes: int) -> list[float]:
    returns = []
    for i in range(n_episodes):
        observation = adapter.reset(int(np.random.SeedSequence([seed, APART + i]).generate_state(1)[0]))
        total, over, n_steps = 0.0, False, 0
        while not over and n_steps < MOST_STEPS:
            observation, reward, terminated, truncated = adapter.step(int(_act_greedily(agent, params, observation)))
            total, over, n_steps = total + reward, terminated or truncated, n_steps + 1
        if not over:
            warnings.warn(
                f"env: an episode in {adapter.name} was not over after {MOST_STEPS} steps, and is counted as it stood. "
                "gymnasium.wrappers.TimeLimit(env, max_episode_steps) sets a limit.",
                stacklevel=4,
            )
        returns.append(total)
    return returns


@jit
def _act_greedily(agent, params, observation):
    """`agent` explores by `Greedy`, so that neither step nor episode matter."""
    return training.act(agent, jax.random.key(0), params, observation, 0, 0).action
