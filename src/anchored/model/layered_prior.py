"""The prior of Pearce et al. (2018): independent normals, whose standard deviations are set by one scale per layer.

Biases have the layer's scale as their standard deviation, and weights the scale divided by √fan-in.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from anchored import trees
from anchored.model.networks import MLP, Network
from anchored.model.priors import Prior
from anchored.types import Array, Params


def default_layer_scales(network: Network, first: float) -> tuple[float, ...]:
    """Return the default prior scale of each layer of `network`, with `first` (√b in the paper) for the first layer.

    In an MLP, further hidden layers have the scale √2 for ReLU and 1 for other activations, and the output layer has 1.
    Any other network has two scales: `first` for all layers but the last, and 1 for the last.
    """
    if not isinstance(network, MLP):
        return (first, 1.0)
    if not network.hidden_layer_sizes:
        return (first,)
    n_further = len(network.hidden_layer_sizes) - 1
    further = 2**0.5 if network.activation == "relu" else 1.0
    return (first, *[further] * n_further, 1.0)


def layered_prior(network: Network, params: object, layer_scales: Sequence[float]) -> Prior:
    """Return a prior with weights N(0, c²/fan-in) and biases N(0, c²), where c is the scale of the layer.

    With `default_layer_scales`, this is the paper's prior: for D features, H hidden units and a first scale √b, the
    first layer has weights N(0, b/D) and biases N(0, b), and the output layer has weights N(0, 1/H). In networks other
    than MLPs, a vector of ones is assumed to be the scale of a normalisation layer, and has the prior mean 1.

    Parameters
    ----------
    network : Network
        The network.
    params : pytree
        Parameters of the network, from `network.init`.
    layer_scales : sequence of float
        c of each layer of an MLP. For any other network two numbers: c of all layers but the last, and c of the last.

    Returns
    -------
    Prior
        The prior, with one mean and one standard deviation for each leaf of `params`.
    """
    float_type = jnp.result_type(float).type  # NumPy's, since JAX would compile each operation outside a program
    mean = jax.tree.map(lambda leaf: float_type(_is_normalisation_scale(network, leaf)), params)
    scale = jax.tree.map(
        lambda i, leaf: float_type(layer_scales[i] / _fan_in(network, leaf) ** 0.5),
        layer_indices(network, params),
        params,
    )
    return Prior(mean, scale)


def layer_indices(network: Network, params: object) -> Params:
    """Return a pytree like `params`, the parameters of `network`, with the index of each leaf's layer.

    It is the index of the layer's scale in the argument `layer_scales` of `layered_prior`.
    """

    def index(path: tuple[str, ...]) -> int:
        if isinstance(network, MLP):
            return int(path[0].removeprefix("layer_"))
        return int(network.last_layer is not None and network.last_layer in path)

    structure = jax.tree.structure(params)
    return jax.tree.unflatten(structure, [index(path) for path in trees.paths(params)])


def _fan_in(network: Network, leaf: Array) -> int:
    """Return the number of terms that are summed into one output; 1 for a bias.

    Kernels are (..., in, out), but (out, in, ...) in Equinox.
    """
    if leaf.ndim < 2:
        return 1
    is_out_in = getattr(network, "kernels_are_out_in", False)
    return int(np.prod(leaf.shape[1:] if is_out_in else leaf.shape[:-1]))


def _is_normalisation_scale(network: Network, leaf: Array) -> bool:
    """Return whether `leaf` is assumed to be the scale of a normalisation layer, because it is a vector of ones."""
    return not isinstance(network, MLP) and leaf.ndim == 1 and bool(np.all(np.asarray(leaf) == 1))
