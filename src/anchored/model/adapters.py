"""Adapters that make networks from Flax modules, Equinox modules and pairs of functions."""

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
    """A network made from a Flax linen module, which is called with a batch of rows."""

    module: "linen.Module"
    last_layer: str | None = None  # key of the last layer in the parameters; None if unknown

    def init(self, key: Key, inputs: Array) -> Params:
        """Return parameters, initialised with the random key `key`, for rows shaped like the rows of `inputs`.

        Raises a ValueError if the module has state besides its parameters.
        """
        variables = self.module.init(key, inputs)
        state_collections = sorted(set(variables) - {"params"})
        if state_collections:
            raise ValueError(
                f"network: the Flax module has the collections {state_collections} besides its parameters, and "
                "state such as running statistics has no prior. Use layers without state, such as LayerNorm."
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
                "Remove Dropout, or make it deterministic. For Monte-Carlo dropout, use `anchored.methods.MCDropout`."
            ) from error


@dataclass(frozen=True)
class SplitNetwork:
    """A network made from a Flax nnx or Equinox module, which is split into its arrays and a static part."""

    static: Hashable  # the module without its arrays
    combine: Callable[..., Callable[[Array], Array]]  # (static part, arrays) -> module
    arrays: "ModuleArrays"
    last_layer: str | None = None  # key of the last layer in the parameters; None if unknown
    kernels_are_out_in: bool = False  # whether kernels are (out, in, …), as in Equinox; in Flax they are (…, in, out)

    def init(self, key: Key, inputs: Array) -> Params:
        """Return the arrays of the module that the network was made from; `key` and `inputs` are ignored."""
        return self.arrays.tree

    def apply(self, params: Params, inputs: Array) -> Array:
        """Return outputs (rows, outputs) with parameters `params` for `inputs` (rows, ...)."""
        return self.combine(self.static, params)(inputs)


class ModuleArrays:
    """The arrays of a module. They can be hashed, and are compared by their structure, shapes and types only.

    A SplitNetwork can therefore be hashed, and networks that differ only in their initial values are equal.

    Parameters
    ----------
    tree : pytree
        The arrays.
    """

    def __init__(self, tree: object):
        self.tree = tree
        leaves, structure = jax.tree.flatten(tree)
        self._signature = (structure, tuple((leaf.shape, str(leaf.dtype)) for leaf in leaves))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ModuleArrays) and self._signature == other._signature

    def __hash__(self) -> int:
        return hash(self._signature)


def _combine_nnx(graph: "nnx.GraphDef", params: Params) -> Callable[[Array], Array]:
    """Rebuild a Flax nnx module from its graph definition and its parameters."""
    from flax import nnx

    return nnx.merge(graph, params)


def _combine_equinox(static: Hashable, params: Params) -> Callable[[Array], Array]:
    """Rebuild an Equinox module from its static part and its parameters, as a function of a batch of rows."""
    import equinox

    return jax.vmap(equinox.combine(params, static))


def from_flax(module: "linen.Module | nnx.Module", last_layer: str | None = None) -> Network:
    """Make a network from a Flax module.

    Parameters
    ----------
    module : flax.linen.Module or flax.nnx.Module
        A module without state besides its parameters. It is called with a batch of rows.
    last_layer : str, optional
        Name of the module's last layer, such as "Dense_1". It is needed for `trainable="last_layer"`.

    Returns
    -------
    Network
        The network.

    Raises
    ------
    ValueError
        If an nnx module has state besides its parameters. A linen module is checked when it is initialised.
    """
    if _defined_in(module, "flax.linen"):
        return FlaxLinenNetwork(cast("linen.Module", module), last_layer)
    from flax import nnx

    graph, *states = nnx.split(module, nnx.Param, ...)
    params, other_state = states
    if jax.tree.leaves(other_state):
        raise ValueError(
            "network: the nnx module has state besides its parameters (random streams or running "
            "statistics), which has no prior. Use layers without state, such as LayerNorm."
        )
    return SplitNetwork(graph, _combine_nnx, ModuleArrays(nnx.to_pure_dict(params)), last_layer)


def from_equinox(module: "equinox.Module", last_layer: str | None = None) -> Network:
    """Make a network from an Equinox module.

    Parameters
    ----------
    module : equinox.Module
        A module without state besides its parameters. It is called with a single row, as usual in Equinox.
    last_layer : str, optional
        Name of the module's last layer. It is needed for `trainable="last_layer"`.

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
            "prior. Use layers without state, such as LayerNorm."
        )
    params, static = equinox.partition(module, equinox.is_inexact_array)
    return SplitNetwork(static, _combine_equinox, ModuleArrays(params), last_layer, kernels_are_out_in=True)


def from_functions(init: Callable, apply: Callable, last_layer: str | None = None) -> Network:
    """Make a network from a pair of functions.

    Parameters
    ----------
    init : callable
        `init(key, inputs) -> params`, with a random key, inputs (rows, ...) and params a pytree of arrays.
    apply : callable
        `apply(params, inputs) -> outputs`, with inputs (rows, ...) and outputs (rows, outputs).
    last_layer : str, optional
        Key of the last layer in the parameters. It is needed for `trainable="last_layer"`.

    Returns
    -------
    Network
        The network.
    """
    return FunctionNetwork(init, apply, last_layer)


def as_network(network: Any) -> Network:
    """Return `network` as a Network.

    It may be a Network, a Flax or Equinox module, or a pair of functions (init, apply). Raises a TypeError if it is
    anything else.
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
        "(init, apply), or the result of anchored.from_flax, from_equinox or from_functions."
    )


def _defined_in(value: object, package: str) -> bool:
    """Return whether the class of `value`, or one of its base classes, is defined in `package`."""
    return any(f"{base.__module__}.".startswith(f"{package}.") for base in type(value).__mro__)
