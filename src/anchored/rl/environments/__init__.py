"""Environments made of pure functions, and an adapter of Gymnasium environments."""

from anchored.rl.environments.acrobot import Acrobot
from anchored.rl.environments.asterix import Asterix
from anchored.rl.environments.bandit import Bandit
from anchored.rl.environments.breakout import Breakout
from anchored.rl.environments.cart_pole import CartPole
from anchored.rl.environments.deep_sea import DeepSea
from anchored.rl.environments.environment import Environment, Step
from anchored.rl.environments.freeway import Freeway
from anchored.rl.environments.gymnasium_adapter import GymnasiumAdapter
from anchored.rl.environments.mountain_car import MountainCar
from anchored.rl.environments.n_chain import NChain
from anchored.rl.environments.seaquest import Seaquest
from anchored.rl.environments.space_invaders import SpaceInvaders

__all__ = [
    "Acrobot",
    "Asterix",
    "Bandit",
    "Breakout",
    "CartPole",
    "DeepSea",
    "Environment",
    "Freeway",
    "GymnasiumAdapter",
    "MountainCar",
    "NChain",
    "Seaquest",
    "SpaceInvaders",
    "Step",
]
