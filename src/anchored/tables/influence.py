"""What each column does to a model's uncertainty and to its errors: shuffle it among the rows and see."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from anchored.model.predictive import Predictive
from anchored.tables.cells import Rows
from anchored.tables.model import TableModel
from anchored.tables.scores import score

MOST_ROWS = 2_000
N_SHUFFLES = 5


@dataclass(frozen=True)
class Influence:
    """Of one column, in units of the target, or in nats for classes."""

    column: str
    uncertainty: float  # root mean square change of a row's uncertainty
    epistemic: float  # of the part of it that more data would shrink
    error: float  # rise of the RMSE, or of the log loss


def influences(model: TableModel, rows: Rows, y: np.ndarray, seed: int = 0) -> list[Influence]:
    """Of all columns, the one that uncertainty depends on most first. All features of a column move together."""
    rng = np.random.default_rng(seed)
    some = np.sort(rng.permutation(len(rows))[:MOST_ROWS])
    rows, y = rows.take(some), y[some]
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
        found.append(Influence(name, float(np.sqrt(total)), float(np.sqrt(epistemic)), float(error)))
    return sorted(found, key=lambda influence: -influence.uncertainty)


def uncertainties(predictive: Any) -> tuple[np.ndarray, np.ndarray]:
    """Of each row: all of it, and the part that more data would shrink."""
    if isinstance(predictive, Predictive):
        return predictive.std, np.sqrt(predictive.epistemic_variance)
    return predictive.total_entropy, predictive.epistemic_entropy


def _error(model: TableModel, y: np.ndarray, predictive: Any) -> float:
    scores = score(y, predictive, model.classes)
    return scores["rmse"] if "rmse" in scores else scores["log_loss"]
