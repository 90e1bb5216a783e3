"""The UCI data sets of the benchmarks: their names in tables, and the scores of predictions."""

import argparse
from pathlib import Path

import numpy as np

NAMES = {
    "boston": "Boston",
    "concrete": "Concrete",
    "energy": "Energy",
    "kin8nm": "Kin8nm",
    "naval": "Naval",
    "power": "Power",
    "protein": "Protein",
    "wine_red": "Wine, red",
    "wine_red, no duplicates": "Wine, no duplicates",
    "yacht": "Yacht",
}


QUICK = {"n_estimators": 5, "max_iter": 40}  # arguments of estimators, instead of the defaults


def add_data_option(parser: argparse.ArgumentParser) -> None:
    """Add the option for the folder of the data sets to `parser`."""
    parser.add_argument("--data", type=Path, help="folder that holds uci/ (default: $ANCHORED_DATA)")


def scores(y: np.ndarray, mean: np.ndarray, std: np.ndarray) -> dict[str, float]:
    """Return scores of the normal predictions N(`mean`, `std`²) of `y`, (rows,) each; NLL is in units of y."""
    from anchored import metrics

    return {
        "rmse": float(metrics.root_mean_squared_error(y, mean)),
        "nll": metrics.gaussian_nll(y, mean, std),
        "coverage": metrics.coverage(y, *metrics.gaussian_interval(mean, std, 0.95)),
    }
