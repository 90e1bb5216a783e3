"""The paper's open question: does replaying what members disagree on teach faster than replaying at random?

python -m anchored.experiments.replay_by_uncertainty

Figure 4's agent, and an agent that follows one member an episode in a small deep sea, with either kind of replay and
the same seeds.
"""

import argparse
from dataclasses import dataclass, replace

import jax
import numpy as np

from anchored.experiments import cart_pole_study, deep_sea
from anchored.experiments.cart_pole_study import VARIANTS, Study
from anchored.rl.training import Config, train
from anchored.solvers import blocks

KINDS = ("uniform", "uncertainty")


@dataclass(frozen=True)
class Setting:
    """How much is run."""

    study: Study = Study()
    sea: deep_sea.Setting = deep_sea.Setting(budgets=((10, 500),), batch_size=128)


def run(setting: Setting) -> dict[str, dict[str, np.ndarray]]:
    """For each kind of replay, what each seed came to: reward of CartPole, episodes until the sea was solved."""
    size, budget = setting.sea.budgets[0]
    cart_pole = cart_pole_study.configuration(setting.study, VARIANTS["thompson"])
    sea = deep_sea.configuration(setting.sea, "anchored", size, budget)
    results = {}
    for kind in KINDS:
        rewards = runs(with_replay(cart_pole, kind), setting.study.n_runs, setting.study.seed)
        reward, _ = zip(*(cart_pole_study.rewards_and_explorations(log) for log in rewards), strict=True)
        found = [deep_sea.found_treasure(jax.tree.map(lambda leaf: leaf[None], log), size)[0]
                 for log in runs(with_replay(sea, kind), setting.sea.n_seeds, setting.sea.seed)]  # fmt: skip
        solved = [deep_sea.solved_at(f) or budget for f in found]
        results[kind] = {"cart_pole": np.array(reward).sum(1), "deep_sea": np.array(solved, float)}
    return results


def with_replay(config: Config, kind: str) -> Config:
    """The same run with another kind of replay."""
    return replace(config, agent=replace(config.agent, learning=replace(config.agent.learning, replay=kind)))


def runs(config: Config, n_seeds: int, seed: int) -> list:
    """The logs of all seeds, on all cores."""
    keys = [jax.random.fold_in(jax.random.key(seed), i) for i in range(n_seeds)]
    program = jax.jit(train).lower(keys[0], config).compile()
    return blocks.run(lambda i: jax.tree.map(np.asarray, program(keys[i], config)[1]), range(n_seeds))


def describe(results: dict[str, dict[str, np.ndarray]]) -> list[str]:
    """A line for each problem: both kinds, and their difference seed by seed."""
    titles = {"cart_pole": "CartPole, cumulative reward", "deep_sea": "deep sea, episodes until solved"}
    lines = []
    for problem, title in titles.items():
        uniform, uncertain = (results[kind][problem] for kind in KINDS)
        difference = uncertain - uniform
        error = difference.std(ddof=1) / len(difference) ** 0.5
        lines.append(
            f"{title}: uniform {uniform.mean():,.0f}, by uncertainty {uncertain.mean():,.0f}; "
            f"difference {difference.mean():+,.0f} ± {error:,.0f} over {len(difference)} seeds"
        )
    return lines


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    seed = parser.parse_args().seed
    setting = Setting(Study(seed=seed), replace(Setting().sea, seed=seed))
    print("\n".join(describe(run(setting))))


if __name__ == "__main__":
    main()
