"""What all ensemble methods share: checks of settings, training in one or several processes, and warnings."""

import warnings
from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from joblib import effective_n_jobs

from anchored import checks
from anchored.inference import checkpoints, cluster, workers
from anchored.inference.failures import describe_members
from anchored.inference.lanes import Trained, TrainingRows, concatenate, lanes_of_members, pad_rows
from anchored.inference.posterior import FitRecord, MemberPosterior, Method, Training, key_data
from anchored.inference.solvers import blocks
from anchored.inference.solvers.first_order import FirstOrder
from anchored.inference.solvers.gauss_newton import GaussNewton
from anchored.inference.training import TrainingConfig, block_ranges, train
from anchored.methods.short_training import ShortTrainingWarning
from anchored.model.bayesian_model import BayesianModel, MemberKeys, Problem
from anchored.model.likelihoods import Gaussian
from anchored.types import Array, Data, Key, OnProgress, Params

# Training was too short if the loss fell by more than this fraction of its final value during the last fifth of epochs
STILL_FALLING = 0.25


class Ensemble:
    """Base class of ensemble methods, which are dataclasses with at least these fields."""

    n_estimators: int  # number of members
    solver: FirstOrder | GaussNewton  # how the members' losses are minimised
    n_jobs: int | None  # number of processes, as in joblib
    solvers: ClassVar[tuple[type[FirstOrder] | type[GaussNewton], ...]] = (FirstOrder,)  # allowed types of `solver`

    def check(self, model: BayesianModel, held_out: np.ndarray | None = None) -> None:
        """Raise a ValueError if a setting is invalid or cannot be used with `model`.

        `held_out`, (rows,), is true for rows held out for early stopping, which only `AnchoredEnsemble.fit` accepts. If
        `held_out` is None, a solver with early_stopping=True raises an error.
        """
        checks.whole("n_estimators", self.n_estimators)
        if not isinstance(self.solver, self.solvers):
            allowed = " or ".join(solver_class.__name__ for solver_class in self.solvers)
            raise ValueError(f"solver must be a {allowed} for {type(self).__name__}, got {self.solver!r}")
        self.solver.check()
        if isinstance(self.solver, GaussNewton) and not isinstance(model.likelihood, Gaussian):
            raise ValueError("solver: GaussNewton needs the Gaussian likelihood; use FirstOrder")
        if isinstance(self.solver, FirstOrder) and self.solver.early_stopping and held_out is None:
            raise ValueError(
                "solver: early_stopping=True needs held-out rows, but none were passed; use early_stopping=False, or "
                "AnchoredRegressor(early_stopping=True)"
            )


class EnsembleMethod(Method, Protocol):
    """The interface that `fit_ensemble` needs, which every subclass of `Ensemble` with a method `fit` has."""

    @property
    def n_estimators(self) -> int:
        """Number of members."""

    @property
    def n_jobs(self) -> int | None:
        """Number of joblib processes that train members; None for one."""


@dataclass(frozen=True)
class UnregularizedSampler:
    """A `ProblemSampler` without regularisation: the prior of its problems has infinite scale."""

    def __call__(self, normals: Params, keys: MemberKeys, model: BayesianModel, data: Data) -> Problem:
        """Return the problem of a member, with initial parameters drawn from the prior.

        The arguments are those of `ProblemSampler`.
        """
        start = model.prior.unwhiten(normals)
        flat_prior = replace(model.prior, scale=jax.tree.map(lambda s: jnp.full_like(s, jnp.inf), model.prior.scale))
        return Problem(start, start, replace(model, prior=flat_prior), data)


def fit_ensemble(
    method: EnsembleMethod,
    key: Key,
    config: TrainingConfig,
    model: BayesianModel,
    data: Data,
    on_progress: OnProgress | None = None,
    target: BayesianModel | None = None,
) -> MemberPosterior:
    """Train an ensemble on all rows.

    Parameters
    ----------
    method : EnsembleMethod
        The method. It gives the numbers of members and processes, and is recorded.
    key : Key
        Random key of the ensemble.
    config : TrainingConfig
        How members are trained.
    model : BayesianModel
        The model of the members.
    data : Data
        Training rows.
    on_progress : callable, optional
        Called with the fraction of the work done since the last call, and the mean loss.
    target : BayesianModel, optional
        The model whose posterior is approximated, if the method has added parts to it to make `model`.

    Returns
    -------
    MemberPosterior
        The members, with a record of their training.
    """
    target = target or model
    method.check(target)
    trained = train_members(
        key, config, model, pad_rows(data), method.n_estimators, method.n_jobs, on_progress=on_progress
    )
    warn_if_short(config.solver, trained, stacklevel=6)
    return MemberPosterior(model, trained.params, FitRecord(method, key_data(key), target, training_record(trained)))


def training_record(trained: Trained) -> Training:
    """Return the record of the training of `trained`, without optimiser states."""
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
    """Train members `first` to `n_members` − 1, in this process, in joblib's workers, or on a Dask cluster.

    Members are trained in blocks of a fixed size (see `inference.solvers.blocks`). Only complete blocks are trained, so
    that a member does not depend on `n_members`. Members outside the range are then dropped.

    Parameters
    ----------
    key : Key
        Random key of the ensemble.
    config : TrainingConfig
        How members are trained.
    model : BayesianModel
        The model of the members.
    rows : TrainingRows
        Padded rows.
    n_members : int
        Number of members of the ensemble, including those before `first`.
    n_jobs : int or None
        Number of joblib processes that train members; None for one.
    first : int
        Number of the first member to train.
    on_progress : callable, optional
        Called with the fraction of the work done since the last call, and the mean loss.

    Returns
    -------
    Trained
        The members.
    """
    block_members = block_ranges(config, model.network, rows, first, n_members)
    start, stop = block_members[0].start, block_members[-1].stop
    with cluster.using(n_jobs):
        if cluster.current() is None:
            workers.check(n_jobs)
        n_workers = min(effective_n_jobs(n_jobs), len(block_members))
        if n_workers == 1 or cluster.current() is not None:
            lanes = lanes_of_members(model, np.arange(start, stop))
            trained = train(key, config, lanes, rows, None, on_progress, n_members, start)
        else:
            shares = np.array_split(np.arange(len(block_members)), n_workers)  # the numbers of each worker's blocks
            ranges = [np.arange(block_members[share[0]].start, block_members[share[-1]].stop) for share in shares]
            trained = _train_in_processes(key, config, model, rows, n_members, n_jobs, ranges, on_progress)
    return trained.select(slice(first - start, n_members - start))


def _train_in_processes(
    key: Key,
    config: TrainingConfig,
    model: BayesianModel,
    rows: TrainingRows,
    n_members: int,
    n_jobs: int | None,
    ranges: list[np.ndarray],
    on_progress: OnProgress | None,
) -> Trained:
    """Train the members of each of the `ranges` in one of joblib's processes; see `train_members`."""
    model, rows = jax.tree.map(np.asarray, (model, rows))
    seed = np.asarray(jax.random.key_data(key)), jax.random.key_impl(key)
    process_settings = blocks.uses_float64(), checkpoints.current_folder()
    train_range = partial(_train_on_worker, seed, config, model, n_members, process_settings)
    calls = [(tuple(rows.data), tuple(rows[1:]), members) for members in ranges]
    parts = workers.run(train_range, calls, n_jobs)
    if on_progress is not None:  # workers do not report progress
        on_progress(1.0, float(np.nanmean(np.concatenate([part.loss_curve[-1] for part in parts]))))
    return concatenate(parts)


def _train_on_worker(
    seed: tuple[np.ndarray, Hashable],  # data and implementation of the random key
    config: TrainingConfig,
    model: BayesianModel,
    n_wanted: int,
    process_settings: tuple[bool, Path | None],  # whether JAX computes in float64, and the folder of checkpoints
    data: tuple[np.ndarray, np.ndarray, np.ndarray],  # the fields of TrainingRows.data
    other_fields: tuple[Array, Array, int, bool, float],  # the other fields of TrainingRows
    members: np.ndarray,
) -> Trained:
    """Train the members with the numbers `members`, (members,), in a worker.

    Members with numbers of `n_wanted` or higher only complete a block. TrainingRows are passed as plain tuples, since
    joblib unpickles arguments before anchored is imported (see `inference.workers`).
    """
    in_float64, folder = process_settings
    with jax.enable_x64(in_float64), checkpoints.using(folder):
        key = jax.random.wrap_key_data(jnp.asarray(seed[0]), impl=seed[1])
        rows = TrainingRows(Data(*data), *other_fields)
        return train(key, config, lanes_of_members(model, members), rows, n_wanted=n_wanted, first=members[0])


def warn_if_short(solver: FirstOrder | GaussNewton, trained: Trained, stacklevel: int = 5) -> None:
    """Warn if the training of some members ended before it had converged.

    Parameters
    ----------
    solver : FirstOrder or GaussNewton
        How they were trained.
    trained : Trained
        The members.
    stacklevel : int
        Number of calls between the warning and the user's call of an estimator's `fit`, as in `warnings.warn`.
    """
    unit, arguments = "epochs", ["max_iter", "learning_rate_init"]
    if isinstance(solver, GaussNewton):
        short = np.flatnonzero(trained.n_epochs >= solver.max_iter)
        reason, unit, arguments = "had not converged", "steps", ["max_iter"]
    elif solver.early_stopping:
        short = np.flatnonzero(trained.n_epochs >= solver.max_iter)
        reason = "still improved on the held-out rows"
    else:
        curve = trained.loss_curve
        last, earlier = curve[-1], curve[int(0.8 * (len(curve) - 1))]
        short = np.flatnonzero(earlier - last > STILL_FALLING * np.abs(last))
        reason = "still had a falling loss"
    if len(short):
        warnings.warn(
            ShortTrainingWarning(
                f"{describe_members(short)} {reason} after max_iter={solver.max_iter} {unit}", *arguments
            ),
            stacklevel=stacklevel,
        )
