"""A small model of a table, fitted once, and the shapes of tables that a benchmark collects."""

import sys
from pathlib import Path

import pytest
from table_data import wide_file

from anchored import AnchoredRegressor
from anchored.tables import scores
from anchored.tables.files import open_table
from anchored.tables.model import TableModel
from anchored.tables.schema import Schema
from anchored.tables.target import Target

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """A model of `wide_file`, fitted as `fitting.fit` does it but without its search."""
    table = open_table(wide_file(tmp_path_factory.mktemp("model"), 60)).read(["x", "z", "c", "y"])
    target = Target.infer(table, "y")
    schema = Schema.infer(table.without(["y"]))
    quick = {"trainable": "last_layer", "noise_variance": 0.05, "prior_scale": 1.0, "random_state": 0}  # closed form
    estimator = AnchoredRegressor(5, (20,), **quick).fit(schema.encode(table)[0], target.read(table)[0])
    return TableModel(schema, target, estimator, dict.fromkeys(scores.REGRESSION, 0.5) | {"rows": 12})
