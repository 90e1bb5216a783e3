"""Broken files: each ends with exit code 2 and one line that says what to do, and leaves nothing behind."""

import os

import pandas as pd
import pytest
from command_line import refused, run

import anchored

GOOD = "".join(f"{i % 7},{'abc'[i % 3]},{2 * (i % 7) + i % 5}\n" for i in range(40))


TABLES = {
    "empty": (b"", "is empty"),
    "blank lines": (b"\n\n\n", "is empty"),
    "first line empty": (b"\nx,c,y\n" + GOOD.encode(), "first line is empty.*Remove it"),
    "header only": (b"x,c,y\n", "a header but no rows"),
    "header only, no line end": (b"x,c,y", "a header but no rows"),
    "no header": (b"1,2,3\n" * 30, "first row must name the columns"),
    "too few cells": (f"x,c,y\n{GOOD}5,a\n".encode(), "row 41: 2 values, but there are 3 columns"),
    "too many cells": (f"x,c,y\n1,a,2\n1,a,b,2\n{GOOD}".encode(), "row 2: 4 values, but there are 3 columns"),
    "open quote": (f'x,y,c\n1,2,"a\n{GOOD}'.encode(), "row 1: a quote is opened and never closed"),
    "no target column": (
        f"x,c,Y1\n{GOOD}".encode(),
        "--target names the column 'y', which .* does not have. It has 'x', 'c', 'Y1'",
    ),
    "target misspelt": (f"x,c,y_\n{GOOD}".encode(), r"--target names the column 'y'.* Did you mean 'y_'\?"),
    "target all missing": (b"x,c,y\n" + b"1,a,\n2,b,NA\n" * 20, "'y' is missing in every row"),
    "target constant": (b"x,c,y\n" + b"1,a,5\n2,b,5\n" * 20, "'y' is '5' in every row"),
    "target constant, written in two ways": (b"x,y\n" + b"1,5\n2,5.0\n3,5.00\n" * 20, "'y' is '5' in every row"),
    "one class only": (b"x,c,y\n" + b"1,a,yes\n2,b,yes\n" * 20, "'y' is 'yes' in every row"),
    "too few rows": (b"x,c,y\n" + b"1,a,2\n3,b,4\n" * 8, "at least 20 are needed"),
    "a class for every row": (
        b"x,c,y\n" + b"".join(f"1,a,name{i}\n".encode() for i in range(40)),
        "40 classes in 40 rows, too many to learn",
    ),
    "same name twice": (f"x,x,y\n{GOOD}".encode(), "more than one column named 'x'. Rename all but one"),
    "nothing to predict from": (b"y\n" + b"".join(b"%d\n" % i for i in range(40)), "no column to predict from"),
    "only constants": (b"a,y\n" + b"".join(b"1,%d\n" % i for i in range(40)), "no column to predict from.*constant"),
    "unknown delimiter": (f"x,c,y\n{GOOD}".replace(",", "~").encode(), "the column 'y'.*'x~c~y'"),
    "binary": (bytes(range(256)) * 20, "this is not text. Pass a CSV or Parquet file"),
    "latin-1": (f"x,c,y\n{GOOD}5,caf\xe9,1\n".encode("latin-1"), "line 42: this is not UTF-8 text.*--encoding latin-1"),
    "latin-1 in a short row": (
        f"x,c,y\n{GOOD}5,caf\xe9".encode("latin-1"),
        "line 42: this is not UTF-8 text.*--encoding latin-1",
    ),
    "latin-1 names": (f"x,caf\xe9,y\n{GOOD}".encode("latin-1"), "line 1: this is not UTF-8 text.*--encoding latin-1"),
    "infinite": (f"x,c,y\n{GOOD}inf,a,1\n".encode(), "row 41, column 'x': inf is too large"),
    "infinite target": (f"x,c,y\n{GOOD}1,a,-inf\n".encode(), "row 41, column 'y': -inf is too large"),
    "beyond doubles": (f"x,c,y\n{GOOD}1e999,a,1\n".encode(), "row 41, column 'x': inf is too large"),
    "text among numbers": (f"x,c,y\n{GOOD}five,a,1\n".encode(), "row 41, column 'x': 'five' is not a number"),
    "text among targets": (f"x,c,y\n{GOOD}5,a,one\n".encode(), "row 41, column 'y': 'one' is not a number"),
    "thousands": (
        f'x,c,y\n{GOOD}"1,000",a,1\n'.encode(),
        "row 41, column 'x': '1,000' has a comma.*--decimal , or --thousands ,",
    ),
    "no such date": (
        b"d,y\n" + b"".join(f"2024-01-{i % 28 + 1:02d},{i}\n".encode() for i in range(40)) + b"2024-02-30,1\n",
        "row 41, column 'd': '2024-02-30' is not a date like 2024-01-31",
    ),
    "workbook": (b"PK\x03\x04" + bytes(100), "save it as CSV"),
}


@pytest.mark.parametrize("kind", TABLES)
def test_broken_tables(kind, tmp_path):
    content, message = TABLES[kind]
    data = tmp_path / "data.csv"
    data.write_bytes(content)
    refused(run("fit", data, "--target", "y"), message, tmp_path, ["data.csv"])


def test_numbers_that_are_asked_for(tmp_path):
    data = tmp_path / "data.csv"
    data.write_text("x,y\n" + "1,yes\n2,no\n" * 20)
    message = "row 1, column 'y': 'yes' is not a number"
    refused(run("fit", data, "--target", "y", "--task", "regression"), message, tmp_path, ["data.csv"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace("bmi,", "body,"), "has no column 'bmi', which the model reads"),
        (lambda text: text.replace("south", "south,"), r"row \d+: 14 values, but there are 15 columns|16 values"),
        (lambda text: text + ",".join(["P1", "old"] + ["1"] * 13), "row 243, column 'age': 'old' is not a number"),
        (
            lambda text: text.replace(",2020-", ",20-"),
            r"row \d+, column 'visit': '20-.*' is not a date like 2024-01-31",
        ),
        (
            lambda text: text + "P1,1e30" + ",1" * 13,
            "row 243, column 'age': 1e.30 is far outside the training range.* Check its units",
        ),
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


def test_broken_models(folder, model, tmp_path):
    data = folder / "others.csv"
    whole = model.read_bytes()
    anchored.load(model).save(tmp_path / "bare")
    (tmp_path / "text").write_text("no model at all")
    (tmp_path / "short").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "changed").write_bytes(whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:])
    left = os.listdir(tmp_path)
    for name, message in {
        "missing": "missing: there is no such model. Fit one first",
        "text": "this is not a saved model",
        "short": "this is not a saved model, or is truncated",
        "changed": "is corrupted",
        "bare": "this is an estimator without a schema",
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
        ("predict", model, tmp_path / "none.csv"): "none.csv: there is no such file",
        ("predict", model, tmp_path): "this is a folder. Name a CSV or Parquet file in it",
        ("predict", model, data, "-o", tmp_path): "is a folder; name a file in it",
        ("predict", model, data, "-o", tmp_path / "no" / "p.csv"): "there is no folder .*no; create it first",
        ("predict", model, data, "-o", tmp_path / "pipe.csv"): "--out .*pipe.csv is a device, a pipe or a socket",
        (
            "predict",
            model,
            tmp_path / "d.csv",
            "-o",
            tmp_path / "d.csv",
        ): "--out would overwrite .*, which is an input; choose another name",
        (
            "predict",
            tmp_path / "m",
            data,
            "-o",
            tmp_path / "m",
        ): "--out would overwrite .*, which is an input; choose another name",
        ("predict", model, data, "-o", tmp_path / "p.csv.gz"): "must end with one of .csv",
        ("predict", model, data, "--keep", "nobody", "-o", tmp_path / "p.csv"): "--keep names the column 'nobody'",
        ("fit", tmp_path / "d.csv", "-t", "age", "-o", tmp_path / "no" / "m"): "there is no folder",
        (
            "fit",
            tmp_path / "d.csv",
            "-t",
            "age",
            "--ignore",
            "agee",
        ): "--ignore names the column 'agee'.*Did you mean 'age'",
        ("evaluate", model, tmp_path / "none.csv"): "none.csv: there is no such file",
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
