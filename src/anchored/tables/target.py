"""The column to predict: numbers or classes."""

from dataclasses import asdict, dataclass
from enum import StrEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anchored.errors import TableError
from anchored.storage.headers import Header
from anchored.storage.json_values import JsonObject
from anchored.tables import dates, values
from anchored.tables.rows import RowBatch

MIN_ROWS = 20  # with a target, to fit a model
MIN_ROWS_PER_CLASS = 4  # on average over classes
NO_DATES = "dates cannot be predicted", "Predict a number, such as the days since a date"
DIGITS = 7  # decimals of predictions for a target with a standard deviation from 1 to 10
MAX_DECIMALS = 170  # more than any target needs whose standard deviation can be fitted


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
        Whether its values are read as numbers; class labels are if all of them are whole numbers.
    n_distinct : int
        Number of different values in training.
    decimals : int
        Number of decimals that predictions are rounded to, about the precision of float32; −1 rounds to tens.
    """

    name: str
    task: str
    numeric: bool
    n_distinct: int
    decimals: int

    @classmethod
    def infer(cls, rows: RowBatch, name: str, task: str = Task.AUTO) -> "Target":
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
        """
        array = rows.columns[name]
        if values.is_date(array):
            raise rows.column_error(name, *NO_DATES)
        if not values.is_readable(array):
            raise rows.column_error(name, f"values of type {array.type} cannot be predicted")
        known = values.text(array).drop_null()
        _check_values(rows, name, known)
        n_distinct = values.n_distinct(known)
        is_number = values.is_number(array) or values.mostly_numbers(known)
        if task == Task.AUTO:
            task = Task.REGRESSION if is_number and n_distinct > 2 else Task.CLASSIFICATION
        numeric = task == Task.REGRESSION or _are_whole(known)
        numbers = values.numbers(rows, name) if numeric else np.zeros(1)  # raises if a value is not a number
        if task == Task.CLASSIFICATION and n_distinct * MIN_ROWS_PER_CLASS > len(known):
            if dates.infer_format(known) is not None:
                raise rows.column_error(name, *NO_DATES)
            raise _too_many_classes(rows, name, n_distinct, len(known), is_number)
        magnitude = np.floor(np.log10(np.nanstd(numbers))) if task == Task.REGRESSION else 0
        return cls(name, str(task), numeric, n_distinct, DIGITS - int(magnitude))

    def read(self, rows: RowBatch) -> tuple[np.ndarray, np.ndarray]:
        """Return the targets of `rows` that are not missing, and a mask, (rows,), of the rows that have one.

        The targets have the shape (rows with a target,): float64 for regression, int64 for labels that are whole
        numbers, and strings for other labels.
        """
        if self.numeric:
            numbers = values.numbers(rows, self.name)
            has_target = np.isfinite(numbers)
            if self.task == Task.REGRESSION:
                return numbers[has_target], has_target
            is_fractional = has_target & (numbers != np.floor(numbers))
            if is_fractional.any():
                index = int(np.argmax(is_fractional))
                raise rows.error(index, self.name, f"{numbers[index]:g} is not a class; all classes are whole numbers")
            return numbers[has_target].astype(np.int64), has_target
        labels = values.labels(rows, self.name)
        has_target = pc.is_valid(labels).to_numpy(zero_copy_only=False)
        return np.array(labels.drop_null().to_pylist(), str), has_target

    def to_json(self) -> JsonObject:
        """Return all fields, in JSON's types."""
        return asdict(self)

    @classmethod
    def from_json(cls, header: Header) -> "Target":
        """Return the target that `to_json` wrote to `header`; raises a StorageError that names an invalid field."""
        # These calls only check the fields
        header.text("task", (Task.REGRESSION, Task.CLASSIFICATION))
        header.whole("n_distinct", 2)
        header.whole("decimals", -MAX_DECIMALS, MAX_DECIMALS)
        return header.as_dataclass(cls)


def _are_whole(known: pa.Array) -> bool:
    """Whether all values of a column of text are whole numbers."""
    if not values.looks_numeric(known).all():
        return False
    return all(float(value).is_integer() for value in pc.unique(known).to_pylist())


def _check_values(rows: RowBatch, name: str, known: pa.Array) -> None:
    """Raise a TableError if fewer than MIN_ROWS rows have the target, or all its values are equal."""
    if len(known) == 0:
        raise TableError(rows.source, f"{name!r} is missing in every row, so no model can be fitted")
    if len(known) < MIN_ROWS:
        problem = f"{len(known)} rows have a {name!r}; at least {MIN_ROWS} are needed to fit a model"
        raise TableError(rows.source, problem)
    if values.n_distinct(known) == 1:
        problem = f"{name!r} is {known[0].as_py()!r} in every row, so there is nothing to predict"
        raise TableError(rows.source, problem)


def _too_many_classes(rows: RowBatch, name: str, n_classes: int, n_rows: int, is_number: bool) -> TableError:
    """Return the error for a target with too few rows per class; if `is_number`, it suggests regression."""
    problem = f"{name!r} has {n_classes:,} classes in {n_rows:,} rows, too many to learn"
    alternatives = (("task", str(Task.REGRESSION)),) if is_number else ()
    return TableError(rows.source, problem, "Choose another target", alternatives)
