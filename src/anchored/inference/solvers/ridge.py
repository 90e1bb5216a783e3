"""Solve for the last layer in closed form.

With Gaussian noise and the layers below frozen, outputs are affine in the last layer's parameters v: f = f₀ + Φ v.
Eq. 2 then has one minimum, the solution of

    (Φᵀ W Φ + S⁻²) (v − v₀) = Φᵀ W (y − f(v₀)),    W = weights / σ²,  S² the prior variances.

It is computed in float64, whatever JAX's default is, since Φᵀ W Φ squares the condition number.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from anchored.inference.compilation import jit
from anchored.model.bayesian_model import BayesianModel
from anchored.model.networks import last_layer_mask
from anchored.trees import Tree
from anchored.types import Array, Data, Params

ROWS_PER_CHUNK = 1024

Loss = Callable[[Params, Params, BayesianModel, Data, Array], Array]


def freeze(mask: object, params: Tree, frozen: Tree) -> Tree:
    """Return the leaves of `params` where `mask` is true, and those of `frozen` elsewhere."""
    return jax.tree.map(lambda m, p, f: p if m else f, mask, params, frozen)


def solve(loss: Loss, anchors: Tree, models: BayesianModel, data: Data) -> tuple[Tree, np.ndarray]:
    """Minimise the loss of each member over its last layer.

    Parameters
    ----------
    loss : callable
        Eq. 2, a function of (params, anchor, model, data, total weight).
    anchors : pytree
        Anchors, which the other layers are frozen at; every leaf has a leading member axis.
    models : BayesianModel
        Models of the members; every leaf has a leading member axis.
    data : Data
        Inputs that all members share, and targets and weights with a leading member axis.

    Returns
    -------
    params : pytree
        Members, in the precision of `anchors`; every leaf has a leading member axis.
    losses : (members,) array
        The minima.
    """
    with jax.enable_x64(True):
        double = partial(jax.tree.map, lambda leaf: np.asarray(leaf, np.float64))
        solved, losses = _solve_all(loss, double(anchors), double(models), double(data))
        single = jax.tree.map(lambda new, old: np.asarray(new, np.asarray(old).dtype), solved, anchors)
        return single, np.asarray(losses)


@partial(jit, static_argnums=(0,))
def _solve_all(loss: Loss, anchors: Tree, models: BayesianModel, data: Data) -> tuple[Tree, Array]:
    """The compiled part of `solve`."""

    # One after the other: batched factorisations in two threads can deadlock (seen in JAX 0.10.2)
    def one(member: tuple) -> tuple[Tree, Array]:
        anchor, model, targets, weights = member
        return _solve(loss, anchor, model, Data(data.inputs, targets, weights))

    return jax.lax.map(one, (anchors, models, data.targets, data.weights))


def _solve(loss: Loss, anchor: Tree, model: BayesianModel, data: Data) -> tuple[Tree, Array]:
    """Solve for one member."""
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
        gram, right_side = carry
        design, residual = design_and_residual(*chunk)
        return (gram + design.T @ design, right_side + design.T @ residual), None

    if data.targets.size < len(flat):  # an equivalent linear system with one equation for each row is smaller
        design, residual = design_and_residual(*jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), chunks))
        gram = (design / precision) @ design.T + jnp.eye(len(design))
        moved = flat + design.T @ _solve_definite(gram, residual) / precision
    else:
        without_rows: tuple[Array, Array] = jnp.diag(precision), jnp.zeros_like(flat)
        (gram, right_side), _ = jax.lax.scan(accumulate, without_rows, chunks)
        moved = flat + _solve_definite(gram, right_side)
    solved = freeze(mask, unravel(moved), anchor)
    size = jnp.maximum(jnp.sum(data.weights) / data.weights.shape[1], 1e-12)
    return solved, loss(solved, anchor, model, data, size)


def _solve_definite(matrix: Array, vector: Array) -> Array:
    """matrix⁻¹ vector, for a positive definite matrix."""
    return jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(matrix), vector)


def _last_leaves(params: Tree, mask: object) -> tuple[Array, Callable[[Array], Tree]]:
    """The last layer as one vector, and the inverse function, which sets all other leaves to zero."""
    leaves, structure = jax.tree.flatten(params)
    marks = jax.tree.leaves(mask)
    flat = jnp.concatenate([leaf.ravel() for leaf, mark in zip(leaves, marks, strict=True) if mark])

    def unravel(vector: Array) -> Tree:
        parts, position = [], 0
        for leaf, mark in zip(leaves, marks, strict=True):
            size = leaf.size if mark else 0
            part = vector[position : position + size] if mark else jnp.zeros(leaf.size, vector.dtype)
            parts.append(part.reshape(leaf.shape))
            position += size
        return jax.tree.unflatten(structure, parts)

    return flat, unravel


def _chunks(data: Data) -> tuple[Array, Array, Array]:
    """Split the rows into chunks of equal size, padded with rows of weight zero, to bound memory."""
    n = data.inputs.shape[0]
    size = min(n, ROWS_PER_CHUNK)
    pad = -n % size
    weights = jnp.broadcast_to(data.weights, data.targets.shape)

    def fold(leaf: Array) -> Array:
        padded = jnp.concatenate([leaf, jnp.zeros((pad, *leaf.shape[1:]), leaf.dtype)])
        return padded.reshape(-1, size, *leaf.shape[1:])

    return fold(data.inputs), fold(data.targets), fold(weights)
