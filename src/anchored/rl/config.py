"""Configurations: what is learnt and how, how an agent acts, and what a whole run consists of.

All are pytrees. Fields marked static are part of a compiled program; the others are numbers that it takes as arguments,
so that runs which differ in these alone share one program.
"""

from dataclasses import dataclass, field, replace
from typing import Literal

from anchored import checks, trees
from anchored.inference.solvers.optimizers import OptimizerFactory
from anchored.model.networks import Network
from anchored.model.priors import Prior
from anchored.rl.environments.environment import Environment
from anchored.rl.exploration import Exploration, Greedy
from anchored.types import Array, Params

REPLAYS = ("uniform", "uncertainty")


@trees.register
@dataclass(frozen=True)
class QLearningConfig:
    """Q-learning with an anchored ensemble of networks.

    Parameters
    ----------
    network
        Maps observations (rows, ...) to Q-values (rows, actions).
    prior
        The distribution that each member's initial parameters, which are also its anchor, are drawn from.
    anchor_strength
        σ²/s² for each leaf of the parameters: the noise variance of the targets divided by the prior variance.
    n_estimators
        Number of members.
    gamma
        Discount factor.
    learning_rate
        Of the optimiser.
    optimizer
        Its name in optax, or a function from the learning rate to an optax transformation.
    batch_size
        Transitions drawn from the replay buffer for one gradient step.
    gradient_steps
        Gradient steps in one update.
    target_update_interval
        Gradient steps between copies to the target networks; None for no target networks.
    double_q
        Whether to use double Q-learning.
    n_step
        Number of rewards summed before the value of the next state is used.
    replay
        "uniform", or "uncertainty": in proportion to the members' disagreement.
    n_newest
        Number of newest transitions added to every batch.
    newest_weight
        Weight of each of them in the loss; drawn transitions have weight 1.
    anchor_size
        Number of data points that the pull to the anchor is divided by; None for the number of transitions stored.
    anchored
        False pulls members to the prior's mean rather than to their initial parameters.
    """

    network: Network = field(metadata={"static": True})
    prior: Prior
    anchor_strength: Params
    n_estimators: int = field(default=10, metadata={"static": True})
    gamma: float = 0.99
    learning_rate: float = 1e-3
    optimizer: str | OptimizerFactory = field(default="adam", metadata={"static": True})
    batch_size: int = field(default=128, metadata={"static": True})
    gradient_steps: int = field(default=1, metadata={"static": True})
    target_update_interval: int | None = field(default=None, metadata={"static": True})
    double_q: bool = field(default=False, metadata={"static": True})
    n_step: int = field(default=1, metadata={"static": True})
    replay: str = field(default="uniform", metadata={"static": True})
    n_newest: int = field(default=0, metadata={"static": True})
    newest_weight: float = 1.0
    anchor_size: float | None = None
    anchored: bool = True

    def __post_init__(self) -> None:
        checks.one_of("replay", self.replay, REPLAYS)


@trees.register
@dataclass(frozen=True)
class AgentConfig:
    """How an agent learns, explores and stores transitions.

    Parameters
    ----------
    learning
        The configuration of Q-learning.
    exploration
        The rule that chooses actions from the members' Q-values.
    train_freq
        Steps in a rollout, after which the members are updated; "episode" for one episode.
    learning_starts
        Steps before the first update; episodes if `train_freq` is "episode".
    buffer_size
        Capacity of the replay buffer, in transitions.
    reward_scale
        Rewards are multiplied by it before they are stored.
    """

    learning: QLearningConfig
    exploration: Exploration
    train_freq: int | Literal["episode"] = field(default="episode", metadata={"static": True})
    learning_starts: int = 0
    buffer_size: int = field(default=100_000, metadata={"static": True})
    reward_scale: float = 1.0

    @property
    def greedy(self) -> "AgentConfig":
        """The same without exploration: agents that differ in exploration alone share the programs that take this."""
        return replace(self, exploration=Greedy())

    @property
    def first_update(self) -> int:
        """Number of rollouts before the first update."""
        return self.learning_starts if self.train_freq == "episode" else self.learning_starts // self.train_freq


@trees.register
@dataclass(frozen=True)
class RunConfig:
    """A whole training run in a compiled environment.

    Parameters
    ----------
    environment
        An environment of pure functions.
    agent
        The agent's configuration.
    n_rollouts
        Number of rollouts, each followed by an update.
    probes
        Observations, (probes, ...), whose Q-values are logged after every rollout; None for none.
    """

    environment: Environment = field(metadata={"static": True})
    agent: AgentConfig
    n_rollouts: int = field(metadata={"static": True})
    probes: Array | None = None
