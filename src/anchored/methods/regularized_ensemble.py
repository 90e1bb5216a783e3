"""Regularized ensembles: members start at draws from the prior, and all are regularised towards its mean (figure 2B).

    loss(θ) = (1/N) Σᵢ (yᵢ − f(xᵢ; θ))² + (σ²/N) Σⱼ (θⱼ − μⱼ)² / sⱼ²          (eq. 1)

Every member is a MAP estimate of the same posterior. If the posterior has a single mode, all members are equal.
Otherwise they differ between modes, but do not show the width of a mode (section 2). Without data, all members are
equal to the prior mean.
"""

from dataclasses import dataclass
from typing import ClassVar

from anchored.inference.anchoring import AnchoredProblems
from anchored.inference.posterior import Posterior
from anchored.inference.solvers.first_order import FirstOrder
from anchored.inference.training import TrainingConfig
from anchored.methods.ensemble import Ensemble, fit_ensemble
from anchored.model.bayesian_model import BayesianModel
from anchored.types import Data, Key, OnProgress


@dataclass(frozen=True)
class RegularizedEnsemble(Ensemble):
    """An ensemble of MAP estimates, which differ in their initial parameters only."""

    n_estimators: int = 10
    solver: FirstOrder = FirstOrder()
    n_jobs: int | None = None
    has_shared_anchor: ClassVar = True

    def fit(self, key: Key, model: BayesianModel, data: Data, on_progress: OnProgress | None = None) -> Posterior:
        """Train members of `model` on `data`, with the prior mean (κ = 0) as the anchor of all, see `Method.fit`."""
        return fit_ensemble(
            self, key, TrainingConfig(AnchoredProblems(0.0), solver=self.solver), model, data, on_progress
        )
