"""Trials of the library with one kind of fault, and the processes that check cases with limits on time and memory."""

import multiprocessing
import os
import resource
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from tempfile import mkdtemp
from typing import Any, NamedTuple

import reporting

HELD = ""  # what a check returns if the library behaved as it promises
BATCH = 100  # number of cases that are generated in advance
MAX_ADDRESS_SPACE = 8 * 2**30  # bytes of address space that a process may reserve beyond those it starts with
START_SECONDS = 300.0  # time limit for the start of a process
CONTEXT = multiprocessing.get_context("forkserver")  # processes are forks of one that has only imported modules
CONTEXT.set_forkserver_preload(
    [
        "anchored.cli",
        "anchored.rl",
        "anchored.tables.prediction",
        "anchored.tables.report",
        "anchored.paper.reproduction",
    ]
)


class Case(NamedTuple):
    """One fault: its description, and the content that is passed to the check."""

    name: str
    content: Any


class Outcome(NamedTuple):
    """The outcome of a case, with its time and memory."""

    case: str
    failure: str  # HELD, or what went wrong
    seconds: float = 0.0
    grown: float = 0.0  # peak memory of the process minus its memory before the case, in bytes
    resident: float = 0.0  # peak memory of the process, in bytes
    maps: float = 0.0  # number of memory maps of the process afterwards


Check = Callable[[Any], str]  # receives the content of a case; returns HELD, or what went wrong


def nothing(folder: Path) -> None:
    """Prepare nothing in `folder`."""


@dataclass(frozen=True)
class Trial:
    """A test of what the library promises for one kind of fault.

    A case fails if its check says so, and also if it crashes, hangs or takes too much time or memory.
    """

    name: str
    promise: str  # what must hold in every case
    size: int  # number of cases
    quick: int  # number of cases in a quick run
    cases: Callable[[int, Path], Iterator[Case]]  # called with a random seed and the shared folder
    start: Callable[[Path, Path], Check]  # called in each process with the shared folder and a scratch folder
    prepare: Callable[[Path], None] = nothing  # called once: writes files that all cases need into the shared folder
    seconds: float = 5.0  # time limit of a case
    megabytes: float = 500.0  # limit on the memory that a case adds
    processes: int = 2  # number of processes that check cases in parallel

    def outcomes(self, folder: Path, seed: int, first: int, last: int) -> Iterator[Outcome]:
        """Check the cases with indices from `first` to `last` − 1; yield their outcomes in order.

        `folder` is the shared folder, and `seed` the random seed of the cases.
        """
        self.prepare(folder)
        idle: SimpleQueue[Process] = SimpleQueue()
        processes = [Process(self, folder) for _ in range(min(self.processes, last - first))]
        for process in processes:
            idle.put(process)

        def check(case: Case) -> Outcome:
            process = idle.get()
            try:
                return process.check(case)
            finally:
                idle.put(process)

        cases = islice(self.cases(seed, folder), first, last)
        threads = ThreadPoolExecutor(len(processes))
        try:
            while batch := list(islice(cases, BATCH)):
                yield from threads.map(check, batch)
        finally:
            threads.shutdown(wait=False, cancel_futures=True)  # an interrupt does not wait for running cases
            for process in processes:
                process.end()


class Process:
    """A process that checks cases; if it crashes or hangs, a new one is started for the next case.

    Parameters
    ----------
    trial
        The trial.
    folder
        The shared folder.
    """

    def __init__(self, trial: Trial, folder: Path):
        self.trial, self.folder = trial, folder
        self.process: Any = None

    def check(self, case: Case) -> Outcome:
        """Return the outcome of `case`; one that exceeds the time limit has failed."""
        if self.process is None:
            self._start()
        started = time.monotonic()
        try:
            self.connection.send(case)
            # A case that takes a little too long is reported by the process itself.
            if self.connection.poll(1.2 * self.trial.seconds):
                return self.connection.recv()
            failure = f"hangs: no answer after {self.trial.seconds:g} s"
        except (EOFError, OSError):
            self.process.join()
            failure = f"crashed: {_ending(self.process.exitcode)}"
        self.end()
        return Outcome(case.name, failure, time.monotonic() - started)

    def end(self) -> None:
        """Kill the process, if there is one, and all processes that it has started."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.join()
            self.connection.close()
            self.process = None

    def _start(self) -> None:
        """Start the process, and wait until it is ready."""
        self.connection, theirs = CONTEXT.Pipe()
        self.process = CONTEXT.Process(target=_serve, args=(theirs, self.trial, self.folder))
        self.process.start()
        theirs.close()
        try:
            ready = self.connection.poll(START_SECONDS) and self.connection.recv()
        except EOFError:
            ready = False
        if not ready:
            raise RuntimeError(f"{self.trial.name}: the process that checks cases does not start")


def _serve(connection: Any, trial: Trial, folder: Path) -> None:
    """Check the cases that arrive over `connection`, until the other side closes it."""
    os.setsid()  # a new process group, which can be killed as a whole
    warnings.simplefilter("ignore")  # fits are too short on purpose
    check = trial.start(folder, Path(mkdtemp(dir=folder)))
    with suppress(OSError):  # not Linux
        reserved = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (reserved + MAX_ADDRESS_SPACE, resource.RLIM_INFINITY))
    connection.send(True)
    with suppress(EOFError, BrokenPipeError):
        while True:
            connection.send(_check_and_measure(trial, check, connection.recv()))


def _check_and_measure(trial: Trial, check: Check, case: Case) -> Outcome:
    """Check one case, and measure its time and memory."""
    before, started = reporting.memory_now(), time.perf_counter()
    try:
        failure = check(case.content)
    except Exception as error:  # an error that the check did not expect
        failure = describe_error(error)
    seconds = time.perf_counter() - started
    peak = reporting.memory_peak()
    if not failure and seconds > trial.seconds:
        failure = f"took {seconds:.1f} s"
    if not failure and peak - before > trial.megabytes * 1e6:
        failure = f"took {(peak - before) / 1e6:.0f} MB"
    return Outcome(case.name, failure, seconds, peak - before, peak, n_maps())


def describe_error(error: BaseException) -> str:
    """Return an error as one short line, with the place where it was raised."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = "" if place is None else f" ({Path(place.tb_frame.f_code.co_filename).name}, line {place.tb_lineno})"
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}{where}"


def _ending(code: int | None) -> str:
    """Return the signal or the exit code that a process ended with, as text."""
    return signal.Signals(-code).name if code is not None and code < 0 else f"exit code {code}"


def n_maps() -> int:
    """Return the number of memory maps of this process; Linux allows some 65,000."""
    with suppress(OSError), open("/proc/self/maps") as maps:
        return sum(1 for _ in maps)
    return 0
