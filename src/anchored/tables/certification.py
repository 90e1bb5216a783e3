"""Measure how far the model of a table is from the exact posterior."""

import numpy as np

from anchored.certification.certificate import Certificate
from anchored.certification.certificate import certify as certify_estimator
from anchored.errors import DataMismatchError, TableError
from anchored.tables.model import TableModel
from anchored.tables.rows import RowBatch
from anchored.tables.target import Task
from anchored.tables.used_rows import training_positions


def certify(model: TableModel, rows: RowBatch, max_memory_gb: float = 2.0) -> Certificate:
    """Return a certificate of how far `model` is from the exact posterior. Only regression can be certified.

    Parameters
    ----------
    model : TableModel
        The fitted model.
    rows : RowBatch
        The rows that `model` was fitted to, in the same order; or all rows of the file that was fitted, with the rows
        held out for a guarantee.
    max_memory_gb : float
        Memory limit, in GB, of the matrices of rows × rows that the exact posterior needs.

    Raises
    ------
    TableError
        If the target is a class, or `rows` are not those that the model was fitted to.
    ArgumentError
        If the exact posterior needs more memory than `max_memory_gb`.
    """
    if model.target.task == Task.CLASSIFICATION:
        problem = "the posterior of classes has no closed form; only regression can be certified"
        raise TableError(f"column {model.target.name!r}", problem)
    y, has_target = model.targets(rows)
    training = training_positions(model, len(y))
    y, matrix = y[training], model.schema.encode(rows.take(np.flatnonzero(has_target)[training]))[0]
    try:
        return certify_estimator(model.estimator, matrix, y, max_memory_gb=max_memory_gb)
    except DataMismatchError as error:
        problem = "these are not the rows that the model was fitted to, in the same order"
        raise TableError(rows.source, problem, "Pass the file that the model was fitted to") from error
