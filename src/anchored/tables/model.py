"""A model of a table: what its columns mean, and an estimator fitted to them, in one file."""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from anchored.certification.certificate import Certificate, certify
from anchored.estimators import AnchoredClassifier, AnchoredRegressor, loading, persistence
from anchored.inference.convergence import DivergenceError
from anchored.model.predictive import CategoricalPredictive, Predictive
from anchored.storage import archive
from anchored.storage.headers import Header, StorageError
from anchored.tables import scores
from anchored.tables.cells import Rows
from anchored.tables.columns import Surprise
from anchored.tables.errors import TableError
from anchored.tables.files import shown
from anchored.tables.schema import Schema
from anchored.tables.target import Target


@dataclass(frozen=True)
class TableModel:
    """An estimator that reads rows of a file."""

    schema: Schema
    target: Target
    estimator: Any
    held_out: dict[str, float]  # scores of a like model on rows it had not seen

    @classmethod
    def fit(
        cls,
        rows: Rows,
        target: str,
        *,
        task: str = "auto",
        ignore: Sequence[str] = (),
        categories: Sequence[str] = (),
        day_first: bool = False,
        members: int = 10,
        max_iter: int | None = None,
        seed: int = 0,
        hold_out: float = 0.2,
        verbose: int = 0,
        tell: Callable[[str], None] = lambda message: None,
    ) -> "TableModel":
        """Score a fit to a part of the rows on the others, then fit to all that have a target."""
        goal = Target.infer(rows, target, task)
        columns = {name: column for name, column in rows.columns.items() if name != target}
        inputs = replace(rows, columns=columns)
        everything = Schema.infer(inputs, ignore, categories, day_first)  # what a column is, all rows decide
        y, present = goal.read(rows)
        inputs = inputs.take(np.flatnonzero(present))
        settings = {"n_estimators": members, "random_state": seed, "verbose": verbose}
        if max_iter is not None:
            settings["max_iter"] = max_iter
        kind = AnchoredRegressor if goal.task == "regression" else AnchoredClassifier

        def fitted(part: np.ndarray) -> tuple[Schema, Any]:
            some = inputs.take(part)
            schema = everything.learnt_again(some)
            try:
                return schema, kind(**settings).fit(schema.encode(some)[0], y[part])
            except DivergenceError as error:
                raise TableError(f"{rows.source}: {error}") from error

        held_out = held_out_rows(y, hold_out, goal.task == "classification", seed)
        rest = np.setdiff1d(np.arange(len(y)), held_out)
        tell(f"Scoring: fitting {members} members to {len(rest):,} rows, {len(held_out):,} held out")
        schema, estimator = fitted(rest)
        predictive = estimator.predict_dist(schema.encode(inputs.take(held_out), clip=True)[0])
        found = scores.score(y[held_out], predictive, getattr(estimator, "classes_", None))
        tell(f"Final model: fitting {members} members to all {len(y):,} rows")
        schema, estimator = fitted(np.arange(len(y)))
        return cls(schema, goal, estimator, found)

    def predict(self, rows: Rows, strict: bool = False) -> tuple[Predictive | CategoricalPredictive, list[Surprise]]:
        """The predictive distribution of each row, and what was unlike the fit."""
        matrix, surprises = self.schema.encode(rows, strict)
        return self.estimator.predict_dist(matrix), surprises

    @property
    def n_rows(self) -> int:
        """Rows it was fitted to."""
        return self.estimator.n_rows_seen_

    @property
    def classes(self) -> np.ndarray | None:
        """Labels of the classes, or None for numbers."""
        return getattr(self.estimator, "classes_", None)

    def targets(self, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        """The targets of the rows that have one, and which do; a class that the model does not know is an error."""
        y, present = self.target.read(rows)
        known = y if self.classes is None else self.classes
        unknown = ~np.isin(y, known)
        if unknown.any():
            index = int(np.flatnonzero(present)[np.argmax(unknown)])
            label = y[np.argmax(unknown)].item()
            raise rows.error(index, self.target.name, f"{label!r} is none of the classes {shown(known.tolist())}")
        return y, present

    def certify(self, rows: Rows, max_memory_gb: float) -> Certificate:
        """How far it is from the exact posterior, given the rows it was fitted to."""
        if self.target.task == "classification":
            raise TableError("there is no closed form for the posterior of classes; only regression can be certified")
        y, present = self.targets(rows)
        matrix = self.schema.encode(rows.take(np.flatnonzero(present)))[0]
        try:
            return certify(self.estimator, matrix, y, max_memory_gb=max_memory_gb)
        except ValueError as error:
            if "not the data of the fit" in str(error):
                told = f"{rows.source} does not hold the rows that the model was fitted to, in the same order"
                raise TableError(told) from error
            raise TableError(
                str(error).removeprefix("X: ").replace("max_memory_gb is", "--max-memory-gb is")
            ) from error

    def save(self, path: Path) -> None:
        """One safetensors file; its header holds the schema as JSON."""
        table = {"schema": self.schema.to_json(), "target": self.target.to_json(), "held_out": self.held_out}
        named = copy(self.estimator)  # for whoever reads the file with anchored.load; here the schema names them
        named.feature_names_in_ = np.array(self.schema.features, object)
        persistence.save(named, path, table)

    @classmethod
    def load(cls, path: Path | str) -> "TableModel":
        """What `save` wrote."""
        path = Path(path)
        if path.is_dir():
            raise TableError(f"{path} is a folder; name a model that anchored fit has written")
        if not path.exists():
            raise TableError(f"there is no model {path}; anchored fit writes one")
        try:
            estimator, table = loading.load_with_table(path)
            if table is None:
                told = "holds an estimator, but not what the columns of a table mean; use anchored fit"
                raise TableError(f"{path} {told}")
            with archive.reading(path):
                return cls._from_json(estimator, table)
        except StorageError as error:
            raise TableError(str(error)) from error

    @classmethod
    def _from_json(cls, estimator: Any, table: Header) -> "TableModel":
        """The model, where all its parts are of the same table."""
        schema, target = Schema.from_json(table.child("schema")), Target.from_json(table.child("target"))
        if not schema.gives(vars(estimator).pop("feature_names_in_", ())):
            table.refuse("does not describe the columns that the estimator reads", "schema")
        classes = getattr(estimator, "classes_", None)
        one_number = classes is None and target.numeric and estimator.y_is_vector_
        one_label = classes is not None and classes.dtype.kind == ("i" if target.numeric else "U")
        if target.name in schema.names or not (one_number if target.task == "regression" else one_label):
            table.refuse("does not describe what the estimator predicts", "target")
        return cls(schema, target, estimator, scores.from_json(table.child("held_out"), classes is not None))


def held_out_rows(y: np.ndarray, share: float, is_class: bool, seed: int) -> np.ndarray:
    """Rows to score on; of every class its share, so that all are seen in the fit."""
    groups = np.unique(y, return_inverse=True)[1] if is_class else np.zeros(len(y), int)
    order = np.random.default_rng([seed, 3]).permutation(len(y))
    chosen = []
    for group in np.unique(groups):
        members = order[groups[order] == group]
        chosen.append(members[: int(share * len(members))])
    held_out = np.sort(np.concatenate(chosen))
    if len(held_out) == 0:
        raise TableError(f"--hold-out {share:g} of {len(y)} rows leaves none to score on; raise it")
    return held_out
