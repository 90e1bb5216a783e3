"""The commands for tables, as a new user types them: what they print, write, refuse, and how they end."""

import gzip
import json
import os
import re
import subprocess
import sys
import time
from base64 import b64decode
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_diabetes
from typer.testing import CliRunner

import anchored
from anchored.cli import app
from anchored.cli.console import Console, in_options
from anchored.cli.tables import show_columns
from anchored.storage import archive
from anchored.tables.errors import TableError
from anchored.tables.files import open_table
from anchored.tables.target import Target

SOURCE = Path(anchored.__file__).parent
COMMAND = [sys.executable, "-c", "from anchored.cli import app; app()"]


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


def patients(n_rows=None):
    """Diabetes patients as a clinic would keep them: categories, dates, missing cells, free text."""
    rng = np.random.default_rng(0)
    frame = load_diabetes(as_frame=True, scaled=False).frame.rename(
        columns={"target": "progression", "s6": "sugar in $$"}
    )
    frame = frame if n_rows is None else frame.sample(n_rows, random_state=0, ignore_index=True)
    n = len(frame)
    frame["sex"] = frame["sex"].map({1.0: "female", 2.0: "male"})
    frame["clinic"] = rng.choice(["north", "south", "east"], n)
    frame["visit"] = (pd.Timestamp("2019-01-01") + pd.to_timedelta(rng.integers(0, 900, n), "D")).strftime("%Y-%m-%d")
    frame["note"] = [f"patient {i} feels {rng.choice(['well', 'tired'])}" for i in range(n)]
    frame.insert(0, "patient_id", [f"P{i:04d}" for i in range(n)])
    for name in ("bmi", "clinic"):
        frame.loc[rng.random(n) < 0.1, name] = None
    frame.loc[3, "progression"] = None
    return frame


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two tables of patients, and a model of the first for their progression, by the command line."""
    folder = tmp_path_factory.mktemp("clinic")
    patients(160).to_csv(folder / "patients.csv", index=False)
    patients().iloc[200:].to_csv(folder / "others.csv", index=False)
    fitted = run("fit", folder / "patients.csv", "--target", "progression", "--members", 3, "--json")
    assert fitted.exit_code == 0, fitted.output
    (folder / "fit.json").write_text(fitted.stdout)
    return folder


@pytest.fixture(scope="module")
def model(folder):
    return folder / "patients.anchored"


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
    assert told["held_out"]["rows"] == 31 and 0 < told["held_out"]["coverage_95"] <= 1


def test_a_stranger_gets_calibrated_predictions_with_two_commands(folder, model):
    predicted = run("predict", model, folder / "others.csv", "--out", folder / "predictions.csv")
    assert predicted.exit_code == 0 and "Predictions of 242 rows" in predicted.stdout
    predictions = pd.read_csv(folder / "predictions.csv")
    truth = patients()["progression"].iloc[200:].to_numpy()
    assert list(predictions) == ["mean", "std", "epistemic_std", "lower_95", "upper_95"]
    assert np.isfinite(predictions).all(axis=None) and len(predictions) == len(truth)
    assert np.corrcoef(predictions["mean"], truth)[0, 1] > 0.5
    covered = ((predictions["lower_95"] <= truth) & (truth <= predictions["upper_95"])).mean()
    assert 0.9 < covered < 0.99  # two standard errors of 242 rows about 95 %
    assert np.allclose(predictions["upper_95"] - predictions["mean"], 1.959964 * predictions["std"], rtol=1e-4)


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
    assert "95% intervals hold" in people and "Calibration: the 95% intervals are" in people


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


def test_what_was_never_seen_is_told_and_makes_predictions_less_sure(folder, model):
    frame = pd.read_csv(folder / "others.csv")
    frame.to_csv(folder / "seen.csv", index=False)
    frame.assign(clinic="abroad", bp=None).to_csv(folder / "unseen.csv", index=False)
    told = json.loads(run("predict", model, folder / "unseen.csv", "-o", folder / "u.csv", "--json").stdout)
    surprises = {surprise["column"]: surprise for surprise in told["surprises"] if "never" in surprise["what"]}
    assert set(surprises) == {"clinic", "bp"}
    assert surprises["clinic"]["n_rows"] == len(frame) and surprises["clinic"]["example"] == "'abroad'"
    run("predict", model, folder / "seen.csv", "-o", folder / "s.csv")
    seen, unseen = pd.read_csv(folder / "s.csv"), pd.read_csv(folder / "u.csv")
    assert unseen["epistemic_std"].mean() > 1.3 * seen["epistemic_std"].mean()
    people = run("predict", model, folder / "unseen.csv", "-o", folder / "u.csv")
    assert "clinic: category never seen at the fit ('abroad') in 242 rows, the first row 1" in people.stderr
    assert "less certainty" in people.stderr
    strict = run("predict", model, folder / "unseen.csv", "-o", folder / "strict.csv", "--strict")
    assert strict.exit_code == 2 and "the first row 1" in strict.stderr and not (folder / "strict.csv").exists()


def test_certify(folder, model):
    told = json.loads(run("certify", model, folder / "patients.csv", "--json").stdout)
    assert told["members"] == 3 and told["rows"] == 159 and told["distances"]["std_ratio"] > 0
    assert "perfect draws" in run("certify", model, folder / "patients.csv").stdout
    for wrong, why in ((folder / "others.csv", "does not hold the rows that the model was fitted to"),):
        refused = run("certify", model, wrong)
        assert refused.exit_code == 2 and why in refused.stderr


# Classes, and names of columns that a terminal, a page or a picture could take for instructions

MARKUP = r"[/red] a\[/b] $x_{$ <b> :smile:"
CONTROLS = "\x1b[31m\x07\x9b2J\u202e"
CONTROLS_SHOWN = r"\x1b[31m\x07\x9b2J\u202e"
UNSEEN_CONTROLS = re.compile("[\0-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]")


@pytest.fixture(scope="module")
def flowers(tmp_path_factory):
    from sklearn.datasets import load_iris

    folder = tmp_path_factory.mktemp("flowers")
    frame = load_iris(as_frame=True).frame
    frame = frame.rename(columns={"sepal length (cm)": MARKUP, "sepal width (cm)": CONTROLS})
    frame["species"] = frame.pop("target").map({0: "setosa", 1: "versicolor", 2: "virginica"})
    frame.iloc[::2].to_csv(folder / "train.csv", index=False)
    frame.iloc[1::2].to_csv(folder / "test.csv", index=False)
    frame.iloc[:9].assign(**{MARKUP: 99.0, CONTROLS: 99.0}).to_csv(folder / "far.csv", index=False)
    fitted = run("fit", folder / "train.csv", "-t", "species", "--members", 3, "-o", folder / "model")
    assert fitted.exit_code == 0 and "accuracy" in fitted.stdout
    (folder / "fit.txt").write_text(fitted.stdout)
    return folder


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
    assert refused.exit_code == 2 and "row 1, column 'species': 'lily' is none of the classes" in refused.stderr


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
    assert {surprise["column"] for surprise in json.loads(told)["surprises"]} >= {MARKUP, CONTROLS}


def test_tables_of_the_terminal_show_what_they_are_given(capsys):
    Console(False).table([r"\[bold]head", ""], [["two\nlines\r", "[red]x[/] :smile:"], ["[link=http://x]y", "\ud800"]])
    told = capsys.readouterr().out
    for shown in (r"\[bold]head", r"two\nlines\r", "[red]x[/] :smile:", "[link=http://x]y", r"\ud800"):
        assert shown in told
    assert not UNSEEN_CONTROLS.search(told)


# The report


class Outline(HTMLParser):
    """Headings, tables, pictures and everything the page would load."""

    def __init__(self, page):
        super().__init__()
        self.sections, self.tables, self.pictures, self.loaded, self.row, self.inside = [], [], [], [], None, None
        self.page = page
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.loaded += [value for name, value in attributes.items() if name in ("src", "href")]
        if tag == "section":
            self.sections.append(attributes["id"])
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag == "img":
            self.pictures.append(b64decode(attributes["src"].removeprefix("data:image/png;base64,")))
        self.inside = tag

    def handle_data(self, text):
        if self.inside in ("td", "th"):
            self.tables[-1][-1].append(text)

    def handle_endtag(self, tag):
        self.inside = None


def outline_of(told, page):
    assert told.exit_code == 0, told.output
    outline = Outline(page.read_text())
    assert outline.sections == ["scores", "calibration", "surest", "uncertain", "influence", "columns", "command"]
    assert all(source.startswith("data:") for source in outline.loaded)
    assert all(picture.startswith(b"\x89PNG") and len(picture) > 5000 for picture in outline.pictures)
    return outline


def test_report_of_numbers(folder, model):
    """A column's name may look like a formula; rows without a target shift no number."""
    data = pd.read_csv(folder / "others.csv")
    data.loc[:2, "progression"], data.loc[4, "clinic"] = np.nan, "abroad"
    data.to_csv(folder / "known later.csv", index=False)
    told = run("report", model, folder / "known later.csv", "-o", folder / "page.html", "--json")
    outline, numbers = outline_of(told, folder / "page.html"), json.loads(told.stdout)
    assert "clinic: category never seen at the fit (&#x27;abroad&#x27;) in 1 row, the first row 5" in outline.page
    assert "&#x27;" + str(folder / "known later.csv") + "&#x27; --out" in outline.page  # as a shell reads it
    run("predict", model, folder / "known later.csv", "-o", folder / "p.csv")
    predictions, data = pd.read_csv(folder / "p.csv")[3:], data[3:]
    scores, surest, uncertain, influence, _ = outline.tables
    assert dict(row[:2] for row in scores[1:])["rows"] == str(len(data))
    assert dict(row[:2] for row in scores[1:])["error (RMSE)"] == f"{numbers['rmse']:.2f}"
    most = np.argsort(-predictions["std"].to_numpy(), kind="stable")[:12]
    assert [int(row[0]) for row in uncertain[1:]] == (most + 4).tolist()
    assert [float(row[1]) for row in uncertain[1:]] == data["progression"].to_numpy()[most].tolist()
    assert [row[0] for row in influence[1:]] == [one["column"] for one in numbers["influence"]]
    order = np.argsort(predictions["std"].to_numpy(), kind="stable")[: round(0.2 * len(data))]
    error = np.sqrt(np.mean((predictions["mean"] - data["progression"]).to_numpy()[order] ** 2))
    assert float(surest[-1][2]) == pytest.approx(error, rel=1e-3)
    assert len(outline.pictures) == 3


def test_report_of_classes(flowers):
    told = run("report", flowers / "model", flowers / "test.csv", "-o", flowers / "page.html")
    outline = outline_of(told, flowers / "page.html")
    assert len(outline.pictures) == 2 and "Calibration: the probabilities are" in told.stdout
    influence = {row[0]: float(row[3]) for row in outline.tables[3][1:]}
    assert max(influence, key=influence.get).startswith("petal")
    assert {MARKUP, CONTROLS_SHOWN} < set(influence) and not UNSEEN_CONTROLS.search(outline.page)
    assert told.stderr == ""  # no glyph was missing in a picture
    truth = pd.read_csv(flowers / "test.csv")
    assert {row[1] for row in outline.tables[2][1:]} <= set(truth["species"])


def test_no_report_without_targets(folder, model, tmp_path):
    pd.read_csv(folder / "others.csv").drop(columns="progression").to_csv(tmp_path / "new.csv")
    told = run("report", model, tmp_path / "new.csv", "-o", tmp_path / "page.html")
    refused(told, "no column 'progression'", tmp_path, ["new.csv"])


# Broken files: each ends with exit code 2 and one line that says what to do, and leaves nothing behind.

GOOD = "".join(f"{i % 7},{'abc'[i % 3]},{2 * (i % 7) + i % 5}\n" for i in range(40))
TABLES = {
    "empty": (b"", "is empty"),
    "blank lines": (b"\n\n\n", "is empty"),
    "first line empty": (b"\nx,c,y\n" + GOOD.encode(), "first line is empty.*remove it"),
    "header only": (b"x,c,y\n", "no rows below them"),
    "header only, no line end": (b"x,c,y", "no rows below them"),
    "no header": (b"1,2,3\n" * 30, "first row must name the columns"),
    "too few cells": (f"x,c,y\n{GOOD}5,a\n".encode(), "row 41: 2 cells where there are 3 columns"),
    "too many cells": (f"x,c,y\n1,a,2\n1,a,b,2\n{GOOD}".encode(), "row 2: 4 cells where there are 3 columns"),
    "open quote": (f'x,y,c\n1,2,"a\n{GOOD}'.encode(), "row 1: a quote is opened and never closed"),
    "no target column": (f"x,c,Y1\n{GOOD}".encode(), "no column 'y', named by --target. It has 'x', 'c', 'Y1'"),
    "target misspelt": (f"x,c,y_\n{GOOD}".encode(), "no column 'y'.* Did you mean 'y_'?"),
    "target all missing": (b"x,c,y\n" + b"1,a,\n2,b,NA\n" * 20, "'y' is missing in every row"),
    "target constant": (b"x,c,y\n" + b"1,a,5\n2,b,5\n" * 20, "'y' is '5' in every row"),
    "target constant, written in two ways": (b"x,y\n" + b"1,5\n2,5.0\n3,5.00\n" * 20, "'y' is '5' in every row"),
    "one class only": (b"x,c,y\n" + b"1,a,yes\n2,b,yes\n" * 20, "'y' is 'yes' in every row"),
    "too few rows": (b"x,c,y\n" + b"1,a,2\n3,b,4\n" * 8, "at least 20 are needed"),
    "a class for every row": (
        b"x,c,y\n" + b"".join(f"1,a,name{i}\n".encode() for i in range(40)),
        "40 classes in 40 rows, too many to learn",
    ),
    "same name twice": (f"x,x,y\n{GOOD}".encode(), "more than one column named 'x'; rename all but one"),
    "nothing to predict from": (b"y\n" + b"".join(b"%d\n" % i for i in range(40)), "no column to predict from"),
    "only constants": (b"a,y\n" + b"".join(b"1,%d\n" % i for i in range(40)), "no column to predict from.*constant"),
    "unknown delimiter": (f"x,c,y\n{GOOD}".replace(",", "~").encode(), "no column 'y'.*'x~c~y'"),
    "binary": (bytes(range(256)) * 20, "is not text; give a CSV or Parquet file"),
    "latin-1": (f"x,c,y\n{GOOD}5,caf\xe9,1\n".encode("latin-1"), "line 42: not UTF-8 text; convert it"),
    "latin-1 in a short row": (f"x,c,y\n{GOOD}5,caf\xe9".encode("latin-1"), "line 42: not UTF-8 text; convert it"),
    "latin-1 names": (f"x,caf\xe9,y\n{GOOD}".encode("latin-1"), "line 1: not UTF-8 text; convert it"),
    "utf-16": (f"x,c,y\n{GOOD}".encode("utf-16"), "is UTF-16 text; save it as UTF-8"),
    "infinite": (f"x,c,y\n{GOOD}inf,a,1\n".encode(), "row 41, column 'x': inf is too large"),
    "infinite target": (f"x,c,y\n{GOOD}1,a,-inf\n".encode(), "row 41, column 'y': -inf is too large"),
    "beyond doubles": (f"x,c,y\n{GOOD}1e999,a,1\n".encode(), "row 41, column 'x': inf is too large"),
    "text among numbers": (f"x,c,y\n{GOOD}five,a,1\n".encode(), "row 41, column 'x': 'five' is not a number"),
    "text among targets": (f"x,c,y\n{GOOD}5,a,one\n".encode(), "row 41, column 'y': 'one' is not a number"),
    "thousands": (f'x,c,y\n{GOOD}"1,000",a,1\n'.encode(), "row 41, column 'x': '1,000' is not a number. Write 1234.5"),
    "decimal commas": (b"x;y\n" + b"1,5;2\n3,25;4\n7,125;1\n" * 20, "row 1, column 'x': '1,5' is not a number"),
    "no such date": (
        b"d,y\n" + b"".join(f"2024-01-{i % 28 + 1:02d},{i}\n".encode() for i in range(40)) + b"2024-02-30,1\n",
        "row 41, column 'd': '2024-02-30' is no date like 2024-01-31",
    ),
    "workbook": (b"PK\x03\x04" + bytes(100), "save it as CSV"),
}


def refused(told, message, folder, left):
    """Whether a command ended as it should: exit code 2, one line, nothing new in the folder."""
    assert told.exit_code == 2, told.output
    assert len(told.stderr.strip().splitlines()) == 1 and told.stderr.startswith("error: "), told.stderr
    assert re.search(message, told.stderr), told.stderr
    assert told.stdout == ""
    assert sorted(os.listdir(folder)) == sorted(left)


@pytest.mark.parametrize("kind", TABLES)
def test_broken_tables(kind, tmp_path):
    content, message = TABLES[kind]
    data = tmp_path / "data.csv"
    data.write_bytes(content)
    refused(run("fit", data, "--target", "y"), message, tmp_path, ["data.csv"])


def test_whole_classes_stay_whole(tmp_path):
    (tmp_path / "data.csv").write_text("x,y\n" + "".join(f"{i},{i % 2}\n" for i in range(40)))
    target = Target.infer(open_table(tmp_path / "data.csv").read(["y"]), "y")
    (tmp_path / "new.csv").write_text("x,y\n1,1\n2,0.5\n")
    with pytest.raises(TableError, match=r"row 2, column 'y': 0.5 is no class"):
        target.read(open_table(tmp_path / "new.csv").read(["y"]))


def test_numbers_that_are_asked_for(tmp_path):
    data = tmp_path / "data.csv"
    data.write_text("x,y\n" + "1,yes\n2,no\n" * 20)
    message = "row 1, column 'y': 'yes' is not a number"
    refused(run("fit", data, "--target", "y", "--task", "regression"), message, tmp_path, ["data.csv"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace("bmi,", "body,"), "no column 'bmi', which the model reads"),
        (lambda text: text.replace("south", "south,"), r"row \d+: 14 cells where there are 15 columns|16 cells"),
        (lambda text: text + ",".join(["P1", "old"] + ["1"] * 13), "row 243, column 'age': 'old' is not a number"),
        (lambda text: text.replace(",2020-", ",20-"), r"row \d+, column 'visit': '20-.*' is no date like 2024-01-31"),
        (lambda text: text + "P1,1e30" + ",1" * 13, "row 243, column 'age': 1e.30 is far beyond .* Check its units"),
    ],
)
def test_broken_tables_at_prediction(folder, model, tmp_path, change, message):
    (tmp_path / "new.csv").write_text(change((folder / "others.csv").read_text()))
    refused(run("predict", model, tmp_path / "new.csv"), message, tmp_path, ["new.csv"])


def test_nothing_half_written_where_a_late_row_is_bad(folder, model, tmp_path):
    """Also where predictions stand already, which stay as they were."""
    lines = (folder / "others.csv").read_text().splitlines()
    bad = [*lines, *lines[1:] * 100, lines[1].replace(lines[1].split(",")[1], "?!")]
    (tmp_path / "new.csv").write_text("\n".join(bad))
    (tmp_path / "p.csv").write_text("older")
    told = run("predict", model, tmp_path / "new.csv", "-o", tmp_path / "p.csv")
    refused(told, f"row {242 * 101 + 1}, column 'age': '\\?!' is not a number", tmp_path, ["new.csv", "p.csv"])
    assert (tmp_path / "p.csv").read_text() == "older"


def test_a_command_that_is_ended_leaves_nothing(folder, model, tmp_path):
    lines = (folder / "others.csv").read_text().splitlines()
    (tmp_path / "long.csv").write_text("\n".join([lines[0], *lines[1:] * 4000]))
    command = [*COMMAND, "predict", str(model), str(tmp_path / "long.csv"), "-o", str(tmp_path / "p.csv")]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        while not list(tmp_path.glob("*.part")) and process.poll() is None:
            time.sleep(0.01)
        process.terminate()
        assert process.wait(60) == 143
    assert os.listdir(tmp_path) == ["long.csv"]


def test_terminals_that_know_ascii_alone(folder, model):
    command = [*COMMAND, "evaluate", str(model), str(folder / "others.csv")]
    ended = subprocess.run(command, env={**os.environ, "PYTHONIOENCODING": "ascii"}, capture_output=True)
    assert ended.returncode == 0 and b"error (RMSE)" in ended.stdout, ended.stderr


def test_messages_name_options():
    told = in_options(
        "member 0 still had a falling loss after max_iter=800 epochs. Raise max_iter, or learning_rate_init."
    )
    assert told.endswith("after max_iter=800 epochs. Raise --max-iter of anchored fit.")
    assert in_options("raise max_iter or learning_rate_init before") == "raise --max-iter of anchored fit before"
    remedies = [
        line for path in ("methods/ensemble.py", "verdict.py") for line in (SOURCE / path).read_text().split("\n")
    ]
    asked = [line for line in remedies if re.search("(?i)raise max_iter", line)]
    assert len(asked) >= 3 and not any("learning_rate_init" in in_options(line) for line in asked)


def test_days_that_may_be_months_are_noted(capsys):
    from anchored.tables.columns import DateColumn
    from anchored.tables.schema import Schema

    day = DateColumn("seen", "%m/%d/%Y", 1.0, 0.0, 2.0, (), 0, is_ambiguous=True)
    fitted = SimpleNamespace(schema=Schema((day,), {}), n_rows=3)
    show_columns(Console(False), fitted, 3, day_first=False)
    told = capsys.readouterr()
    assert "written month/day/year" in told.out
    assert "seen: dates are read as month/day/year, and could be day/month/year: --day-first" in told.err
    show_columns(Console(False), fitted, 3, day_first=True)
    assert capsys.readouterr().err == ""


def test_broken_models(folder, model, tmp_path):
    data = folder / "others.csv"
    whole = model.read_bytes()
    X = np.linspace(0, 1, 30)[:, None]
    quick = {"n_estimators": 1, "hidden_layer_sizes": (2,), "max_iter": 1, "noise_variance": 1.0, "prior_scale": 1.0}
    anchored.AnchoredRegressor(**quick).fit(X, X[:, 0]).save(tmp_path / "bare")
    (tmp_path / "text").write_text("no model at all")
    (tmp_path / "short").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "changed").write_bytes(whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:])
    left = os.listdir(tmp_path)
    for name, message in {
        "missing": "there is no model .*missing",
        "text": "is not a saved model",
        "short": "is not a saved model, or is cut short",
        "changed": "is corrupted",
        "bare": "holds an estimator, but not what the columns of a table mean",
        ".": "is a folder",
    }.items():
        told = run("predict", tmp_path / name, data, "-o", tmp_path / "p.csv")
        refused(told, message, tmp_path, left)


def test_broken_paths(folder, model, tmp_path):
    data = folder / "others.csv"
    (tmp_path / "d.csv").write_bytes(data.read_bytes())
    (tmp_path / "m").write_bytes(model.read_bytes())
    os.mkfifo(tmp_path / "pipe.csv")
    left = ["d.csv", "m", "pipe.csv"]
    for arguments, message in {
        ("predict", model, tmp_path / "none.csv"): "there is no file",
        ("predict", model, tmp_path): "is a folder; name a CSV or Parquet file in it",
        ("predict", model, data, "-o", tmp_path): "is a folder; name a file in it",
        ("predict", model, data, "-o", tmp_path / "no" / "p.csv"): "there is no folder .*no; make it first",
        ("predict", model, data, "-o", tmp_path / "pipe.csv"): "--out .*pipe.csv is a device, a pipe or a socket",
        ("predict", model, tmp_path / "d.csv", "-o", tmp_path / "d.csv"): "would overwrite what is read",
        ("predict", tmp_path / "m", data, "-o", tmp_path / "m"): "would overwrite what is read",
        ("predict", model, data, "-o", tmp_path / "p.csv.gz"): "must end with one of .csv",
        ("predict", model, data, "--keep", "nobody", "-o", tmp_path / "p.csv"): "no column 'nobody', named by --keep",
        ("fit", tmp_path / "d.csv", "-t", "age", "-o", tmp_path / "no" / "m"): "there is no folder",
        ("fit", tmp_path / "d.csv", "-t", "age", "--ignore", "agee"): "no column 'agee'.*Did you mean 'age'",
        ("evaluate", model, tmp_path / "none.csv"): "there is no file",
    }.items():
        refused(run(*arguments), message, tmp_path, left)


def test_broken_parquet(folder, model, tmp_path):
    pd.read_csv(folder / "others.csv").to_parquet(tmp_path / "whole.parquet", row_group_size=50)
    whole = (tmp_path / "whole.parquet").read_bytes()
    (tmp_path / "short.parquet").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.parquet").write_text("a,b\n1,2\n")
    middle = len(whole) // 3
    (tmp_path / "changed.parquet").write_bytes(whole[:middle] + bytes(400) + whole[middle + 400 :])
    left = os.listdir(tmp_path)
    for name in ("short", "text", "changed"):
        told = run("predict", model, tmp_path / f"{name}.parquet", "-o", tmp_path / "p.csv")
        refused(told, "damaged", tmp_path, left)


def test_machines_are_told_of_errors_too(tmp_path):
    told = run("fit", tmp_path / "none.csv", "-t", "y", "--json")
    assert told.exit_code == 2 and json.loads(told.stdout) == {"error": f"there is no file {tmp_path / 'none.csv'}"}


def test_usage_errors_end_with_two():
    assert run("fit", "data.csv").exit_code == 2
    assert run("predict").exit_code == 2
    assert run("nothing").exit_code == 2


def test_without_pyarrow_it_says_what_to_install(folder):
    code = "import sys; sys.modules['pyarrow'] = None\nfrom anchored.cli import app; app()"
    command = [sys.executable, "-c", code, "fit", str(folder / "patients.csv"), "-t", "age"]
    told = subprocess.run(command, capture_output=True, text=True)
    assert told.returncode == 2 and told.stderr == "error: tables need pyarrow: pip install 'anchored[tables]'\n"


# The command itself


@pytest.mark.parametrize("command", ["fit", "predict", "evaluate", "certify", "report"])
def test_help_has_examples(command):
    told = run(command, "--help")
    assert told.exit_code == 0 and f"anchored {command} " in told.stdout and "Example" in told.stdout


def test_help_answers_at_once():
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        told = subprocess.run([*COMMAND, "--help"], capture_output=True, text=True, check=True)
        seconds.append(time.perf_counter() - started)
    assert all(name in told.stdout for name in ("fit", "predict", "evaluate", "certify"))
    assert min(seconds) < 0.5


def test_shells_complete():
    command = Path(sys.executable).with_name("anchored")
    if not command.exists():
        pytest.skip("the anchored command is not installed beside this Python")
    words = {"_ANCHORED_COMPLETE": "complete_bash", "COMP_WORDS": "anchored ev", "COMP_CWORD": "1"}
    told = subprocess.run([command], env={**os.environ, **words}, capture_output=True, text=True)
    assert told.stdout.split() == ["evaluate"]
    script = subprocess.run(
        [command], env={**os.environ, "_ANCHORED_COMPLETE": "source_bash"}, capture_output=True, text=True
    )
    assert "complete" in script.stdout and "_ANCHORED_COMPLETE" in script.stdout
