"""Randomized prior functions (Osband, Aslanides & Cassirer 2018): a trained network plus a fixed draw from the prior.

    loss(θ) = (1/N) Σᵢ (yᵢ + εᵢ − f(xᵢ; θ) − β f(xᵢ; θ̃))² + (σ²/N) Σⱼ (θⱼ − μⱼ)² / sⱼ²,    θ̃ ~ N(μ, s²), εᵢ ~ N(0, σ²)

for N rows, noise variance σ², the prior N(μ, s²) and prior strength β. Each member has its own θ̃ and, if the likelihood
is Gaussian, its own noise ε, both fixed during training.

If the network is linear, μ = 0 and β = 1, then θ + θ̃ minimises the anchored loss for the anchor θ̃ and noisy targets,
and members are draws from the posterior (Lemma 3 of that paper). For other networks, the two kinds of ensembles differ:
an anchored member starts at the draw from the prior and can move away from it, whereas here the draw stays part of the
output. Without data, θ converges to μ. If μ is zero, f(x; θ) is then zero, and the output of the member is β f(x; θ̃),
which is a draw from the prior if β = 1.
"""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from anchored import checks
from anchored.errors import ArgumentError
from anchored.inference.anchoring import randomized_targets
from anchored.inference.posterior import Posterior
from anchored.inference.solvers.first_order import FirstOrder
from anchored.inference.training import TrainingConfig
from anchored.methods.ensemble import Ensemble, fit_ensemble
from anchored.model.bayesian_model import BayesianModel, MemberKeys, Problem
from anchored.model.likelihoods import Gaussian
from anchored.model.networks import Network
from anchored.model.priors import Prior
from anchored.types import Array, Data, Key, OnProgress, Params

MAX_STRENGTH = 1e15  # largest |β|; outputs multiplied by more may overflow in float32


@dataclass(frozen=True)
class PriorFunctionNetwork:
    """The network f(x; θ) + β f(x; θ̃), of which only θ is trained.

    β is one of its parameters, so that a new value needs no compilation.
    """

    network: Network  # f

    @property
    def last_layer(self) -> str | None:
        """The name of the last layer in the parameters of f."""
        return self.network.last_layer

    def init(self, key: Key, inputs: Array) -> dict[str, Params]:
        """Return parameters of the right structure and shapes: θ ("trained"), θ̃ ("fixed") and β ("strength").

        Only their shapes matter. `PriorFunctionSampler` draws the values of θ and θ̃, and the prior mean holds β.
        """
        params = self.network.init(key, inputs)
        return {"trained": params, "fixed": params, "strength": np.ones((), jnp.result_type(float))}

    def apply(self, params: dict[str, Params], inputs: Array) -> Array:
        """Return the outputs, (rows, outputs), with parameters `params` for `inputs`, (rows, ...)."""
        prior_function = self.network.apply(params["fixed"], inputs)
        return self.network.apply(params["trained"], inputs) + params["strength"] * prior_function


@dataclass(frozen=True)
class PriorFunctionSampler:
    """A `ProblemSampler` of members with a prior function."""

    def __call__(self, normals: Params, keys: MemberKeys, model: BayesianModel, data: Data) -> Problem:
        """Return the problem of a member: θ is regularised towards the prior mean, and θ̃ is not regularised.

        The arguments are those of `ProblemSampler`.
        """
        start = model.prior.unwhiten(normals)
        mean = jax.tree.map(lambda m, p: jnp.broadcast_to(m, p.shape), model.prior.mean["trained"], normals["trained"])
        infinite_scale = jax.tree.map(lambda s: jnp.full_like(s, jnp.inf), model.prior.scale)  # no penalty
        prior = replace(model.prior, scale={**infinite_scale, "trained": model.prior.scale["trained"]})
        if isinstance(model.likelihood, Gaussian):
            data = data._replace(targets=randomized_targets(keys.data, model.likelihood, data))
        anchor = {**start, "trained": mean}
        return Problem(start, anchor, replace(model, prior=prior), data)


@dataclass(frozen=True)
class RandomizedPrior(Ensemble):
    """An ensemble of networks, each trained together with its own fixed draw from the prior.

    Attributes
    ----------
    n_estimators : int
        Number of members.
    prior_strength : float
        β, the factor of the fixed draw.
    solver : FirstOrder
        How the loss is minimised.
    n_jobs : int or None
        Number of joblib processes that train members; None for one.
    """

    n_estimators: int = 10
    prior_strength: float = 1.0
    solver: FirstOrder = FirstOrder()
    n_jobs: int | None = None

    def check(self, model: BayesianModel, held_out: np.ndarray | None = None) -> None:
        """Raise a ValueError if a setting is invalid or cannot be used with `model`.

        `model` and `held_out` are as in `Ensemble.check`.
        """
        super().check(model, held_out)
        if not checks.is_real(self.prior_strength) or abs(self.prior_strength) > MAX_STRENGTH:
            reason = f"must be a number of at most {MAX_STRENGTH:g} in magnitude, got {self.prior_strength!r}"
            raise ArgumentError("prior_strength", reason)

    def fit(self, key: Key, model: BayesianModel, data: Data, on_progress: OnProgress | None = None) -> Posterior:
        """Train members of `model` on `data`, and return the posterior. The parameters of its members are θ, θ̃ and β.

        `key`, `model`, `data` and `on_progress` are as in `Method.fit`.
        """
        self.check(model)  # before `model_of_members` uses prior_strength
        # With trainable="all", an optimiser with weight decay would change θ̃
        config = TrainingConfig(PriorFunctionSampler(), trainable="trained", solver=self.solver)
        return fit_ensemble(self, key, config, self.model_of_members(model), data, on_progress, target=model)

    def model_of_members(self, model: BayesianModel) -> BayesianModel:
        """Return the model of the members: `model`, with β f(x; θ̃) added to the network."""
        network = PriorFunctionNetwork(model.network)
        float_type = jnp.result_type(float).type
        mean = {"trained": model.prior.mean, "fixed": model.prior.mean, "strength": float_type(self.prior_strength)}
        scale = {"trained": model.prior.scale, "fixed": model.prior.scale, "strength": float_type(0)}  # β is not drawn
        return BayesianModel(network, Prior(mean, scale), model.likelihood)
