"""A Dask cluster on this machine: equal bits, also if workers are killed, data sent, and the rate of two workers.

    python benchmarks/clusters.py                     everything
    python benchmarks/clusters.py --quick             short fits, and two workers killed
    python benchmarks/clusters.py --parts throughput  some parts

The scheduler and its workers are processes started by Dask's own commands. For the rate, each worker has a core of its
own, so another program on the machine spoils it.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import reporting
from reporting import Json, Measured, measured, seconds_of

if TYPE_CHECKING:
    from distributed import Client

    from anchored import AnchoredRegressor

N_WORKERS = 3
N_KILLS = {False: 20, True: 2}  # number of fits during which a worker is killed, by whether the run is quick
N_ROWS = {False: 500, True: 100}  # of the table that is fitted
N_PREDICTED = {False: 200_000, True: 20_000}
N_MEMBERS = 40  # eight blocks
MAX_ITER = {False: "auto", True: 10}
# The rate is measured by a fit that consists of training alone
N_EPOCHS_OF_RATE = {False: 4_000, True: 300}
REPEATS = {False: 3, True: 1}
SHARED = "ndarray"  # prefix of the names of data that all tasks of a fit share
COMMAND = "python benchmarks/clusters.py"


class Fit(NamedTuple):
    """The results of a fit and its predictions, which are equal if all their bits are."""

    arrays: list[np.ndarray]  # parameters of the members, and predictions

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fit) and all(
            one.tobytes() == another.tobytes() for one, another in zip(self.arrays, other.arrays, strict=True)
        )


def table(n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return `n_rows` inputs, (rows, 13), and targets, (rows,)."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, 13))
    return X, np.sin(X[:, 0]) + 0.5 * X[:, 1] + 0.1 * rng.normal(size=n_rows)


def fitted(quick: bool) -> Fit:
    """Fit an ensemble with its automatic choices, and predict; on the cluster, if joblib has one."""
    import jax

    from anchored import AnchoredRegressor

    X, y = table(N_PREDICTED[quick])
    n = N_ROWS[quick]
    model = AnchoredRegressor(N_MEMBERS, random_state=0, max_iter=MAX_ITER[quick]).fit(X[:n], y[:n])
    return Fit([*map(np.asarray, jax.tree.leaves(model.posterior_.members)), *model.predict(X, return_std=True)])


@contextmanager
def cluster(cores: Sequence[int | None]) -> Iterator["Client"]:
    """Context manager that starts a scheduler and a worker for each of `cores`, and makes joblib use them.

    A worker runs on its core alone, or on any if that is None.
    """
    from distributed import Client
    from joblib import parallel_config

    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        file = ("--scheduler-file", str(Path(folder) / "scheduler.json"))
        stack.enter_context(process("scheduler", *file, "--port", "0", "--no-dashboard"))
        for core in cores:
            options = ("--nthreads", "1", "--no-dashboard", "--local-directory", folder)
            stack.enter_context(process("worker", *file, *options, core=core))
        client = stack.enter_context(Client(scheduler_file=file[1], timeout=60))
        client.wait_for_workers(len(cores), timeout=120)
        with parallel_config(backend="dask", client=client, wait_for_workers_timeout=60):
            yield client


@contextmanager
def process(command: str, *arguments: str, core: int | None = None) -> Iterator[None]:
    """Context manager in which a command of Dask runs, on the `core` if that is not None."""
    prefix = [] if core is None else ["taskset", "--cpu-list", str(core)]
    started = subprocess.Popen(
        [*prefix, sys.executable, "-m", "dask", command, *arguments],
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        os.killpg(started.pid, signal.SIGKILL)  # a worker and the nanny that would start it again
        started.wait()


def equal_bits(quick: bool) -> Iterator[Measured]:
    """Measure whether a cluster gives the same bits as one process, and how often it sends data."""
    here = fitted(quick)
    with cluster([None] * N_WORKERS) as client:
        there = fitted(quick)
        n_sent = sendings(client)
        yield measured("fit and predictions equal to those of one process", there == here, "of 1", 1, at_least=True)
        what = f"largest number of times that an array was sent, with {N_WORKERS} workers"
        yield measured(what, max(n_sent.values()), "times", N_WORKERS)
        yield measured("number of arrays that were sent", len(n_sent), "")
        yield from kills(client, here, quick)


def sendings(client: "Client") -> dict[str, int]:
    """Return how often each array that tasks share was sent: to its first worker, and from there to others."""
    logs = client.run(lambda dask_worker: list(dask_worker.transfer_outgoing_log))
    kept = client.run(lambda dask_worker: [str(key) for key in dask_worker.data])
    keys = {key for log in logs.values() for entry in log for key in entry["keys"]}.union(*kept.values())
    counts = {key: 1 for key in keys if key.startswith(SHARED)}
    for log in logs.values():
        for entry in log:
            for key in counts.keys() & entry["keys"].keys():
                counts[key] += 1
    return counts


def kills(client: "Client", expected: Fit, quick: bool) -> Iterator[Measured]:
    """Measure how many fits are as `expected`, if a worker is killed at a random moment of each; Dask replaces it."""
    rng = random.Random(0)
    seconds = seconds_of(lambda: fitted(quick))  # of a fit whose programs have been compiled
    n_equal, n_kills, longest = 0, N_KILLS[quick], 0.0
    for number in range(n_kills):
        client.wait_for_workers(N_WORKERS, timeout=120)
        # The worker killed last may still be listed
        pid = rng.choice(sorted(client.run(os.getpid, on_error="ignore").values()))
        killer = threading.Timer(rng.uniform(0, seconds), os.kill, (pid, signal.SIGKILL))
        killer.start()
        started = time.perf_counter()
        n_equal += fitted(quick) == expected
        longest = max(longest, time.perf_counter() - started)
        killer.join()
        reporting.note(f"{number + 1} workers killed, {n_equal} fits equal")
    what = "fits that stay equal if a worker is killed at a random moment"
    yield measured(what, n_equal, f"of {n_kills}", n_kills, at_least=True)
    yield measured("the longest of these fits", longest, "s")
    yield measured("the same fit without a kill", seconds, "s")


def throughput(quick: bool) -> Iterator[Measured]:
    """Measure, in turn, the rates of one and of two workers, each with a core of its own."""
    X, y = table(N_ROWS[quick])
    settings = {"hidden_layer_sizes": (50, 50), "input_encoding": "standard", "noise_variance": 0.01}
    settings |= {"prior_scale": 2.0, "max_iter": N_EPOCHS_OF_RATE[quick], "random_state": 0}

    def model() -> "AnchoredRegressor":
        from anchored import AnchoredRegressor

        return AnchoredRegressor(N_MEMBERS, **settings)

    first, second = sorted(os.sched_getaffinity(0))[:2]
    rates: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(REPEATS[quick]):
        for cores in ([first], [first, second]):
            with cluster(cores):
                model().set_params(max_iter=2).fit(X, y)  # workers import and compile
                seconds = seconds_of(lambda: model().fit(X, y))
            rates[len(cores)].append(N_MEMBERS / seconds)
            reporting.note(f"{len(cores)} workers: {seconds:.1f} s")
    one, two = (float(np.median(rates[n])) for n in (1, 2))
    yield measured("rate of one worker on one core", one, "members/s")
    yield measured("rate of two workers on two cores", two, "members/s")
    yield measured("two workers / one worker", two / one, "×", 1.8, at_least=True)


PARTS = {"equal_bits": equal_bits, "throughput": throughput}


def run(parts: Sequence[str], quick: bool) -> Iterator[Json]:
    """Yield the measured lines so far."""
    lines: dict[str, list[Measured]] = {}
    for part in parts:
        lines[part] = []
        for line in PARTS[part](quick):
            lines[part].append(line)
            yield {"lines": lines}


def tables(stored: Json) -> dict[str, str]:
    """Return the table of what was measured."""
    lines = [line for part in PARTS for line in stored["lines"].get(part, [])]
    return {"clusters": reporting.measured_table(stored, COMMAND, lines)}


def main(arguments: Sequence[str] | None = None) -> Json:
    """Run the benchmark with the options in `arguments`; return the stored result."""
    parser = reporting.parser_of(__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    options = parser.parse_args(arguments)
    results = run(options.parts, options.quick)
    return reporting.run_and_store("clusters", options, {"quick": options.quick}, results, tables)


if __name__ == "__main__":
    main()
