"""Predict the rows of a file in batches, so that it may be larger than memory."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from anchored.errors import ArgumentError, TableError
from anchored.inference import cluster
from anchored.model.predictive import CategoricalPredictive, Predictive
from anchored.tables.files import BATCH_SIZE, Table, open_table
from anchored.tables.model import TableModel
from anchored.tables.novelties import Novelty, merged
from anchored.tables.parallel import map_ahead
from anchored.tables.rows import RowBatch
from anchored.tables.typed_files import PARQUET
from anchored.tables.writing import writing
from anchored.types import OnProgress

NEEDED = "which the model reads"  # why a column is required, in error messages
Predicted = tuple[Predictive | CategoricalPredictive, list[Novelty]]  # what TableModel.predict returns
ENTROPIES = ("total_entropy", "aleatoric_entropy", "epistemic_entropy")


def predict_file(
    model: TableModel,
    data: Path,
    out: Path,
    *,
    coverage: float = 0.95,
    keep: Sequence[str] | None = (),
    strict: bool = False,
    encoding: str | None = None,
    batch_size: int = BATCH_SIZE,
    on_rows: Callable[[int], None] = lambda n_rows: None,
) -> tuple[int, list[Novelty]]:
    """Write a prediction for every row of `data` to `out`.

    Parameters
    ----------
    model : TableModel
        The fitted model.
    data : Path
        A CSV, Parquet, Arrow or Excel file; "-" is standard input.
    out : Path
        The file to write, CSV or Parquet according to its suffix, written completely or not at all; "-" is standard
        output, as CSV.
    coverage : float
        Probability, between 0 and 1, that an interval contains the observation.
    keep : sequence of str or None
        Names of columns of `data` to copy to `out`; None copies all.
    strict : bool
        Whether an unseen category, or a missing value in a column that had no missing values in training, raises an
        ArgumentError.
    encoding : str or None
        Encoding of a CSV file; None is UTF-8.
    batch_size : int
        Largest number of rows that are predicted at a time.
    on_rows : function
        Called with the number of rows of each batch, after it is predicted.

    Returns
    -------
    n_rows : int
        Number of rows predicted.
    novelties : list of Novelty
        Values unlike the training data.
    """
    table = open_table(data, encoding)
    table.require(model.schema.names, NEEDED)
    keep = [name for name in table.names if name] if keep is None else keep
    table.require_argument("keep", keep)
    n_rows, novelties = 0, list[Novelty]()
    is_exact = out.suffix.lower() in PARQUET  # in text, digits beyond the precision of float32 would be a waste
    with writing(out) as write:
        batches = table.batches(list(dict.fromkeys([*model.schema.names, *keep])), batch_size)
        for rows, (predictive, novelties_of_batch) in _predicted(model, batches, strict):
            columns = prediction_columns(model, predictive, coverage)
            in_both = set(keep) & set(columns)
            if in_both:
                reason = f"names {min(in_both)!r}, but the predictions have a column of the same name"
                raise ArgumentError("keep", reason, f"rename it in {data}")
            columns = columns if is_exact else rounded(columns, model.target.decimals)
            write({name: rows.columns[name] for name in keep} | columns)
            novelties = merged([*novelties, *novelties_of_batch])
            n_rows += len(rows)
            on_rows(len(rows))
    return n_rows, novelties


def prediction_columns(
    model: TableModel, predictive: Predictive | CategoricalPredictive, coverage: float
) -> dict[str, np.ndarray | pa.Array]:
    """Return the columns of a file of predictions by name, (rows,) each.

    For regression, the columns are the mean, the standard deviation of an observation, its epistemic part, and the ends
    of an interval with probability `coverage`, in units of the target. For classes, they are the most probable label,
    the probability of each label, and entropies in nats. If the model guarantees a coverage, the ends of the guaranteed
    interval follow, or for each label whether it is in the guaranteed set.

    Parameters
    ----------
    model : TableModel
        The fitted model.
    predictive : Predictive or CategoricalPredictive
        Its predictive distribution of the rows.
    coverage : float
        Probability of the interval, between 0 and 1.
    """
    guarantee = model.estimator.guarantee_
    promised = "" if guarantee is None else f"{100 * guarantee.coverage:g}"
    if isinstance(predictive, Predictive):
        lower, upper = predictive.interval(coverage)
        percent = f"{100 * coverage:g}"
        ends = () if guarantee is None else guarantee.interval(predictive)
        names = (f"guaranteed_lower_{promised}", f"guaranteed_upper_{promised}")
        return {
            "mean": predictive.mean,
            "std": predictive.std,
            "epistemic_std": np.sqrt(predictive.epistemic_variance),
            f"lower_{percent}": lower,
            f"upper_{percent}": upper,
            **dict(zip(names, ends)),
        }
    classes, p = model.classes, predictive.probabilities
    assert classes is not None
    probabilities = {f"probability_{label}": p[:, i] for i, label in enumerate(classes)}
    entropies = {name: getattr(predictive, name) for name in ENTROPIES}
    in_set = np.zeros((len(p), 0)) if guarantee is None else guarantee.classes(predictive)
    sets = {f"in_set_{promised}_{label}": pa.array(column) for label, column in zip(classes, in_set.T)}
    return {"predicted": pa.array(classes[p.argmax(axis=1)]), **probabilities, **entropies, **sets}


def rounded(columns: dict[str, np.ndarray | pa.Array], decimals: int) -> dict[str, np.ndarray | pa.Array]:
    """Return `columns` with numbers rounded to `decimals`; Arrow arrays, which hold labels, stay as they are."""
    return {
        name: column.round(decimals) if isinstance(column, np.ndarray) else column for name, column in columns.items()
    }


def predict_labelled(
    model: TableModel, table: Table, strict: bool = False, on_rows: Callable[[int], None] = lambda n_rows: None
) -> tuple[np.ndarray, Predictive | CategoricalPredictive, list[Novelty]]:
    """Predict the rows of `table` whose target is not missing.

    Parameters
    ----------
    model, strict, on_rows
        As in `predict_file`.
    table : Table
        The table.

    Returns
    -------
    y : (labelled rows,)
        Their targets.
    predictive : Predictive or CategoricalPredictive
        Their predictive distribution.
    novelties : list of Novelty
        Values unlike the training data, in all rows.
    """
    table.require(model.schema.names, NEEDED)
    table.require([model.target.name], "the target of the model")
    targets, predictives, novelties = [], list[Predictive | CategoricalPredictive](), list[Novelty]()
    batches = table.batches([*model.schema.names, model.target.name])
    for rows, (predictive, novelties_of_batch) in _predicted(model, batches, strict):
        y, has_target = model.targets(rows)
        targets.append(y)
        predictives.append(
            replace(predictive, **{name: array[has_target] for name, array in _arrays(predictive).items()})
        )
        novelties = merged([*novelties, *novelties_of_batch])
        on_rows(len(rows))
    y = np.concatenate(targets)
    if len(y) == 0:
        problem = f"{model.target.name!r} is missing in every row, so predictions cannot be scored"
        raise TableError(table.source, problem)
    return y, _joined(predictives), novelties


def _predicted(model: TableModel, batches: Iterable[RowBatch], strict: bool) -> Iterator[tuple[RowBatch, Predicted]]:
    """Yield each batch of rows and what `model.predict` returns for it, on a Dask cluster if there is one."""
    dask = cluster.current()
    if dask is None:
        yield from map_ahead(lambda rows: model.predict(rows, strict), batches)
        return
    sent = deque[RowBatch]()

    def read_by_model() -> Iterator[RowBatch]:
        for rows in batches:
            sent.append(rows)
            yield replace(rows, columns={name: rows.columns[name] for name in model.schema.names})

    for prediction in dask.stream(partial(_predict_batch, model, strict), read_by_model()):
        yield sent.popleft(), prediction


def _predict_batch(model: TableModel, strict: bool, rows: RowBatch, on_progress: OnProgress | None) -> Predicted:
    """Return what `model.predict` returns for `rows`, on a worker of a Dask cluster."""
    return model.predict(rows, strict)


def _joined(predictives: list[Predictive | CategoricalPredictive]) -> Predictive | CategoricalPredictive:
    """Return the predictive distributions of several batches of rows as one."""
    parts = [_arrays(predictive) for predictive in predictives]
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return replace(predictives[0], **joined)  # type: ignore[arg-type]


def _arrays(predictive: Predictive | CategoricalPredictive) -> dict[str, np.ndarray]:
    """Return the fields of a predictive distribution that have an entry for each row."""
    whole = ("n_members", "shape")  # the same for all rows
    return {field.name: getattr(predictive, field.name) for field in fields(predictive) if field.name not in whole}
