"""Files of models: what is loaded is what was saved."""

import numpy as np
from table_data import wide_file

import anchored
from anchored.tables import saved_model
from anchored.tables.files import open_table


def test_models_come_back(model, tmp_path):
    saved_model.save(model, tmp_path / "model")
    again = saved_model.load(tmp_path / "model")
    assert again.schema == model.schema and again.target == model.target and again.held_out == model.held_out
    table = open_table(wide_file(tmp_path, 60)).read(model.schema.names)
    assert np.array_equal(again.predict(table)[0].mean, model.predict(table)[0].mean)
    assert anchored.load(tmp_path / "model").feature_names_in_.tolist() == model.schema.feature_names
