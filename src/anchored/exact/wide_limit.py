"""The distribution of anchored ensemble members in the limit of infinite width, in closed form.

A wide network trains like its linearisation at the anchor. Let T be the tangent kernel of the layers that are trained,
and K the covariance of the outputs at the anchors. Let X be the training rows, y their targets, * the points to predict
at, Λ the diagonal matrix of the rows' noise variances, and G = T_*X (T_XX + Λ)⁻¹. A member whose anchor has the
function f₀ is trained to f = f₀ + G (y + ε − f₀(X)), where ε ~ N(0, Λ) if targets are noisy, and 0 otherwise. Members
therefore have

    mean G y,    covariance K_** − G K_X* − K_*X Gᵀ + G (K_XX [+ Λ with noisy targets]) Gᵀ

(He, Lakshminarayanan & Teh 2020). If only the last layer is trained, T = K, and with noisy targets this is exactly the
posterior of the Gaussian process with kernel K (Proposition 1 in docs/ideas/limit.md). If all layers are trained, T is
the tangent kernel Θ of the network, and the result is the posterior of neither K nor Θ. The tangent correction adds a
fixed function δ(x) = ∇f(x; θ₀)·θ̃ to each member, so that the covariance at the anchors becomes Θ too. If all layers are
then trained with noisy targets, the result is the posterior of Θ.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import linalg

from anchored.exact.kernels import Kernel, MLPKernel, RBFNetworkKernel, gram, tangent_kernel
from anchored.exact.processes import cholesky
from anchored.types import Array


class Grams(NamedTuple):
    """The matrices of a kernel between training rows X and the points * to predict at."""

    rows: np.ndarray  # K_XX, (rows, rows)
    crossed: np.ndarray  # K_X*, (rows, points)
    points: np.ndarray  # K_**, (points, points)


@dataclass(frozen=True)
class WideLimit:
    """The distribution of infinitely wide members with a prior of mean zero, for one output."""

    anchor_kernel: Kernel  # covariance of the outputs at the anchors
    trained_kernel: Kernel  # tangent kernel of the layers that are trained
    noise_variance: float  # σ² of the likelihood
    noisy_targets: bool  # whether noise is added to the targets of each member

    def distribution(
        self, inputs: Array, targets: Array, points: Array, weights: Array | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the distribution of the members' outputs after training.

        Parameters
        ----------
        inputs : (rows, features) array
            Training inputs.
        targets : (rows,) or (rows, 1) array
            Training targets.
        points : (points, features) array
            Inputs to predict at.
        weights : (rows,) or (rows, 1) array, optional
            Positive numbers w. The noise variance of a row is σ²/w. By default all are 1.

        Returns
        -------
        mean : (points,) array
        covariance : (points, points) array
        """
        noise = np.full(len(inputs), self.noise_variance) / (1 if weights is None else np.ravel(weights))
        anchors, trained = (
            Grams(gram(kernel, inputs), gram(kernel, inputs, points), gram(kernel, points))
            for kernel in (self.anchor_kernel, self.trained_kernel)
        )
        return anchored_distribution(anchors, trained, noise, np.ravel(targets), self.noisy_targets)


def wide_limit(
    kernel: MLPKernel | RBFNetworkKernel,
    noise_variance: float,
    anchoring: str = "prior",
    trainable: str = "all",
    tangent_correction: bool = False,
) -> WideLimit:
    """Return the wide limit of an `AnchoredEnsemble` with these settings.

    For anchoring with a number κ, pass "prior" with the kernel of a prior of variance κs² and the noise variance κσ².
    The anchored loss depends on σ² and s² only through σ²/s², so it remains the same.

    Parameters
    ----------
    kernel : MLPKernel or RBFNetworkKernel
        Kernel of the model, from `kernel_of`.
    noise_variance : float
        Noise variance σ² of the likelihood.
    anchoring : {"prior", "randomized"}
        As in `AnchoredEnsemble`.
    trainable : {"all", "last_layer"}
        As in `AnchoredEnsemble`.
    tangent_correction : bool
        As in `AnchoredEnsemble`.

    Returns
    -------
    WideLimit
        The limit. Its method `distribution` takes the data.
    """
    if anchoring not in ("prior", "randomized"):
        raise ValueError(f"anchoring must be 'prior' or 'randomized', got {anchoring!r}")
    if trainable not in ("all", "last_layer"):
        raise ValueError(f"trainable must be 'all' or 'last_layer', got {trainable!r}")
    tangent = tangent_kernel(kernel)
    anchor_kernel = tangent if tangent_correction else kernel
    trained_kernel = tangent if trainable == "all" else kernel
    return WideLimit(anchor_kernel, trained_kernel, noise_variance, noisy_targets=anchoring == "randomized")


def anchored_distribution(
    anchors: Grams, trained: Grams, noise: np.ndarray, targets: np.ndarray, noisy_targets: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return the distribution of the outputs of trained members, if outputs are linear in the trained parameters.

    Parameters
    ----------
    anchors : Grams
        Covariance of the outputs at the anchors.
    trained : Grams
        Tangent kernel of the layers that are trained.
    noise : (rows,) array
        Noise variances of the rows.
    targets : (rows,) array
        Targets minus the prior mean of the outputs.
    noisy_targets : bool
        Whether noise is added to the targets of each member.

    Returns
    -------
    mean : (points,) array
    covariance : (points, points) array
    """
    factor = cholesky(trained.rows + np.diag(noise))
    gain = linalg.cho_solve((factor, True), trained.crossed).T  # G
    residual_covariance = anchors.rows + (np.diag(noise) if noisy_targets else 0)  # of y + ε − f₀(X)
    explained = gain @ anchors.crossed  # G K_X*
    return gain @ targets, anchors.points - explained - explained.T + gain @ residual_covariance @ gain.T
