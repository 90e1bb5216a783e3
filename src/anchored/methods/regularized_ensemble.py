"""Regularized ensembles: members start at draws from the prior, and all are pulled to its mean (paper, figure 2B).

    loss(θ) = (1/N) Σᵢ (yᵢ − f(xᵢ; θ))² + (σ²/N) Σⱼ (θⱼ − μⱼ)² / sⱼ²          (eq. 1)

Every member is a MAP estimate of the same posterior. Where that has one mode the members are one; otherwise their
spread tells modes apart, not how wide they are (section 2). Without data all members collapse to the prior's mean.
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
    """M networks, each a MAP estimate; their spread is what training from different starts leaves of it."""

    n_estimators: int = 10
    solver: FirstOrder = FirstOrder()
    n_jobs: int | None = None
    pulls_to_one_point: ClassVar = True

    def fit(self, key: Key, model: BayesianModel, data: Data, on_progress: OnProgress | None = None) -> Posterior:
        """Train members 0 to M−1: anchors of variance κ = 0 are the prior's mean, starts are draws all the same."""
        return fit_ensemble(
            self, key, TrainingConfig(AnchoredProblems(0.0), solver=self.solver), model, data, on_progress
        )
