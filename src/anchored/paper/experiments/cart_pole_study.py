"""The paper's CartPole study: nine kinds of agent, five runs each, with the settings of the author's script.

Where the script's settings differ from the paper's, the script's are used, with the exceptions listed in DEVIATIONS.
Runs with the same index have the same initial states and members in all variants.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
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

STATES = {  # position in m, velocity in m/s, angle in rad, angular velocity in rad/s
    "non-critical": (0.0, 0.0, 0.0, 0.0),
    "critical": (-0.05, -0.4, 0.2, 1.4),  # the pole is falling to the right: the better action is 1, which pushes right
    "rare": (-2.4, 1.0, 0.0, 0.0),
}
BATCH = 300  # number of transitions in a batch
DEVIATIONS = (  # from the paper and from the script that its author released
    "The paper gives few settings, so they are taken from the script: for example one hidden layer of 1,000 tanh "
    "units, a prior s.d. of 7 in the first layer of an ensemble and of 5 in a single network, and anchor strengths for "
    "each layer.",
    "The script does not store the step at which an episode reaches its time limit. Here this step is stored, as one "
    "that does not terminate the episode.",
    "By mistake, the script adds the whole last episode to every batch of an ensemble. The agent of figure 4 is run "
    "without and with this mistake.",
    "Members are first updated after the eleventh episode. The script names a burn-in of 10 episodes in a comment, but "
    "its committed value is 500.",
    "ε falls linearly from 1 to 0.1 over the first 400 episodes, as the paper says; the episodes before the first "
    "update are part of this schedule.",
    "A step counts as exploration if its action is not the one with the highest mean Q-value over members or, for "
    "ε-greedy, if it was drawn at random, even if the draw agrees with the greedy action.",
    "Runs have 1,000 episodes of at most 200 steps, as in the paper; the committed values of the script differ.",
    "There is one update after each episode, as committed. A comment in the script suggests ten, which a benchmark "
    "measures (`python benchmarks/cart_pole.py`).",
)
Tree = TypeVar("Tree")
RunId = tuple[str, int]  # name of a variant, and index of a run


@dataclass(frozen=True)
class Study:
    """Sizes of the study; the defaults are the paper's."""

    n_episodes: int = 1000  # number of training episodes in a run
    max_episode_steps: int = 200  # time limit of an episode, in steps
    n_runs: int = 5  # number of runs of each variant
    n_updates: int = 1  # number of updates after each episode
    width: int = 1000  # number of hidden units
    burn_in: int = 10  # number of episodes before the first update
    annealed_over: int = 400  # number of episodes over which ε falls
    greedy_from: int = 400  # episode from which the agent of figure 9 is greedy
    n_evaluated: int = 100  # number of greedy episodes at the end of each run
    window: int = 50  # number of episodes that curves are averaged over
    one_program: bool = False  # whether all variants share one program: less to compile, but more to compute
    seed: int = 0  # random seed of the runs


@dataclass(frozen=True)
class Variant:
    """One kind of agent."""

    title: str  # in pictures and tables
    figure: int  # number of its figure in the paper
    n_members: int = 10  # number of networks
    exploration: str = "thompson"  # or "epsilon", or "until": Thompson sampling, then greedy
    penalty: str = "anchor"  # on the distance from the "anchor", from "zero", or "none"
    first_scale: float = 7.0  # prior scale of the first layer
    last_episode_in_batch: bool = False  # the mistake of the author's script


VARIANTS = {
    "single": Variant("single network, ε-greedy", 3, 1, "epsilon", "zero", 5.0),
    "thompson": Variant("10 anchored, Thompson", 4),
    "last_episode": Variant("10 anchored, Thompson, last episode in each batch", 4, last_episode_in_batch=True),
    "until": Variant("10 anchored, Thompson, then greedy", 9, exploration="until"),
    "unanchored": Variant("10 unanchored, Thompson", 10, penalty="none"),
    "epsilon": Variant("10 anchored, ε-greedy", 11, exploration="epsilon"),
    "members_3": Variant("3 anchored, Thompson", 12, 3),
    "members_5": Variant("5 anchored, Thompson", 12, 5),
    "members_20": Variant("20 anchored, Thompson", 12, 20),
}
BY_MEMBERS = {3: "members_3", 5: "members_5", 10: "thompson", 20: "members_20"}  # figure 12


class Runs(NamedTuple):
    """All runs of one variant, or a single run, without the axis of runs."""

    reward: np.ndarray  # (runs, episodes)
    explored: np.ndarray  # (runs, episodes), exploring steps, scaled to an episode of full length
    q: np.ndarray  # (runs, episodes, members, states, actions), Q-values after the episode
    greedy_reward: np.ndarray  # (runs, evaluated episodes), of the trained agent
    greedy_end: np.ndarray  # (runs, evaluated episodes, 4), last states of these episodes


@trees.register
@dataclass(frozen=True)
class FirstMembersOnly:
    """Apply an exploration rule to the first members only, though more are trained.

    Members are trained independently, so this is the same as a smaller ensemble, and ensembles of all sizes share one
    program. The rule receives two representatives with the same mean and variance as the first members.

    Parameters
    ----------
    n_members
        Number of members that the rule uses.
    exploration
        The rule.
    """

    n_members: int
    exploration: Exploration

    def __call__(self, key: Key, q: Array, episode: Episode) -> Choice:
        """Return the choice of the rule; the arguments are as in `Exploration`."""
        return self.exploration(key, self._representatives(q), episode)

    def probabilities(self, q: Array, number: Number) -> Array:
        """Return the probabilities of the rule for `q` in episode `number`, (actions,); see `Exploration`."""
        return self.exploration.probabilities(self._representatives(q), number)

    def _representatives(self, q: Array) -> Array:
        """Return two rows of Q-values, (2, actions), with the mean and variance of the first members."""
        is_used = jnp.arange(q.shape[0])[:, None] < self.n_members
        mean = jnp.sum(q, 0, where=is_used) / self.n_members
        variance = jnp.sum((q - mean) ** 2, 0, where=is_used) / jnp.maximum(self.n_members - 1, 1)
        half_distance = jnp.sqrt(variance / 2)
        return jnp.stack([mean - half_distance, mean + half_distance])


def configuration(study: Study, variant: Variant, n_estimators: int | None = None) -> RunConfig:
    """Return the configuration of a run, with the author's settings.

    All numbers are arrays, so that variants with the same structure share a compiled program.

    Parameters
    ----------
    study
        Sizes of the study.
    variant
        The kind of agent.
    n_estimators
        None for the variant's number of members. A number gives all variants the same structure: so many members are
        trained, but exploration uses only as many as the variant has; and every batch contains the last episode, with
        weight zero unless the variant needs it.
    """
    strength = float(variant.penalty != "none")
    learning = QLearningConfig(
        QNetwork((study.width,), 2, activation="tanh"),
        Prior(_layers(0, 0, 0), _layers(variant.first_scale, variant.first_scale, 0.18 / study.width**0.5)),
        _layers(1e-6 * strength, 1e-6 * strength, 0.1 * strength),
        n_estimators or variant.n_members,
        gamma=0.98,
        learning_rate=0.0015,
        optimizer="sgd",
        batch_size=BATCH,
        gradient_steps=study.n_updates,
        n_newest=study.max_episode_steps if variant.last_episode_in_batch or n_estimators else 0,
        newest_weight=float(variant.last_episode_in_batch),
        anchor_size=BATCH,
        anchored=variant.penalty != "zero",
    )
    exploration: Exploration = _exploration(study, variant)
    if n_estimators is not None:
        exploration = FirstMembersOnly(variant.n_members, exploration)
    agent = AgentConfig(
        learning,
        exploration,
        learning_starts=study.burn_in,
        buffer_size=study.n_episodes * study.max_episode_steps,
        reward_scale=1 / 20,
    )
    config = RunConfig(CartPole(study.max_episode_steps), agent, study.n_episodes, np.array(list(STATES.values())))
    dtype = jnp.result_type(float)
    return jax.tree.map(lambda x: np.asarray(x, dtype) if np.result_type(x).kind in "fi" else np.asarray(x), config)


def _layers(weights: float, bias: float, output: float) -> Params:
    """Return one number for each leaf of the parameters; 0 for the output bias, which starts at 0, unpenalised."""
    return {"layer_0": {"weights": weights, "bias": bias}, "layer_1": {"weights": output, "bias": 0}}


def _exploration(study: Study, variant: Variant) -> Until:
    """Return the exploration rule, of the same structure for all variants; ε-greedy with ε = 0 is greedy."""
    switch = {"thompson": np.inf, "until": study.greedy_from, "epsilon": 0}[variant.exploration]
    annealed = EpsilonGreedy(1.0, 0.1, study.annealed_over)
    return Until(switch, Thompson(), annealed if variant.exploration == "epsilon" else EpsilonGreedy(0.0, 0.0, 1))


def run_once(key: Key, config: RunConfig, n_evaluated: int) -> Runs:
    """Train one run of `config` from the random key `key`, and evaluate it in `n_evaluated` greedy episodes."""
    train_state, log = train(key, config)
    exploration = config.agent.exploration
    greedy = replace(exploration, exploration=Greedy()) if isinstance(exploration, FirstMembersOnly) else Greedy()
    agent = replace(config.agent, exploration=greedy)
    reward, _, end = play_episodes(key, config.environment, agent, train_state.members.params, n_evaluated)
    # Traced arrays; NumPy arrays after the program has run.
    return Runs(*rewards_and_explorations(log), log.probed, reward, end)  # type: ignore[arg-type]


def rewards_and_explorations(log: Log) -> tuple[Array, Array]:
    """Return the reward of each episode in `log`, and its exploring steps, scaled to full length; (episodes,) each."""
    max_steps = log.reward.shape[1]
    took_place = jnp.arange(max_steps) < log.length[:, None]
    explored = jnp.sum(log.explored, 1, where=took_place) / log.length * max_steps
    return jnp.sum(log.reward, 1, where=took_place), explored


def run(
    study: Study, variants: Sequence[str] = tuple(VARIANTS), on_progress: Callable[[int], None] | None = None
) -> dict[str, Runs]:
    """Run all `variants` of the `study`, given by their names; return the runs of each.

    `on_progress` is called with the number of runs that have just ended.
    """
    compilation_cache.use()
    report = on_progress or (lambda n: None)
    run_ids = [(name, i) for name in variants for i in range(study.n_runs)]
    on_cpu = jax.default_backend() == "cpu"
    runs = _sequentially(study, run_ids, report) if on_cpu else _in_parallel(study, run_ids, report)
    stacked = {name: _stack([runs[name, i] for i in range(study.n_runs)]) for name in variants}
    return {name: r._replace(q=r.q[:, :, : VARIANTS[name].n_members]) for name, r in stacked.items()}


def _sequentially(study: Study, run_ids: list[RunId], report: Callable[[int], None]) -> dict[RunId, Runs]:
    """Run one run per call, on all cores; the longest runs first, so that the cores finish together."""
    run_ids = sorted(run_ids, key=lambda run_id: -_cost(VARIANTS[run_id[0]]))
    max_members = max(VARIANTS[name].n_members for name, _ in run_ids) if study.one_program else None
    configs = {name: configuration(study, VARIANTS[name], max_members) for name, _ in run_ids}
    groups = _groups(configs)
    representatives = [configs[names[0]] for names in groups.values()]
    programs = blocks.run(lambda i: _compile(run_once, study, _key(study, 0), representatives[i]), range(len(groups)))
    program_of = dict(zip(groups, programs, strict=True))

    def call(i: int) -> Runs:
        name, number = run_ids[i]
        result = program_of[jax.tree.structure(configs[name])](_key(study, number), configs[name])
        result = jax.tree.map(np.asarray, result)
        report(1)
        return result

    return dict(zip(run_ids, blocks.run(call, range(len(run_ids))), strict=True))


def _in_parallel(study: Study, run_ids: list[RunId], report: Callable[[int], None]) -> dict[RunId, Runs]:
    """Run all runs in one call, padded to the same number of members.

    A GPU takes as long for a step of all runs as for a step of one.
    """
    max_members = max(VARIANTS[name].n_members for name, _ in run_ids)
    configs = _stack([configuration(study, VARIANTS[name], max_members) for name, _ in run_ids])
    keys = jnp.stack([_key(study, number) for _, number in run_ids])
    result = jax.tree.map(np.asarray, _compile(_run_all, study, keys, configs)(keys, configs))
    report(len(run_ids))
    return {run_id: trees.take(result, i) for i, run_id in enumerate(run_ids)}


def _run_all(keys: Key, configs: RunConfig, n_evaluated: int) -> Runs:
    """Call `run_once` for every key and configuration along their leading axes."""
    return jax.vmap(partial(run_once, n_evaluated=n_evaluated))(keys, configs)


def _compile(function: Callable, study: Study, key: Key, config: RunConfig) -> Callable:
    """Return `function` compiled for arguments like `key` and `config`."""
    program = jax.jit(function, static_argnames="n_evaluated")
    return program.lower(key, config, n_evaluated=study.n_evaluated).compile()


def _groups(configs: dict[str, RunConfig]) -> dict[PyTreeDef, list[str]]:
    """Return the names of the variants that share a program, by the structure of their configuration."""
    groups: dict[PyTreeDef, list[str]] = {}
    for name, config in configs.items():
        groups.setdefault(jax.tree.structure(config), []).append(name)
    return groups


def _cost(variant: Variant) -> float:
    """Return the cost of a run, in units of a member's updates, which dominate it."""
    return variant.n_members * (1 + variant.last_episode_in_batch * 200 / BATCH)


def _key(study: Study, number: int) -> Key:
    """Return the random key of the run with index `number`."""
    return jax.random.fold_in(jax.random.key(study.seed), number)


def _stack(instances: list[Tree]) -> Tree:
    """Stack the leaves of pytrees along a new leading axis."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *instances)
