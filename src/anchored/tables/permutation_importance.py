"""Permutation importance of columns: how a model's uncertainty and error change when a column is shuffled."""

from dataclasses import asdict, dataclass, replace

import numpy as np
import pyarrow as pa

from anchored.model.predictive import CategoricalPredictive, Predictive
from anchored.storage.json_values import JsonObject
from anchored.tables.model import TableModel
from anchored.tables.rows import RowBatch
from anchored.tables.scores import score

MOST_ROWS = 2_000
N_SHUFFLES = 5


@dataclass(frozen=True)
class Importance:
    """Of one column, in units of the target, or in nats for classes.

    Attributes
    ----------
    column : its name
    uncertainty : root mean square change of a row's standard deviation, or of its entropy
    epistemic : the same for the epistemic part, which more data would shrink
    error : rise of the RMSE, or of the log loss
    """

    column: str
    uncertainty: float
    epistemic: float
    error: float

    def to_json(self) -> JsonObject:
        """All fields by name."""
        return asdict(self)


def permutation_importance(model: TableModel, rows: RowBatch, y: np.ndarray, seed: int = 0) -> list[Importance]:
    """The importance of every column the model reads, that with the largest effect on the uncertainty first.

    Each column of `rows`, whose targets are `y`, is shuffled N_SHUFFLES times; all features made of it move together.
    Of more than MOST_ROWS rows, a random subset is used. `seed` makes the shuffles reproducible.
    """
    rng = np.random.default_rng(seed)
    subset = np.sort(rng.permutation(len(rows))[:MOST_ROWS])
    rows, y = rows.take(subset), y[subset]
    before = model.predict(rows)[0]
    found = []
    for name in model.schema.names:
        changes = []
        for _ in range(N_SHUFFLES):
            shuffled = rows.columns[name].take(pa.array(rng.permutation(len(rows))))
            after = model.predict(replace(rows, columns={**rows.columns, name: shuffled}))[0]
            moves = [np.mean((a - b) ** 2) for a, b in zip(uncertainties(after), uncertainties(before), strict=True)]
            changes.append([*moves, _error(model, y, after) - _error(model, y, before)])
        total, epistemic, error = np.mean(changes, axis=0)
        found.append(Importance(name, float(np.sqrt(total)), float(np.sqrt(epistemic)), float(error)))
    return sorted(found, key=lambda importance: -importance.uncertainty)


def uncertainties(predictive: Predictive | CategoricalPredictive) -> tuple[np.ndarray, np.ndarray]:
    """Total and epistemic uncertainty of each row, (rows,) each: standard deviations, or entropies in nats."""
    if isinstance(predictive, Predictive):
        return predictive.std, np.sqrt(predictive.epistemic_variance)
    return predictive.total_entropy, predictive.epistemic_entropy


def _error(model: TableModel, y: np.ndarray, predictive: Predictive | CategoricalPredictive) -> float:
    scores = score(y, predictive, model.classes)
    return float(scores["rmse" if "rmse" in scores else "log_loss"] or 0.0)
