"""Choose the prior scale and the noise variance of a Gaussian process by maximising the marginal likelihood."""

import warnings
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.optimize import minimize

from anchored import trees
from anchored.exact.kernels import Kernel, MLPKernel, tangent_kernel
from anchored.exact.processes import GaussianProcess
from anchored.types import Array, Data

PRIOR_SCALE_RANGE = (0.03, 30.0)
NOISE_FACTOR_RANGE = (1e-7, 10.0)  # range of the factor by which the given noise variances are multiplied
STARTS = (
    (1.0, 0.3),
    (5.0, 0.03),
    (5.0, 1e-4),
)  # (scale, noise factor); an optimum may have much or little noise
TOLERANCES = {"ftol": 1e-13, "gtol": 1e-6}  # small, so that a row of weight 2 has the same effect as two equal rows


@trees.register
@dataclass(frozen=True)
class LayeredKernel:
    """The kernel of an MLP under the prior of `model.layered_prior`. Its hyperparameter is the first layer's scale.

    First-layer weights are N(0, c²/D) and biases N(0, c²), with c = `first_scale` and D the number of features. A
    deeper layer with H inputs has its own c from `deeper_scales`, weights N(0, c²/H), and no biases.
    """

    first_scale: float  # a tracer in a compiled program
    deeper_scales: tuple[float, ...] = field(metadata={"static": True})
    activation: str = field(metadata={"static": True})  # a name in `networks.ACTIVATIONS`
    is_tangent: bool = field(metadata={"static": True})  # whether it is the tangent kernel

    def matrix(self, x: Array, z: Array) -> Array:
        """Return k(x, z), shape (rows of x, rows of z), for inputs `x` and `z` of shape (rows, features)."""
        return self.network_kernel(x.shape[1]).matrix(x, z)

    def diagonal(self, x: Array) -> Array:
        """Return k(x, x) of each row, shape (rows,), for inputs `x` of shape (rows, features)."""
        return self.network_kernel(x.shape[1]).diagonal(x)

    def network_kernel(self, n_features: int) -> Kernel:
        """Return the same kernel as an MLPKernel or MLPTangentKernel, for inputs with `n_features` columns."""
        first = self.first_scale**2
        weights = (first / n_features, *(scale**2 for scale in self.deeper_scales))
        biases = (first, *[0.0] * len(self.deeper_scales))
        kernel = MLPKernel(weights, biases, self.activation)
        return tangent_kernel(kernel) if self.is_tangent else kernel


def maximise_evidence(
    kernel: LayeredKernel, noise: np.ndarray, data: Data, free: tuple[bool, bool]
) -> tuple[LayeredKernel, np.ndarray]:
    """Return the kernel and the noise variances that maximise the log marginal likelihood log p(y).

    Parameters
    ----------
    kernel : LayeredKernel
        The kernel. Its `first_scale` is kept unless the scale is free.
    noise : (outputs,) array
        Noise variances. If the noise is free, one factor for all of them is chosen.
    data : Data
        Standardised rows.
    free : (bool, bool)
        Whether to choose the scale, and whether to choose the noise.

    Returns
    -------
    kernel : LayeredKernel
        The kernel with the chosen scale.
    noise : (outputs,) array
        The chosen noise variances.
    """
    fixed = (kernel.first_scale, 1.0)  # scale and noise factor if they are not free

    def kernel_and_noise(logarithms: np.ndarray) -> tuple[LayeredKernel, np.ndarray]:
        """Return the kernel and the noise for the logarithms of the scale and of the noise factor."""
        scale, factor = np.where(free, np.exp(logarithms), fixed).tolist()  # fixed values are kept bit for bit
        return replace(kernel, first_scale=scale), factor * noise

    def negative_log_evidence(logarithms: np.ndarray) -> tuple[float, np.ndarray]:
        tried_kernel, tried_noise = kernel_and_noise(logarithms)
        evidence = GaussianProcess(tried_kernel, tried_noise).evidence(*data)
        value = evidence.value + log_weight_correction(tried_noise, data.weights)
        assert isinstance(evidence.kernel_gradient, LayeredKernel)
        d_log_scale = tried_kernel.first_scale * evidence.kernel_gradient.first_scale
        d_log_noise = (
            tried_noise @ evidence.noise_gradient + np.sum(np.broadcast_to(1 - data.weights, data.targets.shape)) / 2
        )
        return -value, -np.array([d_log_scale, d_log_noise])

    ranges = (PRIOR_SCALE_RANGE, NOISE_FACTOR_RANGE)
    limits = [r if is_free else (value, value) for is_free, value, r in zip(free, fixed, ranges, strict=True)]
    starts = {tuple(np.where(free, start, fixed).tolist()) for start in STARTS}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the optimiser may try values with ill-conditioned matrices
        results = [
            minimize(
                negative_log_evidence,
                np.log(start),
                jac=True,
                method="L-BFGS-B",
                bounds=np.log(limits),
                options=TOLERANCES,
            )
            for start in sorted(starts)
        ]
    return kernel_and_noise(min(results, key=lambda result: result.fun).x)


def log_weight_correction(noise: np.ndarray, weights: Array) -> float:
    """Return the term that is added to a log evidence with noise variances σ²/w, so that each row counts w times.

    The likelihood of a row that counts w times is N(y; f, σ²)ʷ, which is N(y; f, σ²/w) times (2πσ²)^((1−w)/2) / √w.

    Parameters
    ----------
    noise : (outputs,) array
        Noise variances σ².
    weights : (rows, 1) or (rows, outputs) array
        Positive weights w.

    Returns
    -------
    float
        The sum of the logarithms of these factors over rows and outputs, in nats.
    """
    return float(np.sum((1 - weights) / 2 * np.log(2 * np.pi * noise) - np.log(weights) / 2))
