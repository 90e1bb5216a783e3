"""Tables: what columns are taken for, how they become numbers, and that neither pieces nor formats matter."""

import json
import tracemalloc
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import anchored
from anchored import AnchoredRegressor
from anchored.storage import headers
from anchored.tables import cells, prediction, scores
from anchored.tables.cells import Rows
from anchored.tables.errors import TableError
from anchored.tables.files import check_format, open_table, writing
from anchored.tables.influence import influences
from anchored.tables.model import TableModel, held_out_rows
from anchored.tables.schema import Schema, merged
from anchored.tables.target import Target

N = 40


def rows(first=1, **columns):
    return Rows("data.csv", first, {name: pa.array(values) for name, values in columns.items()})


def texts(values):
    return [None if value is None else str(value) for value in values]


def varied(n=N, seed=0):
    """One column of every kind, as a CSV file gives them."""
    rng = np.random.default_rng(seed)
    days = np.datetime64("2020-01-01") + rng.integers(0, 800, n).astype("timedelta64[D]")
    return rows(
        size=texts(rng.normal(5, 2, n).round(3)),
        gappy=["" if i % 5 == 0 else str(i) for i in range(n)],
        city=[("Rome", " Oslo", "Lima ")[i % 3] for i in range(n)],
        flag=[("True", "FALSE")[i % 2] for i in range(n)],
        day=texts(days),
        note=[f"note number {i}" for i in range(n)],
        same=["x"] * n,
        nothing=["NA"] * n,
        row_id=texts(range(n)),
    )


def kinds(schema):
    return {column.name: column.kind for column in schema.columns}


def test_what_columns_are_taken_for():
    schema = Schema.infer(varied())
    assert kinds(schema) == {
        "size": "number", "gappy": "number", "city": "category", "flag": "category", "day": "date",
    }  # fmt: skip
    assert schema.left_out == {
        "note": "text, different in most rows", "same": "constant", "nothing": "empty", "row_id": "identifies rows",
    }  # fmt: skip
    asked = Schema.infer(varied(), ignore=["size"], categories=["gappy"])
    assert kinds(asked)["gappy"] == "category" and asked.left_out["size"] == "by --ignore"


def test_features_by_hand():
    table = rows(
        x=["1", "", "3", "8", " 2 "],
        c=["a", "b", None, "a", "b "],
        d=["2024-01-01", "2024-01-02", "2024-01-03", "2024-01-05", "2024-01-04"],
    )
    schema = Schema.infer(table)
    matrix, surprises = schema.encode(table)
    names = ["x", "x is missing", "c = a", "c = b", "c is missing", "d", "cells unlike any at the fit"]
    first = 19_723  # days from 1970-01-01 to 2024-01-01
    wanted = [
        [1, 0, 1, 0, 0, first, 0],
        [2.5, 1, 0, 1, 0, first + 1, 0],
        [3, 0, 0, 0, 1, first + 2, 0],
        [8, 0, 1, 0, 0, first + 4, 0],
        [2, 0, 0, 1, 0, first + 3, 0],
    ]
    assert schema.features == names and matrix.tolist() == wanted and surprises == []


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


@pytest.mark.parametrize(
    ("written", "date_format"),
    [
        (["2024-01-31", "2024-02-01T12:30:00"], cells.ISO),
        (["2024-01-31T00:00:00Z", "2024-02-01T14:30:00+02:00"], cells.ISO),
        (["31.01.2024", "01.02.2024"], "%d.%m.%Y"),
        (["01/31/2024", "02/01/2024"], "%m/%d/%Y"),
        (["31/01/2024", "01/02/2024"], "%d/%m/%Y"),
        (["31.01.2024 00:00", "01.02.2024 12:30"], "%d.%m.%Y %H:%M"),
    ],
)
def test_dates_are_read_as_they_are_written(written, date_format):
    assert cells.date_format_of(pa.array(written)) == (date_format, False)
    fraction = 12.5 / 24 if ":30" in written[1] else 0
    assert cells.times(rows(d=written), "d", date_format).tolist() == [19_753, 19_754 + fraction]


def test_no_date_is_seen_where_there_is_none():
    assert cells.date_format_of(pa.array(["a", "12-34", "monday", "1.2.3"])) is None


def test_days_that_may_be_months_are_told_and_chosen():
    dates = [f"{1 + i % 12:02d}/{1 + i % 11:02d}/2020" for i in range(N)]
    column = Schema.infer(rows(d=dates)).columns[0]
    assert column.date_format == "%m/%d/%Y" and column.is_ambiguous and "written month/day/year" in str(column)
    by_day = Schema.infer(rows(d=dates), day_first=True).columns[0]
    assert by_day.date_format == "%d/%m/%Y" and "written day/month/year" in str(by_day)
    for known, date_format in (("12/31/2020", "%m/%d/%Y"), ("31/12/2020", "%d/%m/%Y")):
        told = Schema.infer(rows(d=[*dates, known]), day_first=True).columns[0]  # one cell tells of all
        assert told.date_format == date_format and not told.is_ambiguous
    assert "written" not in str(Schema.infer(varied()).columns[-1])


def test_rows_keep_their_numbers():
    some = rows(first=11, x=["1", "2", "oops", "4"]).take(np.array([3, 2, 0]))
    assert [some.number(i) for i in range(3)] == [14, 13, 11] and some.take(np.array([2])).number(0) == 11
    with pytest.raises(TableError, match="row 13, column 'x': 'oops'"):
        cells.numbers(some, "x")
    schema = Schema.infer(rows(c=["a", "b"] * 5))
    strange = schema.encode(rows(c=["a", "b", "z", "z"]).take(np.array([1, 3])))[1]
    assert strange[0].first_row == 4


def test_kinds_are_those_of_all_rows_when_some_are_learnt_from():
    """Whatever some rows would be taken for by themselves."""
    table = rows(
        d=[f"01/{1 + i % 12:02d}/2020" for i in range(N - 1)] + ["31/12/2020"],
        x=[str(i / N) for i in range(N - 1)] + ["5e90"],
        c=["7"] + ["1", "2"] * (N // 2 - 1) + ["z"],
        rare=["no"] * (N - 1) + ["yes"],
    )
    everything = Schema.infer(table, categories=["c"])
    learnt = everything.learnt_again(table.take(np.arange(N - 1)))
    assert kinds(learnt) == {"d": "date", "x": "number", "c": "category"} and learnt.left_out == {"rare": "constant"}
    assert learnt.columns[0].date_format == "%d/%m/%Y" and learnt.columns[1].high < 1
    last = table.take(np.array([N - 1]))
    matrix, _ = learnt.encode(last, clip=True)
    assert np.abs(matrix).max() == pytest.approx(1e9, rel=0.1) and matrix[0, -1] == 1  # near enough; z is strange
    with pytest.raises(TableError, match=f"row {N}, column 'x': 5e.90 is far beyond"):
        learnt.encode(last)
    assert everything.learnt_again(table) == everything


def test_one_number_written_in_two_ways():
    assert Schema.infer(rows(x=["1", "1.0"] * 20, y=texts(range(N)))).left_out == {"x": "constant"}
    target = Target.infer(rows(y=["1", "1.0", "2", "2.00"] * 10), "y")
    assert (target.task, target.n_distinct) == ("classification", 2)
    column = Schema.infer(rows(c=["1.0", "2.0", "007", "7"] * 10), categories=["c"]).columns[0]
    assert column.levels == ("007", "1", "2", "7")
    assert column.encode(Rows("p", 1, {"c": pa.array([1, 2, 3])})).strange.tolist() == [False, False, True]
    long = rows(c=[str(10**19 + i % 2) for i in range(N)])  # one number in floating point, but two labels
    assert Schema.infer(long, categories=["c"]).learnt_again(long).columns[0].levels == (f"{10**19}", f"{10**19 + 1}")


@pytest.mark.parametrize("written", ["{}.5%", "{} %", "${}", "{} €", "1 {:03d}", "-£{},000.5", "{}\u00a0000"])
def test_numbers_with_units_are_no_text(written):
    adorned = [written.format(i) for i in range(1, N + 1)]
    for infer in (lambda table: Schema.infer(table), lambda table: Target.infer(table, "x")):
        with pytest.raises(TableError, match=r"row 1, column 'x': .* is not a number. Write 1234.5"):
            infer(rows(x=adorned))
    assert Schema.infer(rows(x=adorned * 2), categories=["x"]).columns[0].kind == "category"


def test_telephones_and_such_stay_text():
    for written in ("030 {}4567", "{}-12", "{} m", "flat {}", "{}:30"):
        assert "text" in Schema.infer(rows(x=[written.format(i) for i in range(N)], z=texts(range(N)))).left_out["x"]


def test_digits_among_letters_may_be_categories():
    with pytest.raises(TableError, match=r"'A' is not a number.*--ignore 'x'.*--category 'x'"):
        Schema.infer(rows(x=["1", "2", "A"] * 10))


@pytest.mark.parametrize("dates", [[f"2020-01-{i % 28 + 1:02d}" for i in range(N)], np.arange(N).astype("M8[D]")])
def test_dates_cannot_be_predicted(dates):
    with pytest.raises(TableError, match="column 'y': dates cannot be predicted"):
        Target.infer(rows(y=dates), "y")


@pytest.mark.parametrize(
    ("name", "identifies"),
    [(name, True) for name in ("id", "PassengerId", "CustomerID", "customerid", "user.id", "row-index", "userID2")]
    + [(name, False) for name in ("humid", "Paid", "identity", "idle", "Width", "valid_until")],
)
def test_names_of_identifiers(name, identifies):
    schema = Schema.infer(rows(**{name: texts(range(N)), "other": texts(range(N))}))
    assert schema.left_out == ({name: "identifies rows"} if identifies else {})
    assert Schema.infer(rows(**{name: texts(np.arange(N) + 0.5)})).names == [name]  # such as an index of prices


@pytest.mark.parametrize("cell", ["", " ", "NA", "n/a", "NAN", "-nan", "NaT", "NULL", "None", "?"])
def test_missing_cells(cell):
    assert np.isnan(cells.numbers(rows(x=["1", cell]), "x")).tolist() == [False, True]
    assert cells.labels(rows(x=["a", cell]), "x").null_count == 1
    assert np.isnan(cells.times(rows(x=["2020-01-01", cell]), "x", cells.ISO)).tolist() == [False, True]


@given(st.floats(-1e90, 1e90), st.sampled_from(["", " ", "\t"]))
def test_every_number_is_read_as_python_reads_it(number, blank):
    for written in (repr(number), f"{number:.3e}", f"{number:+.2f}"):
        assert cells.numbers(rows(x=[blank + written + blank]), "x")[0] == float(written)


@given(st.text(max_size=8))
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_a_cell_is_a_number_missing_or_an_error(cell):
    try:
        value = cells.numbers(rows(x=[cell]), "x")[0]
    except TableError as error:
        assert "row 1, column 'x'" in str(error)
        return
    assert np.isfinite(value) == (cells.text(pa.array([cell]))[0].as_py() is not None)
    if np.isfinite(value):
        assert value == float(cell)


def test_rare_categories_share_a_level():
    names = [f"city {i}" for i in range(50) for _ in range(2 + (i < 30))]
    column = Schema.infer(rows(c=names)).columns[0]
    assert set(column.levels) == {f"city {i}" for i in range(30)} and column.others
    encoded = column.encode(rows(c=["city 3", "city 40", "never seen", ""]))
    assert encoded.features[:, -1].tolist() == [0, 1, 1, 0] and encoded.strange.tolist() == [False, False, False, True]


def test_surprises_are_counted_over_pieces():
    schema = Schema.infer(varied())
    other = varied(seed=1)
    columns = other.columns | {"city": pa.array(["Rome", "Cairo"] * (N // 2)), "size": pa.array(["1e3"] * N)}
    pieces = [
        Rows("data.csv", 1 + start, {n: c.slice(start, 7) for n, c in columns.items()}) for start in range(0, N, 7)
    ]
    found = merged([surprise for piece in pieces for surprise in schema.encode(piece)[1]])
    city = next(surprise for surprise in found if surprise.column == "city")
    size = next(surprise for surprise in found if surprise.column == "size")
    assert (city.n_rows, city.first_row, city.example, city.is_strange) == (N // 2, 2, "'Cairo'", True)
    assert size.n_rows == N and not size.is_strange
    matrix = np.vstack([schema.encode(piece)[0] for piece in pieces])
    assert np.array_equal(matrix, schema.encode(Rows("data.csv", 1, columns))[0])
    assert matrix[:, -1].tolist() == [0, 1] * (N // 2)
    with pytest.raises(TableError, match=r"column city: category never seen.*first row 2"):
        schema.encode(Rows("data.csv", 1, columns), strict=True)


def test_schema_and_target_survive_json():
    table = varied()
    schema, target = Schema.infer(table), Target.infer(table, "size")
    again = Schema.from_json(headers.parse(json.dumps(schema.to_json())))
    assert again == schema and Target.from_json(headers.parse(json.dumps(target.to_json()))) == target
    assert np.array_equal(again.encode(table)[0], schema.encode(table)[0])
    assert len(json.dumps(schema.to_json())) < 2000


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
    assert np.array_equal(schema.encode(Rows("data.parquet", 1, typed))[0], schema.encode(table)[0])
    again = Schema.infer(Rows("data.parquet", 1, typed))
    assert again.columns == schema.columns


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
def test_the_task_is_seen_in_the_target(values, task, labels):
    target = Target.infer(rows(y=values), "y")
    assert target.task == task
    y, present = target.read(rows(y=[*values, ""]))
    assert present.tolist() == [True] * N + [False]
    assert labels is None or np.unique(y).tolist() == labels


@pytest.mark.parametrize("is_class", [False, True])
def test_rows_held_out(is_class):
    y = np.repeat(["a", "b", "c"], [90, 9, 1]) if is_class else np.arange(100.0)
    held_out = held_out_rows(y, 0.2, is_class, seed=0)
    assert len(np.unique(held_out)) == len(held_out) == (19 if is_class else 20)
    assert set(y[np.setdiff1d(np.arange(100), held_out)]) == set(y) or not is_class
    assert not np.array_equal(held_out, held_out_rows(y, 0.2, is_class, seed=1))


def test_verdicts_know_what_chance_does():
    def verdict(coverage, n):
        return scores.verdict({"rows": n, "coverage_95": coverage})

    assert "honest" in verdict(0.90, 50) and "too sure" in verdict(0.90, 5000)
    assert "too cautious" in verdict(0.99, 5000) and "honest" in verdict(0.99, 50)
    assert "too sure" in scores.verdict({"rows": 1000, "accuracy": 0.8, "confidence": 0.9})


# Files


def wide_file(folder, n):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=n).round(4), "z": rng.normal(size=n).round(4)})
    frame["c"] = rng.choice(["a", "b, quoted", 'c "twice"', "two\nlines"], n)
    frame["y"] = (frame["x"] + (frame["c"] == "a") + 0.1 * rng.normal(size=n)).round(4)
    frame.to_csv(folder / f"{n}.csv", index=False)
    return folder / f"{n}.csv"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A small model of a table, fitted as `TableModel.fit` does it but without its search."""
    path = wide_file(tmp_path_factory.mktemp("model"), 60)
    table = open_table(path).read(["x", "z", "c", "y"])
    target = Target.infer(table, "y")
    schema = Schema.infer(Rows(table.source, 1, {n: c for n, c in table.columns.items() if n != "y"}))
    quick = {"max_iter": 300, "noise_variance": 0.05, "prior_scale": 1.0, "random_state": 0}
    estimator = AnchoredRegressor(5, (20,), **quick).fit(schema.encode(table)[0], target.read(table)[0])
    model = TableModel(schema, target, estimator, dict.fromkeys(scores.OF_NUMBERS, 0.5) | {"rows": 12})
    model.save(path.with_suffix(".anchored"))
    return model


def test_models_come_back(model, tmp_path):
    model.save(tmp_path / "model")
    again = TableModel.load(tmp_path / "model")
    assert again.schema == model.schema and again.target == model.target and again.held_out == model.held_out
    table = open_table(wide_file(tmp_path, 60)).read(model.schema.names)
    assert np.array_equal(again.predict(table)[0].mean, model.predict(table)[0].mean)
    assert anchored.load(tmp_path / "model").feature_names_in_.tolist() == model.schema.features


def test_a_cell_like_no_other_may_be_held_out(monkeypatch):
    """Neither its date nor its size may turn the file away, and targets that are missing shift no row."""
    y = np.arange(60.0) % 7
    odd = int(held_out_rows(y, 0.2, False, 0)[3]) + 1  # behind a row without a target
    dates = [f"01/{1 + i % 12:02d}/2020" for i in range(61)]
    sizes = texts((np.arange(61) % 9) / 10)
    dates[odd], sizes[odd] = "31/12/2020", "5e9"
    table = rows(d=dates, x=sizes, y=["", *texts(y)])
    quick = partial(AnchoredRegressor, hidden_layer_sizes=(20,), noise_variance=0.1, prior_scale=1.0)
    monkeypatch.setattr("anchored.tables.model.AnchoredRegressor", quick)
    model = TableModel.fit(table, "y", members=5, max_iter=2)
    assert kinds(model.schema) == {"d": "date", "x": "number"} and model.schema.columns[1].high == 5e9
    assert model.held_out["rows"] == 12 and model.n_rows == 60 and model.estimator.max_iter == 2


def test_the_size_of_pieces_does_not_matter(model, tmp_path, monkeypatch):
    data, whole = wide_file(tmp_path, 3000), tmp_path / "whole.csv"
    prediction.predict_file(model, data, whole, keep=["c"], at_once=10**6)
    wanted = pd.read_csv(whole)
    assert wanted["c"].tolist() == pd.read_csv(data)["c"].tolist()
    for at_once, n_bytes in ((17, 700), (1000, 5000)):
        seen = []
        monkeypatch.setattr("anchored.tables.files.BYTES_AT_ONCE", n_bytes)
        prediction.predict_file(model, data, tmp_path / "p.csv", keep=["c"], at_once=at_once, on_rows=seen.append)
        pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "p.csv"), wanted, rtol=1e-5)
        assert max(seen) <= at_once and len(seen) >= 3000 / at_once


def test_memory_does_not_grow_with_the_file(model, tmp_path, monkeypatch):
    """What NumPy and Arrow hold at most while 40,000 and 160,000 rows are predicted, in small pieces."""
    monkeypatch.setattr("anchored.tables.files.BYTES_AT_ONCE", 2**16)
    names, content = wide_file(tmp_path, 20_000).read_text().split("\n", 1)
    data, out = tmp_path / "long.csv", tmp_path / "p.csv"

    def peak(repeats):
        data.write_text(names + "\n" + content * repeats)
        in_arrow = []
        tracemalloc.start()
        told = prediction.predict_file(
            model, data, out, at_once=2**11, on_rows=lambda _: in_arrow.append(pa.total_allocated_bytes())
        )
        in_numpy = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert told[0] == 20_000 * repeats and len(in_arrow) >= told[0] / 2**11
        return (in_numpy + max(in_arrow)) / 2**20

    # To hold five numbers a row of all predictions, and nothing else, would take 120,000 × 40 bytes = 4.6 MB more.
    assert peak(8) < peak(2) + 2.5  # and Arrow reads ahead as it likes


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
        with pytest.raises(TableError, match=r"must end with one of \.csv"):
            check_format(tmp_path / name)
    with (
        pytest.raises(TableError, match=r"column 'l': cells of type list.*\.parquet"),
        writing(tmp_path / "n.csv") as write,
    ):
        write({"l": pa.array([[1, 2]])})
    assert not (tmp_path / "n.csv").exists()


def test_row_numbers_are_those_of_the_file(tmp_path):
    lines = ["x,y"] + [f"{i},{i}" for i in range(1, 100_001)]
    lines[90_000] = "oops,1"
    (tmp_path / "d.csv").write_text("\n".join(lines))
    with pytest.raises(TableError, match="row 90000, column 'x': 'oops' is not a number"):
        for piece in open_table(tmp_path / "d.csv").rows(["x"]):
            cells.numbers(piece, "x")
    lines[90_000] = "1,2,3"
    (tmp_path / "d.csv").write_text("\n".join(lines))
    with pytest.raises(TableError, match="row 90000: 3 cells where there are 2 columns"):
        list(open_table(tmp_path / "d.csv").rows(["x"]))


def test_a_missing_cell_alone_in_its_row_is_a_row(tmp_path):
    (tmp_path / "d.csv").write_text("x\n1\n\n3\n")
    assert np.array_equal(
        cells.numbers(open_table(tmp_path / "d.csv").read(["x"]), "x"), [1, np.nan, 3], equal_nan=True
    )


# What uncertainty depends on


def test_influence_of_columns(model, tmp_path):
    table = open_table(wide_file(tmp_path, 400)).read(["x", "z", "c", "y"])
    found = {one.column: one for one in influences(model, table, model.targets(table)[0])}
    assert set(found) == {"x", "z", "c"}
    assert found["x"].error > 3 * max(found["z"].error, 0.01)  # z is idle
    assert all(one.uncertainty > 0 and one.epistemic > 0 for one in found.values())
    # Noise is the same everywhere, so what moves the s.d. is the epistemic part, and moves it less.
    assert all(one.uncertainty < one.epistemic for one in found.values())
    still = Rows(table.source, 1, {**table.columns, "z": pa.array(["0.5"] * len(table))})
    alike = {one.column: one for one in influences(model, still, model.targets(still)[0])}["z"]
    assert alike.uncertainty == alike.epistemic == alike.error == 0  # shuffling equal cells changes nothing
