"""Networks: an `init` that gives parameters and an `apply` that maps rows to outputs.

Every network is a hashable value, so that equal networks share one compiled program.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from anchored import trees
from anchored.types import Array, Key, Params

if TYPE_CHECKING:
    import equinox
    from flax import nnx

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
    """What the library asks of a network."""

    @property
    def last_layer(self) -> str | None:
        """The name that marks the last layer's leaves; outputs are affine in them. None if not told."""

    def init(self, key: Key, inputs: Array) -> Params:
        """Parameters for rows shaped like `inputs`."""

    def apply(self, params: Params, inputs: Array) -> Array:
        """Outputs (rows, outputs) for inputs (rows, ...)."""


@dataclass(frozen=True)
class MLP:
    """A multilayer perceptron in the papers' parameterisation.

    Biases stand in the first layer alone: deeper ones have prior variance 0, and there is no output bias.
    """

    hidden_layer_sizes: tuple[int, ...]
    n_outputs: int
    activation: str = "relu"

    @property
    def last_layer(self) -> str:
        return f"layer_{len(self.hidden_layer_sizes)}"

    def init(self, key: Key, inputs: Array) -> Params:
        """Zeros: where a member starts is drawn from the prior, not here."""
        sizes = (inputs.shape[-1], *self.hidden_layer_sizes, self.n_outputs)
        params: dict[str, dict[str, np.ndarray]] = {
            f"layer_{i}": {"weights": _zeros(shape)} for i, shape in enumerate(pairwise(sizes))
        }
        if self.hidden_layer_sizes:
            params["layer_0"]["bias"] = _zeros(sizes[1:2])
        return params

    def apply(self, params: Params, inputs: Array, masks: Sequence[Array] | None = None) -> Array:
        """Outputs; `masks`, one for each hidden layer, multiply its units."""
        activate = ACTIVATIONS[self.activation]
        hidden = inputs
        for i in range(len(self.hidden_layer_sizes)):
            layer = params[f"layer_{i}"]
            hidden = activate(hidden @ layer["weights"] + layer.get("bias", 0.0))
            hidden = hidden if masks is None else masks[i] * hidden
        return hidden @ params[self.last_layer]["weights"]


@dataclass(frozen=True)
class RBFNetwork:
    """One hidden layer of units exp(−|x − c|²/2σ²) about centres c (Williams 1996)."""

    n_units: int
    n_outputs: int
    unit_scale: float = 1.0  # σ

    @property
    def hidden_layer_sizes(self) -> tuple[int, ...]:
        return (self.n_units,)

    @property
    def last_layer(self) -> str:
        return "layer_1"

    def init(self, key: Key, inputs: Array) -> Params:
        """Zeros: where a member starts is drawn from the prior, not here."""
        return {
            "layer_0": {"centres": _zeros((inputs.shape[-1], self.n_units))},
            "layer_1": {"weights": _zeros((self.n_units, self.n_outputs))},
        }

    def apply(self, params: Params, inputs: Array, masks: Sequence[Array] | None = None) -> Array:
        """Outputs; the one of `masks`, if any, multiplies the units."""
        centres = params["layer_0"]["centres"]
        # |x − c|² without an array of rows × columns × units
        distance = jnp.sum(inputs**2, 1)[:, None] - 2 * inputs @ centres + jnp.sum(centres**2, 0)
        hidden = jnp.exp(-0.5 * distance / self.unit_scale**2)
        return (hidden if masks is None else masks[0] * hidden) @ params["layer_1"]["weights"]


@dataclass(frozen=True)
class CorrectedNetwork:
    """A network plus a fixed tangent function: f(x; θ) + ∇f(x; θ₀)·θ̃, of which θ alone is trained."""

    network: Network

    @property
    def last_layer(self) -> str | None:
        return self.network.last_layer

    def init(self, key: Key, inputs: Array) -> Params:
        params = self.network.init(key, inputs)
        return {"trained": params, "anchor": params, "direction": params}

    def apply(self, params: Params, inputs: Array) -> Array:
        fixed = tangent(self.network, params["anchor"], params["direction"], inputs)
        return self.network.apply(params["trained"], inputs) + fixed


@dataclass(frozen=True)
class FunctionNetwork:
    """A plain pair of functions, `init(key, inputs) -> params` and `apply(params, inputs) -> outputs`."""

    init: Callable[[Key, Array], Params]
    apply: Callable[[Params, Array], Array]
    last_layer: str | None = None


@dataclass(frozen=True)
class FlaxLinenNetwork:
    """A Flax linen module; `module(inputs)` takes a batch of rows."""

    module: Any  # linen.Module
    last_layer: str | None = None

    def init(self, key: Key, inputs: Array) -> Params:
        variables = self.module.init(key, inputs)
        others = sorted(set(variables) - {"params"})
        if others:
            raise ValueError(
                f"network: the Flax module keeps the collections {others} besides its parameters; running "
                "statistics have no prior. Use a layer without state, such as LayerNorm or GroupNorm."
            )
        return variables["params"]

    def apply(self, params: Params, inputs: Array) -> Array:
        return self.module.apply({"params": params}, inputs)


@dataclass(frozen=True)
class SplitNetwork:
    """A network made of a static half and arrays: Flax nnx and Equinox modules both split this way."""

    static: Hashable
    combine: Callable[..., Callable[[Array], Array]]
    arrays: "Template"
    last_layer: str | None = None
    kernels_are_out_in: bool = False  # Equinox's are (out, in, …), Flax's (…, in, out)

    def init(self, key: Key, inputs: Array) -> Params:
        return self.arrays.tree

    def apply(self, params: Params, inputs: Array) -> Array:
        return self.combine(self.static, params)(inputs)


class Template:
    """The arrays a module came with. Equal templates have equal structure: their values only hint at priors."""

    def __init__(self, tree: Params):
        self.tree = tree
        leaves, structure = jax.tree.flatten(tree)
        self._identity = (structure, tuple((leaf.shape, str(leaf.dtype)) for leaf in leaves))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Template) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)


def _zeros(shape: tuple[int, ...]) -> np.ndarray:
    """Zeros that take no memory, since they are asked for their shape alone, and a file may ask for any."""
    return np.broadcast_to(np.zeros((), jnp.result_type(float)), shape)


def _combine_nnx(graph: "nnx.GraphDef", params: Params) -> Callable[[Array], Array]:
    from flax import nnx

    return nnx.merge(graph, params)


def _combine_equinox(static: Hashable, params: Params) -> Callable[[Array], Array]:
    import equinox

    return jax.vmap(equinox.combine(params, static))


def tangent(network: Network, params: Params, direction: Params, inputs: Array) -> Array:
    """∇f(x; θ)·direction, how outputs change as the parameters move."""
    return jax.jvp(lambda p: network.apply(p, inputs), (params,), (direction,))[1]


def last_layer_mask(network: Network, params: Params) -> Params:
    """True on the leaves of the last layer."""
    name = network.last_layer
    mask = trees.branch(name, params)
    if not any(jax.tree.leaves(mask)):
        known = sorted({step for path in trees.paths(params) for step in path})
        raise ValueError(
            f"trainable='last_layer' and tangent_correction need a last layer, and no parameter is marked as its "
            f"(last_layer={name!r}). Pass the network through from_flax, from_equinox or from_functions with "
            f"last_layer set to one of {known}."
        )
    return mask


def from_flax(module: Any, last_layer: str | None = None) -> Network:
    """A Flax module, linen or nnx, as a network. `last_layer` names its last layer, e.g. "Dense_1"."""
    if _defined_in(module, "flax.linen"):
        return FlaxLinenNetwork(module, last_layer)
    from flax import nnx

    graph, *states = nnx.split(module, nnx.Param, ...)
    params, rest = states
    if jax.tree.leaves(rest):
        raise ValueError(
            "network: the nnx module has state besides its parameters (random streams or running "
            "statistics), which has no prior. Use layers without state."
        )
    return SplitNetwork(graph, _combine_nnx, Template(nnx.to_pure_dict(params)), last_layer)


def from_equinox(module: "equinox.Module", last_layer: str | None = None) -> Network:
    """An Equinox module as a network; `module(row)` takes one row, as is Equinox's custom."""
    import equinox

    index = equinox.nn.StateIndex
    if any(isinstance(leaf, index) for leaf in jax.tree.leaves(module, is_leaf=lambda leaf: isinstance(leaf, index))):
        raise ValueError(
            "network: the Equinox module has state besides its parameters (running statistics), which has no "
            "prior. Use a layer without state, such as LayerNorm or GroupNorm."
        )
    params, static = equinox.partition(module, equinox.is_inexact_array)
    return SplitNetwork(static, _combine_equinox, Template(params), last_layer, kernels_are_out_in=True)


def from_functions(init: Callable, apply: Callable, last_layer: str | None = None) -> Network:
    """A pair `init(key, inputs) -> params`, `apply(params, inputs) -> outputs` as a network."""
    return FunctionNetwork(init, apply, last_layer)


def as_network(network: Any) -> Network:
    """Whatever a user calls a network: ours, a Flax or Equinox module, or an `(init, apply)` pair."""
    if isinstance(network, tuple) and len(network) == 2 and all(callable(part) for part in network):
        return FunctionNetwork(*network)
    if _defined_in(network, "flax"):
        return from_flax(network)
    if _defined_in(network, "equinox"):
        return from_equinox(network)
    if all(hasattr(network, name) for name in ("init", "apply", "last_layer")):
        return network
    raise TypeError(
        f"network: cannot use a {type(network).__name__}. Pass a Flax or Equinox module, a pair of functions "
        "(init, apply), or the result of anchored.from_flax or anchored.from_equinox."
    )


def _defined_in(thing: object, package: str) -> bool:
    return any(f"{base.__module__}.".startswith(f"{package}.") for base in type(thing).__mro__)
