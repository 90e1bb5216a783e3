"""What every benchmark shares: the machine it ran on, times and memory, Markdown tables and results as JSON."""

import json
import os
import platform
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from anchored.storage import atomic

RESULTS = Path(__file__).resolve().parent / "results"
PACKAGES = ("anchored", "jax", "jaxlib", "optax", "numpy", "scipy", "scikit-learn", "torch")
STATUS = Path("/proc/self/status")

Measured = list[dict[str, Any]]  # each as made by `measured`


def machine() -> dict[str, Any]:
    """The processor, how many cores this process may use, the device JAX computes on, and versions."""
    import jax

    device = jax.devices()[0]
    return {
        "cpu": _cpu_model(),
        "cores": n_cores(),
        "device": device.platform if device.platform == "cpu" else device.device_kind,
        "python": platform.python_version(),
        "versions": {name: found for name in PACKAGES if (found := _version(name))},
    }


def n_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def describe(found: dict[str, Any]) -> str:
    """The machine in one line."""
    versions = ", ".join(f"{name} {number}" for name, number in found["versions"].items())
    return f"{found['cpu']}, {found['cores']} cores, JAX on {found['device']}; Python {found['python']}, {versions}"


def write_json(path: Path, settings: dict[str, Any], results: dict[str, Any]) -> None:
    """Results with what is needed to make them again, written whole or not at all."""
    whole = {
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "settings": settings,
        **results,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic.write_text(path, json.dumps(whole, indent=1) + "\n")


class Table:
    """A Markdown table, printed row by row as long runs go on."""

    def __init__(self, *columns: str):
        self.row(*columns)
        self.row(*["---"] * len(columns))

    def row(self, *cells: str) -> None:
        """One row, at once."""
        print("| " + " | ".join(cells) + " |", flush=True)


def measured(what: str, value: float, unit: str, goal: float | None = None, at_least: bool = False) -> dict[str, Any]:
    """One number, and the goal it should stay under, or reach."""
    met = None if goal is None else bool(value >= goal if at_least else value <= goal)
    return {"what": what, "value": float(value), "unit": unit, "goal": goal, "at_least": at_least, "met": met}


def cells(line: dict[str, Any]) -> tuple[str, str, str]:
    """A measured number as a row of a table: what, how much, and the goal."""
    goal = ""
    if line["goal"] is not None:
        sign, verdict = "≥" if line["at_least"] else "≤", "met" if line["met"] else "missed"
        goal = f"{sign} {line['goal']:g} {line['unit']} {verdict}"
    value = f"{line['value']:,.0f}" if abs(line["value"]) >= 100 else f"{line['value']:.3g}"
    return line["what"], f"{value} {line['unit']}", goal


def print_measured(lines: Measured) -> None:
    """All of them as a table."""
    table = Table("what", "measured", "goal")
    for line in lines:
        table.row(*cells(line))


def seconds_of(work: Callable[[], Any]) -> float:
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


def _cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
