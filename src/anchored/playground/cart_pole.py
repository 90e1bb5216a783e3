"""What the page of CartPole shows: an agent that learns, and its Q-values at a state."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

import anchored
from anchored import checks
from anchored.errors import ArgumentError
from anchored.inference.compilation import jit
from anchored.rl.environments.cart_pole import MAX_ANGLE, MAX_POSITION, CartPole
from anchored.rl.exploration import EXPLORATIONS
from anchored.rl.history import History
from anchored.types import Array

MAX_STEPS = 200  # of an episode
STATE_LIMITS = {  # largest absolute value of each entry of a state that the page accepts
    "position": MAX_POSITION,
    "velocity": 3.0,
    "angle": 2 * MAX_ANGLE,
    "angular_velocity": 4.0,
}
# Smallest and largest value of each number among the settings
LIMITS = {"n_members": (2, 50), "seed": (0, 2**31 - 1)}


@dataclass(frozen=True)
class CartPoleSettings:
    """The controls of a new agent."""

    n_members: int = 10
    exploration: str = "thompson"
    seed: int = 0

    def check(self) -> None:
        """Raise an ArgumentError if a value cannot be used."""
        for name, (least, most) in LIMITS.items():
            checks.whole(name, getattr(self, name), least)
            if getattr(self, name) > most:
                raise ArgumentError(name, f"must be at most {most}, got {getattr(self, name)}")
        checks.one_of("exploration", self.exploration, EXPLORATIONS)


class Snapshot(NamedTuple):
    """An agent's Q-values and exploration at a state, and its progress so far."""

    state: np.ndarray  # (4,) position, velocity, angle, angular velocity
    q: np.ndarray  # (members, 2) Q-values of a push to the left and to the right, in units of reward
    mean: np.ndarray  # (2,) over members
    std: np.ndarray  # (2,) over members
    probabilities: np.ndarray  # (2,) of taking each action while exploring
    returns: np.ndarray  # (episodes,)
    explored: np.ndarray  # (episodes,) share of each episode's steps that explored
    n_steps: int  # number of environment steps so far


class Agent(Protocol):
    """The part of a `QEnsembleAgent`, trained in the compiled CartPole, that the page uses."""

    history: History
    n_steps: int
    run_state: Any
    runner: Any

    def learn(self, total_timesteps: int, *, reset_num_timesteps: bool) -> "Agent": ...

    def q_values(self, observation: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]: ...

    def action_probabilities(self, observation: np.ndarray) -> np.ndarray: ...

    def predict(self, observation: np.ndarray, *, deterministic: bool) -> tuple[int | np.ndarray, object]: ...


def new_agent(settings: CartPoleSettings) -> Agent:
    """Return an untrained agent."""
    settings.check()
    return anchored.rl.QEnsembleAgent(CartPole(MAX_STEPS), settings.n_members, settings.exploration, seed=settings.seed)


def loaded_agent(path: Path) -> Agent:
    """Return the agent in the file `path`, which must have been trained in the compiled `CartPole`."""
    agent = anchored.rl.QEnsembleAgent.load(path)
    if not isinstance(agent.runner.spaces, CartPole):
        raise ArgumentError("agent", f"must have been trained in CartPole, but {path} is for {agent.runner.name}")
    return agent


def current_state(agent: Agent) -> np.ndarray:
    """Return the current state of the agent's environment, (4,)."""
    return np.asarray(agent.run_state.env_state.state, np.float64)


def snapshot(agent: Agent, state: np.ndarray) -> Snapshot:
    """Return the Q-values and exploration of `agent` at `state`, (4,), and its progress."""
    row = np.asarray(state, np.float32)
    mean, std, q = agent.q_values(row)
    history = agent.history
    explored = np.asarray(history.explored) / np.maximum(history.lengths, 1)
    returns = np.asarray(history.returns, np.float64)
    return Snapshot(state, q, mean, std, agent.action_probabilities(row), returns, explored, agent.n_steps)


def checked_state(values: dict[str, object]) -> np.ndarray:
    """Return the state, (4,), from its entries by name; an entry that is missing or too large is an ArgumentError."""
    for name, most in STATE_LIMITS.items():
        value = values.get(name)
        if not checks.is_real(value) or abs(float(value)) > most + 1e-9:  # type: ignore[arg-type]
            raise ArgumentError(name, f"must lie between -{most:.3g} and {most:.3g}, got {value!r}")
    return np.array([float(values[name]) for name in STATE_LIMITS])  # type: ignore[arg-type]


def next_state(state: np.ndarray, action: int) -> tuple[np.ndarray, bool]:
    """Return the state after `action`, (4,), and whether the pole has fallen or the cart has left the track."""
    following, has_ended = _step(np.asarray(state, np.float32), np.asarray(action))
    return np.asarray(following, np.float64), bool(has_ended)


@jit
def _step(state: Array, action: Array) -> tuple[Array, Array]:
    """Return the state after `action`, and whether the episode has ended."""
    step = CartPole(MAX_STEPS).step(jax.random.key(0), state, action)
    return step.state, step.terminated


def first_state(seed: int) -> np.ndarray:
    """Return a random initial state of an episode, (4,)."""
    return np.random.default_rng(seed).uniform(-0.05, 0.05, 4)


def density(mean: float, std: float, at: np.ndarray) -> np.ndarray:
    """Return the normal density with this mean and standard deviation at the values `at`."""
    std = max(std, 1e-6 * max(abs(mean), 1.0))
    return np.exp(-0.5 * ((at - mean) / std) ** 2) / (std * np.sqrt(2 * np.pi))
