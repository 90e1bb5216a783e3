"""Permutation importance: columns that matter are found, and idle ones are not."""

import pyarrow as pa
from table_data import wide_file

from anchored.tables.files import open_table
from anchored.tables.permutation_importance import permutation_importance
from anchored.tables.rows import RowBatch


def test_importance_of_columns(model, tmp_path):
    table = open_table(wide_file(tmp_path, 400)).read(["x", "z", "c", "y"])
    found = {one.column: one for one in permutation_importance(model, table, model.targets(table)[0])}
    assert set(found) == {"x", "z", "c"}
    assert found["x"].error > 3 * max(found["z"].error, 0.01)  # z is idle
    assert all(one.uncertainty > 0 and one.epistemic > 0 for one in found.values())
    # Noise is the same everywhere, so what moves the s.d. is the epistemic part, and moves it less.
    assert all(one.uncertainty < one.epistemic for one in found.values())
    still = RowBatch(table.source, 1, {**table.columns, "z": pa.array(["0.5"] * len(table))})
    alike = {one.column: one for one in permutation_importance(model, still, model.targets(still)[0])}["z"]
    assert alike.uncertainty == alike.epistemic == alike.error == 0  # shuffling equal cells changes nothing
