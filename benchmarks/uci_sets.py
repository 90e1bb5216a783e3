"""The UCI data sets of the benchmarks: their names in tables, and the scores of predictions."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from anchored.model.predictive import Predictive

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


def normal_scores(y: np.ndarray, mean: np.ndarray, std: np.ndarray) -> dict[str, float]:
    """Return the scores of the normal predictions N(`mean`, `std`²) of `y`, (rows,) each."""
    from anchored.model.predictive import Predictive

    return scores(y, Predictive(mean, 0 * mean, std**2, np.inf))


def scores(y: np.ndarray, predictive: "Predictive") -> dict[str, float]:
    """Return the scores of the predictive distributions of `y`, (rows,); NLL, CRPS and RMSE are in units of y."""
    from anchored import metrics

    return {
        "rmse": float(metrics.root_mean_squared_error(y, predictive.mean)),
        "nll": metrics.nll(y, predictive),
        "crps": metrics.crps(y, predictive),
        "coverage": metrics.coverage(y, *predictive.interval(0.95)),
    }
