"""Fit a model to a table: infer the kinds of its columns, score a first fit on held-out rows, then fit to all rows."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from anchored.errors import ArgumentError, TableError
from anchored.estimators import checkpoints
from anchored.estimators.classifiers import AnchoredClassifier
from anchored.estimators.guarantee import checked_rank
from anchored.estimators.regressors import AnchoredRegressor
from anchored.inference.failures import DivergenceError
from anchored.inference.splits import first_copies
from anchored.tables import scores
from anchored.tables.formats import ReadingOptions
from anchored.tables.kinds import infer as infer_kinds
from anchored.tables.large_tables import is_large, prepare
from anchored.tables.model import FittedEstimator, TableModel
from anchored.tables.rows import RowBatch
from anchored.tables.schema import Schema
from anchored.tables.table_sets import TableSet
from anchored.tables.target import Target, Task
from anchored.tables.used_rows import HOLD_OUT_SEED, guarantee_positions

CHECKPOINTS = ("scored", "final")  # subfolders of the checkpoint's folder, for the first fit and for the final fit


class FittedFiles(NamedTuple):
    """A model fitted to files, and the numbers of their rows."""

    model: TableModel
    n_rows: int  # rows of all files
    n_unknown: int  # rows without a target


def fit(
    rows: RowBatch,
    target: str,
    *,
    task: str = Task.AUTO,
    options: ReadingOptions | None = None,
    members: int = 10,
    max_iter: int | None = None,
    seed: int = 0,
    hold_out: float = 0.2,
    coverage: float | None = None,
    verbose: int = 0,
    checkpoint: Path | None = None,
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
    options : ReadingOptions or None
        What the user specified about the format of the table; the rest is inferred.
    members : int
        Number of members of the ensemble.
    max_iter : int or None
        Number of epochs; None for the estimator's default.
    seed : int
        Random seed of the split and of the training.
    hold_out : float
        Fraction of rows, between 0 and 1, held out from a first fit, to score it.
    coverage : float or None
        The coverage of intervals, or of sets of classes, to guarantee by calibration with the held-out rows; then the
        first fit is returned. None guarantees nothing.
    verbose : int
        1 shows progress bars.
    checkpoint : path or None
        Folder from which an interrupted fit is continued: each of the two fits keeps what it has trained there, as
        `AnchoredRegressor.fit` does. `remove_checkpoint` removes it.
    on_stage : function
        Called with a line of text before each of the two fits.

    Returns
    -------
    TableModel
        The model fitted to all rows, or to those not held out if they guarantee its coverage; its `held_out` are the
        scores of the first fit on the held-out rows.

    Raises
    ------
    TableError
        If the target cannot be predicted, no column can be read, or training diverges.
    ArgumentError
        If `hold_out` is so small that no row is held out, or too few to guarantee `coverage`.
    """
    options = options or ReadingOptions()
    kinds = infer_kinds(rows, options)  # from all rows, also those without a target
    target_column = Target.infer(rows, target, task, kinds.get(target))
    inputs = rows.without([target])
    inferred = Schema.infer(inputs, options, kinds)
    y, has_target = target_column.read(rows)
    inputs = inputs.take(np.flatnonzero(has_target))
    is_classification = target_column.task == Task.CLASSIFICATION
    settings = {"n_estimators": members, "random_state": seed, "verbose": verbose}
    settings |= {} if max_iter is None else {"max_iter": max_iter}

    estimator_class = AnchoredClassifier if is_classification else AnchoredRegressor

    def fit_to(positions: np.ndarray, name: str) -> tuple[Schema, FittedEstimator]:
        chosen = inputs.take(positions)
        schema = inferred.refitted(chosen)
        estimator = estimator_class(**settings)
        kept = None if checkpoint is None else checkpoint / name
        try:
            return schema, estimator.fit(schema.encode(chosen)[0], y[positions], checkpoint=kept)
        except DivergenceError as error:
            raise TableError(rows.source, str(error)) from error

    encoded = inferred.refitted(inputs).encode(inputs)[0]
    first = first_copies(encoded, np.unique(y, return_inverse=True)[1])
    if coverage is None:
        held_out_positions = held_out_rows(y, first, hold_out, is_classification, seed)
    else:
        held_out_positions = calibration_rows(rows.source, y, hold_out, coverage, is_classification, seed)
    training_positions = np.setdiff1d(np.arange(len(y)), held_out_positions)
    purpose = "score them" if coverage is None else f"score them, and guarantee a coverage of {coverage:g}"
    n_training, n_held_out = len(training_positions), len(held_out_positions)
    on_stage(f"Fitting {members} members to {n_training:,} rows; {n_held_out:,} held-out rows will {purpose}")
    schema, estimator = fit_to(training_positions, CHECKPOINTS[0])
    encoded, y_held_out = schema.encode(inputs.take(held_out_positions), clip=True)[0], y[held_out_positions]
    predictive = estimator.predict_dist(encoded)
    held_out_scores = scores.score(y_held_out, predictive, getattr(estimator, "classes_", None))
    if coverage is not None:
        estimator.conformalize(encoded, y_held_out, coverage)
        return TableModel(schema, target_column, estimator, held_out_scores)
    on_stage(f"Fitting the final model, {members} members, to all {len(y):,} rows")
    schema, estimator = fit_to(np.arange(len(y)), CHECKPOINTS[1])
    return TableModel(schema, target_column, estimator, held_out_scores)


def fit_files(
    files: TableSet,
    target: str,
    *,
    task: str = Task.AUTO,
    options: ReadingOptions | None = None,
    members: int = 10,
    max_iter: int | None = None,
    seed: int = 0,
    hold_out: float = 0.2,
    coverage: float | None = None,
    verbose: int = 0,
    checkpoint: Path | None = None,
    on_stage: Callable[[str], None] = lambda message: None,
) -> FittedFiles:
    """Fit a model to the rows of files, which may be larger than memory.

    A table of at most `inference.pieces.PIECE_ROWS` rows is fitted by `fit`. A larger table is read in batches, and one
    model is fitted to all but the held-out rows, at most `large_tables.MAX_HELD_OUT`. Arguments and errors are those
    of `fit`.
    """
    options = options or ReadingOptions()
    if not is_large(files, target):
        rows = files.read(files.names)
        model = fit(
            rows,
            target,
            task=task,
            options=options,
            members=members,
            max_iter=max_iter,
            seed=seed,
            hold_out=hold_out,
            coverage=coverage,
            verbose=verbose,
            checkpoint=checkpoint,
            on_stage=on_stage,
        )
        return FittedFiles(model, len(rows), int(np.sum(~model.target.read(rows)[1])))
    table = prepare(files, target, task, options, hold_out, seed)
    X, y = table.held_out_rows()
    if coverage is not None:
        _check_guarantee(coverage, len(y))
    settings = {"n_estimators": members, "random_state": seed, "verbose": verbose}
    settings |= {} if max_iter is None else {"max_iter": max_iter}
    is_classification = table.target.task == Task.CLASSIFICATION
    estimator = (AnchoredClassifier if is_classification else AnchoredRegressor)(**settings)
    on_stage(f"Fitting {members} members to {table.n_rows:,} rows; {len(y):,} held-out rows will score them")
    try:
        estimator.fit_stream(table, None if checkpoint is None else checkpoint / CHECKPOINTS[1])
    except DivergenceError as error:
        raise TableError(files.source, str(error)) from error
    held_out_scores = scores.score(y, estimator.predict_dist(X), getattr(estimator, "classes_", None))
    if coverage is not None:
        estimator.conformalize(X, y, coverage)
    return FittedFiles(TableModel(table.schema, table.target, estimator, held_out_scores), table.n_all, table.n_unknown)


def remove_checkpoint(folder: Path) -> None:
    """Remove what a finished `fit` has kept in `folder`, and the folder if nothing else is in it."""
    for name in CHECKPOINTS:
        if (folder / name).is_dir():  # with a guarantee there is no final fit
            checkpoints.remove(folder / name)
    if not any(folder.iterdir()):
        folder.rmdir()


def held_out_rows(y: np.ndarray, first: np.ndarray, share: float, stratify: bool, seed: int) -> np.ndarray:
    """Return the sorted positions of the held-out rows.

    They are a random `share` of all rows, or of the rows of each class, rounded down; a little less or more if copies
    of a row have to stay together. An ArgumentError is raised if no row is held out.

    Parameters
    ----------
    y : (rows,)
        Targets.
    first : (rows,)
        For each row the position of the first row that equals it.
    share : float
        Share of the rows to hold out, between 0 and 1.
    stratify : bool
        Whether to hold out this share of each class, rather than of all rows.
    seed : int
        Random seed.
    """
    groups = np.unique(y, return_inverse=True)[1] if stratify else np.zeros(len(y), int)
    rank = np.argsort(np.random.default_rng([seed, HOLD_OUT_SEED]).permutation(len(y)))[first]
    order = np.argsort(rank, kind="stable")
    chosen = []
    for group in np.unique(groups):
        in_group = order[groups[order] == group]
        n_chosen = int(share * len(in_group))
        if n_chosen > 0:
            with_copies = int(np.sum(rank[in_group] <= rank[in_group[n_chosen - 1]]))
            n_chosen = with_copies if with_copies < len(in_group) else n_chosen  # some rows must remain to train on
        chosen.append(in_group[:n_chosen])
    positions = np.sort(np.concatenate(chosen))
    if len(positions) == 0:
        where = f"in each of the {len(chosen)} classes" if stratify else f"of {len(y)}"
        reason = f"is {share:g}, which rounds down to no row {where}"
        raise ArgumentError("hold_out", reason, "use a larger fraction")
    return positions


def calibration_rows(
    source: str, y: np.ndarray, share: float, coverage: float, is_classification: bool, seed: int
) -> np.ndarray:
    """Return the sorted positions of the rows that calibrate a coverage: a random `share` of all rows, rounded down.

    Unlike `held_out_rows`, it ignores copies and classes: the guarantee holds only if the calibration rows are drawn
    like new rows.

    Parameters
    ----------
    source : str
        The table, for messages.
    y : (rows,)
        Targets.
    share : float
        Share of the rows, between 0 and 1.
    coverage : float
        The coverage to guarantee.
    is_classification : bool
        Whether the targets are labels; a TableError is raised if a class has no row left to train on.
    seed : int
        Random seed.
    """
    n_chosen = int(share * len(y))
    _check_guarantee(coverage, n_chosen)
    chosen = guarantee_positions(len(y), n_chosen, seed)
    lost = np.setdiff1d(y, np.delete(y, chosen))
    if is_classification and len(lost) > 0:
        problem = f"all rows of the class {lost[0].item()!r} are among the held-out rows, so it cannot be learnt"
        raise TableError(source, problem, "Use another seed, hold out fewer rows, or add rows of this class")
    return chosen


def _check_guarantee(coverage: float, n_rows: int) -> None:
    """Raise an ArgumentError if `n_rows` held-out rows are too few to guarantee `coverage`."""
    try:
        checked_rank(coverage, n_rows)
    except ArgumentError as error:
        raise ArgumentError("guarantee", error.reason, "use a larger share of held-out rows, or more rows") from error
