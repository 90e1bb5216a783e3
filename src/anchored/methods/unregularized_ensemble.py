"""Unregularized ensembles: members start at draws from the prior, then follow the data alone (paper, figure 2A).

    loss(θ) = (1/N) Σᵢ (yᵢ − f(xᵢ; θ))²,    θ starts at a draw from N(μ, s²)

Nothing holds a member back, so it fits the noise as well, and remembers the prior only in directions that no row
sees (section 2). Without data members stay where they start: draws from the prior.
"""

from dataclasses import dataclass
from typing import ClassVar

from anchored.inference.posterior import Posterior
from anchored.inference.solvers.first_order import FirstOrder
from anchored.inference.training import TrainingConfig
from anchored.methods.ensemble import Ensemble, UnregularizedProblems, fit_ensemble
from anchored.model.bayesian_model import BayesianModel
from anchored.types import Data, Key, OnProgress


@dataclass(frozen=True)
class UnregularizedEnsemble(Ensemble):
    """M networks trained on the likelihood alone; their spread is where they started from."""

    n_estimators: int = 10
    solver: FirstOrder = FirstOrder()
    n_jobs: int | None = None
    ignores: ClassVar = ("temperature",)  # of an estimator's arguments: it scales the loss as a whole

    def fit(self, key: Key, model: BayesianModel, data: Data, on_progress: OnProgress | None = None) -> Posterior:
        """Train members 0 to M−1 from their draws; the prior has no other part in it."""
        return fit_ensemble(
            self, key, TrainingConfig(UnregularizedProblems(), solver=self.solver), model, data, on_progress
        )
