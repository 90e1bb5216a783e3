"""Networks: objects with an `init` that returns parameters and an `apply` that maps inputs to outputs.

Networks are hashable and compared by value, so that equal networks share a compiled program.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np

from anchored import trees
from anchored.trees import Tree
from anchored.types import Array, Key, Params

Layers = dict[str, dict[str, Array]]  # arrays by layer and name, such as params["layer_0"]["weights"]

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
    "erf": jax.lax.erf,
    "gelu": jax.nn.gelu,
    "silu": jax.nn.silu,
    "softplus": jax.nn.softplus,
    "elu": jax.nn.elu,
    "logistic": jax.nn.sigmoid,
    "sin": jnp.sin,
    "identity": lambda x: x,
}


class Network(Protocol):
    """The interface of networks."""

    @property
    def last_layer(self) -> str | None:
        """The key of the last layer in the parameters, or None if unknown.

        Outputs are affine in the parameters of this layer.
        """

    def init(self, key: Key, inputs: Array) -> Params:
        """Return parameters, initialised with the random key `key`, for rows shaped like the rows of `inputs`."""

    def apply(self, params: Params, inputs: Array) -> Array:
        """Return outputs (rows, outputs) of the network with parameters `params` for `inputs` (rows, ...)."""


@dataclass(frozen=True)
class MLP:
    """A multilayer perceptron in which only the first hidden layer has biases, as in Pearce et al. (2018)."""

    hidden_layer_sizes: tuple[int, ...]  # number of units of each hidden layer; empty for a linear model
    n_outputs: int
    activation: str = "relu"  # a name in ACTIVATIONS

    @property
    def last_layer(self) -> str:
        """The key of the last layer in the parameters."""
        return f"layer_{len(self.hidden_layer_sizes)}"

    def init(self, key: Key, inputs: Array) -> Layers:
        """Return zeros in the shapes needed for `inputs` (rows, features).

        `key` is ignored, since the initial parameters of a member are drawn from the prior.
        """
        sizes = (inputs.shape[-1], *self.hidden_layer_sizes, self.n_outputs)
        params: Layers = {f"layer_{i}": {"weights": _zeros(shape)} for i, shape in enumerate(pairwise(sizes))}
        if self.hidden_layer_sizes:
            params["layer_0"]["bias"] = _zeros(sizes[1:2])
        return params

    def apply(self, params: Layers, inputs: Array, masks: Sequence[Array] | None = None) -> Array:
        """Return outputs (rows, outputs) with parameters `params` for `inputs` (rows, features).

        `masks`, for dropout, multiply the units: one array (units,) or (rows, units) for each hidden layer.
        """
        activate = ACTIVATIONS[self.activation]
        hidden = inputs
        for i in range(len(self.hidden_layer_sizes)):
            layer = params[f"layer_{i}"]
            hidden = activate(hidden @ layer["weights"] + layer.get("bias", 0.0))
            hidden = hidden if masks is None else masks[i] * hidden
        return hidden @ params[self.last_layer]["weights"]


@dataclass(frozen=True)
class RBFNetwork:
    """A network with one hidden layer of radial basis functions exp(−|x − c|²/2σ²) with centres c (Williams 1996)."""

    n_units: int  # number of hidden units
    n_outputs: int
    unit_scale: float = 1.0  # σ, in units of the inputs

    @property
    def hidden_layer_sizes(self) -> tuple[int, ...]:
        """The number of hidden units, as a tuple of one number like that of an MLP."""
        return (self.n_units,)

    @property
    def last_layer(self) -> str:
        """The key of the last layer in the parameters."""
        return "layer_1"

    def init(self, key: Key, inputs: Array) -> Layers:
        """Return zeros in the shapes needed for `inputs` (rows, features).

        `key` is ignored, since the initial parameters of a member are drawn from the prior.
        """
        return {
            "layer_0": {"centres": _zeros((inputs.shape[-1], self.n_units))},
            "layer_1": {"weights": _zeros((self.n_units, self.n_outputs))},
        }

    def apply(self, params: Layers, inputs: Array, masks: Sequence[Array] | None = None) -> Array:
        """Return outputs (rows, outputs) with parameters `params` for `inputs` (rows, features).

        `masks`, for dropout, multiply the units: a sequence of one array (units,) or (rows, units).
        """
        centres = params["layer_0"]["centres"]
        # Expanding |x − c|² avoids an array of shape (rows, features, units)
        squared_distance = jnp.sum(inputs**2, 1)[:, None] - 2 * inputs @ centres + jnp.sum(centres**2, 0)
        hidden = jnp.exp(-0.5 * squared_distance / self.unit_scale**2)
        return (hidden if masks is None else masks[0] * hidden) @ params["layer_1"]["weights"]


@dataclass(frozen=True)
class CorrectedNetwork:
    """The network f(x; θ) + ∇f(x; θ₀)·θ̃, a network f plus a linear term that is not trained.

    The linear term is the derivative of f with respect to its parameters at the anchor θ₀, in the direction θ̃. It is
    the tangent correction of `AnchoredEnsemble(tangent_correction=True)`.
    """

    network: Network  # f

    @property
    def last_layer(self) -> str | None:
        """The key of the last layer in the parameters of f."""
        return self.network.last_layer

    def init(self, key: Key, inputs: Array) -> dict[str, Params]:
        """Return f's `init(key, inputs)` three times: as θ ("trained"), as θ₀ ("anchor") and as θ̃ ("direction")."""
        params = self.network.init(key, inputs)
        return {"trained": params, "anchor": params, "direction": params}

    def apply(self, params: dict[str, Params], inputs: Array) -> Array:
        """Return outputs (rows, outputs) with parameters `params`, as from `init`, for `inputs` (rows, ...)."""
        correction = tangent(self.network, params["anchor"], params["direction"], inputs)
        return self.network.apply(params["trained"], inputs) + correction


@dataclass(frozen=True)
class FunctionNetwork:
    """A network made from two functions, `init(key, inputs) -> params` and `apply(params, inputs) -> outputs`."""

    init: Callable[[Key, Array], Params]
    apply: Callable[[Params, Array], Array]
    last_layer: str | None = None  # key of the last layer in the parameters; None if unknown


def _zeros(shape: tuple[int, ...]) -> np.ndarray:
    """Return zeros of this shape that take no memory, because a corrupt saved file may ask for a huge network."""
    return np.broadcast_to(np.zeros((), jnp.result_type(float)), shape)


def tangent(network: Network, params: Tree, direction: Tree, inputs: Array) -> Array:
    """Return ∇f(x; θ)·v, the derivative of the outputs (rows, outputs) with respect to the parameters along v.

    `network` is f, `params` is θ, `direction` is v, with the structure of θ, and `inputs` are x (rows, ...).
    """
    return jax.jvp(lambda p: network.apply(p, inputs), (params,), (direction,))[1]


def last_layer_mask(network: Network, params: Tree) -> Tree:
    """Return a pytree like `params` that is True at the leaves of the last layer of `network`, and False elsewhere.

    Raises
    ------
    ValueError
        If no leaf belongs to the last layer.
    """
    name = network.last_layer
    mask = trees.mask_of_key(name, params)
    if not any(jax.tree.leaves(mask)):
        keys = sorted({key for path in trees.paths(params) for key in path})
        raise ValueError(
            f"trainable='last_layer' and tangent_correction need the network's last layer, but no layer has the "
            f"name last_layer={name!r}. Wrap the network by means of from_flax, from_equinox or from_functions with "
            f"last_layer set to one of {keys}."
        )
    return mask
