"""A model of a table: what its columns mean, and an estimator fitted to them."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from anchored.model.predictive import CategoricalPredictive, Predictive
from anchored.tables.novelties import Novelty
from anchored.tables.rows import RowBatch
from anchored.tables.schema import Schema
from anchored.tables.scores import Scores
from anchored.tables.target import Target

MOST_SHOWN = 12


class FittedEstimator(Protocol):
    """What a model of a table needs of its estimator: AnchoredRegressor and AnchoredClassifier have it."""

    n_rows_seen_: int

    def predict_dist(self, X: np.ndarray) -> Predictive | CategoricalPredictive:
        """The predictive distribution of each row of X, (rows, features)."""


@dataclass(frozen=True)
class TableModel:
    """An estimator that reads rows of a file. `fitting.fit` makes one, `saved_model` writes and reads its file.

    Attributes
    ----------
    schema : how columns become features
    target : the column it predicts
    estimator : fitted to the features of all rows that have a target
    held_out : scores of a model fitted in the same way to some of the rows, on the others
    """

    schema: Schema
    target: Target
    estimator: FittedEstimator
    held_out: Scores

    def predict(self, rows: RowBatch, strict: bool = False) -> tuple[Predictive | CategoricalPredictive, list[Novelty]]:
        """The predictive distribution of each row, and what was unlike the fit; `strict` as in `Schema.encode`."""
        matrix, novelties = self.schema.encode(rows, strict)
        return self.estimator.predict_dist(matrix), novelties

    @property
    def n_rows(self) -> int:
        """Number of rows it was fitted to."""
        return self.estimator.n_rows_seen_

    @property
    def classes(self) -> np.ndarray | None:
        """Labels of the classes, in the order of the probabilities' columns; None for regression."""
        return getattr(self.estimator, "classes_", None)

    def targets(self, rows: RowBatch) -> tuple[np.ndarray, np.ndarray]:
        """The targets of the rows that have one, (known rows,), and which rows do, (rows,) booleans.

        A class that the model does not know raises a TableError.
        """
        y, present = self.target.read(rows)
        known = y if self.classes is None else self.classes
        unknown = ~np.isin(y, known)
        if unknown.any():
            index = int(np.flatnonzero(present)[np.argmax(unknown)])
            label = y[np.argmax(unknown)].item()
            listed = ", ".join(map(repr, known[:MOST_SHOWN].tolist())) + (", ..." if len(known) > MOST_SHOWN else "")
            raise rows.error(index, self.target.name, f"{label!r} is none of the classes {listed}")
        return y, present
