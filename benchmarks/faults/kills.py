"""Processes killed at any time: a file is the old one or the new one, complete; agents resume bit for bit."""

import itertools
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from anchored.paper import reproduction
from anchored.rl import QEnsembleAgent
from anchored.rl.environments import CartPole
from faults import models, writers
from faults.trial import CONTEXT, HELD, Case, Check, Trial
from faults.writers import WRITERS, temporary_files

MAX_DELAYS = {  # seconds within which a process is killed, the time of a few repetitions, by what the process does
    "save": 0.1,
    "save an agent": 0.1,
    "predict": 0.3,
    "predict, Parquet": 0.3,
    "fit": 3.0,
    "learn": 0.5,
    "learn in Gymnasium": 0.5,
    "reproduce": 2.0,
}
ORDER = (  # in which processes are started
    *("save", "predict", "learn", "fit", "save", "learn", "reproduce", "save an agent", "predict, Parquet", "fit"),
    *("learn in Gymnasium", "predict"),
)
MAX_LIFETIME = 60.0  # seconds after which a process ends if it was not killed
ENVIRONMENTS: dict[str, Callable[[], Any]] = {
    "learn": partial(CartPole, 60),
    "learn in Gymnasium": lambda: "CartPole-v1",
}
CHECKPOINT_EVERY, TOTAL_STEPS = 40, 800


def cases(seed: int, folder: Path) -> Iterator[Case]:
    """Yield the actions of ORDER in turn, endlessly, each with the delay after which its process is killed.

    `seed` is the random seed of the delays; `folder` is not used.
    """
    for number, name in enumerate(itertools.cycle(ORDER)):
        after = MAX_DELAYS[name] * Random(f"{seed} {number}").random()
        yield Case(f"{name}, killed after {after:.3f} s", (name, after))


def kill_during(target: Callable[..., None], *arguments: Any, after: float) -> None:
    """Start a process that calls `target` with a connection and `arguments`; kill it `after` seconds after it reports.

    It reports by sending a message over the connection when it has done its work once.
    """
    ours, theirs = CONTEXT.Pipe()
    process = CONTEXT.Process(target=target, args=(theirs, *arguments))
    process.start()
    theirs.close()
    try:
        ours.recv()
        time.sleep(after)
        if not process.is_alive():
            raise RuntimeError(f"ended by itself, with exit code {process.exitcode}")
    except EOFError:
        raise RuntimeError("ended before it reported") from None
    finally:
        process.kill()
        process.join()


# Files that are replaced repeatedly


def write_repeatedly(connection: Any, name: str, folder: Path, path: Path) -> None:
    """Write two versions of the file `path` in turn with the writer `name`, until killed.

    The first one is reported over `connection`; `folder` is the shared folder.
    """
    writer = WRITERS[name](folder)
    writer.write(path, 0)
    connection.send(None)
    _repeat(lambda number: writer.write(path, (number + 1) % 2))


def check_writer(folder: Path, scratch: Path) -> Check:
    """Return a check of processes that write files: one of the two versions must be there, complete.

    `folder` is the shared folder; files are written in `scratch`.
    """
    known = {}
    for name in MAX_DELAYS.keys() & WRITERS.keys():
        writer = WRITERS[name](folder)
        path = scratch / f"whole{writer.suffix}"
        versions = []
        for version in (0, 1):
            writer.write(path, version)
            versions.append(writer.read(path))
        path.unlink()
        known[name] = writer, versions

    def check(case: tuple[str, float]) -> str:
        name, after = case
        writer, versions = known[name]
        with TemporaryDirectory(dir=scratch) as temporary:
            path = Path(temporary) / f"file{writer.suffix}"
            kill_during(write_repeatedly, name, folder, path, after=after)
            if writer.read(path) not in versions:
                return "the file is neither the old one nor the new one"
            writer.write(path, 1)
            if writer.read(path) != versions[1]:
                return "the next file is wrong"
            return _only(Path(temporary), path.name)

    return check


# Agents


def learn_repeatedly(connection: Any, name: str, path: Path) -> None:
    """Train agents for the action `name` with the checkpoint `path`, until killed.

    The first checkpoint is reported over `connection`.
    """

    def learn(number: int) -> None:
        new_agent(name).learn(total_timesteps=TOTAL_STEPS, checkpoint=path, checkpoint_every=CHECKPOINT_EVERY)

    new_agent(name).learn(total_timesteps=CHECKPOINT_EVERY, checkpoint=path, checkpoint_every=CHECKPOINT_EVERY)
    connection.send(None)
    _repeat(learn)


def new_agent(name: str) -> QEnsembleAgent:
    """Return an untrained agent for the action `name`."""
    return QEnsembleAgent(ENVIRONMENTS[name](), seed=0, **models.AGENT)


def check_learner(name: str, scratch: Path) -> Check:
    """Return a check of agents: the file must be a checkpoint of an uninterrupted run, and training must continue it.

    `name` is the action, and `scratch` the folder of the files.
    """
    checkpoints = {}
    path = scratch / "whole"
    uninterrupted = new_agent(name)
    while uninterrupted.n_steps < TOTAL_STEPS:
        uninterrupted.learn(total_timesteps=CHECKPOINT_EVERY, checkpoint=path)
        checkpoints[uninterrupted.n_steps] = models.content(path)
    path.unlink()

    def check(case: tuple[str, float]) -> str:
        with TemporaryDirectory(dir=scratch) as temporary:
            path = Path(temporary) / "agent"
            kill_during(learn_repeatedly, name, path, after=case[1])
            resumed = QEnsembleAgent.load(path)
            if models.content(path) != checkpoints[resumed.n_steps]:
                return f"after {resumed.n_steps} steps it is not the agent of an uninterrupted run"
            if resumed.n_steps < TOTAL_STEPS:
                resumed.learn(total_timesteps=CHECKPOINT_EVERY)
            resumed.save(path)
            if models.content(path) != checkpoints[resumed.n_steps]:
                return f"resumed, it is not the agent of an uninterrupted run, after {resumed.n_steps} steps"
            return _only(Path(temporary), path.name)

    return check


# Reports


def reproduce_repeatedly(connection: Any, out: Path) -> None:
    """Reproduce a figure in the folder `out` with two seeds in turn, until killed.

    The first one is reported over `connection`.
    """
    writers.reproduce(out, 0)
    connection.send(None)
    _repeat(lambda number: writers.reproduce(out, (number + 1) % 2))


def check_reproduce(scratch: Path) -> Check:
    """Return a check of reports in `scratch`: a complete result and a complete page must be there."""

    def check(case: tuple[str, float]) -> str:
        with TemporaryDirectory(dir=scratch) as temporary:
            out = Path(temporary) / "report"
            kill_during(reproduce_repeatedly, out, after=case[1])
            if reproduction.load(writers.stored(out)) is None:
                return "the stored result is lost"
            if not (out / "index.html").read_text().rstrip().endswith("</html>"):
                return "the page is truncated"
            for seed in (0, 1):  # at least one is not stored
                writers.reproduce(out, seed)
            result = reproduction.load(writers.stored(out))
            if result is None or result.seed != 1:
                return "the run that followed is not stored"
            left = temporary_files(Path(temporary))
            return f"left behind: {left}" if left else HELD

    return check


def _repeat(act: Callable[[int], Any]) -> None:
    """Call `act` with 0, 1, … until the process is killed, or MAX_LIFETIME is over."""
    started = time.monotonic()
    for number in itertools.count():
        act(number)
        if time.monotonic() - started > MAX_LIFETIME:
            return


def _only(folder: Path, name: str) -> str:
    """Return HELD if the folder contains only the file `name`."""
    names = sorted(path.name for path in folder.iterdir())
    return HELD if names == [name] else f"left behind: {[other for other in names if other != name]}"


def start(folder: Path, scratch: Path) -> Check:
    """Make the results of uninterrupted runs in `scratch`, and return the check of killed ones.

    `folder` is the shared folder.
    """
    writers.reproduce(scratch / "warm-up", 1)  # compile the programs
    default_check = check_writer(folder, scratch)
    checks = {name: check_learner(name, scratch) for name in ENVIRONMENTS} | {"reproduce": check_reproduce(scratch)}

    def check(case: tuple[str, float]) -> str:
        return checks.get(case[0], default_check)(case)

    return check


TRIAL = Trial(
    "kills",
    "a process killed at any time leaves the old file or the new one, complete; agents resume bit for bit",
    size=300,
    quick=7,
    cases=cases,
    start=start,
    prepare=writers.prepare,
    seconds=60,
    megabytes=2000,
)
