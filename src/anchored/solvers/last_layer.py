"""The last layer in closed form.

With Gaussian noise and the layers below frozen, the outputs are affine in the last layer's parameters v,
f = f₀ + Φ v, and eq. 2 has one minimum:

    (Φᵀ W Φ + S⁻²) (v − v₀) = Φᵀ W (y − f(v₀)),    W = weights / σ²,  S² the prior variances.

Solved in float64 whatever the JAX flag, since Φᵀ W Φ squares the condition number.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from anchored import trees
from anchored.anchoring import anchored_loss
from anchored.model import BayesianModel
from anchored.networks import Network
from anchored.types import Array, Data, Params

ROWS_A_CHUNK = 1024


def last_layer_mask(network: Network, params: Params) -> Params:
    """True on the leaves of the last layer."""
    name = network.last_layer
    mask = [name is not None and name in path for path in trees.paths(params)]
    if not any(mask):
        known = sorted({step for path in trees.paths(params) for step in path})
        raise ValueError(
            f"trainable='last_layer': no parameter is marked as the last layer's (last_layer={name!r}). Pass the "
            f"network through from_flax, from_equinox or from_functions with last_layer set to one of {known}."
        )
    return jax.tree.unflatten(jax.tree.structure(params), mask)


def freeze(mask: Params, params: Params, frozen: Params) -> Params:
    """`params` where the mask is true, `frozen` elsewhere."""
    return jax.tree.map(lambda m, p, f: p if m else f, mask, params, frozen)


def solve(anchor: Params, model: BayesianModel, data: Data) -> tuple[Params, float]:
    """One member: its anchor with the last layer moved to the minimum of eq. 2, and that minimum."""
    with jax.enable_x64(True):
        double = partial(jax.tree.map, lambda leaf: jnp.asarray(np.asarray(leaf), jnp.float64))
        solved, loss = _solve(double(anchor), double(model), double(data))
        single = jax.tree.map(lambda new, old: np.asarray(new, np.asarray(old).dtype), solved, anchor)
        return single, float(loss)


@jax.jit
def _solve(anchor: Params, model: BayesianModel, data: Data) -> tuple[Params, Array]:
    mask = last_layer_mask(model.network, anchor)
    flat, unravel = _last_leaves(anchor, mask)
    precision = _last_leaves(jax.tree.map(lambda p, s: jnp.full(p.shape, s**-2), anchor, model.prior.scale), mask)[0]

    def outputs(v: Array, row: Array) -> Array:
        return model.network.apply(freeze(mask, unravel(v), anchor), row[None])[0]

    def accumulate(carry, chunk):
        gram, pull = carry
        rows, targets, weights = chunk
        design = jax.vmap(jax.jacrev(outputs), in_axes=(None, 0))(flat, rows)  # (rows, outputs, P)
        residual = targets - jax.vmap(outputs, in_axes=(None, 0))(flat, rows)
        weighted = design * (weights / model.likelihood.noise_variance)[..., None]
        gram += jnp.einsum("nkp,nkq->pq", weighted, design)
        return (gram, pull + jnp.einsum("nkp,nk->p", weighted, residual)), None

    start = (jnp.diag(precision), jnp.zeros_like(flat))
    (gram, pull), _ = jax.lax.scan(accumulate, start, _chunks(data))
    moved = flat + jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(gram), pull)
    solved = freeze(mask, unravel(moved), anchor)
    size = jnp.maximum(jnp.sum(data.weights) / data.weights.shape[1], 1e-12)
    return solved, anchored_loss(solved, anchor, model, data, size)


def _last_leaves(params: Params, mask: Params):
    """The last layer as one vector, and the way back (other leaves come back as zeros)."""
    leaves, structure = jax.tree.flatten(params)
    marks = jax.tree.leaves(mask)
    flat = jnp.concatenate([leaf.ravel() for leaf, mark in zip(leaves, marks, strict=True) if mark])

    def unravel(vector):
        parts, position = [], 0
        for leaf, mark in zip(leaves, marks, strict=True):
            size = leaf.size if mark else 0
            part = vector[position : position + size] if mark else jnp.zeros(leaf.size, vector.dtype)
            parts.append(part.reshape(leaf.shape))
            position += size
        return jax.tree.unflatten(structure, parts)

    return flat, unravel


def _chunks(data: Data):
    """Rows in chunks of equal size, padded with weight zero, so that memory stays bounded."""
    n = data.inputs.shape[0]
    size = min(n, ROWS_A_CHUNK)
    pad = -n % size
    weights = jnp.broadcast_to(data.weights, data.targets.shape)

    def fold(leaf):
        padded = jnp.concatenate([leaf, jnp.zeros((pad, *leaf.shape[1:]), leaf.dtype)])
        return padded.reshape(-1, size, *leaf.shape[1:])

    return fold(data.inputs), fold(data.targets), fold(weights)
