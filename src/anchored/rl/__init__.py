"""Reinforcement learning with anchored ensembles."""
