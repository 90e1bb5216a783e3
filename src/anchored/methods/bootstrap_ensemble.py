"""Bootstrap ensembles (Efron 1979; Breiman 1996): each member is the MAP estimate for its own resample of the rows.

    loss(θ) = (1/N) Σᵢ nᵢ (yᵢ − f(xᵢ; θ))² + (σ²/N) Σⱼ (θⱼ − μⱼ)² / sⱼ²,    n ~ Multinomial(N; 1/N, …, 1/N)

for N rows, noise variance σ², the prior N(μ, s²), and nᵢ the number of times that row i was drawn. The spread of the
members shows the sampling error of the MAP estimate, but not the uncertainty of the prior: in directions of parameter
space that the data do not determine, all members are equal to the prior mean. Without data, they are equal to it.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from anchored.inference.anchoring import AnchoredSampler
from anchored.inference.posterior import Posterior
from anchored.inference.solvers.first_order import FirstOrder
from anchored.inference.training import TrainingConfig
from anchored.methods.ensemble import Ensemble, fit_ensemble
from anchored.model.bayesian_model import BayesianModel, MemberKeys, Problem
from anchored.types import Array, Data, Key, OnProgress, Params


@dataclass(frozen=True)
class BootstrapSampler:
    """A `ProblemSampler` of bootstrap members, which are regularised towards the prior mean."""

    def __call__(self, normals: Params, keys: MemberKeys, model: BayesianModel, data: Data) -> Problem:
        """Return the problem of a member: initial parameters drawn from the prior, and resampled rows.

        The arguments are those of `ProblemSampler`.
        """
        sampler = AnchoredSampler(anchoring=0.0)  # κ = 0: every anchor is the prior mean
        problem = sampler(normals, keys, model, data)
        counts = draw_counts(keys.data, data.weights)[:, None]
        return problem._replace(data=data._replace(weights=counts * data.weights))


def draw_counts(key: Key, weights: Array) -> Array:
    """Draw as many rows as there are, with replacement, and return how often each one is drawn.

    Parameters
    ----------
    key : Key
        Random key.
    weights : (rows, 1) or (rows, outputs) array
        Weights of the rows. A row without a positive weight is padding, and is never drawn.

    Returns
    -------
    (rows,) array
        Number of times that each row is drawn.
    """
    has_weight = jnp.any(weights > 0, axis=1)
    n_rows = jnp.sum(has_weight)
    order = jnp.argsort(~has_weight)  # indices of the rows; rows with weight come first
    drawn = order[jax.random.randint(key, has_weight.shape, 0, n_rows)]
    # Shapes must be static, but n_rows is traced: draw as many rows as there are with padding, count the first n_rows
    return jnp.zeros_like(weights[:, 0]).at[drawn].add(jnp.arange(len(has_weight)) < n_rows)


@dataclass(frozen=True)
class BootstrapEnsemble(Ensemble):
    """An ensemble of networks, each trained on rows drawn with replacement.

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

    def fit(self, key: Key, model: BayesianModel, data: Data, on_progress: OnProgress | None = None) -> Posterior:
        """Train each member on its own resample of `data`, and return the posterior.

        `key`, `model`, `data` and `on_progress` are as in `Method.fit`.
        """
        return fit_ensemble(self, key, TrainingConfig(BootstrapSampler(), solver=self.solver), model, data, on_progress)
