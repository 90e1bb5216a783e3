"""Real-world shapes of tables: each encodes as its clean form does, or is refused by a line that names the remedy."""

import gzip
from datetime import date, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from table_data import N, rows, texts
from table_shapes import SHAPES, clean_columns, pair_of_files, plain, write_csv

from anchored.errors import ArgumentError, TableError
from anchored.tables.files import open_table
from anchored.tables.formats import ReadingOptions
from anchored.tables.schema import Schema
from anchored.tables.target import Target


def encoded(path, options=None, encoding=None):
    table = open_table(path, encoding)
    inputs = table.read([name for name in table.names if name != "y"])
    schema = Schema.infer(inputs, options)
    assert schema.left_out == {}
    return schema.feature_names, schema.encode(inputs)[0]


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_are_read_as_their_clean_form(name, tmp_path):
    messy, clean, column = pair_of_files(tmp_path, name, 120)
    names, matrix = encoded(messy)
    clean_names, clean_matrix = encoded(clean)
    assert names == clean_names and names[0].startswith(column)
    assert np.allclose(matrix, clean_matrix, rtol=1e-12, atol=1e-9)
    assert matrix[:, :-1].std(axis=0).min() > 0


def test_clean_numbers_are_the_true_ones(tmp_path):
    """The clean form itself is compared with the numbers, days and hours it was written from."""
    columns = clean_columns(120)
    path = write_csv(tmp_path / "d.csv", {name: [plain(value) for value in column] for name, column in columns.items()})
    names, matrix = encoded(path)
    found = dict(zip(names, matrix.T, strict=True))
    for name in ("area", "price_level", "population", "balance"):
        assert found[name].tolist() == columns[name]
    assert found["built"].tolist() == [value.toordinal() - 719_163 for value in columns["built"]]
    assert np.allclose(found["clock"] * 24, [value.hour + value.minute / 60 for value in columns["clock"]])
    assert found["garden = yes"].tolist() == [float(value == "yes") for value in columns["garden"]]
    assert found["gappy is missing"].tolist() == [float(value is None) for value in columns["gappy"]]


def files(folder):
    """The same table in files of many kinds, and the encoding to give where it must be given."""
    columns = {name: [plain(value) for value in column] for name, column in clean_columns(60).items()}
    commas = columns | {"area": [value.replace(".", ",") for value in columns["area"]]}
    yield write_csv(folder / "semicolons.csv", commas, ";"), None
    yield write_csv(folder / "tabs.tsv", columns, "\t"), None
    yield write_csv(folder / "bars.txt", columns, "|"), None
    yield write_csv(folder / "zipped.csv.gz", columns), None
    yield write_csv(folder / "latin.csv", columns, encoding="latin-1"), "latin-1"
    yield write_csv(folder / "utf16.csv", columns, encoding="utf-16"), None
    yield write_csv(folder / "mark.csv", columns, encoding="utf-8-sig"), None
    (folder / "no suffix").write_bytes(gzip.compress(write_csv(folder / "c.csv", columns).read_bytes()))
    yield folder / "no suffix", None
    typed = pa.table({name: pa.array(column) for name, column in clean_columns(60).items()})
    pyarrow.parquet.write_table(typed, folder / "t.parquet")
    pyarrow.feather.write_feather(typed, folder / "t.arrow", compression="uncompressed")
    yield folder / "t.parquet", None
    yield folder / "t.arrow", None


def test_files_of_every_kind_hold_the_same_table(tmp_path):
    columns = {name: [plain(value) for value in column] for name, column in clean_columns(60).items()}
    wanted = encoded(write_csv(tmp_path / "clean.csv", columns))
    for path, encoding in files(tmp_path):
        names, matrix = encoded(path, encoding=encoding)
        assert names == wanted[0] and np.allclose(matrix, wanted[1], rtol=1e-12), path


def test_workbooks(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    columns = clean_columns(60)
    book = openpyxl.Workbook()
    for line in [list(columns), *zip(*columns.values(), strict=True)]:
        book.active.append(line)
    book.save(tmp_path / "t.xlsx")
    written = {name: [plain(value) for value in column] for name, column in columns.items()}
    names, matrix = encoded(tmp_path / "t.xlsx")
    wanted = encoded(write_csv(tmp_path / "clean.csv", written))
    assert names == wanted[0] and np.allclose(matrix, wanted[1], rtol=1e-12)


def test_postal_codes_are_categories_with_a_note():
    schema = Schema.infer(rows(zip=["00012", "01234", "99501", "10115"] * 10))
    assert schema.columns[0].levels == ("00012", "01234", "10115", "99501")
    assert "zip: values such as 00012 begin with a zero" in schema.notes[0]
    asked = Schema.infer(rows(zip=["00012", "01234"] * 20), ReadingOptions(types={"zip": "number"}))
    assert asked.columns[0].low == 12 and asked.notes == ()


def test_what_may_be_misread_has_a_note():
    dates = ["1900-01-01"] * 3 + [f"2024-01-{i + 1:02d}" for i in range(31)] + [""] * (N - 34)
    schema = Schema.infer(
        rows(
            code=["-999"] * 4 + texts(range(N - 4)),
            high=texts(range(N - 4)) + ["9999.0"] * 4,
            seen=dates,
            plain=["99"] + texts(range(N - 1)),  # once only
            near=["99"] * 4 + texts(range(60, 60 + N - 4)),  # one value among others
            colour=["red", "Red", "blue", "RED"] * (N // 4),
        )
    )
    assert schema.notes == (
        'code: -999 occurs in 4 rows, far from all other values; if it means "missing", use --na -999',
        'high: 9999 occurs in 4 rows, far from all other values; if it means "missing", use --na 9999',
        'seen: 1900-01-01 occurs in 3 rows, far from all other values; if it means "missing", use --na 1900-01-01',
        "colour: 'RED' and 'Red' and 'red' are different categories; use the same spelling if they are the same",
    )


def test_crosses_and_codes():
    """A cross where something is the case is a category; numbers that float64 would confuse are not numbers."""
    table = rows(
        garden=["x", ""] * (N // 2), account=[str(123456789012345678 + i) for i in range(N)], y=texts(range(N))
    )
    schema = Schema.infer(table)
    assert schema.left_out == {"account": "codes of 16 digits and more"}
    assert schema.feature_names[:2] == ["garden = x", "garden is missing"]
    assert schema.encode(table)[0][:2, :2].tolist() == [[1, 0], [0, 1]]


def test_text_that_may_be_numbers_is_shown():
    table = rows(wait=[f"{i}h {i}m" for i in range(N)], code=[f"P{i:04d}" for i in range(N)], y=texts(range(N)))
    assert Schema.infer(table).left_out == {
        "wait": "text with numbers in it, different in most rows, such as '0h 0m'",
        "code": "text, different in most rows",
    }


def test_dates_in_several_formats_are_shown():
    forms = ("%Y-%m-%d", "%d/%m/%Y", "%d %b %Y")
    days = [date(2024, 1, 31) + timedelta(days=i) for i in range(N)]
    left_out = Schema.infer(rows(x=texts(range(N)), d=[day.strftime(forms[i % 3]) for i, day in enumerate(days)]))
    assert left_out.left_out == {
        "d": "dates that are written in several ways, such as '2024-01-31' and '01/02/2024'; write them alike"
    }
    assert "mean" in Schema.infer(rows(x=["mean", *["a", "b"] * 5])).columns[0].levels  # no total: it is not last


def test_options_say_what_values_do_not():
    doubtful = rows(x=[f"{i},{100 + i}" for i in range(1, N)])
    assert Schema.infer(doubtful, ReadingOptions(decimal=",")).columns[0].low == 1.101
    assert Schema.infer(doubtful, ReadingOptions(thousands=",")).columns[0].low == 1101
    german = rows(x=[f"{i}.{100 + i}" for i in range(1, N)], other=[f"{i},5" for i in range(1, N)])
    assert Schema.infer(german).columns[0].low == 1101  # the other column has decimal commas
    assert Schema.infer(rows(x=[f"{i}.{100 + i}" for i in range(1, N)])).columns[0].low == 1.101
    sentinel = rows(x=texts(range(N - 4)) + ["-999"] * 4)
    column = Schema.infer(sentinel, ReadingOptions(na_values=("-999",))).columns[0]
    assert (column.low, column.n_missing) == (0, 4)
    dates = rows(d=[f"{i % 28 + 1:02d}#{i % 12 + 1:02d}#2024" for i in range(N)])
    assert Schema.infer(dates, ReadingOptions(date_format="%d#%m#%Y")).columns[0].low == 19723


REFUSED = {
    "comma in doubt": ([f"{i},{100 + i}" for i in range(1, N)], r"comma that may be.*decimal=','.*thousands=','"),
    "two units": ([f"{i} kg" for i in range(N)] + ["900 g"], r"'900 g' is not a number with unit 'kg'.*types="),
    "a word among numbers": (texts(range(N)) + ["unknown"], r"'unknown' is not a number.*na_values='unknown'"),
    "a word among dates": ([f"{i + 1:02d}.01.2024" for i in range(28)] + ["soon"], r"'soon' is not.*na_values='soon'"),
    "two formats of dates": ([f"{i + 1:02d}.01.2024" for i in range(28)] + ["01/02/2024"], r"is not a date like 31.01"),
    "totals": ([*texts(range(N)), "Total"], r"'Total' is not.* seems to hold totals\. Remove it\. Or use ignore='x'"),
    "totals among labels": (["a", "b"] * 20 + ["SUMME:"], r"row 41.*'SUMME:' suggests that the row holds totals"),
    "numbers with a plus": (["0", "1", "2", "3+"] * 10, r"'3\+' is not a number.*types='x=category'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_doubtful_columns_are_refused_with_a_remedy(name):
    values, message = REFUSED[name]
    with pytest.raises(TableError, match=message):
        Schema.infer(rows(x=values))


def test_bytes_that_are_not_utf8_name_the_option(tmp_path):
    path = write_csv(tmp_path / "d.csv", {"c": ["é", "a"] * 10}, encoding="latin-1")
    with pytest.raises(TableError, match=r"line 2: this is not UTF-8 text.*encoding='latin-1'"):
        encoded(path)
    with pytest.raises(ArgumentError, match="encoding is not known: 'klingon'"):
        encoded(path, encoding="klingon")


@pytest.mark.parametrize(
    "options", [{"decimal": ";"}, {"thousands": "x"}, {"types": {"x": "text"}}, {"date_format": "d"}]
)
def test_options_are_checked(options):
    with pytest.raises(ArgumentError, match=next(iter(options))):
        Schema.infer(rows(x=texts(range(N))), ReadingOptions(**options))


def test_targets_are_read_like_columns():
    euros = Target.infer(rows(y=[f"{i}.000,5 €" for i in range(1, N)]), "y")
    assert euros.read(rows(y=["1.234,5 €", "-"]))[0].tolist() == [1234.5]
    answers = Target.infer(rows(y=["Yes", "N", "y", "no"] * 10), "y")
    assert answers.read(rows(y=["YES", "n", ""]))[0].tolist() == ["yes", "no"]


def test_signs_are_not_missing():
    assert Schema.infer(rows(factor=["+", "-"] * 20)).columns[0].levels == ("+", "-")
