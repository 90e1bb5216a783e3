"""Predict and score files of any length, some rows at a time."""

from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from anchored.model.predictive import Predictive
from anchored.tables.columns import Surprise
from anchored.tables.errors import TableError
from anchored.tables.files import ROWS_AT_ONCE, open_table, writing
from anchored.tables.model import TableModel
from anchored.tables.schema import merged

NEEDED = "which the model reads"


def predict_file(
    model: TableModel,
    data: Path,
    out: Path,
    *,
    coverage: float = 0.95,
    keep: Sequence[str] = (),
    strict: bool = False,
    at_once: int = ROWS_AT_ONCE,
    on_rows: Callable[[int], None] = lambda n_rows: None,
) -> tuple[int, list[Surprise]]:
    """Write a prediction for every row; how many there were, and what was unlike the fit."""
    table = open_table(data)
    table.require(model.schema.names, NEEDED)
    table.require(keep, "named by --keep")
    n_rows, surprises = 0, list[Surprise]()
    with writing(out) as write:
        for rows in table.rows(list(dict.fromkeys([*model.schema.names, *keep])), at_once):
            predictive, found = model.predict(rows, strict)
            columns = prediction_columns(model, predictive, coverage)
            taken = set(keep) & set(columns)
            if taken:
                raise TableError(f"--keep {min(taken)}: predictions have a column of this name; rename it in {data}")
            write({name: rows.columns[name] for name in keep} | columns)
            surprises = merged([*surprises, *found])
            n_rows += len(rows)
            on_rows(len(rows))
    return n_rows, surprises


def prediction_columns(model: TableModel, predictive: Any, coverage: float) -> dict[str, np.ndarray | pa.Array]:
    """Names and values of what is written: an observation's mean, s.d. and interval, or its class."""
    decimals = model.target.decimals
    if isinstance(predictive, Predictive):
        lower, upper = predictive.interval(coverage)
        percent = f"{100 * coverage:g}"
        columns = {
            "mean": predictive.mean,
            "std": predictive.std,
            "epistemic_std": np.sqrt(predictive.epistemic_variance),
            f"lower_{percent}": lower,
            f"upper_{percent}": upper,
        }
        return {name: values.round(decimals) for name, values in columns.items()}
    classes, p = model.classes, predictive.probabilities
    assert classes is not None
    shares = {f"probability_{label}": p[:, i] for i, label in enumerate(classes)}
    entropies = {n: getattr(predictive, n) for n in ("total_entropy", "aleatoric_entropy", "epistemic_entropy")}
    numbers = {name: values.round(decimals) for name, values in (shares | entropies).items()}
    return {"predicted": pa.array(classes[p.argmax(axis=1)])} | numbers


def predict_known(
    model: TableModel, data: Path, strict: bool = False, on_rows: Callable[[int], None] = lambda n_rows: None
) -> tuple[np.ndarray, Any, list[Surprise]]:
    """Targets of the rows that have one, their predictive distributions, and what was unlike the fit."""
    table = open_table(data)
    table.require(model.schema.names, NEEDED)
    table.require([model.target.name], "which holds what is to be predicted")
    targets, pieces, surprises = [], [], list[Surprise]()
    for rows in table.rows([*model.schema.names, model.target.name]):
        y, present = model.targets(rows)
        predictive, found = model.predict(rows, strict)
        targets.append(y)
        pieces.append([array[present] for array in _arrays(predictive)])
        surprises = merged([*surprises, *found])
        on_rows(len(rows))
    y = np.concatenate(targets)
    if len(y) == 0:
        raise TableError(f"{data}: {model.target.name!r} is missing in every row; there is nothing to compare with")
    arrays = [np.concatenate(column) for column in zip(*pieces, strict=True)]
    kind: Any = type(predictive)
    return y, kind(*arrays, predictive.n_members), surprises


def _arrays(predictive: Any) -> list[np.ndarray]:
    """What a predictive distribution holds of each row."""
    return [getattr(predictive, field.name) for field in fields(predictive) if field.name != "n_members"]
