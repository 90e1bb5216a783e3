"""Early-stopped ensembles (Duvenaud, Maclaurin & Adams 2016): unregularised training that is stopped early.

    θₜ₊₁ = θₜ − η ∇ (1/N) Σᵢ (yᵢ − f(xᵢ; θₜ))²,    θ₀ ~ N(μ, s²)

for N rows, the prior N(μ, s²) and the learning rate η. Gradient descent moves members from the prior towards the
maximum of the likelihood, and their distribution after any number of epochs is an approximate posterior. The number of
epochs after which members predict held-out rows best is chosen, and members are trained on all rows for that many
epochs. Without data the number is zero, and members are draws from the prior.
"""

import warnings
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from anchored import checks
from anchored.inference import splits
from anchored.inference.compilation import jit
from anchored.inference.lanes import Trained, lanes_of_members, pad_rows
from anchored.inference.posterior import FitRecord, MemberPosterior, Posterior, key_data
from anchored.inference.solvers.first_order import FirstOrder
from anchored.inference.training import TrainingConfig, member_problems, train
from anchored.methods.ensemble import Ensemble, UnregularizedSampler, train_members, training_record
from anchored.methods.short_training import ShortTrainingWarning
from anchored.model.bayesian_model import BayesianModel, negative_log_likelihood
from anchored.model.predictive import CategoricalPredictive
from anchored.types import Array, Data, Key, OnProgress

N_PILOTS = 10  # members that choose the number of epochs; fixed, so that the choice does not depend on n_estimators
POWER_STEPS = 30  # steps of the power iteration for the largest eigenvalue of the Hessian


@dataclass(frozen=True)
class EarlyStoppingRecord(FitRecord):
    """How the number of epochs was chosen: by the predictions of pilot members on held-out rows.

    Attributes
    ----------
    epochs : (candidates,) array of int
        Candidate numbers of epochs.
    held_out_log_likelihood : (candidates,) array
        Mean log-likelihood of a held-out row after each of these numbers of epochs, in nats.
    best_epoch : int
        The number of epochs chosen.
    learning_rate : float
        The learning rate that was used: `solver.learning_rate`, or less for plain gradient descent (see `fit`).
    """

    epochs: np.ndarray = field(kw_only=True)
    held_out_log_likelihood: np.ndarray = field(kw_only=True)
    best_epoch: int = field(kw_only=True)
    learning_rate: float = field(kw_only=True)


@dataclass(frozen=True)
class EarlyStoppedEnsemble(Ensemble):
    """An ensemble of networks that start at draws from the prior, trained until they predict held-out rows best.

    Attributes
    ----------
    n_estimators : int
        Number of members.
    validation_fraction : float
        Fraction of the rows that is held out while the number of epochs is chosen.
    solver : FirstOrder
        Optimiser with a constant learning rate. Its `max_iter` is the largest number of epochs to choose from.
    n_jobs : int or None
        Number of joblib processes that train members; None for one.
    """

    n_estimators: int = 10
    validation_fraction: float = 0.25
    solver: FirstOrder = FirstOrder("sgd", learning_rate=1.0, max_iter=4096, decay=False)
    n_jobs: int | None = None
    # Fields of a likelihood that this method does not use: a temperature would only multiply the loss
    ignores: ClassVar = ("temperature",)

    def check(self, model: BayesianModel, held_out: np.ndarray | None = None) -> None:
        """Raise a ValueError if a setting is invalid or cannot be used with `model`.

        `model` and `held_out` are as in `Ensemble.check`.
        """
        super().check(model, held_out)
        checks.fraction("validation_fraction", self.validation_fraction)
        if self.solver.decay:
            raise ValueError("solver: EarlyStoppedEnsemble needs a constant learning rate; use decay=False")

    def fit(self, key: Key, model: BayesianModel, data: Data, on_progress: OnProgress | None = None) -> Posterior:
        """Choose the number of epochs, train members for that many epochs, and return the posterior.

        `key`, `model`, `data` and `on_progress` are as in `Method.fit`. The learning rate of plain gradient descent is
        at most 1/λ, where λ is the largest eigenvalue of the Hessian of the loss at the initial parameters of the pilot
        members. Gradient descent diverges at rates above 2/λ, and λ grows with the width of the network.
        """
        self.check(model)
        solver, pilots = self.solver, _untrained_members(key, model, data, N_PILOTS)
        if solver.optimizer == "sgd":
            max_curvature = float(np.max(_curvatures(model, pilots.params, pad_rows(data).data)))
            solver = replace(solver, learning_rate=min(solver.learning_rate, 1 / max(max_curvature, 1e-12)))
        held_out = _draw_held_out(key, data, self.validation_fraction)
        report = _scaled_progress(on_progress, 0.5)  # the choice and the training are each half of the work
        epochs, scores = _scores(key, solver, pilots, model, data, held_out, report)
        best = epochs[np.nanargmax(scores)]
        if best == 0:
            trained = _untrained_members(key, model, data, self.n_estimators)
            report(1.0, np.nan)
        else:
            config, rows = _training_config(solver, best), pad_rows(data)
            trained = train_members(key, config, model, rows, self.n_estimators, self.n_jobs, on_progress=report)
        if best == solver.max_iter:
            warnings.warn(
                ShortTrainingWarning(
                    f"held-out rows were predicted best at the end of max_iter={best} epochs", "max_iter"
                ),
                stacklevel=2,
            )
        record = EarlyStoppingRecord(
            self, key_data(key), model, training_record(trained),
            epochs=np.array(epochs), held_out_log_likelihood=np.array(scores), best_epoch=best,
            learning_rate=solver.learning_rate,
        )  # fmt: skip
        return MemberPosterior(model, trained.params, record)


def _scores(
    key: Key,
    solver: FirstOrder,
    pilots: Trained,
    model: BayesianModel,
    data: Data,
    held_out: np.ndarray,
    on_progress: OnProgress,
) -> tuple[list[int], list[float]]:
    """Train pilot members, and evaluate them on held-out rows after 0, 1, 2, 4, … epochs.

    Parameters
    ----------
    key : Key
        Random key of the ensemble.
    solver : FirstOrder
        How pilot members are trained; `max_iter` is the largest number of epochs.
    pilots : Trained
        Pilot members before training.
    model : BayesianModel
        The model of the members.
    data : Data
        All rows.
    held_out : (rows,) array of bool
        True for rows that are held out.
    on_progress : callable
        Called with the fraction of the work done since the last call, and the mean loss.

    Returns
    -------
    epochs : list of int
        The numbers of epochs.
    scores : list of float
        The mean log-likelihood of a held-out row after each of these numbers of epochs, in nats.
    """
    if not held_out.any():
        on_progress(1.0, np.nan)
        return [0], [0.0]
    last = solver.max_iter
    epochs = sorted({0, last, *(2**k for k in range(last.bit_length()))})
    rows = pad_rows(data, held_out=held_out)
    held_out_data = Data(*(np.asarray(part)[held_out] for part in data))
    scores = [_log_likelihood(MemberPosterior(model, pilots.params), held_out_data)]
    for done, epoch in pairwise(epochs):
        order_key = jax.random.fold_in(key, epoch)  # so that the order of batches differs from earlier epochs
        lanes = lanes_of_members(model, np.arange(N_PILOTS))
        report = _scaled_progress(on_progress, (epoch - done) / last)
        pilots = train(order_key, _training_config(solver, epoch - done), lanes, rows, pilots, report)
        scores.append(_log_likelihood(MemberPosterior(model, pilots.params), held_out_data))
    return epochs, scores


def _training_config(solver: FirstOrder, n_epochs: int) -> TrainingConfig:
    """Return the configuration of unregularised training for `n_epochs` epochs."""
    return TrainingConfig(UnregularizedSampler(), solver=replace(solver, max_iter=n_epochs))


def _untrained_members(key: Key, model: BayesianModel, data: Data, n_members: int) -> Trained:
    """Return `n_members` members before training: the draws from the prior at which training starts."""
    stack = member_problems(key, TrainingConfig(UnregularizedSampler()), model, data, np.arange(n_members))
    starts = jax.tree.map(np.asarray, stack.anchor_and_model[0])  # the anchor of such a problem is its start
    return Trained(starts, starts, np.zeros((0, n_members)), np.zeros(n_members, int), None)


def _draw_held_out(key: Key, data: Data, fraction: float) -> np.ndarray:
    """Return whether each row is held out, (rows,): a random `fraction` of the rows of positive weight, at least one.

    Copies of a row are held out together.
    """
    has_weight = np.any(np.asarray(data.weights) > 0, axis=1)
    candidates = np.flatnonzero(has_weight)
    if len(candidates) == 0:
        return has_weight
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    first = splits.first_copies(*(np.asarray(part)[candidates] for part in (data.inputs, data.targets)))
    chosen = splits.held_out(first, rng.permutation(len(candidates)), max(1, int(fraction * len(candidates))))
    return np.isin(np.arange(len(has_weight)), candidates[chosen])


def _log_likelihood(posterior: Posterior, data: Data) -> float:
    """Return the weighted mean over rows of log p(y) under the predictive distribution, in nats."""
    predictive, targets = posterior.predict(data.inputs), np.asarray(data.targets)
    if isinstance(predictive, CategoricalPredictive):
        probability = np.take_along_axis(predictive.probabilities, targets[:, None], axis=1)
        terms = np.log(np.maximum(probability, np.finfo(float).tiny))
    else:
        terms = predictive.logpdf(targets)
    return float(np.average(terms, weights=np.broadcast_to(data.weights, terms.shape)))


@jit
def _curvatures(model: BayesianModel, members: object, data: Data) -> Array:
    """Return the largest absolute eigenvalue of the loss's Hessian at each member, (members,), by power iteration."""
    total_weight = jnp.mean(jnp.sum(data.weights, axis=0))
    size = jnp.where(total_weight > 0, total_weight, 1)

    def curvature(member: object) -> Array:
        params, unravel = ravel_pytree(member)

        def loss(flat: jax.Array) -> Array:
            return model.likelihood.loss_scale * negative_log_likelihood(model, unravel(flat), data) / size

        def hessian_times(vector: Array) -> Array:
            return jax.jvp(jax.grad(loss), (params,), (vector,))[1]

        def normalised(vector: Array) -> Array:
            return vector / jnp.maximum(jnp.linalg.norm(vector), jnp.finfo(vector.dtype).tiny)

        eigenvector = jax.lax.fori_loop(0, POWER_STEPS, lambda _, v: normalised(hessian_times(v)), normalised(params))
        return jnp.abs(eigenvector @ hessian_times(eigenvector))

    return jax.lax.map(curvature, members)  # one after the other, to save memory


def _scaled_progress(on_progress: OnProgress | None, scale: float) -> OnProgress:
    """Return a progress callback for a part of the work, which is the fraction `scale` of all work."""
    return lambda fraction, loss: None if on_progress is None else on_progress(scale * fraction, loss)
