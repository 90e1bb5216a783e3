"""The papers' prior: independent normals with one scale per layer, divided by √fan-in for weights."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from anchored import trees
from anchored.model.networks import MLP, Network
from anchored.model.priors import Prior
from anchored.types import Array, Params


def default_layer_scales(network: Network, first: float) -> tuple[float, ...]:
    """Return the papers' prior scales of `network`'s layers, with the scale `first` (√b in the papers) for the first.

    In an MLP, deeper layers have the scale √2 for ReLU and 1 for other activations, and the output layer has 1. Any
    other network has two scales: `first` for all leaves but those of its last layer, and 1 for its last layer.
    """
    if not isinstance(network, MLP):
        return (first, 1.0)
    n_deeper = len(network.hidden_layer_sizes) - 1
    deeper = 2**0.5 if network.activation == "relu" else 1.0
    return (first, *[deeper] * n_deeper, 1.0) if n_deeper >= 0 else (first,)


def layered_prior(network: Network, params: object, layer_scales: Sequence[float]) -> Prior:
    """Return a prior with weights N(0, c²/fan-in) and biases N(0, c²), where c is the scale of the layer.

    With `default_layer_scales`, this is the papers' prior: for D features, H hidden units and a first scale √b, the
    first layer has weights N(0, b/D) and biases N(0, b), and the output layer has weights N(0, 1/H). In networks other
    than MLPs, a vector of ones is assumed to be the scale of a normalisation layer, and its prior mean is 1.

    Parameters
    ----------
    network : Network
        The network.
    params : pytree
        Its parameters, from `network.init`.
    layer_scales : sequence of float
        c for each layer of an MLP; for any other network, first c for all layers but the last, then c for the last.

    Returns
    -------
    Prior
        A mean and a scale for each leaf.
    """
    float_type = jnp.result_type(float).type  # a NumPy type, since every eager JAX operation would be compiled
    mean = jax.tree.map(lambda leaf: float_type(_is_normalisation_scale(network, leaf)), params)
    scale = jax.tree.map(
        lambda i, leaf: float_type(layer_scales[i] / _fan_in(network, leaf) ** 0.5),
        layer_indices(network, params),
        params,
    )
    return Prior(mean, scale)


def layer_indices(network: Network, params: object) -> Params:
    """Return the index of each leaf's layer in the `layer_scales` of `layered_prior`.

    `params` are parameters of `network`; the result has their structure.
    """

    def index(path: tuple[str, ...]) -> int:
        if isinstance(network, MLP):
            return int(path[0].removeprefix("layer_"))
        return int(network.last_layer is not None and network.last_layer in path)

    structure = jax.tree.structure(params)
    return jax.tree.unflatten(structure, [index(path) for path in trees.paths(params)])


def _fan_in(network: Network, leaf: Array) -> int:
    """Number of inputs that are summed into one output; kernels are (..., in, out), but (out, in, ...) in Equinox."""
    if leaf.ndim < 2:
        return 1
    is_out_in = getattr(network, "kernels_are_out_in", False)
    return int(np.prod(leaf.shape[1:] if is_out_in else leaf.shape[:-1]))


def _is_normalisation_scale(network: Network, leaf: Array) -> bool:
    """Whether a leaf is assumed to be the scale of a normalisation layer, because it is a vector of ones."""
    return not isinstance(network, MLP) and leaf.ndim == 1 and bool(np.all(np.asarray(leaf) == 1))
