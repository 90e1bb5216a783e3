"""What an anchored ensemble converges to as its networks grow wide, in closed form.

A wide network moves in its tangent space. With T the tangent kernel of the layers trained, K the covariance of the
outputs at the anchors, N the noise and G = T_*X (T_XX + N)⁻¹, a member ends at f = f₀ + G (y + ε − f₀(X)), so that
members have

    mean G y,    covariance K_** − G K_X* − K_*X Gᵀ + G (K_XX [+ N with noisy targets]) Gᵀ

(He, Lakshminarayanan & Teh 2020). With the last layer alone trained T = K, and with noisy targets this is the GP
posterior exactly (Proposition 1). With all layers trained it is neither K's posterior nor that of Θ; adding to each
member the fixed function δ(x) = ∇f(x; θ₀)·θ̃ makes the anchors' covariance T as well, and the law Θ's posterior.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import linalg

from anchored.exact.kernels import Kernel, NetworkKernel, RBFKernel, gram, tangent_kernel
from anchored.exact.processes import cholesky
from anchored.types import Array


class Grams(NamedTuple):
    """A kernel between rows X and points *: K_XX, K_X* and K_**."""

    rows: np.ndarray
    crossed: np.ndarray
    points: np.ndarray


@dataclass(frozen=True)
class WideLimit:
    """The law of infinitely wide members about a process of mean zero, for one output."""

    start: Kernel  # covariance of the outputs at the anchors
    moving: Kernel  # tangent kernel of what is trained
    noise_variance: float
    noisy_targets: bool

    def law(
        self, inputs: Array, targets: Array, points: Array, weights: Array | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Mean (points,) and covariance (points, points) of members trained on the rows given."""
        noise = np.full(len(inputs), self.noise_variance) / (1 if weights is None else np.ravel(weights))
        start, moving = (
            Grams(gram(kernel, inputs), gram(kernel, inputs, points), gram(kernel, points))
            for kernel in (self.start, self.moving)
        )
        return anchored_law(start, moving, noise, np.ravel(targets), self.noisy_targets)


def wide_limit(
    kernel: NetworkKernel | RBFKernel,
    noise_variance: float,
    anchoring: str = "prior",
    trainable: str = "all",
    tangent_correction: bool = False,
) -> WideLimit:
    """The limit of `AnchoredEnsemble` with these settings; `kernel` is the model's, from `kernel_of`.

    One κ for all layers is the limit of "prior" for a prior of variance κs² and noise κσ²: eq. 2 divided by κ.
    """
    if anchoring not in ("prior", "randomized"):
        raise ValueError(f"anchoring: the wide limit is of 'prior' or 'randomized', got {anchoring!r}")
    if trainable not in ("all", "last_layer"):
        raise ValueError(f"trainable must be 'all' or 'last_layer', got {trainable!r}")
    tangent = tangent_kernel(kernel)
    start = tangent if tangent_correction else kernel
    return WideLimit(start, tangent if trainable == "all" else kernel, noise_variance, anchoring == "randomized")


def anchored_law(
    start: Grams, moving: Grams, noise: np.ndarray, targets: np.ndarray, noisy_targets: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance at the points of members that are linear in what is trained."""
    factor = cholesky(moving.rows + np.diag(noise))
    gain = linalg.cho_solve((factor, True), moving.crossed).T
    within = start.rows + (np.diag(noise) if noisy_targets else 0)
    crossed = gain @ start.crossed
    return gain @ targets, start.points - crossed - crossed.T + gain @ within @ gain.T
