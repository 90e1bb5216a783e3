"""Targets: the task is inferred from the column, and what cannot be predicted is refused."""

import numpy as np
import pytest
from table_data import N, rows

from anchored.errors import TableError
from anchored.tables.files import open_table
from anchored.tables.target import Target


@pytest.mark.parametrize("dates", [[f"2020-01-{i % 28 + 1:02d}" for i in range(N)], np.arange(N).astype("M8[D]")])
def test_dates_cannot_be_predicted(dates):
    with pytest.raises(TableError, match="column 'y': dates cannot be predicted"):
        Target.infer(rows(y=dates), "y")


@pytest.mark.parametrize(
    ("values", "task", "labels"),
    [
        ([str(i * 1.5) for i in range(N)], "regression", None),
        ([str(i % 3) for i in range(N)], "regression", None),
        ([str(i % 2) for i in range(N)], "classification", [0, 1]),
        (["yes", "no"] * (N // 2), "classification", ["no", "yes"]),
        (["True", "False"] * (N // 2), "classification", ["false", "true"]),
        (["0.5", "1.5"] * (N // 2), "classification", ["0.5", "1.5"]),
    ],
)
def test_the_task_is_inferred_from_the_target(values, task, labels):
    target = Target.infer(rows(y=values), "y")
    assert target.task == task
    y, present = target.read(rows(y=[*values, ""]))
    assert present.tolist() == [True] * N + [False]
    assert labels is None or np.unique(y).tolist() == labels


def test_whole_classes_stay_whole(tmp_path):
    (tmp_path / "data.csv").write_text("x,y\n" + "".join(f"{i},{i % 2}\n" for i in range(40)))
    target = Target.infer(open_table(tmp_path / "data.csv").read(["y"]), "y")
    (tmp_path / "new.csv").write_text("x,y\n1,1\n2,0.5\n")
    with pytest.raises(TableError, match=r"row 2, column 'y': 0.5 is not a class"):
        target.read(open_table(tmp_path / "new.csv").read(["y"]))
