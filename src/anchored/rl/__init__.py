"""Q-learning with anchored ensembles, whose disagreement directs exploration."""

from anchored.rl.agent import QEnsembleAgent
from anchored.rl.config import AgentConfig, QLearningConfig, RunConfig
from anchored.rl.learning_curves import LearningCurveDisplay
from anchored.rl.logger import FileLogger
from anchored.rl.schedules import LinearSchedule
from anchored.rl.training import train

__all__ = [
    "AgentConfig",
    "FileLogger",
    "LearningCurveDisplay",
    "LinearSchedule",
    "QEnsembleAgent",
    "QLearningConfig",
    "RunConfig",
    "train",
]
