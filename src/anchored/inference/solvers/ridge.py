"""The last layer in closed form.

With Gaussian noise and the layers below frozen, the outputs are affine in the last layer's parameters v,
f = f₀ + Φ v, and eq. 2 has one minimum:

    (Φᵀ W Φ + S⁻²) (v − v₀) = Φᵀ W (y − f(v₀)),    W = weights / σ²,  S² the prior variances.

Solved in float64 whatever the JAX flag, since Φᵀ W Φ squares the condition number.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from anchored.inference.compilation import jit
from anchored.model.bayesian_model import BayesianModel
from anchored.model.networks import last_layer_mask
from anchored.types import Array, Data, Params

ROWS_A_CHUNK = 1024

Loss = Callable[[Params, Params, BayesianModel, Data, Array], Array]


def freeze(mask: Params, params: Params, frozen: Params) -> Params:
    """`params` where the mask is true, `frozen` elsewhere."""
    return jax.tree.map(lambda m, p, f: p if m else f, mask, params, frozen)


def solve(loss: Loss, anchors: Params, models: BayesianModel, data: Data) -> tuple[Params, np.ndarray]:
    """Members: their anchors with the last layer moved to the minimum of the loss, and those minima.

    Args:
        loss: Eq. 2, a function of (params, anchor, model, data, total weight).
        anchors: Every leaf has a leading member axis, here and below.
        models: Of each member.
        data: Of each member, but for the inputs, which are shared.
    """
    with jax.enable_x64(True):
        double = partial(jax.tree.map, lambda leaf: np.asarray(leaf, np.float64))
        solved, losses = _solve_all(loss, double(anchors), double(models), double(data))
        single = jax.tree.map(lambda new, old: np.asarray(new, np.asarray(old).dtype), solved, anchors)
        return single, np.asarray(losses)


@partial(jit, static_argnums=(0,))
def _solve_all(loss: Loss, anchors: Params, models: BayesianModel, data: Data) -> tuple[Params, Array]:
    # One after the other: batched factorisations in two threads wait for each other for ever (seen in JAX 0.10.2)
    def one(member: tuple) -> tuple[Params, Array]:
        anchor, model, targets, weights = member
        return _solve(loss, anchor, model, Data(data.inputs, targets, weights))

    return jax.lax.map(one, (anchors, models, data.targets, data.weights))


def _solve(loss: Loss, anchor: Params, model: BayesianModel, data: Data) -> tuple[Params, Array]:
    mask = last_layer_mask(model.network, anchor)
    flat, unravel = _last_leaves(anchor, mask)
    precision = _last_leaves(jax.tree.map(lambda p, s: jnp.full(p.shape, s**-2), anchor, model.prior.scale), mask)[0]

    def outputs(v: Array, row: Array) -> Array:
        return model.network.apply(freeze(mask, unravel(v), anchor), row[None])[0]

    chunks = _chunks(data)

    def design_and_residual(rows: Array, targets: Array, weights: Array) -> tuple[Array, Array]:
        """Φ (rows × outputs, P) and y − f(v₀), scaled to unit noise."""
        root = jnp.sqrt(weights / model.likelihood.noise_variance)  # type: ignore[attr-defined]
        design = jax.vmap(jax.jacrev(outputs), in_axes=(None, 0))(flat, rows) * root[..., None]
        residual = (targets - jax.vmap(outputs, in_axes=(None, 0))(flat, rows)) * root
        return design.reshape(-1, len(flat)), residual.ravel()

    def accumulate(carry: tuple[Array, Array], chunk: tuple[Array, Array, Array]) -> tuple[tuple[Array, Array], None]:
        gram, pull = carry
        design, residual = design_and_residual(*chunk)
        return (gram + design.T @ design, pull + design.T @ residual), None

    if data.targets.size < len(flat):  # the same by the system of the rows, which is the smaller one
        design, residual = design_and_residual(*jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), chunks))
        gram = (design / precision) @ design.T + jnp.eye(len(design))
        moved = flat + design.T @ _divided(gram, residual) / precision
    else:
        of_no_rows: tuple[Array, Array] = jnp.diag(precision), jnp.zeros_like(flat)
        (gram, pull), _ = jax.lax.scan(accumulate, of_no_rows, chunks)
        moved = flat + _divided(gram, pull)
    solved = freeze(mask, unravel(moved), anchor)
    size = jnp.maximum(jnp.sum(data.weights) / data.weights.shape[1], 1e-12)
    return solved, loss(solved, anchor, model, data, size)


def _divided(matrix: Array, vector: Array) -> Array:
    """matrix⁻¹ vector, of a positive definite matrix."""
    return jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(matrix), vector)


def _last_leaves(params: Params, mask: Params) -> tuple[Array, Callable[[Array], Params]]:
    """The last layer as one vector, and the way back (other leaves come back as zeros)."""
    leaves, structure = jax.tree.flatten(params)
    marks = jax.tree.leaves(mask)
    flat = jnp.concatenate([leaf.ravel() for leaf, mark in zip(leaves, marks, strict=True) if mark])

    def unravel(vector: Array) -> Params:
        parts, position = [], 0
        for leaf, mark in zip(leaves, marks, strict=True):
            size = leaf.size if mark else 0
            part = vector[position : position + size] if mark else jnp.zeros(leaf.size, vector.dtype)
            parts.append(part.reshape(leaf.shape))
            position += size
        return jax.tree.unflatten(structure, parts)

    return flat, unravel


def _chunks(data: Data) -> tuple[Array, Array, Array]:
    """Rows in chunks of equal size, padded with weight zero, so that memory stays bounded."""
    n = data.inputs.shape[0]
    size = min(n, ROWS_A_CHUNK)
    pad = -n % size
    weights = jnp.broadcast_to(data.weights, data.targets.shape)

    def fold(leaf: Array) -> Array:
        padded = jnp.concatenate([leaf, jnp.zeros((pad, *leaf.shape[1:]), leaf.dtype)])
        return padded.reshape(-1, size, *leaf.shape[1:])

    return fold(data.inputs), fold(data.targets), fold(weights)
