"""The column to predict: a number, or one of several classes."""

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

FEWEST_ROWS = 20
FEWEST_A_CLASS = 4  # on average
NO_DATES = "dates cannot be predicted", "Predict a number, such as the days since a date"
DIGITS = 7  # of predictions, relative to the spread of the target
MOST_DECIMALS = 170  # of a target that varies at all


class Task(StrEnum):
    """What kind of target to predict; AUTO infers it from the column."""

    AUTO = "auto"
    REGRESSION = "regression"
    CLASSIFICATION = "classification"


@dataclass(frozen=True)
class Target:
    """What a model predicts.

    Attributes
    ----------
    name : of the column
    task : "regression" or "classification"
    numeric : whether its values are numbers; labels of classes are where all are whole numbers
    n_distinct : different values in the rows of the fit
    decimals : that predictions are rounded to, negative for tens and more; members know no more digits
    """

    name: str
    task: str
    numeric: bool
    n_distinct: int
    decimals: int

    @classmethod
    def infer(cls, rows: RowBatch, name: str, task: str = Task.AUTO) -> "Target":
        """Learn from all `rows` what the column called `name` holds; a TableError says why it cannot be predicted.

        `task` says whether it holds numbers or classes; "auto" takes numbers with more than two different values for
        regression.
        """
        array = rows.columns[name]
        if values.is_date(array):
            raise rows.column_error(name, *NO_DATES)
        if not values.is_readable(array):
            raise rows.column_error(name, f"values of type {array.type} cannot be predicted")
        known = values.text(array).drop_null()
        _check_enough(rows, name, known)
        n_distinct = values.n_distinct(known)
        is_number = values.is_number(array) or values.mostly_numbers(known)
        if task == Task.AUTO:
            task = Task.REGRESSION if is_number and n_distinct > 2 else Task.CLASSIFICATION
        numeric = task == Task.REGRESSION or _are_whole(known)
        numbers = values.numbers(rows, name) if numeric else np.zeros(1)  # raises at the first that is not a number
        if task == Task.CLASSIFICATION and n_distinct * FEWEST_A_CLASS > len(known):
            if dates.infer_format(known) is not None:
                raise rows.column_error(name, *NO_DATES)
            raise _too_many_classes(rows, name, n_distinct, len(known), is_number)
        size = np.floor(np.log10(np.nanstd(numbers))) if task == Task.REGRESSION else 0
        return cls(name, str(task), numeric, n_distinct, DIGITS - int(size))

    def read(self, rows: RowBatch) -> tuple[np.ndarray, np.ndarray]:
        """The values of the rows that have one, (known rows,), and which rows do, (rows,) booleans.

        Numbers are float64, whole labels int64, other labels strings.
        """
        if self.numeric:
            numbers = values.numbers(rows, self.name)
            present = np.isfinite(numbers)
            if self.task == Task.REGRESSION:
                return numbers[present], present
            broken = present & (numbers != np.floor(numbers))
            if broken.any():
                index = int(np.argmax(broken))
                raise rows.error(index, self.name, f"{numbers[index]:g} is no class; all classes are whole numbers")
            return numbers[present].astype(np.int64), present
        labels = values.labels(rows, self.name)
        present = pc.is_valid(labels).to_numpy(zero_copy_only=False)
        return np.array(labels.drop_null().to_pylist(), str), present

    def to_json(self) -> JsonObject:
        """All fields, in JSON's types."""
        return asdict(self)

    @classmethod
    def from_json(cls, described: Header) -> "Target":
        """The target that `to_json` described; a StorageError names the field that does not fit."""
        described.text("task", (Task.REGRESSION, Task.CLASSIFICATION))
        described.whole("n_distinct", 2)
        described.whole("decimals", -MOST_DECIMALS, MOST_DECIMALS)
        return described.as_dataclass(cls)


def _are_whole(known: pa.Array) -> bool:
    if not values.looks_numeric(known).all():
        return False
    return all(float(value).is_integer() for value in pc.unique(known).to_pylist())


def _check_enough(rows: RowBatch, name: str, known: pa.Array) -> None:
    if len(known) == 0:
        raise TableError(rows.source, f"{name!r} is missing in every row; there is nothing to learn from")
    if len(known) < FEWEST_ROWS:
        problem = f"{len(known)} rows have a {name!r}; at least {FEWEST_ROWS} are needed to learn from"
        raise TableError(rows.source, problem)
    if values.n_distinct(known) == 1:
        problem = f"{name!r} is {known[0].as_py()!r} in every row; there is nothing to predict"
        raise TableError(rows.source, problem)


def _too_many_classes(rows: RowBatch, name: str, n_classes: int, n_rows: int, is_number: bool) -> TableError:
    problem = f"{name!r} has {n_classes:,} classes in {n_rows:,} rows, too many to learn"
    instead = (("task", str(Task.REGRESSION)),) if is_number else ()
    return TableError(rows.source, problem, "Choose another target", instead)
