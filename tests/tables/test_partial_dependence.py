"""Partial dependence: against the average of predictions of rows that are changed by hand."""

import numpy as np
from table_data import wide_file

from anchored.tables.files import open_table
from anchored.tables.partial_dependence import partial_dependence
from anchored.tables.rows import RowBatch


def test_effects_are_averages_over_changed_rows(model, tmp_path):
    table = open_table(wide_file(tmp_path, 60)).read(["x", "z", "c", "y"])
    effect = partial_dependence(model, table, "x")
    assert [float(value) for value in effect.values] == sorted(float(value) for value in effect.values)
    assert effect.numbers.tolist() == [float(value) for value in effect.values]
    assert effect.mean[-1] > effect.mean[0] + 1  # y grows with x
    changed = RowBatch("d", 1, {**table.columns, "x": table.columns["x"].take([0] * len(table))})
    again = partial_dependence(model, changed, "x")  # only one value
    predictive = model.predict(changed)[0]
    assert np.allclose(again.mean, predictive.mean.mean())
    assert np.allclose(again.std**2, predictive.epistemic_variance.mean())
    kinds = partial_dependence(model, table, "c")
    assert (
        len(kinds.values) == 4 and kinds.numbers is None and max(zip(kinds.mean, kinds.values, strict=True))[1] == "a"
    )
