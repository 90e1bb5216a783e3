"""A trial's outcomes as one row of results, which grows as they come."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import reporting
from reporting import Json, number

from anchored.paper.findings import markdown
from faults.trial import Outcome, Trial

Row = Json  # counts, what cases took at most, and failures in words
EVERY = 10.0  # seconds between rows that are stored
MOST_FAILURES = 50  # told in words


def stored(path: Path | None, settings: Json) -> dict[str, Row]:
    """Rows by trial, of an earlier run with these settings."""
    if path is None or not path.exists():
        return {}
    found = json.loads(path.read_text())
    return {row["trial"]: row for row in found["rows"]} if found["settings"] == settings else {}


def run(trial: Trial, folder: Path, size: int, seed: int, known: Row | None = None) -> Iterator[Row]:
    """The trial's row now and then, and at its end; it goes on where `known` ends.

    Trials in a single process are about what becomes of that process, and always begin anew.
    """
    row = known if known is not None and (trial.processes > 1 or known["tried"] >= size) else new_row(trial)
    if row["tried"] >= size:
        yield row
        return
    before, began = row["seconds"], time.monotonic()
    told = began
    for outcome in trial.outcomes(folder, seed, row["tried"], size):
        row = extended(row, outcome) | {"seconds": before + time.monotonic() - began}
        if time.monotonic() > told + EVERY:
            told = time.monotonic()
            yield row
    yield row


def new_row(trial: Trial) -> Row:
    """Nothing tried yet."""
    counts = dict.fromkeys(("tried", "held", "failed"), 0)
    measured = dict.fromkeys(("seconds", "longest", "grown", "resident", "maps"), 0.0)
    return {"trial": trial.name, "promise": trial.promise, **counts, **measured, "failures": []}


def extended(row: Row, outcome: Outcome) -> Row:
    """With one outcome more: counts, and the most that any case took."""
    failures = [f"{outcome.case}: {outcome.failure}"] if outcome.failure else []
    return row | {
        "tried": row["tried"] + 1,
        "held": row["held"] + (not failures),
        "failed": row["failed"] + len(failures),
        "longest": max(row["longest"], outcome.seconds),
        "grown": max(row["grown"], outcome.grown),
        "resident": max(row["resident"], outcome.resident),
        "maps": max(row["maps"], outcome.maps),
        "failures": [*row["failures"], *failures][:MOST_FAILURES],
    }


def tables(stored: Json) -> dict[str, str]:
    """What was tried, and held."""
    counts = ("tried", "held", "failed", "seconds")
    rows = [(row["trial"], row["promise"], *(number(row[name], 0) for name in counts)) for row in stored["rows"]]
    command = "python benchmarks/faults --quick" if stored["settings"]["quick"] else "make faults"
    made = markdown(("trial", "what holds in each case", *counts), rows)
    return {"faults": f"{made}\n{most(stored)}\n{reporting.source(stored, command)}"}


def most(stored: Json) -> str:
    """What cases took at most, in a sentence or two."""
    rows = {row["trial"]: row for row in stored["rows"]}
    told = []
    files = [rows[name] for name in ("damaged", "forged") if name in rows]
    if files:
        slowest, largest = (max(row[name] for row in files) for name in ("longest", "grown"))
        told.append(f"No file took more than {slowest:.1f} s or {largest / 1e6:,.0f} MB to be refused or read.")
    if "shapes" in rows:
        row = rows["shapes"]
        told.append(
            f"{row['tried']} fits of different shapes brought one process to {row['maps']:,.0f} memory maps and "
            f"{row['resident'] / 1e6:,.0f} MB at most."
        )
    return " ".join(told)
