"""The UCI data sets of the benchmarks: their titles and number formats in tables, and the scores of predictions."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from anchored.datasets import Dataset
    from anchored.model.predictive import Predictive

WITHOUT_DUPLICATES = "wine_red, no duplicates"
NAMES = {  # titles in tables
    "boston": "Boston",
    "concrete": "Concrete",
    "energy": "Energy",
    "kin8nm": "Kin8nm",
    "naval": "Naval",
    "power": "Power",
    "protein": "Protein",
    "wine_red": "Wine, red",
    WITHOUT_DUPLICATES: "Wine, no duplicates",
    "yacht": "Yacht",
}


# Arguments of estimators in a quick run, instead of the defaults
QUICK = {"n_estimators": 5, "hidden_layer_sizes": (20,), "max_iter": 40}


def add_data_option(parser: argparse.ArgumentParser) -> None:
    """Add the option for the folder of the data sets to `parser`."""
    parser.add_argument("--data", type=Path, help="folder that holds uci/ (default: $ANCHORED_DATA)")


def without_duplicates(dataset: "Dataset") -> "Dataset":
    """Return `dataset`, which is red wine, without its duplicate rows, which may be in both training and test."""
    from anchored.datasets import Dataset

    first = np.sort(np.unique(dataset.X, axis=0, return_index=True)[1])
    return Dataset(WITHOUT_DUPLICATES, dataset.X[first], dataset.y[first], dataset.target)


def title_without_duplicates(name: str) -> str:
    """Return the title of the set called `name` in tables that remove the duplicate rows of red wine."""
    return NAMES[WITHOUT_DUPLICATES if name == "wine_red" else name]


def digits(value: float) -> int:
    """Return how many decimals of `value` to show, so that small values have at least two significant digits."""
    return 2 if value > 0.1 else 4 if value > 0.01 else 5


def normal_scores(y: np.ndarray, mean: np.ndarray, std: np.ndarray) -> dict[str, float]:
    """Return the scores of the normal predictions N(`mean`, `std`²) of `y`, (rows,) each."""
    from anchored.model.predictive import Predictive

    return scores(y, Predictive(mean, 0 * mean, std**2, np.inf))


def scores(y: np.ndarray, predictive: "Predictive") -> dict[str, float]:
    """Return the scores of the predictive distributions of `y`, (rows,); RMSE and CRPS are in units of y."""
    from anchored import metrics

    return {
        "rmse": float(metrics.root_mean_squared_error(y, predictive.mean)),
        "nll": metrics.nll(y, predictive),
        "crps": metrics.crps(y, predictive),
        "coverage": metrics.coverage(y, *predictive.interval(0.95)),
    }
