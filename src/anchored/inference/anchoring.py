"""Anchored ensembles: each member is regularised about its own draw from the prior, not about zero.

    loss(θ) = (1/N) Σᵢ (yᵢ − f(xᵢ; θ))² + (σ²/N) Σⱼ (θⱼ − θ₀ⱼ)² / sⱼ²          (eq. 2)

which is 2σ²/N times the negative log posterior under the prior N(θ₀, s²). Draw θ₀ afresh for each member,
minimise, and the members' spread is the posterior: exactly for linear-Gaussian models, given the right law
for θ₀ or noisy targets; closely for networks.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from anchored import checks, trees
from anchored.model.bayesian_model import BayesianModel, Problem
from anchored.model.layered_prior import default_layer_scales, layer_indices
from anchored.model.likelihoods import Gaussian
from anchored.model.networks import last_layer_mask, tangent
from anchored.types import Array, Data, Key, Params

Anchoring = str | float | Sequence[float]  # "prior", "randomized", or κ: one, or one for each layer


def anchored_loss(params: Params, anchor: Params, model: BayesianModel, batch: Data, size: Array) -> Array:
    """Eq. 2 for one member.

    Args:
        params: θ, where the loss is wanted.
        anchor: θ₀, what the member is pulled to.
        model: Network, prior and likelihood.
        batch: Rows, with weights rescaled to sum to `size`.
        size: The total weight of the data set, which the anchor term is divided by, whatever the batch.

    Returns:
        The loss, a number.
    """
    outputs = model.network.apply(params, batch.inputs)
    misfit = jnp.sum(batch.weights * model.likelihood.misfit(outputs, batch.targets))
    pull = trees.total(jax.tree.map(lambda p, a, s: ((p - a) / s) ** 2, params, anchor, model.prior.scale))
    return model.likelihood.loss_scale * (misfit + 0.5 * pull) / size


def check_anchoring(anchoring: object, model: BayesianModel) -> None:
    """Raise unless members of the model can be anchored in this way."""
    if isinstance(anchoring, str):
        checks.one_of("anchoring", anchoring, ("prior", "randomized"))
        if anchoring == "randomized" and not isinstance(model.likelihood, Gaussian):
            raise ValueError(
                'anchoring="randomized" perturbs targets by Gaussian noise, which classes do not have, and no '
                'exact route is known for them. Use anchoring="prior" or a number κ.'
            )
        return
    kappas = np.atleast_1d(np.asarray(anchoring, object))
    if not all(checks.is_real(kappa) and kappa >= 0 for kappa in kappas):
        raise ValueError(f'anchoring must be "prior", "randomized", or κ: numbers of at least 0, got {anchoring!r}')
    n_layers = len(default_layer_scales(model.network, 1.0))
    if len(kappas) not in (1, n_layers):
        raise ValueError(f"anchoring: the network has {n_layers} layers, got {len(kappas)} κ")


@dataclass(frozen=True)
class AnchoredProblems:
    """The problems that anchored members solve."""

    anchoring: Anchoring = "prior"
    tangent_correction: bool = False

    def __call__(self, anchor_key: Key, noise_key: Key, model: BayesianModel, like: Params, data: Data) -> Problem:
        start, anchor = draw_anchor(anchor_key, model, like, _kappa(self.anchoring, model, like))
        targets = data.targets
        if self.anchoring == "randomized":
            targets = randomized_targets(noise_key, model.likelihood, data)  # type: ignore[arg-type]
        if self.tangent_correction:
            targets -= tangent(model.network, anchor, draw_direction(anchor_key, model, like), data.inputs)
        return Problem(start, anchor, model, data._replace(targets=targets))


def draw_anchor(key: Key, model: BayesianModel, like: Params, kappa: Params) -> tuple[Params, Params]:
    """Where a member starts, θ ~ N(μ, s²), and its anchor, θ₀ ~ N(μ, κs²), from the same draw.

    With κ = 1 the two are one. The paper's λ₃ is κ times the prior variance; there is
    one κ for each leaf.
    """
    draw = trees.normal_like(key, like)
    shrunk = jax.tree.map(lambda z, k: jnp.sqrt(k) * z, draw, kappa)
    return model.prior.unwhiten(draw), model.prior.unwhiten(shrunk)


def randomized_targets(key: Key, likelihood: Gaussian, data: Data) -> Array:
    """y + ε with ε ~ N(0, σ²/w), drawn once a member and kept: the missing part of the posterior's spread.

    Anchors from the plain prior fall short of the posterior covariance P by P A P; noisy targets add it.
    """
    noise = jax.random.normal(key, data.targets.shape, data.targets.dtype)
    counted = data.weights > 0  # a row of weight zero is not there, so it needs no noise
    variance = jnp.where(counted, likelihood.noise_variance / jnp.where(counted, data.weights, 1), 0)
    return data.targets + jnp.sqrt(variance) * noise


def draw_direction(anchor_key: Key, model: BayesianModel, like: Params) -> Params:
    """θ̃ ~ N(0, s²), zero in the last layer, of a member's tangent correction δ(x) = ∇f(x; θ₀)·θ̃.

    δ is added to the member and left untrained. Wide members with noisy targets then draw from the posterior under
    the tangent kernel (He, Lakshminarayanan & Teh 2020): much wider than that of a Bayesian network.
    """
    normal = trees.normal_like(jax.random.fold_in(anchor_key, 1), like)
    mask = last_layer_mask(model.network, like)
    return jax.tree.map(lambda z, s, is_last: 0 * z if is_last else s * z, normal, model.prior.scale, mask)


def _kappa(anchoring: Anchoring, model: BayesianModel, like: Params) -> Params:
    """κ for each leaf: 1 for anchors from the prior, otherwise as given, for all layers or one each."""
    if isinstance(anchoring, str):
        return jax.tree.map(lambda _: 1.0, like)
    values = jnp.atleast_1d(jnp.asarray(anchoring))
    index = layer_indices(model.network, like)
    return jax.tree.map(lambda i: values[i] if len(values) > 1 else values[0], index)
