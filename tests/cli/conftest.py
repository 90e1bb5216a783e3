"""Two models, of numbers and of classes, fitted once by the command line."""

import numpy as np
import pytest
from command_line import CONTROLS, MARKUP, patients, run
from sklearn.datasets import load_iris

from anchored import BayesianRegressor
from anchored.methods import GaussianProcess
from anchored.model.likelihoods import Gaussian
from anchored.tables import saved_model, scores
from anchored.tables.files import open_table
from anchored.tables.model import TableModel
from anchored.tables.schema import Schema
from anchored.tables.target import Target


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
def exact_model(folder):
    """A model of the same rows whose estimator is the exact Gaussian process."""
    table = open_table(folder / "patients.csv")
    rows = table.read(table.names)
    target, schema = Target.infer(rows, "progression"), Schema.infer(rows.without(["progression"]))
    y, present = target.read(rows)
    process = BayesianRegressor(
        GaussianProcess(), Gaussian(0.1), hidden_layer_sizes=(20,), prior_scale=2.0, random_state=0
    )
    process.fit(schema.encode(rows.take(np.flatnonzero(present)))[0], y)
    held_out = dict.fromkeys(scores.REGRESSION, 0.5) | {"rows": 12}
    saved_model.save(TableModel(schema, target, process, held_out), folder / "exact.anchored")
    return folder / "exact.anchored"


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
