"""Agents in an N × N deep sea, and when they have solved it; benchmarks/deep_sea.py compares them.

Solved, by bsuite's rule, when fewer than nine in ten episodes so far missed the treasure. By this rule an agent that
stumbles on it within its first nine episodes has solved the sea there and then, whether it comes back or not: two of
twenty ε-greedy agents in the smallest sea did so, in their sixth. Agents that dither need about 2^N episodes. All
methods have the same networks, replay and optimiser. ε-greedy with the wide prior of the others does not only dither:
where nothing was seen the ensemble's mean is still far from zero, which draws it there. So it is also run with a prior
as narrow as usual initialisations.
"""

from dataclasses import dataclass

import jax
import numpy as np

from anchored.methods.randomized_prior import PriorFunctionNetwork
from anchored.model.priors import Prior
from anchored.rl.config import AgentConfig, QLearningConfig, RunConfig
from anchored.rl.environments import DeepSea
from anchored.rl.exploration import EpsilonGreedy, Exploration, OneMember
from anchored.rl.q_network import QNetwork, anchor_strength, q_prior
from anchored.rl.training import Log
from anchored.types import Array, Params

METHODS = ("anchored", "unanchored", "randomised prior functions", "ε-greedy", "ε-greedy, narrow prior")
NARROW = 0.1  # s.d. of values before anything was learnt
TREASURE = 0.5  # an episode that earned more has found it


@dataclass(frozen=True)
class Setting:
    """Sizes of the sea, episodes allowed, and what the agents share."""

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
    """The run of one of METHODS in a sea of this size, with so many episodes."""
    sea = DeepSea(size)
    network: QNetwork | FixedPriorNetwork = QNetwork(setting.hidden_layer_sizes, sea.n_actions, sea.n_observations)
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


def found_treasure(log: Log, size: int) -> np.ndarray:
    """Which episodes of each seed found the treasure, (seeds, episodes); every episode has `size` steps."""
    reward = np.asarray(log.reward)
    return reward.reshape(reward.shape[0], -1, size).sum(2) > TREASURE


def solved_at(found: np.ndarray) -> int | None:
    """The first episode by which fewer than nine in ten had missed; None if there is none."""
    missed = np.cumsum(~found) / np.arange(1, len(found) + 1)
    solved = np.flatnonzero(missed < 0.9)
    return int(solved[0]) + 1 if len(solved) else None
