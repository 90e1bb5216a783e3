"""Regression on the nine UCI sets, with defaults and no tuning for any of them.

    python benchmarks/uci.py --data DIR                              the first five standard splits of all sets
    python benchmarks/uci.py --data DIR --sets yacht --splits 1      a quick look
    python benchmarks/uci.py --data DIR --bde-python BDE_PYTHON      sklearn-contrib-bde beside it, on two sets
    python benchmarks/uci.py --sets none --classes                   digits, by cross-validation

DIR holds the folder `uci/`; without --data it is $ANCHORED_DATA. BDE_PYTHON is the interpreter of an environment
with sklearn-contrib-bde. The negative log-likelihood is that of a normal with the predictive mean and total variance,
in units of y. Seconds are those of `fit`; the first of a process compiles.
"""

import argparse
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from reporting import RESULTS, Table, describe, machine, write_json
from sklearn.model_selection import StratifiedKFold

from anchored import AnchoredClassifier, AnchoredRegressor, datasets, metrics

# NLL: one hidden layer of the paper's anchored ensembles; yacht's own
BARS = {"boston": 2.5, "concrete": 2.97, "energy": 0.96, "kin8nm": -1.09, "power": 2.83, "wine_red": 0.95, "yacht": 0.6}
WITHOUT_DUPLICATES = "wine_red, no duplicates"
RIVAL_SETS, RIVAL_SPLITS = ("boston", "concrete"), 2
FOLDS = 5


def main() -> None:
    """Run what was asked for; results are written after every row."""
    arguments = parse_arguments()
    print(f"{describe(machine())}\n", flush=True)
    results: dict[str, Any] = {}
    settings = {"splits": arguments.splits, "sets": arguments.sets, "random_state": 0}

    def save() -> None:
        write_json(arguments.out, settings, results)

    if arguments.sets:
        results["regression"] = []
        for row in regression(arguments.sets, arguments.splits, arguments.data):
            results["regression"].append(row)
            save()
    if arguments.bde_python is not None:
        results["rival"] = []
        for row in beside_bde(arguments.bde_python, arguments.data):
            results["rival"].append(row)
            save()
    if arguments.classes:
        results["classification"] = classification()
        save()


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder that holds uci/ (default: $ANCHORED_DATA)")
    parser.add_argument("--splits", type=int, default=5, help="how many of the standard splits")
    parser.add_argument("--sets", default=",".join(datasets.UCI), help='short names, or "none"')
    parser.add_argument("--bde-python", help="interpreter of an environment with sklearn-contrib-bde")
    parser.add_argument("--classes", action="store_true", help="also classify digits")
    parser.add_argument("--out", type=Path, default=RESULTS / "uci.json")
    arguments = parser.parse_args()
    arguments.sets = [] if arguments.sets in ("", "none") else arguments.sets.split(",")
    return arguments


# Regression


def regression(names: list[str], n_splits: int, data_dir: Path | None):
    """A row of results for each set, printed as it comes."""
    columns = ("set", "N", "D", "RMSE", "NLL", "95 % coverage", "seconds a fit", "NLL bar")
    table = Table(*columns)
    for dataset in data_sets(names, data_dir):
        splits = [score_split(dataset, *split) for split in datasets.standard_splits(len(dataset.y), n_splits)]
        means = {score: average(splits, score) for score in splits[0]}
        row = {"set": dataset.name, "N": len(dataset.y), "D": dataset.X.shape[1], "mean": means, "splits": splits}
        bar = BARS.get(dataset.name)
        table.row(
            dataset.name,
            f"{row['N']:,}",
            str(row["D"]),
            mean_and_error(splits, "rmse", digits=2 if means["rmse"] > 0.1 else 5),
            mean_and_error(splits, "nll", digits=2),
            f"{means['coverage']:.1%}",
            f"{means['seconds']:.1f}",
            "" if bar is None else f"{bar:.2f} {'met' if means['nll'] <= bar else 'missed'}",
        )
        yield row


def data_sets(names: list[str], data_dir: Path | None):
    """The sets by name; red wine a second time without its repeated rows, which cross from training to test."""
    for name in names:
        dataset = datasets.load(name, data_dir)
        yield dataset
        if name == "wine_red":
            first = np.sort(np.unique(dataset.X, axis=0, return_index=True)[1])
            yield datasets.Dataset(WITHOUT_DUPLICATES, dataset.X[first], dataset.y[first], dataset.target)


def score_split(dataset: datasets.Dataset, train: np.ndarray, test: np.ndarray) -> dict[str, float]:
    """Fit on the one part, score on the other."""
    model = AnchoredRegressor(random_state=0)
    started = time.perf_counter()
    model.fit(dataset.X[train], dataset.y[train])
    seconds = time.perf_counter() - started
    mean, std = model.predict(dataset.X[test], return_std=True)
    return scores(dataset.y[test], mean, std) | {"seconds": seconds}


def scores(y: np.ndarray, mean: np.ndarray, std: np.ndarray) -> dict[str, float]:
    """How good the normals N(mean, std²) are for y."""
    return {
        "rmse": float(metrics.root_mean_squared_error(y, mean)),
        "nll": metrics.gaussian_nll(y, mean, std),
        "coverage": metrics.coverage(y, *metrics.gaussian_interval(mean, std, 0.95)),
    }


def average(splits: list[dict[str, float]], name: str) -> float:
    """Over splits."""
    return float(np.mean([split[name] for split in splits]))


def mean_and_error(splits: list[dict[str, float]], name: str, digits: int) -> str:
    """Mean over splits ± its standard error."""
    mean = average(splits, name)
    if len(splits) < 2:
        return f"{mean:.{digits}f}"
    error = np.std([split[name] for split in splits], ddof=1) / len(splits) ** 0.5
    return f"{mean:.{digits}f} ± {error:.{digits}f}"


# The nearest rival


def beside_bde(bde_python: str, data_dir: Path | None):
    """Both methods on the same splits, one after the other."""
    print("\nBeside sklearn-contrib-bde, with its README's settings; in brackets the NLL of its mixture of draws\n")
    table = Table("set", "split", "NLL", "bde NLL", "RMSE", "bde RMSE", "seconds", "bde seconds")
    for name in RIVAL_SETS:
        dataset = datasets.load(name, data_dir)
        splits = datasets.standard_splits(len(dataset.y), RIVAL_SPLITS)
        theirs = run_bde(bde_python, dataset, splits)
        for i, split in enumerate(splits):
            ours, rival = score_split(dataset, *split), theirs[i]
            cells = [f"{found[score]:.2f}" for score in ("nll", "rmse", "seconds") for found in (ours, rival)]
            cells[1] += f" ({rival['mixture_nll']:.2f})"
            table.row(name, str(i), *cells)
            yield {"set": name, "split": i, "anchored": ours, "bde": rival}


def run_bde(bde_python: str, dataset: datasets.Dataset, splits: list) -> list[dict[str, float]]:
    """bde's scores on each split, from a process of its own environment."""
    script = Path(__file__).with_name("bde_rival.py")
    with tempfile.TemporaryDirectory() as folder:
        task, result = Path(folder, "task.npz"), Path(folder, "result.npz")
        rows = {f"{part}_{i}": rows for i, split in enumerate(splits) for part, rows in zip(("train", "test"), split)}
        np.savez(task, X=dataset.X, y=dataset.y, **rows)
        finished = subprocess.run([bde_python, script, task, result], capture_output=True, text=True, check=False)
        if finished.returncode:
            raise RuntimeError(f"bde failed on {dataset.name}:\n{finished.stderr[-2000:]}")
        with np.load(result) as found:
            return [rival_scores(found, i, dataset.y[test]) for i, (_, test) in enumerate(splits)]


def rival_scores(found: Any, i: int, y: np.ndarray) -> dict[str, float]:
    """Scored as ours is, and by the mixture of bde's own draws."""
    mixture_nll = -float(found[f"log_density_{i}"].mean())
    seconds = float(found[f"seconds_{i}"])
    return scores(y, found[f"mean_{i}"], found[f"std_{i}"]) | {"mixture_nll": mixture_nll, "seconds": seconds}


# Classification


def classification() -> dict[str, float]:
    """Digits, five stratified folds, scores of all predictions pooled."""
    dataset = datasets.load("digits")
    y = dataset.y.astype(int)
    probabilities, seconds = np.zeros((len(y), len(np.unique(y)))), []
    for train, test in StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(dataset.X, y):
        started = time.perf_counter()
        model = AnchoredClassifier(random_state=0).fit(dataset.X[train], y[train])
        seconds.append(time.perf_counter() - started)
        probabilities[test] = model.predict_proba(dataset.X[test])
    found = {
        "accuracy": float(np.mean(probabilities.argmax(1) == y)),
        "expected_calibration_error": metrics.expected_calibration_error(y, probabilities, n_bins=15),
        "log_loss": float(metrics.log_loss(y, probabilities)),
        "seconds": float(np.mean(seconds)),
    }
    print(f"\ndigits, {FOLDS} folds\n")
    Table("accuracy", "ECE", "log loss", "seconds a fit").row(
        f"{found['accuracy']:.2%}",
        f"{found['expected_calibration_error']:.2%}",
        f"{found['log_loss']:.4f}",
        f"{found['seconds']:.1f}",
    )
    return found


if __name__ == "__main__":
    main()
