"""Randomized prior functions (Osband, Aslanides & Cassirer 2018): a trained network plus a fixed draw from the prior.

    loss(θ) = (1/N) Σᵢ (yᵢ + εᵢ − f(xᵢ; θ) − β f(xᵢ; θ̃))² + (σ²/N) Σⱼ (θⱼ − μⱼ)² / sⱼ²,    θ̃ ~ N(μ, s²), εᵢ ~ N(0, σ²)

θ̃ and the noise ε, for Gaussian likelihoods only, are drawn once a member and kept. For linear networks and β = 1 this
is anchoring at θ̃ with noisy targets, θ + θ̃ in place of θ, and members are draws from the posterior (Lemma 3).
Otherwise the two part ways: an anchored member starts from the prior's function and can unlearn it, here it stays.
Without data the trained part goes to the prior's mean, where networks of mean zero are zero, and β f(x; θ̃) is left:
the prior, for β = 1.
"""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from anchored import checks
from anchored.inference.anchoring import randomized_targets
from anchored.inference.posterior import Posterior
from anchored.inference.solvers.first_order import FirstOrder
from anchored.inference.training import TrainingConfig
from anchored.methods.ensemble import Ensemble, fit_ensemble
from anchored.model.bayesian_model import BayesianModel, Problem
from anchored.model.likelihoods import Gaussian
from anchored.model.networks import Network
from anchored.model.priors import Prior
from anchored.types import Array, Data, Key, OnProgress, Params


@dataclass(frozen=True)
class PriorFunctionNetwork:
    """f(x; θ) + β f(x; θ̃), of which θ alone is trained. β is a parameter, so that another one compiles nothing."""

    network: Network

    @property
    def last_layer(self) -> str | None:
        return self.network.last_layer

    def init(self, key: Key, inputs: Array) -> Params:
        params = self.network.init(key, inputs)
        return {"trained": params, "fixed": params, "strength": np.ones((), jnp.result_type(float))}

    def apply(self, params: Params, inputs: Array) -> Array:
        fixed = self.network.apply(params["fixed"], inputs)
        return self.network.apply(params["trained"], inputs) + params["strength"] * fixed


@dataclass(frozen=True)
class PriorFunctionProblems:
    """The problem of a member with a prior function: what is fixed is its own anchor, and is not pulled."""

    def __call__(self, anchor_key: Key, noise_key: Key, model: BayesianModel, like: Params, data: Data) -> Problem:
        start = model.prior.sample(anchor_key, like)
        mean = jax.tree.map(lambda m, p: jnp.broadcast_to(m, p.shape), model.prior.mean["trained"], like["trained"])
        flat = jax.tree.map(lambda s: jnp.full_like(s, jnp.inf), model.prior.scale)
        pull = replace(model.prior, scale={**flat, "trained": model.prior.scale["trained"]})
        if isinstance(model.likelihood, Gaussian):
            data = data._replace(targets=randomized_targets(noise_key, model.likelihood, data))
        return Problem(start, {**start, "trained": mean}, replace(model, prior=pull), data)


@dataclass(frozen=True)
class RandomizedPrior(Ensemble):
    """M networks, each with a prior function of its own that it learns to correct; their spread is the posterior."""

    n_estimators: int = 10
    prior_strength: float = 1.0  # β
    solver: FirstOrder = FirstOrder()
    n_jobs: int | None = None

    def check(self, model: BayesianModel, held_out: np.ndarray | None = None) -> None:
        """Raise where a setting cannot be used, or not with this model."""
        super().check(model, held_out)
        if not checks.is_real(self.prior_strength):
            raise ValueError(f"prior_strength must be a number, got {self.prior_strength!r}")

    def fit(self, key: Key, model: BayesianModel, data: Data, on_progress: OnProgress | None = None) -> Posterior:
        """Train members 0 to M−1; the Posterior's model and members hold the fixed part too."""
        self.check(model)
        config = TrainingConfig(
            PriorFunctionProblems(), "trained", self.solver
        )  # no weight decay reaches what is fixed
        return fit_ensemble(self, key, config, self.model_of_members(model), data, on_progress, target=model)

    def model_of_members(self, model: BayesianModel) -> BayesianModel:
        """The model with the fixed part."""
        network = PriorFunctionNetwork(model.network)
        number = jnp.result_type(float).type
        mean = {"trained": model.prior.mean, "fixed": model.prior.mean, "strength": number(self.prior_strength)}
        scale = {"trained": model.prior.scale, "fixed": model.prior.scale, "strength": number(0)}  # β is known
        return BayesianModel(network, Prior(mean, scale), model.likelihood)
