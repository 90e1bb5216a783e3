"""Anchored ensembles (Pearce et al. 2018): members trained about their own draws from the prior.

    loss(θ) = (1/N) Σᵢ (yᵢ [+ εᵢ] − f(xᵢ; θ))² + (σ²/N) Σⱼ (θⱼ − θ₀ⱼ)² / sⱼ²,    θ₀ ~ N(μ, κ s²), εᵢ ~ N(0, σ²)

(eq. 2). θ₀ is drawn once a member and kept, as is the noise ε where targets are randomized. κ = 1 is the paper's
anchoring, κ = 0 regularisation to the prior's mean. Without data members end at their anchors: draws from the prior,
for κ = 1.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from anchored import checks
from anchored.inference.anchoring import AnchoredProblems, Anchoring, check_anchoring
from anchored.inference.posterior import FitRecord, MemberPosterior, key_numbers
from anchored.inference.solvers.first_order import FirstOrder
from anchored.inference.solvers.gauss_newton import GaussNewton
from anchored.inference.training import (
    Trained,
    TrainingConfig,
    as_rows,
    closed_form,
    directions,
    joined,
    same_model,
    train,
)
from anchored.methods.ensemble import Ensemble, train_members, training_of, warn_if_short
from anchored.model.bayesian_model import BayesianModel
from anchored.model.likelihoods import Gaussian
from anchored.model.networks import CorrectedNetwork
from anchored.model.priors import Prior
from anchored.types import Data, Key, OnProgress, Params


@dataclass(frozen=True)
class AnchoredEnsemble(Ensemble):
    """M networks, each the minimum of eq. 2 about its own anchor; their spread is the posterior."""

    n_estimators: int = 10
    anchoring: Anchoring = "prior"  # "prior", "randomized", or κ: one, or one a layer
    trainable: str = "all"  # "all" or "last_layer"
    solver: FirstOrder | GaussNewton = FirstOrder()
    n_jobs: int | None = None
    tangent_correction: bool = False  # add δ(x) to each member, for the posterior under the tangent kernel
    solvers: ClassVar = (FirstOrder, GaussNewton)

    def __post_init__(self) -> None:
        if isinstance(self.anchoring, list | np.ndarray):  # a method is a hashable value
            object.__setattr__(self, "anchoring", tuple(self.anchoring))

    @property
    def pulls_to_one_point(self) -> bool:
        """Whether all anchors are the prior's mean."""
        return not isinstance(self.anchoring, str) and bool(np.all(np.asarray(self.anchoring) == 0))

    def check(self, model: BayesianModel, held_out: np.ndarray | None = None) -> None:
        """Raise where a setting cannot be used, or not with this model."""
        super().check(model, held_out)
        check_anchoring(self.anchoring, model)
        checks.one_of("trainable", self.trainable, ("all", "last_layer"))
        if self.tangent_correction and not isinstance(model.likelihood, Gaussian):
            raise ValueError("tangent_correction=True needs the Gaussian likelihood")

    def fit(
        self,
        key: Key,
        model: BayesianModel,
        data: Data,
        on_progress: OnProgress | None = None,
        *,
        held_out: np.ndarray | None = None,
        grow: MemberPosterior | None = None,
        one_pass: bool = False,
    ) -> MemberPosterior:
        """Train members 0 to M−1, or only those that `grow` does not have yet.

        Early stopping watches the rows that `held_out` marks. With `one_pass` the members are to go on by `resume`:
        their optimisers are kept, and there is no warning that training was cut short.
        """
        self.check(model, held_out)
        config = self.training_config()
        rows = as_rows(data, held_out=None if closed_form(config, model) else held_out)
        first = 0 if grow is None else grow.n_members
        trained = train_members(key, config, model, rows, self.n_estimators, self.n_jobs, first, on_progress)
        if grow is not None:
            trained = joined([part._replace(optimizer_state=None) for part in (_trained(grow), trained)])
        if not one_pass:
            warn_if_short(self.solver, trained)
        return self._posterior(key, model, trained, data, keep_optimizer=one_pass)

    def resume(self, key: Key, posterior: MemberPosterior, data: Data, stands_for: float = 1.0) -> MemberPosterior:
        """Go on from where the members are: anchors and optimisers kept, the data new.

        The rows stand for a data set `stands_for` times their size, which is what the anchor term is divided by.
        """
        if self.tangent_correction:
            raise ValueError("tangent_correction=True: members with a correction cannot go on with new rows; fit anew")
        self.check(posterior.model)
        config = self.training_config()
        lanes = same_model(posterior.model, np.arange(posterior.n_members))
        rows = as_rows(data)._replace(stands_for=stands_for)
        trained = train(key, config, lanes, rows, _trained(posterior))
        return self._posterior(key, posterior.model, trained, data, keep_optimizer=True)

    def training_config(self) -> TrainingConfig:
        """How members are trained."""
        return TrainingConfig(AnchoredProblems(self.anchoring, self.tangent_correction), self.trainable, self.solver)

    def _posterior(
        self, key: Key, model: BayesianModel, trained: Trained, data: Data, keep_optimizer: bool
    ) -> MemberPosterior:
        training = training_of(trained)
        if keep_optimizer:
            training = replace(training, optimizer_state=trained.optimizer_state)
        record = FitRecord(self, key_numbers(key), model, training)
        if not self.tangent_correction:
            return MemberPosterior(model, trained.params, record)
        direction = directions(key, model, np.arange(len(trained.n_epochs)), data.inputs)
        members = {"trained": trained.params, "anchor": trained.anchors, "direction": direction}
        return MemberPosterior(self.model_of_members(model), members, record)

    def model_of_members(self, model: BayesianModel) -> BayesianModel:
        """The model with the tangent correction, where there is one."""
        if not self.tangent_correction:
            return model
        parts = ("trained", "anchor", "direction")
        prior = Prior(*(dict.fromkeys(parts, tree) for tree in (model.prior.mean, model.prior.scale)))
        return replace(model, network=CorrectedNetwork(model.network), prior=prior)


def trained_parameters(posterior: MemberPosterior) -> Params:
    """The members as they were trained, without a tangent correction."""
    return posterior.members["trained"] if isinstance(posterior.model.network, CorrectedNetwork) else posterior.members


def _trained(posterior: MemberPosterior) -> Trained:
    """Where the training of the members stands."""
    if posterior.record is None or posterior.record.training is None:
        raise ValueError("posterior: its members were not trained by an ensemble method, and cannot go on")
    training = posterior.record.training
    return Trained(
        trained_parameters(posterior),
        training.anchors,
        training.loss_curve,
        training.n_epochs,
        training.optimizer_state,
    )
