"""Save and load a model of a table: the estimator's safetensors file, with the schema as JSON in its header."""

from copy import copy
from pathlib import Path

import numpy as np

from anchored.errors import TableError
from anchored.estimators import loading, persistence
from anchored.estimators.base import BayesianEstimator
from anchored.storage import archive
from anchored.storage.headers import Header, StorageError
from anchored.tables import scores
from anchored.tables.model import FittedEstimator, TableModel
from anchored.tables.schema import Schema
from anchored.tables.target import Target, Task


def save(model: TableModel, path: Path) -> None:
    """Save `model` to the file `path`. `load` reads the model back; `anchored.load` reads only its estimator."""
    table = {"schema": model.schema.to_json(), "target": model.target.to_json(), "held_out": model.held_out or {}}
    estimator = copy(model.estimator)
    assert isinstance(estimator, BayesianEstimator)
    estimator.feature_names_in_ = np.array(model.schema.feature_names, object)  # `load` compares them with the schema
    persistence.save(estimator, path, table)


def load(path: Path | str) -> TableModel:
    """Load the model that `save` wrote to `path`; raises a TableError if the file cannot be loaded."""
    path = Path(path)
    if path.is_dir():
        raise TableError(str(path), "this is a folder", "Pass the file of a fitted model")
    if not path.exists():
        raise TableError(str(path), "there is no such model", "Fit one first, or correct the name")
    try:
        estimator, table = loading.load_with_table(path)
        if table is None:
            problem = "this is an estimator without a schema of the columns of a table"
            raise TableError(str(path), problem, "Pass the file of a model that was fitted to a table")
        with archive.reading(path):
            return _from_json(estimator, table)
    except StorageError as error:
        raise TableError(str(path), error.reason) from error


def _from_json(estimator: FittedEstimator, table: Header) -> TableModel:
    """Return the model of `estimator` and the stored `table`; raise a StorageError unless they agree."""
    schema, target = Schema.from_json(table.child("schema")), Target.from_json(table.child("target"))
    if not schema.has_features(vars(estimator).pop("feature_names_in_", ())):
        table.refuse("does not describe the columns that the estimator reads", "schema")
    classes = getattr(estimator, "classes_", None)
    predicts_numbers = classes is None and target.numeric and getattr(estimator, "y_is_vector_", False)
    predicts_labels = classes is not None and classes.dtype.kind == ("i" if target.numeric else "U")
    is_consistent = predicts_numbers if target.task == Task.REGRESSION else predicts_labels
    if target.name in schema.names or not is_consistent:
        table.refuse("does not describe what the estimator predicts", "target")
    stored = table.child("held_out")
    held_out = scores.from_json(stored, classes is not None) if len(stored) else None
    return TableModel(schema, target, estimator, held_out)
