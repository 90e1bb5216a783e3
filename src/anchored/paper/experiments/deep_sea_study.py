"""Deep exploration: how many episodes until the treasure of an N × N deep sea is found again and again.

Solved, by bsuite's rule, when fewer than nine in ten episodes so far missed the treasure. By this rule an agent that
stumbles on it within its first nine episodes has solved the sea there and then, whether it comes back or not: two of
twenty ε-greedy agents in the smallest sea did so, in their sixth. Agents that dither need about 2^N episodes. All
methods have the same networks, replay and optimiser. ε-greedy with the wide prior of the others does not only dither:
where nothing was seen the ensemble's mean is still far from zero, which draws it there. So it is also run with a prior
as narrow as usual initialisations.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from anchored.methods.randomized_prior import PriorFunctionNetwork
from anchored.model.priors import Prior
from anchored.plots import as_png
from anchored.rl.config import AgentConfig, QLearningConfig, RunConfig
from anchored.rl.environments import DeepSea
from anchored.rl.exploration import EpsilonGreedy, Exploration, OneMember
from anchored.rl.q_network import QNetwork, anchor_strength, q_prior
from anchored.rl.training import Log, train
from anchored.storage import atomic
from anchored.types import Array, Params

METHODS = ("anchored", "unanchored", "randomised prior functions", "ε-greedy", "ε-greedy, narrow prior")
NARROW = 0.1  # s.d. of values before anything was learnt
TREASURE = 0.5  # an episode that earned more has found it


@dataclass(frozen=True)
class Setting:
    """One table: sizes of the sea, episodes allowed, and what the agents share."""

    budgets: tuple[tuple[int, int], ...] = ((10, 500), (20, 1000), (30, 2500), (50, 4000))  # size, episodes
    methods: tuple[str, ...] = METHODS
    n_seeds: int = 10
    n_estimators: int = 20
    hidden_layer_sizes: tuple[int, ...] = (64, 64)
    output_scale: float = 3.0  # s.d. of values before anything was learnt: well above the treasure's 1
    noise_variance: float = 1e-3  # of the targets, which sets the pull
    learning_rate: float = 1e-3
    # As an agent goes deeper, its old steps come to outnumber the few at the frontier, which are then replayed too
    # rarely to be learnt: of ten seas of size 50 none is solved with 128 rows a batch, some with 512, most with 1,024.
    batch_size: int = 1024
    learn_every: int = 2
    seed: int = 0


@dataclass(frozen=True)
class FixedPriorNetwork(PriorFunctionNetwork):
    """Randomised prior functions for a learner that descends on all parameters."""

    def apply(self, params: Params, inputs: Array) -> Array:
        return super().apply({**jax.lax.stop_gradient(params), "trained": params["trained"]}, inputs)


def configuration(setting: Setting, method: str, size: int, n_episodes: int) -> RunConfig:
    """One method's run."""
    sea = DeepSea(size)
    network: Any = QNetwork(setting.hidden_layer_sizes, sea.n_actions, sea.n_observations)
    like = network.init(jax.random.key(0), np.zeros(1, np.int32))
    deeper = (2**0.5,) * (len(setting.hidden_layer_sizes) - 1)
    output_scale = NARROW if method == "ε-greedy, narrow prior" else setting.output_scale
    prior = q_prior(network, like, (1.0, *deeper, output_scale))
    if method == "randomised prior functions":
        zero, one = np.float32(0), np.float32(1)
        trained = q_prior(network, like, (1.0, *deeper, 1.0))
        network = FixedPriorNetwork(network)
        prior = Prior(
            {"trained": trained.mean, "fixed": prior.mean, "strength": one},
            {"trained": trained.scale, "fixed": prior.scale, "strength": zero},
        )
    learning = QLearningConfig(
        network,
        prior,
        anchor_strength(prior, setting.noise_variance if method == "anchored" else 0.0),
        n_estimators=setting.n_estimators,
        learning_rate=setting.learning_rate,
        batch_size=setting.batch_size,
        target_update_interval=4,
    )
    n_steps = n_episodes * size
    dithers = method.startswith("ε-greedy")
    exploration: Exploration = EpsilonGreedy(1.0, 0.05, n_episodes / 4) if dithers else OneMember()
    agent = AgentConfig(
        learning,
        exploration,
        train_freq=setting.learn_every,
        learning_starts=setting.batch_size,
        buffer_size=n_steps,
    )
    return RunConfig(sea, agent, n_steps // setting.learn_every)


def run(setting: Setting, on_result: Any = None, known: list[dict[str, Any]] | None = None) -> list[dict[str, Any]]:
    """Every method at every size: the episode at which each seed had solved it. Known rows are not run again."""
    keys = jax.vmap(jax.random.key)(setting.seed + jnp.arange(setting.n_seeds))
    rows = []
    for method in setting.methods:
        for size, n_episodes in setting.budgets:
            asked = (method, size, n_episodes)
            row = next((row for row in known or () if (row["method"], row["size"], row["budget"]) == asked), None)
            if row is not None:
                rows.append(row)
                continue
            began = time.perf_counter()
            config = configuration(setting, method, size, n_episodes)
            _, log = jax.block_until_ready(jax.jit(jax.vmap(train, in_axes=(0, None)))(keys, config))
            found = found_treasure(log, size)
            rows.append(
                {
                    "method": method,
                    "size": size,
                    "budget": n_episodes,
                    "solved": [solved_at(f) for f in found],
                    "found": [int(np.argmax(f)) + 1 if f.any() else None for f in found],
                    "late": found[:, -100:].mean(1).tolist(),
                    "seconds": time.perf_counter() - began,
                }
            )
            if on_result is not None:
                on_result(rows[-1])
    return rows


def found_treasure(log: Log, size: int) -> np.ndarray:
    """Which episodes of each seed found the treasure, (seeds, episodes); every episode has `size` steps."""
    reward = np.asarray(log.reward)
    return reward.reshape(reward.shape[0], -1, size).sum(2) > TREASURE


def solved_at(found: np.ndarray) -> int | None:
    """The first episode by which fewer than nine in ten had missed; None if there is none."""
    missed = np.cumsum(~found) / np.arange(1, len(found) + 1)
    solved = np.flatnonzero(missed < 0.9)
    return int(solved[0]) + 1 if len(solved) else None


def slope(rows: list[dict[str, Any]]) -> float | None:
    """Of log episodes against log size, over sizes that most seeds solved; None with fewer than two of those."""
    sizes, episodes = medians(rows)
    return float(np.polyfit(np.log(sizes), np.log(episodes), 1)[0]) if len(sizes) > 1 else None


def medians(rows: list[dict[str, Any]]) -> tuple[list[int], list[float]]:
    """Sizes that most seeds solved, and the median episode at which they did."""
    solved = {row["size"]: [n for n in row["solved"] if n is not None] for row in rows}
    most = [row["size"] for row in rows if 2 * len(solved[row["size"]]) > len(row["solved"])]
    return most, [float(np.median(solved[size])) for size in most]


def describe(row: dict[str, Any]) -> str:
    """One line of the table."""
    solved = [n for n in row["solved"] if n is not None]
    middle = f"{np.median(solved):6.0f}" if solved else "     –"
    extent = f"{min(solved)}–{max(solved)}" if solved else ""
    return (
        f"{row['method']:<28}{row['size']:>4}{row['budget']:>7}   {len(solved):>2} of {len(row['solved'])}"
        f"   {middle}   {extent:<12}{row['seconds']:6.0f} s"
    )


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Episodes against size, both on log scales."""
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(6.4, 4.4), layout="constrained")
    methods = list(dict.fromkeys(row["method"] for row in rows))
    for i, method in enumerate(methods):
        mine = [row for row in rows if row["method"] == method]
        for row in mine:
            solved = [n for n in row["solved"] if n is not None]
            jitter = row["size"] * 1.02 ** (i - (len(methods) - 1) / 2)
            ax.plot([jitter] * len(solved), solved, ".", color=f"C{i}", alpha=0.5)
        found = slope(mine)
        label = method + (f" (slope {found:.1f})" if found is not None else "")
        ax.plot(*medians(mine), "-", color=f"C{i}", label=label)
    budgets = sorted({(row["size"], row["budget"]) for row in rows})
    ax.plot(*np.array(budgets).T, "k:", label="episodes allowed")
    sizes = [size for size, _ in budgets]
    ax.set(xscale="log", yscale="log", xlabel="size N of the sea", ylabel="episodes until solved")
    ax.set_xticks(sizes, [str(size) for size in sizes], minor=False)
    ax.minorticks_off()
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic.write_bytes(path, as_png(figure))
