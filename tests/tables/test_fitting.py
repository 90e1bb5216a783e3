"""Fitting a table: which rows are held out, what they guarantee, and that they never change how a column is read."""

import json
from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from command_line import run
from table_data import kinds, rows, texts

from anchored import AnchoredRegressor
from anchored.errors import ArgumentError, TableError
from anchored.estimators.guarantee import Guarantee
from anchored.model.predictive import CategoricalPredictive
from anchored.tables import fitting, load, saved_model
from anchored.tables.fitting import calibration_rows, held_out_rows
from anchored.tables.model import TableModel
from anchored.tables.prediction import prediction_columns
from anchored.tables.scores import empirical_coverage
from anchored.tables.used_rows import guarantee_positions


def closed_form(monkeypatch):
    settings = {"hidden_layer_sizes": (20,), "trainable": "last_layer", "noise_variance": 0.01, "prior_scale": 1.0}
    monkeypatch.setattr("anchored.tables.fitting.AnchoredRegressor", partial(AnchoredRegressor, **settings))


@pytest.mark.parametrize("is_class", [False, True])
def test_rows_held_out(is_class):
    y = np.repeat(["a", "b", "c"], [90, 9, 1]) if is_class else np.arange(100.0)
    held_out = held_out_rows(y, np.arange(len(y)), 0.2, is_class, seed=0)
    assert len(np.unique(held_out)) == len(held_out) == (19 if is_class else 20)
    assert set(y[np.setdiff1d(np.arange(100), held_out)]) == set(y) or not is_class
    assert not np.array_equal(held_out, held_out_rows(y, np.arange(len(y)), 0.2, is_class, seed=1))


def test_copies_are_held_out_together():
    first = np.repeat(np.arange(0, 100, 4), 4)  # every row four times
    held_out = held_out_rows(first / 4.0, first, 0.2, False, seed=0)
    assert len(held_out) == 20
    assert np.array_equal(np.unique(first[held_out], return_counts=True)[1], np.full(5, 4))


def test_a_value_like_no_other_may_be_held_out(model, monkeypatch):
    """Neither its date nor its size may turn the file away, and targets that are missing shift no row."""
    y = np.arange(60.0) % 7
    odd = int(held_out_rows(y, np.arange(60), 0.05, False, 0)[1]) + 1  # behind a row without a target
    dates = [f"01/{1 + i % 12:02d}/2020" for i in range(61)]
    sizes = texts((np.arange(61) % 9) / 10)
    dates[odd], sizes[odd] = "31/12/2020", "5e9"
    others = {name: texts((np.arange(61) * step) % 11) for name, step in (("a", 3), ("b", 5))}
    table = rows(d=dates, x=sizes, **others, y=["", *texts(y)])  # shapes of the `model` of other tests
    closed_form(monkeypatch)
    like, model = model, fitting.fit(table, "y", members=5, max_iter=2, hold_out=0.05)
    assert kinds(model.schema) == {"d": "date", "x": "number", "a": "number", "b": "number"}
    assert len(model.schema.feature_names) == len(like.schema.feature_names) and model.schema.columns[1].high == 5e9
    assert model.held_out["rows"] == 3 and model.n_rows == 60 and model.estimator.max_iter == 2


@pytest.fixture(scope="module")
def guaranteed():
    """A model that guarantees a coverage, and the data of which all but the first of the first 300 rows were used."""
    x = np.random.default_rng(0).normal(size=1200).round(4)
    y = (x + np.random.default_rng(1).standard_t(3, 1200)).round(4)
    table = rows(x=texts(x[:300]), y=["", *texts(y[1:300])])
    with pytest.MonkeyPatch.context() as monkeypatch:
        closed_form(monkeypatch)
        return fitting.fit(table, "y", members=3, hold_out=0.7, coverage=0.9), x, y


def test_a_guarantee_holds_from_the_file_to_the_commands(guaranteed, tmp_path):
    """Rows are held out at random and calibrate the model, which is fitted to the others only."""
    model, x, y = guaranteed
    found = model.estimator.guarantee_
    assert (found.coverage, found.n_rows, model.n_rows, model.held_out["rows"]) == (0.9, 209, 90, 209)
    saved_model.save(model, tmp_path / "model")
    pd.DataFrame({"x": x, "y": y})[300:].to_csv(tmp_path / "new.csv", index=False)
    assert run("predict", tmp_path / "model", tmp_path / "new.csv", "-o", tmp_path / "p.parquet").exit_code == 0
    told = pd.read_parquet(tmp_path / "p.parquet")
    covered = np.mean((told["guaranteed_lower_90"] <= y[300:]) & (y[300:] <= told["guaranteed_upper_90"]))
    assert np.mean((told["lower_95"] <= y[300:]) & (y[300:] <= told["upper_95"])) < 0.5  # the given noise is too small
    assert abs(covered - 0.9) < 3 * np.sqrt(0.09 * (1 / 209 + 1 / 900))
    same = load(tmp_path / "model").predict_guaranteed_interval(pd.DataFrame({"x": x[300:]}))
    assert np.array_equal(same, told[["guaranteed_lower_90", "guaranteed_upper_90"]].to_numpy().T)
    evaluated = run("evaluate", tmp_path / "model", tmp_path / "new.csv", "--json")
    assert json.loads(evaluated.stdout)["empirical_coverage_of_guarantee"] == covered
    assert f"{covered:.1%} of the observations are in the guaranteed intervals; 90% are guaranteed" in evaluated.stderr
    assert "warning" not in evaluated.stderr


def test_rows_of_a_guarantee_are_recognised(guaranteed, tmp_path):
    """In the whole file, among the training rows, and by themselves; a certificate is that of the training rows."""
    model, x, y = guaranteed
    saved_model.save(model, tmp_path / "model")
    held_out = guarantee_positions(299, 209, 0)
    parts = {"whole": np.arange(299), "training": np.setdiff1d(np.arange(299), held_out), "held out": held_out}
    parts["other"] = np.delete(parts["whole"], 7)
    told = {}
    for name, positions in parts.items():
        pd.DataFrame({"x": x, "y": y})[1:300].iloc[positions].to_csv(tmp_path / f"{name}.csv", index=False)
        found = run("evaluate", tmp_path / "model", tmp_path / f"{name}.csv", "--json")
        told[name] = [json.loads(found.stdout)[key] for key in ("contains_training_rows", "contains_guarantee_rows")]
        assert ("warning: the model was fitted to" in found.stderr) == told[name][0]
        assert ("not test" in found.stderr) == told[name][1]
    assert told == {
        "whole": [True, True], "training": [True, False], "held out": [False, True], "other": [False, False],
    }  # fmt: skip
    certify = partial(run, "certify", tmp_path / "model", "--json")
    whole, training = (json.loads(certify(tmp_path / f"{name}.csv").stdout) for name in ("whole", "training"))
    assert whole == training and whole["rows"] == 90
    assert run("certify", tmp_path / "model", tmp_path / "held out.csv").exit_code == 2


def test_sets_of_classes_are_columns_of_the_predictions():
    labels = np.array(["a", "b"])
    p = np.array([[0.9, 0.1], [0.4, 0.6], [0.15, 0.85]])
    predictive = CategoricalPredictive(p, np.zeros(3), np.zeros((3, 2)), 5)
    estimator = SimpleNamespace(guarantee_=Guarantee(0.8, (0.7,), 50), classes_=labels)
    columns = prediction_columns(TableModel(None, None, estimator, None), predictive, 0.95)
    assert columns["in_set_80_a"].to_pylist() == [True, True, False]
    assert columns["in_set_80_b"].to_pylist() == [False, True, True]
    assert empirical_coverage(np.array(["a", "a", "a"]), predictive, estimator.guarantee_, labels) == 2 / 3


def test_rows_that_cannot_guarantee_are_errors_before_the_fit():
    table = rows(x=texts(range(60)), y=texts(np.arange(60) % 7))
    with pytest.raises(ArgumentError, match=r"guarantee 0\.95 can be guaranteed with 19 calibration rows or more.*12"):
        fitting.fit(table, "y", coverage=0.95)
    labels = np.array(["a"] * 58 + ["b"] * 2)
    chosen = [calibration_rows("d.csv", labels, 0.5, 0.9, False, seed) for seed in range(200)]
    counts = np.bincount(np.concatenate(chosen), minlength=60)
    assert all(len(positions) == 30 for positions in chosen) and np.abs(counts - 100).max() < 4 * np.sqrt(50)
    with pytest.raises(
        TableError, match=r"d\.csv: all rows of the class 'b' are among the held-out rows.*another seed"
    ):
        for seed in range(50):
            calibration_rows("d.csv", labels, 0.5, 0.9, True, seed)
