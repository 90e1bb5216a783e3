"""All that writes files: how it is called, and how what it wrote is read again."""

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
TEMPORARY = re.compile(r"^\.|\.part$|unfinished|tmp|temp")  # names that nobody asked for
FIGURE = "figure_8"  # the quickest to make


class Writer(NamedTuple):
    """Writes a file, or a folder, with one of two contents: version 0 or 1."""

    suffix: str
    write: Callable[[Path, int], Any]
    read: Callable[[Path], Any] = Path.read_bytes


def prepare(folder: Path) -> None:
    """Models and a result to write, unless an earlier trial has made them."""
    models.prepare(folder)
    if not (folder / "result").exists():
        reproduce(folder / "report", 0)
        stored(folder / "report").rename(folder / "result")


def save(folder: Path) -> Writer:
    """An estimator, with one setting or another."""
    model = anchored.load(folder / "regressor")
    return Writer("", lambda path, version: model.set_params(max_iter=5 + version).save(path), models.content)


def save_agent(folder: Path) -> Writer:
    """One agent or another."""
    agents = [QEnsembleAgent.load(folder / name) for name in ("agent", "gymnasium agent")]
    return Writer("", lambda path, version: agents[version].save(path), models.content)


def fit(folder: Path) -> Writer:
    """A model of a table, with one seed or another."""
    data = folder / "harbours.csv"
    given = ("fit", data, "--target", "ships", "--members", 2, "--max-iter", 1)
    return Writer("", lambda path, version: command(*given, "--seed", version, "--out", path), models.content)


def predict(folder: Path, suffix: str) -> Writer:
    """Predictions with intervals of one width or another."""
    given = ("predict", folder / "table", folder / "harbours.csv")
    return Writer(suffix, lambda path, version: command(*given, "--coverage", (0.8, 0.9)[version], "--out", path))


def report(folder: Path) -> Writer:
    """A page about one of two tables."""
    data = [folder / "harbours.csv", folder / "more.csv"]
    data[1].write_bytes(data[0].read_bytes() + data[0].read_bytes().split(b"\n", 1)[1])
    return Writer(".html", lambda path, version: command("report", folder / "table", data[version], "--out", path))


def store(folder: Path) -> Writer:
    """The result of an experiment, in a folder of its own."""
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
    """Rebuild one figure, small."""
    return command("reproduce", "--quick", "--only", FIGURE, "--out", out, "--seed", seed)


def stored(out: Path) -> Path:
    """Where the result of that figure lies."""
    return reproduction.result_folder(out, FIGURE, quick=True)


def strays(folder: Path) -> list[str]:
    """Files in a folder, and below it, that were meant to be temporary."""
    return sorted(path.name for path in folder.rglob("*") if TEMPORARY.search(path.name))
