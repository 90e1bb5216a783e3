"""Configurations of Q-learning, of an agent, and of a whole run.

All are pytrees. Static fields are compiled into a program; the other fields are its arguments, so that runs which
differ only in these share one compiled program.
"""

from dataclasses import dataclass, field, replace
from typing import Literal

from anchored import checks, trees
from anchored.inference.solvers.optimizers import OptimizerFactory
from anchored.model.networks import Network
from anchored.model.priors import Prior
from anchored.rl.environments.environment import Environment
from anchored.rl.exploration import Exploration, Greedy
from anchored.rl.schedules import LinearSchedule
from anchored.types import Array, Params

REPLAYS = ("uniform", "uncertainty", "rare")


@trees.register
@dataclass(frozen=True)
class QLearningConfig:
    """Q-learning with an anchored ensemble of networks.

    Parameters
    ----------
    network
        Maps observations (rows, ...) to Q-values (rows, actions).
    prior
        Distribution from which the initial parameters of each member are drawn; these are also the member's anchor.
    anchor_strength
        Strength of the penalty on the distance from the anchor, for each leaf of the parameters: σ²/s², the noise
        variance of the targets divided by the prior variance.
    n_estimators
        Number of members.
    gamma
        Discount factor of a step.
    learning_rate
        Learning rate of the optimiser, or a schedule: a function of the number of environment steps.
    optimizer
        Name of an optax optimiser, or a function from the learning rate to an optax transformation.
    batch_size
        Number of transitions drawn from the replay buffer for one gradient step.
    gradient_steps
        Number of gradient steps in one update.
    own_batches
        Whether each member draws batches of its own; otherwise all members share each batch.
    target_update_interval
        Number of environment steps between copies of the members to their target networks; None for no target networks.
    double_q
        Whether to use double Q-learning.
    n_step
        Number of rewards summed before the value of the next state is used.
    replay
        "uniform"; "uncertainty": the probability of replaying a transition is proportional to the members'
        disagreement; or "rare": it is inversely proportional to the number of stored transitions with the same
        observation and action, for integer observations.
    n_observations
        Number of different integer observations; None if observations are not integers. Only "rare" replay uses it.
    averaged_share
        For the greedy policy, each member's parameters are averaged over this latest share of the gradient steps so
        far; None for no average.
    n_envs
        Number of environments that take turns in the replay buffer.
    observations_once
        Whether the replay buffer stores each observation once, since the observation after a step is that before the
        next step.
    n_newest
        Number of the newest transitions that are added to every batch. Added transitions that are older than the last
        rollout have weight 0.
    newest_weight
        Weight in the loss of the added transitions from the last rollout; transitions drawn from the buffer have
        weight 1.
    anchor_size
        Number of data points that the penalty is divided by; None for the number of transitions stored.
    anchored
        Whether a member's anchor is its initial parameters; if False, every anchor is the prior mean.
    """

    network: Network = field(metadata={"static": True})
    prior: Prior
    anchor_strength: Params
    n_estimators: int = field(default=10, metadata={"static": True})
    gamma: float = 0.99
    learning_rate: float | LinearSchedule = 1e-3
    optimizer: str | OptimizerFactory = field(default="adam", metadata={"static": True})
    batch_size: int = field(default=128, metadata={"static": True})
    gradient_steps: int = field(default=1, metadata={"static": True})
    own_batches: bool = field(default=False, metadata={"static": True})
    target_update_interval: int | None = field(default=None, metadata={"static": True})
    double_q: bool = field(default=False, metadata={"static": True})
    n_step: int = field(default=1, metadata={"static": True})
    replay: str = field(default="uniform", metadata={"static": True})
    n_observations: int | None = field(default=None, metadata={"static": True})
    averaged_share: float | None = None
    n_envs: int = field(default=1, metadata={"static": True})
    observations_once: bool = field(default=False, metadata={"static": True})
    n_newest: int = field(default=0, metadata={"static": True})
    newest_weight: float = 1.0
    anchor_size: float | None = None
    anchored: bool = True

    def __post_init__(self) -> None:
        checks.one_of("replay", self.replay, REPLAYS)


@trees.register
@dataclass(frozen=True)
class AgentConfig:
    """Configuration of an agent: how it learns, explores and stores transitions.

    Parameters
    ----------
    learning
        The configuration of Q-learning.
    exploration
        The rule that chooses actions from the members' Q-values.
    train_freq
        Number of steps in a rollout of each environment, after which the members are updated; "episode" for one
        episode.
    learning_starts
        Number of steps before the first update; of episodes if `train_freq` is "episode".
    buffer_size
        Capacity of the replay buffer, in transitions.
    reward_scale
        Factor of rewards when they are learnt from; None for a factor that follows from the rewards so far (see
        `training.reward_scale`).
    """

    learning: QLearningConfig
    exploration: Exploration
    train_freq: int | Literal["episode"] = field(default="episode", metadata={"static": True})
    learning_starts: int = 0
    buffer_size: int = field(default=100_000, metadata={"static": True})
    reward_scale: float | None = 1.0

    @property
    def greedy(self) -> "AgentConfig":
        """The same configuration with greedy actions, so that agents with different explorations share a program."""
        return replace(self, exploration=Greedy())

    @property
    def first_update(self) -> int:
        """Number of rollouts before the first update."""
        if self.train_freq == "episode":
            return self.learning_starts
        return self.learning_starts // (self.train_freq * self.learning.n_envs)


@trees.register
@dataclass(frozen=True)
class RunConfig:
    """Configuration of a whole training run in a compiled environment.

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
