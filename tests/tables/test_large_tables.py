"""Tables in several files, and tables of more than one piece of rows, which are read in batches."""

import json

import jax
import numpy as np
import pandas as pd
import pytest
from command_line import run

from anchored import AnchoredRegressor
from anchored.errors import ArgumentError, TableError
from anchored.inference import pieces
from anchored.tables import fitting, large_tables, saved_model
from anchored.tables.formats import ReadingOptions
from anchored.tables.table_sets import open_tables

pytestmark = pytest.mark.usefixtures("unoptimised")
N_ROWS = 700
SETTINGS = {"members": 2, "max_iter": 3, "hold_out": 0.1}


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(pieces, "PIECE_ROWS", 300)


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    area = rng.uniform(20, 200, N_ROWS)
    kind = rng.choice(["flat", "house"], N_ROWS).astype(object)
    kind[[5, 650]] = "castle"
    price = 3 * area + 50 * (kind == "house") + rng.normal(size=N_ROWS)
    price[rng.random(N_ROWS) < 0.05] = np.nan
    area[rng.random(N_ROWS) < 0.1] = np.nan
    return pd.DataFrame({"area": area, "kind": kind, "price": price, "row_id": np.arange(N_ROWS)})


@pytest.fixture(scope="module")
def folder(frame, tmp_path_factory):
    folder = tmp_path_factory.mktemp("large") / "houses"
    folder.mkdir()
    frame.iloc[:333].to_parquet(folder / "a.parquet", row_group_size=100)
    frame.iloc[333:].to_parquet(folder / "b.parquet", row_group_size=100)
    (folder / "notes.txt").write_text("not a table")
    return folder


def test_the_members_are_those_of_the_same_rows_in_memory(frame, folder):
    files = open_tables([folder])
    assert large_tables.is_large(files, "price")
    model, n_rows, n_unknown = fitting.fit_files(files, "price", **SETTINGS)
    assert (n_rows, n_unknown) == (N_ROWS, frame["price"].isna().sum())
    table = large_tables.prepare(files, "price", "auto", ReadingOptions(), 0.1, 0)
    labelled = np.flatnonzero(frame["price"].notna())
    trained = np.delete(labelled, table.held_out)
    assert len(trained) == model.n_rows == n_rows - n_unknown - model.held_out["rows"]
    rows = files.read(files.names).take(trained)
    X = model.schema.encode(rows)[0]
    X[:, -1] = 0
    y = frame["price"].to_numpy()[trained]
    part = pieces.first_piece(len(y))
    for found, expected in zip(table.first_piece(), (X[part], y[part])):
        assert np.array_equal(found, expected)
    in_memory = AnchoredRegressor(2, max_iter=3, random_state=0).fit(X, y)
    pairs = zip(jax.tree.leaves(in_memory.posterior_.members), jax.tree.leaves(model.estimator.posterior_.members))
    assert all(np.array_equal(one, other) for one, other in pairs)
    scored = files.read(files.names).take(labelled[table.held_out])
    error = model.predict(scored)[0].mean - frame["price"].to_numpy()[labelled[table.held_out]]
    assert model.held_out["rmse"] == pytest.approx(np.sqrt(np.mean(error**2)))


def test_the_command_fits_classes_in_a_folder_and_continues(frame, tmp_path):
    folder = tmp_path / "csv"
    folder.mkdir()
    for name, rows in (("1", slice(0, 400)), ("2", slice(400, None))):
        frame.iloc[rows].to_csv(folder / f"{name}.csv", index=False)
    arguments = ("-t", "kind", "--members", 2, "--max-iter", 2, "--guarantee", 0.9, "--checkpoint", tmp_path / "kept")
    told = run("fit", folder, *arguments, "--out", tmp_path / "model", "--json")
    assert told.exit_code == 0, told.output
    result = json.loads(told.stdout)
    assert result["task"] == "classification" and result["rows"] + result["held_out"]["rows"] == N_ROWS
    assert result["guarantee"]["coverage"] == 0.9
    assert set(result["left_out"]) == {"row_id"}
    assert saved_model.load(tmp_path / "model").classes.tolist() == ["castle", "flat", "house"]
    assert {path.name for path in tmp_path.iterdir()} == {"csv", "model"}


def test_few_rows_in_several_files_are_one_table(frame, folder, tmp_path, monkeypatch):
    monkeypatch.setattr(pieces, "PIECE_ROWS", 2**18)
    files = open_tables([folder / "b.parquet", folder / "a.parquet"])
    assert not large_tables.is_large(files, "price")
    rows = files.read(files.names)
    expected = pd.concat([frame.iloc[333:], frame.iloc[:333]])
    assert rows.columns["row_id"].to_pylist() == expected["row_id"].tolist()


def test_files_that_do_not_fit_together_are_refused(frame, folder, tmp_path):
    frame.rename(columns={"area": "size"}).to_csv(tmp_path / "other.csv", index=False)
    with pytest.raises(TableError, match=r"it has no column 'area', which .*a\.parquet has"):
        open_tables([folder / "a.parquet", tmp_path / "other.csv"])
    frame.to_csv(tmp_path / "text.csv", index=False)
    with pytest.raises(TableError, match="values of the types double and string"):
        fitting.fit_files(open_tables([folder, tmp_path / "text.csv"]), "price", **SETTINGS)
    (tmp_path / "empty").mkdir()
    with pytest.raises(TableError, match="no CSV, Parquet or Arrow file"):
        open_tables([tmp_path / "empty"])


def test_too_few_rows_with_a_target_among_many(frame, tmp_path):
    few = frame.assign(price=np.where(np.arange(N_ROWS) < 90, np.arange(N_ROWS), np.nan))
    few.to_csv(tmp_path / "few.csv", index=False)
    files = open_tables([tmp_path / "few.csv"])
    for settings, argument in [({"hold_out": 0.01}, "hold_out"), ({"hold_out": 0.1, "coverage": 0.95}, "guarantee")]:
        with pytest.raises(ArgumentError) as caught:
            fitting.fit_files(files, "price", **SETTINGS | settings)
        assert caught.value.argument == argument
