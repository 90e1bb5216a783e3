"""Values of columns: numbers as Python reads them, missing values, and errors that name the row."""

from dataclasses import replace

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


EUROPEAN = {",": ".", ".": ","}
WAYS = {  # of writing a number with two decimals, and the format of a column of such numbers
    "1,234.50 €": (lambda x: f"{x:,.2f} €", Format(thousands=",", suffix="€")),
    "$1234.50": (lambda x: f"${x:.2f}".replace("$-", "-$"), Format(prefix="$")),
    "1.234,50": (lambda x: f"{x:,.2f}".translate(str.maketrans(EUROPEAN)), Format(decimal=",", thousands=".")),
    "1'234.50": (lambda x: f"{x:,.2f}".replace(",", "'"), Format(thousands="'")),
    "EUR 1234.50 m2": (lambda x: f"EUR {x:.2f} m2".replace("EUR -", "-EUR "), Format(prefix="EUR", suffix="m2")),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("among", ["n/a", "  -5 ", "(5)", "+ 5", "−5", None])
def test_numbers_with_marks(way, among):
    """Numbers that are read fast, and among them one that is not; the first wrong one is named by its row."""
    write, written = WAYS[way]
    numbers = np.random.default_rng(0).normal(scale=10.0 ** np.arange(9)).round(2).tolist()
    cells = [write(x) for x in numbers] + ["", among]
    expected = [*numbers, np.nan, np.nan if among in ("n/a", None) else 5.0 if among == "+ 5" else -5.0]
    np.testing.assert_array_equal(values.numbers(rows(x=cells), "x", written), expected)
    for wrong in ("1,2,3", "1.2.3", "5 furlongs", "€", "--5", "1,234.5,678"):
        with pytest.raises(TableError, match=f"row {len(cells) + 1}, column 'x'"):
            values.numbers(rows(x=[*cells, wrong, "worse"]), "x", written)
    codes = replace(written, missing=("-5", write(numbers[0])))
    assert np.isnan(values.numbers(rows(x=cells[:2]), "x", codes)).tolist() == [True, False]
