"""The agents of figures 3 and 4 in more runs than the paper's five, and with ten updates after each episode.

    python benchmarks/cart_pole.py            25 runs with one update, 10 runs with ten
    python benchmarks/cart_pole.py --quick    two short runs of each

Runs have other random seeds than `anchored reproduce`. The claims are those of figures 3 and 4, tested with the numbers
of these runs (`cart_pole_claims`). Agents that are already stored, with the same settings, are not run again.
"""

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import numpy as np
import reporting
from reporting import Json

from anchored.paper.findings import WORDS, mean_of

if TYPE_CHECKING:
    from anchored.paper.experiments.cart_pole_statistics import Learning
    from anchored.paper.experiments.cart_pole_study import Study

COMMAND = "python benchmarks/cart_pole.py"
AGENTS = ("single", "thompson")  # names of variants of the study: the agents of figures 3 and 4
N_RUNS = {1: 25, 10: 10}  # number of runs, by the number of updates after each episode
SEED = 1  # random seed of the runs


def main(arguments: Sequence[str] | None = None) -> Json:
    """Run the agents that are not stored yet, with the command line `arguments`; return the stored result."""
    parser = reporting.parser_of(__doc__)
    options = parser.parse_args(arguments)
    settings = json.loads(json.dumps(asdict(study_of(options))))
    path = options.out or (None if options.quick else reporting.RESULTS / "cart_pole.json")
    known = reporting.stored_rows(path, settings)
    return reporting.run_and_store("cart_pole", options, settings, run(options, known), tables)


def study_of(options: argparse.Namespace) -> "Study":
    """Return the study of the command line's `options`, without the numbers of runs and updates."""
    from anchored.paper.experiments import cart_pole_figures

    return replace(cart_pole_figures.QUICK if options.quick else cart_pole_figures.FULL, seed=SEED)


def run(options: argparse.Namespace, known: Sequence[Json]) -> Iterator[Json]:
    """Yield the rows so far, one for each agent and number of updates, starting with the stored ones, `known`."""
    from anchored.paper.experiments import cart_pole_study
    from anchored.paper.experiments.cart_pole_statistics import learning_of

    rows = list(known)
    yield {"rows": rows}
    for n_updates, n_runs in N_RUNS.items():
        study = replace(study_of(options), n_updates=n_updates, n_runs=2 if options.quick else n_runs)
        for name in AGENTS:
            if (name, n_updates) in [(row["agent"], row["updates"]) for row in rows]:
                continue
            started = time.perf_counter()
            learning = learning_of(study, cart_pole_study.run(study, [name])[name])
            seconds = time.perf_counter() - started
            rows.append({"agent": name, "updates": n_updates, "seconds": seconds, **as_json(learning)})
            reporting.note(f"{name}, {n_updates} updates: {mean_of(learning.total / 1000)} k in {seconds:.0f} s")
            yield {"rows": rows}


def as_json(learning: "Learning") -> Json:
    """Return `learning` as a JSON object."""
    content = learning._asdict() | {"drift": learning.drift._asdict()}
    return json.loads(json.dumps(content, default=lambda array: np.asarray(array, float).round(4).tolist()))


def from_json(row: Json) -> "Learning":
    """Return the statistics that are stored in a row."""
    from anchored.paper.experiments.cart_pole_statistics import Drift, Learning

    drift = Drift(**{name: np.array(values) for name, values in row["drift"].items()})
    return Learning(np.array(row["curves"]), np.array(row["total"]), np.array(row["greedy_reward"]), drift)


# Tables


def tables(stored: Json) -> dict[str, str]:
    """Return the table of the claims about figures 3 and 4, for each number of updates, with the runs in `stored`."""
    from anchored.paper.experiments.cart_pole_claims import claims_of_epsilon_greedy, claims_of_thompson
    from anchored.paper.experiments.cart_pole_study import Study

    study = Study(**stored["settings"])
    rows = []
    for n_updates in N_RUNS:
        by_agent = {row["agent"]: from_json(row) for row in stored["rows"] if row["updates"] == n_updates}
        if set(by_agent) != set(AGENTS):
            continue
        single, thompson = (by_agent[name] for name in AGENTS)
        figures = {
            "Figure 3": claims_of_epsilon_greedy(study, single, thompson),
            "Figure 4": claims_of_thompson(study, single, thompson),
        }
        rows += [
            (f"{n_updates}", f"{len(single.total)}", figure, claim.text, WORDS[claim.verdict], claim.measured)
            for figure, claims in figures.items()
            for claim in claims
        ]
    header = ("updates per episode", "runs", "", "the paper", "here", "measured")
    return {"cart_pole": reporting.table(stored, COMMAND, header, rows)}


if __name__ == "__main__":
    main()
