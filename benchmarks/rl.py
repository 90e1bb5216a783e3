"""Speed of the agent of figure 4, compared with the same agent in torch and Gymnasium.

    python benchmarks/rl.py                                         needs torch and gymnasium
    python benchmarks/rl.py --quick                                 a few episodes; without torch if it is not installed

The programs are run in turn; times are medians over --repeats.
"""

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import reporting
from reporting import Json, Measured, measured
from rl_torch import BATCH, REWARD_SCALE, WIDTH, Memory, TorchModules, TorchStacked, leaves, thompson

MAX_STEPS = 200
OURS, MODULES, STACKED = "anchored", "torch, a loop over modules", "torch, bmm"
GOALS = {MODULES: 30, STACKED: 5}  # smallest ratio of their time to ours
NEVER = 2**30  # a number of rollouts that no run reaches


class Timing(NamedTuple):
    """The time of some episodes, each with an update at its end."""

    n_steps: float
    n_episodes: float
    acting: float  # seconds, including those of the environment
    learning: float  # seconds


def medians(timings: list[Timing]) -> Timing:
    """Return a timing with the mean number of steps of `timings`, and their median times per step and per update."""
    steps = float(np.mean([timing.n_steps for timing in timings]))
    acting = np.median([timing.acting / timing.n_steps for timing in timings])
    learning = np.median([timing.learning / timing.n_episodes for timing in timings])
    return Timing(steps, timings[0].n_episodes, acting * steps, learning * timings[0].n_episodes)


# Our agent


def figure_4(n_episodes: int, quick: bool = False) -> Any:
    """Return the configuration of the agent of figure 4 for `n_episodes`, with a small network if `quick`.

    Unlike in the study, Q-values are not logged, and the exploration rule is Thompson sampling alone.
    """
    from anchored.paper.experiments.cart_pole_study import VARIANTS, Study, configuration
    from anchored.rl.exploration import Thompson

    config = configuration(Study(n_episodes=n_episodes, width=50 if quick else WIDTH), VARIANTS["thompson"])
    return replace(config, agent=replace(config.agent, exploration=Thompson()), probes=None)


class Ours:
    """Our agent: a compiled program that continues from a trained agent.

    Parameters
    ----------
    train_state
        The trained agent.
    config
        Configuration of the run.
    n_episodes
        Number of episodes that are timed.
    """

    def __init__(self, train_state: Any, config: Any, n_episodes: int):
        import jax

        from anchored.rl.training import reset, rollout_and_update

        def play(config: Any, train_state: Any) -> Any:
            def episode(carry: tuple, _: None) -> tuple:
                train_state, env_state, log = rollout_and_update(config, *carry)
                return (train_state, env_state), log

            env_state = reset(config.environment, train_state.key, train_state.n_episodes)
            (train_state, _), log = jax.lax.scan(episode, (train_state, env_state), None, length=n_episodes)
            return train_state, log

        self.train_state, self.config, self.n_episodes = train_state, config, n_episodes
        traced = jax.jit(play, donate_argnums=1).lower(config, train_state)
        started = time.perf_counter()
        self.play = traced.compile()
        self.compile_seconds = time.perf_counter() - started

    def time_episodes(self, seed: int) -> Timing:
        """Time episodes with random numbers from `seed`.

        Updates cannot be timed inside the program. Their time is the difference between runs with and without them.
        """
        acting_seconds, acting_steps = self._timed(replace(self.config, agent=self._agent(NEVER)), seed)
        seconds, n_steps = self._timed(replace(self.config, agent=self._agent(0)), seed)
        acting = acting_seconds / acting_steps * n_steps
        return Timing(n_steps, self.n_episodes, acting, seconds - acting)

    def _agent(self, learning_starts: int) -> Any:
        """Return the agent's configuration with another `learning_starts`."""
        agent = self.config.agent
        return replace(agent, learning_starts=np.asarray(learning_starts, np.result_type(agent.learning_starts)))

    def _timed(self, config: Any, seed: int) -> tuple[float, int]:
        """Return seconds and number of steps; copying the agent, whose memory the program reuses, is not counted."""
        import jax
        import jax.numpy as jnp

        train_state = jax.block_until_ready(jax.tree.map(jnp.copy, self.train_state._replace(key=jax.random.key(seed))))
        before = int(train_state.n_steps)
        started = time.perf_counter()
        train_state, _ = jax.block_until_ready(self.play(config, train_state))
        return time.perf_counter() - started, int(train_state.n_steps) - before


# The same agent in torch


def time_torch(make_members: Callable, n_threads: int, train_state: Any, n_episodes: int, seed: int) -> Timing:
    """Time `n_episodes` of the usual loop in torch and Gymnasium, from our agent's `train_state`.

    `make_members` is `TorchModules` or `TorchStacked`; torch uses `n_threads` threads; `seed` is the random seed.
    """
    import gymnasium
    import torch

    torch.set_num_threads(n_threads)
    members, memory = make_members(train_state.members.params, train_state.members.anchors), Memory(train_state, seed)
    environment = gymnasium.make("CartPole-v1", max_episode_steps=MAX_STEPS)
    random = np.random.default_rng(seed)
    environment.reset(seed=seed)
    n_steps, acting, learning = 0, 0.0, 0.0
    for _ in range(n_episodes):
        started = time.perf_counter()
        observation, _ = environment.reset()
        done = False
        while not done:
            action = thompson(members.q_values(observation), random)
            next_observation, reward, terminated, truncated, _ = environment.step(action)
            memory.add(observation, action, reward * REWARD_SCALE, next_observation, terminated)
            observation, done = next_observation, terminated or truncated
            n_steps += 1
        ended = time.perf_counter()
        members.update(*memory.draw())
        acting, learning = acting + ended - started, learning + time.perf_counter() - ended
    return Timing(n_steps, n_episodes, acting, learning)


def best_threads(make_members: Callable, train_state: Any) -> int:
    """Return the number of threads with which torch is fastest; on a busy machine two can be slower than one.

    `make_members` and `train_state` are as in `time_torch`.
    """
    from anchored.inference.solvers.blocks import n_cores

    def cost(n_threads: int) -> float:
        timing = time_torch(make_members, n_threads, train_state, 5, seed=0)
        return (timing.acting + timing.learning) / timing.n_steps

    cost(1)  # the first call is slower
    return min(sorted({1, n_cores()}), key=cost)


def check_same_agent(config: Any, train_state: Any) -> None:
    """Raise unless torch's members have the same Q-values and updates as our agent, `config` and `train_state`."""
    import jax

    from anchored.rl import q_learning, replay

    key, learning = jax.random.key(0), config.agent.learning
    observation = np.array([0.1, -0.2, 0.03, 0.4], np.float32)
    indices = np.asarray(replay.sample(jax.random.fold_in(key, 0), train_state.buffer, BATCH))  # as `update` draws them
    for factor in (1, 1e6):  # close to the anchors, the penalty is lost in rounding
        anchors = jax.tree.map(lambda anchor: factor * anchor, train_state.members.anchors)  # noqa: B023
        members = train_state.members._replace(anchors=anchors)
        q = np.asarray(q_learning.q_values(learning.network, members.params, observation))
        before = leaves(members.params)
        update = jax.jit(q_learning.update)
        after = leaves(update(key, learning, members, train_state.buffer, 0, REWARD_SCALE).params)
        for make_members in (TorchModules, TorchStacked):
            theirs = make_members(members.params, members.anchors)
            np.testing.assert_allclose(theirs.q_values(observation).numpy(), q, rtol=1e-3, atol=1e-4)
            theirs.update(*Memory(train_state, 0).rows(indices))
            for old, new, their_new in zip(before, after, theirs.stacked_leaves(), strict=True):
                rounding = 4 * np.finfo(np.float32).eps * np.abs(old).max()
                np.testing.assert_allclose(their_new - old, new - old, rtol=1e-2, atol=rounding)


def compare_with_torch(n_trained: int, n_episodes: int, repeats: int, with_torch: bool = True) -> list[Measured]:
    """Measure all programs from the same trained agent, with the same number of episodes and updates.

    The agent is trained for `n_trained` episodes; `n_episodes` are timed, `repeats` times.
    """
    import jax

    from anchored.rl.training import train

    config = figure_4(n_trained + n_episodes, quick=not with_torch)
    train_state, _ = jax.jit(train)(jax.random.key(0), replace(config, n_rollouts=n_trained))
    if with_torch:
        check_same_agent(config, train_state)
    ours = Ours(train_state, config, n_episodes)
    ours.time_episodes(0)  # the first call is slower
    measurements = {OURS: ours.time_episodes}
    threads = {}
    for name, make_members in ((MODULES, TorchModules), (STACKED, TorchStacked)) if with_torch else ():
        threads[name] = best_threads(make_members, train_state)
        measurements[name] = partial(time_torch, make_members, threads[name], train_state, n_episodes)
    rounds = [{name: measure(seed=1 + i) for name, measure in measurements.items()} for i in range(repeats)]
    timings = {name: medians([by_name[name] for by_name in rounds]) for name in measurements}
    # Longer episodes mean fewer updates per step, so the cost is computed for episodes of the same length.
    length = float(np.mean([timing.n_steps / timing.n_episodes for timing in timings.values()]))
    step_seconds = {name: timing.acting / timing.n_steps for name, timing in timings.items()}
    update_seconds = {name: timing.learning / timing.n_episodes for name, timing in timings.items()}
    cost = {name: step_seconds[name] + update_seconds[name] / length for name in timings}
    return [
        measured(f"compilation, not counted below: {OURS}", ours.compile_seconds, "s"),
        *[measured(f"best number of threads: {name}", number, "threads") for name, number in threads.items()],
        *[
            measured(f"length of an episode: {name}", timing.n_steps / timing.n_episodes, "steps")
            for name, timing in timings.items()
        ],
        *[measured(f"acting, per step: {name}", 1e6 * seconds, "µs") for name, seconds in step_seconds.items()],
        *[measured(f"learning, per episode: {name}", 1e3 * seconds, "ms") for name, seconds in update_seconds.items()],
        *[
            measured(f"acting and learning, per step, {length:.0f} steps an episode: {name}", 1e6 * cost[name], "µs")
            for name in timings
        ],
        *[measured(f"throughput: {name}", 1 / cost[name], "steps/s") for name in timings],
        *[
            measured(f"{name} / {OURS}: {part}", seconds[name] / seconds[OURS], "×")
            for name in threads
            for part, seconds in (("acting", step_seconds), ("learning", update_seconds))
        ],
        *[
            measured(f"{name} / {OURS}: acting and learning", cost[name] / cost[OURS], "×", GOALS[name], True)
            for name in threads
        ],
    ]


def main(arguments: Sequence[str] | None = None) -> Json:
    """Measure our agent and torch's, with the command line `arguments`; return the stored result."""
    parser = reporting.parser_of(__doc__)
    parser.add_argument("--repeats", type=int, default=5, help="number of measurements; default: 5")
    parser.add_argument("--trained", type=int, default=300, help="number of training episodes before; default: 300")
    parser.add_argument("--episodes", type=int, default=100, help="number of episodes that are timed; default: 100")
    options = parser.parse_args(arguments)
    if options.quick:
        options.repeats, options.trained, options.episodes = 1, 12, 3
    settings = {"repeats": options.repeats, "episodes": options.episodes, "trained": options.trained}
    return reporting.run_and_store("rl", options, settings, run(options), tables)


def run(options: argparse.Namespace) -> Iterator[Json]:
    """Yield the measured numbers once, with the `options` of the command line.

    A quick run leaves torch out if it is not installed.
    """
    with_torch = not options.quick or find_spec("torch") is not None
    yield {"beside_torch": compare_with_torch(options.trained, options.episodes, options.repeats, with_torch)}


def tables(stored: Json) -> dict[str, str]:
    """Return the table of times and ratios in `stored`."""
    lines = stored["beside_torch"]
    return {"agent_speed": reporting.measured_table(stored, "python benchmarks/rl.py", lines)}


if __name__ == "__main__":
    main()
