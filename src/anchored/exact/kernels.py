"""Covariance functions of infinitely wide networks (NNGP kernels), and their tangent kernels (NTK).

Under the prior, the outputs of a network with infinitely wide layers are a Gaussian process. Its kernel is computed
from layer to layer:

    u₀(x, x') = b₀ + w₀ x·x',    uₗ(x, x') = bₗ + wₗ E[φ(a) φ(a')]

where φ is the activation, and a and a', the pre-activations at x and x', are jointly normal with mean zero and the
covariance function uₗ₋₁. Biases of layer l are N(0, bₗ). Weights are N(0, w₀) in the first layer and N(0, wₗ/fan-in) in
the others. The kernel K is the u of the last layer. The tangent kernel Θ describes how outputs change when all layers
are trained. Θ is the last of

    Θ₀ = u₀,    Θₗ = uₗ + wₗ E[φ'(a) φ'(a')] Θₗ₋₁

Evaluate kernels with `gram` and `diagonal`, which compute in float64 whatever JAX's default is.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np

from anchored import trees
from anchored.exact.moments import MOMENTS, Moment, quadrature
from anchored.exact.padding import with_copies
from anchored.inference.compilation import jit
from anchored.model.bayesian_model import BayesianModel
from anchored.model.networks import MLP, RBFNetwork
from anchored.types import Array, Number


class Kernel(Protocol):
    """A covariance function: a pytree whose leaves are its hyperparameters."""

    def matrix(self, x: Array, z: Array) -> Array:
        """Return k(x, z), shape (rows of x, rows of z), for inputs `x` and `z` of shape (rows, features)."""

    def diagonal(self, x: Array) -> Array:
        """Return k(x, x) of each row, shape (rows,), for inputs `x` of shape (rows, features)."""


@trees.register
@dataclass(frozen=True)
class MLPKernel:
    """The kernel K of an MLP with any number of hidden layers; without hidden layers, the kernel of a linear model.

    Attributes
    ----------
    weight_variances : tuple of float
        w of each layer: the variance of its weights; in layers after the first, fan-in times this variance.
    bias_variances : tuple of float
        b of each layer: the variance of its biases.
    activation : str
        A name in `networks.ACTIVATIONS`.
    """

    weight_variances: tuple[Number, ...]
    bias_variances: tuple[Number, ...]
    activation: str = field(default="relu", metadata={"static": True})

    def matrix(self, x: Array, z: Array) -> Array:
        """Return K(x, z), shape (rows of x, rows of z), for inputs `x` and `z` of shape (rows, features)."""
        return _propagate(self, x @ z.T, jnp.sum(x**2, 1)[:, None], jnp.sum(z**2, 1)[None])[0]

    def diagonal(self, x: Array) -> Array:
        """Return K(x, x) of each row, shape (rows,), for inputs `x` of shape (rows, features)."""
        square = jnp.sum(x**2, 1)
        return _propagate(self, square, square, square)[0]


@trees.register
@dataclass(frozen=True)
class MLPTangentKernel:
    """The tangent kernel Θ of an MLP whose layers are all trained."""

    kernel: MLPKernel  # K of the same network

    def matrix(self, x: Array, z: Array) -> Array:
        """Return Θ(x, z), shape (rows of x, rows of z), for inputs `x` and `z` of shape (rows, features)."""
        return _propagate(self.kernel, x @ z.T, jnp.sum(x**2, 1)[:, None], jnp.sum(z**2, 1)[None])[1]

    def diagonal(self, x: Array) -> Array:
        """Return Θ(x, x) of each row, shape (rows,), for inputs `x` of shape (rows, features)."""
        square = jnp.sum(x**2, 1)
        return _propagate(self.kernel, square, square, square)[1]


@trees.register
@dataclass(frozen=True)
class RBFNetworkKernel:
    """The kernel K of an RBFNetwork with units exp(−|x − c|²/2σ_g²) and centres c ~ N(0, σ_c² I) (Williams 1996)."""

    unit_scale: Number  # σ_g
    centre_scale: Number  # σ_c
    output_variance: Number = 1.0  # number of units times the variance of an output weight

    def matrix(self, x: Array, z: Array) -> Array:
        """Return K(x, z), shape (rows of x, rows of z), for inputs `x` and `z` of shape (rows, features)."""
        squared_distance = jnp.sum((x[:, None] - z[None]) ** 2, -1)
        return self._evaluate(squared_distance, jnp.sum(x**2, 1)[:, None], jnp.sum(z**2, 1)[None], x.shape[1])

    def diagonal(self, x: Array) -> Array:
        """Return K(x, x) of each row, shape (rows,), for inputs `x` of shape (rows, features)."""
        square = jnp.sum(x**2, 1)
        return self._evaluate(jnp.zeros_like(square), square, square, x.shape[1])

    def _evaluate(self, squared_distance: Array, x_square: Array, z_square: Array, n_features: int) -> Array:
        """Return K for |x − z|², |x|² and |z|², which broadcast, and the number of features."""
        unit_variance, centre_variance = self.unit_scale**2, self.centre_scale**2  # σ_g² and σ_c²
        height = (1 / (2 * centre_variance / unit_variance + 1)) ** (n_features / 2)
        decay = (x_square + z_square) / (2 * centre_variance + unit_variance)
        decay = decay + squared_distance / (2 * unit_variance + unit_variance**2 / centre_variance)
        return self.output_variance * height * jnp.exp(-0.5 * decay)


@trees.register
@dataclass(frozen=True)
class RBFNetworkTangentKernel:
    """The tangent kernel Θ of an RBFNetwork whose centres and output weights are trained."""

    kernel: RBFNetworkKernel  # K of the same network

    def matrix(self, x: Array, z: Array) -> Array:
        """Return Θ(x, z), shape (rows of x, rows of z), for inputs `x` and `z` of shape (rows, features)."""
        return self.kernel.matrix(x, z) * self._ratio(x @ z.T, jnp.sum(x**2, 1)[:, None], jnp.sum(z**2, 1), x.shape[1])

    def diagonal(self, x: Array) -> Array:
        """Return Θ(x, x) of each row, shape (rows,), for inputs `x` of shape (rows, features)."""
        square = jnp.sum(x**2, 1)
        return self.kernel.diagonal(x) * self._ratio(square, square, square, x.shape[1])

    def _ratio(self, product: Array, x_square: Array, z_square: Array, n_features: int) -> Array:
        """Return Θ/K for x·z, |x|² and |z|², which broadcast, and the number of features.

        Θ/K is 1 + σ_c²/σ_g⁴ E[(x − c)·(z − c)]. The expectation is over centres c whose density is proportional to the
        prior times the values of the unit at x and z. This density is normal, with mean α(x + z) and variance v in each
        dimension.
        """
        unit_variance, centre_variance = self.kernel.unit_scale**2, self.kernel.centre_scale**2  # σ_g² and σ_c²
        variance = 1 / (2 / unit_variance + 1 / centre_variance)  # v
        alpha = variance / unit_variance
        sum_square = x_square + z_square + 2 * product  # |x + z|²
        expectation = product - alpha * sum_square + alpha**2 * sum_square + n_features * variance
        return 1 + centre_variance / unit_variance**2 * expectation


def _propagate(kernel: MLPKernel, product: Array, x_square: Array, z_square: Array) -> tuple[Array, Array]:
    """Return K and Θ for the inner products x·z, |x|² and |z|², which broadcast."""
    moment = MOMENTS.get(kernel.activation) or quadrature(kernel.activation)
    (weight, *weights), (bias, *biases) = kernel.weight_variances, kernel.bias_variances
    u, p, q = (bias + weight * term for term in (product, x_square, z_square))  # u(x, z), u(x, x) and u(z, z)
    tangent = u
    for weight, bias in zip(weights, biases, strict=True):
        # By Price's theorem, the derivative of E[φ(a) φ(a')] with respect to the covariance is E[φ'(a) φ'(a')]
        value, slope = jax.jvp(partial(_moment_of_covariance, moment, p, q), (u,), (jnp.ones_like(u),))
        u, p, q = bias + weight * value, bias + weight * moment(p, p, p), bias + weight * moment(q, q, q)
        tangent = u + weight * slope * tangent
    return u, tangent


def _moment_of_covariance(moment: Moment, p: Array, q: Array, u: Array) -> Array:
    """Return `moment(u, p, q)`. The covariance u is the last argument, so that `partial` can fix the others."""
    return moment(u, p, q)


def kernel_of(model: BayesianModel) -> MLPKernel | RBFNetworkKernel:
    """Return the kernel of the network of `model` in the limit of infinite width, under the model's prior.

    Raises
    ------
    ValueError
        If the network is neither an MLP nor an RBFNetwork, or if the prior has a mean other than zero, or different
        scales within a leaf.
    """
    network, prior = model.network, model.prior
    if not isinstance(network, MLP | RBFNetwork):
        raise ValueError(
            f"the wide limit of a {type(network).__name__} is not implemented: only that of an MLP (any depth, any "
            "activation) or of an RBFNetwork is"
        )
    if any(np.any(np.asarray(leaf) != 0) for leaf in jax.tree.leaves(prior.mean)):
        raise ValueError("the network has a wide limit only if the prior has mean zero")
    scales = zip(trees.paths(prior.scale), jax.tree.leaves(prior.scale), strict=True)
    variance = {path: _common_scale(scale) ** 2 for path, scale in scales}
    if isinstance(network, RBFNetwork):
        centre_scale = np.sqrt(variance["layer_0", "centres"])
        return RBFNetworkKernel(network.unit_scale, centre_scale, network.n_units * variance["layer_1", "weights"])
    fan_in = (1, *network.hidden_layer_sizes)
    layers = range(len(fan_in))
    return MLPKernel(
        tuple(n * variance[f"layer_{i}", "weights"] for i, n in zip(layers, fan_in, strict=True)),
        tuple(variance.get((f"layer_{i}", "bias"), 0.0) for i in layers),
        network.activation,
    )


def _common_scale(scale: Array) -> float:
    """Return the prior scale that all parameters of a leaf share. Raises a ValueError if they differ."""
    values = np.unique(np.asarray(scale, np.float64))
    if len(values) != 1:
        raise ValueError("the network has a wide limit only if the prior has one scale for all parameters of a leaf")
    return float(values[0])


def tangent_kernel(kernel: MLPKernel | RBFNetworkKernel) -> Kernel:
    """Return the tangent kernel Θ of the network whose kernel K is `kernel`; all its layers are trained."""
    return RBFNetworkTangentKernel(kernel) if isinstance(kernel, RBFNetworkKernel) else MLPTangentKernel(kernel)


def gram(kernel: Kernel, x: Array, z: Array | None = None) -> np.ndarray:
    """Return the matrix k(x, z) in float64, shape (rows of x, rows of z).

    `kernel` is k, and `x` and `z` have the shape (rows, features). If `z` is None, the matrix is k(x, x).
    """
    x = np.asarray(x, np.float64)
    z = x if z is None else np.asarray(z, np.float64)
    with jax.enable_x64(True):
        matrix = np.asarray(_matrix(trees.to_float64(kernel), with_copies(x), with_copies(z)))
    return matrix[: len(x), : len(z)]


def diagonal(kernel: Kernel, x: Array) -> np.ndarray:
    """Return k(x, x) of each row of `x` (rows, features) in float64, shape (rows,), where `kernel` is k."""
    with jax.enable_x64(True):
        return np.asarray(_diagonal(trees.to_float64(kernel), np.asarray(x, np.float64)))


def gram_derivatives(kernel: Kernel, x: Array) -> Kernel:
    """Return the derivatives of the matrix k(x, x) with respect to each hyperparameter, for `x` (rows, features).

    The result is a pytree like `kernel`, in which each hyperparameter is replaced by the derivative, (rows, rows).
    """
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, _derivatives(trees.to_float64(kernel), np.asarray(x, np.float64)))


@jit
def _matrix(kernel: Kernel, x: Array, z: Array) -> Array:
    """The compiled part of `gram`."""
    return kernel.matrix(x, z)


@jit
def _diagonal(kernel: Kernel, x: Array) -> Array:
    """The compiled part of `diagonal`."""
    return kernel.diagonal(x)


@jit
def _derivatives(kernel: Kernel, x: Array) -> Kernel:
    """The compiled part of `gram_derivatives`."""
    # Forward mode does not store the terms of the series in `moments.quadrature`
    return jax.jacfwd(lambda kernel: kernel.matrix(x, x))(kernel)
