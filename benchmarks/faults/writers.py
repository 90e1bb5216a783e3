"""Everything in the library that writes files, and functions that read these files."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import anchored
from anchored.errors import TableError
from anchored.paper import reproduction
from anchored.rl import QEnsembleAgent
from faults import models
from faults.commands import RefusedError
from faults.commands import anchored as command

REFUSALS = (OSError, anchored.StorageError, TableError, RefusedError)
TEMPORARY = re.compile(r"^\.|\.part$|unfinished|tmp|temp")  # names of temporary files
FIGURE = "figure_8"  # the figure that is reproduced fastest


class Writer(NamedTuple):
    """A function that writes version 0 or 1 of a file or folder, and one that reads it."""

    suffix: str
    write: Callable[[Path, int], Any]
    read: Callable[[Path], Any] = Path.read_bytes


def prepare(folder: Path) -> None:
    """Write models and a result into `folder`, unless an earlier trial has done so."""
    models.prepare(folder)
    if not (folder / "result").exists():
        reproduce(folder / "report", 0)
        stored(folder / "report").rename(folder / "result")


def save(folder: Path) -> Writer:
    """Return a writer of an estimator; the versions differ in an argument. `folder` is the shared folder."""
    model = anchored.load(folder / "regressor")
    return Writer("", lambda path, version: model.set_params(max_iter=5 + version).save(path), models.content)


def save_agent(folder: Path) -> Writer:
    """Return a writer of agents; the versions are two different ones. `folder` is the shared folder."""
    agents = [QEnsembleAgent.load(folder / name) for name in ("agent", "gymnasium agent")]
    return Writer("", lambda path, version: agents[version].save(path), models.content)


def fit(folder: Path) -> Writer:
    """Return a writer of a table model; the versions differ in their seed. `folder` is the shared folder."""
    data = folder / "harbours.csv"
    arguments = ("fit", data, "--target", "ships", "--members", 2, "--max-iter", 1)
    return Writer("", lambda path, version: command(*arguments, "--seed", version, "--out", path), models.content)


def predict(folder: Path, suffix: str) -> Writer:
    """Return a writer of predictions to files with this `suffix`; the versions differ in the coverage of intervals.

    `folder` is the shared folder.
    """
    arguments = ("predict", folder / "table", folder / "harbours.csv")
    return Writer(suffix, lambda path, version: command(*arguments, "--coverage", (0.8, 0.9)[version], "--out", path))


def report(folder: Path) -> Writer:
    """Return a writer of reports; the versions are about different tables. `folder` is the shared folder."""
    data = [folder / "harbours.csv", folder / "more.csv"]
    data[1].write_bytes(data[0].read_bytes() + data[0].read_bytes().split(b"\n", 1)[1])
    return Writer(".html", lambda path, version: command("report", folder / "table", data[version], "--out", path))


def store(folder: Path) -> Writer:
    """Return a writer of the result of an experiment, which is a folder; the versions are the same."""
    result = reproduction.load(folder / "result")
    assert result is not None
    return Writer("", lambda path, version: reproduction.save(result, path), reproduction.load)


WRITERS: dict[str, Callable[[Path], Writer]] = {
    "save": save,
    "save an agent": save_agent,
    "fit": fit,
    "predict": partial(predict, suffix=".csv"),
    "predict, Parquet": partial(predict, suffix=".parquet"),
    "report": report,
    "store a result": store,
}


def reproduce(out: Path, seed: int) -> str:
    """Reproduce one figure quickly, with this `seed`, into the folder `out`; return what the command prints."""
    return command("reproduce", "--quick", "--only", FIGURE, "--out", out, "--seed", seed)


def stored(out: Path) -> Path:
    """Return the folder in `out` that contains the result of that figure."""
    return reproduction.result_folder(out, FIGURE, quick=True)


def temporary_files(folder: Path) -> list[str]:
    """Return the names of temporary files in `folder` and below it."""
    return sorted(path.name for path in folder.rglob("*") if TEMPORARY.search(path.name))
