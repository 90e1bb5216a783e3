"""Partial dependence: the prediction, averaged over rows, if one column had the same value in all of them."""

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anchored.model.predictive import Predictive
from anchored.tables import values
from anchored.tables.columns import CategoryColumn
from anchored.tables.model import TableModel
from anchored.tables.rows import RowBatch

MAX_ROWS = 200  # predictions are averaged over at most this many rows
MAX_VALUES = 12  # of a column


@dataclass(frozen=True)
class PartialDependence:
    """How the prediction depends on one column.

    Attributes
    ----------
    column : str
        Name of the column.
    values : list of str
        Values of the column, ascending, or in the order of its levels.
    numbers : (values,) or None
        The values as numbers, dates in days since 1970; None for categories.
    mean : (values,)
        The mean prediction, averaged over rows, if all rows had this value; in units of the target.
    std : (values,)
        Root mean square over rows of the epistemic standard deviation, in units of the target.
    """

    column: str
    values: list[str]
    numbers: np.ndarray | None
    mean: np.ndarray
    std: np.ndarray


def partial_dependence(model: TableModel, rows: RowBatch, name: str) -> PartialDependence:
    """Return how the number predicted by `model` depends on the column `name`, which the model must read.

    Predictions are averaged over at most MAX_ROWS of `rows`, evenly spaced.
    """
    rows = rows.take(np.linspace(0, len(rows) - 1, min(len(rows), MAX_ROWS)).round().astype(int))
    column = next(column for column in model.schema.columns if column.name == name)
    features = np.zeros((len(rows), len(column.feature_names)))
    column.encode(rows, features, clip=True)
    is_category = isinstance(column, CategoryColumn)
    keys = features.argmax(axis=1) if is_category else features[:, 0]  # the first feature is the number, or the day
    positions = _positions(keys, values.as_mask(pc.is_valid(values.text(rows.columns[name], column.written.missing))))
    means, stds = [], []
    for position in positions:
        same = rows.columns[name].take(pa.array(np.full(len(rows), position)))
        predictive = model.predict(replace(rows, columns={**rows.columns, name: same}))[0]
        assert isinstance(predictive, Predictive)
        means.append(predictive.mean.mean())
        stds.append(np.sqrt(predictive.epistemic_variance.mean()))
    shown = values.text(rows.columns[name]).take(pa.array(positions)).to_pylist()
    numbers = None if is_category else keys[positions]
    return PartialDependence(name, shown, numbers, np.array(means), np.array(stds))


def _positions(keys: np.ndarray, is_known: np.ndarray) -> np.ndarray:
    """Return the positions of rows, one for each value of a column to show, in the order of its `keys`, (rows,).

    At most MAX_VALUES of the distinct keys of the rows marked by `is_known` are shown, evenly spaced in their order.
    """
    _, first = np.unique(keys[is_known], return_index=True)
    chosen = np.flatnonzero(is_known)[first]
    spread = np.linspace(0, len(chosen) - 1, min(MAX_VALUES, len(chosen))).round().astype(int)
    return chosen[np.unique(spread)]
