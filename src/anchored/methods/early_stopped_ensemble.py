"""Early-stopped ensembles (Duvenaud, Maclaurin & Adams 2016): unregularised training from draws of the prior, stopped.

    θₜ₊₁ = θₜ − η ∇ (1/N) Σᵢ (yᵢ − f(xᵢ; θₜ))²,    θ₀ ~ N(μ, s²)

Gradient descent moves members from the prior towards the maximum of the likelihood, and their distribution after any
number of epochs is an approximate posterior. The number that predicts held-out rows best is chosen, and members are
trained on all rows for that many epochs. Without data it is zero, and members are draws from the prior.
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
from anchored.inference.compilation import jit
from anchored.inference.lanes import Trained, lanes_of_members, pad_rows
from anchored.inference.posterior import FitRecord, MemberPosterior, Posterior, key_data
from anchored.inference.solvers.first_order import FirstOrder
from anchored.inference.training import TrainingConfig, member_problems, train
from anchored.methods.ensemble import Ensemble, UnregularizedProblems, train_members, training_record
from anchored.methods.short_training import ShortTrainingWarning
from anchored.model.bayesian_model import BayesianModel, negative_log_likelihood
from anchored.model.predictive import CategoricalPredictive
from anchored.types import Array, Data, Key, OnProgress

N_PILOTS = 10  # members trained to choose the number of epochs; fixed, so that members do not depend on n_estimators
POWER_STEPS = 30  # of the power iteration


@dataclass(frozen=True)
class EarlyStoppingRecord(FitRecord):
    """How the number of epochs was chosen."""

    epochs: np.ndarray = field(kw_only=True)  # (candidates,)
    held_out_log_likelihood: np.ndarray = field(kw_only=True)  # (candidates,) mean over rows, of pilot members
    best_epoch: int = field(kw_only=True)
    learning_rate: float = field(kw_only=True)  # used, after the bound for plain gradient descent


@dataclass(frozen=True)
class EarlyStoppedEnsemble(Ensemble):
    """An ensemble of networks trained from draws of the prior until they predict held-out rows best.

    Attributes
    ----------
    n_estimators : int
        Number of members.
    validation_fraction : float
        Fraction of the rows that are held out while the number of epochs is chosen.
    solver : FirstOrder
        Optimiser; its `max_iter` is the largest number of epochs.
    n_jobs : int or None
        Number of processes, as in joblib.
    """

    n_estimators: int = 10
    validation_fraction: float = 0.25
    solver: FirstOrder = FirstOrder("sgd", learning_rate=1.0, max_iter=4096, decay=False)
    n_jobs: int | None = None
    ignores: ClassVar = ("temperature",)  # arguments of estimators without effect: it only scales the loss

    def check(self, model: BayesianModel, held_out: np.ndarray | None = None) -> None:
        """Raise a ValueError if a setting is invalid or cannot be used with `model`, see `Ensemble.check`."""
        super().check(model, held_out)
        checks.fraction("validation_fraction", self.validation_fraction)
        if self.solver.decay:
            raise ValueError("solver: EarlyStoppedEnsemble needs a constant learning rate; use decay=False")

    def fit(self, key: Key, model: BayesianModel, data: Data, on_progress: OnProgress | None = None) -> Posterior:
        """Choose the number of epochs, train members for as long, and return the posterior, see `Method.fit`.

        The learning rate of plain gradient descent is at most 1/λ, with λ the largest curvature of the loss at the
        start of the pilot members: above 2/λ it diverges, and λ grows with the width of the network.
        """
        self.check(model)
        solver, pilots = self.solver, _untrained(key, model, data, N_PILOTS)
        if solver.optimizer == "sgd":
            steepest = float(np.max(_curvatures(model, pilots.params, pad_rows(data).data)))
            solver = replace(solver, learning_rate=min(solver.learning_rate, 1 / max(steepest, 1e-12)))
        held_out = _draw_held_out(key, data, self.validation_fraction)
        epochs, scores = _scores(key, solver, pilots, model, data, held_out, _weighted(on_progress, 0.5))
        best, rest = epochs[np.nanargmax(scores)], _weighted(on_progress, 0.5)
        if best == 0:
            trained = _untrained(key, model, data, self.n_estimators)
            rest(1.0, np.nan)
        else:
            config, rows = _training_config(solver, best), pad_rows(data)
            trained = train_members(key, config, model, rows, self.n_estimators, self.n_jobs, on_progress=rest)
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
    """Candidate epochs 0, 1, 2, 4, …, and the held-out log-likelihood of pilot members trained for as long."""
    if not held_out.any():
        on_progress(1.0, np.nan)
        return [0], [0.0]
    last = solver.max_iter
    epochs = sorted({0, last, *(2**k for k in range(last.bit_length()))})
    rows, unseen = pad_rows(data, held_out=held_out), Data(*(np.asarray(column)[held_out] for column in data))
    scores = [_log_likelihood(MemberPosterior(model, pilots.params), unseen)]
    for done, epoch in pairwise(epochs):
        order_key = jax.random.fold_in(key, epoch)  # so that the order of batches differs from earlier epochs
        lanes, report = lanes_of_members(model, np.arange(N_PILOTS)), _weighted(on_progress, (epoch - done) / last)
        pilots = train(order_key, _training_config(solver, epoch - done), lanes, rows, pilots, report)
        scores.append(_log_likelihood(MemberPosterior(model, pilots.params), unseen))
    return epochs, scores


def _training_config(solver: FirstOrder, n_epochs: int) -> TrainingConfig:
    """Unregularised training for a number of epochs."""
    return TrainingConfig(UnregularizedProblems(), solver=replace(solver, max_iter=n_epochs))


def _untrained(key: Key, model: BayesianModel, data: Data, n_members: int) -> Trained:
    """Members that are draws from the prior."""
    stack = member_problems(key, TrainingConfig(UnregularizedProblems()), model, data, np.arange(n_members))
    starts = jax.tree.map(np.asarray, stack.problem[0])
    return Trained(starts, starts, np.zeros((0, n_members)), np.zeros(n_members, int), None)


def _draw_held_out(key: Key, data: Data, fraction: float) -> np.ndarray:
    """Choose the rows to hold out, (rows,) of bool: at least one row of positive weight, if there are any."""
    candidates = np.flatnonzero(np.any(np.asarray(data.weights) > 0, axis=1))
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    chosen = rng.permutation(candidates)[: max(1, int(fraction * len(candidates)))]
    return np.isin(np.arange(len(data.weights)), chosen)


def _log_likelihood(posterior: Posterior, data: Data) -> float:
    """Weighted mean over rows of log p(y) under the predictive distribution."""
    predictive, targets = posterior.predict(data.inputs), np.asarray(data.targets)
    if isinstance(predictive, CategoricalPredictive):
        probability = np.take_along_axis(predictive.probabilities, targets[:, None], axis=1)
        terms = np.log(np.maximum(probability, np.finfo(float).tiny))
    else:
        terms = predictive.log_density(targets)
    return float(np.average(terms, weights=np.broadcast_to(data.weights, terms.shape)))


@jit
def _curvatures(model: BayesianModel, members: object, data: Data) -> Array:
    """The largest eigenvalue of the Hessian of the loss at each member, by power iteration."""
    total = jnp.mean(jnp.sum(data.weights, axis=0))
    size = jnp.where(total > 0, total, 1)

    def curvature(member: object) -> Array:
        start, as_params = ravel_pytree(member)

        def loss(flat: jax.Array) -> Array:
            return model.likelihood.loss_scale * negative_log_likelihood(model, as_params(flat), data) / size

        def product(vector: Array) -> Array:
            return jax.jvp(jax.grad(loss), (start,), (vector,))[1]

        def unit(vector: Array) -> Array:
            return vector / jnp.maximum(jnp.linalg.norm(vector), jnp.finfo(vector.dtype).tiny)

        steepest = jax.lax.fori_loop(0, POWER_STEPS, lambda _, v: unit(product(v)), unit(start))
        return jnp.abs(steepest @ product(steepest))

    return jax.lax.map(curvature, members)  # one after the other, to save memory


def _weighted(on_progress: OnProgress | None, weight: float) -> OnProgress:
    """A callback for a part of the work that is the fraction `weight` of the whole."""
    return lambda share, loss: None if on_progress is None else on_progress(weight * share, loss)
