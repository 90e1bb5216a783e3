"""The Q-network, the rescaling of its inputs, and the prior of its parameters."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from anchored.model.layered_prior import layered_prior
from anchored.model.networks import ACTIVATIONS, Network
from anchored.model.priors import Prior
from anchored.types import Array, Key, Params

LayerParams = dict[str, dict[str, Array]]  # by layer: "weights" and "bias"

MAX_UNROLLED = 8  # largest number of inputs or outputs of a layer for which products with one row are written out


@dataclass(frozen=True)
class QNetwork:
    """A multilayer perceptron from observations to the Q-values of all actions, with a bias for each action.

    An image is flattened. An integer observation selects a row of the first layer's weights, which equals the product
    of its one-hot vector with the weights.

    Parameters
    ----------
    hidden_layer_sizes
        Number of units in each hidden layer.
    n_actions
        Number of outputs.
    n_observations
        Number of different integer observations; None if observations are vectors or images.
    activation
        Name of the activation of the hidden units.
    """

    hidden_layer_sizes: tuple[int, ...]
    n_actions: int
    n_observations: int | None = None
    activation: str = "relu"

    @property
    def n_layers(self) -> int:
        """Number of layers with parameters."""
        return len(self.hidden_layer_sizes) + 1

    @property
    def last_layer(self) -> str:
        """The name of the last layer's parameters."""
        return f"layer_{self.n_layers - 1}"

    def init(self, key: Key, inputs: Array) -> LayerParams:
        """Return parameters for `inputs`, (rows, ...) or (rows,) of integers, all zero.

        Members are drawn from the prior, so only the shapes are needed; `key` is not used.
        """
        sizes = (self.n_observations or math.prod(inputs.shape[1:]), *self.hidden_layer_sizes, self.n_actions)
        dtype = jnp.result_type(float)
        return {
            f"layer_{i}": {
                "weights": np.zeros((sizes[i], sizes[i + 1]), dtype),
                "bias": np.zeros(sizes[i + 1], dtype),
            }
            for i in range(len(sizes) - 1)
        }

    def apply(self, params: LayerParams, inputs: Array) -> Array:
        """Return the Q-values, (rows, actions), of `params` for `inputs`, (rows, ...) or (rows,) of integers."""
        activate = ACTIVATIONS[self.activation]
        hidden = inputs
        if self.n_observations is None:
            hidden = inputs.reshape(inputs.shape[0], -1).astype(params["layer_0"]["weights"].dtype)
        for i in range(len(self.hidden_layer_sizes) + 1):
            layer = params[f"layer_{i}"]
            if i > 0:
                hidden = activate(hidden)
            is_last = i == len(self.hidden_layer_sizes)
            hidden = self._product(hidden, layer["weights"], is_last) + layer["bias"]
        return hidden

    def _product(self, hidden: Array, weights: Array, is_last: bool) -> Array:
        """Return hidden @ weights, in the way that is fastest for their shapes; the last layer has few outputs."""
        if jnp.issubdtype(hidden.dtype, jnp.integer):
            return weights[hidden]
        if hidden.shape[0] == 1:
            return _product_of_one_row(hidden[0], weights)[None]
        if is_last:
            # For few actions, computing the gradient is several times faster with transposed weights
            by_action = jax.lax.optimization_barrier(weights.T)
            return jax.lax.dot_general(hidden, by_action, (((1,), (1,)), ((), ())))
        return hidden @ weights


def _product_of_one_row(row: Array, weights: Array) -> Array:
    """Return row @ weights.

    A sum of few terms is written out: XLA fuses it with later operations, which is twice as fast as a matrix product.
    """
    if weights.shape[0] <= MAX_UNROLLED:
        return sum((row[i] * weights[i] for i in range(1, weights.shape[0])), start=row[0] * weights[0])
    if weights.shape[1] <= MAX_UNROLLED:
        return jnp.stack([jnp.sum(row * weights[:, j]) for j in range(weights.shape[1])])
    return jnp.sum(row[:, None] * weights, 0)


@dataclass(frozen=True)
class Rescaled:
    """A network of rescaled inputs, (inputs − centre) / half_range, which lie in about [−1, 1].

    Parameters
    ----------
    network
        The network that the rescaled inputs are passed to.
    centre, half_range
        One number for each entry of an observation, or for all.
    """

    network: Network
    centre: tuple[float, ...]
    half_range: tuple[float, ...]

    @property
    def last_layer(self) -> str | None:
        """The name of the last layer's parameters in `network`; None if it has none."""
        return self.network.last_layer

    def init(self, key: Key, inputs: Array) -> Params:
        """Return the initial parameters of `network` for `inputs`, (rows, features), drawn from `key`."""
        return self.network.init(key, inputs)

    def apply(self, params: Params, inputs: Array) -> Array:
        """Return the outputs of `network` with parameters `params` for the rescaled `inputs`, (rows, features)."""
        if inputs.dtype == np.uint8:  # an image
            inputs = inputs.astype(jnp.result_type(float))
        centre, half_range = np.asarray(self.centre, inputs.dtype), np.asarray(self.half_range, inputs.dtype)
        return self.network.apply(params, (inputs - centre) / half_range)


def q_prior(network: Network, params: Params, layer_scales: Sequence[float]) -> Prior:
    """Return the prior of a network's parameters.

    It is `layered_prior`, with two differences for a `QNetwork`: the prior scale of the output biases is 0, and an
    integer observation counts as a single input of the first layer.

    Parameters
    ----------
    network
        The network, before its inputs are rescaled.
    params
        Its parameters, or their shapes.
    layer_scales
        The prior scale of each layer; for its weights, it is divided by the square root of the number of inputs.

    Returns
    -------
    Prior
        Means and scales of all parameters.
    """
    if not isinstance(network, QNetwork):
        return layered_prior(network, params, layer_scales)
    as_float = jnp.result_type(float).type

    def scales(i: int, layer: dict[str, Array]) -> dict[str, np.floating]:
        one_hot = i == 0 and network.n_observations is not None
        fan_in = 1 if one_hot else math.prod(layer["weights"].shape[:-1])
        is_last = i == network.n_layers - 1
        return {
            "weights": as_float(layer_scales[i] / fan_in**0.5),
            "bias": as_float(0.0 if is_last else layer_scales[i]),
        }

    scale = {f"layer_{i}": scales(i, params[f"layer_{i}"]) for i in range(len(params))}
    return Prior(jax.tree.map(lambda _: as_float(0), scale), scale)


def anchor_strength(prior: Prior, noise_variance: float) -> Params:
    """Return the strength of the penalty, σ²/s², for each leaf of the `prior`.

    σ² is `noise_variance`, the variance of the targets' noise, and s the prior scale. The strength is 0 if s is 0.
    """

    def ratio(scale: Array) -> Array:
        has_spread = np.asarray(scale) > 0
        return np.where(has_spread, noise_variance / np.where(has_spread, scale, 1) ** 2, 0).astype(
            np.result_type(scale)
        )

    return jax.tree.map(ratio, prior.scale)
