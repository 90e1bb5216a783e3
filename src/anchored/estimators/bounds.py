"""Bound the outputs of stored members: finite weights may still give outputs that overflow.

With ‖·‖ the 2-norm, a layer h' = φ(W h + b) has ‖h'‖ ≤ ‖W‖ ‖h‖ + ‖b‖, since |φ(z)| ≤ |z| for all activations of
anchored but softplus and logistic, which add less than 1. After an activation bounded by 1, ‖h'‖ ≤ √units.
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from anchored.model.networks import MLP
from anchored.storage.headers import StorageError
from anchored.types import Params

MAX_ROW_DISTANCE = 1e6  # standard deviations from the training data, in each column
MAX_OUTPUT = 1e18  # its square does not overflow in float32
BOUNDED_ACTIVATIONS = ("tanh", "erf", "logistic", "sin")
frobenius = partial(np.linalg.norm, axis=(-2, -1))
spectral = partial(np.linalg.norm, ord=2, axis=(-2, -1))  # the tightest bound; the Frobenius norm is larger and cheaper


def check_outputs(name: str, network: MLP, members: Params) -> None:
    """Raise a StorageError about the arrays `name` if a unit of `members` of `network` could overflow in float32."""
    if not any(output_bound(network, members, norm) < MAX_OUTPUT for norm in (frobenius, spectral)):
        far = f"rows {MAX_ROW_DISTANCE:g} standard deviations from the training data"
        raise StorageError(f"arrays {name + '/'!r} must give outputs below {MAX_OUTPUT:g} for {far}")


def output_bound(network: MLP, members: Params, norm: Callable) -> float:
    """Return a bound on the absolute output of any unit of any member.

    Members may hold several networks whose outputs or derivatives are added and multiplied; the product of the sums of
    their norms bounds the sum of their products.

    Parameters
    ----------
    network : MLP
        The network.
    members : pytree
        Parameters with a leading member axis.
    norm : function
        The matrix norm of the last two axes: `frobenius` or `spectral`.
    """
    parts = [members] if "layer_0" in members else [part for part in members.values() if isinstance(part, dict)]
    is_bounded = network.activation in BOUNDED_ACTIVATIONS and len(parts) == 1
    strength = np.maximum(1.0, np.abs(np.float64(members.get("strength", 1.0))))
    bound, largest = np.float64(MAX_ROW_DISTANCE), 0.0
    with np.errstate(all="ignore"):
        for i in range(len(network.hidden_layer_sizes) + 1):
            layers = [part[f"layer_{i}"] for part in parts]
            n_inputs = layers[0]["weights"].shape[-2]
            if i == 0 or is_bounded:
                bound = np.sqrt(n_inputs) * (MAX_ROW_DISTANCE if i == 0 else 1.0)
            elif network.activation in ("softplus", "logistic"):
                bound = bound + np.sqrt(n_inputs)
            bound = bound * sum(norm(np.float64(layer["weights"])) for layer in layers)
            bound = bound + sum(
                np.linalg.norm(np.float64(layer["bias"]), axis=-1) for layer in layers if "bias" in layer
            )
            largest = np.maximum(largest, np.max(bound * strength))
    return float(largest)
