"""Choose the prior scale and the noise variance of a Gaussian process by maximising the marginal likelihood."""

import warnings
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.optimize import minimize

from anchored import trees
from anchored.exact.kernels import Kernel, NetworkKernel, tangent_kernel
from anchored.exact.processes import GaussianProcess
from anchored.types import Array, Data

PRIOR_SCALES = (0.03, 30.0)  # range searched
NOISE_VARIANCES = (1e-7, 10.0)  # range searched, in units of the targets' variance
STARTS = ((1.0, 0.3), (5.0, 0.03), (5.0, 1e-4))  # (scale, noise); high and low noise may each have a local optimum
PRECISION = {"ftol": 1e-13, "gtol": 1e-6}  # tight, so that weight 2 gives the same result as a repeated row


@trees.register
@dataclass(frozen=True)
class LayeredKernel:
    """The kernel of an MLP under the papers' prior; its only hyperparameter is the scale of the first layer.

    First-layer weights are N(0, c²/D) and biases N(0, c²), with c = `first_scale` and D the number of features. Weights
    of a deeper layer are N(0, c²/H), with its own c from `deeper_scales` and H units below; it has no biases.
    """

    first_scale: float  # a tracer inside a compiled program
    deeper_scales: tuple[float, ...] = field(metadata={"static": True})
    activation: str = field(metadata={"static": True})
    tangent: bool = field(metadata={"static": True})  # whether this is the tangent kernel

    def matrix(self, x: Array, z: Array) -> Array:
        """Return k(x, z), shape (rows of x, rows of z), for inputs of shape (rows, features)."""
        return self.network_kernel(x.shape[1]).matrix(x, z)

    def diagonal(self, x: Array) -> Array:
        """Return k(x, x) of each row, shape (rows,), for inputs `x` of shape (rows, features)."""
        return self.network_kernel(x.shape[1]).diagonal(x)

    def network_kernel(self, n_features: int) -> Kernel:
        """Return the same kernel as a NetworkKernel or TangentKernel, for inputs with `n_features` columns."""
        first = self.first_scale**2
        weights = (first / n_features, *(scale**2 for scale in self.deeper_scales))
        biases = (first, *[0.0] * len(self.deeper_scales))
        kernel = NetworkKernel(weights, biases, self.activation)
        return tangent_kernel(kernel) if self.tangent else kernel


def maximise_evidence(
    kernel: LayeredKernel, noise: np.ndarray, data: Data, free: tuple[bool, bool]
) -> tuple[LayeredKernel, np.ndarray]:
    """Return the kernel and the noise variances that maximise log p(y).

    Parameters
    ----------
    kernel : LayeredKernel
        Start; its `first_scale` is kept unless it is free.
    noise : (outputs,) array
        Noise variances; if they are free, all are multiplied by the same factor.
    data : Data
        Standardised rows.
    free : (bool, bool)
        Whether the scale is chosen, and whether the noise is.

    Returns
    -------
    kernel : LayeredKernel
        With the scale chosen.
    noise : (outputs,) array
        The noise variances chosen.
    """
    given = (kernel.first_scale, 1.0)

    def at(logarithms: np.ndarray) -> tuple[LayeredKernel, np.ndarray]:
        scale, factor = np.where(free, np.exp(logarithms), given).tolist()  # fixed values are kept bit for bit
        return replace(kernel, first_scale=scale), factor * noise

    def negative_log_evidence(logarithms: np.ndarray) -> tuple[float, np.ndarray]:
        tried, tried_noise = at(logarithms)
        evidence = GaussianProcess(tried, tried_noise).evidence(*data)
        value = evidence.value + log_weight_correction(tried_noise, data.weights)
        assert isinstance(evidence.kernel_gradient, LayeredKernel)
        by_scale = tried.first_scale * evidence.kernel_gradient.first_scale
        by_noise = tried_noise @ evidence.noise_gradient + noise.size * np.sum(1 - data.weights) / 2
        return -value, -np.array([by_scale, by_noise])

    limits = [wide if f else (g, g) for f, g, wide in zip(free, given, (PRIOR_SCALES, NOISE_VARIANCES), strict=True)]
    starts = {tuple(s if f else g for f, g, s in zip(free, given, start, strict=True)) for start in STARTS}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # ill-conditioned matrices at values tried on the way
        found = [
            minimize(
                negative_log_evidence,
                np.log(start),
                jac=True,
                method="L-BFGS-B",
                bounds=np.log(limits),
                options=PRECISION,
            )
            for start in sorted(starts)
        ]
    return at(min(found, key=lambda one: one.fun).x)


def log_weight_correction(noise: np.ndarray, weights: Array) -> float:
    """Return what to add to the log evidence of a process with noise σ²/w to get that with likelihoods to the power w.

    N(y; f, σ²)ʷ is N(y; f, σ²/w) times (2πσ²)^((1−w)/2) / √w, whose logarithm is summed over rows and outputs.

    Parameters
    ----------
    noise : (outputs,) array
        Noise variances σ².
    weights : (rows, 1) or (rows, outputs) array
        Positive weights w.

    Returns
    -------
    float
        The sum of the logarithms of the factors.
    """
    return float(np.sum((1 - weights) / 2 * np.log(2 * np.pi * noise) - np.log(weights) / 2))
