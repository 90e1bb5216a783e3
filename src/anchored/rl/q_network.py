"""A multilayer perceptron for Q-values."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from anchored.model.networks import ACTIVATIONS, Network
from anchored.types import Array, Key, Params

FEW = 8  # inputs or actions


@dataclass(frozen=True)
class QNetwork:
    """An MLP from observations to the values of all actions, with a bias for each action.

    Integer observations pick a row of the first layer, which is what multiplying by their one-hot vectors would
    do, without the zeros.
    """

    hidden_layer_sizes: tuple[int, ...]
    n_actions: int
    n_observations: int | None = None  # how many integers there are; None for vectors
    activation: str = "relu"

    @property
    def last_layer(self) -> str:
        return f"layer_{len(self.hidden_layer_sizes)}"

    def init(self, key: Key, inputs: Array) -> Params:
        """Zeros: where a member starts is drawn from the prior, not here."""
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
            # Laid out by action: the gradient of a few actions' weights is several times faster that way round.
            by_action = jax.lax.optimization_barrier(weights.T)
            return jax.lax.dot_general(hidden, by_action, (((1,), (1,)), ((), ())))
        return hidden @ weights


def _product_of_one_row(row: Array, weights: Array) -> Array:
    """For acting: a few terms written out become one loop with what comes next, twice as fast as a product."""
    if weights.shape[0] <= FEW:
        return sum((row[i] * weights[i] for i in range(1, weights.shape[0])), start=row[0] * weights[0])
    if weights.shape[1] <= FEW:
        return jnp.stack([jnp.sum(row * weights[:, j]) for j in range(weights.shape[1])])
    return jnp.sum(row[:, None] * weights, 0)


@dataclass(frozen=True)
class Rescaled:
    """A network whose inputs are first brought to about [−1, 1], so that one prior suits them all."""

    network: Network
    centre: tuple[float, ...]
    half_range: tuple[float, ...]

    @property
    def last_layer(self) -> str | None:
        return self.network.last_layer

    def init(self, key: Key, inputs: Array) -> Params:
        return self.network.init(key, inputs)

    def apply(self, params: Params, inputs: Array) -> Array:
        centre, half_range = np.asarray(self.centre, inputs.dtype), np.asarray(self.half_range, inputs.dtype)
        return self.network.apply(params, (inputs - centre) / half_range)
