"""Fit a model to a table: infer what its columns mean, score on rows held out, then fit to all rows."""

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
    """A model of the column called `target`, fitted to all rows that have one.

    Parameters
    ----------
    rows : all rows of the table
    target : name of the column to predict
    task : "regression", "classification", or "auto" to infer it from the target
    ignore : names of columns to leave out
    categories : names of columns to read as categories
    day_first : whether 3/4/2024 is the third of April where all dates of a column could be either
    members : networks in the ensemble
    max_iter : passes over the rows in training; None for the estimator's default
    seed : random seed for the rows held out and for training
    hold_out : share of the rows, between 0 and 1, that a first fit is scored on
    verbose : 1 shows progress bars
    on_stage : is called with a line of text before each of the two fits

    Returns
    -------
    TableModel
        Its `held_out` scores are those of the first fit on the rows it had not seen.
    """
    goal = Target.infer(rows, target, task)
    inputs = rows.without([target])
    inferred = Schema.infer(inputs, ignore, categories, day_first)  # all rows decide what kind a column is
    y, present = goal.read(rows)
    inputs = inputs.take(np.flatnonzero(present))
    is_class = goal.task == Task.CLASSIFICATION
    settings = {"n_estimators": members, "random_state": seed, "verbose": verbose}
    settings |= {} if max_iter is None else {"max_iter": max_iter}

    def fitted(part: np.ndarray) -> tuple[Schema, FittedEstimator]:
        schema = inferred.refitted(inputs.take(part))
        estimator = (AnchoredClassifier if is_class else AnchoredRegressor)(**settings)
        try:
            return schema, estimator.fit(schema.encode(inputs.take(part))[0], y[part])
        except DivergenceError as error:
            raise TableError(rows.source, str(error)) from error

    held_out = held_out_rows(y, hold_out, is_class, seed)
    rest = np.setdiff1d(np.arange(len(y)), held_out)
    on_stage(f"Scoring: fitting {members} members to {len(rest):,} rows, {len(held_out):,} held out")
    schema, estimator = fitted(rest)
    predictive = estimator.predict_dist(schema.encode(inputs.take(held_out), clip=True)[0])
    found = scores.score(y[held_out], predictive, getattr(estimator, "classes_", None))
    on_stage(f"Final model: fitting {members} members to all {len(y):,} rows")
    schema, estimator = fitted(np.arange(len(y)))
    return TableModel(schema, goal, estimator, found)


def held_out_rows(y: np.ndarray, share: float, is_class: bool, seed: int) -> np.ndarray:
    """Sorted positions of a random `share` of the rows with targets `y`; of every class its share, rounded down."""
    groups = np.unique(y, return_inverse=True)[1] if is_class else np.zeros(len(y), int)
    order = np.random.default_rng([seed, 3]).permutation(len(y))
    chosen = []
    for group in np.unique(groups):
        members = order[groups[order] == group]
        chosen.append(members[: int(share * len(members))])
    held_out = np.sort(np.concatenate(chosen))
    if len(held_out) == 0:
        raise ArgumentError("hold_out", f"is {share:g}, which of {len(y)} rows leaves none to score on", "raise it")
    return held_out
