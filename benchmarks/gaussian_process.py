"""The exact Gaussian processes that wide networks are, on the five small UCI sets, beside the published table.

    python benchmarks/gaussian_process.py --data DIR

DIR holds the folder `uci/`; without --data it is $ANCHORED_DATA. Two protocols, with the hyperparameters of arXiv
1810.05546: the authors', whose every printed digit should come out (splits of their own, normalised with all rows), and
the standard splits, normalised with the training rows alone. Scores are mean (standard error) over twenty splits; the
negative log-likelihood is in units of y.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from reporting import RESULTS, Table, describe, machine, write_json

from anchored import BayesianRegressor, datasets, methods, metrics
from anchored.exact.kernels import NetworkKernel
from anchored.exact.processes import GaussianProcess
from anchored.model.likelihoods import Gaussian

N_SPLITS = 20
AUTHORS_SEED = 1000
# Noise variance (of standardised y) and b; RMSE and NLL as printed
PUBLISHED = {
    ("boston", "relu"): (0.06, 10, "2.86 (0.16)", "2.45 (0.05)"),
    ("boston", "erf"): (0.05, 25, "2.94 (0.18)", "2.46 (0.05)"),
    ("concrete", "relu"): (0.05, 40, "4.88 (0.13)", "2.96 (0.02)"),
    ("concrete", "erf"): (0.06, 100, "5.21 (0.12)", "3.06 (0.02)"),
    ("energy", "relu"): (1e-7, 12, "0.60 (0.02)", "0.86 (0.02)"),
    ("energy", "erf"): (1e-7, 10, "0.78 (0.03)", "1.06 (0.03)"),
    ("wine_red", "relu"): (0.5, 20, "0.61 (0.01)", "0.92 (0.01)"),
    ("wine_red", "erf"): (0.5, 50, "0.60 (0.01)", "0.91 (0.01)"),
    ("yacht", "relu"): (1e-7, 15, "0.60 (0.08)", "0.49 (0.07)"),
    ("yacht", "erf"): (1e-5, 25, "1.48 (0.15)", "1.50 (0.13)"),
}


def main() -> None:
    """Both tables, printed row by row and stored."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder that holds uci/ (default: $ANCHORED_DATA)")
    parser.add_argument("--out", type=Path, default=RESULTS / "gaussian_process.json")
    arguments = parser.parse_args()
    print(describe(machine()))
    results: dict[str, Any] = {}
    print("\nThe authors' splits, normalised with all rows\n")
    results["authors"] = authors_table(arguments.data)
    write_json(arguments.out, {"splits": N_SPLITS}, results)
    print("\nThe standard splits, normalised with the training rows\n")
    results["standard"] = standard_table(arguments.data)
    write_json(arguments.out, {"splits": N_SPLITS}, results)


def authors_table(data_dir: Path | None) -> list[dict[str, Any]]:
    """A row for each set and kernel, with the verdict on its digits."""
    table, rows = Table("set", "kernel", "RMSE", "NLL", "published"), []
    for (name, activation), (noise, b, *published) in PUBLISHED.items():
        found = list(authors_scores(datasets.load(name, data_dir), activation, noise, b))
        cells = [mean_and_error(found, score, digits=2) for score in ("rmse", "nll")]
        table.row(name, activation, *cells, "every digit" if cells == published else "; ".join(published))
        rows.append({"set": name, "kernel": activation, "same_digits": cells == published, "splits": found})
    return rows


def standard_table(data_dir: Path | None) -> list[dict[str, Any]]:
    """A row for each set and kernel."""
    table, rows = Table("set", "kernel", "RMSE", "NLL"), []
    for (name, activation), (noise, b, *_) in PUBLISHED.items():
        found = list(standard_scores(datasets.load(name, data_dir), activation, noise, b))
        table.row(name, activation, *(mean_and_error(found, score, digits=3) for score in ("rmse", "nll")))
        rows.append({"set": name, "kernel": activation, "splits": found})
    return rows


def authors_scores(dataset: datasets.Dataset, activation: str, noise: float, b: float):
    """Scores of each of the authors' splits, normalised with all rows."""
    X, y = dataset.X, dataset.y
    inputs, targets = (X - X.mean(0)) / X.std(0), (y - y.mean()) / y.std()
    process = GaussianProcess(NetworkKernel((b / X.shape[1], 1.0), (b, 0.0), activation), noise)
    for i in range(N_SPLITS):
        order = np.random.RandomState(AUTHORS_SEED + i).permutation(len(y))
        train, test = np.split(order, [round(datasets.TRAIN_SHARE * len(y))])
        given = process.condition(inputs[train], targets[train, None])
        mean, std = (values[:, 0] for values in given.predict(inputs[test], return_std=True))
        yield scores(y[test], y.mean() + y.std() * mean, y.std() * np.sqrt(std**2 + noise))


def standard_scores(dataset: datasets.Dataset, activation: str, noise: float, b: float):
    """Scores of each of the standard splits, as a user's estimator has them."""
    for train, test in datasets.standard_splits(len(dataset.y), N_SPLITS):
        y = dataset.y[train]
        noise_in_units_of_y = Gaussian(noise * y.var())
        model = BayesianRegressor(
            methods.GaussianProcess(), noise_in_units_of_y, activation=activation, prior_scale=b**0.5
        )
        mean, std = model.fit(dataset.X[train], y).predict(dataset.X[test], return_std=True)
        yield scores(dataset.y[test], mean, std)


def scores(y: np.ndarray, mean: np.ndarray, std: np.ndarray) -> dict[str, float]:
    """How good the normals N(mean, std²) are for y."""
    return {"rmse": float(metrics.root_mean_squared_error(y, mean)), "nll": metrics.gaussian_nll(y, mean, std)}


def mean_and_error(splits: list[dict[str, float]], name: str, digits: int) -> str:
    """Mean over splits and its standard error, as the paper prints them."""
    values = [split[name] for split in splits]
    return f"{np.mean(values):.{digits}f} ({np.std(values, ddof=1) / len(values) ** 0.5:.{digits}f})"


if __name__ == "__main__":
    main()
