"""Plots of predictions, as Display objects in the style of scikit-learn.

A Display holds the arrays to plot. Its method `plot(ax)` draws them, sets the attributes `ax_` and `figure_`, and
returns the Display. The class methods `from_estimator` and `from_predictions` compute the arrays and call `plot`.
"""

from anchored.plots.band_display import BandDisplay
from anchored.plots.calibration_displays import CalibrationDisplay, PITDisplay, PredictionDisplay, ReliabilityDisplay
from anchored.plots.certificate_display import CertificateDisplay
from anchored.plots.display import BAND_SHADES, INK, LINE, MEMBER, REFERENCE, Display, as_png, finish

__all__ = [
    "BAND_SHADES",
    "INK",
    "LINE",
    "MEMBER",
    "REFERENCE",
    "BandDisplay",
    "CalibrationDisplay",
    "CertificateDisplay",
    "Display",
    "PITDisplay",
    "PredictionDisplay",
    "ReliabilityDisplay",
    "as_png",
    "finish",
]
