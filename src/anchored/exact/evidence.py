"""The prior scale and the noise under which the targets are most probable: the evidence at its maximum."""

import warnings
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.optimize import minimize

from anchored import trees
from anchored.exact.kernels import Kernel, NetworkKernel, tangent_kernel
from anchored.exact.processes import GaussianProcess
from anchored.types import Array, Data

PRIOR_SCALES = (0.03, 30.0)  # the range searched
NOISE_VARIANCES = (1e-7, 10.0)  # in variances of the targets
STARTS = ((1.0, 0.3), (5.0, 0.03), (5.0, 1e-4))  # of both; much noise and little may each have an optimum
PRECISION = {"ftol": 1e-13, "gtol": 1e-6}  # so that weights equal repetition


@trees.register
@dataclass(frozen=True)
class LayeredKernel:
    """The kernel of a network under the papers' prior, with the scale of the first layer its one hyperparameter."""

    first_scale: float  # within a program a tracer, which stands for one
    deeper_scales: tuple[float, ...] = field(metadata={"static": True})
    activation: str = field(metadata={"static": True})
    tangent: bool = field(metadata={"static": True})

    def matrix(self, x: Array, z: Array) -> Array:
        return self.written_out(x.shape[1]).matrix(x, z)

    def diagonal(self, x: Array) -> Array:
        return self.written_out(x.shape[1]).diagonal(x)

    def written_out(self, n_features: int) -> Kernel:
        """First weights N(0, c²/D) and biases N(0, c²), deeper weights N(0, c²/H) with a c of their own, no biases."""
        first = self.first_scale**2
        weights = (first / n_features, *(scale**2 for scale in self.deeper_scales))
        biases = (first, *[0.0] * len(self.deeper_scales))
        kernel = NetworkKernel(weights, biases, self.activation)
        return tangent_kernel(kernel) if self.tangent else kernel


def most_probable(
    kernel: LayeredKernel, noise: np.ndarray, data: Data, free: tuple[bool, bool]
) -> tuple[LayeredKernel, np.ndarray]:
    """The kernel and the noise variances that maximise log p(y).

    Args:
        kernel: Its `first_scale` is kept unless it is free.
        noise: (outputs,) noise variances; where free, all are multiplied by one factor.
        data: Standardised rows.
        free: Whether the scale, and whether the noise, is to be chosen.
    """
    given = (kernel.first_scale, 1.0)

    def at(logarithms: np.ndarray) -> tuple[LayeredKernel, np.ndarray]:
        scale, factor = np.where(free, np.exp(logarithms), given).tolist()  # what is given stays to the last bit
        return replace(kernel, first_scale=scale), factor * noise

    def misfit(logarithms: np.ndarray) -> tuple[float, np.ndarray]:
        tried, tried_noise = at(logarithms)
        evidence = GaussianProcess(tried, tried_noise).evidence(*data)
        value = evidence.value + log_power(tried_noise, data.weights)
        assert isinstance(evidence.kernel, LayeredKernel)
        by_scale = tried.first_scale * evidence.kernel.first_scale
        by_noise = tried_noise @ evidence.noise_variance + noise.size * np.sum(1 - data.weights) / 2
        return -value, -np.array([by_scale, by_noise])

    limits = [wide if f else (g, g) for f, g, wide in zip(free, given, (PRIOR_SCALES, NOISE_VARIANCES), strict=True)]
    starts = {tuple(s if f else g for f, g, s in zip(free, given, start, strict=True)) for start in STARTS}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of an ill-conditioned matrix, where not in the end chosen
        found = [
            minimize(misfit, np.log(start), jac=True, method="L-BFGS-B", bounds=np.log(limits), options=PRECISION)
            for start in sorted(starts)
        ]
    return at(min(found, key=lambda one: one.fun).x)


def log_power(noise: np.ndarray, weights: Array) -> float:
    """What weights add to the log evidence: N(y; f, σ²)ʷ is N(y; f, σ²/w) times (2πσ²)^((1−w)/2) / √w.

    Args:
        noise: (outputs,) noise variances σ².
        weights: (rows, 1) or (rows, outputs), positive.
    """
    return float(np.sum((1 - weights) / 2 * np.log(2 * np.pi * noise) - np.log(weights) / 2))
