"""Bootstrap ensembles (Efron 1979; Breiman 1996): each member is the MAP estimate of its own resample of the rows.

    loss(θ) = (1/N) Σᵢ nᵢ (yᵢ − f(xᵢ; θ))² + (σ²/N) Σⱼ (θⱼ − μⱼ)² / sⱼ²,    n ~ Multinomial(N; 1/N, …, 1/N)

The members' spread is that of the estimate under new data. It knows nothing of the prior's width: where there are
no rows, members agree. Without data all members collapse to the prior's mean.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from anchored.inference.anchoring import AnchoredProblems
from anchored.inference.posterior import Posterior
from anchored.inference.solvers.first_order import FirstOrder
from anchored.inference.training import TrainingConfig
from anchored.methods.ensemble import Ensemble, fit_ensemble
from anchored.model.bayesian_model import BayesianModel, Problem
from anchored.types import Array, Data, Key, OnProgress, Params


@dataclass(frozen=True)
class BootstrapProblems:
    """The problem of a bootstrap member: start at a draw, pulled to the prior's mean, rows of its own."""

    def __call__(self, anchor_key: Key, noise_key: Key, model: BayesianModel, like: Params, data: Data) -> Problem:
        problem = AnchoredProblems(0.0)(anchor_key, noise_key, model, like, data)
        counts = draw_counts(noise_key, data.weights)[:, None]
        return problem._replace(data=data._replace(weights=counts * data.weights))


def draw_counts(key: Key, weights: Array) -> Array:
    """How often each row is drawn: as many draws with replacement as there are rows of weight above zero."""
    is_row = jnp.any(weights > 0, axis=1)  # the others are padding
    n_rows = jnp.sum(is_row)
    rows_first = jnp.argsort(~is_row)
    drawn = rows_first[jax.random.randint(key, is_row.shape, 0, n_rows)]
    # The number of rows is traced, shapes are not: a draw for each place, of which the first n_rows count
    return jnp.zeros_like(weights[:, 0]).at[drawn].add(jnp.arange(len(is_row)) < n_rows)


@dataclass(frozen=True)
class BootstrapEnsemble(Ensemble):
    """M networks, each fitted to the rows drawn with replacement; their spread is the estimate's own."""

    n_estimators: int = 10
    solver: FirstOrder = FirstOrder()
    n_jobs: int | None = None

    def fit(self, key: Key, model: BayesianModel, data: Data, on_progress: OnProgress | None = None) -> Posterior:
        """Train members 0 to M−1, each on its own resample."""
        return fit_ensemble(
            self, key, TrainingConfig(BootstrapProblems(), solver=self.solver), model, data, on_progress
        )
