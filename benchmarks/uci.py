"""Regression on the nine UCI sets with default settings, without tuning.

    python benchmarks/uci.py --data DIR               the first five standard splits of every set
    python benchmarks/uci.py --data DIR --quick       two splits of the smallest set
    python benchmarks/uci.py --sets none --classes    only the digits, by cross-validation

DIR contains the folder `uci/`; the default is $ANCHORED_DATA. The negative log-likelihood and CRPS are those of the
predictive distribution, in units of y. Seconds are those of `fit`; the first fit of a process includes compilation.
`tables.py` compares the same defaults with other libraries.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import reporting
import uci_sets
from reporting import Json, average, mean_and_error, number
from uci_sets import NAMES, WITHOUT_DUPLICATES, digits, scores

if TYPE_CHECKING:
    from anchored.datasets import Dataset

# NLL to reach: about that of the authors' anchored ensembles with one hidden layer; for yacht, our choice
GOALS = {
    "boston": 2.5,
    "concrete": 2.97,
    "energy": 0.96,
    "kin8nm": -1.09,
    "power": 2.83,
    "wine_red": 0.95,
    "yacht": 0.6,
}
SETS = tuple(name for name in NAMES if name != WITHOUT_DUPLICATES)
FOLDS = 5
PARTS = ("regression", "classification")


def main(arguments: Sequence[str] | None = None) -> Json:
    """Run the parts that the command line, `arguments`, selects; return the stored result."""
    parser = reporting.parser_of(__doc__)
    uci_sets.add_data_option(parser)
    parser.add_argument("--splits", type=int, default=5, help="number of standard splits; default: 5")
    parser.add_argument(
        "--sets", default=",".join(SETS), help='short names, separated by commas, or "none"; default: all'
    )
    parser.add_argument("--classes", action="store_true", help="also classify digits")
    options = parser.parse_args(arguments)
    if options.quick:
        options.sets, options.splits = "yacht", 2
    options.sets = [] if options.sets in ("", "none") else options.sets.split(",")
    settings = {"splits": options.splits, "sets": options.sets, "random_state": 0}
    return reporting.run_and_store("uci", options, settings, run(options), tables)


def run(options: argparse.Namespace) -> Iterator[Json]:
    """Yield the rows so far of each part that the `options` select."""
    from anchored import datasets

    results: Json = {name: [] for name in PARTS}
    for name in options.sets:
        for dataset in variants(datasets.load(name, options.data)):
            results["regression"].append(regression(dataset, options.splits, options.quick))
            reporting.note(f"{dataset.name}: NLL {results['regression'][-1]['mean']['nll']:.2f}")
            yield results
    if options.classes:
        results["classification"] = [classification()]
        yield results


# Regression


def regression(dataset: "Dataset", n_splits: int, quick: bool) -> Json:
    """Return scores of `dataset` on the first `n_splits` standard splits, and their means; short fits if `quick`."""
    from anchored import datasets

    splits = [score_split(dataset, *split, quick) for split in datasets.standard_splits(len(dataset.y), n_splits)]
    means = {score: average(splits, score) for score in splits[0]}
    return {"set": dataset.name, "N": len(dataset.y), "D": dataset.X.shape[1], "mean": means, "splits": splits}


def variants(dataset: "Dataset") -> Iterator["Dataset"]:
    """Yield `dataset`; for red wine, also without its duplicate rows."""
    yield dataset
    if dataset.name == "wine_red":
        yield uci_sets.without_duplicates(dataset)


def score_split(dataset: "Dataset", train: np.ndarray, test: np.ndarray, quick: bool = False) -> dict[str, float]:
    """Fit the rows `train` of `dataset` with defaults, briefly if `quick`; return the scores of the rows `test`."""
    from anchored import AnchoredRegressor

    model = AnchoredRegressor(**(uci_sets.QUICK if quick else {}), random_state=0)
    started = time.perf_counter()
    model.fit(dataset.X[train], dataset.y[train])
    seconds = time.perf_counter() - started
    return scores(dataset.y[test], model.predict_dist(dataset.X[test])) | {"seconds": seconds}


# Classification


def classification() -> dict[str, float]:
    """Return the scores of the digits, over the predictions of all five stratified folds together."""
    from sklearn.model_selection import StratifiedKFold

    from anchored import AnchoredClassifier, datasets, metrics

    dataset = datasets.load("digits")
    y = dataset.y.astype(int)
    probabilities, seconds = np.zeros((len(y), len(np.unique(y)))), []
    for train, test in StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(dataset.X, y):
        started = time.perf_counter()
        model = AnchoredClassifier(random_state=0).fit(dataset.X[train], y[train])
        seconds.append(time.perf_counter() - started)
        probabilities[test] = model.predict_proba(dataset.X[test])
    return {
        "accuracy": float(np.mean(probabilities.argmax(1) == y)),
        "expected_calibration_error": metrics.expected_calibration_error(y, probabilities, n_bins=15),
        "log_loss": float(metrics.log_loss(y, probabilities)),
        "seconds": float(np.mean(seconds)),
    }


# Tables


def tables(stored: Json) -> dict[str, str]:
    """Return a table for each part that has run in `stored`."""
    functions = {"regression": regression_table, "digits": digits_table}
    return {name: functions[name](stored) for name, part in zip(functions, PARTS, strict=True) if stored[part]}


def regression_table(stored: Json) -> str:
    """Return the table of the UCI sets in `stored`."""
    order = list(NAMES)
    rows = [
        (
            NAMES[row["set"]],
            f"{row['N']:,}",
            str(row["D"]),
            mean_and_error(row["splits"], "rmse", digits(row["mean"]["rmse"])),
            mean_and_error(row["splits"], "nll", 2),
            mean_and_error(row["splits"], "crps", digits(row["mean"]["crps"])),
            f"{row['mean']['coverage']:.1%}".replace("%", " %"),
            f"{row['mean']['seconds']:.1f}",
            number(GOALS[row["set"]], 2) if row["set"] in GOALS else "",
        )
        for row in sorted(stored["regression"], key=lambda row: order.index(row["set"]))
    ]
    header = ("set", "N", "D", "RMSE", "NLL", "CRPS", "95 % coverage", "seconds per fit", "NLL goal")
    return reporting.table(stored, "python benchmarks/uci.py --data DIR", header, rows)


def digits_table(stored: Json) -> str:
    """Return the table of the digits in `stored`."""
    (scored,) = stored["classification"]
    error = f"{100 * scored['expected_calibration_error']:.1f} %"
    row = (f"{100 * scored['accuracy']:.1f} %", error, f"{scored['log_loss']:.3f}", f"{scored['seconds']:.1f}")
    header = ("accuracy", "expected calibration error", "log loss", "seconds per fit")
    return reporting.table(stored, "python benchmarks/uci.py --sets none --classes", header, [row])


if __name__ == "__main__":
    main()
