"""The commands for tables, as a new user types them: what they print and write."""

import gzip
import json
import re
import subprocess
import sys
from io import BytesIO
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from command_line import CONTROLS, CONTROLS_SHOWN, MARKUP, UNSEEN_CONTROLS, patients, run

import anchored
from anchored.cli.console import Output
from anchored.cli.messages import show_columns
from anchored.inference.solvers import first_order
from anchored.storage import archive
from anchored.tables import saved_model


def test_fit_tells_machines_what_it_did(folder, model):
    told = json.loads((folder / "fit.json").read_text())
    assert told["model"] == str(model) and told["task"] == "regression"
    assert told["rows"] == 159 and told["rows_without_target"] == 1
    kinds = {column["name"]: column["kind"] for column in told["columns"]}
    assert kinds["sex"] == kinds["clinic"] == "category" and kinds["visit"] == "date" and kinds["bmi"] == "number"
    assert set(told["left_out"]) == {"patient_id", "note"}
    frame = patients(160).dropna(subset="progression")
    missing = {column["name"]: column["n_missing"] for column in told["columns"]}
    assert missing["bmi"] == frame["bmi"].isna().sum() and missing["clinic"] == frame["clinic"].isna().sum()
    assert told["held_out"]["rows"] == 23 and 0 < told["held_out"]["coverage_95"] <= 1


def test_an_interrupted_fit_continues(folder, model, tmp_path, monkeypatch):
    arguments = ("--target", "progression", "--members", 3, "--hold-out", 0.15, "--checkpoint", tmp_path / "kept")
    arguments = ("fit", folder / "patients.csv", *arguments, "--out", tmp_path / "model")

    def fails(*arguments):
        raise OSError("interrupted")

    with monkeypatch.context() as patch:
        patch.setattr(saved_model, "save", fails)
        cut = run(*arguments)
    assert cut.exit_code == 2 and "Fitting the final model" in cut.stdout and "interrupted" in cut.stderr, cut.output
    refused = run(*arguments, "--max-iter", 10)
    assert refused.exit_code == 2 and "--checkpoint" in refused.stderr and "max_iter ('auto' there" in refused.stderr
    with monkeypatch.context() as patch:
        patch.setattr(first_order, "_run_steps", fails)  # nothing is trained again
        continued = run(*arguments)
    assert continued.exit_code == 0, continued.output
    assert not (tmp_path / "kept").exists()
    one, other = (archive.read(path)[1] for path in (model, tmp_path / "model"))
    assert {name: array.tobytes() for name, array in one.items()} == {k: a.tobytes() for k, a in other.items()}


def test_a_stranger_gets_calibrated_predictions_with_two_commands(folder, model):
    predicted = run("predict", model, folder / "others.csv", "--out", folder / "predictions.csv")
    assert predicted.exit_code == 0 and "Predictions of 242 rows" in predicted.stdout
    predictions = pd.read_csv(folder / "predictions.csv")
    truth = patients()["progression"].iloc[200:].to_numpy()
    assert list(predictions) == ["mean", "std", "epistemic_std", "lower_95", "upper_95"]
    assert np.isfinite(predictions).all(axis=None) and len(predictions) == len(truth)
    assert np.corrcoef(predictions["mean"], truth)[0, 1] > 0.5
    covered = ((predictions["lower_95"] <= truth) & (truth <= predictions["upper_95"])).mean()
    assert 0.9 < covered < 0.995  # 95 % and three standard errors of 242 rows
    quantile = anchored.load(model).noise_shape_.ppf(0.975)
    assert np.allclose(predictions["upper_95"] - predictions["mean"], quantile * predictions["std"], rtol=1e-4)


def test_evaluate_scores_what_predict_wrote(folder, model):
    run("predict", model, folder / "others.csv", "--out", folder / "predictions.csv")
    told = json.loads(run("evaluate", model, folder / "others.csv", "--json").stdout)
    predictions = pd.read_csv(folder / "predictions.csv")
    truth = patients()["progression"].iloc[200:].to_numpy()
    assert told["rmse"] == pytest.approx(np.sqrt(np.mean((predictions["mean"] - truth) ** 2)), rel=1e-5)
    assert told["coverage_95"] == pytest.approx(
        ((predictions["lower_95"] <= truth) & (truth <= predictions["upper_95"])).mean()
    )
    people = run("evaluate", model, folder / "others.csv").stdout
    assert "coverage of 95% intervals" in people and "Calibration: the 95% intervals are" in people


def test_scores_on_training_rows_say_so(folder, model):
    warning = "warning: the model was fitted to these rows, so its errors on them are too small"
    assert warning in run("evaluate", model, folder / "patients.csv").stderr
    assert warning not in run("evaluate", model, folder / "others.csv").stderr


def test_the_file_is_safetensors_with_the_schema_in_its_header(folder, model):
    header, _ = archive.read(model)
    assert header.value("table")["schema"]["columns"][0]["name"] == "age"
    assert b"pickle" not in model.read_bytes()
    estimator = anchored.load(model)
    assert isinstance(estimator, anchored.AnchoredRegressor)
    assert estimator.n_features_in_ == 2 + 9 + 1 + 4 + 5 + 1  # sex, numbers, a mark, clinics, a date, strange cells


def test_formats_column_order_and_spare_columns_make_no_difference(folder, model):
    frame = pd.read_csv(folder / "others.csv")
    shuffled = frame[frame.columns[::-1]].assign(spare="x")
    shuffled.to_parquet(folder / "others.parquet")
    shuffled.to_csv(folder / "others.tsv", sep="\t", index=False, encoding="utf-8-sig")
    with gzip.open(folder / "others.csv.gz", "wt") as file:
        shuffled.to_csv(file, sep=";")  # with pandas' nameless index
    run("predict", model, folder / "others.csv", "-o", folder / "p.csv")
    wanted = pd.read_csv(folder / "p.csv")
    for name in ("others.parquet", "others.tsv", "others.csv.gz"):
        out = folder / "again.parquet"
        told = run("predict", model, folder / name, "-o", out, "--keep", "patient_id")
        assert told.exit_code == 0, told.output
        again = pd.read_parquet(out)
        assert again.pop("patient_id").tolist() == frame["patient_id"].tolist()
        pd.testing.assert_frame_equal(again, wanted, rtol=1e-5)


def test_all_columns_are_kept_on_request(folder, model):
    run("predict", model, folder / "others.csv", "-o", folder / "kept.csv", "--keep-all")
    names = list(pd.read_csv(folder / "others.csv"))
    assert list(pd.read_csv(folder / "kept.csv")) == [*names, "mean", "std", "epistemic_std", "lower_95", "upper_95"]


def test_what_was_never_seen_is_told_and_makes_predictions_less_sure(folder, model):
    frame = pd.read_csv(folder / "others.csv")
    frame.to_csv(folder / "seen.csv", index=False)
    frame.assign(clinic="abroad", bp=None).to_csv(folder / "unseen.csv", index=False)
    told = json.loads(run("predict", model, folder / "unseen.csv", "-o", folder / "u.csv", "--json").stdout)
    novelties = {novelty["column"]: novelty for novelty in told["novelties"] if "range" not in novelty["kind"]}
    assert set(novelties) == {"clinic", "bp"}
    assert novelties["clinic"]["n_rows"] == len(frame) and novelties["clinic"]["example"] == "'abroad'"
    run("predict", model, folder / "seen.csv", "-o", folder / "s.csv")
    seen, unseen = pd.read_csv(folder / "s.csv"), pd.read_csv(folder / "u.csv")
    assert unseen["epistemic_std"].mean() > 1.3 * seen["epistemic_std"].mean()
    people = run("predict", model, folder / "unseen.csv", "-o", folder / "u.csv")
    assert "clinic: category not seen in training ('abroad') in 242 rows, first in row 1" in people.stderr
    assert "more uncertainty" in people.stderr
    strict = run("predict", model, folder / "unseen.csv", "-o", folder / "strict.csv", "--strict")
    assert strict.exit_code == 2 and "first in row 1" in strict.stderr and not (folder / "strict.csv").exists()


def test_certify(folder, exact_model):
    """A model that is the exact posterior is found to be so."""
    certified = run("certify", exact_model, folder / "patients.csv", "--json")
    told = json.loads(certified.stdout)
    assert told["finding"] == "bayesian" and told["rows"] == 159
    assert told["distances"]["std_ratio"] == pytest.approx(1, abs=0.1)
    assert "exact draws" in certified.stderr and told["summary"] in certified.stderr  # people's part


def test_certify_needs_the_rows_of_the_fit(folder, model):
    refused = run("certify", model, folder / "others.csv")
    assert refused.exit_code == 2 and "these are not the rows that the model was fitted to" in refused.stderr


def test_certify_names_the_option_that_bounds_its_memory(folder, model, monkeypatch):
    monkeypatch.setattr("anchored.certification.arguments.N_MATRICES", 10**5)
    refused = run("certify", model, folder / "patients.csv", "--max-memory-gb", 0.1)
    assert refused.exit_code == 2
    assert re.search(r"--max-memory-gb is 0.1, but the exact posterior of 159 rows needs about", refused.stderr)


def test_classes(flowers):
    run("predict", flowers / "model", flowers / "test.csv", "-o", flowers / "p.csv")
    predictions, truth = pd.read_csv(flowers / "p.csv"), pd.read_csv(flowers / "test.csv")["species"]
    shares = [name for name in predictions if name.startswith("probability_")]
    assert shares == ["probability_setosa", "probability_versicolor", "probability_virginica"]
    assert np.allclose(predictions[shares].sum(axis=1), 1, atol=1e-6)
    most_likely = predictions[shares].idxmax(axis=1).str.removeprefix("probability_")
    assert (predictions["predicted"] == most_likely).all() and (predictions["predicted"] == truth).mean() > 0.9
    p = predictions[shares].to_numpy()
    entropy = -np.sum(p * np.log(np.maximum(p, 1e-12)), axis=1)
    assert np.allclose(predictions["total_entropy"], entropy, atol=1e-5)
    assert np.allclose(
        predictions["total_entropy"], predictions["aleatoric_entropy"] + predictions["epistemic_entropy"], atol=1e-5
    )
    told = json.loads(run("evaluate", flowers / "model", flowers / "test.csv", "--json").stdout)
    assert told["accuracy"] == pytest.approx((predictions["predicted"] == truth).mean())
    refused = run("certify", flowers / "model", flowers / "train.csv")
    assert refused.exit_code == 2 and "only regression can be certified" in refused.stderr
    (flowers / "new.csv").write_text((flowers / "test.csv").read_text().replace("setosa", "lily"))
    refused = run("evaluate", flowers / "model", flowers / "new.csv")
    assert refused.exit_code == 2 and "row 1, column 'species': 'lily' is not one of the classes" in refused.stderr


def test_names_reach_the_terminal_as_text(flowers):
    data, out = flowers / "far.csv", flowers / f"{CONTROLS}.csv"
    predicted = run("predict", flowers / "model", data, "-o", out)
    evaluated = run("evaluate", flowers / "model", data)
    refused = run("evaluate", flowers / "model", flowers / f"no {CONTROLS}.csv")
    assert (predicted.exit_code, evaluated.exit_code, refused.exit_code) == (0, 0, 2) and out.exists()
    for told in ((flowers / "fit.txt").read_text(), predicted.stderr, evaluated.stderr):
        assert MARKUP in told and CONTROLS_SHOWN in told
    assert f"{CONTROLS_SHOWN}.csv" in predicted.stdout and f"no {CONTROLS_SHOWN}.csv" in refused.stderr
    for told in ((flowers / "fit.txt").read_text(), predicted.output, evaluated.output, refused.output):
        assert not UNSEEN_CONTROLS.search(told)


def test_names_reach_machines_as_they_are(flowers):
    told = run("predict", flowers / "model", flowers / "far.csv", "-o", flowers / "p.csv", "--json").stdout
    assert told.isascii() and not UNSEEN_CONTROLS.search(told)
    assert {novelty["column"] for novelty in json.loads(told)["novelties"]} >= {MARKUP, CONTROLS}


def test_days_that_may_be_months_are_noted(capsys):
    from anchored.tables.columns import DateColumn
    from anchored.tables.formats import Format
    from anchored.tables.schema import Schema

    day = DateColumn("seen", Format(date="%m/%d/%Y"), 1.0, 0.0, 2.0, (), 0, is_ambiguous=True)
    fitted = SimpleNamespace(schema=Schema((day,), {}), n_rows=3)
    show_columns(Output(False), fitted, 3, 0)
    told = capsys.readouterr()
    assert "written month/day/year" in told.out
    assert "seen: dates are read as month/day/year; use --date-format '%d/%m/%Y' if they are day" in told.err


def test_columns_left_out_are_a_warning_above_the_scores(tmp_path, capsys):
    from anchored.tables.schema import Schema

    schema = Schema((), {"note": "text, different in most rows", "gone": "ignored", "a": "constant", "b": "constant"})
    show_columns(Output(False), SimpleNamespace(schema=schema, n_rows=3), 3, 0)
    told = capsys.readouterr().err
    assert told.splitlines() == [
        "warning: left out (text, different in most rows): note; use --type 'note=category' to read it",
        "warning: left out (constant): a, b",
    ]


def test_standard_input_and_output(folder, model):
    """As a shell joins commands: what is written is what a file would hold."""
    run("predict", model, folder / "others.csv", "-o", folder / "p.csv")
    command = [sys.executable, "-m", "anchored", "predict", str(model), "-", "--out", "-"]
    told = subprocess.run(command, input=(folder / "others.csv").read_bytes(), capture_output=True, check=True)
    pd.testing.assert_frame_equal(pd.read_csv(BytesIO(told.stdout)), pd.read_csv(folder / "p.csv"), rtol=1e-5)
    assert b"Predictions of 242 rows" in told.stderr
