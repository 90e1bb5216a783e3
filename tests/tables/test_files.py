"""Files read: row numbers are those of the file."""

import numpy as np
import pytest

from anchored.errors import TableError
from anchored.tables import values
from anchored.tables.files import open_table


def test_row_numbers_are_those_of_the_file(tmp_path):
    lines = ["x,y"] + [f"{i},{i}" for i in range(1, 100_001)]
    lines[90_000] = "oops,1"
    (tmp_path / "d.csv").write_text("\n".join(lines))
    with pytest.raises(TableError, match="row 90000, column 'x': 'oops' is not a number"):
        for piece in open_table(tmp_path / "d.csv").batches(["x"]):
            values.numbers(piece, "x")
    lines[90_000] = "1,2,3"
    (tmp_path / "d.csv").write_text("\n".join(lines))
    with pytest.raises(TableError, match="row 90000: 3 values, but there are 2 columns"):
        list(open_table(tmp_path / "d.csv").batches(["x"]))


def test_a_missing_value_alone_in_its_row_is_a_row(tmp_path):
    (tmp_path / "d.csv").write_text("x\n1\n\n3\n")
    assert np.array_equal(
        values.numbers(open_table(tmp_path / "d.csv").read(["x"]), "x"), [1, np.nan, 3], equal_nan=True
    )


REFUSED = {
    "Sales of houses,,\n,,\nsize,sold,price\n1,2,3\n": "name the columns, but seems to be a title, 'Sales of houses'",
    "Sales of houses\n\nsize,sold,price\n1,2,3\n": "3 values, but there are 1 columns.*title, remove all lines above",
    "size\tprice\r\n1\t2\t\r\n": "3 values, but there are 2 columns.*end with a delimiter: add one to the first line",
    "size,price\n1,2,3\n": "3 values, but there are 2 columns.*in quotes",
}


@pytest.mark.parametrize("content", REFUSED)
def test_titles_and_ends_of_rows(content, tmp_path):
    (tmp_path / "d.csv").write_text(content)
    with pytest.raises(TableError, match=REFUSED[content]):
        table = open_table(tmp_path / "d.csv")
        table.read([name for name in table.names if name])
