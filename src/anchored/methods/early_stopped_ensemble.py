"""Early-stopped ensembles (Duvenaud, Maclaurin & Adams 2016): training stops on the way from prior to likelihood.

    θₜ₊₁ = θₜ − η ∇ (1/N) Σᵢ (yᵢ − f(xᵢ; θₜ))²,    θ₀ ~ N(μ, s²)

Gradient descent carries the prior, step by step, to where the likelihood is largest; every law on the way is an
approximate posterior. Here the one is taken that predicts held-out rows best, then all rows are trained on for as many
epochs. Without data that is none: the prior.
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
from anchored.inference.posterior import FitRecord, MemberPosterior, Posterior, key_numbers
from anchored.inference.solvers.first_order import FirstOrder
from anchored.inference.training import Trained, TrainingConfig, as_rows, member_problems, same_model, train
from anchored.methods.ensemble import Ensemble, UnregularizedProblems, train_members, training_of
from anchored.methods.short_training import ShortTrainingWarning
from anchored.model.bayesian_model import BayesianModel, negative_log_likelihood
from anchored.model.predictive import CategoricalPredictive
from anchored.types import Array, Data, Key, OnProgress, Params

N_PILOTS = 10  # always as many choose, so that a member does not depend on how many there are
POWER_STEPS = 30


@dataclass(frozen=True)
class EarlyStoppingRecord(FitRecord):
    """How the number of epochs was chosen."""

    epochs: np.ndarray = field(kw_only=True)  # (candidates,)
    held_out_log_likelihood: np.ndarray = field(kw_only=True)  # (candidates,) of a row, by pilot members
    best_epoch: int = field(kw_only=True)
    learning_rate: float = field(kw_only=True)  # in use: of plain gradient descent it is bounded


@dataclass(frozen=True)
class EarlyStoppedEnsemble(Ensemble):
    """M networks between the prior and the likelihood; their spread is what is left of the prior's."""

    n_estimators: int = 10
    validation_fraction: float = 0.25  # of the rows, held out only while the number of epochs is chosen
    solver: FirstOrder = FirstOrder("sgd", learning_rate=1.0, max_iter=4096, decay=False)
    n_jobs: int | None = None
    ignores: ClassVar = ("temperature",)  # of an estimator's arguments: it scales the loss as a whole

    def check(self, model: BayesianModel, held_out: np.ndarray | None = None) -> None:
        """Raise where a setting cannot be used, or not with this model."""
        super().check(model, held_out)
        checks.share("validation_fraction", self.validation_fraction)
        if self.solver.decay:
            raise ValueError("solver: members stop together, after epochs of equal steps; use decay=False")

    def fit(self, key: Key, model: BayesianModel, data: Data, on_progress: OnProgress | None = None) -> Posterior:
        """Choose when to stop, then train members 0 to M−1 until then, or leave them at their draws.

        A rate of plain gradient descent is at most 1/λ, with λ the largest curvature of the loss where pilots start:
        steps beyond 2/λ go uphill, and λ grows with the width of the network.
        """
        self.check(model)
        solver, pilots = self.solver, _untrained(key, model, data, N_PILOTS)
        if solver.optimizer == "sgd":
            steepest = float(np.max(_curvatures(model, pilots.params, as_rows(data).data)))
            solver = replace(solver, learning_rate=min(solver.learning_rate, 1 / max(steepest, 1e-12)))
        held_out = _draw_held_out(key, data, self.validation_fraction)
        epochs, scores = _scores(key, solver, pilots, model, data, held_out, _part(on_progress, 0.5))
        best, rest = epochs[np.nanargmax(scores)], _part(on_progress, 0.5)
        if best == 0:
            trained = _untrained(key, model, data, self.n_estimators)
            rest(1.0, np.nan)
        else:
            config, rows = _training_config(solver, best), as_rows(data)
            trained = train_members(key, config, model, rows, self.n_estimators, self.n_jobs, on_progress=rest)
        if best == solver.max_iter:
            warnings.warn(
                ShortTrainingWarning(
                    f"held-out rows were predicted best at the end of max_iter={best} epochs", "max_iter"
                ),
                stacklevel=2,
            )
        record = EarlyStoppingRecord(
            self, key_numbers(key), model, training_of(trained),
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
    """Epochs 0, 1, 2, 4, … and how well pilots, trained on the other rows, then predict those held out."""
    if not held_out.any():
        on_progress(1.0, np.nan)
        return [0], [0.0]
    last = solver.max_iter
    epochs = sorted({0, last, *(2**k for k in range(last.bit_length()))})
    rows, unseen = as_rows(data, held_out=held_out), Data(*(np.asarray(column)[held_out] for column in data))
    scores = [_log_likelihood(MemberPosterior(model, pilots.params), unseen)]
    for done, epoch in pairwise(epochs):
        order_key = jax.random.fold_in(key, epoch)  # batches in another order than in the epochs before
        lanes, part = same_model(model, np.arange(N_PILOTS)), _part(on_progress, (epoch - done) / last)
        pilots = train(order_key, _training_config(solver, epoch - done), lanes, rows, pilots, part)
        scores.append(_log_likelihood(MemberPosterior(model, pilots.params), unseen))
    return epochs, scores


def _training_config(solver: FirstOrder, n_epochs: int) -> TrainingConfig:
    return TrainingConfig(UnregularizedProblems(), solver=replace(solver, max_iter=n_epochs))


def _untrained(key: Key, model: BayesianModel, data: Data, n_members: int) -> Trained:
    """Members at their draws from the prior."""
    stack = member_problems(key, TrainingConfig(UnregularizedProblems()), model, data, np.arange(n_members))
    starts = jax.tree.map(np.asarray, stack.problem[0])
    return Trained(starts, starts, np.zeros((0, n_members)), np.zeros(n_members, int), None)


def _draw_held_out(key: Key, data: Data, fraction: float) -> np.ndarray:
    """Which rows are held out: at least one of those with a weight, if there are any."""
    counted = np.flatnonzero(np.any(np.asarray(data.weights) > 0, axis=1))
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    chosen = rng.permutation(counted)[: max(1, int(fraction * len(counted)))]
    return np.isin(np.arange(len(data.weights)), chosen)


def _log_likelihood(posterior: Posterior, data: Data) -> float:
    """log p(y) of a row under the members together, averaged by the rows' weights."""
    predictive, targets = posterior.predict(data.inputs), np.asarray(data.targets)
    if isinstance(predictive, CategoricalPredictive):
        probability = np.take_along_axis(predictive.probabilities, targets[:, None], axis=1)
        terms = np.log(np.maximum(probability, np.finfo(float).tiny))
    else:
        terms = predictive.log_density(targets)
    return float(np.average(terms, weights=np.broadcast_to(data.weights, terms.shape)))


@jit
def _curvatures(model: BayesianModel, members: Params, data: Data) -> Array:
    """The largest eigenvalue of the loss's Hessian where each member is, by power iteration."""
    total = jnp.mean(jnp.sum(data.weights, axis=0))
    size = jnp.where(total > 0, total, 1)

    def curvature(member: Params) -> Array:
        start, as_params = ravel_pytree(member)

        def loss(flat: jax.Array) -> Array:
            return model.likelihood.loss_scale * negative_log_likelihood(model, as_params(flat), data) / size

        def product(vector: Array) -> Array:
            return jax.jvp(jax.grad(loss), (start,), (vector,))[1]

        def unit(vector: Array) -> Array:
            return vector / jnp.maximum(jnp.linalg.norm(vector), jnp.finfo(vector.dtype).tiny)

        steepest = jax.lax.fori_loop(0, POWER_STEPS, lambda _, v: unit(product(v)), unit(start))
        return jnp.abs(steepest @ product(steepest))

    return jax.lax.map(curvature, members)  # one after the other, which needs the memory of one


def _part(on_progress: OnProgress | None, weight: float) -> OnProgress:
    """Progress on a part of the work, as progress on the whole."""
    return lambda share, loss: None if on_progress is None else on_progress(weight * share, loss)
