"""The Q-network: a multilayer perceptron, rescaled observations, and the prior of its parameters."""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from anchored.model.layered_prior import layered_prior
from anchored.model.networks import ACTIVATIONS, Network
from anchored.model.priors import Prior
from anchored.types import Array, Key, Params

FEW = 8  # inputs or actions


@dataclass(frozen=True)
class QNetwork:
    """A multilayer perceptron from observations to the Q-values of all actions, with a bias for each action.

    Integer observations select a row of the first layer's weights, which equals the product with their one-hot
    vectors.
    """

    hidden_layer_sizes: tuple[int, ...]
    n_actions: int
    n_observations: int | None = None  # number of integer observations; None for vectors
    activation: str = "relu"

    @property
    def last_layer(self) -> str:
        """The name of the last layer's parameters."""
        return f"layer_{len(self.hidden_layer_sizes)}"

    def init(self, key: Key, inputs: Array) -> Params:
        """Parameters for `inputs` (rows, features) or (rows,) of integers, all zero: members are drawn from the prior.

        `key` is not used.
        """
        sizes = (self.n_observations or inputs.shape[-1], *self.hidden_layer_sizes, self.n_actions)
        number = jnp.result_type(float)
        return {
            f"layer_{i}": {
                "weights": np.zeros((sizes[i], sizes[i + 1]), number),
                "bias": np.zeros(sizes[i + 1], number),
            }
            for i in range(len(sizes) - 1)
        }

    def apply(self, params: Params, inputs: Array) -> Array:
        """Q-values (rows, actions) for `inputs` (rows, features) or (rows,) of integers."""
        activate = ACTIVATIONS[self.activation]
        hidden = inputs
        for i in range(len(self.hidden_layer_sizes) + 1):
            layer = params[f"layer_{i}"]
            if i > 0:
                hidden = activate(hidden)
            last = i == len(self.hidden_layer_sizes)
            hidden = self._product(hidden, layer["weights"], last) + layer["bias"]
        return hidden

    def _product(self, hidden: Array, weights: Array, last: bool) -> Array:
        if jnp.issubdtype(hidden.dtype, jnp.integer):
            return weights[hidden]
        if hidden.shape[0] == 1:
            return _product_of_one_row(hidden[0], weights)[None]
        if last:
            # Transposed: with few actions the gradient of the weights is several times faster in this layout.
            by_action = jax.lax.optimization_barrier(weights.T)
            return jax.lax.dot_general(hidden, by_action, (((1,), (1,)), ((), ())))
        return hidden @ weights


def _product_of_one_row(row: Array, weights: Array) -> Array:
    """row @ weights, for acting: a few terms written out are fused with what follows, twice as fast as a product."""
    if weights.shape[0] <= FEW:
        return sum((row[i] * weights[i] for i in range(1, weights.shape[0])), start=row[0] * weights[0])
    if weights.shape[1] <= FEW:
        return jnp.stack([jnp.sum(row * weights[:, j]) for j in range(weights.shape[1])])
    return jnp.sum(row[:, None] * weights, 0)


@dataclass(frozen=True)
class Rescaled:
    """A network whose inputs are first brought to about [−1, 1]: (inputs − centre) / half_range, entry by entry."""

    network: Network
    centre: tuple[float, ...]
    half_range: tuple[float, ...]

    @property
    def last_layer(self) -> str | None:
        """The name of the last layer's parameters in `network`."""
        return self.network.last_layer

    def init(self, key: Key, inputs: Array) -> Params:
        """Parameters of `network` for `inputs` (rows, features)."""
        return self.network.init(key, inputs)

    def apply(self, params: Params, inputs: Array) -> Array:
        """Outputs of `network` for the rescaled `inputs` (rows, features)."""
        centre, half_range = np.asarray(self.centre, inputs.dtype), np.asarray(self.half_range, inputs.dtype)
        return self.network.apply(params, (inputs - centre) / half_range)


def q_prior(network: Network, params: Params, layer_scales: Sequence[float]) -> Prior:
    """The prior of a network with parameters like `params` and one scale for each layer.

    It is `layered_prior`, except that in a `QNetwork` the biases of actions start at zero, and that an integer
    observation counts as one input of the first layer.
    """
    if not isinstance(network, QNetwork):
        return layered_prior(network, params, layer_scales)
    number = jnp.result_type(float).type

    def scales(i: int, layer: dict[str, Array]) -> dict[str, np.floating]:
        one_hot = i == 0 and network.n_observations is not None
        fan_in = 1 if one_hot else layer["weights"].shape[0]
        is_last = i == len(network.hidden_layer_sizes)
        return {"weights": number(layer_scales[i] / fan_in**0.5), "bias": number(0.0 if is_last else layer_scales[i])}

    scale = {f"layer_{i}": scales(i, params[f"layer_{i}"]) for i in range(len(params))}
    return Prior(jax.tree.map(lambda _: number(0), scale), scale)


def anchor_strength(prior: Prior, noise_variance: float) -> Params:
    """σ²/s² for each leaf of the prior, where σ² is `noise_variance`, of the targets; 0, no pull, where s is 0."""

    def ratio(scale: Array) -> Array:
        known = np.asarray(scale) > 0
        return np.where(known, noise_variance / np.where(known, scale, 1) ** 2, 0).astype(np.result_type(scale))

    return jax.tree.map(ratio, prior.scale)
