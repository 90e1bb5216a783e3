"""Fitting a table: which rows are held out, and that values held out never change how a column is read."""

from functools import partial

import numpy as np
import pytest
from table_data import kinds, rows, texts

from anchored import AnchoredRegressor
from anchored.tables import fitting
from anchored.tables.fitting import held_out_rows


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
    closed_form = {"hidden_layer_sizes": (20,), "trainable": "last_layer", "noise_variance": 0.1, "prior_scale": 1.0}
    monkeypatch.setattr("anchored.tables.fitting.AnchoredRegressor", partial(AnchoredRegressor, **closed_form))
    like, model = model, fitting.fit(table, "y", members=5, max_iter=2, hold_out=0.05)
    assert kinds(model.schema) == {"d": "date", "x": "number", "a": "number", "b": "number"}
    assert len(model.schema.feature_names) == len(like.schema.feature_names) and model.schema.columns[1].high == 5e9
    assert model.held_out["rows"] == 3 and model.n_rows == 60 and model.estimator.max_iter == 2
