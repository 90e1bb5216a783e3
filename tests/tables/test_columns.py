"""Columns as features: against matrices written by hand, and the same for text and for typed columns."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
from table_data import rows, texts, varied

from anchored.tables.formats import Format
from anchored.tables.rows import RowBatch
from anchored.tables.schema import Schema


def test_features_by_hand():
    table = rows(
        x=["1", "", "3", "8", " 2 ", "-", "n/a"],
        c=["a", "b", None, "a", "b ", "-", "NA"],
        d=["2024-01-01", "2024-01-02", "2024-01-03", "2024-01-05", "2024-01-04", "2024-01-02", "-"],
    )
    schema = Schema.infer(table)
    matrix, novelties = schema.encode(table)
    names = ["x", "x is missing", "c = a", "c = b", "c is missing", "d", "number of unknown values"]
    first = 19_723  # days from 1970-01-01 to 2024-01-01
    wanted = [
        [1, 0, 1, 0, 0, first, 0],
        [2.5, 1, 0, 1, 0, first + 1, 0],
        [3, 0, 0, 0, 1, first + 2, 0],
        [8, 0, 1, 0, 0, first + 4, 0],
        [2, 0, 0, 1, 0, first + 3, 0],
        [2.5, 1, 0, 0, 1, first + 1, 0],
        [2.5, 1, 0, 0, 1, first + 1.5, 0],  # no feature marks one missing date
    ]
    assert schema.feature_names == names and matrix.tolist() == wanted and novelties == []


def test_cycles_of_dates():
    days = np.arange("2020-01-01", "2022-01-01", dtype="datetime64[D]")
    schema = Schema.infer(rows(d=texts(days)))
    assert schema.columns[0].cycles == ("year", "week")
    matrix, _ = schema.encode(rows(d=["2021-03-01", "2021-03-08", "2022-03-01", ""]))
    assert np.allclose(matrix[0, 3:5], matrix[1, 3:5]) and not np.allclose(matrix[0, 3:5], matrix[2, 3:5])
    assert np.allclose(matrix[0, 1:3], matrix[2, 1:3], atol=0.01)  # a year later
    assert matrix[3].tolist() == [np.median(days.astype(float)), 0, 0, 0, 0, 1]
    with_clock = Schema.infer(rows(d=texts(np.arange("2020-01-01", "2020-03-01", 7, dtype="datetime64[h]"))))
    assert with_clock.columns[0].cycles == ("week", "day")


def test_rare_categories_share_a_level():
    names = [f"city {i}" for i in range(50) for _ in range(5 + (i < 30))] + ["once"]
    schema = Schema.infer(rows(c=names))
    assert set(schema.columns[0].levels) == {f"city {i}" for i in range(30)} and schema.columns[0].others
    matrix, novelties = schema.encode(rows(c=["city 3", "city 40", "once", "never seen", ""]))
    assert matrix[:, -2].tolist() == [0, 1, 1, 1, 0] and matrix[:, -1].tolist() == [0, 0, 0, 1, 1]
    assert [novelty.example for novelty in novelties] == ["", "'never seen'"]
    few = Schema.infer(rows(c=["a"] * 60 + ["b"] * 60 + ["x", "y"])).columns[0]
    assert few.levels == ("a", "b") and few.rare == ("x", "y")


def test_clipped_numbers_are_not_refused():
    """A number clipped to the farthest allowed one may be rounded beyond it, and is encoded all the same."""
    column = Schema.infer(rows(x=["100000.0002", "100000.0005", "100000.00123"])).columns[0]
    farthest = 1e9 * (column.high - column.low)
    features = np.zeros((2, 1))
    column.encode(rows(x=["1e30", "-1e30"]), features, clip=True)
    assert np.allclose(features[:, 0] - column.median, [farthest, -farthest])


def test_typed_columns_mean_what_text_means():
    """Parquet's numbers, truths, dates and dictionaries, beside the same in CSV."""
    table = varied()
    typed = {
        "size": pa.array([float(v) for v in table.columns["size"].to_pylist()]),
        "gappy": pa.array([int(v) if v else None for v in table.columns["gappy"].to_pylist()], pa.int16()),
        "city": pa.array([v.strip() for v in table.columns["city"].to_pylist()]),
        "flag": pa.array([v == "True" for v in table.columns["flag"].to_pylist()]),
        "day": pa.array(np.array(table.columns["day"].to_pylist(), "datetime64[s]")),
    }
    schema = Schema.infer(table)
    assert np.array_equal(schema.encode(RowBatch("data.parquet", 1, typed))[0], schema.encode(table)[0])
    again = Schema.infer(RowBatch("data.parquet", 1, typed))
    assert [replace(c, written=Format()) for c in again.columns] == [
        replace(c, written=Format()) for c in schema.columns
    ]
