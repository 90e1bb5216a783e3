"""Tables larger than memory: a fit of a large Parquet file in 2 GB, and the same fits from a file and in memory.

    python benchmarks/streaming.py                    a file of 10 GB, and parts of it: hours on two cores
    python benchmarks/streaming.py --gigabytes 1      a smaller file
    python benchmarks/streaming.py --quick            4,000 rows in pieces of 1,000, without a limit

Every fit runs in a process of its own, which reports its peak of anonymous memory: what it has allocated, without the
pages of files, which the system may drop. The large file is fitted under a limit on this memory. A part of it is fitted
from the file and in memory, in turn. Files are written to TMPDIR and removed.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import reporting
from reporting import STATUS, Json, Measured, measured

COMMAND = "python benchmarks/streaming.py"
N_COLUMNS = 20  # besides the target, all float64
BYTES_PER_ROW = 8 * (N_COLUMNS + 1)
ROWS_PER_GROUP = 2**17
LIMIT = 2 * 10**9  # bytes of anonymous memory
MEMBERS, EPOCHS = 5, 4  # of fits of a part of the file; the whole file is read once
N_PART = {False: 1_000_000, True: 4_000}  # rows of the part that is also fitted in memory, by whether the run is quick
N_SMALL = {False: 500_000, True: 2_000}  # rows of a smaller part, for the growth of memory
QUICK_PIECE = 1_000  # rows of a piece in a quick run
LAYERS = (50,)  # a small network, which trains fast, so that reading counts for more
QUICK = {"hidden_layer_sizes": (8,), "noise_variance": 0.01, "prior_scale": 1.0, "input_encoding": "standard"}
REPEATS = {False: 2, True: 1}


def write_table(path: Path, n_rows: int) -> None:
    """Write a Parquet file of random numbers and a smooth target with noise."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = [*(f"x{i}" for i in range(N_COLUMNS)), "y"]
    schema = pa.schema([(name, pa.float64()) for name in names])
    rng = np.random.default_rng(0)
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
        for first in range(0, n_rows, ROWS_PER_GROUP):
            X = rng.standard_normal((min(ROWS_PER_GROUP, n_rows - first), N_COLUMNS))
            y = np.sin(X[:, 0]) + 0.5 * X[:, 1] + X[:, 2] * X[:, 3] + 0.1 * rng.standard_normal(len(X))
            writer.write_table(pa.table([*X.T, y], schema=schema), row_group_size=ROWS_PER_GROUP)


class AnonymousMemory:
    """The peak of this process's anonymous memory, in bytes, read every 20 milliseconds.

    If `is_limited`, the process ends when the peak exceeds LIMIT. (RLIMIT_DATA would also count memory that is reserved
    but not used.)
    """

    def __init__(self, is_limited: bool) -> None:
        self.peak, self.is_limited = 0, is_limited
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            lines = STATUS.read_text().splitlines()
            now = next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))
            self.peak = max(self.peak, 1024 * now)
            if self.is_limited and self.peak > LIMIT:
                reporting.note(f"the process has {self.peak / 1e6:.0f} MB of anonymous memory, more than allowed")
                os._exit(1)
            time.sleep(0.02)


def child(task: str, path: Path, epochs: int, quick: bool, is_limited: bool) -> Json:
    """Fit the file `path` ("stream" or "memory"), or predict its rows ("predict"); return what was measured."""
    import jax

    from anchored import AnchoredRegressor
    from anchored.inference import pieces
    from anchored.tables import large_tables
    from anchored.tables.formats import ReadingOptions
    from anchored.tables.model import TableModel
    from anchored.tables.prediction import predict_file
    from anchored.tables.table_sets import open_tables

    if quick:
        pieces.PIECE_ROWS = QUICK_PIECE
    memory, files, started = AnonymousMemory(is_limited), open_tables([path]), time.perf_counter()
    table = large_tables.prepare(files, "y", "regression", ReadingOptions(), 0.0, 0)
    few_epochs = epochs if task != "predict" else 1
    settings = {"hidden_layer_sizes": LAYERS} | (QUICK if quick else {})
    model = AnchoredRegressor(MEMBERS, max_iter=few_epochs, random_state=0, **settings)
    if task == "memory":
        rows = files.read(files.names)
        X, y = table.schema.encode(rows, clip=True)[0], table.target.read(rows)[0]
        X[:, -1] = 0
        del rows
        model.fit(X, y)
    elif task == "stream":
        model.fit_stream(table)
    else:
        model.fit(*(part[:500] for part in table.first_piece()))
        fitted = TableModel(table.schema, table.target, model, None)
        memory.peak, started = 0, time.perf_counter()
        predict_file(fitted, path, path.with_suffix(".predictions.parquet"))
        path.with_suffix(".predictions.parquet").unlink()
    seconds = time.perf_counter() - started
    leaves = jax.tree.leaves(model.posterior_.members)
    bits = hashlib.blake2b(b"".join(np.asarray(leaf).tobytes() for leaf in leaves), digest_size=8).hexdigest()
    return {"seconds": seconds, "bytes": memory.peak, "members": bits, "rows": table.n_rows}


def in_process(task: str, path: Path, epochs: int, quick: bool, is_limited: bool = False) -> Json:
    """Return what `child` returns in a new process."""
    call = [sys.executable, __file__, "--child", task, "--file", str(path), "--epochs", str(epochs)]
    call += ["--quick"] * quick + ["--limited"] * is_limited
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}  # training is short on purpose
    done = subprocess.run(call, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    found = json.loads(done.stdout.splitlines()[-1])
    reporting.note(f"{task}, {found['rows']:,} rows: {found['seconds']:.0f} s, {found['bytes'] / 1e6:.0f} MB")
    return found


def run(quick: bool, gigabytes: float) -> Iterator[Json]:
    """Yield the measured lines so far."""
    lines: list[Measured] = []
    with TemporaryDirectory(prefix="streaming-") as folder:
        small, part, whole = (Path(folder) / f"{name}.parquet" for name in ("small", "part", "whole"))
        write_table(small, N_SMALL[quick])
        write_table(part, N_PART[quick])
        found: dict[str, list[Json]] = {"stream": [], "memory": []}
        for _ in range(REPEATS[quick]):
            for task, runs in found.items():
                runs.append(in_process(task, part, EPOCHS, quick))
        seconds = {task: float(np.median([one["seconds"] for one in runs])) for task, runs in found.items()}
        different = len({one["members"] for runs in found.values() for one in runs})
        shown, speed = f"{N_PART[quick]:,} rows", 100 * seconds["memory"] / seconds["stream"]
        lines += [
            measured(
                f"{shown}: ensembles that differ from the first, from the file or in memory", different - 1, "", 0
            ),
            measured(f"{shown}: speed from the file", speed, "% of that in memory", 60, True),
            measured(f"{shown}: anonymous memory of a fit from the file", found["stream"][0]["bytes"] / 1e6, "MB"),
            measured(f"{shown}: anonymous memory of a fit in memory", found["memory"][0]["bytes"] / 1e6, "MB"),
        ]
        yield {"lines": lines}
        for task, name in (("stream", "fit from a file"), ("predict", "predict a file")):
            few = in_process(task, small, 1, quick)
            many = found["stream"][0] if task == "stream" else in_process(task, part, 1, quick)
            growth = 100 * (many["bytes"] / few["bytes"] - 1)
            what = f"{name}: growth of anonymous memory from {N_SMALL[quick]:,} to {N_PART[quick]:,} rows"
            lines.append(measured(what, growth, "%", 10))
            yield {"lines": lines}
        if not quick:
            write_table(whole, int(gigabytes * 1e9 / BYTES_PER_ROW))
            one = in_process("stream", whole, 1, quick, is_limited=True)
            shown = f"{whole.stat().st_size / 1e9:.1f} GB, {one['rows']:,} rows"
            lines += [
                measured(f"{shown}: anonymous memory of a fit limited to 2 GB", one["bytes"] / 1e6, "MB", LIMIT / 1e6),
                measured(
                    f"{shown}: one epoch of {MEMBERS} members, encoding, noise and prior scale chosen",
                    one["seconds"],
                    "s",
                ),
            ]
            yield {"lines": lines}


def tables(stored: Json) -> dict[str, str]:
    """Return the table of what was measured."""
    return {"streaming": reporting.measured_table(stored, COMMAND, stored["lines"])}


def main(arguments: Sequence[str] | None = None) -> Json:
    """Run the benchmark with the options in `arguments`; return the stored result."""
    parser = reporting.parser_of(__doc__)
    parser.add_argument("--gigabytes", type=float, default=10.0, help="size of the large file; default: 10")
    for name in ("--child", "--file", "--epochs"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    parser.add_argument("--limited", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        print(json.dumps(child(options.child, Path(options.file), int(options.epochs), options.quick, options.limited)))
        return {}
    settings = {"quick": options.quick, "gigabytes": options.gigabytes}
    return reporting.run_and_store("streaming", options, settings, run(options.quick, options.gigabytes), tables)


if __name__ == "__main__":
    main()
