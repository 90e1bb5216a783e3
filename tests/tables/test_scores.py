"""Scores: whether the uncertainty is calibrated, to within what chance does to so many rows."""

import pytest

from anchored.tables import scores
from anchored.tables.scores import CalibrationFinding


@pytest.mark.parametrize(
    ("found", "finding"),
    [
        ({"rows": 50, "coverage_95": 0.90}, CalibrationFinding.CALIBRATED),
        ({"rows": 5000, "coverage_95": 0.90}, CalibrationFinding.OVERCONFIDENT),
        ({"rows": 5000, "coverage_95": 0.99}, CalibrationFinding.UNDERCONFIDENT),
        ({"rows": 50, "coverage_95": 0.99}, CalibrationFinding.CALIBRATED),
        ({"rows": 1_000_000, "coverage_95": 0.947}, CalibrationFinding.CALIBRATED),  # significant, and meaningless
        ({"rows": 1000, "accuracy": 0.8, "confidence": 0.9}, CalibrationFinding.OVERCONFIDENT),
    ],
)
def test_calibration_allows_for_chance(found, finding):
    assert scores.calibration(found).finding == finding
