"""Deep ensembles (Lakshminarayanan, Pritzel & Blundell 2017): each member learns a mean and a variance.

    loss(θ) = (1/N) [Σᵢ ½ ((yᵢ − f(xᵢ; θ))² exp(−g(xᵢ; θ)) + g(xᵢ; θ)) + ½ Σⱼ (θⱼ − μⱼ)² / sⱼ²]

with f and g, the log-variance, two outputs of one network. The pull to the prior's mean is needed: a network that
goes through its rows makes the likelihood as large as it likes by letting exp g go to zero. The prior of g centres at
0, a noise variance of 1, so targets should be standardised. Without data all members collapse to the prior's mean.
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
from anchored.model.networks import MLP, RBFNetwork
from anchored.model.priors import Prior
from anchored.types import Array, Data, Key, OnProgress, Params


@dataclass(frozen=True)
class DeepEnsemble(Ensemble):
    """M networks, each with a noise that it learns; their spread is what training from different starts leaves."""

    n_estimators: int = 10
    solver: FirstOrder = FirstOrder()
    n_jobs: int | None = None
    ignores: ClassVar = ("noise_variance",)  # of an estimator's arguments: it learns its own
    pulls_to_one_point: ClassVar = True

    def check(self, model: BayesianModel, held_out: np.ndarray | None = None) -> None:
        """Raise where a setting cannot be used, or not with this model."""
        super().check(model, held_out)
        self.model_of_members(model)

    def fit(self, key: Key, model: BayesianModel, data: Data, on_progress: OnProgress | None = None) -> Posterior:
        """Train members 0 to M−1 of the model with learned noise, which the Posterior holds."""
        config = TrainingConfig(
            AnchoredProblems(0.0), solver=self.solver
        )  # starts are draws, the pull is to the prior's mean
        return fit_ensemble(self, key, config, self.model_of_members(model), data, on_progress, target=model)

    @staticmethod
    def model_of_members(model: BayesianModel) -> BayesianModel:
        """The model with learned noise."""
        return with_learned_noise(model)


def with_learned_noise(model: BayesianModel) -> BayesianModel:
    """A network of ours with known noise gets a log-variance for each mean; any other likelihood stays as it is."""
    network = model.network
    if not isinstance(model.likelihood, Gaussian):
        return model
    if not isinstance(network, MLP | RBFNetwork):
        raise ValueError(
            f"model: DeepEnsemble cannot add outputs to a {type(network).__name__}. Give it a network with twice the "
            "outputs, means and then log-variances, and the likelihood HeteroscedasticGaussian()."
        )
    prior = Prior(*(_for_both(network, tree) for tree in (model.prior.mean, model.prior.scale)))
    return BayesianModel(replace(network, n_outputs=2 * network.n_outputs), prior, HeteroscedasticGaussian())


def _for_both(network: MLP | RBFNetwork, tree: Params) -> Params:
    """A prior's numbers with those of the last layer twice, where each output has its own."""

    def twice(leaf: Array) -> Array:
        broadcasts = np.ndim(leaf) == 0 or np.shape(leaf)[-1] == 1
        return leaf if broadcasts else np.concatenate([leaf, leaf], axis=-1)

    return {**tree, network.last_layer: jax.tree.map(twice, tree[network.last_layer])}
