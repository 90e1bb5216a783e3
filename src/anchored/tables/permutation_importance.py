"""Permutation importance: how much a model's uncertainty and error change when a column is shuffled among rows."""

from dataclasses import asdict, dataclass, replace

import numpy as np
import pyarrow as pa

from anchored.model.predictive import CategoricalPredictive, Predictive
from anchored.storage.json_values import JsonObject
from anchored.tables.model import TableModel
from anchored.tables.rows import RowBatch
from anchored.tables.scores import score

MAX_ROWS = 2_000  # a random subset of a longer table is used
N_SHUFFLES = 5  # shuffles of each column, over which changes are averaged


@dataclass(frozen=True)
class Importance:
    """The permutation importance of one column: what changes when it is shuffled, averaged over shuffles.

    Changes are in units of the target, or in nats for classes.

    Attributes
    ----------
    column : str
        Name of the column.
    uncertainty : float
        Root mean square change of a row's predictive standard deviation, or of its entropy.
    epistemic : float
        Root mean square change of the epistemic part of a row's standard deviation, or entropy.
    error : float
        Increase of the RMSE, or of the log loss.
    """

    column: str
    uncertainty: float
    epistemic: float
    error: float

    def to_json(self) -> JsonObject:
        """Return all fields by name, in JSON's types."""
        return asdict(self)


def permutation_importance(model: TableModel, rows: RowBatch, y: np.ndarray, seed: int = 0) -> list[Importance]:
    """Return the importance of every column that the model reads, sorted by `uncertainty`, the largest first.

    Parameters
    ----------
    model : TableModel
        The fitted model.
    rows : RowBatch
        Rows with known targets. Each column is shuffled among them N_SHUFFLES times, before it is encoded.
    y : (rows,)
        Their targets.
    seed : int
        Random seed of the subset of rows and of the shuffles.
    """
    rng = np.random.default_rng(seed)
    subset = np.sort(rng.permutation(len(rows))[:MAX_ROWS])
    rows, y = rows.take(subset), y[subset]
    before = model.predict(rows)[0]
    importances = []
    for name in model.schema.names:
        changes = []
        for _ in range(N_SHUFFLES):
            shuffled = rows.columns[name].take(pa.array(rng.permutation(len(rows))))
            after = model.predict(replace(rows, columns={**rows.columns, name: shuffled}))[0]
            pairs = zip(uncertainties(after), uncertainties(before), strict=True)
            squared_changes = [np.mean((a - b) ** 2) for a, b in pairs]
            changes.append([*squared_changes, _error(model, y, after) - _error(model, y, before)])
        total, epistemic, error = np.mean(changes, axis=0)
        importances.append(Importance(name, float(np.sqrt(total)), float(np.sqrt(epistemic)), float(error)))
    return sorted(importances, key=lambda importance: -importance.uncertainty)


def uncertainties(predictive: Predictive | CategoricalPredictive) -> tuple[np.ndarray, np.ndarray]:
    """Return the total and the epistemic uncertainty of `predictive`, (rows,) each.

    They are standard deviations in units of the target, or entropies in nats.
    """
    if isinstance(predictive, Predictive):
        return predictive.std, np.sqrt(predictive.epistemic_variance)
    return predictive.total_entropy, predictive.epistemic_entropy


def _error(model: TableModel, y: np.ndarray, predictive: Predictive | CategoricalPredictive) -> float:
    """Return the RMSE of the predictions, or the log loss for classes."""
    scores = score(y, predictive, model.classes)
    return float(scores["rmse" if "rmse" in scores else "log_loss"] or 0.0)
