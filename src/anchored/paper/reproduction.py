"""Runs experiments, keeps what they found, and runs again only what has changed.

Under `folder/results/<experiment>` lie the pictures and `result.json`: claims, tables, seconds, the names of the
pictures, and the fingerprint of what made them. The name of a picture holds a hash of its content, so that a new one
never overwrites an old one, and to replace `result.json` is to replace the result: a run may be cut at any moment.
"""

import hashlib
import json
import re
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anchored.paper.catalogue import Experiment
from anchored.paper.findings import Claim, Figure, Progress, Table, no_progress
from anchored.paper.machine import Machine, machine, versions
from anchored.paper.sources import source_hash
from anchored.storage import atomic

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_alone = threading.Lock()  # held where pictures are drawn, since Matplotlib is not for threads, and results told
PICTURE = re.compile(r"[a-z0-9_]+-[0-9a-f]{8}\.png")  # as `_picture_name` gives: a file of the same folder


@dataclass(frozen=True)
class Result:
    """What is stored of an experiment: its figures, or the error that it ended with."""

    experiment: str
    quick: bool
    seed: int
    configuration: dict[str, object]
    machine: Machine
    written: str  # when it ended, UTC
    seconds: float
    fingerprint: str
    figures: tuple[Figure, ...] = ()
    error: str = ""

    def command(self, name: str) -> str:
        """The command that makes the figure `name`, or the experiment of that name, again."""
        return f"anchored reproduce --only {name} --seed {self.seed}" + " --quick" * self.quick


def reproduce(
    experiments: Iterable[Experiment],
    folder: Path,
    quick: bool = False,
    seed: int = 0,
    on_start: Callable[[Experiment], Progress] = lambda experiment: no_progress,
    on_result: Callable[[Result, bool], None] = lambda result, is_stored: None,
) -> None:
    """Run the experiments whose results are not stored in `folder` yet, and store them there.

    `quick` takes the small configurations. `on_start(experiment)` is called when one begins, and gives what is told
    its progress; `on_result(result, is_stored)` is called with the result of each, and whether it was stored before.
    """
    import jax

    from anchored.inference.jax_options import jax_option

    def one(experiment: Experiment) -> None:
        found = stored(experiment, folder, quick, seed)
        is_stored = found is not None and not found.error
        if found is None or not is_stored:
            found = _run(experiment, quick, seed, on_start(experiment))
            save(found, place_of(folder, experiment.name, quick))
        with _alone:
            on_result(found, is_stored)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # budgets too short are part of what is measured
        if quick:
            # A quick run is mostly compilation of programs that run too briefly to be worth optimising. Compilation
            # leaves a core idle, so that two experiments run in parallel.
            with jax_option("jax_disable_most_optimizations", True), ThreadPoolExecutor(2) as pool:
                list(pool.map(one, experiments))
            return
        for experiment in experiments:
            one(experiment)
            jax.clear_caches()  # a process may hold only so many programs


def stored(experiment: Experiment, folder: Path, quick: bool, seed: int) -> Result | None:
    """The result in `folder`, if the code it depends on and its configuration are still the same; None otherwise."""
    found = load(place_of(folder, experiment.name, quick))
    return found if found is not None and found.fingerprint == fingerprint(experiment, quick, seed) else None


def _run(experiment: Experiment, quick: bool, seed: int, on_progress: Progress) -> Result:
    config = _configuration(experiment, quick, seed)
    figures: tuple[Figure, ...] = ()
    error, began = "", time.perf_counter()
    try:
        results = experiment.module.run(config, on_progress)
        with _alone:
            figures = experiment.module.figures(config, results)
    except Exception:  # told in the page, and the others go on
        error = traceback.format_exc()
    return Result(
        experiment.name,
        quick,
        seed,
        asdict(config),
        machine(),
        datetime.now(UTC).isoformat(timespec="seconds"),
        time.perf_counter() - began,
        fingerprint(experiment, quick, seed),
        figures,
        error,
    )


def _configuration(experiment: Experiment, quick: bool, seed: int) -> "DataclassInstance":
    return replace(experiment.module.QUICK if quick else experiment.module.FULL, seed=seed)


def fingerprint(experiment: Experiment, quick: bool, seed: int) -> str:
    """A hash of all that a result depends on: configuration, the source the experiment imports, library versions."""
    config = repr(_configuration(experiment, quick, seed))
    return hashlib.sha256(repr((experiment.name, config, _source(experiment), versions())).encode()).hexdigest()


@cache
def _source(experiment: Experiment) -> str:
    return source_hash([experiment.module_name])


def place_of(folder: Path, name: str, quick: bool) -> Path:
    """The folder of the result of the experiment `name`. A quick run does not overwrite the full one."""
    return folder / "results" / (name + "_quick" * quick)


def save(result: Result, place: Path) -> None:
    """Replace the result in the folder `place`: pictures first, then `result.json`; older pictures are removed."""
    pictures = {_picture_name(e.name, e.picture): e.picture for e in result.figures}
    figures = [{**asdict(e), "picture": name} for e, name in zip(result.figures, pictures, strict=True)]
    text = json.dumps({**asdict(result), "figures": figures}, indent=1, ensure_ascii=False)
    place.mkdir(parents=True, exist_ok=True)
    with atomic.locked(place):  # another run must not take these pictures for left over
        for name, picture in pictures.items():
            atomic.write_bytes(place / name, picture)
        atomic.write_text(place / "result.json", text + "\n")
        atomic.remove_abandoned(place)
        for path in place.glob("*.png"):
            if path.name not in pictures:
                path.unlink()


def _picture_name(figure: str, picture: bytes) -> str:
    return f"{figure}-{hashlib.blake2b(picture, digest_size=4).hexdigest()}.png"


def load(place: Path) -> Result | None:
    """The result in the folder `place`; None where there is none, or a damaged one."""
    try:
        found = json.loads(_content(place / "result.json"))
        figures = tuple(_figure(figure, place) for figure in found.pop("figures"))
        return Result(**found, figures=figures)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None  # nothing there, damaged, or of another version: run it again


def _content(path: Path) -> bytes:
    """Of a regular file: a pipe would block, and a device never end."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not a file")
    return path.read_bytes()


def _figure(found: Any, place: Path) -> Figure:
    """A figure from what a file holds of it, which may be anything."""
    claims = tuple(Claim(**claim) for claim in found.pop("claims"))
    tables = tuple(
        Table(tuple(t["header"]), tuple(map(tuple, t["rows"])), t["caption"], tuple(t["timed"]))
        for t in found.pop("tables")
    )
    name, notes = found.pop("picture"), tuple(found.pop("notes"))
    if not PICTURE.fullmatch(name):
        raise ValueError(f"{name!r} is not the name of a picture")
    picture = _content(place / name)
    if name != _picture_name(found["name"], picture):
        raise ValueError(f"{place / name} is damaged")
    return Figure(**found, picture=picture, claims=claims, tables=tables, notes=notes)
