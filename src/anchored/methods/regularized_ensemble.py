"""Regularized ensembles: members start at draws from the prior, and all are regularised towards its mean.

    loss(θ) = (1/N) Σᵢ (yᵢ − f(xᵢ; θ))² + (σ²/N) Σⱼ (θⱼ − μⱼ)² / sⱼ²          (eq. 1)

for N rows, noise variance σ² and the prior N(μ, s²). Every member is a MAP estimate of the same posterior. If the
posterior has a single mode, all members are equal. Otherwise they may be at different modes, but their spread does not
show the width of a mode (section 2 and figure 2B of the paper). Without data, all members are equal to the prior mean.
"""

from dataclasses import dataclass
from typing import ClassVar

from anchored.inference.anchoring import AnchoredSampler
from anchored.inference.posterior import Posterior
from anchored.inference.solvers.first_order import FirstOrder
from anchored.inference.training import TrainingConfig
from anchored.methods.ensemble import Ensemble, fit_ensemble
from anchored.model.bayesian_model import BayesianModel
from anchored.types import Data, Key, OnProgress


@dataclass(frozen=True)
class RegularizedEnsemble(Ensemble):
    """An ensemble of MAP estimates, which differ only in their initial parameters.

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
    has_shared_anchor: ClassVar = True  # all members are regularised towards the prior mean

    def fit(self, key: Key, model: BayesianModel, data: Data, on_progress: OnProgress | None = None) -> Posterior:
        """Train members of `model` on `data`, and return the posterior.

        `key`, `model`, `data` and `on_progress` are as in `Method.fit`.
        """
        sampler = AnchoredSampler(anchoring=0.0)  # κ = 0: every anchor is the prior mean
        return fit_ensemble(self, key, TrainingConfig(sampler, solver=self.solver), model, data, on_progress)
