"""The agents that bsuite_scores.py and minatar_games.py compare: the default agent, and two rivals.

All are made with this library, and have the networks, replay and optimiser of `QEnsembleAgent`'s defaults. They differ
in the number of members, in what makes members differ, and in exploration:

- anchored: `QEnsembleAgent(env)`, with no other argument;
- DQN: one member, ε-greedy with ε = 0.05, no penalty, and initial weights of the usual scale;
- bootstrapped DQN: the default number of members, each with a fixed randomised prior function (Osband et al. 2018), one
  of which is followed for a whole episode; no penalty. As in bsuite's own implementation, all members see all steps.
"""

import inspect
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

if TYPE_CHECKING:
    from anchored.model.networks import Network
    from anchored.rl import QEnsembleAgent
    from anchored.types import Array, Key, Params

AGENTS = ("anchored", "DQN", "bootstrapped DQN")
EPSILON = 0.05
KERNEL = 3  # height and width of the convolution, in cells
STRENGTH = 3.0  # of the prior functions: the prior scale of the default agent when this was written


@dataclass(frozen=True)
class PriorFunctions:
    """Each member is a network f plus a fixed prior function: f(x; θ) + β f(x; θ̃), of which only θ is trained."""

    network: "Network"  # f
    strength: float  # β

    @property
    def last_layer(self) -> str | None:
        """The name of the last layer's parameters in f."""
        return self.network.last_layer

    def init(self, key: "Key", inputs: "Array") -> dict[str, "Params"]:
        """Return the initial parameters of f for `inputs` from `key`, as θ ("trained") and as θ̃ ("fixed")."""
        params = self.network.init(key, inputs)
        return {"trained": params, "fixed": params}

    def apply(self, params: dict[str, "Params"], inputs: "Array") -> "Array":
        """Return the outputs, (rows, outputs), for `inputs`, (rows, ...)."""
        prior = self.network.apply(jax.lax.stop_gradient(params["fixed"]), inputs)
        return self.network.apply(params["trained"], inputs) + self.strength * prior


@dataclass(frozen=True)
class ConvolutionalQNetwork:
    """A convolution of 3 × 3 cells, one hidden layer, and the Q-values of all actions; ReLU between them."""

    n_filters: int
    n_units: int
    n_actions: int
    last_layer: str = "outputs"

    def init(self, key: "Key", inputs: "Array") -> dict[str, dict[str, np.ndarray]]:
        """Return parameters for `inputs`, (rows, height, width, channels), all zero; `key` is not used."""
        _, height, width, n_channels = inputs.shape
        n_patches = (height - KERNEL + 1) * (width - KERNEL + 1)
        shapes = {
            "convolution": (KERNEL * KERNEL * n_channels, self.n_filters),
            "hidden": (n_patches * self.n_filters, self.n_units),
            "outputs": (self.n_units, self.n_actions),
        }
        return {
            name: {"weights": np.zeros(shape, np.float32), "bias": np.zeros(shape[1], np.float32)}
            for name, shape in shapes.items()
        }

    def apply(self, params: dict[str, dict[str, "Array"]], inputs: "Array") -> "Array":
        """Return the Q-values, (rows, actions), of `params` for `inputs`, (rows, height, width, channels)."""
        n_rows, height, width, _ = inputs.shape
        # A product with patches: they are the same for all members, which a convolution would not make use of.
        patches = jnp.concatenate(
            [
                inputs[:, i : height - KERNEL + 1 + i, j : width - KERNEL + 1 + j]
                for i in range(KERNEL)
                for j in range(KERNEL)
            ],
            axis=-1,
        )
        hidden = patches.astype(np.float32)
        for name in ("convolution", "hidden", "outputs"):
            hidden = hidden if name == "convolution" else jax.nn.relu(hidden).reshape(n_rows, -1)
            hidden = hidden @ params[name]["weights"] + params[name]["bias"]
        return hidden


def make_agent(name: str, env: object, seed: int, **arguments: Any) -> "QEnsembleAgent":
    """Return the agent called `name`, one of AGENTS, for the environment `env`, with the random seed `seed`.

    `arguments` of `QEnsembleAgent` replace its defaults, for all agents.
    """
    from anchored.rl import QEnsembleAgent
    from anchored.rl.q_network import Rescaled

    arguments = {**arguments, "seed": seed, **differences(name)}
    if name == "bootstrapped DQN":
        network = QEnsembleAgent(env, **{**arguments, "buffer_size": 1}).config.learning.network
        network = network.network if isinstance(network, Rescaled) else network
        arguments["network"] = PriorFunctions(network, STRENGTH)
    return QEnsembleAgent(env, **arguments)


def differences(name: str) -> dict[str, Any]:
    """Return the arguments, except the network, in which the agent called `name` differs from the default one."""
    from anchored.rl.exploration import EpsilonGreedy

    if name == "DQN":
        exploration = EpsilonGreedy(EPSILON, EPSILON)
        return {"n_estimators": 1, "exploration": exploration, "noise_variance": 0.0, "prior_scale": 1.0}
    if name == "bootstrapped DQN":
        return {"exploration": "member", "noise_variance": 0.0, "prior_scale": 1.0}
    return {}


def settings(**arguments: Any) -> dict[str, Any]:
    """Return everything that results of the agents depend on, as JSON: defaults, `arguments` and differences.

    Rows that were stored with other settings, such as other defaults, are not shown together with new ones.
    """
    shown = {"prior functions": STRENGTH, "defaults": {**default_arguments(), **arguments}}
    by_agent = {name: differences(name) for name in AGENTS}
    return json.loads(json.dumps({**shown, "agents": by_agent}, default=repr))


def default_arguments() -> dict[str, Any]:
    """Return the defaults of `QEnsembleAgent`'s arguments, as JSON values."""
    from anchored.rl import QEnsembleAgent

    parameters = inspect.signature(QEnsembleAgent).parameters.values()
    defaults = {parameter.name: parameter.default for parameter in parameters if parameter.name not in ("env", "seed")}
    return json.loads(json.dumps(defaults))
