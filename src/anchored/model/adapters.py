"""Flax and Equinox modules, and pairs of functions, as networks."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import jax

from anchored.model.networks import FunctionNetwork, Network
from anchored.types import Array, Key, Params

if TYPE_CHECKING:
    import equinox
    from flax import linen, nnx


@dataclass(frozen=True)
class FlaxLinenNetwork:
    """A network given by a Flax linen module, which is called with a batch of rows."""

    module: "linen.Module"
    last_layer: str | None = None  # key of the last layer in the parameters

    def init(self, key: Key, inputs: Array) -> Params:
        """Return the module's parameters, initialised with `key`, for rows like those of `inputs`.

        Raises a ValueError if the module has state besides its parameters.
        """
        variables = self.module.init(key, inputs)
        state_names = sorted(set(variables) - {"params"})
        if state_names:
            raise ValueError(
                f"network: the Flax module has the collections {state_names} besides its parameters, and state such as "
                "running statistics has no prior. Use layers without state, such as LayerNorm or GroupNorm."
            )
        return variables["params"]

    def apply(self, params: Params, inputs: Array) -> Array:
        """Return outputs (rows, outputs) with parameters `params` for `inputs` (rows, ...).

        Raises a ValueError if the module draws random numbers, as dropout does.
        """
        from flax.errors import InvalidRngError

        try:
            return cast(Array, self.module.apply({"params": params}, inputs))
        except InvalidRngError as error:
            raise ValueError(
                "network: the Flax module draws random numbers, as dropout does, but a member is a fixed function. "
                "Remove Dropout, or make it deterministic; `anchored.methods.MCDropout` is a method of its own."
            ) from error


@dataclass(frozen=True)
class SplitNetwork:
    """A network given by a module that is split into a static part and arrays, as in Flax nnx and Equinox."""

    static: Hashable
    combine: Callable[..., Callable[[Array], Array]]  # (static part, arrays) -> module
    arrays: "Template"
    last_layer: str | None = None  # key of the last layer in the parameters
    kernels_are_out_in: bool = False  # whether kernels are (out, in, …), as in Equinox; in Flax they are (…, in, out)

    def init(self, key: Key, inputs: Array) -> Params:
        """Return the arrays that the module had when it was passed; `key` and `inputs` are ignored."""
        return self.arrays.tree

    def apply(self, params: Params, inputs: Array) -> Array:
        """Return outputs (rows, outputs) with parameters `params` for `inputs` (rows, ...)."""
        return self.combine(self.static, params)(inputs)


class Template:
    """The arrays of a module, compared by structure, shapes and types only, so that a SplitNetwork is hashable.

    Parameters
    ----------
    tree : pytree
        The arrays.
    """

    def __init__(self, tree: object):
        self.tree = tree
        leaves, structure = jax.tree.flatten(tree)
        self._identity = (structure, tuple((leaf.shape, str(leaf.dtype)) for leaf in leaves))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Template) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)


def _combine_nnx(graph: "nnx.GraphDef", params: Params) -> Callable[[Array], Array]:
    """Rebuild a Flax nnx module from its graph definition and its parameters."""
    from flax import nnx

    return nnx.merge(graph, params)


def _combine_equinox(static: Hashable, params: Params) -> Callable[[Array], Array]:
    """Rebuild an Equinox module from its two parts, and return it as a function of a batch of rows."""
    import equinox

    return jax.vmap(equinox.combine(params, static))


def from_flax(module: "linen.Module | nnx.Module", last_layer: str | None = None) -> Network:
    """Return a Flax module as a network.

    Parameters
    ----------
    module : flax.linen.Module or flax.nnx.Module
        A module without state besides its parameters; it is called with a batch of rows.
    last_layer : str, optional
        Name of its last layer, such as "Dense_1"; needed for `trainable="last_layer"`.

    Returns
    -------
    Network
        The network.

    Raises
    ------
    ValueError
        If an nnx module has state besides its parameters; a linen module is checked when the network is initialised.
    """
    if _defined_in(module, "flax.linen"):
        return FlaxLinenNetwork(cast("linen.Module", module), last_layer)
    from flax import nnx

    graph, *states = nnx.split(module, nnx.Param, ...)
    params, other_state = states
    if jax.tree.leaves(other_state):
        raise ValueError(
            "network: the nnx module has state besides its parameters (random streams or running "
            "statistics), which has no prior. Use layers without state."
        )
    return SplitNetwork(graph, _combine_nnx, Template(nnx.to_pure_dict(params)), last_layer)


def from_equinox(module: "equinox.Module", last_layer: str | None = None) -> Network:
    """Return an Equinox module as a network.

    Parameters
    ----------
    module : equinox.Module
        A module without state; it is called with a single row, as usual in Equinox.
    last_layer : str, optional
        Name of its last layer; needed for `trainable="last_layer"`.

    Returns
    -------
    Network
        The network.

    Raises
    ------
    ValueError
        If the module has state besides its parameters.
    """
    import equinox

    def is_state(leaf: object) -> bool:
        return isinstance(leaf, equinox.nn.StateIndex)

    if any(is_state(leaf) for leaf in jax.tree.leaves(module, is_leaf=is_state)):
        raise ValueError(
            "network: the Equinox module has state besides its parameters (running statistics), which has no "
            "prior. Use a layer without state, such as LayerNorm or GroupNorm."
        )
    params, static = equinox.partition(module, equinox.is_inexact_array)
    return SplitNetwork(static, _combine_equinox, Template(params), last_layer, kernels_are_out_in=True)


def from_functions(init: Callable, apply: Callable, last_layer: str | None = None) -> Network:
    """Return two functions as a network.

    Parameters
    ----------
    init : callable
        `init(key, inputs) -> params`, a pytree of arrays.
    apply : callable
        `apply(params, inputs) -> outputs`, with inputs (rows, ...) and outputs (rows, outputs).
    last_layer : str, optional
        Key of the last layer in the parameters; needed for `trainable="last_layer"`.

    Returns
    -------
    Network
        The network.
    """
    return FunctionNetwork(init, apply, last_layer)


def as_network(network: Any) -> Network:
    """Return `network` as a Network; it may be a Network, a Flax or Equinox module, or a pair (init, apply).

    Raises a TypeError if it is anything else.
    """
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


def _defined_in(value: object, package: str) -> bool:
    """Whether the class of `value`, or one of its base classes, is defined in `package`."""
    return any(f"{base.__module__}.".startswith(f"{package}.") for base in type(value).__mro__)
