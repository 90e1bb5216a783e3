"""A million rows with default settings: seconds and peak memory of a fit, and of predictions, with goals.

    python benchmarks/million_rows.py            a fit of 1,000,000 × 10, and predictions of 1,000,000 × 13
    python benchmarks/million_rows.py --quick    4,000 rows, short training

Each part runs in a process of its own, whose peak memory is compared with the memory in use before the call. The model
that predicts was fitted to 500 rows.
"""

import argparse
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import reporting
import uci_sets
from reporting import Json, Measured, measured, seconds_of

COMMAND = "python benchmarks/million_rows.py"
N_ROWS = {False: 1_000_000, True: 4_000}  # by whether the run is quick
N_TRAINING_ROWS = 500  # of the model that predicts
N_COLUMNS_FITTED, N_COLUMNS_PREDICTED = 10, 13


def rows(n_rows: int, n_columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Return random inputs, (n_rows, n_columns), and a smooth target with noise, (n_rows,)."""
    random = np.random.default_rng(0)
    X = random.standard_normal((n_rows, n_columns))
    return X, np.sin(X[:, 0]) + 0.5 * X[:, 1] + X[:, 2] * X[:, 3] + 0.1 * random.standard_normal(n_rows)


def fit(quick: bool) -> None:
    """Fit, and print the seconds and the megabytes by which the peak exceeds the memory in use before."""
    from anchored import AnchoredRegressor

    X, y = rows(N_ROWS[quick], N_COLUMNS_FITTED)
    settings = uci_sets.QUICK if quick else {}
    short = settings | {"n_estimators": 2, "max_iter": 1}
    AnchoredRegressor(**short, random_state=0).fit(X[:300], y[:300])  # imports and compiles what every fit needs
    model = AnchoredRegressor(**settings, random_state=0)
    _print_cost(lambda: model.fit(X, y))


def predict(quick: bool) -> None:
    """Predict means, and then intervals; for each, print the same numbers as `fit`."""
    from anchored import AnchoredRegressor

    X, y = rows(N_ROWS[quick], N_COLUMNS_PREDICTED)
    model = AnchoredRegressor(**(uci_sets.QUICK if quick else {}), random_state=0)
    model.fit(X[:N_TRAINING_ROWS], y[:N_TRAINING_ROWS])
    for method in (model.predict, model.predict_interval):
        method(X[:1_000])
        _print_cost(lambda method=method: method(X))


def _print_cost(work: Callable[[], object]) -> None:
    """Call `work`, and print its seconds, and the megabytes by which the peak exceeds the memory in use before."""
    before = reporting.memory_now()
    seconds = seconds_of(work)
    print(seconds, (reporting.memory_peak() - before) / 1e6)


CHILDREN = {"fit": fit, "predict": predict}


def run_child(part: str, quick: bool) -> list[list[float]]:
    """Run one of CHILDREN in a new process, and return the numbers in each of the lines that it prints."""
    command = [sys.executable, __file__, "--child", part, *["--quick"] * quick]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return [[float(word) for word in line.split()] for line in done.stdout.splitlines()]


def run(quick: bool) -> Iterator[Json]:
    """Yield the measured lines so far."""
    fitted, predicted = (f"{N_ROWS[quick]:,} × {n}" for n in (N_COLUMNS_FITTED, N_COLUMNS_PREDICTED))
    lines: list[Measured] = []
    for part, what, goals in (
        ("fit", [f"fit {fitted}"], [(480, 1_500)]),
        ("predict", [f"predict {predicted}, means", f"predict {predicted}, intervals"], [(3, 500), (15, 500)]),
    ):
        for name, (seconds, megabytes), (max_seconds, max_megabytes) in zip(
            what, run_child(part, quick), goals, strict=True
        ):
            lines += [
                measured(name, seconds, "s", max_seconds),
                measured(f"{name}: peak memory above the input", megabytes, "MB", max_megabytes),
            ]
        yield {"lines": lines}


def tables(stored: Json) -> dict[str, str]:
    """Return the table of what was measured."""
    return {"million_rows": reporting.measured_table(stored, COMMAND, stored["lines"])}


def main(arguments: Sequence[str] | None = None) -> Json:
    """Run the benchmark with the options in `arguments`; return the stored result."""
    parser = reporting.parser_of(__doc__)
    parser.add_argument("--child", choices=CHILDREN, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        CHILDREN[options.child](options.quick)
        return {}
    return reporting.run_and_store("million_rows", options, {"quick": options.quick}, run(options.quick), tables)


if __name__ == "__main__":
    main()
