"""The column to predict: numbers or classes."""

from dataclasses import asdict, dataclass, fields, replace
from enum import StrEnum

import numpy as np

from anchored.errors import TableError
from anchored.storage.headers import Header
from anchored.storage.json_values import JsonObject
from anchored.tables import values
from anchored.tables.formats import Format, ReadingOptions
from anchored.tables.kinds import Kind
from anchored.tables.kinds import infer as infer_kinds
from anchored.tables.rows import RowBatch

MIN_ROWS = 20  # smallest number of rows with a target to which a model is fitted
MIN_ROWS_PER_CLASS = 4  # on average over classes
NO_DATES = "dates cannot be predicted", "Predict a number, such as the days since a date"
DIGITS = 7  # decimals of predictions for a target with a standard deviation from 1 to 10
MAX_DECIMALS = 170  # largest number of decimals in a saved model; no target that can be fitted needs more


class Task(StrEnum):
    """The kind of target; AUTO infers it from the column."""

    AUTO = "auto"
    REGRESSION = "regression"
    CLASSIFICATION = "classification"


@dataclass(frozen=True)
class Target:
    """The column that a model predicts.

    Attributes
    ----------
    name : str
        Name of the column.
    task : str
        "regression" or "classification".
    numeric : bool
        Whether its values are read as numbers; class labels are read as numbers if all are whole.
    n_distinct : int
        Number of different values in training.
    decimals : int
        Number of decimals that predictions are rounded to, about the precision of float32; −1 rounds to tens.
    written : Format
        How its values are written.
    """

    name: str
    task: str
    numeric: bool
    n_distinct: int
    decimals: int
    written: Format = Format()

    @classmethod
    def infer(cls, rows: RowBatch, name: str, task: str = Task.AUTO, kind: Kind | None = None) -> "Target":
        """Infer the target from its column; a column that cannot be predicted raises a TableError.

        Parameters
        ----------
        rows : RowBatch
            All rows of the table.
        name : str
            Name of the column.
        task : str
            "regression", "classification", or "auto": regression if most values are numbers and there are more than
            two different values, else classification.
        kind : Kind or None
            What the column holds and how it is written; None infers it.
        """
        array = rows.columns[name]
        if not values.is_readable(array):
            raise rows.column_error(name, f"values of type {array.type} cannot be predicted")
        kind = kind or infer_kinds(rows, ReadingOptions())[name]
        if kind.name == "date":
            raise rows.column_error(name, *NO_DATES)
        is_number = kind.name == "number"
        if task == Task.REGRESSION and not is_number:
            kind = replace(kind, written=replace(kind.written, yes=""))  # the error names the value as it is written
        numbers = values.numbers(rows, name, kind.written) if is_number or task == Task.REGRESSION else None
        known, labels = _known(rows, name, kind.written, numbers)
        _check_values(rows, name, known, labels)
        n_distinct = len(labels)
        if task == Task.AUTO:
            task = Task.REGRESSION if is_number and n_distinct > 2 else Task.CLASSIFICATION
        numeric = numbers is not None and (task == Task.REGRESSION or bool(np.all(labels == np.floor(labels))))
        if task == Task.CLASSIFICATION and n_distinct * MIN_ROWS_PER_CLASS > len(known):
            raise _too_many_classes(rows, name, n_distinct, len(known), is_number)
        n_decimals = decimals(np.std(known)) if task == Task.REGRESSION else DIGITS
        return cls(name, str(task), numeric, n_distinct, n_decimals, kind.written)

    def read(self, rows: RowBatch) -> tuple[np.ndarray, np.ndarray]:
        """Return the targets of `rows` that are not missing, and a mask, (rows,), of the rows that have one.

        The targets have the shape (rows with a target,): float64 for regression, int64 for labels that are whole
        numbers, and strings for other labels.
        """
        if self.numeric:
            numbers = values.numbers(rows, self.name, self.written)
            has_target = np.isfinite(numbers)
            if self.task == Task.REGRESSION:
                return numbers[has_target], has_target
            is_fractional = has_target & (numbers != np.floor(numbers))
            if is_fractional.any():
                index = int(np.argmax(is_fractional))
                raise rows.error(index, self.name, f"{numbers[index]:g} is not a class; all classes are whole numbers")
            return numbers[has_target].astype(np.int64), has_target
        codes, names = values.labels(rows, self.name, self.written)
        has_target = codes >= 0
        return np.array(names, str)[codes[has_target]], has_target

    def to_json(self) -> JsonObject:
        """Return all fields, in JSON's types."""
        return asdict(self) | {"written": self.written.to_json()}

    @classmethod
    def from_json(cls, header: Header) -> "Target":
        """Return the target that `to_json` wrote to `header`; raises a StorageError that names an invalid field."""
        # These calls only check the fields
        header.text("task", (Task.REGRESSION, Task.CLASSIFICATION))
        header.whole("n_distinct", 2)
        header.whole("decimals", -MAX_DECIMALS, MAX_DECIMALS)
        types = {field.name: field.type for field in fields(cls) if field.name != "written"}
        header.require_only([*types, "written"])
        written = Format.from_json(header.child("written"))
        return cls(**{name: header.typed(name, type_) for name, type_ in types.items()}, written=written)


def decimals(spread: float) -> int:
    """Return the number of decimals for predictions of a target with the standard deviation `spread`."""
    return DIGITS - int(np.floor(np.log10(spread)))


def _known(rows: RowBatch, name: str, written: Format, numbers: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the targets that are not missing, (rows with a target,), and the different values, sorted."""
    if numbers is not None:
        known = numbers[np.isfinite(numbers)]
        return known, np.unique(known)
    codes, names = values.labels(rows, name, written)
    return codes[codes >= 0], np.array(sorted(names), object)


def _check_values(rows: RowBatch, name: str, known: np.ndarray, labels: np.ndarray) -> None:
    """Raise a TableError if fewer than MIN_ROWS rows have the target, or all its values are equal."""
    if len(known) == 0:
        raise TableError(rows.source, f"{name!r} is missing in every row, so no model can be fitted")
    if len(known) < MIN_ROWS:
        problem = f"{len(known)} rows have a {name!r}; at least {MIN_ROWS} are needed to fit a model"
        raise TableError(rows.source, problem)
    if len(labels) == 1:
        value = labels[0] if isinstance(labels[0], str) else f"{labels[0]:g}"
        raise TableError(rows.source, f"{name!r} is {value!r} in every row, so there is nothing to predict")


def _too_many_classes(rows: RowBatch, name: str, n_classes: int, n_rows: int, is_number: bool) -> TableError:
    """Return the error for a target with too few rows per class; if `is_number`, it suggests regression."""
    problem = f"{name!r} has {n_classes:,} classes in {n_rows:,} rows, too many to learn"
    alternatives = (("task", str(Task.REGRESSION)),) if is_number else ()
    return TableError(rows.source, problem, "Choose another target", alternatives)
