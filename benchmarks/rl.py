"""The figure-4 agent beside the same agent as a Gymnasium loop in torch: steps a second, in one run.

    python benchmarks/rl.py                                         torch and gymnasium are needed
    python benchmarks/rl.py --quick                                 a few episodes; without torch if there is none

All that is compared runs interleaved; times are medians over --repeats.
"""

import argparse
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import reporting
from reporting import Json, Measured, measured

N_MEMBERS, WIDTH, MAX_STEPS, BATCH = 10, 1000, 200, 300
DISCOUNT, REWARD_SCALE, LEARNING_RATE = 0.98, 1 / 20, 0.0015
STRENGTHS = (1e-6, 1e-6, 0.1, 0.0)  # of the pull to the anchor: weights and bias of both layers, divided by BATCH
OURS, MODULES, STACKED = "anchored", "torch, a loop over modules", "torch, bmm"
GOALS = {MODULES: 30, STACKED: 5}  # times slower than ours, at least
NEVER = 2**30  # a round that no run comes to


class Game(NamedTuple):
    """So many episodes, each with an update at its end: how long they took."""

    n_steps: float
    n_episodes: float
    acting: float  # seconds, the environment's own included
    learning: float  # seconds


def medians(games: list[Game]) -> Game:
    """A step's and an update's median cost, at the mean number of steps."""
    steps = float(np.mean([game.n_steps for game in games]))
    acting = np.median([game.acting / game.n_steps for game in games])
    learning = np.median([game.learning / game.n_episodes for game in games])
    return Game(steps, games[0].n_episodes, acting * steps, learning * games[0].n_episodes)


# The figure-4 agent, ours


def figure_4(n_episodes: int, quick: bool = False) -> Any:
    """The study's configuration, less what only its figures need: Q-values on record, a change of exploration."""
    from anchored.paper.experiments.cart_pole_study import VARIANTS, Study, configuration
    from anchored.rl.exploration import Thompson

    config = configuration(Study(n_episodes=n_episodes, width=50 if quick else WIDTH), VARIANTS["thompson"])
    return replace(config, agent=replace(config.agent, exploration=Thompson()), probes=None)


class Ours:
    """The compiled program, continued from a trained agent."""

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

    def game(self, seed: int) -> Game:
        """Updates cannot be timed inside the program: they cost what a game with them takes longer, step for step."""
        idle_seconds, idle_steps = self._timed(replace(self.config, agent=self._agent(NEVER)), seed)
        seconds, n_steps = self._timed(replace(self.config, agent=self._agent(0)), seed)
        acting = idle_seconds / idle_steps * n_steps
        return Game(n_steps, self.n_episodes, acting, seconds - acting)

    def _agent(self, learning_starts: int) -> Any:
        agent = self.config.agent
        return replace(agent, learning_starts=np.asarray(learning_starts, np.result_type(agent.learning_starts)))

    def _timed(self, config: Any, seed: int) -> tuple[float, int]:
        """Seconds and steps, without the copy of the agent that is then given up to the program."""
        import jax
        import jax.numpy as jnp

        train_state = jax.block_until_ready(jax.tree.map(jnp.copy, self.train_state._replace(key=jax.random.key(seed))))
        before = int(train_state.n_steps)
        started = time.perf_counter()
        train_state, _ = jax.block_until_ready(self.play(config, train_state))
        return time.perf_counter() - started, int(train_state.n_steps) - before


# The same agent in torch


class Memory:
    """Transitions in arrays of fixed size, as they are commonly kept; started with our agent's buffer."""

    def __init__(self, train_state: Any, seed: int):
        kept = train_state.buffer.transitions
        self.fields = (
            np.array(kept.observation),
            np.array(kept.action, np.int64),  # which torch indexes with
            np.array(kept.reward),
            np.array(kept.next_observation),
            np.array(kept.terminated, np.float32),
        )
        self.size, self.capacity = int(train_state.buffer.n_added), train_state.buffer.buffer_size
        self.random = np.random.default_rng(seed)

    def add(self, *transition: Any) -> None:
        """One step, over the oldest where there is no room."""
        place = self.size % self.capacity
        for field, value in zip(self.fields, transition, strict=True):
            field[place] = value
        self.size += 1

    def draw(self) -> tuple:
        """A batch with replacement: observations, actions, rewards, next observations, terminated."""
        return self.rows(self.random.integers(min(self.size, self.capacity), size=BATCH))

    def rows(self, places: np.ndarray) -> tuple:
        """The transitions at these places, as tensors."""
        import torch

        return tuple(torch.from_numpy(field[places]) for field in self.fields)


def leaves(params: Any) -> list[np.ndarray]:
    """Weights and bias of both layers, each with a leading axis of members, in the order of STRENGTHS."""
    return [np.array(params[layer][part]) for layer in ("layer_0", "layer_1") for part in ("weights", "bias")]


def pull(parameters: Any, anchors: Any) -> Any:
    """Squared distance from the anchors, weighted by layer; the output's bias is free."""
    triples = zip(parameters, anchors, STRENGTHS, strict=True)
    return sum(strength * ((p - anchor) ** 2).sum() for p, anchor, strength in triples if strength) / BATCH


class TorchModules:
    """The plain way: a module and an optimiser for each member, one after the other."""

    def __init__(self, params: Any, anchors: Any):
        import torch
        from torch import nn

        self.members = []
        for i in range(N_MEMBERS):
            module = nn.Sequential(nn.Linear(4, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 2))
            starts, own_anchors = ([torch.tensor(leaf[i].T) for leaf in leaves(tree)] for tree in (params, anchors))
            with torch.no_grad():
                for parameter, start in zip(module.parameters(), starts, strict=True):
                    parameter.copy_(start)
            optimizer = torch.optim.SGD(module.parameters(), lr=LEARNING_RATE)
            self.members.append((module, own_anchors, optimizer))

    def q_values(self, observation: np.ndarray) -> Any:
        """(members, actions)"""
        import torch

        with torch.no_grad():
            inputs = torch.from_numpy(observation)
            return torch.stack([module(inputs) for module, _, _ in self.members])

    def update(self, observation: Any, action: Any, reward: Any, following: Any, terminated: Any) -> None:
        """A step of SGD for each member, on a batch that all share, with targets of its own."""
        import torch

        for module, anchors, optimizer in self.members:
            with torch.no_grad():
                target = reward + DISCOUNT * (1 - terminated) * module(following).max(1).values
            q = module(observation).gather(1, action[:, None])[:, 0]
            loss = ((q - target) ** 2).mean() + pull(module.parameters(), anchors)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    def stacked_leaves(self) -> list[np.ndarray]:
        """The members' parameters, laid out as ours."""
        own = [[parameter.detach().numpy().T for parameter in module.parameters()] for module, _, _ in self.members]
        return [np.stack(parts) for parts in zip(*own, strict=True)]


class TorchStacked:
    """The fast way: all members in batched products, one backward pass and the fused optimiser."""

    def __init__(self, params: Any, anchors: Any):
        import torch

        # biases get an axis of one row, along which they are broadcast
        starts, self.anchors = (
            [torch.tensor(leaf if leaf.ndim == 3 else leaf[:, None]) for leaf in leaves(tree)]
            for tree in (params, anchors)
        )
        self.parameters = [start.requires_grad_() for start in starts]
        self.optimizer = torch.optim.SGD(self.parameters, lr=LEARNING_RATE, fused=True)

    def forward(self, inputs: Any) -> Any:
        """(members, rows, actions)"""
        import torch

        first, first_bias, last, last_bias = self.parameters
        hidden = torch.tanh(torch.baddbmm(first_bias, inputs.expand(N_MEMBERS, *inputs.shape), first))
        return torch.baddbmm(last_bias, hidden, last)

    def q_values(self, observation: np.ndarray) -> Any:
        """(members, actions)"""
        import torch

        with torch.inference_mode():
            return self.forward(torch.from_numpy(observation)[None])[:, 0]

    def update(self, observation: Any, action: Any, reward: Any, following: Any, terminated: Any) -> None:
        """One step of SGD for all members."""
        import torch

        with torch.no_grad():
            target = reward + DISCOUNT * (1 - terminated) * self.forward(following).amax(2)
        q = self.forward(observation).gather(2, action[:, None].expand(N_MEMBERS, BATCH, 1))[..., 0]
        loss = ((q - target) ** 2).mean(1).sum() + pull(self.parameters, self.anchors)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def stacked_leaves(self) -> list[np.ndarray]:
        """The members' parameters, laid out as ours."""
        arrays = [parameter.detach().numpy() for parameter in self.parameters]
        return [arrays[0], arrays[1][:, 0], arrays[2], arrays[3][:, 0]]


def thompson(q: Any, random: np.random.Generator) -> int:
    """Algorithm 1 for two actions: the first as often as its normal is the larger."""
    import torch

    variance, mean = (part.tolist() for part in torch.var_mean(q, 0))
    first = 0.5 * (1 + math.erf((mean[0] - mean[1]) / math.sqrt(2 * sum(variance))))
    return 0 if random.random() < first else 1


def torch_game(make_members: Callable, n_threads: int, train_state: Any, n_episodes: int, seed: int) -> Game:
    """The loop that people write, from our agent's state."""
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
        over = False
        while not over:
            action = thompson(members.q_values(observation), random)
            following, reward, terminated, truncated, _ = environment.step(action)
            memory.add(observation, action, reward * REWARD_SCALE, following, terminated)
            observation, over = following, terminated or truncated
            n_steps += 1
        ended = time.perf_counter()
        members.update(*memory.draw())
        acting, learning = acting + ended - started, learning + time.perf_counter() - ended
    return Game(n_steps, n_episodes, acting, learning)


def best_threads(make_members: Callable, train_state: Any) -> int:
    """How many threads torch is fastest with; on a busy machine two can be far slower than one."""

    from anchored.inference.solvers.blocks import n_cores

    def cost(n_threads: int) -> float:
        game = torch_game(make_members, n_threads, train_state, 5, seed=0)
        return (game.acting + game.learning) / game.n_steps

    cost(1)  # what only the first call pays
    return min(sorted({1, n_cores()}), key=cost)


def check_same_agent(config: Any, train_state: Any) -> None:
    """Torch's members have our Q-values, and learn the same from the same batch; otherwise times mean nothing."""
    import jax

    from anchored.rl import q_learning, replay

    key, learning = jax.random.key(0), config.agent.learning
    observation = np.array([0.1, -0.2, 0.03, 0.4], np.float32)
    places = np.asarray(replay.sample(jax.random.fold_in(key, 0), train_state.buffer, BATCH))  # as `update` draws them
    for distance in (1, 1e6):  # to the anchors; the pull to those near by is lost in rounding
        anchors = jax.tree.map(lambda anchor: distance * anchor, train_state.members.anchors)  # noqa: B023
        members = train_state.members._replace(anchors=anchors)
        q = np.asarray(q_learning.q_values(learning.network, members.params, observation))
        before = leaves(members.params)
        after = leaves(jax.jit(q_learning.update)(key, learning, members, train_state.buffer, 0).params)
        for make_members in (TorchModules, TorchStacked):
            theirs = make_members(members.params, members.anchors)
            np.testing.assert_allclose(theirs.q_values(observation).numpy(), q, rtol=1e-3, atol=1e-4)
            theirs.update(*Memory(train_state, 0).rows(places))
            for old, new, their_new in zip(before, after, theirs.stacked_leaves(), strict=True):
                rounding = 4 * np.finfo(np.float32).eps * np.abs(old).max()
                np.testing.assert_allclose(their_new - old, new - old, rtol=1e-2, atol=rounding)


def beside_torch(n_trained: int, n_episodes: int, repeats: int, with_torch: bool = True) -> list[Measured]:
    """All go on from one agent, trained for a while, with the same number of episodes and updates."""
    import jax

    from anchored.rl.training import train

    config = figure_4(n_trained + n_episodes, quick=not with_torch)
    train_state, _ = jax.jit(train)(jax.random.key(0), replace(config, n_rollouts=n_trained))
    if with_torch:
        check_same_agent(config, train_state)
    ours = Ours(train_state, config, n_episodes)
    ours.game(0)  # what only the first call pays
    works = {OURS: ours.game}
    threads = {}
    for name, make_members in ((MODULES, TorchModules), (STACKED, TorchStacked)) if with_torch else ():
        threads[name] = best_threads(make_members, train_state)
        works[name] = partial(torch_game, make_members, threads[name], train_state, n_episodes)
    rounds = [{name: work(seed=1 + i) for name, work in works.items()} for i in range(repeats)]
    games = {name: medians([one[name] for one in rounds]) for name in works}
    # Whoever happens on longer episodes has fewer updates a step: all are charged for episodes of one length.
    length = float(np.mean([game.n_steps / game.n_episodes for game in games.values()]))
    a_step = {name: game.acting / game.n_steps for name, game in games.items()}
    an_update = {name: game.learning / game.n_episodes for name, game in games.items()}
    cost = {name: a_step[name] + an_update[name] / length for name in games}
    return [
        measured(f"compilation, not counted below: {OURS}", ours.compile_seconds, "s"),
        *[measured(f"fastest with: {name}", number, "threads") for name, number in threads.items()],
        *[measured(f"an episode: {name}", game.n_steps / game.n_episodes, "steps") for name, game in games.items()],
        *[measured(f"acting, a step: {name}", 1e6 * seconds, "µs") for name, seconds in a_step.items()],
        *[measured(f"learning, an episode: {name}", 1e3 * seconds, "ms") for name, seconds in an_update.items()],
        *[measured(f"both, a step of an episode's {length:.0f}: {name}", 1e6 * cost[name], "µs") for name in games],
        *[measured(f"throughput: {name}", 1 / cost[name], "steps/s") for name in games],
        *[
            measured(f"{name} / {OURS}: {part}", seconds[name] / seconds[OURS], "×")
            for name in threads
            for part, seconds in (("acting", a_step), ("learning", an_update))
        ],
        *[measured(f"{name} / {OURS}: both", cost[name] / cost[OURS], "×", GOALS[name], True) for name in threads],
    ]


def main(arguments: Sequence[str] | None = None) -> Json:
    """Measure ours and torch's."""
    parser = reporting.parser_of(__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--trained", type=int, default=300, help="episodes that the agent starts with")
    parser.add_argument("--episodes", type=int, default=100, help="episodes that are timed")
    options = parser.parse_args(arguments)
    if options.quick:
        options.repeats, options.trained, options.episodes = 1, 12, 3
    settings = {"repeats": options.repeats, "episodes": options.episodes, "trained": options.trained}
    return reporting.run_and_store("rl", options, settings, run(options), tables)


def run(options: argparse.Namespace) -> Iterator[Json]:
    """All at once. A quick run leaves torch out where it is not installed."""
    with_torch = not options.quick or find_spec("torch") is not None
    yield {"beside_torch": beside_torch(options.trained, options.episodes, options.repeats, with_torch)}


def tables(stored: Json) -> dict[str, str]:
    """Seconds of each, and ratios."""
    lines = stored["beside_torch"]
    return {"agent_speed": reporting.measured_table(stored, "python benchmarks/rl.py", lines)}


if __name__ == "__main__":
    main()
