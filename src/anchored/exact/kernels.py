"""The covariance functions of infinitely wide networks.

Over the prior, the outputs of a network with wide layers are a Gaussian process. Its kernel goes up layer by layer:

    u⁰(x, x') = b₀ + w₀ x·x',    uˡ = bₗ + wₗ E[φ(p) φ(p')],    (p, p') normal with the variances and covariance uˡ⁻¹

where weights of layer l are N(0, wₗ/fan-in) (the first: N(0, w₀)) and biases N(0, bₗ). The last u is the kernel K.
How outputs move when all layers train is the tangent kernel Θ⁰ = u⁰, Θˡ = uˡ + wₗ E[φ'(p) φ'(p')] Θˡ⁻¹.
Kernels are written for float64: `gram` and `diagonal` see to that, whatever JAX's flag.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Protocol, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import roots_hermitenorm

from anchored import trees
from anchored.inference.compilation import jit
from anchored.model.bayesian_model import BayesianModel
from anchored.model.networks import ACTIVATIONS, MLP, RBFNetwork
from anchored.types import Array, Number

N_NODES = 1000  # of the quadrature, which is over one normal only, so that many are cheap
N_TERMS = 300  # of Mehler's series

Moment = Callable[[Array, Array, Array], Array]  # (cov(p, p'), var p, var p') -> E[φ(p) φ(p')]; all broadcast


class Kernel(Protocol):
    """A covariance function: a pytree whose leaves are its hyperparameters."""

    def matrix(self, x: Array, z: Array) -> Array:
        """k(x, z), (rows of x, rows of z)."""

    def diagonal(self, x: Array) -> Array:
        """k(x, x), (rows,)."""


_Kernel = TypeVar("_Kernel", bound=Kernel)


@trees.register
@dataclass(frozen=True)
class NetworkKernel:
    """K of an MLP with one activation and any number of hidden layers (none: a linear model)."""

    weight_variances: tuple[Number, ...]  # of a first-layer weight; then fan-in times that of a deeper layer's
    bias_variances: tuple[Number, ...]
    activation: str = field(default="relu", metadata={"static": True})

    def matrix(self, x: Array, z: Array) -> Array:
        return _up(self, x @ z.T, jnp.sum(x**2, 1)[:, None], jnp.sum(z**2, 1)[None])[0]

    def diagonal(self, x: Array) -> Array:
        square = jnp.sum(x**2, 1)
        return _up(self, square, square, square)[0]


@trees.register
@dataclass(frozen=True)
class TangentKernel:
    """Θ: how outputs move when all layers train."""

    kernel: NetworkKernel

    def matrix(self, x: Array, z: Array) -> Array:
        return _up(self.kernel, x @ z.T, jnp.sum(x**2, 1)[:, None], jnp.sum(z**2, 1)[None])[1]

    def diagonal(self, x: Array) -> Array:
        square = jnp.sum(x**2, 1)
        return _up(self.kernel, square, square, square)[1]


@trees.register
@dataclass(frozen=True)
class RBFKernel:
    """K of units exp(−|x − c|²/2σ_g²) with centres c ~ N(0, σ_c² I) (Williams 1996)."""

    unit_scale: Number  # σ_g
    centre_scale: Number  # σ_c
    output_variance: Number = 1.0  # number of units times the variance of an output weight

    def matrix(self, x: Array, z: Array) -> Array:
        distance = jnp.sum((x[:, None] - z[None]) ** 2, -1)
        return self._from(distance, jnp.sum(x**2, 1)[:, None], jnp.sum(z**2, 1)[None], x.shape[1])

    def diagonal(self, x: Array) -> Array:
        square = jnp.sum(x**2, 1)
        return self._from(jnp.zeros_like(square), square, square, x.shape[1])

    def _from(self, distance: Array, x_square: Array, z_square: Array, dimension: int) -> Array:
        unit, centre = self.unit_scale**2, self.centre_scale**2
        height = (1 / (2 * centre / unit + 1)) ** (dimension / 2)
        decay = (x_square + z_square) / (2 * centre + unit) + distance / (2 * unit + unit**2 / centre)
        return self.output_variance * height * jnp.exp(-0.5 * decay)


@trees.register
@dataclass(frozen=True)
class RBFTangentKernel:
    """Θ of a network of RBF units: centres move as well as output weights."""

    kernel: RBFKernel

    def matrix(self, x: Array, z: Array) -> Array:
        return self.kernel.matrix(x, z) * self._gain(x @ z.T, jnp.sum(x**2, 1)[:, None], jnp.sum(z**2, 1), x.shape[1])

    def diagonal(self, x: Array) -> Array:
        square = jnp.sum(x**2, 1)
        return self.kernel.diagonal(x) * self._gain(square, square, square, x.shape[1])

    def _gain(self, product: Array, x_square: Array, z_square: Array, dimension: int) -> Array:
        """1 + σ_c²/σ_g⁴ E[(x − c)·(x' − c)], where c is normal about m = shrink (x + x'), weighted by both units."""
        unit, centre = self.kernel.unit_scale**2, self.kernel.centre_scale**2
        spread = 1 / (2 / unit + 1 / centre)
        shrink = spread / unit
        both = x_square + z_square + 2 * product  # |x + x'|²
        expected = product - shrink * both + shrink**2 * both + dimension * spread
        return 1 + centre / unit**2 * expected


def _up(kernel: NetworkKernel, product: Array, x_square: Array, z_square: Array) -> tuple[Array, Array]:
    """From inner products of inputs up all layers, to K and Θ; the arguments broadcast."""
    moment = MOMENTS.get(kernel.activation) or quadrature(kernel.activation)
    (weight, *weights), (bias, *biases) = kernel.weight_variances, kernel.bias_variances
    u, p, q = (bias + weight * term for term in (product, x_square, z_square))
    tangent = u
    for weight, bias in zip(weights, biases, strict=True):
        # Price's theorem: the derivative in the covariance is E[φ'(p) φ'(p')]
        value, slope = jax.jvp(partial(_in_covariance, moment, p, q), (u,), (jnp.ones_like(u),))
        u, p, q = bias + weight * value, bias + weight * moment(p, p, p), bias + weight * moment(q, q, q)
        tangent = u + weight * slope * tangent
    return u, tangent


def _in_covariance(moment: Moment, p: Array, q: Array, u: Array) -> Array:
    return moment(u, p, q)


@jax.custom_jvp
def _relu(u: Array, p: Array, q: Array) -> Array:
    """(√(pq) / 2π) (sin φ + (π − φ) cos φ), cos φ = u/√(pq): the arc-cosine kernel of order 1."""
    sine, angle = _angle(u, p, q)
    return (sine + (jnp.pi - angle) * u) / (2 * jnp.pi)


@_relu.defjvp
def _relu_jvp(primals: tuple[Array, Array, Array], tangents: tuple[Array, Array, Array]) -> tuple[Array, Array]:
    # The quotients in a plain derivative are 0/0 on the diagonal
    u, p, q = primals
    du, dp, dq = tangents
    sine, angle = _angle(u, p, q)
    change = (jnp.pi - angle) * du + sine * (dp / jnp.where(p > 0, p, 1) + dq / jnp.where(q > 0, q, 1)) / 2
    return _relu(u, p, q), change / (2 * jnp.pi)


@jax.custom_jvp
def _angle(u: Array, p: Array, q: Array) -> tuple[Array, Array]:
    """√(pq) sin φ and φ."""
    sine = jnp.sqrt(jnp.maximum(p * q - u**2, 0))
    return sine, jnp.arctan2(sine, u)


@_angle.defjvp
def _angle_jvp(
    primals: tuple[Array, Array, Array], tangents: tuple[Array, Array, Array]
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    # For the tangent kernel's; rows in one direction stay so whatever the variances
    u, p, q = primals
    du, dp, dq = tangents
    sine, angle = _angle(u, p, q)
    inverse = jnp.where(sine > 0, 1 / jnp.where(sine > 0, sine, 1), 0)
    growth = (dp / jnp.where(p > 0, p, 1) + dq / jnp.where(q > 0, q, 1)) / 2
    return (sine, angle), ((growth * p * q - u * du) * inverse, (growth * u - du) * inverse)


def _erf(u: Array, p: Array, q: Array) -> Array:
    """(2/π) arcsin(2u / √((1 + 2p)(1 + 2q))) (Williams 1996)."""
    return 2 / jnp.pi * jnp.arcsin(2 * u / jnp.sqrt((1 + 2 * p) * (1 + 2 * q)))


def _identity(u: Array, p: Array, q: Array) -> Array:
    return u


def _sin(u: Array, p: Array, q: Array) -> Array:
    """exp(−(p + q)/2) sinh u."""
    return (jnp.exp(u - (p + q) / 2) - jnp.exp(-u - (p + q) / 2)) / 2


MOMENTS: dict[str, Moment] = {"relu": _relu, "erf": _erf, "identity": _identity, "sin": _sin}


def quadrature(activation: str) -> Moment:
    """E[φ(p) φ(p')] for any activation, by Mehler's formula:

        Σₙ cₙ(p) cₙ(q) ρⁿ,    cₙ(p) = E[φ(√p z) hₙ(z)],    ρ = u/√(pq),

    with hₙ the orthonormal Hermite polynomials and cₙ by Gauss–Hermite quadrature over one normal. Every term is
    positive semi-definite, which a quadrature over the two normals would not be. For a smooth step such as tanh the
    error is 1e-7 at variance 16 and 1e-3 at variance 100; of the slope, for the tangent kernel, 1e-4 and 5 %.
    """
    apply = ACTIVATIONS[activation]
    nodes, hermite = _hermite()

    def coefficients(variance: Array) -> Array:
        # Rows of zeros have no variance, where the root has no derivative
        scale = jnp.where(variance > 0, jnp.sqrt(jnp.where(variance > 0, variance, 1)), 0)
        values = apply(scale[..., None] * nodes)
        return jnp.moveaxis(values @ hermite, -1, 0)

    def moment(u: Array, p: Array, q: Array) -> Array:
        square = p * q
        rho = jnp.where(square > 0, u / jnp.sqrt(jnp.where(square > 0, square, 1)), 0)  # not clipped: 1 keeps its slope

        def horner(value: jax.Array, pair: tuple[Array, Array]) -> tuple[jax.Array, None]:
            return value * rho + pair[0] * pair[1], None

        start = jnp.zeros(jnp.broadcast_shapes(u.shape, p.shape, q.shape))
        return jax.lax.scan(horner, start, (coefficients(p), coefficients(q)), reverse=True)[0]

    return moment


@cache
def _hermite() -> tuple[np.ndarray, np.ndarray]:
    """Nodes of the quadrature, and weight × hₙ at each of them, (nodes, terms)."""
    nodes, weights = roots_hermitenorm(N_NODES)
    root = np.sqrt(weights / np.sqrt(2 * np.pi))
    functions = [root, nodes * root]  # √weight hₙ stays bounded where hₙ overflows
    for n in range(1, N_TERMS - 1):
        functions.append((nodes * functions[-1] - np.sqrt(n) * functions[-2]) / np.sqrt(n + 1))
    return nodes, root[:, None] * np.stack(functions, axis=1)


def kernel_of(model: BayesianModel) -> NetworkKernel | RBFKernel:
    """The kernel of a model's network under its own prior, as if its hidden layers were infinitely wide."""
    network, prior = model.network, model.prior
    if not isinstance(network, MLP | RBFNetwork):
        raise ValueError(
            f"there is no closed form for the wide limit of a {type(network).__name__}: only MLP (any depth, any "
            "activation) and RBFNetwork have one"
        )
    if any(np.any(np.asarray(leaf) != 0) for leaf in jax.tree.leaves(prior.mean)):
        raise ValueError("the prior must be centred at zero for the wide limit to be a process of mean zero")
    variance = {path: _one(scale) ** 2 for path, scale in zip(trees.paths(prior.scale), jax.tree.leaves(prior.scale))}
    if isinstance(network, RBFNetwork):
        centre_scale = np.sqrt(variance["layer_0", "centres"])
        return RBFKernel(network.unit_scale, centre_scale, network.n_units * variance["layer_1", "weights"])
    fan_in = (1, *network.hidden_layer_sizes)
    layers = range(len(fan_in))
    return NetworkKernel(
        tuple(n * variance[f"layer_{i}", "weights"] for i, n in zip(layers, fan_in, strict=True)),
        tuple(variance.get((f"layer_{i}", "bias"), 0.0) for i in layers),
        network.activation,
    )


def _one(scale: Array) -> float:
    """The standard deviation that all parameters of a leaf share."""
    scale = np.unique(np.asarray(scale, np.float64))
    if len(scale) != 1:
        raise ValueError("the prior must have one scale for each leaf; units of a layer must be exchangeable")
    return float(scale[0])


def tangent_kernel(kernel: NetworkKernel | RBFKernel) -> Kernel:
    """Θ of the network whose covariance is `kernel`, with all layers trained."""
    return RBFTangentKernel(kernel) if isinstance(kernel, RBFKernel) else TangentKernel(kernel)


def gram(kernel: Kernel, x: Array, z: Array | None = None) -> np.ndarray:
    """k(x, z) in float64, (rows of x, rows of z); without z, of x with itself."""
    x = np.asarray(x, np.float64)
    z = x if z is None else np.asarray(z, np.float64)
    with jax.enable_x64(True):
        return np.asarray(_matrix(_double(kernel), x, z))


def diagonal(kernel: Kernel, x: Array) -> np.ndarray:
    """k(x, x) in float64, (rows,)."""
    with jax.enable_x64(True):
        return np.asarray(_diagonal(_double(kernel), np.asarray(x, np.float64)))


def gram_derivatives(kernel: Kernel, x: Array) -> Kernel:
    """∂k(x, x)/∂ each hyperparameter: a kernel with a matrix for every leaf."""
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, _derivatives(_double(kernel), np.asarray(x, np.float64)))


def _double(kernel: _Kernel) -> _Kernel:
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), kernel)


@jit
def _matrix(kernel: Kernel, x: Array, z: Array) -> Array:
    return kernel.matrix(x, z)


@jit
def _diagonal(kernel: Kernel, x: Array) -> Array:
    return kernel.diagonal(x)


@jit
def _derivatives(kernel: Kernel, x: Array) -> Kernel:
    return jax.jacfwd(lambda kernel: kernel.matrix(x, x))(kernel)  # forward: no stack of the series' terms is kept
