"""Anchored ensembles: each member is regularised towards its own anchor, a draw from the prior, not towards zero.

A member with parameters θ and anchor θ₀ minimises the paper's equation 2,

    loss(θ) = (1/N) Σᵢ (yᵢ − f(xᵢ; θ))² + (σ²/N) Σⱼ (θⱼ − θ₀ⱼ)² / sⱼ²          (eq. 2)

for N rows, noise variance σ² and prior scales s. This is 2σ²/N times the negative log posterior under the prior
N(θ₀, s²), up to a constant. The minima of all members are distributed approximately as the posterior. In
linear-Gaussian models their distribution is exactly the posterior if the anchors have the right covariance, or if noise
is added to the targets (see `exact.linear_gaussian`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from anchored import checks, trees
from anchored.inference.compilation import jit
from anchored.model.bayesian_model import AnchorAndModel, BayesianModel, MemberKeys, Problem
from anchored.model.layered_prior import default_layer_scales, layer_indices
from anchored.model.likelihoods import Gaussian
from anchored.model.networks import last_layer_mask, tangent
from anchored.model.priors import Prior
from anchored.trees import Tree
from anchored.types import Array, Data, Key, Params

# How anchors are drawn: "prior", from the prior; "randomized", the same, and noise is added to the targets; or κ, one
# number or one for each layer, from the prior with its variance multiplied by κ
Anchoring = str | float | Sequence[float]


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
        Rows of a batch. Their weights are scaled so that their sum is `total_weight`, on average over batches.
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
    """The anchored loss (eq. 2), with parameters that are not trained fixed at the anchor."""

    trainable: str  # "all", "last_layer", or a key of the parameters; only leaves below this key are trained

    def loss(self, params: Params, anchor_and_model: AnchorAndModel, batch: Data, total_weight: Array) -> Array:
        """Return eq. 2 at `params`, estimated from a `batch` of the data.

        `total_weight` is the sum of the weights of all training rows, averaged over outputs.
        """
        anchor, model = anchor_and_model
        return anchored_loss(self.merged(params, anchor, model), anchor, model, batch, total_weight)

    def held_out_loss(self, params: Params, anchor_and_model: AnchorAndModel, batch: Data) -> Array:
        """Return the weighted mean of the negative log-likelihood of the rows of `batch` at `params`."""
        anchor, model = anchor_and_model
        outputs = model.network.apply(self.merged(params, anchor, model), batch.inputs)
        total = jnp.sum(batch.weights * model.likelihood.negative_log_likelihood(outputs, batch.targets))
        return total / jnp.maximum(jnp.sum(batch.weights), 1e-12)

    def merged(self, params: Tree, anchor: Tree, model: BayesianModel) -> Tree:
        """Return `params` with all leaves that are not trained replaced by those of `anchor`.

        The network of `model` determines which leaves belong to the last layer.
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
            'anchoring must be "prior", "randomized", or κ: one number, or one for each layer, none below 0; got '
            f"{anchoring!r}"
        )
    n_layers = len(default_layer_scales(model.network, 1.0))
    if len(kappas) not in (1, n_layers):
        raise ValueError(
            f"anchoring must be one κ or one for each of the network's {n_layers} layers, got {len(kappas)} numbers"
        )


@dataclass(frozen=True)
class AnchoredSampler:
    """The `ProblemSampler` of an anchored ensemble."""

    anchoring: Anchoring = "prior"  # how anchors are drawn
    tangent_correction: bool = False  # whether the correction δ of `draw_direction` is added to the outputs

    @property
    def has_shared_data(self) -> bool:
        """Whether all members have the same targets and weights."""
        return self.anchoring != "randomized" and not self.tangent_correction

    def __call__(self, normals: Params, keys: MemberKeys, model: BayesianModel, data: Data) -> Problem:
        """Return the problem of one member. The arguments are those of `ProblemSampler`."""
        start, anchor = start_and_anchor(normals, model.prior, _kappa(self.anchoring, model, normals))
        targets = data.targets
        if self.anchoring == "randomized":
            targets = randomized_targets(keys.data, model.likelihood, data)  # type: ignore[arg-type]
        if self.tangent_correction:  # fitting f + δ to y is fitting f to y − δ
            targets = targets - tangent(model.network, anchor, draw_direction(keys.anchor, model, normals), data.inputs)
        return Problem(start, anchor, model, data._replace(targets=targets))


def start_and_anchor(normals: Tree, prior: Prior, kappa: object) -> tuple[Tree, Tree]:
    """Return a member's initial parameters, a draw of N(μ, s²), and its anchor, a draw of N(μ, κs²).

    Both are made from the same standard normals, so that they are equal for κ = 1. For κ = 0 the anchor is the prior
    mean. The paper writes the variance of anchors, κs², as λ₃.

    Parameters
    ----------
    normals : pytree
        Standard normal draws in the shapes of the parameters.
    prior : Prior
        The prior N(μ, s²).
    kappa : pytree
        κ, one number for each leaf.

    Returns
    -------
    start, anchor : pytree
        Initial parameters and anchor, in the shapes of `normals`.
    """
    scaled = jax.tree.map(lambda z, k: jnp.sqrt(k) * z, normals, kappa)
    return prior.unwhiten(normals), prior.unwhiten(scaled)


def randomized_targets(key: Key, likelihood: Gaussian, data: Data) -> Array:
    """Return noisy targets y + ε with ε ~ N(0, σ²/w), which are drawn once for each member.

    With anchors from the prior and targets without noise, members of a linear-Gaussian model have the covariance
    P − P A P, where P is the covariance of the posterior and A the precision of the likelihood. Noisy targets add
    P A P, so that the covariance is that of the posterior (see `exact.linear_gaussian`).

    Parameters
    ----------
    key : Key
        Random key of the member's data.
    likelihood : Gaussian
        Holds the noise variance σ².
    data : Data
        Targets y and weights w.

    Returns
    -------
    array
        Noisy targets, in the shape of y.
    """
    noise = jax.random.normal(key, data.targets.shape, data.targets.dtype)
    has_weight = data.weights > 0  # rows of weight zero are ignored, so they need no noise
    variance = jnp.where(has_weight, likelihood.noise_variance / jnp.where(has_weight, data.weights, 1), 0)
    return data.targets + jnp.sqrt(variance) * noise


def draw_direction(anchor_key: Key, model: BayesianModel, like: Tree) -> Tree:
    """Return the direction θ̃ of a member's tangent correction δ(x) = ∇f(x; θ₀)·θ̃.

    θ̃ is a draw of N(0, s²) in all layers but the last. There it is zero, because f(x; θ₀) itself already contributes
    the last layer's part of the tangent kernel. δ is added to the member's outputs and is not trained. Wide members
    with noisy targets are then draws from the posterior under the tangent kernel (He, Lakshminarayanan & Teh 2020),
    which is much wider than the posterior of the network.

    Parameters
    ----------
    anchor_key : Key
        Random key of the member's anchor.
    model : BayesianModel
        The network, and the prior scales s.
    like : pytree
        Arrays in the shapes of the member's parameters.

    Returns
    -------
    pytree
        θ̃, in the shapes of `like`.
    """
    normals = trees.normal_like(jax.random.fold_in(anchor_key, 1), like)
    mask = last_layer_mask(model.network, like)
    return jax.tree.map(lambda z, s, is_last: 0 * z if is_last else s * z, normals, model.prior.scale, mask)


@jit
def member_keys(key: Key, members: Array) -> MemberKeys:
    """Return the random keys of the members with the numbers `members`, for the random key `key` of the fit."""
    fold = jax.vmap(jax.random.fold_in, in_axes=(None, 0))
    return MemberKeys(fold(key, 2 * members), fold(key, 2 * members + 1))


def draw_directions(key: Key, model: BayesianModel, members: np.ndarray, inputs: Array) -> Params:
    """Return the direction θ̃ of each member's tangent correction, as `draw_direction` does for one.

    Parameters
    ----------
    key : Key
        Random key of the fit.
    model : BayesianModel
        The model, without the correction.
    members : (members,) array of int
        Numbers of the members.
    inputs : (rows, ...) array
        Any inputs, of which only the shape of a row is used.

    Returns
    -------
    pytree
        Directions; every leaf has a leading member axis.
    """
    return jax.tree.map(np.asarray, _draw_directions(member_keys(key, members).anchor, model, inputs[:1]))


@jit
def _draw_directions(anchor_keys: Key, model: BayesianModel, inputs: Array) -> Params:
    """The compiled part of `draw_directions`."""
    like = jax.eval_shape(model.network.init, anchor_keys[0], inputs)
    return jax.vmap(lambda key: draw_direction(key, model, like))(anchor_keys)


def _kappa(anchoring: Anchoring, model: BayesianModel, like: object) -> Params:
    """Return κ for each leaf of `like`, the parameters of one member. It is 1 if `anchoring` is a name."""
    if isinstance(anchoring, str):
        return jax.tree.map(lambda _: 1.0, like)
    values = jnp.atleast_1d(jnp.asarray(anchoring))
    layers = layer_indices(model.network, like)
    return jax.tree.map(lambda i: values[i] if len(values) > 1 else values[0], layers)
