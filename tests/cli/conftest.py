"""Two models, of numbers and of classes, fitted once by the command line."""

import pytest
from command_line import CONTROLS, MARKUP, patients, run
from sklearn.datasets import load_iris


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Two tables of patients, and a model of the first for their progression.

    With so many rows held out, both fits have the same shapes, and are compiled once.
    """
    folder = tmp_path_factory.mktemp("clinic")
    patients(160).to_csv(folder / "patients.csv", index=False)
    patients().iloc[200:].to_csv(folder / "others.csv", index=False)
    arguments = ("--target", "progression", "--members", 3, "--hold-out", 0.15, "--json")
    fitted = run("fit", folder / "patients.csv", *arguments)
    assert fitted.exit_code == 0, fitted.output
    (folder / "fit.json").write_text(fitted.stdout)
    return folder


@pytest.fixture(scope="session")
def model(folder):
    return folder / "patients.anchored"


@pytest.fixture(scope="session")
def flowers(tmp_path_factory):
    """Tables of irises, two of whose columns have hostile names, and a model of the first for their species."""
    folder = tmp_path_factory.mktemp("flowers")
    frame = load_iris(as_frame=True).frame
    frame = frame.rename(columns={"sepal length (cm)": MARKUP, "sepal width (cm)": CONTROLS})
    frame["species"] = frame.pop("target").map({0: "setosa", 1: "versicolor", 2: "virginica"})
    frame.iloc[::2].to_csv(folder / "train.csv", index=False)
    frame.iloc[1::2].to_csv(folder / "test.csv", index=False)
    frame.iloc[:9].assign(**{MARKUP: 99.0, CONTROLS: 99.0}).to_csv(folder / "far.csv", index=False)
    arguments = ("-t", "species", "--members", 3, "--hold-out", 0.1, "-o", folder / "model")
    fitted = run("fit", folder / "train.csv", *arguments)
    assert fitted.exit_code == 0 and "accuracy" in fitted.stdout
    (folder / "fit.txt").write_text(fitted.stdout)
    return folder
