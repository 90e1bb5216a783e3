"""The moments E[φ(a) φ(a')] of activations φ, from which kernels of infinitely wide networks are computed.

(a, a') are jointly normal with mean zero, variances p and q, and covariance u.
"""

from collections.abc import Callable
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import roots_hermitenorm

from anchored.model.networks import ACTIVATIONS
from anchored.types import Array

N_NODES = 1000  # nodes of the quadrature; it is one-dimensional, so that many nodes are cheap
N_TERMS = 300  # terms of Mehler's series

Moment = Callable[[Array, Array, Array], Array]  # arguments u, p and q, which broadcast; returns E[φ(a) φ(a')]


@jax.custom_jvp
def _relu(u: Array, p: Array, q: Array) -> Array:
    """Return (√(pq) / 2π) (sin t + (π − t) cos t) with cos t = u/√(pq), the arc-cosine kernel of order 1."""
    sine, angle = _scaled_sine_and_angle(u, p, q)
    return (sine + (jnp.pi - angle) * u) / (2 * jnp.pi)


@_relu.defjvp
def _relu_jvp(primals: tuple[Array, Array, Array], tangents: tuple[Array, Array, Array]) -> tuple[Array, Array]:
    # The automatic derivative would contain quotients 0/0 on the diagonal of a kernel matrix
    u, p, q = primals
    du, dp, dq = tangents
    sine, angle = _scaled_sine_and_angle(u, p, q)
    change = (jnp.pi - angle) * du + sine * (dp / jnp.where(p > 0, p, 1) + dq / jnp.where(q > 0, q, 1)) / 2
    return _relu(u, p, q), change / (2 * jnp.pi)


@jax.custom_jvp
def _scaled_sine_and_angle(u: Array, p: Array, q: Array) -> tuple[Array, Array]:
    """Return √(pq) sin t and the angle t, with cos t = u/√(pq)."""
    sine = jnp.sqrt(jnp.maximum(p * q - u**2, 0))
    return sine, jnp.arctan2(sine, u)


@_scaled_sine_and_angle.defjvp
def _scaled_sine_and_angle_jvp(
    primals: tuple[Array, Array, Array], tangents: tuple[Array, Array, Array]
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    # The derivatives of the tangent kernel need these derivatives. Where sin t = 0, as on the diagonal of a kernel
    # matrix, both are set to 0: there u changes together with p and q, so that t stays the same.
    u, p, q = primals
    du, dp, dq = tangents
    sine, angle = _scaled_sine_and_angle(u, p, q)
    inverse = jnp.where(sine > 0, 1 / jnp.where(sine > 0, sine, 1), 0)
    growth = (dp / jnp.where(p > 0, p, 1) + dq / jnp.where(q > 0, q, 1)) / 2
    return (sine, angle), ((growth * p * q - u * du) * inverse, (growth * u - du) * inverse)


def _erf(u: Array, p: Array, q: Array) -> Array:
    """Return (2/π) arcsin(2u / √((1 + 2p)(1 + 2q))) (Williams 1996)."""
    return 2 / jnp.pi * jnp.arcsin(2 * u / jnp.sqrt((1 + 2 * p) * (1 + 2 * q)))


def _identity(u: Array, p: Array, q: Array) -> Array:
    """Return u, the covariance itself."""
    return u


def _sin(u: Array, p: Array, q: Array) -> Array:
    """Return exp(−(p + q)/2) sinh u."""
    return (jnp.exp(u - (p + q) / 2) - jnp.exp(-u - (p + q) / 2)) / 2


# Moments in closed form, by the name of the activation
MOMENTS: dict[str, Moment] = {"relu": _relu, "erf": _erf, "identity": _identity, "sin": _sin}


def quadrature(activation: str) -> Moment:
    """Return the function that computes E[φ(a) φ(a')], where φ is the `activation` of this name, by Mehler's formula,

        Σₙ cₙ(p) cₙ(q) ρⁿ,    cₙ(p) = E[φ(√p z) hₙ(z)],    ρ = u/√(pq)

    where hₙ are the orthonormal Hermite polynomials. cₙ is computed by Gauss–Hermite quadrature over z ~ N(0, 1). Every
    term is positive semi-definite, which a two-dimensional quadrature would not guarantee. For tanh, the error is
    1e-7 at variance 16 and 1e-3 at variance 100. For the derivative of tanh, which the tangent kernel needs, the
    errors are 1e-4 and 5 %.
    """
    apply = ACTIVATIONS[activation]
    nodes, hermite = _hermite()

    def coefficients(variance: Array) -> Array:
        # A row of zeros has variance zero, where the square root is not differentiable
        scale = jnp.where(variance > 0, jnp.sqrt(jnp.where(variance > 0, variance, 1)), 0)
        values = apply(scale[..., None] * nodes)
        return jnp.moveaxis(values @ hermite, -1, 0)

    def moment(u: Array, p: Array, q: Array) -> Array:
        square = p * q
        # ρ is not clipped to [−1, 1], since its derivative at 1 would then be zero
        rho = jnp.where(square > 0, u / jnp.sqrt(jnp.where(square > 0, square, 1)), 0)

        def horner(value: jax.Array, pair: tuple[Array, Array]) -> tuple[jax.Array, None]:
            return value * rho + pair[0] * pair[1], None

        start = jnp.zeros(jnp.broadcast_shapes(u.shape, p.shape, q.shape))
        return jax.lax.scan(horner, start, (coefficients(p), coefficients(q)), reverse=True)[0]

    return moment


@cache
def _hermite() -> tuple[np.ndarray, np.ndarray]:
    """Return the nodes of the quadrature (nodes,), and weight × hₙ at each node (nodes, terms)."""
    nodes, weights = roots_hermitenorm(N_NODES)
    root = np.sqrt(weights / np.sqrt(2 * np.pi))
    functions = [root, nodes * root]  # √weight × hₙ, since hₙ alone would overflow
    for n in range(1, N_TERMS - 1):
        functions.append((nodes * functions[-1] - np.sqrt(n) * functions[-2]) / np.sqrt(n + 1))
    return nodes, root[:, None] * np.stack(functions, axis=1)
