"""Train the last layer in closed form, which is ridge regression towards the anchor.

If all other layers are fixed, the outputs f(v) are affine in the parameters v of the last layer, with the Jacobian Φ.
With Gaussian noise, the anchored loss (eq. 2 in `inference.anchoring`) then has one minimum, the solution of

    (Φᵀ W Φ + S⁻²) (v − v₀) = Φᵀ W (y − f(v₀)),

where v₀ is the anchor of the last layer, and y are the targets. W and S² are diagonal: W holds the weights divided by
the noise variance, and S² the prior variances of v. The solution is computed in float64, whatever JAX's default is,
since forming ΦᵀWΦ squares the condition number.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from anchored import trees
from anchored.inference.compilation import jit
from anchored.model.bayesian_model import BayesianModel
from anchored.model.networks import last_layer_mask
from anchored.trees import Tree
from anchored.types import Array, Data, Params

ROWS_PER_CHUNK = 1024  # rows whose Jacobian is formed at once

# Arguments: parameters, anchor, model, data, sum of the weights
Loss = Callable[[Params, Params, BayesianModel, Data, Array], Array]


def solve(loss: Loss, anchors: Tree, models: BayesianModel, data: Data) -> tuple[Tree, np.ndarray]:
    """Minimise the loss of each member over its last layer.

    Parameters
    ----------
    loss : callable
        The anchored loss, `anchoring.anchored_loss`.
    anchors : pytree
        Anchors, at which all layers but the last are fixed. Every leaf has a leading member axis.
    models : BayesianModel
        Models of the members. Every leaf has a leading member axis.
    data : Data
        Inputs that all members share, and targets and weights with a leading member axis.

    Returns
    -------
    params : pytree
        Parameters of the members, in the precision of `anchors`. Every leaf has a leading member axis.
    losses : (members,) array
        Loss of each member at its minimum.
    """
    with jax.enable_x64(True):
        solved, losses = _solve_all(loss, *trees.to_float64((anchors, models, data)))
        params = jax.tree.map(lambda new, old: np.asarray(new, np.asarray(old).dtype), solved, anchors)
        return params, np.asarray(losses)


@partial(jit, static_argnums=(0,))
def _solve_all(loss: Loss, anchors: Tree, models: BayesianModel, data: Data) -> tuple[Tree, Array]:
    """The compiled part of `solve`."""

    # Members are solved one after the other, since batched factorisations in two threads can deadlock (JAX 0.10.2)
    def solve_one(member: tuple) -> tuple[Tree, Array]:
        anchor, model, targets, weights = member
        return _solve(loss, anchor, model, Data(data.inputs, targets, weights))

    return jax.lax.map(solve_one, (anchors, models, data.targets, data.weights))


def _solve(loss: Loss, anchor: Tree, model: BayesianModel, data: Data) -> tuple[Tree, Array]:
    """Return the parameters and the loss of one member."""
    is_last = last_layer_mask(model.network, anchor)
    last_anchor, unravel = _ravel_last_layer(anchor, is_last)  # v₀
    precisions = jax.tree.map(lambda p, s: jnp.full(p.shape, s**-2), anchor, model.prior.scale)
    prior_precision, _ = _ravel_last_layer(precisions, is_last)  # the diagonal of S⁻²

    def outputs(v: Array, row: Array) -> Array:
        return model.network.apply(trees.merge(is_last, unravel(v), anchor), row[None])[0]

    chunks = _chunks(data)

    def design_and_residual(rows: Array, targets: Array, weights: Array) -> tuple[Array, Array]:
        """Return √W Φ, (rows × outputs, last-layer parameters), and √W (y − f(v₀)), (rows × outputs,)."""
        root = jnp.sqrt(weights / model.likelihood.noise_variance)  # type: ignore[attr-defined]
        design = jax.vmap(jax.jacrev(outputs), in_axes=(None, 0))(last_anchor, rows) * root[..., None]
        residual = (targets - jax.vmap(outputs, in_axes=(None, 0))(last_anchor, rows)) * root
        return design.reshape(-1, len(last_anchor)), residual.ravel()

    def accumulate(carry: tuple[Array, Array], chunk: tuple[Array, Array, Array]) -> tuple[tuple[Array, Array], None]:
        gram, right_side = carry
        design, residual = design_and_residual(*chunk)
        return (gram + design.T @ design, right_side + design.T @ residual), None

    if data.targets.size < len(last_anchor):
        # The equivalent system of the Woodbury identity, with one equation for each target, is smaller
        design, residual = design_and_residual(*jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), chunks))
        gram = (design / prior_precision) @ design.T + jnp.eye(len(design))
        solution = last_anchor + design.T @ _solve_definite(gram, residual) / prior_precision
    else:
        prior_terms: tuple[Array, Array] = jnp.diag(prior_precision), jnp.zeros_like(last_anchor)
        (gram, right_side), _ = jax.lax.scan(accumulate, prior_terms, chunks)
        solution = last_anchor + _solve_definite(gram, right_side)
    params = trees.merge(is_last, unravel(solution), anchor)
    total_weight = jnp.maximum(jnp.sum(data.weights) / data.weights.shape[1], 1e-12)
    return params, loss(params, anchor, model, data, total_weight)


def _solve_definite(matrix: Array, vector: Array) -> Array:
    """Return matrix⁻¹ vector, for a positive definite matrix."""
    return jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(matrix), vector)


def _ravel_last_layer(params: Tree, is_last: object) -> tuple[Array, Callable[[Array], Tree]]:
    """Return the last layer as one vector, and the inverse function, which sets all other leaves to zero."""
    leaves, structure = jax.tree.flatten(params)
    flags = jax.tree.leaves(is_last)
    flat = jnp.concatenate([leaf.ravel() for leaf, flag in zip(leaves, flags, strict=True) if flag])

    def unravel(vector: Array) -> Tree:
        parts, position = [], 0
        for leaf, flag in zip(leaves, flags, strict=True):
            size = leaf.size if flag else 0
            part = vector[position : position + size] if flag else jnp.zeros(leaf.size, vector.dtype)
            parts.append(part.reshape(leaf.shape))
            position += size
        return jax.tree.unflatten(structure, parts)

    return flat, unravel


def _chunks(data: Data) -> tuple[Array, Array, Array]:
    """Return inputs, targets and weights in chunks of rows, (chunks, rows, ...), to bound memory.

    The last chunk is padded with rows of weight zero.
    """
    n_rows = data.inputs.shape[0]
    size = min(n_rows, ROWS_PER_CHUNK)
    n_padding = -n_rows % size
    weights = jnp.broadcast_to(data.weights, data.targets.shape)

    def split(leaf: Array) -> Array:
        padded = jnp.concatenate([leaf, jnp.zeros((n_padding, *leaf.shape[1:]), leaf.dtype)])
        return padded.reshape(-1, size, *leaf.shape[1:])

    return split(data.inputs), split(data.targets), split(weights)
