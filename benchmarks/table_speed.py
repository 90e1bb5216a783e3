"""How fast tables are read, encoded, fitted and predicted, with goals.

    python benchmarks/table_speed.py            1,000,000 rows of ten mixed columns; a fit of 500 rows × 300 columns
    python benchmarks/table_speed.py --quick    1,000 rows; a fit of 60 rows × 12 columns, with short training

The mixed columns are five of numbers, three of categories, a date and amounts of money with thousands marks and a
unit. The model that predicts has one layer of 50 units and was fitted to 500 rows.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import reporting
import uci_sets
from reporting import Json, Measured, measured, seconds_of

if TYPE_CHECKING:
    from anchored.tables.rows import RowBatch

COMMAND = "python benchmarks/table_speed.py"
N_TRAINING_ROWS = 500  # of the model that predicts
# By whether the run is quick: rows of the mixed table, and rows and columns of the table that is fitted
SIZES = {False: (1_000_000, 500, 300), True: (1_000, 60, 12)}
CLOSED_FORM = {"hidden_layer_sizes": (50,), "trainable": "last_layer", "noise_variance": 0.1, "prior_scale": 1.0}


def main(arguments: Sequence[str] | None = None) -> Json:
    """Run the benchmark with the options in `arguments`; return the stored result."""
    options = reporting.parser_of(__doc__).parse_args(arguments)
    return reporting.run_and_store("table_speed", options, {"quick": options.quick}, run(options), tables)


def run(options: argparse.Namespace) -> Iterator[Json]:
    """Yield the measured lines so far."""
    n_rows, n_fitted, n_columns = SIZES[options.quick]
    lines = [measured("anchored --help", min(seconds_of(show_help) for _ in range(5)), "s", 0.25)]
    yield {"lines": lines}
    with tempfile.TemporaryDirectory() as folder:
        path = write_mixed(Path(folder, "mixed.csv"), n_rows)
        lines += encode_and_predict(path, n_rows)
    yield {"lines": lines}
    lines.append(fit(n_fitted, n_columns, options.quick))
    yield {"lines": lines}


def show_help() -> None:
    """Run the command that shows all commands."""
    subprocess.run([sys.executable, "-m", "anchored", "--help"], check=True, stdout=subprocess.DEVNULL)


def write_mixed(path: Path, n_rows: int) -> Path:
    """Write the table of mixed columns to the CSV file `path`, and return the path."""
    import pyarrow as pa
    from pyarrow import csv

    random = np.random.default_rng(0)
    columns: dict[str, object] = {f"x{i}": random.normal(size=n_rows).round(4) for i in range(5)}
    columns |= {f"c{i}": random.choice(["flat", "house", "loft"], n_rows) for i in range(3)}
    columns["day"] = np.datetime64("2020-01-01") + random.integers(0, 900, n_rows).astype("timedelta64[D]")
    columns["price"] = [f"{value:,.2f} €" for value in random.uniform(1e3, 1e6, n_rows)]
    csv.write_csv(pa.table(columns), path)
    return path


def encode_and_predict(path: Path, n_rows: int) -> list[Measured]:
    """Read, encode and predict the rows of the file `path`; return what was measured."""
    from anchored import AnchoredRegressor
    from anchored.tables.files import open_table
    from anchored.tables.formats import Format
    from anchored.tables.model import TableModel
    from anchored.tables.prediction import predict_file
    from anchored.tables.schema import Schema
    from anchored.tables.target import Target, Task

    def read_and_encode() -> tuple[Schema, np.ndarray]:
        table = open_table(path)
        rows: RowBatch = table.read(table.names)
        schema = Schema.infer(rows)
        return schema, schema.encode(rows)[0]

    encoding_seconds = min(seconds_of(read_and_encode) for _ in range(3))
    schema, matrix = read_and_encode()
    y = matrix[:N_TRAINING_ROWS, 0] + matrix[:N_TRAINING_ROWS, -2]
    estimator = AnchoredRegressor(**CLOSED_FORM, random_state=0).fit(matrix[:N_TRAINING_ROWS], y)
    model = TableModel(schema, Target("y", str(Task.REGRESSION), True, len(y), 6, Format()), estimator, None)
    out = path.with_suffix(".parquet")
    predict_file(model, path, out)  # compiles
    seconds = min(seconds_of(lambda: predict_file(model, path, out)) for _ in range(3))
    return [
        measured(f"read, infer and encode {n_rows:,} × 10 mixed columns", encoding_seconds, "s"),
        measured(f"predict {n_rows:,} mixed rows, file to file", n_rows / seconds, "rows/s", 600_000, at_least=True),
    ]


def fit(n_rows: int, n_columns: int, quick: bool) -> Measured:
    """Fit a table of numbers with the defaults; return the seconds."""
    from anchored import AnchoredRegressor
    from anchored.tables import TableRegressor

    X = np.random.default_rng(0).normal(size=(n_rows, n_columns))
    y = X[:, 0] + 0.1 * X[:, 1]
    model = TableRegressor(AnchoredRegressor(**(uci_sets.QUICK if quick else {}), random_state=0))
    return measured(f"fit {n_rows:,} rows × {n_columns} columns", seconds_of(lambda: model.fit(X, y)), "s", 15)


def tables(stored: Json) -> dict[str, str]:
    """Return the table of what was measured."""
    return {"table_speed": reporting.measured_table(stored, COMMAND, stored["lines"])}


if __name__ == "__main__":
    main()
