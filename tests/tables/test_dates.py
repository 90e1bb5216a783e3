"""Dates: formats are inferred from all values, and days since 1970 are those of the calendar."""

import numpy as np
import pyarrow as pa
import pytest
from table_data import N, rows, varied

from anchored.errors import TableError
from anchored.tables import dates
from anchored.tables.formats import Format, ReadingOptions
from anchored.tables.schema import Schema


@pytest.mark.parametrize(
    ("written", "date_format"),
    [
        (["2024-01-31", "2024-02-01T12:30:00"], dates.ISO),
        (["2024-01-31T00:00:00Z", "2024-02-01T14:30:00+02:00"], dates.ISO),
        (["31.01.2024", "01.02.2024"], "%d.%m.%Y"),
        (["01/31/2024", "02/01/2024"], "%m/%d/%Y"),
        (["31/01/2024", "01/02/2024"], "%d/%m/%Y"),
        (["31.01.2024 00:00", "01.02.2024 12:30"], "%d.%m.%Y %H:%M"),
    ],
)
def test_dates_are_read_as_they_are_written(written, date_format):
    assert dates.infer_format(pa.array(written)) == (date_format, False)
    fraction = 12.5 / 24 if ":30" in written[1] else 0
    assert dates.days(rows(d=written), "d", Format(date=date_format)).tolist() == [19_753, 19_754 + fraction]


def test_no_date_is_seen_where_there_is_none():
    assert dates.infer_format(pa.array(["a", "12-34", "monday", "1.2.3"])) is None


def test_dates_out_of_range_are_told():
    """Times at the ends of the calendar may not exist in UTC; such a column is mixed, which Arrow does not read."""
    written = ["2024-01-31", "9999-12-31T23:59:59-05:00", "0001-01-01T00:00:00+01:00"]
    assert np.isnan(dates.parsed_days(pa.array(written), dates.ISO)).tolist() == [False, True, True]
    with pytest.raises(TableError, match="'9999-12-31' is not a date like 2024-01-31 within a thousand years of 1970"):
        dates.days(rows(d=["2024-01-31", "9999-12-31"]), "d", Format(date=dates.ISO))


def test_ambiguous_dates():
    dates = [f"{1 + i % 12:02d}/{1 + i % 11:02d}/2020" for i in range(N)]
    column = Schema.infer(rows(d=dates)).columns[0]
    assert column.written.date == "%m/%d/%Y" and column.is_ambiguous and "written month/day/year" in str(column)
    by_day = Schema.infer(rows(d=dates), ReadingOptions(date_format="%d/%m/%Y")).columns[0]
    assert by_day.written.date == "%d/%m/%Y" and not by_day.is_ambiguous and "written day/month/year" in str(by_day)
    for known, date_format in (("12/31/2020", "%m/%d/%Y"), ("31/12/2020", "%d/%m/%Y")):
        told = Schema.infer(rows(d=[*dates, known])).columns[0]  # one cell tells of all
        assert told.written.date == date_format and not told.is_ambiguous
    assert "written" not in str(Schema.infer(varied()).columns[-1])
