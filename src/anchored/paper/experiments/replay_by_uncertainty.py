"""An open question of the paper: is learning faster if transitions are replayed by uncertainty?

Two agents are trained with uniform replay and with replay in proportion to the members' disagreement, with the same
seeds: the agent of figure 4 on CartPole, and an agent that follows a random member in each episode in a small deep sea.
"""

from dataclasses import dataclass, replace

import jax
import numpy as np

from anchored.inference.solvers import blocks
from anchored.paper.experiments import cart_pole_study, deep_sea_study
from anchored.paper.experiments.cart_pole_study import VARIANTS, Study
from anchored.paper.findings import Claim, Figure, Progress, above, mean_of, no_progress, standard_error
from anchored.plots import as_png
from anchored.rl.config import RunConfig
from anchored.rl.training import Log, train

KINDS = ("uniform", "uncertainty")
Results = dict[str, dict[str, np.ndarray]]  # by kind of replay and task: one number for each seed


@dataclass(frozen=True)
class Setting:
    """Settings of the two tasks.

    `sea` has the settings of the deep sea: the first of its `budgets` is used, its `methods` and `seed` are not.
    """

    study: Study = Study()  # CartPole; its seed is not used
    sea: deep_sea_study.Setting = deep_sea_study.Setting(budgets=((10, 500),), batch_size=128)
    seed: int = 0  # random seed of all runs


FULL = Setting()
QUICK = Setting(
    Study(n_episodes=40, n_runs=2, width=50, burn_in=5),
    deep_sea_study.Setting(budgets=((4, 100),), n_seeds=2, n_estimators=4, hidden_layer_sizes=(16,), batch_size=32),
)


def run(setting: Setting, on_progress: Progress = no_progress) -> Results:
    """Train with each kind of replay in both tasks; return rewards on CartPole, and episodes to solve the sea.

    A sea that is not solved counts as the number of episodes of its run. `on_progress` is called with fractions of the
    work.
    """
    size, budget = setting.sea.budgets[0]
    cart_pole = cart_pole_study.configuration(setting.study, VARIANTS["thompson"])
    sea = deep_sea_study.configuration(setting.sea, "anchored", size, budget)
    results = {}
    for kind in KINDS:
        logs = runs(with_replay(cart_pole, kind), setting.study.n_runs, setting.seed)
        rewards, _ = zip(*(cart_pole_study.rewards_and_explorations(log) for log in logs), strict=True)
        found_treasure = [
            deep_sea_study.found_treasure(jax.tree.map(lambda leaf: leaf[None], log), size)[0]
            for log in runs(with_replay(sea, kind), setting.sea.n_seeds, setting.seed)
        ]
        solved_at = [deep_sea_study.solved_at(found) or budget for found in found_treasure]
        results[kind] = {"cart_pole": np.array(rewards).sum(1), "deep_sea": np.array(solved_at, float)}
        on_progress(1 / len(KINDS))
    return results


def with_replay(config: RunConfig, kind: str) -> RunConfig:
    """Return `config` with replay of this `kind`."""
    return replace(config, agent=replace(config.agent, learning=replace(config.agent.learning, replay=kind)))


def runs(config: RunConfig, n_seeds: int, seed: int) -> list[Log]:
    """Train `n_seeds` runs of `config` on all cores, with keys derived from `seed`; return their logs."""
    keys = [jax.random.fold_in(jax.random.key(seed), i) for i in range(n_seeds)]
    program = jax.jit(train).lower(keys[0], config).compile()
    return blocks.run(lambda i: jax.tree.map(np.asarray, program(keys[i], config)[1]), range(n_seeds))


def figures(setting: Setting, results: Results) -> tuple[Figure, ...]:
    """Return one figure with both tasks, from the `results` of a run with `setting`."""
    return (
        Figure(
            name="replay_by_uncertainty",
            title="An open question: replay by uncertainty",
            paper="The paper asks whether to replay actions more often if the agent was less certain about them. "
            "Here two ways of drawing transitions are compared: uniformly, and in proportion to the members' "
            "disagreement.",
            picture=draw(results),
            description="Two panels with a line for each seed, from uniform replay to replay by uncertainty: "
            "cumulative reward on CartPole, and episodes until a deep sea is solved.",
            claims=claims(results),
            notes=("Differences are between runs with the same seed.",),
        ),
    )


def claims(results: Results) -> tuple[Claim, ...]:
    """Return the claims that replay by uncertainty is better, tested with `results`."""
    tested = []
    for task, title, sign in (
        ("cart_pole", "Replay by uncertainty earns more on CartPole.", 1),
        ("deep_sea", "Replay by uncertainty solves a deep sea sooner.", -1),
    ):
        uniform, by_uncertainty = (results[kind][task] for kind in KINDS)
        difference = by_uncertainty - uniform
        text = (
            f"{by_uncertainty.mean():,.0f} against {uniform.mean():,.0f}; difference {mean_of(difference, 0)} over "
            f"{len(difference)} seeds"
        )
        condition = above(sign * difference.mean(), standard_error(difference), 0)
        tested.append(Claim.tested(title, [condition], text))
    return tuple(tested)


def draw(results: Results) -> bytes:
    """Return the picture of `results` as PNG: a panel for each task, a line for each seed."""
    import matplotlib.pyplot as plt

    from anchored.plots import LINE, MEMBER

    titles = {"cart_pole": "CartPole: cumulative reward", "deep_sea": "deep sea: episodes until solved"}
    figure, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
    for ax, (task, title) in zip(axes, titles.items(), strict=True):
        pairs = np.array([results[kind][task] for kind in KINDS])
        ax.plot(range(2), pairs, color=MEMBER, marker="o", markersize=4, linewidth=1, alpha=0.6)
        ax.plot(range(2), pairs.mean(1), color=LINE, marker="o", linewidth=2.5, label="mean")
        ax.set_xticks(range(2), ["uniform", "by uncertainty"])
        ax.set_title(title, fontsize=11)
        ax.set_xlim(-0.3, 1.3)
        ax.set_ylim(bottom=0)
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(frameon=False, fontsize=9)
    return as_png(figure)
