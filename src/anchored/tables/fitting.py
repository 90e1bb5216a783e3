"""Fit a model to a table: infer the kinds of its columns, score a first fit on held-out rows, then fit to all rows."""

from collections.abc import Callable, Sequence

import numpy as np

from anchored.errors import ArgumentError, TableError
from anchored.estimators.classifiers import AnchoredClassifier
from anchored.estimators.regressors import AnchoredRegressor
from anchored.inference.failures import DivergenceError
from anchored.tables import scores
from anchored.tables.model import FittedEstimator, TableModel
from anchored.tables.rows import RowBatch
from anchored.tables.schema import Schema
from anchored.tables.target import Target, Task


def fit(
    rows: RowBatch,
    target: str,
    *,
    task: str = Task.AUTO,
    ignore: Sequence[str] = (),
    categories: Sequence[str] = (),
    day_first: bool = False,
    members: int = 10,
    max_iter: int | None = None,
    seed: int = 0,
    hold_out: float = 0.2,
    verbose: int = 0,
    on_stage: Callable[[str], None] = lambda message: None,
) -> TableModel:
    """Fit a model of the column `target` to all rows where it is not missing.

    Parameters
    ----------
    rows : RowBatch
        All rows of the table.
    target : str
        Name of the column to predict.
    task : str
        "regression", "classification", or "auto" to infer it from the target.
    ignore : sequence of str
        Names of columns to leave out.
    categories : sequence of str
        Names of columns to read as categories.
    day_first : bool
        Whether 3/4/2024 is the third of April, if all dates of the column are ambiguous.
    members : int
        Number of members of the ensemble.
    max_iter : int or None
        Number of epochs; None for the estimator's default.
    seed : int
        Random seed of the split and of the training.
    hold_out : float
        Share of the rows, between 0 and 1, that the first fit is scored on.
    verbose : int
        1 shows progress bars.
    on_stage : function
        Called with a line of text before each of the two fits.

    Returns
    -------
    TableModel
        The model fitted to all rows; its `held_out` are the scores of the first fit on the held-out rows.
    """
    goal = Target.infer(rows, target, task)
    inputs = rows.without([target])
    inferred = Schema.infer(inputs, ignore, categories, day_first)  # all rows decide the kind of a column
    y, present = goal.read(rows)
    inputs = inputs.take(np.flatnonzero(present))
    is_class = goal.task == Task.CLASSIFICATION
    settings = {"n_estimators": members, "random_state": seed, "verbose": verbose}
    settings |= {} if max_iter is None else {"max_iter": max_iter}

    def fit_to(part: np.ndarray) -> tuple[Schema, FittedEstimator]:
        schema = inferred.refitted(inputs.take(part))
        estimator = (AnchoredClassifier if is_class else AnchoredRegressor)(**settings)
        try:
            return schema, estimator.fit(schema.encode(inputs.take(part))[0], y[part])
        except DivergenceError as error:
            raise TableError(rows.source, str(error)) from error

    held_out = held_out_rows(y, hold_out, is_class, seed)
    training = np.setdiff1d(np.arange(len(y)), held_out)
    on_stage(f"Fitting {members} members to {len(training):,} rows, to score them on {len(held_out):,} held-out rows")
    schema, estimator = fit_to(training)
    predictive = estimator.predict_dist(schema.encode(inputs.take(held_out), clip=True)[0])
    found = scores.score(y[held_out], predictive, getattr(estimator, "classes_", None))
    on_stage(f"Fitting the final model, {members} members, to all {len(y):,} rows")
    schema, estimator = fit_to(np.arange(len(y)))
    return TableModel(schema, goal, estimator, found)


def held_out_rows(y: np.ndarray, share: float, is_class: bool, seed: int) -> np.ndarray:
    """Return the sorted positions of the rows to hold out: a random share of them, rounded down.

    Parameters
    ----------
    y : (rows,)
        Targets.
    share : float
        Share of the rows to hold out, between 0 and 1.
    is_class : bool
        Whether to hold out this share of every class.
    seed : int
        Random seed.
    """
    groups = np.unique(y, return_inverse=True)[1] if is_class else np.zeros(len(y), int)
    order = np.random.default_rng([seed, 3]).permutation(len(y))
    chosen = []
    for group in np.unique(groups):
        in_group = order[groups[order] == group]
        chosen.append(in_group[: int(share * len(in_group))])
    held_out = np.sort(np.concatenate(chosen))
    if len(held_out) == 0:
        raise ArgumentError("hold_out", f"is {share:g}, which holds out none of {len(y)} rows", "use a larger share")
    return held_out
