"""The fits that `tables.py` compares, each in its own process: fits of our estimator, and of other libraries."""

import subprocess
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import rivals
import uci_sets
from reporting import Json

if TYPE_CHECKING:
    from anchored.model.predictive import Predictive

Task = Mapping[str, np.ndarray]  # `X` and `y`, the rows to train on, and `X_test` and `y_test`


class RivalError(Exception):
    """The fit of another library failed; `is_missing` if the library or its interpreter is not installed."""

    def __init__(self, reason: str, is_missing: bool = False):
        super().__init__(reason)
        self.is_missing = is_missing


def load(name: str, split: int, folder: Path | None) -> Task:
    """Return the standard split number `split` of the set called `name`, from the `folder` of the data.

    Duplicate rows of red wine are removed.
    """
    from anchored import datasets

    dataset = datasets.load(name, folder)
    if name == "wine_red":
        dataset = uci_sets.without_duplicates(dataset)
    X, y = dataset.X, dataset.y
    train, test = datasets.standard_splits(len(y), split + 1)[split]
    return {"X": X[train], "y": y[train], "X_test": X[test], "y_test": y[test]}


# Our estimator


def fit_anchored(task: Task, changes: Json, quick: bool) -> tuple["Predictive", Json]:
    """Fit our estimator to `task` in a new process; if `quick`, briefly and in this process.

    `changes` are arguments that replace its defaults. Returns the predictive distribution of the test rows, and a dict
    with the `seconds` of the fit and the `version` of the library.
    """
    if quick:
        return _fit_anchored(task, uci_sets.QUICK | changes)
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(_fit_anchored, task, changes).result()


def _fit_anchored(task: Task, arguments: Json) -> tuple["Predictive", Json]:
    """Fit our estimator with these `arguments` in this process; see `fit_anchored`."""
    import anchored

    model = anchored.AnchoredRegressor(**arguments, random_state=0)
    started = time.perf_counter()
    model.fit(task["X"], task["y"])
    found = {"seconds": time.perf_counter() - started, "version": anchored.__version__}
    return model.predict_dist(task["X_test"]), found


# Other libraries


def fit_rival(method: str, interpreter: str, task: Task, time_limit: float) -> Json:
    """Fit a `method` of `rivals.py` to `task`, and return the arrays of its result (see `rivals.py`).

    `interpreter` is the Python of an environment that has the library. Raises a RivalError with the reason and the
    remedy if the fit fails or takes more than `time_limit` seconds.
    """
    remedy = f"`{interpreter} -m pip install {rivals.METHODS[method][1]}`, or pass --python {method}=INTERPRETER"
    with tempfile.TemporaryDirectory() as folder:
        task_path, result_path = str(Path(folder, "task.npz")), str(Path(folder, "result.npz"))
        np.savez(task_path, **task)
        try:
            run_script(interpreter, [method, task_path, result_path], time_limit)
        except FileNotFoundError as error:
            raise RivalError(f"there is no interpreter {interpreter}; pass another --python", True) from error
        except subprocess.TimeoutExpired as error:
            reason = f"a fit takes more than {time_limit:.0f} s; raise --time-limit, or leave it out by --methods"
            raise RivalError(reason) from error
        except subprocess.CalledProcessError as error:
            reason = (error.stderr.strip().splitlines() or [f"exit status {error.returncode}"])[-1]
            raise RivalError(f"{reason}; {remedy}", reason.startswith("ModuleNotFoundError")) from error
        with np.load(result_path) as arrays:
            return dict(arrays)


def run_script(interpreter: str, arguments: list[str], time_limit: float) -> None:
    """Run `rivals.py` with these `arguments` in the Python `interpreter`, for `time_limit` seconds at most."""
    command = [interpreter, str(Path(rivals.__file__)), *arguments]
    subprocess.run(command, capture_output=True, text=True, check=True, timeout=time_limit)


def rival_scores(y: np.ndarray, found: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Return the scores of another library's predictions of `y`, (rows,); `found` are the arrays of its result."""
    from anchored import metrics

    if "std" in found:
        scored = uci_sets.normal_scores(y, found["mean"], found["std"])
        own = {"coverage": metrics.coverage(y, found["lower"], found["upper"])} if "lower" in found else {}
        return scored | own
    return {
        "rmse": float(metrics.root_mean_squared_error(y, found["mean"])),
        "nll": -float(found["log_density"].mean()),
        "crps": metrics.sample_crps(y, found["samples"]),
        "coverage": metrics.coverage(y, *np.quantile(found["samples"], [0.025, 0.975], axis=0)),
    }
