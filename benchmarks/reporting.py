"""Functions that all benchmarks share: they run a benchmark, store its results as JSON, and format tables.

A benchmark is a script with three functions. `run(options)` yields its results so far as JSON objects. `tables(stored)`
makes Markdown tables, by name, from a stored result; the documents show the same tables (`docs/stored_results.py`).
`main` calls `run_and_store`. Benchmarks import the parts of the library that they measure inside functions, so that
tables can be made without them. `--quick` selects a small version that takes seconds, whose results are stored only if
--out is given.
"""

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, TypedDict

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from anchored.paper.findings import markdown
from anchored.paper.machine import Machine, describe, machine
from anchored.storage import atomic

RESULTS = Path(__file__).resolve().parent / "results"
STATUS = Path("/proc/self/status")  # on Linux: the state of this process

Json = dict[str, Any]  # a JSON object with any content
Scores = Mapping[str, float]  # the scores of one split, by name


class Measured(TypedDict):
    """A measured number and its goal."""

    what: str  # description of what was measured
    value: float
    unit: str
    goal: float | None  # None if there is no goal
    at_least: bool  # whether the goal is a lower bound; otherwise it is an upper bound
    met: bool | None  # whether the goal is met


# Running and storing


def parser_of(doc: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options that all benchmarks have; `doc` is the docstring of the script."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="run a small version that takes seconds; stored only if --out is given"
    )
    parser.add_argument(
        "--out", type=Path, help="JSON file to write; default: one in benchmarks/results, or none with --quick"
    )
    return parser


def run_and_store(
    name: str, options: argparse.Namespace, settings: Json, results: Iterator[Json], tables: Callable[[Json], Json]
) -> Json:
    """Run a benchmark, store its results each time there are more, and print the final tables.

    Parameters
    ----------
    name
        Name of the benchmark and of its default file.
    options
        Parsed options, with `quick` and `out`.
    settings
        Settings to store with the results.
    results
        Iterator over the results so far; each item contains those of the item before.
    tables
        Function that makes the tables, by name, from a stored result.

    Returns
    -------
    dict
        The stored result.
    """
    path = options.out or (None if options.quick else RESULTS / f"{name}.json")
    print(f"{describe(machine())}\n", flush=True)
    stored: Json = {}
    if options.quick:
        warnings.simplefilter("ignore", ConvergenceWarning)  # training is too short on purpose
    for results_so_far in results:
        written = datetime.now(UTC).isoformat(timespec="seconds")
        stored = {"written": written, "machine": machine(), "settings": settings, **results_so_far}
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic.write_text(path, json.dumps(stored, indent=1) + "\n")
    print(*tables(stored).values(), sep="\n\n", flush=True)
    return stored


def stored_rows(path: Path | None, settings: Json) -> list[Json]:
    """Return the rows stored in the file `path` by an earlier run with these `settings`; none if there is no file."""
    if path is None or not path.exists():
        return []
    stored = json.loads(path.read_text())
    return stored["rows"] if stored["settings"] == settings else []


def note(text: str) -> None:
    """Print `text`, the progress of a long run, to standard error."""
    print(text, file=sys.stderr, flush=True)


def measured(what: str, value: float, unit: str, goal: float | None = None, at_least: bool = False) -> Measured:
    """Return a `Measured`, whose fields are the arguments and whether the `goal` is met."""
    met = None if goal is None else bool(value >= goal if at_least else value <= goal)
    return {"what": what, "value": float(value), "unit": unit, "goal": goal, "at_least": at_least, "met": met}


def seconds_of(work: Callable[[], object]) -> float:
    """Return the seconds that a call of `work` takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def interleaved(functions: dict[str, Callable[[], float]], repeats: int) -> dict[str, float]:
    """Call each of `functions`, in turn, `repeats` times, and return the median result of each by name.

    Taking turns spreads the effect of other programs on the machine over all functions.
    """
    rounds = [{name: function() for name, function in functions.items()} for _ in range(repeats)]
    return {name: float(np.median([by_name[name] for by_name in rounds])) for name in functions}


def memory_now() -> float:
    """Return the memory in use, in bytes, and reset the peak of `memory_peak` if the system allows it."""
    if not STATUS.exists():
        return memory_peak()
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _status_bytes("VmRSS")


def memory_peak() -> float:
    """Return the peak memory use, in bytes, since the process started or `memory_now` reset it.

    On Linux it is not taken from ru_maxrss, which a new process inherits from its parent.
    """
    if STATUS.exists():
        return _status_bytes("VmHWM")
    import resource  # Windows does not have it

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _status_bytes(name: str) -> float:
    """Return an entry of /proc/self/status in bytes."""
    lines = STATUS.read_text().splitlines()
    return next(1024 * float(line.split()[1]) for line in lines if line.startswith(name))


# Tables


def stored_result(name: str) -> Json:
    """Return the last stored result of the benchmark `name`."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def table(stored: Json, command: str, header: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table with `header` and `rows`, the `command` that makes it, and the machine of `stored`."""
    return markdown(list(header), list(rows)) + source(stored, command)


def measured_table(stored: Json, command: str, lines: Iterable[Measured]) -> str:
    """Return a table of the measured numbers `lines` with their goals; `stored` and `command` are as in `table`."""
    return table(stored, command, ("what", "measured", "goal"), (_cells(line) for line in lines))


def _cells(line: Measured) -> tuple[str, str, str]:
    """Return the cells of a row of `measured_table`."""
    goal = ""
    if line["goal"] is not None:
        sign, outcome = "≥" if line["at_least"] else "≤", "met" if line["met"] else "missed"
        goal = f"{sign} {line['goal']:g} {line['unit']}, {outcome}"
    value = f"{line['value']:,.0f}" if abs(line["value"]) >= 100 else f"{line['value']:.3g}"
    return line["what"], f"{value} {line['unit']}", goal


def source(stored: Json, command: str) -> str:
    """Return a line with the `command` that reproduces the result `stored`, its date and its machine."""
    return f"\n*`{command}`; last run on {stored['written'][:10]}: {place(stored['machine'])}.*"


def place(hardware: Machine) -> str:
    """Return a short description of a machine."""
    device = "" if hardware["device"] == "cpu" else f", {hardware['device']}"
    return f"{hardware['cpu']}, {hardware['cores']} cores{device}, JAX {hardware['versions']['jax']}"


def number(value: float, digits: int) -> str:
    """Return `value` as text, with `digits` decimals, commas between thousands, and − as its minus sign."""
    return f"{value:,.{digits}f}".replace("-", "−")


def average(splits: Sequence[Scores], score: str) -> float:
    """Return the mean of the score called `score` over `splits`."""
    return fmean(split[score] for split in splits)


def standard_error(splits: Sequence[Scores], score: str) -> float:
    """Return the standard error of the mean of a score over `splits`; NaN for a single split."""
    values = [split[score] for split in splits]
    return stdev(values) / len(values) ** 0.5 if len(values) > 1 else float("nan")


def mean_and_error(splits: Sequence[Scores], score: str, digits: int) -> str:
    """Return mean ± standard error of a score over `splits` as text, with `digits` decimals."""
    return f"{number(average(splits, score), digits)} ± {standard_error(splits, score):.{digits}f}"


def mean_and_error_in_brackets(splits: Sequence[Scores], score: str) -> str:
    """Return mean (standard error) of a score over `splits` as text, in the format of the papers."""
    return f"{number(average(splits, score), 2)} ({standard_error(splits, score):.2f})"
