"""Agents in deep seas of size N × N, which benchmarks/deep_sea.py compares.

By bsuite's rule a sea is solved when fewer than nine in ten episodes so far have missed the treasure. So an agent that
finds the treasure by chance within its first nine episodes has solved the sea, even if it never finds it again: two of
twenty ε-greedy agents in the smallest sea did so, in their sixth episode. Agents that act at random need about 2^N
episodes.

All methods have the same networks, replay and optimiser. With the wide prior of the other methods, ε-greedy does not
explore purely at random: in states that have not been visited the ensemble's mean is far from zero, which attracts the
agent. So it is also run with a narrow prior, of the scale of common initialisations.
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
NARROW = 0.1  # prior scale of Q-values in the narrow prior
TREASURE = 0.5  # an episode with a higher return has found the treasure


@dataclass(frozen=True)
class Setting:
    """Sizes of the sea, numbers of episodes, and the settings that all agents share."""

    budgets: tuple[tuple[int, int], ...] = ((10, 500), (20, 1000), (30, 2500), (50, 4000))  # size, number of episodes
    methods: tuple[str, ...] = METHODS  # names in METHODS of the methods that are run
    n_seeds: int = 10  # number of runs of each method for each size
    n_estimators: int = 20  # number of members
    hidden_layer_sizes: tuple[int, ...] = (64, 64)  # number of units in each hidden layer
    output_scale: float = 3.0  # prior scale of Q-values, well above the reward of 1
    noise_variance: float = 1e-3  # of the targets
    learning_rate: float = 1e-3  # of Adam
    # The deeper an agent gets, the smaller the share of its stored steps at the depth it has just reached, and these
    # are replayed too rarely: of ten runs in the sea of size 50, none solves it with batches of 128 rows, some do with
    # 512, most with 1,024.
    batch_size: int = 1024  # number of transitions in one gradient step
    learn_every: int = 2  # steps between updates
    seed: int = 0  # random seed of the first run; the next runs have the next integers


@dataclass(frozen=True)
class FixedPriorNetwork(PriorFunctionNetwork):
    """Randomised prior functions for Q-learning, which updates all parameters: the fixed ones have gradient 0."""

    def apply(self, params: dict[str, Params], inputs: Array) -> Array:
        """Return the outputs for `inputs`, (rows, ...); only `params["trained"]` has a gradient."""
        return super().apply({**jax.lax.stop_gradient(params), "trained": params["trained"]}, inputs)


def configuration(setting: Setting, method: str, size: int, n_episodes: int) -> RunConfig:
    """Return the configuration of one run.

    Parameters
    ----------
    setting
        The settings that all agents share.
    method
        One of METHODS.
    size
        Size of the sea, N.
    n_episodes
        Number of episodes.
    """
    sea = DeepSea(size)
    network: QNetwork | FixedPriorNetwork = QNetwork(setting.hidden_layer_sizes, sea.n_actions, sea.n_observations)
    like = network.init(jax.random.key(0), np.zeros(1, np.int32))
    hidden = (2**0.5,) * (len(setting.hidden_layer_sizes) - 1)
    output_scale = NARROW if method == "ε-greedy, narrow prior" else setting.output_scale
    prior = q_prior(network, like, (1.0, *hidden, output_scale))
    if method == "randomised prior functions":
        zero, one = np.float32(0), np.float32(1)  # the fixed network is multiplied by a strength, which is 1
        trained = q_prior(network, like, (1.0, *hidden, 1.0))
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
        target_update_interval=4 * setting.learn_every,
    )
    n_steps = n_episodes * size
    is_epsilon_greedy = method.startswith("ε-greedy")
    exploration: Exploration = EpsilonGreedy(1.0, 0.05, n_episodes / 4) if is_epsilon_greedy else OneMember()
    agent = AgentConfig(
        learning,
        exploration,
        train_freq=setting.learn_every,
        learning_starts=setting.batch_size,
        buffer_size=n_steps,
    )
    return RunConfig(sea, agent, n_rollouts=n_steps // setting.learn_every)


def found_treasure(log: Log, size: int) -> np.ndarray:
    """Return whether each episode found the treasure, (seeds, episodes).

    `log` has a leading axis of seeds; every episode has `size` steps.
    """
    reward = np.asarray(log.reward)
    return reward.reshape(reward.shape[0], -1, size).sum(2) > TREASURE


def solved_at(has_treasure: np.ndarray) -> int | None:
    """Return the number of episodes after which the sea was solved by bsuite's rule; None if it was not.

    `has_treasure`, (episodes,), says whether each episode of one seed found the treasure.
    """
    missed_share = np.cumsum(~has_treasure) / np.arange(1, len(has_treasure) + 1)
    solved = np.flatnonzero(missed_share < 0.9)
    return int(solved[0]) + 1 if len(solved) else None
