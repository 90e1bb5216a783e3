"""The column to predict: a number, or one of several classes."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anchored.storage.headers import Header
from anchored.tables import cells
from anchored.tables.cells import Rows
from anchored.tables.errors import TableError

FEWEST_ROWS = 20
FEWEST_A_CLASS = 4  # on average
DATES = "dates cannot be predicted; predict a number, such as days from a date on"
DIGITS = 7  # of predictions, beside the spread of the target
MOST_DECIMALS = 170  # of a target that varies at all
TASKS = ("regression", "classification")


@dataclass(frozen=True)
class Target:
    """What a model predicts."""

    name: str
    task: str  # "regression" or "classification"
    numeric: bool  # whether its values are numbers; labels of classes are, where all are whole
    n_distinct: int  # values in the rows of the fit
    decimals: int  # that predictions are rounded to; members know no more digits

    @classmethod
    def infer(cls, rows: Rows, name: str, task: str = "auto") -> "Target":
        """Learn the task from all rows, and check that there is something to learn."""
        array = rows.columns[name]
        if not cells.is_readable(array) or cells.is_time(array):
            what = DATES if cells.is_time(array) else f"cells of type {array.type} cannot be predicted"
            raise TableError(f"{rows.source}, column {name!r}: {what}")
        known = cells.text(array).drop_null()
        _check_enough(rows, name, known)
        n_distinct = cells.n_distinct(known)
        is_number = cells.is_number(array) or cells.mostly_numbers(known)
        if task == "auto":
            task = "regression" if is_number and n_distinct > 2 else "classification"
        numeric = task == "regression" or _are_whole(known)
        values = cells.numbers(rows, name) if numeric else np.zeros(1)  # or an error that names the first that is none
        if task == "classification" and n_distinct * FEWEST_A_CLASS > len(known):
            if cells.date_format_of(known) is not None:
                raise TableError(f"{rows.source}, column {name!r}: {DATES}")
            raise TableError(
                f"{rows.source}: {name!r} has {n_distinct:,} classes in {len(known):,} rows, too many to learn. Choose "
                "another target" + (", or --task regression" if is_number else "")
            )
        size = np.floor(np.log10(np.nanstd(values))) if task == "regression" else 0
        return cls(name, task, numeric, n_distinct, DIGITS - int(size))

    def read(self, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        """The values of the rows that have one, and which do."""
        if self.numeric:
            values = cells.numbers(rows, self.name)
            present = np.isfinite(values)
            if self.task == "regression":
                return values[present], present
            broken = present & (values != np.floor(values))
            if broken.any():
                index = int(np.argmax(broken))
                raise rows.error(index, self.name, f"{values[index]:g} is no class; all those of the fit are whole")
            return values[present].astype(np.int64), present
        labels = cells.labels(rows, self.name)
        present = pc.is_valid(labels).to_numpy(zero_copy_only=False)
        return np.array(labels.drop_null().to_pylist(), str), present

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, described: Header) -> "Target":
        """What `to_json` described; a StorageError where that is no target."""
        described.text("task", TASKS)
        described.whole("n_distinct", 2)
        described.whole("decimals", -MOST_DECIMALS, MOST_DECIMALS)
        return described.as_dataclass(cls)


def _are_whole(known: pa.Array) -> bool:
    if not cells.looks_numeric(known).all():
        return False
    return all(float(value).is_integer() for value in pc.unique(known).to_pylist())


def _check_enough(rows: Rows, name: str, known: pa.Array) -> None:
    if len(known) == 0:
        raise TableError(f"{rows.source}: {name!r} is missing in every row; there is nothing to learn from")
    if len(known) < FEWEST_ROWS:
        raise TableError(
            f"{rows.source} has {len(known)} rows with a {name!r}; at least {FEWEST_ROWS} are needed to learn from"
        )
    if cells.n_distinct(known) == 1:
        raise _constant(rows, name, known)


def _constant(rows: Rows, name: str, known: pa.Array) -> TableError:
    return TableError(f"{rows.source}: {name!r} is {known[0].as_py()!r} in every row; there is nothing to predict")
