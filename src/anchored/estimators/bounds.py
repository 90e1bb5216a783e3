"""How large the outputs of stored members can be: weights that are finite may still give outputs that are not.

With ‖·‖ the 2-norm, a layer h' = φ(W h + b) has ‖h'‖ ≤ ‖W‖ ‖h‖ + ‖b‖, since |φ(z)| ≤ |z| for all our activations but
softplus and logistic, which add less than 1. Units that are bounded by 1 begin anew.
"""

from functools import partial
from typing import Any

import numpy as np

from anchored.model.networks import MLP
from anchored.storage.headers import StorageError
from anchored.types import Params

FARTHEST_ROW = 1e6  # standard deviations, in each column
LARGEST_OUTPUT = 1e18  # its square is finite in float32
BOUNDED = ("tanh", "erf", "logistic", "sin")
frobenius = partial(np.linalg.norm, axis=(-2, -1))
spectral = partial(np.linalg.norm, ord=2, axis=(-2, -1))  # the norm itself; the other is above it, and cheap


def check_outputs(name: str, network: MLP, members: Params) -> None:
    """Raise a StorageError where a member of this network, or a unit in it, could overflow in float32."""
    if not any(largest(network, members, norm) < LARGEST_OUTPUT for norm in (frobenius, spectral)):
        far = f"rows {FARTHEST_ROW:g} standard deviations from the training data"
        raise StorageError(f"arrays {name + '/'!r} must give outputs below {LARGEST_OUTPUT:g} for {far}")


def largest(network: MLP, members: Params, norm: Any) -> float:
    """A bound on what any unit of any member gives.

    Members may hold several networks, which are added up or multiplied by one another's derivatives: products of sums
    of their norms bound the sums of their products.
    """
    parts = [members] if "layer_0" in members else [part for part in members.values() if isinstance(part, dict)]
    is_bounded = network.activation in BOUNDED and len(parts) == 1
    strength = np.maximum(1.0, np.abs(np.float64(members.get("strength", 1.0))))
    bound, most = np.float64(FARTHEST_ROW), 0.0
    with np.errstate(all="ignore"):
        for i in range(len(network.hidden_layer_sizes) + 1):
            layers = [part[f"layer_{i}"] for part in parts]
            n_inputs = layers[0]["weights"].shape[-2]
            if i == 0 or is_bounded:
                bound = np.sqrt(n_inputs) * (FARTHEST_ROW if i == 0 else 1.0)
            elif network.activation in ("softplus", "logistic"):
                bound = bound + np.sqrt(n_inputs)
            bound = bound * sum(norm(np.float64(layer["weights"])) for layer in layers)
            bound = bound + sum(
                np.linalg.norm(np.float64(layer["bias"]), axis=-1) for layer in layers if "bias" in layer
            )
            most = np.maximum(most, np.max(bound * strength))
    return float(most)
