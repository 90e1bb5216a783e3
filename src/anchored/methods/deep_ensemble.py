"""Deep ensembles (Lakshminarayanan, Pritzel & Blundell 2017): each member learns a mean and a variance.

    loss(θ) = (1/N) [Σᵢ ½ ((yᵢ − f(xᵢ; θ))² exp(−g(xᵢ; θ)) + g(xᵢ; θ)) + ½ Σⱼ (θⱼ − μⱼ)² / sⱼ²]

where f and the log-variance g are two outputs of one network. The penalty is needed: a network that interpolates its
rows could make the likelihood arbitrarily large by letting exp g go to zero. The prior mean of g is 0, a noise variance
of 1, so targets should be standardised. Without data, all members are equal to the prior mean.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import jax
import numpy as np

from anchored.inference.anchoring import AnchoredProblems
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
    """An ensemble of networks that each learn the noise variance; they differ in their initial parameters only."""

    n_estimators: int = 10
    solver: FirstOrder = FirstOrder()
    n_jobs: int | None = None
    ignores: ClassVar = ("noise_variance",)  # arguments of estimators without effect: the noise is learnt
    has_shared_anchor: ClassVar = True

    def check(self, model: BayesianModel, held_out: np.ndarray | None = None) -> None:
        """Raise a ValueError if a setting is invalid or cannot be used with `model`, see `Ensemble.check`."""
        super().check(model, held_out)
        self.model_of_members(model)

    def fit(self, key: Key, model: BayesianModel, data: Data, on_progress: OnProgress | None = None) -> Posterior:
        """Train members of `model` with learnt noise on `data` and return the posterior, see `Method.fit`."""
        config = TrainingConfig(AnchoredProblems(0.0), solver=self.solver)  # regularised towards the prior mean
        return fit_ensemble(self, key, config, self.model_of_members(model), data, on_progress, target=model)

    @staticmethod
    def model_of_members(model: BayesianModel) -> BayesianModel:
        """Return the model of the members: `model` with learnt noise."""
        return with_learned_noise(model)


def with_learned_noise(model: BayesianModel) -> BayesianModel:
    """Return `model` with a log-variance output for each mean if its likelihood is Gaussian, otherwise unchanged.

    Raises
    ------
    ValueError
        If the network is not an MLP or RBFNetwork, to which outputs can be added.
    """
    network = model.network
    if not isinstance(model.likelihood, Gaussian):
        return model
    if not isinstance(network, MLP | RBFNetwork):
        raise ValueError(
            f"model: DeepEnsemble cannot add outputs to a {type(network).__name__}. Use a network with twice as many "
            "outputs, first means and then log-variances, and the likelihood HeteroscedasticGaussian()."
        )
    prior = Prior(*(_for_both(network, tree) for tree in (model.prior.mean, model.prior.scale)))
    return BayesianModel(replace(network, n_outputs=2 * network.n_outputs), prior, HeteroscedasticGaussian())


def _for_both(network: MLP | RBFNetwork, tree: Layers) -> Layers:
    """The prior means or scales, with those of the last layer repeated if they differ between outputs."""

    def twice(leaf: Array) -> Array:
        broadcasts = np.ndim(leaf) == 0 or np.shape(leaf)[-1] == 1
        return leaf if broadcasts else np.concatenate([leaf, leaf], axis=-1)

    return {**tree, network.last_layer: jax.tree.map(twice, tree[network.last_layer])}
