"""The results of a trial: one row, which is updated with the outcome of each case."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import reporting
from reporting import Json, number

from anchored.paper.findings import markdown
from faults.trial import Outcome, Trial

Row = Json  # counts of cases, the largest time and memory of a case, and descriptions of failures
STORE_INTERVAL = 10.0  # seconds after which a row is stored again
MAX_DESCRIBED = 50  # number of failures whose descriptions are stored


def stored(path: Path | None, settings: Json) -> dict[str, Row]:
    """Return the rows, by trial, that an earlier run with these `settings` stored in the file `path`."""
    if path is None or not path.exists():
        return {}
    content = json.loads(path.read_text())
    return {row["trial"]: row for row in content["rows"]} if content["settings"] == settings else {}


def run(trial: Trial, folder: Path, size: int, seed: int, known: Row | None = None) -> Iterator[Row]:
    """Run a trial, and yield its row from time to time and at the end.

    Parameters
    ----------
    trial
        The trial.
    folder
        Folder that all trials share.
    size
        Number of cases.
    seed
        Random seed of the cases.
    known
        Row of an earlier run, which the trial continues; None to start from the first case. A trial with a single
        process tests how the state of that process develops, so it always starts from the first case.
    """
    row = known if known is not None and (trial.processes > 1 or known["tried"] >= size) else new_row(trial)
    if row["tried"] >= size:
        yield row
        return
    before, started = row["seconds"], time.monotonic()
    last_stored = started
    for outcome in trial.outcomes(folder, seed, row["tried"], size):
        row = extended(row, outcome) | {"seconds": before + time.monotonic() - started}
        if time.monotonic() > last_stored + STORE_INTERVAL:
            last_stored = time.monotonic()
            yield row
    yield row


def new_row(trial: Trial) -> Row:
    """Return the row of a trial without any outcome."""
    counts = dict.fromkeys(("tried", "held", "failed"), 0)
    measured = dict.fromkeys(("seconds", "longest", "grown", "resident", "maps"), 0.0)
    return {"trial": trial.name, "promise": trial.promise, **counts, **measured, "failures": []}


def extended(row: Row, outcome: Outcome) -> Row:
    """Return `row` with one more `outcome` counted, and with its time and memory if they are the largest so far."""
    failures = [f"{outcome.case}: {outcome.failure}"] if outcome.failure else []
    return row | {
        "tried": row["tried"] + 1,
        "held": row["held"] + (not failures),
        "failed": row["failed"] + len(failures),
        "longest": max(row["longest"], outcome.seconds),
        "grown": max(row["grown"], outcome.grown),
        "resident": max(row["resident"], outcome.resident),
        "maps": max(row["maps"], outcome.maps),
        "failures": [*row["failures"], *failures][:MAX_DESCRIBED],
    }


def tables(stored: Json) -> dict[str, str]:
    """Return the table of the numbers of cases in `stored` that were tried, that held and that failed."""
    counts = ("tried", "held", "failed", "seconds")
    rows = [(row["trial"], row["promise"], *(number(row[name], 0) for name in counts)) for row in stored["rows"]]
    command = "python benchmarks/faults --quick" if stored["settings"]["quick"] else "make faults"
    made = markdown(("trial", "what must hold in each case", *counts), rows)
    return {"faults": f"{made}\n{extremes(stored)}\n{reporting.source(stored, command)}"}


def extremes(stored: Json) -> str:
    """Return sentences about the largest time and memory of a case in `stored`."""
    rows = {row["trial"]: row for row in stored["rows"]}
    sentences = []
    files = [rows[name] for name in ("damaged", "forged") if name in rows]
    if files:
        slowest, largest = (max(row[name] for row in files) for name in ("longest", "grown"))
        sentences.append(f"Reading or refusing a file took at most {slowest:.1f} s and {largest / 1e6:,.0f} MB.")
    if "shapes" in rows:
        row = rows["shapes"]
        sentences.append(
            f"One process, which did {row['tried']} fits to tables of different shapes, held at most "
            f"{row['maps']:,.0f} memory maps and {row['resident'] / 1e6:,.0f} MB."
        )
    return " ".join(sentences)
