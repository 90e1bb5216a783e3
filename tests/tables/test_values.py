"""Values of columns: numbers as Python reads them, missing values, and errors that name the row."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from table_data import rows

from anchored.errors import TableError
from anchored.tables import dates, values
from anchored.tables.formats import DASHES, Format
from anchored.tables.schema import Schema


@pytest.mark.parametrize("cell", ["", " ", "NA", "n/a", "NAN", "-nan", "NaT", "NULL", "None", "?"])
def test_missing_values(cell):
    assert np.isnan(values.numbers(rows(x=["1", cell]), "x")).tolist() == [False, True]
    assert values.labels(rows(x=["a", cell]), "x").codes.tolist() == [0, -1]
    assert np.isnan(dates.days(rows(x=["2020-01-01", cell]), "x", Format(date=dates.ISO))).tolist() == [False, True]


@given(st.floats(-1e90, 1e90), st.sampled_from(["", " ", "\t"]))
def test_every_number_is_read_as_python_reads_it(number, blank):
    for written in (repr(number), f"{number:.3e}", f"{number:+.2f}"):
        assert values.numbers(rows(x=[blank + written + blank]), "x")[0] == float(written)


@given(st.text(max_size=8))
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_a_value_is_a_number_missing_or_an_error(cell):
    try:
        value = values.numbers(rows(x=[cell]), "x")[0]
    except TableError as error:
        assert "row 1, column 'x'" in str(error)
        return
    assert np.isfinite(value) == (values.text(pa.array([cell]), DASHES)[0].as_py() is not None)
    if np.isfinite(value):
        assert value == float(cell.replace("−", "-").strip("()")) * (-1 if "(" in cell else 1)


def test_rows_keep_their_numbers():
    some = rows(first=11, x=["1", "2", "oops", "4"]).take(np.array([3, 2, 0]))
    assert [some.row_number(i) for i in range(3)] == [14, 13, 11] and some.take(np.array([2])).row_number(0) == 11
    with pytest.raises(TableError, match="row 13, column 'x': 'oops'"):
        values.numbers(some, "x")
    schema = Schema.infer(rows(c=["a", "b"] * 5))
    strange = schema.encode(rows(c=["a", "b", "z", "z"]).take(np.array([1, 3])))[1]
    assert strange[0].first_row == 4
