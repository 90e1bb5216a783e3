"""Schemas: what columns are read as, what is left out and why, and novelties counted over batches."""

import json

import numpy as np
import pyarrow as pa
import pytest
from table_data import N, kinds, rows, texts, varied

from anchored.errors import ArgumentError, TableError
from anchored.storage import headers
from anchored.tables import kinds as inference
from anchored.tables import values
from anchored.tables.formats import ReadingOptions
from anchored.tables.novelties import merged
from anchored.tables.rows import RowBatch
from anchored.tables.schema import Schema
from anchored.tables.target import Target


def test_what_columns_are_read_as():
    schema = Schema.infer(varied())
    assert kinds(schema) == {
        "size": "number", "gappy": "number", "city": "category", "flag": "category", "day": "date",
    }  # fmt: skip
    assert schema.left_out == {
        "note": "text, different in most rows", "same": "constant", "nothing": "empty", "row_id": "identifies rows",
    }  # fmt: skip
    asked = Schema.infer(varied(), ReadingOptions(ignore=("size",), types={"gappy": "category"}))
    assert kinds(asked)["gappy"] == "category" and asked.left_out["size"] == "ignored"


def test_kinds_are_those_of_all_rows_when_some_are_learnt_from():
    """Whatever some rows would be taken for by themselves."""
    table = rows(
        d=[f"01/{1 + i % 12:02d}/2020" for i in range(N - 1)] + ["31/12/2020"],
        x=[str(i / N) for i in range(N - 1)] + ["5e90"],
        c=["7"] + ["1", "2"] * (N // 2 - 1) + ["z"],
        rare=["no"] * (N - 1) + ["yes"],
    )
    everything = Schema.infer(table, ReadingOptions(types={"c": "category"}))
    learnt = everything.refitted(table.take(np.arange(N - 1)))
    assert kinds(learnt) == {"d": "date", "x": "number", "c": "category"} and learnt.left_out == {"rare": "constant"}
    assert learnt.columns[0].written.date == "%d/%m/%Y" and learnt.columns[1].high < 1
    last = table.take(np.array([N - 1]))
    matrix, _ = learnt.encode(last, clip=True)
    assert np.abs(matrix).max() == pytest.approx(1e9, rel=0.1) and matrix[0, -1] == 1  # near enough; z is strange
    with pytest.raises(TableError, match=f"row {N}, column 'x': 5e.90 is far outside"):
        learnt.encode(last)
    assert everything.refitted(table) == everything


def test_one_number_written_in_two_ways():
    assert Schema.infer(rows(x=["1", "1.0"] * 20, y=texts(range(N)))).left_out == {"x": "constant"}
    target = Target.infer(rows(y=["1", "1.0", "2", "2.00"] * 10), "y")
    assert (target.task, target.n_distinct) == ("classification", 2)
    schema = Schema.infer(rows(c=["1.0", "2.0", "007", "7"] * 10), ReadingOptions(types={"c": "category"}))
    assert schema.columns[0].levels == ("007", "1", "2", "7")
    assert schema.encode(RowBatch("p", 1, {"c": pa.array([1, 2, 3])}))[0][:, -1].tolist() == [0, 0, 1]
    long = rows(c=[str(10**19 + i % 2) for i in range(N)])  # one number in floating point, but two labels
    assert Schema.infer(long, ReadingOptions(types={"c": "category"})).refitted(long).columns[0].levels == (
        f"{10**19}",
        f"{10**19 + 1}",
    )


def test_telephones_and_such_stay_text():
    for written in ("{}-12", "flat {}", "P{:03d}", "{0} Main Street {0}"):
        assert "text" in Schema.infer(rows(x=[written.format(i) for i in range(N)], z=texts(range(N)))).left_out["x"]


def test_digits_among_letters_may_be_categories():
    with pytest.raises(TableError, match=r"'A' is not a number.*ignore='x'.*types='x=category'"):
        Schema.infer(rows(x=["1", "2", "A"] * 10))


@pytest.mark.parametrize(
    ("name", "identifies"),
    [(name, True) for name in ("id", "PassengerId", "CustomerID", "customerid", "user.id", "row-index", "userID2")]
    + [(name, False) for name in ("humid", "Paid", "identity", "idle", "Width", "valid_until", "heat_index")],
)
def test_names_of_identifiers(name, identifies):
    schema = Schema.infer(rows(**{name: texts(range(N)), "other": texts(range(N))}))
    assert schema.left_out == ({name: "identifies rows"} if identifies else {})
    assert Schema.infer(rows(**{name: texts(np.arange(N) + 0.5)})).names == [name]  # such as an index of prices


def test_novelties_are_counted_over_batches():
    schema = Schema.infer(varied())
    other = varied(seed=1)
    columns = other.columns | {"city": pa.array(["Rome", "Cairo"] * (N // 2)), "size": pa.array(["1e3"] * N)}
    pieces = [
        RowBatch("data.csv", 1 + start, {n: c.slice(start, 7) for n, c in columns.items()}) for start in range(0, N, 7)
    ]
    found = merged([novelty for piece in pieces for novelty in schema.encode(piece)[1]])
    city = next(novelty for novelty in found if novelty.column == "city")
    size = next(novelty for novelty in found if novelty.column == "size")
    assert (city.n_rows, city.first_row, city.example, city.is_unknown) == (N // 2, 2, "'Cairo'", True)
    assert size.n_rows == N and not size.is_unknown
    matrix = np.vstack([schema.encode(piece)[0] for piece in pieces])
    assert np.array_equal(matrix, schema.encode(RowBatch("data.csv", 1, columns))[0])
    assert matrix[:, -1].tolist() == [0, 1] * (N // 2)
    with pytest.raises(ArgumentError, match=r"strict is set.*column city: category not seen.*first in row 2"):
        schema.encode(RowBatch("data.csv", 1, columns), strict=True)


def test_schema_and_target_survive_json():
    table = varied()
    schema, target = Schema.infer(table), Target.infer(table, "size")
    again = Schema.from_json(headers.parse(json.dumps(schema.to_json())))
    assert again == schema and Target.from_json(headers.parse(json.dumps(target.to_json()))) == target
    assert np.array_equal(again.encode(table)[0], schema.encode(table)[0])
    assert len(json.dumps(schema.to_json())) < 2000


EARLY = ["1,234.50 €", "-12.25 €", "7.5"]
LATE = {
    "alike": ["9,876.5 €", "", "3"],
    "other writing": ["(5)", "n/a", " 5 € "],
    "mostly otherwise": ["12.345,5 €"] * 40,
    "another unit": ["5 $"] * 3,
    "exponent": ["1e5"],
    "text": ["cheap"],
}


@pytest.mark.parametrize("late", LATE.values(), ids=LATE)
@pytest.mark.parametrize("early", [EARLY, ["1,234", "12"], ["8", "9"], ["1.234,5"]], ids=str)
def test_a_format_seen_early_is_that_of_all_values(monkeypatch, early, late):
    """A column whose first values show its format has the kind that all its different values have."""
    monkeypatch.setattr(inference, "SAMPLE", 5)
    column, options = pa.array(early * 5 + late), ReadingOptions()
    whole = inference.number_kind(values.text(column, options.missing).drop_null().unique(), options)
    found = inference._infer_column(rows(x=column.to_pylist()), "x", options)
    assert found == whole or (whole is None and found.name == "category")
