"""A model of a table: a schema of its columns, and an estimator fitted to them."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from anchored.estimators.candidates import Candidate
from anchored.estimators.guarantee import Guarantee
from anchored.model.predictive import CategoricalPredictive, Predictive
from anchored.tables.novelties import Novelty
from anchored.tables.rows import RowBatch
from anchored.tables.schema import Schema
from anchored.tables.scores import Scores
from anchored.tables.target import Target

MAX_SHOWN = 12  # classes listed in a message


class FittedEstimator(Protocol):
    """The part of the estimators' interface that a model of a table uses."""

    n_rows_seen_: int  # number of training rows
    fingerprint_: str  # of the training data
    candidates_: list[Candidate]  # settings that were compared, the chosen one first
    random_state: object  # the seed
    guarantee_: Guarantee | None  # of the coverage of intervals or sets of classes

    def conformalize(self, X: np.ndarray, y: np.ndarray, coverage: float) -> object:
        """Set `guarantee_` from rows that the model was not fitted to."""

    def predict_dist(self, X: np.ndarray) -> Predictive | CategoricalPredictive:
        """Return the predictive distribution of each row of X, (rows, features)."""


@dataclass(frozen=True)
class TableModel:
    """An estimator that predicts a column of a table; `fitting.fit` returns one, and `saved_model` saves and loads it.

    Attributes
    ----------
    schema : Schema
        How columns are encoded as features.
    target : Target
        The column it predicts.
    estimator : FittedEstimator
        Fitted to the features of all rows that have a target.
    held_out : Scores or None
        Scores of a first model, which was fitted without the held-out rows, on these rows; None for a model that was
        fitted in Python, without holding out rows.
    """

    schema: Schema
    target: Target
    estimator: FittedEstimator
    held_out: Scores | None

    def predict(self, rows: RowBatch, strict: bool = False) -> tuple[Predictive | CategoricalPredictive, list[Novelty]]:
        """Return the predictive distribution of each of `rows`, and the values unlike the training data.

        If `strict`, an unseen category, or a missing value in a column that had no missing values in training, raises
        an ArgumentError. A number too far from the training data raises a TableError.
        """
        matrix, novelties = self.schema.encode(rows, strict)
        return self.estimator.predict_dist(matrix), novelties

    @property
    def n_rows(self) -> int:
        """Number of training rows."""
        return self.estimator.n_rows_seen_

    @property
    def classes(self) -> np.ndarray | None:
        """Class labels in the order of the predicted probabilities; None for regression."""
        return getattr(self.estimator, "classes_", None)

    def targets(self, rows: RowBatch) -> tuple[np.ndarray, np.ndarray]:
        """Return the targets of `rows` that are not missing, and a mask, (rows,), of the rows that have one.

        The targets have the shape (rows with a target,). A class that did not occur in training raises a TableError.
        """
        y, has_target = self.target.read(rows)
        allowed = y if self.classes is None else self.classes  # any number is allowed for regression
        is_unknown = ~np.isin(y, allowed)
        if is_unknown.any():
            index = int(np.flatnonzero(has_target)[np.argmax(is_unknown)])
            label = y[np.argmax(is_unknown)].item()
            listed = ", ".join(map(repr, allowed[:MAX_SHOWN].tolist())) + (", ..." if len(allowed) > MAX_SHOWN else "")
            raise rows.error(index, self.target.name, f"{label!r} is not one of the classes {listed}")
        return y, has_target
