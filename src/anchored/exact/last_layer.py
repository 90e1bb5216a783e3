"""Proposition 1 (docs/ideas/limit.md): if all other layers are fixed, the last layer is a linear-Gaussian model.

Outputs are affine in the parameters v of the last layer: f = f_b + Φ v, where Φ are the features that the other layers
compute, and f_b does not depend on v. With the prior v ~ N(μ, S²) and Gaussian noise, the posterior of the outputs is
that of a Gaussian process with prior mean f_b + Φ μ and kernel Φ S² Φᵀ, at any width. If only the last layer of a
member is trained, with noisy targets, the member is an exact draw from the posterior for its features.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from anchored import trees
from anchored.exact.padding import with_copies
from anchored.exact.wide_limit import Grams, anchored_distribution
from anchored.inference.compilation import jit
from anchored.model.bayesian_model import BayesianModel
from anchored.model.networks import last_layer_mask
from anchored.trees import Tree
from anchored.types import Array, Data, Params


def last_layer_distribution(
    model: BayesianModel,
    features: Tree,
    data: Data,
    points: Array,
    anchor_kappa: float = 1.0,
    noisy_targets: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the distribution of the outputs of anchored members that have the same features.

    Their anchors are drawn from N(μ, κ S²). With noisy targets and κ = 1, the distribution is the posterior.

    Parameters
    ----------
    model : BayesianModel
        Network, prior and Gaussian likelihood.
    features : pytree
        Parameters of the network, which define its features. Those of the last layer have no effect.
    data : Data
        Training rows.
    points : (points, ...) array
        Inputs to predict at.
    anchor_kappa : float
        κ, the variance of the anchors divided by that of the prior.
    noisy_targets : bool
        Whether noise is added to the targets of each member.

    Returns
    -------
    mean : (points, outputs) array
    covariance : (points, points, outputs) array

    Raises
    ------
    ValueError
        If two outputs share parameters of the last layer.
    """
    n_rows, n_outputs = data.targets.shape
    all_inputs = np.concatenate([np.asarray(data.inputs, np.float64), np.asarray(points, np.float64)])
    with jax.enable_x64(True):
        found = _prior_mean_and_design(*trees.to_float64((model, features, with_copies(all_inputs))))
    prior_mean, design = (np.asarray(part)[: len(all_inputs)] for part in found)
    noise = model.likelihood.noise_variance / np.broadcast_to(data.weights, data.targets.shape)  # type: ignore[attr-defined]
    for k in range(1, n_outputs):
        if any(np.any(np.abs(design[:, k] @ design[:, j].T) > 1e-12) for j in range(k)):
            raise ValueError(
                "network: outputs share parameters of the last layer, but the exact posterior needs independent outputs"
            )
    means, covariances = [], []
    for k in range(n_outputs):
        at_rows, at_points = design[:n_rows, k], design[n_rows:, k]
        trained = Grams(at_rows @ at_rows.T, at_rows @ at_points.T, at_points @ at_points.T)
        anchors = Grams(*(anchor_kappa * part for part in trained))
        residual = np.asarray(data.targets, np.float64)[:, k] - prior_mean[:n_rows, k]
        row_noise = np.asarray(noise, np.float64)[:, k]
        mean, covariance = anchored_distribution(anchors, trained, row_noise, residual, noisy_targets)
        means.append(prior_mean[n_rows:, k] + mean)
        covariances.append(covariance)
    return np.stack(means, axis=-1), np.stack(covariances, axis=-1)


@jit
def _prior_mean_and_design(model: BayesianModel, features: Tree, inputs: Array) -> tuple[Array, Array]:
    """Return f_b + Φ μ (rows, outputs) and Φ S (rows, outputs, last-layer parameters)."""
    in_last_layer = last_layer_mask(model.network, features)

    def with_last_layer(value: Callable[[Array, Array, Array], Array]) -> Params:
        """Return the features with each leaf of the last layer replaced by value(leaf, prior mean, prior scale)."""
        return jax.tree.map(
            lambda is_last, p, m, s: value(p, m, s) if is_last else p,
            in_last_layer,
            features,
            model.prior.mean,
            model.prior.scale,
        )

    at_prior_mean = with_last_layer(lambda p, m, s: jnp.broadcast_to(m, p.shape))
    scale = with_last_layer(lambda p, m, s: jnp.broadcast_to(s, p.shape))

    def of_row(x: Array) -> tuple[Array, Array]:
        jacobian = jax.jacrev(lambda p: model.network.apply(p, x[None])[0])(at_prior_mean)
        parts = jax.tree.map(lambda is_last, j, s: j * s if is_last else None, in_last_layer, jacobian, scale)
        flat = [part.reshape(part.shape[0], -1) for part in jax.tree.leaves(parts)]
        return model.network.apply(at_prior_mean, x[None])[0], jnp.concatenate(flat, axis=1)

    return jax.lax.map(of_row, inputs, batch_size=256)
