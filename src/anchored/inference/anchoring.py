"""Anchored ensembles: each member is regularised towards its own draw from the prior instead of towards zero.

    loss(θ) = (1/N) Σᵢ (yᵢ − f(xᵢ; θ))² + (σ²/N) Σⱼ (θⱼ − θ₀ⱼ)² / sⱼ²          (eq. 2)

for N rows, noise variance σ² and prior scales s. This is 2σ²/N times the negative log posterior under the prior
N(θ₀, s²), up to a constant. Each member has its own anchor θ₀, and the minima of all members are distributed
approximately as the posterior. For linear-Gaussian models the distribution is exactly the posterior if θ₀ has the
right covariance or the targets have noise added (see `exact.linear_gaussian`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from anchored import checks, trees
from anchored.model.bayesian_model import AnchorAndModel, BayesianModel, MemberKeys, Problem
from anchored.model.layered_prior import default_layer_scales, layer_indices
from anchored.model.likelihoods import Gaussian
from anchored.model.networks import last_layer_mask, tangent
from anchored.model.priors import Prior
from anchored.trees import Tree
from anchored.types import Array, Data, Key, Params

Anchoring = str | float | Sequence[float]  # "prior"; "randomized", the same with noisy targets; κ, or one κ per layer


def anchored_loss(params: Params, anchor: Params, model: BayesianModel, batch: Data, total_weight: Array) -> Array:
    """Return the loss of one member, eq. 2.

    Parameters
    ----------
    params : pytree
        θ, the member's parameters.
    anchor : pytree
        θ₀, the member's anchor.
    model : BayesianModel
        Network, prior and likelihood.
    batch : Data
        Rows, with weights rescaled so that they sum to `total_weight`, on average over batches.
    total_weight : scalar
        The sum of the weights of the whole data set, by which the anchor penalty is divided.

    Returns
    -------
    scalar
        The loss.
    """
    outputs = model.network.apply(params, batch.inputs)
    negative_log_likelihood = jnp.sum(batch.weights * model.likelihood.negative_log_likelihood(outputs, batch.targets))
    penalty = trees.total(jax.tree.map(lambda p, a, s: ((p - a) / s) ** 2, params, anchor, model.prior.scale))
    return model.likelihood.loss_scale * (negative_log_likelihood + 0.5 * penalty) / total_weight


@dataclass(frozen=True)
class AnchoredObjective:
    """The anchored loss (eq. 2) as a function of the trained parameters; others stay at the anchor."""

    trainable: str  # as in TrainingConfig

    def loss(self, params: Params, anchor_and_model: AnchorAndModel, batch: Data, total_weight: Array) -> Array:
        """Return eq. 2 at `params`, estimated from a `batch` of the data.

        `total_weight` is the sum of the weights of all rows trained on, averaged over outputs.
        """
        anchor, model = anchor_and_model
        return anchored_loss(self.merged(params, anchor, model), anchor, model, batch, total_weight)

    def held_out_loss(self, params: Params, anchor_and_model: AnchorAndModel, batch: Data) -> Array:
        """Return the mean negative log-likelihood of the rows of `batch` at `params`."""
        anchor, model = anchor_and_model
        outputs = model.network.apply(self.merged(params, anchor, model), batch.inputs)
        total = jnp.sum(batch.weights * model.likelihood.negative_log_likelihood(outputs, batch.targets))
        return total / jnp.maximum(jnp.sum(batch.weights), 1e-12)

    def merged(self, params: Tree, anchor: Tree, model: BayesianModel) -> Tree:
        """Return `params` with all leaves that are not trained replaced by those of `anchor`.

        `model` holds the network, which says which leaves are its last layer.
        """
        if self.trainable == "all":
            return params
        if self.trainable == "last_layer":
            is_trained = last_layer_mask(model.network, params)
        else:
            is_trained = trees.mask_of_key(self.trainable, params)
        return trees.merge(is_trained, params, anchor)


def check_anchoring(anchoring: object, model: BayesianModel) -> None:
    """Raise a ValueError unless `anchoring` is valid and can be used with `model`."""
    if isinstance(anchoring, str):
        checks.one_of("anchoring", anchoring, ("prior", "randomized"))
        if anchoring == "randomized" and not isinstance(model.likelihood, Gaussian):
            raise ValueError(
                'anchoring="randomized" adds Gaussian noise to the targets, so it needs the Gaussian likelihood. Use '
                'anchoring="prior" or a number κ.'
            )
        return
    kappas = np.atleast_1d(np.asarray(anchoring, object))
    if not all(checks.is_real(kappa) and kappa >= 0 for kappa in kappas):
        raise ValueError(
            'anchoring must be "prior", "randomized", or κ, one number or one for each layer, all at least 0; got '
            f"{anchoring!r}"
        )
    n_layers = len(default_layer_scales(model.network, 1.0))
    if len(kappas) not in (1, n_layers):
        raise ValueError(
            f"anchoring must be one κ or one for each of the network's {n_layers} layers, got {len(kappas)} numbers"
        )


@dataclass(frozen=True)
class AnchoredSampler:
    """A `ProblemSampler` of the members of an anchored ensemble."""

    anchoring: Anchoring = "prior"  # how anchors are drawn: a name, or κ as in `start_and_anchor`
    tangent_correction: bool = False  # whether δ(x) is added to the outputs, see `draw_direction`

    def __call__(self, normals: Params, keys: MemberKeys, model: BayesianModel, data: Data) -> Problem:
        """Return the member's start, anchor and targets; the arguments are those of `ProblemSampler`."""
        start, anchor = start_and_anchor(normals, model.prior, _kappa(self.anchoring, model, normals))
        targets = data.targets
        if self.anchoring == "randomized":
            targets = randomized_targets(keys.data, model.likelihood, data)  # type: ignore[arg-type]
        if self.tangent_correction:  # to fit f + δ to the targets is to fit f to the targets minus δ
            targets = targets - tangent(model.network, anchor, draw_direction(keys.anchor, model, normals), data.inputs)
        return Problem(start, anchor, model, data._replace(targets=targets))


def start_and_anchor(normals: Tree, prior: Prior, kappa: object) -> tuple[Tree, Tree]:
    """Return a member's initial parameters θ ~ N(μ, s²) and its anchor θ₀ ~ N(μ, κs²), made from the same normals.

    With κ = 1 the two are equal, and with κ = 0 the anchor is the prior mean. The paper's λ₃ is κ times the prior
    variance.

    Parameters
    ----------
    normals : pytree
        Standard normals in the shapes of the parameters.
    prior : Prior
        The prior N(μ, s²).
    kappa : pytree
        κ, one number for each leaf.

    Returns
    -------
    start, anchor : pytree
        Parameters of the shapes of `normals`.
    """
    shrunk = jax.tree.map(lambda z, k: jnp.sqrt(k) * z, normals, kappa)
    return prior.unwhiten(normals), prior.unwhiten(shrunk)


def randomized_targets(key: Key, likelihood: Gaussian, data: Data) -> Array:
    """Return noisy targets y + ε with ε ~ N(0, σ²/w), which a member keeps throughout its training.

    With anchors from the prior alone, members of a linear-Gaussian model have the covariance P − P A P, where P is the
    covariance of the posterior and A the precision of the likelihood; noisy targets add P A P (see
    `exact.linear_gaussian`).

    Parameters
    ----------
    key : Key
        Random key of the member.
    likelihood : Gaussian
        Holds the noise variance σ².
    data : Data
        Targets y and weights w.

    Returns
    -------
    array
        Targets of the same shape.
    """
    noise = jax.random.normal(key, data.targets.shape, data.targets.dtype)
    has_weight = data.weights > 0  # rows of weight zero are ignored, so they need no noise
    variance = jnp.where(has_weight, likelihood.noise_variance / jnp.where(has_weight, data.weights, 1), 0)
    return data.targets + jnp.sqrt(variance) * noise


def draw_direction(anchor_key: Key, model: BayesianModel, like: Tree) -> Tree:
    """Return θ̃ ~ N(0, s²), zero in the last layer, for a member's tangent correction δ(x) = ∇f(x; θ₀)·θ̃.

    The last layer's part of the tangent kernel is that of f₀ itself. δ is added to the member's outputs and not
    trained. Wide members with noisy targets are then draws from the posterior under the tangent kernel (He,
    Lakshminarayanan & Teh 2020), which is much wider than the posterior of the network. `anchor_key` is the key of the
    member's anchor, `model` holds the network and its prior scales s, and `like` has the shapes of the member's
    parameters.
    """
    normal = trees.normal_like(jax.random.fold_in(anchor_key, 1), like)
    mask = last_layer_mask(model.network, like)
    return jax.tree.map(lambda z, s, is_last: 0 * z if is_last else s * z, normal, model.prior.scale, mask)


def _kappa(anchoring: Anchoring, model: BayesianModel, like: object) -> Params:
    """κ for each leaf: 1 if `anchoring` is a name, otherwise its one number, or its number for the leaf's layer."""
    if isinstance(anchoring, str):
        return jax.tree.map(lambda _: 1.0, like)
    values = jnp.atleast_1d(jnp.asarray(anchoring))
    layers = layer_indices(model.network, like)
    return jax.tree.map(lambda i: values[i] if len(values) > 1 else values[0], layers)
