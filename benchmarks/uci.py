"""Regression on the nine UCI sets with default settings, without tuning.

    python benchmarks/uci.py --data DIR                              the first five standard splits of every set
    python benchmarks/uci.py --data DIR --quick                      two splits of the smallest set
    python benchmarks/uci.py --data DIR --bde-python BDE_PYTHON      also sklearn-contrib-bde, on two sets
    python benchmarks/uci.py --sets none --classes                   only the digits, by cross-validation

DIR contains the folder `uci/`; the default is $ANCHORED_DATA. BDE_PYTHON is the interpreter of an environment with
sklearn-contrib-bde. The negative log-likelihood and CRPS are those of the predictive distribution, in units of y.
Seconds are those of `fit`; the first fit of a process includes compilation.
"""

import argparse
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import reporting
import uci_sets
from reporting import Json, average, mean_and_error, number
from uci_sets import NAMES, normal_scores, scores

if TYPE_CHECKING:
    from anchored.datasets import Dataset

    Splits = list[tuple[np.ndarray, np.ndarray]]  # rows to train on, and to test on

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
WITHOUT_DUPLICATES = "wine_red, no duplicates"
SETS = tuple(name for name in NAMES if name != WITHOUT_DUPLICATES)
RIVAL_SETS, RIVAL_SPLITS = ("boston", "concrete"), 2
FOLDS = 5
PARTS = ("regression", "rival", "classification")


def main(arguments: Sequence[str] | None = None) -> Json:
    """Run the parts that the command line, `arguments`, selects; return the stored result."""
    parser = reporting.parser_of(__doc__)
    uci_sets.add_data_option(parser)
    parser.add_argument("--splits", type=int, default=5, help="number of standard splits; default: 5")
    parser.add_argument(
        "--sets", default=",".join(SETS), help='short names, separated by commas, or "none"; default: all'
    )
    parser.add_argument("--bde-python", help="interpreter of an environment with sklearn-contrib-bde")
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
    if options.bde_python is not None:
        for name in RIVAL_SETS:
            results["rival"] += beside_bde(options.bde_python, datasets.load(name, options.data))
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
    """Yield `dataset`; for red wine, also without its duplicate rows, which may be in both training and test."""
    from anchored.datasets import Dataset

    yield dataset
    if dataset.name == "wine_red":
        first = np.sort(np.unique(dataset.X, axis=0, return_index=True)[1])
        yield Dataset(WITHOUT_DUPLICATES, dataset.X[first], dataset.y[first], dataset.target)


def score_split(dataset: "Dataset", train: np.ndarray, test: np.ndarray, quick: bool = False) -> dict[str, float]:
    """Fit the rows `train` of `dataset` with defaults, briefly if `quick`; return the scores of the rows `test`."""
    from anchored import AnchoredRegressor

    model = AnchoredRegressor(**(uci_sets.QUICK if quick else {}), random_state=0)
    started = time.perf_counter()
    model.fit(dataset.X[train], dataset.y[train])
    seconds = time.perf_counter() - started
    return scores(dataset.y[test], model.predict_dist(dataset.X[test])) | {"seconds": seconds}


# Comparison with sklearn-contrib-bde


def beside_bde(bde_python: str, dataset: "Dataset") -> list[Json]:
    """Return the scores of anchored and bde on the same splits of `dataset`; `bde_python` is bde's interpreter."""
    from anchored import datasets

    splits = datasets.standard_splits(len(dataset.y), RIVAL_SPLITS)
    theirs = run_bde(bde_python, dataset, splits)
    return [
        {"set": dataset.name, "split": i, "anchored": score_split(dataset, *split), "bde": theirs[i]}
        for i, split in enumerate(splits)
    ]


def run_bde(bde_python: str, dataset: "Dataset", splits: "Splits") -> list[dict[str, float]]:
    """Run bde with its interpreter `bde_python`, and return its scores on each of the `splits` of `dataset`."""
    script = Path(__file__).with_name("bde_rival.py")
    with tempfile.TemporaryDirectory() as folder:
        task, result = Path(folder, "task.npz"), Path(folder, "result.npz")
        trains, tests = zip(*splits, strict=True)
        rows = {f"train_{i}": train for i, train in enumerate(trains)} | {f"test_{i}": t for i, t in enumerate(tests)}
        np.savez(task, X=dataset.X, y=dataset.y, **rows)
        finished = subprocess.run([bde_python, script, task, result], capture_output=True, text=True, check=False)
        if finished.returncode:
            raise RuntimeError(f"bde failed on {dataset.name}:\n{finished.stderr[-2000:]}")
        with np.load(result) as arrays:
            return [rival_scores(arrays, i, dataset.y[test]) for i, test in enumerate(tests)]


def rival_scores(arrays: Mapping[str, np.ndarray], i: int, y: np.ndarray) -> dict[str, float]:
    """Return bde's scores of split `i`, computed as ours, and the NLL of its mixture of draws.

    `arrays` are the arrays that `bde_rival.py` wrote; `y` are the targets of the test rows.
    """
    mixture_nll = -float(arrays[f"log_density_{i}"].mean())
    seconds = float(arrays[f"seconds_{i}"])
    return normal_scores(y, arrays[f"mean_{i}"], arrays[f"std_{i}"]) | {"mixture_nll": mixture_nll, "seconds": seconds}


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
    functions = {"regression": regression_table, "rival": rival_table, "digits": digits_table}
    return {name: functions[name](stored) for name, part in zip(functions, PARTS, strict=True) if stored[part]}


def regression_table(stored: Json) -> str:
    """Return the table of the UCI sets in `stored`."""
    order = list(NAMES)
    rows = [
        (
            NAMES[row["set"]],
            f"{row['N']:,}",
            str(row["D"]),
            mean_and_error(row["splits"], "rmse", _digits(row["mean"]["rmse"])),
            mean_and_error(row["splits"], "nll", 2),
            mean_and_error(row["splits"], "crps", _digits(row["mean"]["crps"])),
            f"{row['mean']['coverage']:.1%}".replace("%", " %"),
            f"{row['mean']['seconds']:.1f}",
            number(GOALS[row["set"]], 2) if row["set"] in GOALS else "",
        )
        for row in sorted(stored["regression"], key=lambda row: order.index(row["set"]))
    ]
    header = ("set", "N", "D", "RMSE", "NLL", "CRPS", "95 % coverage", "seconds per fit", "NLL goal")
    return reporting.table(stored, "python benchmarks/uci.py --data DIR", header, rows)


def rival_table(stored: Json) -> str:
    """Return the table of the comparison with sklearn-contrib-bde in `stored`."""
    rows = []
    for row in stored["rival"]:
        ours, theirs = row["anchored"], row["bde"]
        rows.append(
            (
                f"{NAMES[row['set']]} {row['split']}",
                number(ours["nll"], 2),
                f"{number(theirs['nll'], 2)} ({number(theirs['mixture_nll'], 2)})",
                number(ours["rmse"], 2),
                number(theirs["rmse"], 2),
                number(ours["seconds"], 1),
                number(theirs["seconds"], 0),
            )
        )
    header = ("set, split", "NLL", "bde (as a mixture)", "RMSE", "bde", "seconds", "bde")
    command = "python benchmarks/uci.py --data DIR --bde-python PYTHON"
    return f"Its {rival_in_words(stored)}.\n\n{reporting.table(stored, command, header, rows)}"


def rival_in_words(stored: Json) -> str:
    """Return a phrase that compares bde with us in NLL and time, from the numbers in `stored`."""
    as_normal, as_mixture = (
        sum(row["bde"][score] < row["anchored"]["nll"] for row in stored["rival"]) for score in ("nll", "mixture_nll")
    )
    time_ratios = [row["bde"]["seconds"] / row["anchored"]["seconds"] for row in stored["rival"]]
    n_splits, span = len(time_ratios), f"{min(time_ratios):.0f} to {max(time_ratios):.0f}"
    return f"NLL is better on {as_normal} of {n_splits} splits, on {as_mixture} as a mixture, in {span} times the time"


def digits_table(stored: Json) -> str:
    """Return the table of the digits in `stored`."""
    (scored,) = stored["classification"]
    error = f"{100 * scored['expected_calibration_error']:.1f} %"
    row = (f"{100 * scored['accuracy']:.1f} %", error, f"{scored['log_loss']:.3f}", f"{scored['seconds']:.1f}")
    header = ("accuracy", "expected calibration error", "log loss", "seconds per fit")
    return reporting.table(stored, "python benchmarks/uci.py --sets none --classes", header, [row])


def _digits(value: float) -> int:
    """Return the number of decimals that show the first significant digits of `value`."""
    return 2 if value > 0.1 else 4 if value > 0.01 else 5


if __name__ == "__main__":
    main()
