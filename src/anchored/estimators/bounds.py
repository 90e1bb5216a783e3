"""Check that the outputs of stored members cannot overflow, by an upper bound on their absolute values.

Let ‖·‖ be the 2-norm. A layer with inputs h, weights W, biases b and activation φ has outputs h' = φ(W h + b).

- Every activation but softplus and logistic has |φ(z)| ≤ c |z|, so that ‖h'‖ ≤ c (‖W‖ ‖h‖ + ‖b‖), with c = 1 except for
  erf, where c = 2/√π.
- For softplus and logistic |φ(z)| ≤ |z| + 1, so that ‖h'‖ ≤ ‖W‖ ‖h‖ + ‖b‖ + √units.
- For activations with |φ| ≤ 1, also ‖h'‖ ≤ √units.

Derivatives of all activations have |φ'| ≤ 1.13.
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from anchored.model.networks import MLP
from anchored.storage.headers import StorageError
from anchored.types import Params

MAX_INPUT = 1e6  # largest absolute standardised input for which outputs must not overflow
MAX_OUTPUT = 1e18  # largest absolute output; its square does not overflow in float32
BOUNDED_ACTIVATIONS = ("tanh", "erf", "logistic", "sin")  # activations with |φ| ≤ 1
MAX_SLOPE = 1.13  # the largest |φ'| of any activation (gelu has it), and an upper bound on c
frobenius_norm = partial(np.linalg.norm, axis=(-2, -1))  # an upper bound on the spectral norm, and faster
spectral_norm = partial(np.linalg.norm, ord=2, axis=(-2, -1))  # the ‖W‖ above


def check_outputs(name: str, network: MLP, members: Params) -> None:
    """Raise a StorageError if an output of a unit could overflow in float32.

    Parameters
    ----------
    name : str
        Start of the names of the members' arrays, for the error.
    network : MLP
        The network.
    members : pytree
        Parameters of the network, with a leading member axis.
    """
    if not any(output_bound(network, members, norm) < MAX_OUTPUT for norm in (frobenius_norm, spectral_norm)):
        far_rows = f"rows up to {MAX_INPUT:g} standard deviations from the training data"
        raise StorageError(f"arrays {name + '/'!r} must give outputs below {MAX_OUTPUT:g} for {far_rows}")


def output_bound(network: MLP, members: Params, norm: Callable) -> float:
    """Return an upper bound on the absolute output of any unit of any member.

    A member of `RandomizedPrior`, or one with the tangent correction, has several sets of parameters of one network.
    Its output is the sum of the outputs with each of them, or of an output and the derivative of the network with
    respect to its parameters in one direction. The norm of a layer is then replaced by the sum of its
    norms in these sets, and c by the largest slope of an activation.

    Parameters
    ----------
    network : MLP
        The network.
    members : pytree
        Parameters with a leading member axis. The entry "strength", if present, is a factor of the outputs.
    norm : function
        The matrix norm over the last two axes: `frobenius_norm` or `spectral_norm`.
    """
    parts = [members] if "layer_0" in members else [part for part in members.values() if isinstance(part, dict)]
    is_bounded = network.activation in BOUNDED_ACTIVATIONS and len(parts) == 1
    strength = np.maximum(1.0, np.abs(np.float64(members.get("strength", 1.0))))
    slope = MAX_SLOPE if len(parts) > 1 or network.activation == "erf" else 1.0
    bound, largest = np.float64(0.0), 0.0
    with np.errstate(all="ignore"):  # a bound that overflows is infinite or NaN, and is not below MAX_OUTPUT
        for i in range(len(network.hidden_layer_sizes) + 1):
            layers = [part[f"layer_{i}"] for part in parts]
            n_inputs = layers[0]["weights"].shape[-2]
            if i == 0:
                bound = np.sqrt(n_inputs) * MAX_INPUT
            elif is_bounded:
                bound = np.sqrt(n_inputs)
            elif network.activation in ("softplus", "logistic"):
                bound = slope * bound + np.sqrt(n_inputs)
            else:
                bound = slope * bound
            bound = bound * sum(norm(np.float64(layer["weights"])) for layer in layers)
            bound = bound + sum(
                np.linalg.norm(np.float64(layer["bias"]), axis=-1) for layer in layers if "bias" in layer
            )
            largest = np.maximum(largest, np.max(bound * strength))
    return float(largest)
