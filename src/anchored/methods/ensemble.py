"""What all ensembles share: members trained in whole blocks, shared out among processes, and named if cut short."""

import warnings
from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from joblib import effective_n_jobs

from anchored import checks
from anchored.inference import workers
from anchored.inference.posterior import FitRecord, MemberPosterior, Method, Training, key_numbers
from anchored.inference.solvers import blocks
from anchored.inference.solvers.first_order import FirstOrder
from anchored.inference.solvers.gauss_newton import GaussNewton
from anchored.inference.training import (
    Trained,
    TrainingConfig,
    TrainingRows,
    as_rows,
    block_width,
    joined,
    same_model,
    train,
)
from anchored.methods.short_training import ShortTrainingWarning
from anchored.model.bayesian_model import BayesianModel, Problem
from anchored.model.likelihoods import Gaussian
from anchored.types import Array, Data, Key, OnProgress, Params

STILL_FALLING = 0.25  # a loss that fell by more than this share over the last fifth was cut short


class Ensemble:
    """The settings that all ensembles share, checked. Each is a dataclass of its own."""

    n_estimators: int
    solver: FirstOrder | GaussNewton
    n_jobs: int | None
    solvers: ClassVar[tuple[type[FirstOrder] | type[GaussNewton], ...]] = (FirstOrder,)  # that it can be trained by

    def check(self, model: BayesianModel, held_out: np.ndarray | None = None) -> None:
        """Raise where a setting cannot be used, or not with this model."""
        checks.whole("n_estimators", self.n_estimators)
        if not isinstance(self.solver, self.solvers):
            wanted = " or ".join(kind.__name__ for kind in self.solvers)
            raise ValueError(f"solver must be a {wanted} for {type(self).__name__}, got {self.solver!r}")
        self.solver.check()
        if isinstance(self.solver, GaussNewton) and not isinstance(model.likelihood, Gaussian):
            raise ValueError("solver: GaussNewton needs the Gaussian likelihood; use FirstOrder")
        if isinstance(self.solver, FirstOrder) and self.solver.early_stopping and held_out is None:
            raise ValueError(
                "solver: early_stopping=True has no held-out rows to watch here; use early_stopping=False (estimators "
                "have an early_stopping of their own, for method=None)"
            )


class EnsembleMethod(Method, Protocol):
    """A method that trains members."""

    @property
    def n_estimators(self) -> int:
        """How many members."""

    @property
    def n_jobs(self) -> int | None:
        """How many processes train them, as joblib counts; None for one."""


@dataclass(frozen=True)
class UnregularizedProblems:
    """A member that starts at a draw from the prior and is not pulled anywhere: its prior scale is infinite."""

    def __call__(self, anchor_key: Key, noise_key: Key, model: BayesianModel, like: Params, data: Data) -> Problem:
        start = model.prior.sample(anchor_key, like)
        flat = replace(model.prior, scale=jax.tree.map(lambda s: jnp.full_like(s, jnp.inf), model.prior.scale))
        return Problem(start, start, replace(model, prior=flat), data)


def fit_ensemble(
    method: EnsembleMethod,
    key: Key,
    config: TrainingConfig,
    model: BayesianModel,
    data: Data,
    on_progress: OnProgress | None = None,
    target: BayesianModel | None = None,
) -> MemberPosterior:
    """An ensemble of `method.n_estimators` members, trained as configured on all rows.

    `target` is the model whose posterior they stand for, where the method adds to it what it trains.
    """
    target = target or model
    method.check(target)
    trained = train_members(
        key, config, model, as_rows(data), method.n_estimators, method.n_jobs, on_progress=on_progress
    )
    warn_if_short(config.solver, trained)
    return MemberPosterior(model, trained.params, FitRecord(method, key_numbers(key), target, training_of(trained)))


def training_of(trained: Trained) -> Training:
    """What a record keeps of a training that is over."""
    return Training(trained.anchors, trained.loss_curve, trained.n_epochs)


def train_members(
    key: Key,
    config: TrainingConfig,
    model: BayesianModel,
    rows: TrainingRows,
    n_members: int,
    n_jobs: int | None = None,
    first: int = 0,
    on_progress: OnProgress | None = None,
) -> Trained:
    """Members `first` to `n_members` − 1. Whole blocks are trained, and only the members wanted are kept."""
    width = block_width(config, model.network, rows)
    begin, end = first // width, -(-n_members // width)
    workers.check(n_jobs)
    n_workers = min(effective_n_jobs(n_jobs), end - begin)
    shares = [np.arange(s[0] * width, (s[-1] + 1) * width) for s in np.array_split(np.arange(begin, end), n_workers)]
    if n_workers == 1:
        parts = [train(key, config, same_model(model, shares[0]), rows, None, on_progress, n_members)]
    else:
        model, rows = jax.tree.map(np.asarray, (model, rows))
        seed = np.asarray(jax.random.key_data(key)), jax.random.key_impl(key)
        share = partial(_train_share, seed, config, model, n_members, blocks.in_double())
        parts = workers.run(share, [(tuple(rows.data), tuple(rows[1:]), members) for members in shares], n_jobs)
        if on_progress is not None:  # what workers do cannot be seen before they are done, all at about the same time
            on_progress(1.0, float(np.nanmean([part.loss_curve[-1] for part in parts])))
    return joined(parts).lanes(slice(first - begin * width, n_members - begin * width))


def _train_share(
    seed: tuple[np.ndarray, Hashable],
    config: TrainingConfig,
    model: BayesianModel,
    n_wanted: int,
    double: bool,
    data: tuple[np.ndarray, np.ndarray, np.ndarray],
    rest: tuple[Array, Array, int, float],
    members: np.ndarray,
) -> Trained:
    """One worker's members; runs in another process, perhaps on another machine. TrainingRows come as plain tuples."""
    with jax.enable_x64(double):
        key = jax.random.wrap_key_data(jnp.asarray(seed[0]), impl=seed[1])
        return train(key, config, same_model(model, members), TrainingRows(Data(*data), *rest), n_wanted=n_wanted)


def warn_if_short(solver: FirstOrder | GaussNewton, trained: Trained) -> None:
    """Name the members whose training was cut short."""
    rounds, remedies = "epochs", ["max_iter", "learning_rate_init"]
    if isinstance(solver, GaussNewton):
        short = np.flatnonzero(trained.n_epochs >= solver.max_iter)
        why, rounds, remedies = "still gained from every step", "steps", ["max_iter"]
    elif solver.early_stopping:
        short = np.flatnonzero(trained.n_epochs >= solver.max_iter)
        why = "had not stopped improving on the held-out rows"
    else:
        curve = trained.loss_curve
        last, earlier = curve[-1], curve[int(0.8 * (len(curve) - 1))]
        short = np.flatnonzero(earlier - last > STILL_FALLING * np.abs(last))
        why = "still had a falling loss"
    if len(short):
        names = ", ".join(map(str, short[:10])) + (", …" if len(short) > 10 else "")
        warnings.warn(
            ShortTrainingWarning(f"member {names} {why} after max_iter={solver.max_iter} {rounds}", *remedies),
            stacklevel=5,  # where the user called fit
        )
