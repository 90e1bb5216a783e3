"""Randomized prior functions (Osband, Aslanides & Cassirer 2018): a trained network plus a fixed draw from the prior.

    loss(θ) = (1/N) Σᵢ (yᵢ + εᵢ − f(xᵢ; θ) − β f(xᵢ; θ̃))² + (σ²/N) Σⱼ (θⱼ − μⱼ)² / sⱼ²,    θ̃ ~ N(μ, s²), εᵢ ~ N(0, σ²)

Each member has its own θ̃ and, for Gaussian likelihoods, its own noise ε, both fixed during training. For linear
networks and β = 1 this is the same as anchoring at θ̃ with noisy targets, with θ + θ̃ in place of θ, and members are
draws from the posterior (Lemma 3). For other networks the two differ: an anchored member starts at the draw from the
prior and can move away from it, whereas here the draw remains part of the output. Without data, the trained part ends
at the prior mean, where a network is zero if that mean is zero, and β f(x; θ̃) remains, for β = 1 a draw from the prior.
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
    """f(x; θ) + β f(x; θ̃), of which only θ is trained. β is a parameter, so that a new value needs no compilation."""

    network: Network  # f

    @property
    def last_layer(self) -> str | None:
        """The last layer of the network f."""
        return self.network.last_layer

    def init(self, key: Key, inputs: Array) -> dict[str, Params]:
        """Return parameters of f for rows like those of `inputs` as θ and as θ̃, and β = 1."""
        params = self.network.init(key, inputs)
        return {"trained": params, "fixed": params, "strength": np.ones((), jnp.result_type(float))}

    def apply(self, params: dict[str, Params], inputs: Array) -> Array:
        """Return outputs (rows, outputs) with parameters `params` for `inputs` (rows, ...)."""
        fixed = self.network.apply(params["fixed"], inputs)
        return self.network.apply(params["trained"], inputs) + params["strength"] * fixed


@dataclass(frozen=True)
class PriorFunctionProblems:
    """Draws the problem of a member with a prior function, as a `ProblemSampler`."""

    def __call__(self, anchor_key: Key, noise_key: Key, model: BayesianModel, like: Params, data: Data) -> Problem:
        """Return the problem; the trained part is regularised towards the prior mean, the fixed part not at all.

        The arguments are those of `ProblemSampler`.
        """
        start = model.prior.sample(anchor_key, like)
        mean = jax.tree.map(lambda m, p: jnp.broadcast_to(m, p.shape), model.prior.mean["trained"], like["trained"])
        flat = jax.tree.map(lambda s: jnp.full_like(s, jnp.inf), model.prior.scale)
        prior = replace(model.prior, scale={**flat, "trained": model.prior.scale["trained"]})
        if isinstance(model.likelihood, Gaussian):
            data = data._replace(targets=randomized_targets(noise_key, model.likelihood, data))
        return Problem(start, {**start, "trained": mean}, replace(model, prior=prior), data)


@dataclass(frozen=True)
class RandomizedPrior(Ensemble):
    """An ensemble of networks that are each trained on top of their own fixed draw from the prior."""

    n_estimators: int = 10
    prior_strength: float = 1.0  # β
    solver: FirstOrder = FirstOrder()
    n_jobs: int | None = None

    def check(self, model: BayesianModel, held_out: np.ndarray | None = None) -> None:
        """Raise a ValueError if a setting is invalid or cannot be used with `model`, see `Ensemble.check`."""
        super().check(model, held_out)
        if not checks.is_real(self.prior_strength):
            raise ValueError(f"prior_strength must be a number, got {self.prior_strength!r}")

    def fit(self, key: Key, model: BayesianModel, data: Data, on_progress: OnProgress | None = None) -> Posterior:
        """Train members of `model` on `data` and return the posterior, whose members include the fixed part.

        See `Method.fit`.
        """
        self.check(model)
        # Only "trained" is trained, so that an optimiser with weight decay leaves the fixed part unchanged
        config = TrainingConfig(PriorFunctionProblems(), "trained", self.solver)
        return fit_ensemble(self, key, config, self.model_of_members(model), data, on_progress, target=model)

    def model_of_members(self, model: BayesianModel) -> BayesianModel:
        """Return the model of the members: `model` with the fixed part added."""
        network = PriorFunctionNetwork(model.network)
        number = jnp.result_type(float).type
        mean = {"trained": model.prior.mean, "fixed": model.prior.mean, "strength": number(self.prior_strength)}
        scale = {"trained": model.prior.scale, "fixed": model.prior.scale, "strength": number(0)}  # β is known
        return BayesianModel(network, Prior(mean, scale), model.likelihood)
