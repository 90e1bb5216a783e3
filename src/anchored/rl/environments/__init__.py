"""Environments made of pure functions, and an adapter of Gymnasium environments."""

from anchored.rl.environments.acrobot import Acrobot
from anchored.rl.environments.bandit import Bandit
from anchored.rl.environments.cart_pole import CartPole
from anchored.rl.environments.deep_sea import DeepSea
from anchored.rl.environments.environment import Environment, Step
from anchored.rl.environments.gymnasium_adapter import GymnasiumAdapter
from anchored.rl.environments.mountain_car import MountainCar
from anchored.rl.environments.n_chain import NChain

__all__ = [
    "Acrobot",
    "Bandit",
    "CartPole",
    "DeepSea",
    "Environment",
    "GymnasiumAdapter",
    "MountainCar",
    "NChain",
    "Step",
]
