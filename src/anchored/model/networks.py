"""Networks: objects with an `init` that returns parameters and an `apply` that maps inputs to outputs.

Networks are hashable values, so that equal networks share a compiled program.
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

Layers = dict[str, dict[str, Array]]  # layer name -> parameter name -> array: params["layer_0"]["weights"]

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
        """The key of the last layer in the parameters, None if unknown; outputs are affine in this layer."""

    def init(self, key: Key, inputs: Array) -> Params:
        """Return parameters, made with the random key `key`, for inputs with rows shaped like those of `inputs`."""

    def apply(self, params: Params, inputs: Array) -> Array:
        """Return outputs (rows, outputs) of the network with parameters `params` for `inputs` (rows, ...)."""


@dataclass(frozen=True)
class MLP:
    """A multilayer perceptron in the papers' parameterisation: only the first hidden layer has biases."""

    hidden_layer_sizes: tuple[int, ...]  # units of each hidden layer; empty for a linear model
    n_outputs: int  # number of outputs
    activation: str = "relu"  # a name in ACTIVATIONS

    @property
    def last_layer(self) -> str:
        """The key of the last layer in the parameters."""
        return f"layer_{len(self.hidden_layer_sizes)}"

    def init(self, key: Key, inputs: Array) -> Layers:
        """Return zeros for `inputs` (rows, features); `key` is ignored, since members start at draws from the prior."""
        sizes = (inputs.shape[-1], *self.hidden_layer_sizes, self.n_outputs)
        params: Layers = {f"layer_{i}": {"weights": _zeros(shape)} for i, shape in enumerate(pairwise(sizes))}
        if self.hidden_layer_sizes:
            params["layer_0"]["bias"] = _zeros(sizes[1:2])
        return params

    def apply(self, params: Layers, inputs: Array, masks: Sequence[Array] | None = None) -> Array:
        """Return outputs (rows, outputs) with parameters `params` for `inputs` (rows, features).

        `masks`, for dropout, holds an array (units,) or (rows, units) for each hidden layer, to multiply the units by.
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
    """One hidden layer of units exp(−|x − c|²/2σ²) with centres c (Williams 1996)."""

    n_units: int  # number of hidden units
    n_outputs: int  # number of outputs
    unit_scale: float = 1.0  # σ, in units of the inputs

    @property
    def hidden_layer_sizes(self) -> tuple[int, ...]:
        """The number of units, as a tuple like that of an MLP."""
        return (self.n_units,)

    @property
    def last_layer(self) -> str:
        """The key of the last layer in the parameters."""
        return "layer_1"

    def init(self, key: Key, inputs: Array) -> Layers:
        """Return zeros for `inputs` (rows, features); `key` is ignored, since members start at draws from the prior."""
        return {
            "layer_0": {"centres": _zeros((inputs.shape[-1], self.n_units))},
            "layer_1": {"weights": _zeros((self.n_units, self.n_outputs))},
        }

    def apply(self, params: Layers, inputs: Array, masks: Sequence[Array] | None = None) -> Array:
        """Return outputs (rows, outputs) with parameters `params` for `inputs` (rows, features).

        `masks`, for dropout, holds one array (units,) or (rows, units), to multiply the units by.
        """
        centres = params["layer_0"]["centres"]
        # |x − c|² without an array of shape (rows, features, units)
        squared_distance = jnp.sum(inputs**2, 1)[:, None] - 2 * inputs @ centres + jnp.sum(centres**2, 0)
        hidden = jnp.exp(-0.5 * squared_distance / self.unit_scale**2)
        return (hidden if masks is None else masks[0] * hidden) @ params["layer_1"]["weights"]


@dataclass(frozen=True)
class CorrectedNetwork:
    """A network f with the tangent correction: f(x; θ) + ∇f(x; θ₀)·θ̃, with fixed anchor θ₀ and direction θ̃."""

    network: Network  # f

    @property
    def last_layer(self) -> str | None:
        """The key of the last layer in the parameters of f."""
        return self.network.last_layer

    def init(self, key: Key, inputs: Array) -> dict[str, Params]:
        """Return the parameters that f's `init(key, inputs)` returns, as each of θ ("trained"), θ₀ and θ̃."""
        params = self.network.init(key, inputs)
        return {"trained": params, "anchor": params, "direction": params}

    def apply(self, params: dict[str, Params], inputs: Array) -> Array:
        """Return outputs (rows, outputs) with parameters `params` for `inputs` (rows, ...)."""
        correction = tangent(self.network, params["anchor"], params["direction"], inputs)
        return self.network.apply(params["trained"], inputs) + correction


@dataclass(frozen=True)
class FunctionNetwork:
    """A network given by two functions, `init(key, inputs) -> params` and `apply(params, inputs) -> outputs`."""

    init: Callable[[Key, Array], Params]
    apply: Callable[[Params, Array], Array]
    last_layer: str | None = None  # key of the last layer in the parameters


def _zeros(shape: tuple[int, ...]) -> np.ndarray:
    """Zeros of this shape that take no memory: only the shape is used, and one that a file claims may be huge."""
    return np.broadcast_to(np.zeros((), jnp.result_type(float)), shape)


def tangent(network: Network, params: Tree, direction: Tree, inputs: Array) -> Array:
    """Return the directional derivative ∇f(x; θ)·direction of the outputs, shape (rows, outputs).

    `network` is f, `params` is θ, and `direction` has its structure; `inputs` are x, (rows, ...).
    """
    return jax.jvp(lambda p: network.apply(p, inputs), (params,), (direction,))[1]


def last_layer_mask(network: Network, params: Tree) -> Tree:
    """Return a pytree like `params` that is True on the leaves of the network's last layer.

    Raises
    ------
    ValueError
        If no leaf belongs to the last layer.
    """
    name = network.last_layer
    mask = trees.mask_below(name, params)
    if not any(jax.tree.leaves(mask)):
        keys = sorted({step for path in trees.paths(params) for step in path})
        raise ValueError(
            f"trainable='last_layer' and tangent_correction need the network's last layer, but no parameter has the "
            f"name last_layer={name!r}. Wrap the network by from_flax, from_equinox or from_functions with last_layer "
            f"set to one of {keys}."
        )
    return mask
