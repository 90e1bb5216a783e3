"""What a trial is, and the processes that judge its cases: watched for time, memory and crashes."""

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

HELD = ""
AT_ONCE = 100  # cases made ahead of those that judge them
ADDRESSES = 8 * 2**30  # bytes that a process may reserve beyond those it starts with: far less than would hurt others
START_SECONDS = 300.0
PROCESSES = multiprocessing.get_context("forkserver")  # forks of a process that has imported all, and computed nothing
PROCESSES.set_forkserver_preload(
    [
        "anchored.cli",
        "anchored.rl",
        "anchored.tables.prediction",
        "anchored.tables.report",
        "anchored.paper.reproduction",
    ]
)


class Case(NamedTuple):
    """One fault: in words, and as its judge takes it."""

    name: str
    content: Any


class Outcome(NamedTuple):
    """What became of a case, and what it took."""

    case: str
    failure: str  # HELD, or what went wrong
    seconds: float = 0.0
    grown: float = 0.0  # bytes of memory at its peak, above those before
    resident: float = 0.0  # bytes of memory of the whole process at its peak
    maps: float = 0.0  # memory maps of the process afterwards


Judge = Callable[[Any], str]  # from the content of a case to HELD or what went wrong


def nothing(folder: Path) -> None:
    """For trials that need nothing made beforehand."""


@dataclass(frozen=True)
class Trial:
    """One kind of fault. A case holds, or fails with a reason; to crash, to hang or to take much memory is to fail."""

    name: str
    promise: str  # what holds in every case
    size: int
    quick: int  # cases of a short run
    cases: Callable[[int, Path], Iterator[Case]]  # from a seed, always the same; given the shared folder, too
    start: Callable[[Path, Path], Judge]  # in each process: what judges a case, given the shared folder and one to use
    prepare: Callable[[Path], None] = nothing  # makes what all cases need in the shared folder, once
    seconds: float = 5.0  # allowed for a case
    megabytes: float = 500.0  # allowed for a case
    processes: int = 2

    def outcomes(self, folder: Path, seed: int, first: int, last: int) -> Iterator[Outcome]:
        """What becomes of the cases from `first` to before `last`, in their order."""
        self.prepare(folder)
        idle: SimpleQueue[Process] = SimpleQueue()
        everyone = [Process(self, folder) for _ in range(min(self.processes, last - first))]
        for process in everyone:
            idle.put(process)

        def judged(case: Case) -> Outcome:
            process = idle.get()
            try:
                return process.judge(case)
            finally:
                idle.put(process)

        cases = islice(self.cases(seed, folder), first, last)
        threads = ThreadPoolExecutor(len(everyone))
        try:
            while some := list(islice(cases, AT_ONCE)):
                yield from threads.map(judged, some)
        finally:
            threads.shutdown(wait=False, cancel_futures=True)  # an interrupt does not wait for cases under way
            for process in everyone:
                process.end()


class Process:
    """Judges case after case in one process; where that crashes or hangs, in a new one from there on."""

    def __init__(self, trial: Trial, folder: Path):
        self.trial, self.folder = trial, folder
        self.process: Any = None

    def judge(self, case: Case) -> Outcome:
        """Its outcome, within the time allowed."""
        if self.process is None:
            self._begin()
        began = time.monotonic()
        try:
            self.connection.send(case)
            if self.connection.poll(1.2 * self.trial.seconds):  # it measures its time itself; this is if it hangs
                return self.connection.recv()
            failure = f"hangs: no answer after {self.trial.seconds:g} s"
        except (EOFError, OSError):
            self.process.join()
            failure = f"crashed: {_ending(self.process.exitcode)}"
        self.end()
        return Outcome(case.name, failure, time.monotonic() - began)

    def end(self) -> None:
        """End the process, if there is one, and all that it has started."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.join()
            self.connection.close()
            self.process = None

    def _begin(self) -> None:
        self.connection, theirs = PROCESSES.Pipe()
        self.process = PROCESSES.Process(target=_serve, args=(theirs, self.trial, self.folder))
        self.process.start()
        theirs.close()
        try:
            ready = self.connection.poll(START_SECONDS) and self.connection.recv()
        except EOFError:
            ready = False
        if not ready:
            raise RuntimeError(f"{self.trial.name}: the process that judges cases does not start")


def _serve(connection: Any, trial: Trial, folder: Path) -> None:
    """Judge what comes until the other side is gone."""
    os.setsid()  # a group of its own, that can be killed whole
    warnings.simplefilter("ignore")  # fits are cut short on purpose
    judge = trial.start(folder, Path(mkdtemp(dir=folder)))
    with suppress(OSError):  # not Linux
        reserved = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (reserved + ADDRESSES, resource.RLIM_INFINITY))
    connection.send(True)
    with suppress(EOFError, BrokenPipeError):
        while True:
            connection.send(_watched(trial, judge, connection.recv()))


def _watched(trial: Trial, judge: Judge, case: Case) -> Outcome:
    """One case, judged, and measured."""
    before, began = reporting.memory_now(), time.perf_counter()
    try:
        failure = judge(case.content)
    except Exception as error:  # whatever its judge did not expect
        failure = in_words(error)
    seconds = time.perf_counter() - began
    peak = reporting.memory_peak()
    if not failure and seconds > trial.seconds:
        failure = f"took {seconds:.1f} s"
    if not failure and peak - before > trial.megabytes * 1e6:
        failure = f"took {(peak - before) / 1e6:.0f} MB"
    return Outcome(case.name, failure, seconds, peak - before, peak, n_maps())


def in_words(error: BaseException) -> str:
    """An error in one short line, and where it was raised."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = "" if place is None else f" ({Path(place.tb_frame.f_code.co_filename).name}, line {place.tb_lineno})"
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}{where}"


def _ending(code: int | None) -> str:
    return signal.Signals(-code).name if code is not None and code < 0 else f"exit code {code}"


def n_maps() -> int:
    """Pieces of memory that this process maps; a system allows some 65,000."""
    with suppress(OSError), open("/proc/self/maps") as maps:
        return sum(1 for _ in maps)
    return 0
