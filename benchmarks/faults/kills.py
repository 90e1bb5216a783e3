"""SIGKILL at any moment: what was there stays, or what is new is whole; learning goes on bit for bit."""

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
from faults.trial import HELD, PROCESSES, Case, Judge, Trial
from faults.writers import WRITERS, strays

VICTIMS = {  # and the seconds within which they are killed, a few of what each does
    "save": 0.1,
    "save an agent": 0.1,
    "predict": 0.3,
    "predict, Parquet": 0.3,
    "fit": 3.0,
    "learn": 0.5,
    "learn in Gymnasium": 0.5,
    "reproduce": 2.0,
}
IN_TURN = ("save", "predict", "learn", "fit", "save", "learn", "reproduce", "save an agent", "predict, Parquet", "fit")
IN_TURN += ("learn in Gymnasium", "predict")
LONGEST = 60.0  # seconds that a victim lives at most, should nobody kill it
ENVIRONMENTS: dict[str, Callable[[], Any]] = {
    "learn": partial(CartPole, 60),
    "learn in Gymnasium": lambda: "CartPole-v1",
}
EVERY, LAST = 40, 800  # steps between checkpoints, and in all


def cases(seed: int, folder: Path) -> Iterator[Case]:
    """Victims in turn, each with the moment of its death."""
    for number, name in enumerate(itertools.cycle(IN_TURN)):
        after = VICTIMS[name] * Random(f"{seed} {number}").random()
        yield Case(f"{name}, killed after {after:.3f} s", (name, after))


def killed(victim: Callable[..., None], *arguments: Any, after: float) -> None:
    """Start a process, wait until it is at work, and kill it."""
    ours, theirs = PROCESSES.Pipe()
    process = PROCESSES.Process(target=victim, args=(theirs, *arguments))
    process.start()
    theirs.close()
    try:
        ours.recv()
        time.sleep(after)
        if not process.is_alive():
            raise RuntimeError(f"ended by itself, exit code {process.exitcode}")
    except EOFError:
        raise RuntimeError("ended before it was at work") from None
    finally:
        process.kill()
        process.join()


# Files that are replaced again and again


def write_on(connection: Any, name: str, folder: Path, path: Path) -> None:
    """Write one version after the other."""
    writer = WRITERS[name](folder)
    writer.write(path, 0)
    connection.send(None)
    _repeat(lambda number: writer.write(path, (number + 1) % 2))


def judge_writer(folder: Path, own: Path) -> Judge:
    """Of victims that write files: either version must be there, whole."""
    known = {}
    for name in VICTIMS.keys() & WRITERS.keys():
        writer = WRITERS[name](folder)
        path = own / f"whole{writer.suffix}"
        versions = []
        for version in (0, 1):
            writer.write(path, version)
            versions.append(writer.read(path))
        path.unlink()
        known[name] = writer, versions

    def judge(case: tuple[str, float]) -> str:
        name, after = case
        writer, versions = known[name]
        with TemporaryDirectory(dir=own) as here:
            path = Path(here) / f"file{writer.suffix}"
            killed(write_on, name, folder, path, after=after)
            if writer.read(path) not in versions:
                return "what is there is neither the old file nor the new one"
            writer.write(path, 1)
            if writer.read(path) != versions[1]:
                return "the next file is not what it should be"
            return _only(Path(here), path.name)

    return judge


# Agents


def learn_on(connection: Any, name: str, path: Path) -> None:
    """Learn from the start, with checkpoints, again and again."""

    def learn(number: int) -> None:
        new_agent(name).learn(total_timesteps=LAST, checkpoint=path, checkpoint_every=EVERY)

    new_agent(name).learn(total_timesteps=EVERY, checkpoint=path, checkpoint_every=EVERY)
    connection.send(None)
    _repeat(learn)


def new_agent(name: str) -> QEnsembleAgent:
    """Before its first step."""
    return QEnsembleAgent(ENVIRONMENTS[name](), seed=0, **models.AGENT)


def judge_learner(name: str, own: Path) -> Judge:
    """Of agents: a checkpoint of a run that was never killed must be there, and lead to the next one."""
    checkpoints = {}
    path = own / "whole"
    whole = new_agent(name)
    while whole.n_steps < LAST:
        whole.learn(total_timesteps=EVERY, checkpoint=path)
        checkpoints[whole.n_steps] = models.content(path)
    path.unlink()

    def judge(case: tuple[str, float]) -> str:
        with TemporaryDirectory(dir=own) as here:
            path = Path(here) / "agent"
            killed(learn_on, name, path, after=case[1])
            resumed = QEnsembleAgent.load(path)
            if models.content(path) != checkpoints[resumed.n_steps]:
                return f"after {resumed.n_steps} steps it is not the agent that was never killed"
            if resumed.n_steps < LAST:
                resumed.learn(total_timesteps=EVERY)
            resumed.save(path)
            if models.content(path) != checkpoints[resumed.n_steps]:
                return f"resumed, it is not the agent that was never killed, after {resumed.n_steps} steps"
            return _only(Path(here), path.name)

    return judge


# Reports


def reproduce_on(connection: Any, out: Path) -> None:
    """Rebuild a figure with one seed, then with another, and so on."""
    writers.reproduce(out, 0)
    connection.send(None)
    _repeat(lambda number: writers.reproduce(out, (number + 1) % 2))


def judge_reproduce(own: Path) -> Judge:
    """Of reports: a whole result and a whole page must be there."""

    def judge(case: tuple[str, float]) -> str:
        with TemporaryDirectory(dir=own) as here:
            out = Path(here) / "report"
            killed(reproduce_on, out, after=case[1])
            if reproduction.load(writers.stored(out)) is None:
                return "the stored result is lost"
            if not (out / "index.html").read_text().rstrip().endswith("</html>"):
                return "the page is cut short"
            for seed in (0, 1):  # one of them is not stored
                writers.reproduce(out, seed)
            found = reproduction.load(writers.stored(out))
            if found is None or found.seed != 1:
                return "the run that followed is not stored"
            left = strays(Path(here))
            return f"left behind: {left}" if left else HELD

    return judge


def _repeat(act: Callable[[int], Any]) -> None:
    """Until somebody ends it, or for as long as it may live."""
    began = time.monotonic()
    for number in itertools.count():
        act(number)
        if time.monotonic() - began > LONGEST:
            return


def _only(folder: Path, name: str) -> str:
    """HELD where there is nothing in the folder but this file."""
    found = sorted(path.name for path in folder.iterdir())
    return HELD if found == [name] else f"left behind: {[other for other in found if other != name]}"


def start(folder: Path, own: Path) -> Judge:
    """Make what killed runs are compared with."""
    writers.reproduce(own / "warm", 1)  # compile what is needed
    of_writers = judge_writer(folder, own)
    others = {name: judge_learner(name, own) for name in ENVIRONMENTS} | {"reproduce": judge_reproduce(own)}

    def judge(case: tuple[str, float]) -> str:
        return others.get(case[0], of_writers)(case)

    return judge


TRIAL = Trial(
    "kills",
    "killed at any moment, a process leaves the old file or the new one, whole; agents resume bit for bit",
    size=300,
    quick=7,
    cases=cases,
    start=start,
    prepare=writers.prepare,
    seconds=60,
    megabytes=2000,
)
