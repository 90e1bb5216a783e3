"""Anchored ensembles (Pearce et al. 2018): each member is regularised towards its own draw from the prior.

    loss(θ) = (1/N) Σᵢ (yᵢ [+ εᵢ] − f(xᵢ; θ))² + (σ²/N) Σⱼ (θⱼ − θ₀ⱼ)² / sⱼ²,    θ₀ ~ N(μ, κ s²), εᵢ ~ N(0, σ²)

(eq. 2) for N rows, noise variance σ² and the prior N(μ, s²). Each member has its own anchor θ₀ and, with
anchoring="randomized", its own noise ε, both fixed during training. The paper has κ = 1. With κ = 0, all members are
regularised towards the prior mean. Without data, members are equal to their anchors, which are draws from the prior for
κ = 1.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from anchored import checks
from anchored.inference.anchoring import AnchoredSampler, Anchoring, check_anchoring, draw_directions
from anchored.inference.lanes import Trained, concatenate, lanes_of_members, pad_rows
from anchored.inference.posterior import FitRecord, MemberPosterior, key_data
from anchored.inference.solvers.first_order import FirstOrder
from anchored.inference.solvers.gauss_newton import GaussNewton
from anchored.inference.training import TrainingConfig, has_closed_form, train
from anchored.methods.ensemble import Ensemble, train_members, training_record, warn_if_short
from anchored.model.bayesian_model import BayesianModel
from anchored.model.likelihoods import Gaussian
from anchored.model.networks import CorrectedNetwork
from anchored.model.priors import Prior
from anchored.types import Data, Key, OnProgress, Params


@dataclass(frozen=True)
class AnchoredEnsemble(Ensemble):
    """An ensemble of networks, each at the minimum of eq. 2 for its own anchor.

    Attributes
    ----------
    n_estimators : int
        Number of members.
    anchoring : "prior", "randomized", float or sequence of float
        "prior" draws anchors from the prior (κ = 1), and "randomized" also adds noise to the targets. A number is κ,
        and a sequence has one κ for each layer.
    trainable : {"all", "last_layer"}
        Which layers are trained; the others stay at the anchor.
    solver : FirstOrder or GaussNewton
        How eq. 2 is minimised. It is not used if trainable="last_layer" and the likelihood is Gaussian, since the
        minimum then has a closed form.
    n_jobs : int or None
        Number of joblib processes that train members; None for one.
    tangent_correction : bool
        Whether a fixed function δ(x) is added to each member, so that the ensemble approximates the posterior under the
        tangent kernel. `inference.anchoring.draw_direction` defines δ.
    """

    n_estimators: int = 10
    anchoring: Anchoring = "prior"
    trainable: str = "all"
    solver: FirstOrder | GaussNewton = FirstOrder()
    n_jobs: int | None = None
    tangent_correction: bool = False
    solvers: ClassVar = (FirstOrder, GaussNewton)

    def __post_init__(self) -> None:
        if isinstance(self.anchoring, list | np.ndarray):  # methods must be hashable
            object.__setattr__(self, "anchoring", tuple(self.anchoring))

    @property
    def has_shared_anchor(self) -> bool:
        """Whether all members have the same anchor, the prior mean."""
        return not isinstance(self.anchoring, str) and bool(np.all(np.asarray(self.anchoring) == 0))

    def check(self, model: BayesianModel, held_out: np.ndarray | None = None) -> None:
        """Raise a ValueError if a setting is invalid or cannot be used with `model`.

        `model` and `held_out` are as in `Ensemble.check`.
        """
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
        existing: MemberPosterior | None = None,
        will_resume: bool = False,
    ) -> MemberPosterior:
        """Train the members.

        Parameters
        ----------
        key : Key
            Random key of the ensemble.
        model : BayesianModel
            Network, prior and likelihood.
        data : Data
            Training rows.
        on_progress : callable, optional
            Called with the fraction of the work done since the last call, and the mean loss.
        held_out : (rows,) array of bool, optional
            True for rows held out for early stopping.
        existing : MemberPosterior, optional
            The first members, already fitted with the same key, settings and data. Only the others are trained.
        will_resume : bool
            Whether `resume` will continue the training. If so, optimiser states are kept, and there is no warning that
            training was too short.

        Returns
        -------
        MemberPosterior
            All members, with a record of their training.
        """
        self.check(model, held_out)
        config = self.training_config()
        rows = pad_rows(data, held_out=None if has_closed_form(config, model) else held_out)
        first = 0 if existing is None else existing.n_members
        trained = train_members(key, config, model, rows, self.n_estimators, self.n_jobs, first, on_progress)
        if existing is not None:
            trained = concatenate([part._replace(optimizer_state=None) for part in (_trained(existing), trained)])
        if not will_resume:
            warn_if_short(self.solver, trained)
        return self._posterior(key, model, trained, data, keep_optimizer=will_resume)

    def resume(self, key: Key, posterior: MemberPosterior, data: Data, weight_scale: float = 1.0) -> MemberPosterior:
        """Continue the training of members with new data.

        Parameters
        ----------
        key : Key
            Random key for the order of batches.
        posterior : MemberPosterior
            The members, from `fit(..., will_resume=True)` or `resume`; their anchors and optimiser states are kept.
        data : Data
            New rows.
        weight_scale : float
            Factor of the rows' weights: the size of the whole data set relative to these rows.

        Returns
        -------
        MemberPosterior
            The members after further training.
        """
        if self.tangent_correction:
            raise ValueError("tangent_correction=True: such members cannot be trained further; call fit with all rows")
        self.check(posterior.model)
        config = self.training_config()
        lanes = lanes_of_members(posterior.model, np.arange(posterior.n_members))
        rows = pad_rows(data)._replace(weight_scale=weight_scale)
        trained = train(key, config, lanes, rows, _trained(posterior))
        return self._posterior(key, posterior.model, trained, data, keep_optimizer=True)

    def training_config(self) -> TrainingConfig:
        """Return the configuration of training that these settings describe."""
        return TrainingConfig(AnchoredSampler(self.anchoring, self.tangent_correction), self.trainable, self.solver)

    def _posterior(
        self, key: Key, model: BayesianModel, trained: Trained, data: Data, keep_optimizer: bool
    ) -> MemberPosterior:
        """Return the posterior of the members `trained`; `keep_optimizer` says whether to record optimiser states."""
        training = training_record(trained)
        if keep_optimizer:
            training = replace(training, optimizer_state=trained.optimizer_state)
        record = FitRecord(self, key_data(key), model, training)
        if not self.tangent_correction:
            return MemberPosterior(model, trained.params, record)
        direction = draw_directions(key, model, np.arange(len(trained.n_epochs)), data.inputs)
        members = {"trained": trained.params, "anchor": trained.anchors, "direction": direction}
        return MemberPosterior(self.model_of_members(model), members, record)

    def model_of_members(self, model: BayesianModel) -> BayesianModel:
        """Return the model of the members: `model`, with the tangent correction if there is one."""
        if not self.tangent_correction:
            return model
        parts = ("trained", "anchor", "direction")
        prior = Prior(*(dict.fromkeys(parts, tree) for tree in (model.prior.mean, model.prior.scale)))
        return replace(model, network=CorrectedNetwork(model.network), prior=prior)


def trained_parameters(posterior: MemberPosterior) -> Params:
    """Return the trained parameters of the members of `posterior`, without the fixed ones of a tangent correction."""
    return posterior.members["trained"] if isinstance(posterior.model.network, CorrectedNetwork) else posterior.members


def _trained(posterior: MemberPosterior) -> Trained:
    """Return the members of `posterior` in the form that `train` needs to continue their training."""
    if posterior.record is None or posterior.record.training is None:
        raise ValueError("posterior: its members have no training record, so they cannot be trained further")
    training = posterior.record.training
    return Trained(
        trained_parameters(posterior),
        training.anchors,
        training.loss_curve,
        training.n_epochs,
        training.optimizer_state,
    )
