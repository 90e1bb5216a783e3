"""Scores of predictions against known targets: their error, and whether their uncertainty is calibrated."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from sklearn.metrics import accuracy_score, mean_absolute_error, r2_score

from anchored import metrics
from anchored.estimators.guarantee import Guarantee
from anchored.model.predictive import CategoricalPredictive, Predictive
from anchored.storage.headers import Header
from anchored.storage.json_values import JsonObject

Scores = dict[str, float | None]  # by the names in REGRESSION or CLASSIFICATION; None if a score is undefined
COVERAGE = 0.95  # probability of the intervals that are scored
MIN_DEPARTURE = 0.02  # smallest difference from the expected fraction of rows that counts as miscalibration
# The label of each score, and its format; an empty format means four significant digits.
LABELS = {
    "rows": ("rows", "{:,}"),
    "rmse": ("RMSE", ""),
    "mae": ("mean absolute error", ""),
    "target_std": ("s.d. of the target", ""),
    "r2": ("R²", "{:.3f}"),
    "nll": ("negative log-likelihood", ""),
    "crps": ("CRPS", ""),
    "coverage_95": ("coverage of 95% intervals", "{:.1%}"),
    "interval_width_95": ("mean width of 95% intervals", ""),
    "accuracy": ("accuracy", "{:.1%}"),
    "most_common_class": ("share of the most common class", "{:.1%}"),
    "log_loss": ("log loss", ""),
    "brier": ("Brier score", ""),
    "confidence": ("mean confidence", "{:.1%}"),
    "calibration_error": ("calibration error", "{:.3f}"),
}

REGRESSION = (
    "rows", "rmse", "mae", "target_std", "r2", "nll", "crps", "coverage_95", "interval_width_95", "calibration_error",
)  # fmt: skip
CLASSIFICATION = ("rows", "accuracy", "most_common_class", "log_loss", "brier", "confidence", "calibration_error")


def from_json(header: Header, is_classification: bool) -> Scores:
    """Return the scores stored in `header`, those in CLASSIFICATION if `is_classification`, else in REGRESSION.

    An invalid field raises a StorageError that names it.
    """
    names = CLASSIFICATION if is_classification else REGRESSION
    header.require_only(names)
    scores: Scores = {name: header.typed(name, float | None if name == "r2" else float) for name in names}
    return scores | {"rows": header.whole("rows", 1)}


def score(y: np.ndarray, predictive: Predictive | CategoricalPredictive, classes: np.ndarray | None = None) -> Scores:
    """Score predictions.

    Parameters
    ----------
    y : (rows,)
        Targets.
    predictive : Predictive or CategoricalPredictive
        The predictive distribution of the rows.
    classes : (classes,) or None
        The labels, in the order of the predicted probabilities; None for regression.

    Returns
    -------
    Scores
        Scores by name. Errors, widths and the CRPS are in units of the target; the negative log-likelihood and the log
        loss are in nats per row.
    """
    if isinstance(predictive, Predictive):
        return _regression_scores(y, predictive)
    assert classes is not None
    return _classification_scores(y, predictive.probabilities, classes)


def _regression_scores(y: np.ndarray, predictive: Predictive) -> Scores:
    """Return the scores in REGRESSION."""
    mean = predictive.mean
    lower, upper = predictive.interval(COVERAGE)
    return {
        "rows": len(y),
        "rmse": metrics.root_mean_squared_error(y, mean),
        "mae": float(mean_absolute_error(y, mean)),
        "target_std": float(np.std(y)),
        "r2": float(r2_score(y, mean)) if len(y) > 1 and np.ptp(y) > 0 else None,
        "nll": metrics.nll(y, predictive),
        "crps": metrics.crps(y, predictive),
        "coverage_95": metrics.coverage(y, lower, upper),
        "interval_width_95": metrics.interval_width(lower, upper),
        # Computed from normal scores: `calibration_error` assumes normal distributions, `predictive` may be skewed
        "calibration_error": metrics.calibration_error(metrics.normal_scores(y, predictive), 0.0, 1.0),
    }


def _classification_scores(y: np.ndarray, probabilities: np.ndarray, classes: np.ndarray) -> Scores:
    """Return the scores in CLASSIFICATION."""
    return {
        "rows": len(y),
        "accuracy": float(accuracy_score(y, classes[probabilities.argmax(axis=1)])),
        "most_common_class": float(np.unique(y, return_counts=True)[1].max() / len(y)),
        "log_loss": float(metrics.log_loss(y, probabilities, labels=classes)),
        "brier": metrics.brier_score(y, probabilities, labels=classes),
        "confidence": float(probabilities.max(axis=1).mean()),
        "calibration_error": metrics.expected_calibration_error(y, probabilities, labels=classes),
    }


def empirical_coverage(
    y: np.ndarray,
    predictive: Predictive | CategoricalPredictive,
    guarantee: Guarantee,
    classes: np.ndarray | None = None,
) -> float:
    """Return the share of the rows whose target is in the guaranteed interval, or whose class is in the guaranteed set.

    Parameters
    ----------
    y, predictive, classes
        As in `score`.
    guarantee : Guarantee
        What the model guarantees.
    """
    if isinstance(predictive, Predictive):
        return metrics.coverage(y, *guarantee.interval(predictive))
    assert classes is not None
    return float(guarantee.classes(predictive)[np.arange(len(y)), np.searchsorted(classes, y)].mean())


def formatted(scores: Scores) -> list[tuple[str, str]]:
    """Return the label of each of `scores` that is defined, and its value as text."""
    known = [(LABELS[name], value) for name, value in scores.items() if value is not None]
    return [(label, form.format(value) if form else format_number(value)) for (label, form), value in known]


def format_number(value: float) -> str:
    """Return `value` with four significant digits, and with an exponent only if it is very small or large."""
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
        How the uncertainty compares with the errors.
    subject : str
        What was evaluated, "95% intervals" or "probabilities".
    expected : float
        The fraction of rows that should be covered by their interval, or classified correctly.
    observed : float
        The fraction of rows that are covered, or classified correctly.
    tolerance : float
        Two standard errors of `observed`, at least MIN_DEPARTURE; a larger difference from `expected` counts as
        miscalibration.
    n_rows : int
        Number of rows evaluated.
    """

    finding: CalibrationFinding
    subject: str
    expected: float
    observed: float
    tolerance: float
    n_rows: int

    def to_json(self) -> JsonObject:
        """Return the finding, and the sentence that states it."""
        return {"finding": str(self.finding), "summary": str(self)}

    def __str__(self) -> str:
        numbers = f"{self.observed:.1%} observed, {self.expected:.1%} ± {self.tolerance:.1%} expected"
        return f"the {self.subject} are {self.finding}: {numbers} for {self.n_rows:,} rows"


def calibration(scores: Scores) -> Calibration:
    """Return the calibration that `scores` show: the coverage of 95% intervals, or the accuracy and mean confidence."""
    n_rows = int(scores["rows"] or 0)
    if "coverage_95" in scores:
        expected, observed, subject = COVERAGE, scores["coverage_95"], "95% intervals"
    else:
        expected, observed, subject = scores["confidence"] or 0.0, scores["accuracy"], "probabilities"
    assert observed is not None
    tolerance = max(MIN_DEPARTURE, float(2 * np.sqrt(expected * (1 - expected) / n_rows)))
    finding = CalibrationFinding.CALIBRATED
    if observed < expected - tolerance:
        finding = CalibrationFinding.OVERCONFIDENT
    if observed > expected + tolerance:
        finding = CalibrationFinding.UNDERCONFIDENT
    return Calibration(finding, subject, expected, observed, tolerance, n_rows)
