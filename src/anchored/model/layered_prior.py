"""The papers' prior: a normal for each layer, scaled by its fan-in."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from anchored import trees
from anchored.model.networks import MLP, Network
from anchored.model.priors import Prior
from anchored.types import Array, Params


def default_layer_scales(network: Network, first: float) -> tuple[float, ...]:
    """The papers' scales for an MLP: √b first, then √2 (ReLU) or 1 for deeper layers, 1 for the output.

    Any other network has two: one for all its hidden leaves, and 1 for its last layer.
    """
    if not isinstance(network, MLP):
        return (first, 1.0)
    n_deeper = len(network.hidden_layer_sizes) - 1
    deeper = 2**0.5 if network.activation == "relu" else 1.0
    return (first, *[deeper] * n_deeper, 1.0) if n_deeper >= 0 else (first,)


def layered_prior(network: Network, params: Params, layer_scales: Sequence[float]) -> Prior:
    """Fan-in scaling: weights N(0, c²/fan-in) and biases N(0, c²), with c the layer's entry in `layer_scales`.

    An MLP has one scale a layer, so the default is the papers' prior: first-layer weights N(0, b/D), biases
    N(0, b), output weights N(0, 1/H). Any other network has one for its hidden leaves and one for its last
    layer. Leaves that start as all ones are scales of a normalisation and centre at 1.
    """
    number = jnp.result_type(float).type  # NumPy's, since every eager JAX operation would be compiled
    mean = jax.tree.map(lambda leaf: number(_is_normaliser(network, leaf)), params)
    scale = jax.tree.map(
        lambda i, leaf: number(layer_scales[i] / _fan_in(network, leaf) ** 0.5), layer_indices(network, params), params
    )
    return Prior(mean, scale)


def layer_indices(network: Network, params: Params) -> Params:
    """Which layer each leaf belongs to, counted as `layered_prior` counts them."""

    def index(path: tuple[str, ...]) -> int:
        if isinstance(network, MLP):
            return int(path[0].removeprefix("layer_"))
        return int(network.last_layer is not None and network.last_layer in path)

    structure = jax.tree.structure(params)
    return jax.tree.unflatten(structure, [index(path) for path in trees.paths(params)])


def _fan_in(network: Network, leaf: Array) -> int:
    """How many inputs are summed into one output: kernels are (..., in, out), Equinox's (out, in, ...)."""
    if leaf.ndim < 2:
        return 1
    transposed = getattr(network, "kernels_are_out_in", False)
    return int(np.prod(leaf.shape[1:] if transposed else leaf.shape[:-1]))


def _is_normaliser(network: Network, leaf: Array) -> bool:
    return not isinstance(network, MLP) and leaf.ndim == 1 and bool(np.all(np.asarray(leaf) == 1))
