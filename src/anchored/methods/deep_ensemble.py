"""Deep ensembles (Lakshminarayanan, Pritzel & Blundell 2017): each member learns a mean and a variance.

    loss(θ) = (1/N) [Σᵢ ½ ((yᵢ − f(xᵢ; θ))² exp(−g(xᵢ; θ)) + g(xᵢ; θ)) + ½ Σⱼ (θⱼ − μⱼ)² / sⱼ²]

for N rows and the prior N(μ, s²), where the mean f and the log-variance g are two outputs of one network. The penalty
is needed: without it, a network that interpolates the data could make the likelihood arbitrarily large by letting exp g
go to zero. A prior mean of zero stands for a noise variance of exp 0 = 1, so targets should be standardised.
Without data, all members are equal to the prior mean.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import jax
import numpy as np

from anchored.inference.anchoring import AnchoredSampler
from anchored.inference.posterior import Posterior
from anchored.inference.solvers.first_order import FirstOrder
from anchored.inference.training import TrainingConfig
from anchored.methods.ensemble import Ensemble, fit_ensemble
from anchored.model.bayesian_model import BayesianModel
from anchored.model.likelihoods import Gaussian, HeteroscedasticGaussian
from anchored.model.networks import MLP, Layers, RBFNetwork
from anchored.model.priors import Prior
from anchored.types import Array, Data, Key, OnProgress


@dataclass(frozen=True)
class DeepEnsemble(Ensemble):
    """An ensemble of networks that also learn the noise variance, and differ only in their initial parameters.

    Attributes
    ----------
    n_estimators : int
        Number of members.
    solver : FirstOrder
        How the loss is minimised.
    n_jobs : int or None
        Number of joblib processes that train members; None for one.
    """

    n_estimators: int = 10
    solver: FirstOrder = FirstOrder()
    n_jobs: int | None = None
    # Fields of a likelihood that this method does not use: the noise variance is learned
    ignores: ClassVar = ("noise_variance",)
    has_shared_anchor: ClassVar = True  # all members are regularised towards the prior mean

    def check(self, model: BayesianModel, held_out: np.ndarray | None = None) -> None:
        """Raise a ValueError if a setting is invalid or cannot be used with `model`.

        `model` and `held_out` are as in `Ensemble.check`.
        """
        super().check(model, held_out)
        self.model_of_members(model)

    def fit(self, key: Key, model: BayesianModel, data: Data, on_progress: OnProgress | None = None) -> Posterior:
        """Train members of `model` on `data`, each with its own learned noise variance, and return the posterior.

        `key`, `model`, `data` and `on_progress` are as in `Method.fit`.
        """
        sampler = AnchoredSampler(anchoring=0.0)  # κ = 0: every anchor is the prior mean
        config = TrainingConfig(sampler, solver=self.solver)
        return fit_ensemble(self, key, config, self.model_of_members(model), data, on_progress, target=model)

    @staticmethod
    def model_of_members(model: BayesianModel) -> BayesianModel:
        """Return the model of the members: `model` with a learned noise variance (see `with_learned_noise`)."""
        return with_learned_noise(model)


def with_learned_noise(model: BayesianModel) -> BayesianModel:
    """Return `model` with a log-variance output for each mean if its likelihood is Gaussian, otherwise unchanged.

    Raises
    ------
    ValueError
        If the likelihood is Gaussian and the network is neither an MLP nor an RBFNetwork, the only networks to which
        outputs can be added.
    """
    network = model.network
    if not isinstance(model.likelihood, Gaussian):
        return model
    if not isinstance(network, MLP | RBFNetwork):
        raise ValueError(
            f"model: DeepEnsemble cannot add outputs to a {type(network).__name__}. Use a network with twice as many "
            "outputs, first means and then log-variances, and the likelihood HeteroscedasticGaussian()."
        )
    prior = Prior(*(_repeat_last_layer(network, tree) for tree in (model.prior.mean, model.prior.scale)))
    return BayesianModel(replace(network, n_outputs=2 * network.n_outputs), prior, HeteroscedasticGaussian())


def _repeat_last_layer(network: MLP | RBFNetwork, tree: Layers) -> Layers:
    """Return the prior means or scales of `tree` for the network with log-variance outputs.

    The leaves of the last layer are repeated for the log-variances, unless they broadcast over outputs.
    """

    def repeated(leaf: Array) -> Array:
        broadcasts = np.ndim(leaf) == 0 or np.shape(leaf)[-1] == 1
        return leaf if broadcasts else np.concatenate([leaf, leaf], axis=-1)

    return {**tree, network.last_layer: jax.tree.map(repeated, tree[network.last_layer])}
