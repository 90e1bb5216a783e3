"""Runs experiments, keeps what they found, and runs again only what has changed.

Under `folder/results/<experiment>` lie the pictures and `result.json`: claims, tables, seconds, the names of the
pictures, and the fingerprint of what made them. The name of a picture holds a hash of its content, so that a new one
never overwrites an old one, and to replace `result.json` is to replace the result: a run may be cut at any moment.
"""

import hashlib
import json
import os
import platform
import re
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from anchored.paper.experiments.catalogue import Experiment
from anchored.paper.experiments.exhibit import Claim, Exhibit, Progress, Table, ignored
from anchored.storage import atomic

_alone = threading.Lock()  # held where pictures are drawn, since Matplotlib is not for threads, and results told
PACKAGES = ("anchored", "jax", "jaxlib", "numpy", "scipy", "scikit-learn", "optax", "numpyro", "matplotlib")
PICTURE = re.compile(r"[a-z0-9_]+-[0-9a-f]{8}\.png")  # as `_picture_name` gives: a file of the same folder


@dataclass(frozen=True)
class Result:
    """What is stored of an experiment: its exhibits, or the error that it ended with."""

    experiment: str
    quick: bool
    seed: int
    configuration: dict[str, Any]
    machine: str
    seconds: float
    fingerprint: str
    exhibits: tuple[Exhibit, ...] = ()
    error: str = ""

    def command(self, name: str) -> str:
        """What makes an exhibit of it, or all of it, again."""
        return f"anchored reproduce --only {name} --seed {self.seed}" + " --quick" * self.quick


def reproduce(
    experiments: Iterable[Experiment],
    folder: Path,
    quick: bool = False,
    seed: int = 0,
    on_start: Callable[[Experiment], Progress] = lambda experiment: ignored,
    on_result: Callable[[Result, bool], None] = lambda result, is_stored: None,
) -> None:
    """Run what is not stored yet.

    `on_start` is told of an experiment that begins, and gives what is told its progress; `on_result` is told what
    became of each, and whether that was stored before.
    """
    import jax

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
            with _compiling_quickly(), ThreadPoolExecutor(2) as pool:
                list(pool.map(one, experiments))
            return
        for experiment in experiments:
            one(experiment)
            jax.clear_caches()  # a process may hold only so many programs


@contextmanager
def _compiling_quickly() -> Iterator[None]:
    """A rehearsal is mostly compilation, of programs that run too briefly to be worth optimising.

    It leaves a core idle, so that two experiments run side by side; at full size one has the machine to itself.
    """
    import jax

    flag = "jax_disable_most_optimizations"
    before = jax.config.values[flag]
    jax.config.update(flag, True)
    try:
        yield
    finally:
        jax.config.update(flag, before)


def stored(experiment: Experiment, folder: Path, quick: bool, seed: int) -> Result | None:
    """What this very code found with this very configuration, if that is stored."""
    found = load(place_of(folder, experiment.name, quick))
    mark = fingerprint(experiment.name, experiment.configured(quick, seed))
    return found if found is not None and found.fingerprint == mark else None


def _run(experiment: Experiment, quick: bool, seed: int, on_progress: Progress) -> Result:
    config = experiment.configured(quick, seed)
    exhibits: tuple[Exhibit, ...] = ()
    error, began = "", time.perf_counter()
    try:
        results = experiment.run(config, on_progress)
        with _alone:
            exhibits = experiment.exhibits(config, results)
    except Exception:  # told in the page, and the others go on
        error = traceback.format_exc()
    seconds = time.perf_counter() - began
    mark = fingerprint(experiment.name, config)
    return Result(experiment.name, quick, seed, asdict(config), machine(), seconds, mark, exhibits, error)


def fingerprint(name: str, config: Any) -> str:
    """Of all that a result depends on: its configuration, the package's source, the libraries' versions."""
    return hashlib.sha256(repr((name, repr(config), source_hash(), versions())).encode()).hexdigest()


@cache
def source_hash() -> str:
    """Of every source file of the package."""
    found, root = hashlib.sha256(), Path(__file__).parent.parent
    for path in sorted(root.rglob("*.py")):
        found.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()


def place_of(folder: Path, name: str, quick: bool) -> Path:
    """Where an experiment's result lies. A rehearsal does not overwrite the full run."""
    return folder / "results" / (name + "_quick" * quick)


def save(result: Result, place: Path) -> None:
    """Replace what is stored there: pictures first, then `result.json`, then pictures that belong to neither."""
    pictures = {_picture_name(e.name, e.picture): e.picture for e in result.exhibits}
    exhibits = [{**asdict(e), "picture": name} for e, name in zip(result.exhibits, pictures, strict=True)]
    text = json.dumps({**asdict(result), "exhibits": exhibits}, indent=1, ensure_ascii=False)
    place.mkdir(parents=True, exist_ok=True)
    with atomic.locked(place):  # another run must not take these pictures for left over
        for name, picture in pictures.items():
            atomic.write_bytes(place / name, picture)
        atomic.write_text(place / "result.json", text + "\n")
        atomic.remove_abandoned(place)
        for path in place.glob("*.png"):
            if path.name not in pictures:
                path.unlink()


def _picture_name(exhibit: str, picture: bytes) -> str:
    return f"{exhibit}-{hashlib.blake2b(picture, digest_size=4).hexdigest()}.png"


def load(place: Path) -> Result | None:
    """What is stored there; None where there is nothing whole."""
    try:
        found = json.loads(_content(place / "result.json"))
        exhibits = tuple(_exhibit(stored, place) for stored in found.pop("exhibits"))
        return Result(**found, exhibits=exhibits)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None  # nothing there, damaged, or of another version: run it again


def _content(path: Path) -> bytes:
    """Of a regular file: a pipe would block, and a device never end."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not a file")
    return path.read_bytes()


def _exhibit(found: dict[str, Any], place: Path) -> Exhibit:
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
    return Exhibit(**found, picture=picture, claims=claims, tables=tables, notes=notes)


def machine() -> str:
    """The processor, how many cores this process may use, what JAX computes on, and the libraries' versions."""
    import jax

    device = jax.devices()[0]
    kind = device.platform if device.platform == "cpu" else device.device_kind
    return f"{_processor()}, {n_cores()} cores, JAX on {kind}; Python {platform.python_version()}, {versions()}"


def n_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def versions() -> str:
    """Of what is installed of the packages that matter."""
    found = []
    for name in PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
