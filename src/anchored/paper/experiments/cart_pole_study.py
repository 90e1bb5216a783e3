"""The paper's CartPole study: ten kinds of agent, five runs each, with the settings of the author's script.

Where that script differs from the paper, both are run (`slip`: every batch of an ensemble holds the whole last episode
too) or the script's number is taken. One thing is kept from neither: the script forgets the step at which an episode's
time is up; here it is remembered, and as a step after which more would have followed. Runs with the same number share
their starts and members, whatever the agent.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from dataclasses import replace as changed
from functools import partial
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import PyTreeDef

from anchored import trees
from anchored.inference import compilation_cache
from anchored.inference.solvers import blocks
from anchored.model.priors import Prior
from anchored.rl.config import AgentConfig, QLearningConfig, RunConfig
from anchored.rl.environments.cart_pole import CartPole
from anchored.rl.exploration import Choice, Episode, EpsilonGreedy, Exploration, Greedy, Thompson, Until
from anchored.rl.q_network import QNetwork
from anchored.rl.training import Log, play_episodes, train
from anchored.types import Array, Key, Number, Params

STATES = {  # position, its velocity, angle, its velocity
    "non-critical": (0.0, 0.0, 0.0, 0.0),
    "critical": (-0.05, -0.4, 0.2, 1.4),  # the pole is falling to the right: push right
    "rare": (-2.4, 1.0, 0.0, 0.0),
}
BATCH = 300
Tree = TypeVar("Tree")


@dataclass(frozen=True)
class Study:
    """How much is run. The defaults are the paper's."""

    n_episodes: int = 1000
    max_episode_steps: int = 200
    n_runs: int = 5
    width: int = 1000
    burn_in: int = 10  # episodes before the first update
    annealed_over: int = 400  # episodes in which ε falls
    greedy_from: int = 400  # episode of figure 9
    n_evaluated: int = 100  # greedy episodes at the end of each run
    window: int = 50  # episodes that curves are averaged over
    one_program: bool = False  # for all agents, on any device: less to compile, and more work
    seed: int = 0


@dataclass(frozen=True)
class Variant:
    """One kind of agent."""

    title: str
    figure: int
    n_members: int = 10
    exploration: str = "thompson"  # or "epsilon", or "until": Thompson sampling, then greedy
    pull: str = "anchored"  # or "to zero", or "none"
    first_scale: float = 7.0  # s.d. of the first layer
    slip: bool = False


VARIANTS = {
    "single": Variant("single network, ε-greedy", 3, 1, "epsilon", "to zero", 5.0),
    "thompson": Variant("10 anchored, Thompson", 4),
    "slip": Variant("10 anchored, Thompson, last episode in each batch", 4, slip=True),
    "until": Variant("10 anchored, Thompson, then greedy", 9, exploration="until"),
    "unanchored": Variant("10 unanchored, Thompson", 10, pull="none"),
    "epsilon": Variant("10 anchored, ε-greedy", 11, exploration="epsilon"),
    "members_3": Variant("3 anchored, Thompson", 12, 3),
    "members_5": Variant("5 anchored, Thompson", 12, 5),
    "members_20": Variant("20 anchored, Thompson", 12, 20),
}
BY_MEMBERS = {3: "members_3", 5: "members_5", 10: "thompson", 20: "members_20"}  # figure 12


class Runs(NamedTuple):
    """All runs of one variant; one run of it, before they are stacked."""

    reward: np.ndarray  # (runs, episodes)
    explored: np.ndarray  # (runs, episodes), steps, scaled as if the episode had had its full length
    q: np.ndarray  # (runs, episodes, members, states, actions), after the episode
    greedy_reward: np.ndarray  # (runs, evaluated episodes) of the trained agent
    greedy_end: np.ndarray  # (runs, evaluated episodes, 4), their last states


@trees.register
@dataclass(frozen=True)
class OfTheFirst:
    """An exploration to which only the first members count, though more are trained.

    Since members learn apart from each other, this is the smaller ensemble; and ensembles of all sizes are one
    program. The exploration sees two stand-ins with the mean and the variance of those who count.
    """

    n_members: int
    exploration: Exploration

    def __call__(self, key: Key, q: Array, episode: Episode) -> Choice:
        return self.exploration(key, self._stand_ins(q), episode)

    def probabilities(self, q: Array, number: Number) -> Array:
        return self.exploration.probabilities(self._stand_ins(q), number)

    def _stand_ins(self, q: Array) -> Array:
        counts = jnp.arange(q.shape[0])[:, None] < self.n_members
        mean = jnp.sum(q, 0, where=counts) / self.n_members
        variance = jnp.sum((q - mean) ** 2, 0, where=counts) / jnp.maximum(self.n_members - 1, 1)
        off = jnp.sqrt(variance / 2)
        return jnp.stack([mean - off, mean + off])


def configuration(study: Study, variant: Variant, n_estimators: int | None = None) -> RunConfig:
    """The author's settings. With `n_estimators` all variants are one program, and do work that does not count:
    so many members are trained, and the last episode joins every batch, if only with weight zero.

    All numbers are arrays, so that variants with the same structure share a compiled program.
    """
    pulled = float(variant.pull != "none")
    learning = QLearningConfig(
        QNetwork((study.width,), 2, activation="tanh"),
        Prior(_layers(0, 0, 0), _layers(variant.first_scale, variant.first_scale, 0.18 / study.width**0.5)),
        _layers(1e-6 * pulled, 1e-6 * pulled, 0.1 * pulled),
        n_estimators or variant.n_members,
        gamma=0.98,
        learning_rate=0.0015,
        optimizer="sgd",
        batch_size=BATCH,
        n_newest=study.max_episode_steps if variant.slip or n_estimators else 0,
        newest_weight=float(variant.slip),
        anchor_size=BATCH,
        anchored=variant.pull != "to zero",
    )
    exploration: Exploration = _exploration(study, variant)
    if n_estimators is not None:
        exploration = OfTheFirst(variant.n_members, exploration)
    agent = AgentConfig(
        learning,
        exploration,
        learning_starts=study.burn_in,
        buffer_size=study.n_episodes * study.max_episode_steps,
        reward_scale=1 / 20,
    )
    config = RunConfig(CartPole(study.max_episode_steps), agent, study.n_episodes, np.array(list(STATES.values())))
    number = jnp.result_type(float)
    return jax.tree.map(lambda x: np.asarray(x, number) if np.result_type(x).kind in "fi" else np.asarray(x), config)


def _layers(weights: float, bias: float, output: float) -> Params:
    """A number for each leaf; the output's bias starts at zero and is free."""
    return {"layer_0": {"weights": weights, "bias": bias}, "layer_1": {"weights": output, "bias": 0}}


def _exploration(study: Study, variant: Variant) -> Until:
    """Always of this one form, lest each need a program of its own: with ε = 0 the second part is greedy."""
    switch = {"thompson": np.inf, "until": study.greedy_from, "epsilon": 0}[variant.exploration]
    annealed = EpsilonGreedy(1.0, 0.1, study.annealed_over)
    return Until(switch, Thompson(), annealed if variant.exploration == "epsilon" else EpsilonGreedy(0.0, 0.0, 1))


def live(key: Key, config: RunConfig, n_evaluated: int) -> Runs:
    """One run, and greedy episodes of what has become of it."""
    train_state, log = train(key, config)
    exploration = config.agent.exploration
    greedy = changed(exploration, exploration=Greedy()) if isinstance(exploration, OfTheFirst) else Greedy()
    agent = changed(config.agent, exploration=greedy)
    reward, _, end = play_episodes(key, config.environment, agent, train_state.members.params, n_evaluated)
    # Tracers here; NumPy's once the program has run
    return Runs(*rewards_and_explorations(log), log.probed, reward, end)  # type: ignore[arg-type]


def rewards_and_explorations(log: Log) -> tuple[Array, Array]:
    """Of each episode: its reward, and how many of its steps explored, scaled to its full length."""
    most = log.reward.shape[1]
    took_place = jnp.arange(most) < log.length[:, None]
    explored = jnp.sum(log.explored, 1, where=took_place) / log.length * most
    return jnp.sum(log.reward, 1, where=took_place), explored


def run(
    study: Study, variants: Sequence[str] = tuple(VARIANTS), on_progress: Callable[[int], None] | None = None
) -> dict[str, Runs]:
    """All runs of each variant; `on_progress` is told how many have just ended."""
    compilation_cache.use()
    tell = on_progress or (lambda n: None)
    lanes = [(name, i) for name in variants for i in range(study.n_runs)]
    on_cpu = jax.default_backend() == "cpu"
    lives = _one_by_one(study, lanes, tell) if on_cpu else _side_by_side(study, lanes, tell)
    stacked = {name: _stacked([lives[name, i] for i in range(study.n_runs)]) for name in variants}
    return {name: r._replace(q=r.q[:, :, : VARIANTS[name].n_members]) for name, r in stacked.items()}


def _one_by_one(study: Study, lanes: list, tell: Callable[[int], None]) -> dict[tuple[str, int], Runs]:
    """One call a run, on all cores; the longest first, so that the cores end together."""
    lanes = sorted(lanes, key=lambda lane: -_work(VARIANTS[lane[0]]))
    most = max(VARIANTS[name].n_members for name, _ in lanes) if study.one_program else None
    configs = {name: configuration(study, VARIANTS[name], most) for name, _ in lanes}
    groups = _groups(configs)
    representatives = [configs[names[0]] for names in groups.values()]
    programs = blocks.run(lambda i: _compiled(live, study, _key(study, 0), representatives[i]), range(len(groups)))
    program_of = dict(zip(groups, programs, strict=True))

    def call(i: int) -> Runs:
        name, number = lanes[i]
        ended = program_of[jax.tree.structure(configs[name])](_key(study, number), configs[name])
        ended = jax.tree.map(np.asarray, ended)
        tell(1)
        return ended

    return dict(zip(lanes, blocks.run(call, range(len(lanes))), strict=True))


def _side_by_side(study: Study, lanes: list, tell: Callable[[int], None]) -> dict[tuple[str, int], Runs]:
    """One call for all runs, padded to the same number of members.

    A step takes a GPU as long for all of them as for one, so that only the number of calls counts.
    """
    most = max(VARIANTS[name].n_members for name, _ in lanes)
    configs = _stacked([configuration(study, VARIANTS[name], most) for name, _ in lanes])
    keys = jnp.stack([_key(study, number) for _, number in lanes])
    ended = jax.tree.map(np.asarray, _compiled(_many_lives, study, keys, configs)(keys, configs))
    tell(len(lanes))
    return {lane: trees.take(ended, i) for i, lane in enumerate(lanes)}


def _many_lives(keys: Key, configs: RunConfig, n_evaluated: int) -> Runs:
    return jax.vmap(partial(live, n_evaluated=n_evaluated))(keys, configs)


def _compiled(function: Callable, study: Study, key: Key, config: RunConfig) -> Callable:
    program = jax.jit(function, static_argnames="n_evaluated")
    return program.lower(key, config, n_evaluated=study.n_evaluated).compile()


def _groups(configs: dict[str, RunConfig]) -> dict[PyTreeDef, list[str]]:
    """Names of variants that are one program, by its structure."""
    groups: dict[PyTreeDef, list[str]] = {}
    for name, config in configs.items():
        groups.setdefault(jax.tree.structure(config), []).append(name)
    return groups


def _work(variant: Variant) -> float:
    """What a run costs, in members: updates are most of it."""
    return variant.n_members * (1 + variant.slip * 200 / BATCH)


def _key(study: Study, number: int) -> Key:
    return jax.random.fold_in(jax.random.key(study.seed), number)


def _stacked(instances: list[Tree]) -> Tree:
    return jax.tree.map(lambda *leaves: np.stack(leaves), *instances)
