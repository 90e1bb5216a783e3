"""Run experiments, store their results, and run again only those that have changed.

A folder `results/<experiment>` holds pictures and `result.json`, which contains the claims, tables, seconds, the names
of the pictures, and a fingerprint of code and configuration. The name of a picture contains a hash of its content, so
that a new picture never overwrites an old one. The result changes in one step, when `result.json` is replaced, so that
a run may be interrupted at any time.
"""

import hashlib
import json
import re
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from anchored.paper.catalogue import Experiment
from anchored.paper.findings import Claim, Figure, Progress, Table, Verdict, no_progress
from anchored.paper.machine import Machine, machine, versions
from anchored.paper.sources import source_hash
from anchored.storage import atomic

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_lock = threading.Lock()  # held while pictures are drawn, as Matplotlib is not thread-safe, and in `on_result`
N_PARALLEL = 2  # experiments that run at the same time, since compilation leaves a core idle
PICTURE = re.compile(r"[a-z0-9_]+-[0-9a-f]{8}\.png")  # names that `_picture_name` returns


@dataclass(frozen=True)
class Result:
    """The stored result of an experiment: its figures, or the error that it ended with."""

    experiment: str
    quick: bool  # whether the configuration is `QUICK`, not `FULL`
    seed: int  # random seed of the experiment
    configuration: dict[str, object]  # values of the configuration, by field
    machine: Machine  # on which it ran
    written: str  # UTC time at which it ended
    seconds: float  # time that it took
    fingerprint: str  # see `fingerprint`
    figures: tuple[Figure, ...] = ()
    error: str = ""  # the traceback; "" if there was no error

    def command(self, name: str) -> str:
        """Return the command that reproduces the figure or experiment `name`."""
        return f"anchored reproduce --only {name} --seed {self.seed}" + " --quick" * self.quick


def reproduce(
    experiments: Iterable[Experiment],
    folder: Path,
    quick: bool = False,
    seed: int = 0,
    on_start: Callable[[Experiment], Progress] = lambda experiment: no_progress,
    on_result: Callable[[Result, bool], None] = lambda result, is_stored: None,
) -> None:
    """Run the experiments whose results are not yet stored in `folder`, and store them there.

    Parameters
    ----------
    experiments
        The experiments to run.
    folder
        Folder of the report.
    quick
        Whether to run the configurations `QUICK` instead of `FULL`.
    seed
        Random seed of all experiments.
    on_start
        Called with an experiment when it starts; returns the function that is called with its progress.
    on_result
        Called with each result, and whether it was already stored.
    """
    import jax

    from anchored.inference.jax_options import jax_option

    is_interrupted = threading.Event()

    def run_one(experiment: Experiment) -> None:
        result = stored(experiment, folder, quick, seed)
        is_stored = result is not None and not result.error
        if result is None or not is_stored:
            report = on_start(experiment)

            def on_progress(fraction: float) -> None:
                if is_interrupted.is_set():
                    raise _Interrupted
                report(fraction)

            result = _run(experiment, quick, seed, on_progress)
            save(result, result_folder(folder, experiment.name, quick))
        with _lock:
            on_result(result, is_stored)

    experiments = tuple(experiments)
    # A quick run mostly compiles programs, which run too briefly to be worth optimising or timing.
    parallel = [experiment for experiment in experiments if quick or not experiment.is_timed]
    alone = [experiment for experiment in experiments if experiment not in parallel]
    with warnings.catch_warnings(), jax_option("jax_disable_most_optimizations", quick):
        warnings.simplefilter("ignore")  # some experiments train too briefly on purpose
        with ThreadPoolExecutor(N_PARALLEL) as pool:
            try:
                for ended in as_completed([pool.submit(run_one, experiment) for experiment in parallel]):
                    ended.result()
            except KeyboardInterrupt:
                is_interrupted.set()  # ends the experiments that are running when they next report progress
                raise
        for experiment in alone:
            jax.clear_caches()  # the number of compiled programs in a process is limited
            run_one(experiment)


class _Interrupted(BaseException):
    """Ends an experiment in a thread after the user has interrupted the run; not a failure of the experiment."""


def stored(experiment: Experiment, folder: Path, quick: bool, seed: int) -> Result | None:
    """Return the result of `experiment` stored in `folder`; None if there is none, or its fingerprint has changed.

    `quick` and `seed` are as in `reproduce`.
    """
    result = load(result_folder(folder, experiment.name, quick))
    return result if result is not None and result.fingerprint == fingerprint(experiment, quick, seed) else None


def _run(experiment: Experiment, quick: bool, seed: int, on_progress: Progress) -> Result:
    """Run an experiment; an error becomes part of its result."""
    config = _configuration(experiment, quick, seed)
    figures: tuple[Figure, ...] = ()
    error, started = "", time.perf_counter()
    try:
        results = experiment.module.run(config, on_progress)
        with _lock:
            figures = experiment.module.figures(config, results)
    except Exception:  # the report shows it, and the other experiments still run
        error = traceback.format_exc()
    return Result(
        experiment.name,
        quick,
        seed,
        asdict(config),
        machine(),
        datetime.now(UTC).isoformat(timespec="seconds"),
        time.perf_counter() - started,
        fingerprint(experiment, quick, seed),
        figures,
        error,
    )


def _configuration(experiment: Experiment, quick: bool, seed: int) -> "DataclassInstance":
    """Return the configuration of an experiment with this seed."""
    return replace(experiment.module.QUICK if quick else experiment.module.FULL, seed=seed)


def fingerprint(experiment: Experiment, quick: bool, seed: int) -> str:
    """Return a hash of everything that a result depends on.

    These are the configuration (`quick`, `seed`), the source files that `experiment` imports, and library versions.
    """
    config = repr(_configuration(experiment, quick, seed))
    return hashlib.sha256(repr((experiment.name, config, _source(experiment), versions())).encode()).hexdigest()


@cache
def _source(experiment: Experiment) -> str:
    """Return the hash of the source files that an experiment imports."""
    return source_hash([experiment.module_name])


def result_folder(folder: Path, name: str, quick: bool) -> Path:
    """Return the folder of the result of the experiment `name` in `folder`; quick and full runs have different ones."""
    return folder / "results" / (name + "_quick" * quick)


def save(result: Result, folder: Path) -> None:
    """Store `result` in `folder`: pictures first, then `result.json`; then remove pictures of the previous result."""
    pictures = {_picture_name(f.name, f.picture): f.picture for f in result.figures}
    figures = [{**asdict(f), "picture": name} for f, name in zip(result.figures, pictures, strict=True)]
    text = json.dumps({**asdict(result), "figures": figures}, indent=1, ensure_ascii=False)
    folder.mkdir(parents=True, exist_ok=True)
    with atomic.locked(folder):  # another run must not remove these pictures
        for name, picture in pictures.items():
            atomic.write_bytes(folder / name, picture)
        atomic.write_text(folder / "result.json", text + "\n")
        atomic.remove_abandoned(folder)
        for path in folder.glob("*.png"):
            if path.name not in pictures:
                path.unlink()


def _picture_name(figure: str, picture: bytes) -> str:
    """Return the file name of a picture: the figure's name and a hash of the content."""
    return f"{figure}-{hashlib.blake2b(picture, digest_size=4).hexdigest()}.png"


def load(folder: Path) -> Result | None:
    """Return the result stored in `folder`; None if there is none, or if it is damaged."""
    try:
        stored_fields = json.loads(_read_regular_file(folder / "result.json"))
        figures = tuple(_figure(figure, folder) for figure in stored_fields.pop("figures"))
        return Result(**stored_fields, figures=figures)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None  # missing, damaged, or written by another version: the experiment runs again


def _read_regular_file(path: Path) -> bytes:
    """Return the content of a file; raise if it is not a regular one, since reading a pipe or a device may not end."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not a file")
    return path.read_bytes()


def _figure(fields: dict, folder: Path) -> Figure:
    """Return a figure from its JSON object, which may have any content; raise if it is not a figure."""
    claims = tuple(Claim(**claim | {"verdict": Verdict(claim["verdict"])}) for claim in fields.pop("claims"))
    tables = tuple(
        Table(tuple(t["header"]), tuple(map(tuple, t["rows"])), t["caption"], tuple(t["timed"]))
        for t in fields.pop("tables")
    )
    name, notes = fields.pop("picture"), tuple(fields.pop("notes"))
    if not PICTURE.fullmatch(name):
        raise ValueError(f"{name!r} is not the name of a picture")
    picture = _read_regular_file(folder / name)
    if name != _picture_name(fields["name"], picture):
        raise ValueError(f"{folder / name} is damaged")
    return Figure(**fields, picture=picture, claims=claims, tables=tables, notes=notes)
