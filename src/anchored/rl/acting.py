"""Actors, which choose actions for a few observations at a time while Gymnasium environments are stepped from Python.

For a small network, the call of a compiled program takes longer than the computation. Therefore, if the rule of
exploration allows it, actions are computed by NumPy from a copy of the members' parameters.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import jax
import numpy as np

from anchored.inference.compilation import jit
from anchored.rl import training
from anchored.rl.config import AgentConfig
from anchored.rl.exploration import Greedy, OneMember
from anchored.rl.q_network import QNetwork, Rescaled
from anchored.rl.training import EPISODES, TrainState
from anchored.types import Array, Key, Params

ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {  # those that `NumpyActor` computes
    "relu": lambda x: np.maximum(x, 0, out=x),
    "tanh": np.tanh,
}


class Actor(Protocol):
    """Chooses actions with the members of one train state."""

    def load(self, train_state: TrainState) -> None:
        """Act with the members of `train_state` from now on."""

    def act(
        self, observations: np.ndarray, steps: Sequence[int], episodes: Sequence[int]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the actions for several observations, (rows,), and whether they count as exploration, (rows,).

        `steps` and `episodes` are the numbers of the steps and of their episodes in the run, (rows,).
        """


def make_actor(config: AgentConfig) -> Actor:
    """Return an actor for `config`: a `NumpyActor` if it supports the network and exploration, else a compiled one."""
    network = config.learning.network
    network = network.network if isinstance(network, Rescaled) else network
    is_simple = type(network) is QNetwork and network.activation in ACTIVATIONS
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

    def act(
        self, observations: np.ndarray, steps: Sequence[int], episodes: Sequence[int]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return actions, and whether they explore; arguments and results are as in `Actor.act`."""
        counts = np.asarray(steps, np.int32), np.asarray(episodes, np.int32)
        return jax.device_get(_act(self.config, self._key, self._params, observations, *counts))


class NumpyActor:
    """Chooses actions by NumPy, for a `QNetwork` and exploration that greedily follows one member or the mean of all.

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
        self._followed: dict[int, int] = {}  # the member that each episode follows

    def load(self, train_state: TrainState) -> None:
        """Act with the members of `train_state` from now on."""
        params = train_state.members.params
        layers = [params[f"layer_{i}"] for i in range(self._n_layers)]
        # Biases get an axis for rows.
        self._layers = [(np.asarray(layer["weights"]), np.asarray(layer["bias"])[:, None]) for layer in layers]
        self._key = train_state.key

    def act(
        self, observations: np.ndarray, steps: Sequence[int], episodes: Sequence[int]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return actions, and whether they explore; arguments and results are as in `Actor.act`."""
        q = self.q_values(observations)
        greedy = q.mean(0).argmax(1)
        if not self._follows_member:
            return greedy, np.zeros(len(greedy), bool)
        actions = q[self._members_of(episodes), np.arange(len(greedy))].argmax(1)
        return actions, actions != greedy

    def q_values(self, observations: np.ndarray) -> np.ndarray:
        """Return every member's Q-values, (members, rows, actions), for encoded `observations`, (rows, ...)."""
        weights, bias = self._layers[0]
        if self._observes_integers:
            hidden = weights[:, observations] + bias
        else:
            rows = observations.reshape(len(observations), -1).astype(weights.dtype)
            hidden = (rows - self._centre) / self._half_range @ weights + bias
        for weights, bias in self._layers[1:]:
            hidden = self._activate(hidden) @ weights + bias
        return hidden

    def _members_of(self, episodes: Sequence[int]) -> list[int]:
        """Return the members that `episodes` follow."""
        for episode in episodes:
            if episode not in self._followed:
                self._followed = {number: self._followed[number] for number in episodes if number in self._followed}
                self._followed[episode] = int(_member(self._key, episode, self._n_members))
        return [self._followed[episode] for episode in episodes]


@jit
def _act(
    config: AgentConfig, key: Key, params: Params, observations: Array, steps: Array, episodes: Array
) -> tuple[Array, Array]:
    """Return the actions for several observations, and whether they explore, from `training.act`."""
    choose = jax.vmap(training.act, in_axes=(None, None, None, 0, 0, 0))
    choice = choose(config, key, params, observations, steps, episodes)
    return choice.action, choice.explored


@jit
def _member(key: Key, episode: int, n_members: int) -> Array:
    """Return the member that `OneMember` follows in the episode with index `episode`; `key` is the run's."""
    return jax.random.randint(training.counted_key(key, EPISODES, episode), (), 0, n_members)
