"""The convolutional Q-network, which is chosen for observations that are images of bytes."""

from dataclasses import dataclass
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np

from anchored.model.networks import ACTIVATIONS
from anchored.rl.environments.images import extent, is_channels_first
from anchored.rl.q_network import LayerParams, QNetwork
from anchored.types import Array, Key

Convolution = tuple[int, int, int]  # number of filters, height (and width) of a filter, stride

# The convolutions of Mnih et al. (2015), for the frames of a screen, and of Young and Tian (2019), for small images
FOR_LARGE: tuple[Convolution, ...] = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
FOR_SMALL: tuple[Convolution, ...] = ((16, 3, 1),)
MIN_LARGE = 36  # smallest height and width to which FOR_LARGE can be applied


@dataclass(frozen=True)
class ImageQNetwork(QNetwork):
    """Convolutions without padding, followed by the layers of a `QNetwork`.

    Parameters
    ----------
    convolutions
        Number of filters, size of a filter, and stride of each convolution.
    channels_first
        Whether an observation has the shape (channels, height, width) instead of (height, width, channels) or
        (height, width).
    """

    convolutions: tuple[Convolution, ...] = FOR_LARGE
    channels_first: bool = False

    @property
    def n_layers(self) -> int:
        """Number of layers with parameters."""
        return len(self.convolutions) + super().n_layers

    def init(self, key: Key, inputs: Array) -> LayerParams:
        """Return parameters for `inputs`, (rows, ...), all zero; `key` is not used."""
        height, width, n_channels = jax.eval_shape(self._images, inputs).shape[1:]
        dtype = jnp.result_type(float)
        shapes: list[tuple[int, ...]] = []
        for n_filters, size, stride in self.convolutions:
            shapes.append((size, size, n_channels, n_filters))
            height, width, n_channels = (height - size) // stride + 1, (width - size) // stride + 1, n_filters
        sizes = (height * width * n_channels, *self.hidden_layer_sizes, self.n_actions)
        shapes += list(pairwise(sizes))
        return {
            f"layer_{i}": {"weights": np.zeros(shape, dtype), "bias": np.zeros(shape[-1], dtype)}
            for i, shape in enumerate(shapes)
        }

    def apply(self, params: LayerParams, inputs: Array) -> Array:
        """Return the Q-values, (rows, actions), of `params` for `inputs`, images, (rows, ...)."""
        activate = ACTIVATIONS[self.activation]
        hidden: jax.Array = jnp.asarray(self._images(inputs)).astype(params["layer_0"]["weights"].dtype)
        for i, (_, _, stride) in enumerate(self.convolutions):
            layer = params[f"layer_{i}"]
            weights, axes = jnp.asarray(layer["weights"]), ("NHWC", "HWIO", "NHWC")
            products = jax.lax.conv_general_dilated(hidden, weights, (stride, stride), "VALID", dimension_numbers=axes)
            hidden = jnp.asarray(activate(products + layer["bias"]))
        hidden = hidden.reshape(hidden.shape[0], -1)
        for i in range(len(self.convolutions), self.n_layers):
            layer = params[f"layer_{i}"]
            hidden = hidden @ layer["weights"] + layer["bias"]
            hidden = jnp.asarray(activate(hidden)) if i < self.n_layers - 1 else hidden
        return hidden

    def _images(self, inputs: Array) -> Array:
        """Return the observations `inputs`, (rows, ...), as images, (rows, height, width, channels)."""
        if inputs.ndim == 3:
            return inputs[..., None]
        return jnp.moveaxis(inputs, 1, -1) if self.channels_first else inputs


def image_network(
    observation: np.ndarray, hidden_layer_sizes: tuple[int, ...], n_actions: int, activation: str
) -> ImageQNetwork:
    """Return a network for images like `observation`, with the dense layers and outputs that the arguments describe."""
    shape = observation.shape
    convolutions = FOR_LARGE if min(extent(shape)) >= MIN_LARGE else FOR_SMALL
    return ImageQNetwork(hidden_layer_sizes, n_actions, None, activation, convolutions, is_channels_first(shape))
