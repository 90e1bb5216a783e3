"""Predicting files: neither batches nor their size matter, and memory does not grow with the file."""

import time
import tracemalloc

import pandas as pd
import pyarrow as pa
import pytest
from table_data import wide_file

from anchored.tables import parallel, prediction


def test_the_size_of_batches_does_not_matter(model, tmp_path, monkeypatch):
    data, whole = wide_file(tmp_path, 1200), tmp_path / "whole.csv"
    prediction.predict_file(model, data, whole, keep=["c"], batch_size=10**6)
    wanted = pd.read_csv(whole)
    assert wanted["c"].tolist() == pd.read_csv(data)["c"].tolist()
    for at_once, n_bytes in ((17, 700), (400, 5000)):
        seen = []
        monkeypatch.setattr("anchored.tables.csv_files.BLOCK_SIZE", n_bytes)
        prediction.predict_file(model, data, tmp_path / "p.csv", keep=["c"], batch_size=at_once, on_rows=seen.append)
        pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "p.csv"), wanted, rtol=1e-5)
        assert max(seen) <= at_once and len(seen) >= 1200 / at_once


def test_memory_does_not_grow_with_the_file(model, tmp_path, monkeypatch):
    """What NumPy and Arrow hold at most while 40,000 and 160,000 rows are predicted, in small batches."""
    monkeypatch.setattr("anchored.tables.csv_files.BLOCK_SIZE", 2**16)
    names, content = wide_file(tmp_path, 20_000).read_text().split("\n", 1)
    data, out = tmp_path / "long.csv", tmp_path / "p.csv"

    def peak(repeats):
        data.write_text(names + "\n" + content * repeats)
        in_arrow = []
        tracemalloc.start()
        told = prediction.predict_file(
            model, data, out, batch_size=2**11, on_rows=lambda _: in_arrow.append(pa.total_allocated_bytes())
        )
        in_numpy = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert told[0] == 20_000 * repeats and len(in_arrow) >= told[0] / 2**11
        return (in_numpy + max(in_arrow)) / 2**20

    # To hold five numbers a row of all predictions, and nothing else, would take 120,000 × 40 bytes = 4.6 MB more.
    assert peak(8) < peak(2) + 2.5  # and Arrow reads ahead as it likes


def test_batches_are_computed_ahead_in_order(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    taken = []

    def items():
        for i in range(20):
            taken.append(i)
            yield i

    def square(i):
        time.sleep(0.01 * (i % 3))
        return i**2 if i < 15 else 1 / 0

    seen = []
    with pytest.raises(ZeroDivisionError):
        for i, result in parallel.map_ahead(square, items()):
            seen.append((i, result))
            assert len(taken) <= i + 5
    assert seen == [(i, i**2) for i in range(15)]
