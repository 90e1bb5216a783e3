"""Small tables that tests share."""

import numpy as np
import pandas as pd
import pyarrow as pa

from anchored.tables.rows import RowBatch

N = 40


def rows(first=1, **columns):
    return RowBatch("data.csv", first, {name: pa.array(values) for name, values in columns.items()})


def texts(values):
    return [None if value is None else str(value) for value in values]


def varied(n=N, seed=0):
    """One column of every kind, as a CSV file gives them."""
    rng = np.random.default_rng(seed)
    days = np.datetime64("2020-01-01") + rng.integers(0, 800, n).astype("timedelta64[D]")
    return rows(
        size=texts(rng.normal(5, 2, n).round(3)),
        gappy=["" if i % 5 == 0 else str(i) for i in range(n)],
        city=[("Rome", " Oslo", "Lima ")[i % 3] for i in range(n)],
        flag=[("True", "FALSE")[i % 2] for i in range(n)],
        day=texts(days),
        note=[f"note number {i}" for i in range(n)],
        same=["x"] * n,
        nothing=["NA"] * n,
        row_id=texts(range(n)),
    )


def kinds(schema):
    return {column.name: column.kind for column in schema.columns}


def wide_file(folder, n):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=n).round(4), "z": rng.normal(size=n).round(4)})
    frame["c"] = rng.choice(["a", "b, quoted", 'c "twice"', "two\nlines"], n)
    frame["y"] = (frame["x"] + (frame["c"] == "a") + 0.1 * rng.normal(size=n)).round(4)
    frame.to_csv(folder / f"{n}.csv", index=False)
    return folder / f"{n}.csv"
