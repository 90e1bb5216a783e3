"""Exploration in reinforcement learning by anchored ensembles."""

from anchored.rl.agent import QEnsembleAgent
from anchored.rl.learning_curves import LearningCurveDisplay
from anchored.rl.q_learning import QLearning
from anchored.rl.training import Agent, Config, train

__all__ = ["Agent", "Config", "LearningCurveDisplay", "QEnsembleAgent", "QLearning", "train"]
