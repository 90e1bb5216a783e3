"""Unregularized ensembles: members start at draws from the prior, and minimise the loss without a penalty.

    loss(θ) = (1/N) Σᵢ (yᵢ − f(xᵢ; θ))²,    initially θ ~ N(μ, s²)

for N rows and the prior N(μ, s²). Without a penalty, a member also fits the noise, and stays at its draw from the prior
only in directions of parameter space that the data do not determine (section 2 and figure 2A of the paper). Without
data, members stay at their initial parameters, which are draws from the prior.
"""

from dataclasses import dataclass
from typing import ClassVar

from anchored.inference.posterior import Posterior
from anchored.inference.solvers.first_order import FirstOrder
from anchored.inference.training import TrainingConfig
from anchored.methods.ensemble import Ensemble, UnregularizedSampler, fit_ensemble
from anchored.model.bayesian_model import BayesianModel
from anchored.types import Data, Key, OnProgress


@dataclass(frozen=True)
class UnregularizedEnsemble(Ensemble):
    """An ensemble of networks trained without regularisation, which differ only in their initial parameters.

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
    # Fields of a likelihood that this method does not use: a temperature would only multiply the loss
    ignores: ClassVar = ("temperature",)

    def fit(self, key: Key, model: BayesianModel, data: Data, on_progress: OnProgress | None = None) -> Posterior:
        """Train members of `model` on `data`, starting at draws from the prior, and return the posterior.

        `key`, `model`, `data` and `on_progress` are as in `Method.fit`.
        """
        return fit_ensemble(
            self, key, TrainingConfig(UnregularizedSampler(), solver=self.solver), model, data, on_progress
        )
