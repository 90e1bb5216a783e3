"""Plots of calibration, of reliability, and of predictions against targets."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from anchored import metrics
from anchored.metrics import PredictsStd
from anchored.metrics.scorers import targets_and_distribution
from anchored.plots.display import BAND_SHADES, LINE, NOTE, REFERENCE, Display, finish

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(eq=False)
class CalibrationDisplay(Display):
    """A plot of the observed against the expected coverage of central intervals.

    For classifiers, see `ReliabilityDisplay`.
    """

    expected: np.ndarray  # (levels,), coverages that the intervals should have
    observed: np.ndarray  # (levels,), fractions of targets in the intervals
    error: float | None = None  # the calibration error, shown in the title

    @classmethod
    def from_estimator(cls, estimator: PredictsStd, X: ArrayLike, y: ArrayLike, **kwargs: Any) -> "CalibrationDisplay":
        """Plot the calibration of the distributions that `estimator` predicts for `X`, with targets `y`.

        `kwargs` are passed to `from_predictions`.
        """
        return cls.from_predictions(_normal_scores(estimator, X, y), 0.0, 1.0, **kwargs)

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        mean: ArrayLike,
        std: ArrayLike,
        *,
        levels: int | ArrayLike = 19,
        ax: "Axes | None" = None,
        **kwargs: Any,
    ) -> "CalibrationDisplay":
        """Plot the calibration of predictive normals.

        Parameters
        ----------
        y_true, mean, std, levels
            As in `metrics.calibration_curve`.
        ax : matplotlib.axes.Axes, optional
            Axes to plot into.
        **kwargs
            Arguments of `plot`.

        Returns
        -------
        CalibrationDisplay
            The display.
        """
        curve = metrics.calibration_curve(y_true, mean, std, levels)
        return cls(*curve, metrics.calibration_error(y_true, mean, std, levels)).plot(ax, **kwargs)

    def plot(self, ax: "Axes | None" = None, **kwargs: Any) -> "CalibrationDisplay":
        """Plot into `ax`, or into new axes, and return the display; `kwargs` are passed to `Axes.plot` for the curve.

        Where the curve is above the diagonal, intervals are too wide; where it is below, they are too narrow.
        """
        ax = self.set_axes(ax)
        ax.plot([0, 1], [0, 1], **REFERENCE, label="perfect")
        style = {"color": LINE, "marker": "o", "markersize": 4, "linewidth": 1.5, "label": "predictions"}
        ax.plot(self.expected, self.observed, **{**style, **kwargs})
        ax.text(0.04, 0.66, "intervals too wide", color=NOTE, transform=ax.transAxes)
        ax.text(0.96, 0.3, "intervals too narrow", color=NOTE, transform=ax.transAxes, ha="right")
        ax.set(xlabel="expected coverage", ylabel="observed coverage", xlim=(0, 1), ylim=(0, 1), aspect="equal")
        if self.error is not None:
            ax.set_title(f"calibration error {self.error:.3f}")
        return finish(self, loc="upper left")


@dataclass(eq=False)
class PITDisplay(Display):
    """A histogram of the probability integral transform (PIT), which is flat if predictive distributions are right."""

    values: np.ndarray  # (targets,), the PIT of each target, in [0, 1]; see `metrics.pit`

    @classmethod
    def from_estimator(cls, estimator: PredictsStd, X: ArrayLike, y: ArrayLike, **kwargs: Any) -> "PITDisplay":
        """Plot the histogram for the distributions that `estimator` predicts for `X`, with targets `y`.

        `kwargs` are passed to `from_predictions`.
        """
        return cls.from_predictions(_normal_scores(estimator, X, y), 0.0, 1.0, **kwargs)

    @classmethod
    def from_predictions(
        cls, y_true: ArrayLike, mean: ArrayLike, std: ArrayLike, *, ax: "Axes | None" = None, **kwargs: Any
    ) -> "PITDisplay":
        """Plot the histogram for predictive normals.

        Parameters
        ----------
        y_true, mean, std
            As in `metrics.pit`.
        ax : matplotlib.axes.Axes, optional
            Axes to plot into.
        **kwargs
            Arguments of `plot`.

        Returns
        -------
        PITDisplay
            The display.
        """
        return cls(metrics.pit(y_true, mean, std).ravel()).plot(ax, **kwargs)

    def plot(self, ax: "Axes | None" = None, *, n_bins: int = 10, **kwargs: Any) -> "PITDisplay":
        """Plot into `ax`, or into new axes, with `n_bins` bins, and return the display.

        `kwargs` are passed to `Axes.hist`. A minimum in the middle means that the predicted uncertainty is too small, a
        maximum in the middle that it is too large, and a slope that the mean is biased.
        """
        ax = self.set_axes(ax)
        style = {"color": BAND_SHADES[0], "edgecolor": "white", "label": "predictions"}
        edges = np.linspace(0, 1, n_bins + 1)
        ax.hist(self.values, edges, density=True, **{**style, **kwargs})  # type: ignore[arg-type]  # it also accepts arrays
        ax.axhline(1, **REFERENCE, label="uniform")
        ax.set(xlabel="probability integral transform", ylabel="density", xlim=(0, 1))
        ax.set_ylim(0, 1.25 * ax.get_ylim()[1])  # room for the legend
        return finish(self, loc="upper right", ncols=2)


@dataclass(eq=False)
class ReliabilityDisplay(Display):
    """A plot of accuracy against confidence, the predicted probability of the most probable class, in bins."""

    confidence: np.ndarray  # (bins,), mean confidence; NaN for bins without rows
    accuracy: np.ndarray  # (bins,), NaN for bins without rows
    share: np.ndarray  # (bins,), fraction of all rows that are in the bin
    error: float | None = None  # the expected calibration error, shown in the title

    @classmethod
    def from_estimator(cls, estimator: Any, X: ArrayLike, y: ArrayLike, **kwargs: Any) -> "ReliabilityDisplay":
        """Plot the reliability of the fitted classifier `estimator` for inputs `X` with classes `y`.

        `kwargs` are passed to `from_predictions`.
        """
        return cls.from_predictions(y, estimator.predict_proba(X), labels=estimator.classes_, **kwargs)

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        probabilities: ArrayLike,
        *,
        n_bins: int = 15,
        labels: ArrayLike | None = None,
        ax: "Axes | None" = None,
        **kwargs: Any,
    ) -> "ReliabilityDisplay":
        """Plot the reliability of class probabilities.

        Parameters
        ----------
        y_true, probabilities, n_bins, labels
            As in `metrics.reliability_curve`.
        ax : matplotlib.axes.Axes, optional
            Axes to plot into.
        **kwargs
            Arguments of `plot`.

        Returns
        -------
        ReliabilityDisplay
            The display.
        """
        curve = metrics.reliability_curve(y_true, probabilities, n_bins, labels=labels)
        error = metrics.expected_calibration_error(y_true, probabilities, n_bins, labels=labels)
        return cls(*curve, error).plot(ax, **kwargs)

    def plot(self, ax: "Axes | None" = None, **kwargs: Any) -> "ReliabilityDisplay":
        """Plot into `ax`, or into new axes, and return the display; `kwargs` are passed to `Axes.bar` for the accuracy.

        The area of a dot shows the fraction of rows in its bin.
        """
        ax = self.set_axes(ax)
        n_bins = len(self.share)
        left = np.arange(n_bins) / n_bins
        style = {"color": BAND_SHADES[1], "edgecolor": "white", "label": "accuracy in the bin"}
        ax.bar(left, np.nan_to_num(self.accuracy), 1 / n_bins, align="edge", **{**style, **kwargs})
        ax.plot([0, 1], [0, 1], **REFERENCE, label="perfect")
        area = 20 + 300 * self.share
        points: dict[str, Any] = {"color": LINE, "alpha": 0.8, "linewidth": 0, "clip_on": False, "zorder": 3}
        ax.scatter(self.confidence, self.accuracy, area, label="share of rows", **points)
        ax.set(xlabel="confidence", ylabel="accuracy", xlim=(0, 1), ylim=(0, 1.05), aspect="equal")
        if self.error is not None:
            ax.set_title(f"expected calibration error {self.error:.3f}")
        return finish(self, loc="upper left")


@dataclass(eq=False)
class PredictionDisplay(Display):
    """A plot of predictions with their intervals against targets, all in units of y."""

    y_true: np.ndarray  # (targets,)
    mean: np.ndarray  # (targets,)
    lower: np.ndarray  # (targets,), lower ends of the intervals
    upper: np.ndarray  # (targets,), upper ends of the intervals
    coverage: float | None = None  # probability of the intervals, shown in the title

    @classmethod
    def from_estimator(
        cls,
        estimator: PredictsStd,
        X: ArrayLike,
        y: ArrayLike,
        *,
        coverage: float = 0.95,
        ax: "Axes | None" = None,
        **kwargs: Any,
    ) -> "PredictionDisplay":
        """Plot the predictions of an estimator against targets.

        Parameters
        ----------
        estimator : regressor
            A fitted regressor with `predict_dist(X)` or `predict(X, return_std=True)`.
        X : (rows, columns) array
            Inputs.
        y : (rows,) or (rows, outputs) array
            Targets.
        coverage : float
            Probability of the central intervals.
        ax : matplotlib.axes.Axes, optional
            Axes to plot into.
        **kwargs
            Arguments of `plot`.

        Returns
        -------
        PredictionDisplay
            The display.
        """
        y_true, distribution = targets_and_distribution(estimator, X, y)
        lower, upper = distribution.interval(coverage)
        return cls(y_true.ravel(), distribution.mean.ravel(), lower.ravel(), upper.ravel(), coverage).plot(ax, **kwargs)

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        mean: ArrayLike,
        std: ArrayLike,
        *,
        coverage: float = 0.95,
        ax: "Axes | None" = None,
        **kwargs: Any,
    ) -> "PredictionDisplay":
        """Plot predictive normals with their central intervals; for other intervals, use the constructor.

        Parameters
        ----------
        y_true : (rows, ...) array
            Targets.
        mean, std : array of the same shape
            Means and standard deviations.
        coverage : float
            Probability of the central intervals.
        ax : matplotlib.axes.Axes, optional
            Axes to plot into.
        **kwargs
            Arguments of `plot`.

        Returns
        -------
        PredictionDisplay
            The display.
        """
        lower, upper = metrics.gaussian_interval(mean, std, coverage)
        return cls(np.ravel(y_true), np.ravel(mean), lower.ravel(), upper.ravel(), coverage).plot(ax, **kwargs)

    def plot(self, ax: "Axes | None" = None, **kwargs: Any) -> "PredictionDisplay":
        """Plot into `ax`, or into new axes, and return the display; `kwargs` are passed to `Axes.plot` for means."""
        covered = metrics.coverage(self.y_true, self.lower, self.upper)
        ax = self.set_axes(ax)
        ax.vlines(self.y_true, self.lower, self.upper, color=BAND_SHADES[0], linewidth=1, label="interval")
        style = {"color": LINE, "marker": "o", "markersize": 4, "linestyle": "none", "label": "mean"}
        ax.plot(self.y_true, self.mean, **{**style, **kwargs})
        ax.axline((self.y_true[0], self.y_true[0]), slope=1, **REFERENCE, zorder=3, label="perfect")
        ax.set(xlabel="truth", ylabel="prediction")
        intervals = "intervals" if self.coverage is None else f"{100 * self.coverage:g}% intervals"
        ax.set_title(f"{intervals} contain {covered:.0%} of targets")
        return finish(self, loc="upper left")


def _normal_scores(estimator: PredictsStd, X: ArrayLike, y: ArrayLike) -> np.ndarray:
    """Return the `metrics.normal_scores` of the targets `y` under the distributions that `estimator` predicts for `X`.

    Comparing them with N(0, 1) is the same as comparing each target with its own distribution.
    """
    return metrics.normal_scores(*targets_and_distribution(estimator, X, y))
