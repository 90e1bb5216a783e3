"""How good predictions of rows with known targets are: the error, and whether the uncertainty is honest."""

from typing import Any

import numpy as np
from sklearn.metrics import accuracy_score, mean_absolute_error, r2_score

from anchored import metrics
from anchored.model.predictive import CategoricalPredictive, Predictive
from anchored.storage.headers import Header

COVERAGE = 0.95
# What each number is called for people, and how it is written where four digits are not the way.
NAMES = {
    "rows": ("rows", "{:,}"),
    "rmse": ("error (RMSE)", ""),
    "mae": ("absolute error", ""),
    "target_std": ("s.d. of the target", ""),
    "r2": ("R²", "{:.3f}"),
    "nll": ("negative log likelihood", ""),
    "crps": ("CRPS", ""),
    "coverage_95": ("95% intervals hold", "{:.1%}"),
    "interval_width_95": ("their mean width", ""),
    "accuracy": ("accuracy", "{:.1%}"),
    "most_common_class": ("always the commonest class", "{:.1%}"),
    "log_loss": ("log loss", ""),
    "brier": ("Brier score", ""),
    "confidence": ("mean confidence", "{:.1%}"),
    "calibration_error": ("calibration error", "{:.3f}"),
}

OF_NUMBERS = (
    "rows", "rmse", "mae", "target_std", "r2", "nll", "crps", "coverage_95", "interval_width_95", "calibration_error",
)  # fmt: skip
OF_CLASSES = ("rows", "accuracy", "most_common_class", "log_loss", "brier", "confidence", "calibration_error")


def from_json(described: Header, is_class: bool) -> dict[str, float]:
    """What `score` gave; a StorageError where that are no such scores."""
    names = OF_CLASSES if is_class else OF_NUMBERS
    described.require_only(names)
    found: dict[str, Any] = {name: described.typed(name, float | None if name == "r2" else float) for name in names}
    return found | {"rows": described.whole("rows", 1)}


def score(y: np.ndarray, predictive: Predictive | CategoricalPredictive, classes: Any = None) -> dict[str, float]:
    """Numbers by name, of regression or of classes."""
    if isinstance(predictive, Predictive):
        return _of_numbers(y, predictive)
    return _of_classes(y, predictive.probabilities, classes)


def _of_numbers(y: np.ndarray, predictive: Predictive) -> dict[str, float]:
    mean, std = predictive.mean, predictive.std
    lower, upper = predictive.interval(COVERAGE)
    return {
        "rows": len(y),
        "rmse": metrics.root_mean_squared_error(y, mean),
        "mae": float(mean_absolute_error(y, mean)),
        "target_std": float(np.std(y)),
        "r2": float(r2_score(y, mean)) if len(y) > 1 and np.ptp(y) > 0 else None,
        "nll": metrics.gaussian_nll(y, mean, std),
        "crps": metrics.gaussian_crps(y, mean, std),
        "coverage_95": metrics.coverage(y, lower, upper),
        "interval_width_95": metrics.interval_width(lower, upper),
        "calibration_error": metrics.calibration_error(y, mean, std),
    }


def _of_classes(y: np.ndarray, probabilities: np.ndarray, classes: np.ndarray) -> dict[str, float]:
    return {
        "rows": len(y),
        "accuracy": float(accuracy_score(y, classes[probabilities.argmax(axis=1)])),
        "most_common_class": float(np.unique(y, return_counts=True)[1].max() / len(y)),
        "log_loss": float(metrics.log_loss(y, probabilities, labels=classes)),
        "brier": metrics.brier_score(y, probabilities, labels=classes),
        "confidence": float(probabilities.max(axis=1).mean()),
        "calibration_error": metrics.expected_calibration_error(y, probabilities, labels=classes),
    }


def written(scores: dict[str, float]) -> list[tuple[str, str]]:
    """Names and numbers for people to read."""
    known = [(NAMES[name], value) for name, value in scores.items() if value is not None]
    return [(label, form.format(value) if form else significant(value)) for (label, form), value in known]


def significant(value: float) -> str:
    """Four digits, without an exponent where people would not write one."""
    if value == 0 or not 1e-4 <= abs(value) < 1e9:
        return f"{value:.4g}"
    return f"{value:,.{max(0, 3 - int(np.floor(np.log10(abs(value)))))}f}"


def verdict(scores: dict[str, float]) -> str:
    """Whether the uncertainty is honest, in a sentence; two standard errors are what chance does."""
    n_rows = scores["rows"]
    if "coverage_95" in scores:
        claimed, seen, what = COVERAGE, scores["coverage_95"], "95% intervals"
    else:
        claimed, seen, what = scores["confidence"], scores["accuracy"], "probabilities"
    chance = 2 * np.sqrt(max(claimed * (1 - claimed), 1e-12) / n_rows)
    found = f"{seen:.1%} where {claimed:.1%} is claimed, ± {chance:.1%} by chance with {n_rows:,} rows"
    if seen < claimed - chance:
        return f"the {what} are too sure: {found}"
    if seen > claimed + chance:
        return f"the {what} are too cautious: {found}"
    return f"the {what} are honest: {found}"
