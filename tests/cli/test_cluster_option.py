"""--cluster: the same models and predictions from the workers of a Dask cluster."""

import numpy as np
import pytest
from command_line import refused, run
from safetensors.numpy import load_file

from anchored.inference import cluster
from anchored.tables import saved_model
from anchored.tables.files import open_table
from anchored.tables.prediction import predict_labelled

distributed = pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def address():
    """The address of the scheduler of a cluster with one worker, a thread of this process."""
    options = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "protocol": "tcp://"}
    with distributed.LocalCluster(**options, dashboard_address=":0") as cluster:
        yield cluster.scheduler_address


def test_a_model_and_its_predictions_are_the_same(folder, model, address, tmp_path):
    arguments = ("--target", "progression", "--members", 3, "--hold-out", 0.15, "--cluster", address)
    fitted = run("fit", folder / "patients.csv", *arguments, "-o", tmp_path / "model.anchored")
    assert fitted.exit_code == 0, fitted.output
    there, here = (load_file(path) for path in (tmp_path / "model.anchored", model))
    assert there.keys() == here.keys() and all(np.array_equal(there[name], here[name]) for name in here)
    for name, options in (("here.csv", ()), ("there.csv", ("--cluster", address))):
        told = run("predict", model, folder / "others.csv", "--keep", "patient_id", "-o", tmp_path / name, *options)
        assert told.exit_code == 0, told.output
    assert (tmp_path / "here.csv").read_text() == (tmp_path / "there.csv").read_text()
    scored = [
        run("evaluate", model, folder / "others.csv", *options).stdout for options in ((), ("--cluster", address))
    ]
    assert scored[0] == scored[1] and "RMSE" in scored[0]


def test_batches_keep_their_order(model, address, folder, monkeypatch):
    """More batches than tasks are sent at a time."""
    fitted, table = saved_model.load(model), open_table(folder / "others.csv")
    rows = table.read(table.names)
    parts = [rows.take(indices) for indices in np.array_split(np.arange(len(rows)), 12)]
    monkeypatch.setattr(type(table), "batches", lambda self, names: iter(parts))
    counts = []
    with cluster.connected(address):
        y, there, _ = predict_labelled(fitted, table, on_rows=counts.append)
    y_here, here, _ = predict_labelled(fitted, table)
    assert (y == y_here).all() and (here.mean == there.mean).all() and len(counts) == 12


def test_no_scheduler(folder, model, tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "CONNECTION_TIMEOUT", 0.2)
    for address in ("tcp://127.0.0.1:9", "nonsense://x"):
        told = run("predict", model, folder / "others.csv", "-o", tmp_path / "p.csv", "--cluster", address)
        refused(told, "--cluster is '.*', where no scheduler of Dask answers; start one", tmp_path, [])
