"""How good predictions of rows with known targets are: their error, and whether their uncertainty is calibrated."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from sklearn.metrics import accuracy_score, mean_absolute_error, r2_score

from anchored import metrics
from anchored.model.predictive import CategoricalPredictive, Predictive
from anchored.storage.headers import Header
from anchored.storage.json_values import JsonObject

Scores = dict[str, float | None]  # by the names below; None where a score is not defined
COVERAGE = 0.95
# What each score is called for people, and how it is written where four digits are not the way.
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

REGRESSION = (
    "rows", "rmse", "mae", "target_std", "r2", "nll", "crps", "coverage_95", "interval_width_95", "calibration_error",
)  # fmt: skip
CLASSIFICATION = ("rows", "accuracy", "most_common_class", "log_loss", "brier", "confidence", "calibration_error")


def from_json(described: Header, is_class: bool) -> Scores:
    """The scores that `score` gave; a StorageError names the field that does not fit."""
    names = CLASSIFICATION if is_class else REGRESSION
    described.require_only(names)
    found: Scores = {name: described.typed(name, float | None if name == "r2" else float) for name in names}
    return found | {"rows": described.whole("rows", 1)}


def score(y: np.ndarray, predictive: Predictive | CategoricalPredictive, classes: np.ndarray | None = None) -> Scores:
    """Scores by name of predictions for targets `y`, (rows,): the names of REGRESSION or of CLASSIFICATION.

    `classes` are the labels, in the order of the columns of the probabilities. Errors, widths and the CRPS are in
    units of the target, log likelihoods and the log loss in nats.
    """
    if isinstance(predictive, Predictive):
        return _of_numbers(y, predictive)
    assert classes is not None
    return _of_classes(y, predictive.probabilities, classes)


def _of_numbers(y: np.ndarray, predictive: Predictive) -> Scores:
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


def _of_classes(y: np.ndarray, probabilities: np.ndarray, classes: np.ndarray) -> Scores:
    return {
        "rows": len(y),
        "accuracy": float(accuracy_score(y, classes[probabilities.argmax(axis=1)])),
        "most_common_class": float(np.unique(y, return_counts=True)[1].max() / len(y)),
        "log_loss": float(metrics.log_loss(y, probabilities, labels=classes)),
        "brier": metrics.brier_score(y, probabilities, labels=classes),
        "confidence": float(probabilities.max(axis=1).mean()),
        "calibration_error": metrics.expected_calibration_error(y, probabilities, labels=classes),
    }


def written(scores: Scores) -> list[tuple[str, str]]:
    """What each score is called for people, and its value as text."""
    known = [(NAMES[name], value) for name, value in scores.items() if value is not None]
    return [(label, form.format(value) if form else significant(value)) for (label, form), value in known]


def significant(value: float) -> str:
    """A number with four significant digits, without an exponent where people would not write one."""
    if value == 0 or not 1e-4 <= abs(value) < 1e9:
        return f"{value:.4g}"
    return f"{value:,.{max(0, 3 - int(np.floor(np.log10(abs(value)))))}f}"


class CalibrationFinding(StrEnum):
    """How the uncertainty compares with the errors."""

    CALIBRATED = "calibrated"
    OVERCONFIDENT = "overconfident"
    UNDERCONFIDENT = "underconfident"


@dataclass(frozen=True)
class Calibration:
    """Whether the uncertainty of predictions is calibrated.

    Attributes
    ----------
    finding : CalibrationFinding
    subject : what was looked at, "95% intervals" or "probabilities"
    claimed : the share of the rows that should be covered, or be right
    observed : the share that is
    tolerance : two standard errors of `observed`, from there being only `n_rows` rows
    """

    finding: CalibrationFinding
    subject: str
    claimed: float
    observed: float
    tolerance: float
    n_rows: int

    def to_json(self) -> JsonObject:
        """The finding, and the sentence that says it."""
        return {"finding": str(self.finding), "summary": str(self)}

    def __str__(self) -> str:
        found = f"{self.observed:.1%} observed, {self.claimed:.1%} ± {self.tolerance:.1%} expected"
        return f"the {self.subject} are {self.finding}: {found} for {self.n_rows:,} rows"


def calibration(scores: Scores) -> Calibration:
    """Whether the uncertainty is calibrated, as far as so many rows can tell: to within two standard errors."""
    n_rows = int(scores["rows"] or 0)
    if "coverage_95" in scores:
        claimed, observed, subject = COVERAGE, scores["coverage_95"], "95% intervals"
    else:
        claimed, observed, subject = scores["confidence"] or 0.0, scores["accuracy"], "probabilities"
    assert observed is not None
    tolerance = float(2 * np.sqrt(max(claimed * (1 - claimed), 1e-12) / n_rows))
    finding = CalibrationFinding.CALIBRATED
    if observed < claimed - tolerance:
        finding = CalibrationFinding.OVERCONFIDENT
    if observed > claimed + tolerance:
        finding = CalibrationFinding.UNDERCONFIDENT
    return Calibration(finding, subject, claimed, observed, tolerance, n_rows)
