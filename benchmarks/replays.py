"""How replay limits deep seas: `QEnsembleAgent(env)` with other replay or larger batches, seeds from 100.

    python benchmarks/replays.py                         the seas of sizes 10 and 20; half an hour on a core
    python benchmarks/replays.py --sizes 50 100          hours: the networks have a row of weights for each state
    python benchmarks/replays.py --variants default rare --seeds 10
    python benchmarks/replays.py --quick

Every run is stored when it ends, and is not run again, so the command can be stopped and repeated.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any, TypedDict

import numpy as np
import reporting
import rl_agents
from reporting import Json, number

BUDGETS = {4: 100, 10: 500, 20: 1000, 30: 2500, 50: 2500, 100: 8000}  # number of episodes by size
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "rare": {"replay": "rare"},
    "batches of 512": {"batch_size": 512},
}
FIRST_SEED = 100


class Row(TypedDict):
    """One seed of one variant in a sea of one size."""

    variant: str
    size: int
    seed: int
    solved: int | None  # number of episodes until the sea was solved; None if it was not
    seconds: float


def main(arguments: Sequence[str] | None = None) -> Json:
    """Run what the command line, `arguments`, selects and is not stored yet; return the stored result."""
    parser = reporting.parser_of(__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", choices=BUDGETS, default=[10, 20], help="default: 10 and 20")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS), help="default: all")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds; default: 3")
    parser.set_defaults(smaller={})
    options = parser.parse_args(arguments)
    if options.quick:
        smaller = {"hidden_layer_sizes": (8,), "n_estimators": 2, "batch_size": 8, "buffer_size": 400}
        vars(options).update({"sizes": [4], "variants": ["default", "rare"], "seeds": 1, "smaller": smaller})
    settings = {"defaults": rl_agents.default_arguments(), "variants": VARIANTS}
    path = options.out or (None if options.quick else reporting.RESULTS / "replays.json")
    return reporting.run_and_store(
        "replays", options, settings, run(options, reporting.stored_rows(path, settings)), tables
    )


def run(options: argparse.Namespace, known: Sequence[Row]) -> Iterator[Json]:
    """Yield the rows so far, in the order of the table; rows in `known` are not run again."""
    rows = list(known)
    yield {"rows": rows}
    done = {(row["variant"], row["size"], row["seed"]) for row in rows}
    tasks = [
        (variant, size, FIRST_SEED + i)
        for size in options.sizes
        for i in range(options.seeds)
        for variant in options.variants
    ]
    for task in tasks:
        if task not in done:
            rows.append(solve(*task, options.smaller))
            reporting.note(", ".join(f"{name} {value}" for name, value in rows[-1].items()))
            yield {"rows": sorted(rows, key=lambda row: (row["size"], list(VARIANTS).index(row["variant"])))}


def solve(variant: str, size: int, seed: int, smaller: dict[str, Any]) -> Row:
    """Train a `variant` of the default agent in the sea of `size` until it is solved, or its budget is spent."""
    from anchored.paper.experiments.deep_sea_study import TREASURE, solved_at
    from anchored.rl import QEnsembleAgent
    from anchored.rl.environments import DeepSea

    started, solved = time.perf_counter(), None
    agent = QEnsembleAgent(DeepSea(size), seed=seed, **{**VARIANTS[variant], **smaller})
    while solved is None and agent.n_episodes < BUDGETS[size]:
        agent.learn(total_episodes=min(50, BUDGETS[size] - agent.n_episodes))
        solved = solved_at(np.array(agent.history.returns) > TREASURE)
    seconds = time.perf_counter() - started
    return {"variant": variant, "size": size, "seed": seed, "solved": solved, "seconds": seconds}


def tables(stored: Json) -> dict[str, str]:
    """Return the table of variants and sizes: the median episodes until solved, and in brackets those of each seed."""
    sizes = sorted({row["size"] for row in stored["rows"]})
    rows = []
    for variant in VARIANTS:
        cells = [_cell([row for row in stored["rows"] if (row["variant"], row["size"]) == (variant, n)]) for n in sizes]
        if any(cells):
            rows.append((variant, *cells))
    header = ("variant", *(f"N = {size}, within {number(BUDGETS[size], 0)}" for size in sizes))
    return {"replays": reporting.table(stored, "python benchmarks/replays.py", header, rows)}


def _cell(rows: Sequence[Row]) -> str:
    """Return the episodes until solved of each seed, and their median if most seeds solved the sea, as text."""
    solved = [row["solved"] for row in rows if row["solved"] is not None]
    each = ", ".join("not solved" if row["solved"] is None else number(row["solved"], 0) for row in rows)
    middle = f"{number(median(solved), 0)} " if 2 * len(solved) > len(rows) else ""
    return f"{middle}({each})" if rows else ""


if __name__ == "__main__":
    main()
