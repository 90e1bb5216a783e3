"""Files written: in the format of their name, whole or not at all."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from anchored.errors import ArgumentError, TableError
from anchored.tables.writing import check_format, writing


def test_an_interrupted_write_leaves_nothing(tmp_path):
    (tmp_path / "p.csv").write_text("older")
    with pytest.raises(KeyboardInterrupt), writing(tmp_path / "p.csv") as write:
        write({"a": np.arange(3)})
        raise KeyboardInterrupt
    assert [path.name for path in tmp_path.iterdir()] == ["p.csv"] and (tmp_path / "p.csv").read_text() == "older"


def test_files_are_written_as_their_names_say(tmp_path):
    columns = {"a": np.arange(3), "b": pa.array(["x", "y, z", None])}
    for name, read in {"p.csv": pd.read_csv, "p.tsv": pd.read_table, "p.pq": pd.read_parquet}.items():
        check_format(tmp_path / name)
        with writing(tmp_path / name) as write:
            write(columns)
        assert read(tmp_path / name)["b"].tolist()[:2] == ["x", "y, z"]
    for name in ("p.csv.gz", "p.xlsx", "p"):
        with pytest.raises(ArgumentError, match=r"out must end with one of \.csv"):
            check_format(tmp_path / name)
    with (
        pytest.raises(TableError, match=r"column 'l': values of type list.*\.parquet"),
        writing(tmp_path / "n.csv") as write,
    ):
        write({"l": pa.array([[1, 2]])})
    assert not (tmp_path / "n.csv").exists()
