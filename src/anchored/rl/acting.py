"""Actors: choose actions for single observations while a Gymnasium environment is stepped from Python.

For a small network, the call of a compiled program takes longer than the computation. So where the rule of exploration
allows it, actions are computed by NumPy from a copy of the members' parameters.
"""

from collections.abc import Callable
from typing import Protocol

import jax
import numpy as np

from anchored.inference.compilation import jit
from anchored.rl import training
from anchored.rl.config import AgentConfig
from anchored.rl.exploration import Greedy, OneMember
from anchored.rl.q_network import QNetwork, Rescaled
from anchored.rl.training import EPISODES, TrainState
from anchored.types import Array, Key

ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {  # those that NumPy computes
    "relu": lambda x: np.maximum(x, 0, out=x),
    "tanh": np.tanh,
}


class Actor(Protocol):
    """Chooses actions with the members of one train state."""

    def load(self, train_state: TrainState) -> None:
        """Act with the members of `train_state` from now on."""

    def act(self, observation: np.ndarray, step: int, episode: int) -> tuple[int, bool]:
        """Return the action for `observation`, and whether it counts as exploration.

        `step` and `episode` are the numbers of steps and of finished episodes of the run so far.
        """


def make_actor(config: AgentConfig) -> Actor:
    """Return an actor for `config`: of NumPy if it can compute network and exploration, otherwise compiled."""
    network = config.learning.network
    network = network.network if isinstance(network, Rescaled) else network
    is_simple = isinstance(network, QNetwork) and network.activation in ACTIVATIONS
    return (
        NumpyActor(config)
        if is_simple and isinstance(config.exploration, Greedy | OneMember)
        else CompiledActor(config)
    )


class CompiledActor:
    """Chooses actions by a compiled program, for any network and exploration.

    Parameters
    ----------
    config
        Configuration of the agent.
    """

    def __init__(self, config: AgentConfig):
        self.config = config

    def load(self, train_state: TrainState) -> None:
        """Act with the members of `train_state` from now on."""
        self._key, self._params = train_state.key, train_state.members.params

    def act(self, observation: np.ndarray, step: int, episode: int) -> tuple[int, bool]:
        """Return the action for `observation`, and whether it explores; the arguments are those of `Actor.act`."""
        choice = jax.device_get(_act(self.config, self._key, self._params, observation, step, episode))
        return choice.action.item(), choice.explored.item()


class NumpyActor:
    """Chooses actions by NumPy, for `QNetwork`s that follow one member, or the mean of all, greedily.

    Parameters
    ----------
    config
        Configuration of the agent.
    """

    def __init__(self, config: AgentConfig):
        network = config.learning.network
        self._centre, self._half_range = np.zeros((), np.float32), np.ones((), np.float32)
        if isinstance(network, Rescaled):
            self._centre = np.asarray(network.centre, np.float32)
            self._half_range = np.asarray(network.half_range, np.float32)
            network = network.network
        assert isinstance(network, QNetwork)
        self._n_layers = len(network.hidden_layer_sizes) + 1
        self._observes_integers = network.n_observations is not None
        self._activate = ACTIVATIONS[network.activation]
        self._follows_member = isinstance(config.exploration, OneMember)
        self._n_members = config.learning.n_estimators
        self._episode, self._member = -1, 0  # the last episode, and the member that it follows

    def load(self, train_state: TrainState) -> None:
        """Act with the members of `train_state` from now on."""
        params = train_state.members.params
        layers = [params[f"layer_{i}"] for i in range(self._n_layers)]
        self._layers = [(np.asarray(layer["weights"]), np.asarray(layer["bias"])) for layer in layers]
        self._key = train_state.key

    def act(self, observation: np.ndarray, step: int, episode: int) -> tuple[int, bool]:
        """Return the action for `observation`, and whether it explores; the arguments are those of `Actor.act`."""
        q = self.q_values(observation)
        greedy = int(q.mean(0).argmax())
        if not self._follows_member:
            return greedy, False
        if episode != self._episode:
            self._episode, self._member = episode, int(_member(self._key, episode, self._n_members))
        action = int(q[self._member].argmax())
        return action, action != greedy

    def q_values(self, observation: np.ndarray) -> np.ndarray:
        """Return every member's Q-values, (members, actions), for one encoded `observation`."""
        weights, bias = self._layers[0]
        if self._observes_integers:
            hidden = weights[:, int(observation)] + bias
        else:
            row = observation.ravel().astype(weights.dtype)
            hidden = (row - self._centre) / self._half_range @ weights + bias
        for weights, bias in self._layers[1:]:
            hidden = np.matmul(self._activate(hidden)[:, None], weights)[:, 0] + bias
        return hidden


_act = jit(training.act)


@jit
def _member(key: Key, episode: int, n_members: int) -> Array:
    """Return the member that `OneMember` follows in the episode with index `episode`; `key` is the run's."""
    return jax.random.randint(training.counted_key(key, EPISODES, episode), (), 0, n_members)
