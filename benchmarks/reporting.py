"""What every benchmark shares: run, store the numbers as JSON, and make tables from what is stored.

A benchmark is a script with `run(options)`, which yields its results so far, as JSON has them; `tables(stored)`, which
makes Markdown tables from a stored result, by name; and `main`, which calls `run_and_store`. The documents have the
same tables (`docs/stored_results.py`). The library is imported by the functions that measure, so that tables are made
without it. `--quick` is a size that ends in seconds, and is stored only where --out says.
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
from anchored.paper.machine import describe, machine
from anchored.storage import atomic

RESULTS = Path(__file__).resolve().parent / "results"
STATUS = Path("/proc/self/status")

Json = dict[str, Any]  # whatever a benchmark stores
Scores = Mapping[str, float]  # of one split, by name


class Measured(TypedDict):
    """One number, and the goal it should stay under, or reach."""

    what: str
    value: float
    unit: str
    goal: float | None
    at_least: bool
    met: bool | None


# Running and storing


def parser_of(doc: str | None) -> argparse.ArgumentParser:
    """A command line with what all benchmarks take; `doc` is the script's docstring."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small size that ends in seconds; not stored")
    parser.add_argument("--out", type=Path, help="the JSON file to store; default: benchmarks/results, without --quick")
    return parser


def run_and_store(
    name: str, options: argparse.Namespace, settings: Json, results: Iterator[Json], tables: Callable[[Json], Json]
) -> Json:
    """Store each of `results`, which are those so far, and print the last one's tables; gives what was stored."""
    path = options.out or (None if options.quick else RESULTS / f"{name}.json")
    print(f"{describe(machine())}\n", flush=True)
    stored: Json = {}
    if options.quick:
        warnings.simplefilter("ignore", ConvergenceWarning)  # too short on purpose
    for found in results:
        written = datetime.now(UTC).isoformat(timespec="seconds")
        stored = {"written": written, "machine": machine(), "settings": settings, **found}
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic.write_text(path, json.dumps(stored, indent=1) + "\n")
    print(*tables(stored).values(), sep="\n\n", flush=True)
    return stored


def note(text: str) -> None:
    """Tell how a long run goes on."""
    print(text, file=sys.stderr, flush=True)


def measured(what: str, value: float, unit: str, goal: float | None = None, at_least: bool = False) -> Measured:
    """One number in its unit, and whether it meets its goal."""
    met = None if goal is None else bool(value >= goal if at_least else value <= goal)
    return {"what": what, "value": float(value), "unit": unit, "goal": goal, "at_least": at_least, "met": met}


def seconds_of(work: Callable[[], object]) -> float:
    """How long it takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def interleaved(works: dict[str, Callable[[], float]], repeats: int) -> dict[str, float]:
    """The median of what each gives, taken in turns, so that a busy moment hits all alike."""
    found = [{name: work() for name, work in works.items()} for _ in range(repeats)]
    return {name: float(np.median([one[name] for one in found])) for name in works}


def memory_now() -> float:
    """Bytes in use. The peak is counted anew from here, where the system allows it."""
    if not STATUS.exists():
        return memory_peak()
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _status_bytes("VmRSS")


def memory_peak() -> float:
    """Most bytes in use so far; not ru_maxrss on Linux, where a new process inherits its parent's."""
    if STATUS.exists():
        return _status_bytes("VmHWM")
    import resource  # Windows does not have it

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _status_bytes(name: str) -> float:
    lines = STATUS.read_text().splitlines()
    return next(1024 * float(line.split()[1]) for line in lines if line.startswith(name))


# Tables


def stored_result(name: str) -> Json:
    """What the benchmark of that name has stored last."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def table(stored: Json, command: str, header: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table, the command that makes it again, and where and when it ran."""
    return markdown(list(header), list(rows)) + source(stored, command)


def measured_table(stored: Json, command: str, lines: Iterable[Measured]) -> str:
    """Numbers with their goals as a table."""
    return table(stored, command, ("what", "measured", "goal"), (_cells(line) for line in lines))


def _cells(line: Measured) -> tuple[str, str, str]:
    goal = ""
    if line["goal"] is not None:
        sign, outcome = "≥" if line["at_least"] else "≤", "met" if line["met"] else "missed"
        goal = f"{sign} {line['goal']:g} {line['unit']}, {outcome}"
    value = f"{line['value']:,.0f}" if abs(line["value"]) >= 100 else f"{line['value']:.3g}"
    return line["what"], f"{value} {line['unit']}", goal


def source(stored: Json, command: str) -> str:
    """The command that makes a result again, and where and when it ran."""
    on = stored["machine"]
    device = "" if on["device"] == "cpu" else f", {on['device']}"
    where = f"{on['cpu']}, {on['cores']} cores{device}, JAX {on['versions']['jax']}"
    return f"\n*`{command}`; last run on {stored['written'][:10]}: {where}.*"


def number(value: float, digits: int) -> str:
    """With so many digits after the point and a true minus sign."""
    return f"{value:,.{digits}f}".replace("-", "−")


def average(splits: Sequence[Scores], score: str) -> float:
    """The mean of a score over splits."""
    return fmean(split[score] for split in splits)


def standard_error(splits: Sequence[Scores], score: str) -> float:
    """Of the mean over splits; NaN with a single one."""
    values = [split[score] for split in splits]
    return stdev(values) / len(values) ** 0.5 if len(values) > 1 else float("nan")


def mean_and_error(splits: Sequence[Scores], score: str, digits: int) -> str:
    """Mean ± standard error over splits."""
    return f"{number(average(splits, score), digits)} ± {standard_error(splits, score):.{digits}f}"


def mean_and_error_in_brackets(splits: Sequence[Scores], score: str) -> str:
    """Mean (standard error) over splits, as the papers print them."""
    return f"{number(average(splits, score), 2)} ({standard_error(splits, score):.2f})"
