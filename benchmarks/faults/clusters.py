"""Workers that die, hang or have another version: fits give the same members bit for bit, or a clear error in time."""

import itertools
import logging
import multiprocessing
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from joblib import parallel_config

import anchored
from anchored import AnchoredRegressor
from faults import models
from faults.trial import HELD, Case, Check, Trial, describe_error

MAX_SECONDS = 10.0  # from the call of fit to its error
WORKER = (
    "-m",
    "distributed.cli.dask_worker",
    "--nthreads",
    "1",
    "--no-nanny",
    "--no-dashboard",
    "--death-timeout",
    "60",
)
STUBS = {  # source of modules that wrong workers import instead of the package, by kind of worker
    "without the package": 'raise ModuleNotFoundError("No module named \'anchored\'", name="anchored")',
    "hanging at import": "import time\ntime.sleep(3600)",
}
OTHER_VERSION = "with another version"
GOOD = "as it should be"
QUIET_CLUSTER = {"dashboard_address": None, "silence_logs": logging.CRITICAL}


def cases(seed: int, folder: Path) -> Iterator[Case]:
    """Yield every kind of wrong worker, alone and together with a good one; then workers killed at random times.

    `seed` is the random seed of these times; `folder` is not used.
    """
    for name in (OTHER_VERSION, *STUBS):
        yield Case(f"a worker {name}", ("refused", [name]))
        yield Case(f"a worker {name} and a good one", ("refused", [GOOD, name]))
    yield Case("processes that are forked", ("forked", None))
    for number in itertools.count():
        after = 6 * Random(f"{seed} {number}").random()
        yield Case(f"a worker killed after {after:.2f} s", ("killed", after))


def prepare(folder: Path) -> None:
    """Write the packages that wrong workers import instead of ours into `folder`."""
    for name, code in STUBS.items():
        (folder / name / "anchored").mkdir(parents=True, exist_ok=True)
        (folder / name / "anchored" / "__init__.py").write_text(code + "\n")
    package = folder / OTHER_VERSION / "anchored"
    shutil.copytree(Path(anchored.__file__).parent, package, dirs_exist_ok=True)
    code = (package / "__init__.py").read_text()
    (package / "__init__.py").write_text(code + '\n__version__ = "0.0.0"\n')


def start(folder: Path, scratch: Path) -> Check:
    """Fit without workers, and return a check that compares fits with workers with this fit.

    `folder` contains the packages of wrong workers; `scratch` is not used.
    """
    multiprocessing.set_start_method("fork", force=True)  # the default on Linux
    X = models.rows()
    y = np.sin(X[:, 0])
    paths = {name: str(folder / name) for name in (*STUBS, OTHER_VERSION)} | {GOOD: ""}
    expected = fitted(X, y, n_jobs=1)

    def check(case: tuple[str, Any]) -> str:
        kind, argument = case  # `argument`: seconds until the kill, or names of workers
        if kind == "killed":
            with cluster([GOOD, GOOD], paths) as workers, killing(workers[0], argument), parallel_config("dask"):
                return HELD if models.same(fitted(X, y, n_jobs=2), expected) else "other members"
        if kind == "forked":
            with parallel_config("multiprocessing"):
                return _refused(lambda: fitted(X, y, n_jobs=2))
        with cluster(argument, paths), parallel_config("dask"):
            return _refused(lambda: fitted(X, y, n_jobs=2))

    return check


def fitted(X: np.ndarray, y: np.ndarray, n_jobs: int) -> list[np.ndarray]:
    """Fit `X` and `y`; return the predictions of ten members, trained in two blocks by up to `n_jobs` workers."""
    model = AnchoredRegressor(
        10, (8,), noise_variance=0.1, prior_scale=2.0, max_iter=3000, random_state=0, n_jobs=n_jobs
    )
    return models.regression_predictions(model.fit(X, y))


def _refused(work: Any) -> str:
    """Call `work`; return HELD if it raises an error about workers within MAX_SECONDS."""
    started = time.monotonic()
    try:
        work()
    except Exception as error:
        seconds = time.monotonic() - started
        if seconds > MAX_SECONDS:
            return f"after {seconds:.1f} s: {describe_error(error)}"
        return HELD if any(word in str(error) for word in ("orker", "fork")) else describe_error(error)
    return "no error"


@contextmanager
def cluster(names: list[str], paths: dict[str, str]) -> Iterator[list[subprocess.Popen]]:
    """Return a context with a Dask cluster that has a worker for each of `names`.

    A worker first looks for the package in its entry of `paths`. The value of the context is the list of workers.
    """
    from distributed import Client, LocalCluster

    with LocalCluster(n_workers=0, **QUIET_CLUSTER) as scheduler, Client(scheduler) as client:
        workers = [_worker(scheduler.scheduler_address, paths[name]) for name in names]
        try:
            client.wait_for_workers(len(workers), timeout=60)
            yield workers
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()


def _worker(address: str, path: str) -> subprocess.Popen:
    """Start a worker that first looks for the package in `path`."""
    python_path = os.pathsep.join(filter(None, (path, os.environ.get("PYTHONPATH", ""))))
    environment = {**os.environ, "PYTHONPATH": python_path}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen([sys.executable, *WORKER, address], env=environment, **quiet)


@contextmanager
def killing(worker: subprocess.Popen, after: float) -> Iterator[None]:
    """Return a context in which `worker` is killed after `after` seconds."""
    timer = threading.Timer(after, worker.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


TRIAL = Trial(
    "workers",
    "if a worker dies, only time is lost; a worker that has another version, lacks the package, hangs, or was started "
    "by fork raises an error within 10 seconds",
    size=17,
    quick=2,
    cases=cases,
    start=start,
    prepare=prepare,
    seconds=90,
    megabytes=2000,
)
