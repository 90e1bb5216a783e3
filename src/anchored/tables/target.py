"""The column to predict: a number, or one of several classes."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow.compute as pc

from anchored.tables import cells
from anchored.tables.cells import Rows
from anchored.tables.errors import TableError

FEWEST_ROWS = 20
FEWEST_A_CLASS = 4  # on average
DIGITS = 7  # of predictions, beside the spread of the target


@dataclass(frozen=True)
class Target:
    """What a model predicts."""

    name: str
    task: str  # "regression" or "classification"
    numeric: bool  # whether its cells are numbers, as the labels of classes may be
    n_distinct: int  # values in the rows of the fit
    decimals: int  # that predictions are rounded to; members know no more digits

    @classmethod
    def infer(cls, rows: Rows, name: str, task: str = "auto") -> "Target":
        """Learn the task from all rows, and check that there is something to learn."""
        array = rows.columns[name]
        if not cells.is_readable(array) or cells.is_time(array):
            raise TableError(f"{rows.source}, column {name!r}: cells of type {array.type} cannot be predicted")
        known = cells.text(array).drop_null()
        _check_enough(rows, name, known)
        numeric = bool(cells.is_number(array) or cells.looks_numeric(known).mean() > 0.5)
        n_distinct = pc.count_distinct(known).as_py()
        if task == "auto":
            task = "regression" if numeric and n_distinct > 2 else "classification"
        numeric = numeric or task == "regression"
        values = cells.numbers(rows, name) if numeric else np.zeros(1)  # or an error that names the first that is none
        if task == "classification" and n_distinct * FEWEST_A_CLASS > len(known):
            raise TableError(
                f"{rows.source}: {name!r} has {n_distinct:,} classes in {len(known):,} rows, too many to learn. Choose "
                "another target" + (", or --task regression" if numeric else "")
            )
        size = np.floor(np.log10(np.nanstd(values))) if task == "regression" else 0
        return cls(name, task, numeric, n_distinct, DIGITS - int(size))

    def read(self, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        """The values of the rows that have one, and which do."""
        if self.numeric:
            values = cells.numbers(rows, self.name)
            present = np.isfinite(values)
            values = values[present]
            whole = self.task == "classification" and np.all(values == np.floor(values))
            return values.astype(np.int64) if whole else values, present
        labels = cells.labels(rows, self.name)
        present = pc.is_valid(labels).to_numpy(zero_copy_only=False)
        return np.array(labels.drop_null().to_pylist(), str), present

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, described: dict[str, Any]) -> "Target":
        """What `to_json` described."""
        return cls(**described)


def _check_enough(rows: Rows, name: str, known: Any) -> None:
    if len(known) == 0:
        raise TableError(f"{rows.source}: {name!r} is missing in every row; there is nothing to learn from")
    if len(known) < FEWEST_ROWS:
        raise TableError(
            f"{rows.source} has {len(known)} rows with a {name!r}; at least {FEWEST_ROWS} are needed to learn from"
        )
    if pc.count_distinct(known).as_py() == 1:
        raise TableError(f"{rows.source}: {name!r} is {known[0].as_py()!r} in every row; there is nothing to predict")
