"""Pictures of predictions: Display objects, as in scikit-learn.

A Display holds arrays. `plot(ax)` only draws them, leaves `ax_` and `figure_` behind, and returns the Display.
`from_estimator` and `from_predictions` compute the arrays and draw at once.
"""

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from anchored import metrics
from anchored.metrics import PredictsNormals
from anchored.types import RandomState

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

LINE = "#08519c"
BAND_SHADES = ("#9ecae1", "#c6dbef", "#e4eef8")  # 1, 2 and 3 standard deviations
MEMBER = "#4a90c2"
INK = "#222222"
REFERENCE: dict[str, Any] = {"color": "#888888", "linestyle": "--", "linewidth": 1}


_Drawn = TypeVar("_Drawn", bound="Display")


class Display:
    """The axes a Display has drawn into."""

    ax_: "Axes"
    figure_: "Figure | SubFigure"

    def begin(self, ax: "Axes | None") -> "Axes":
        """The axes to draw into: those given, or new ones."""
        self.ax_ = _new_axes() if ax is None else ax
        self.figure_ = self.ax_.figure
        return self.ax_


@dataclass(eq=False)
class BandDisplay(Display):
    """A function of one input: its mean, and bands of one to three standard deviations.

    Examples
    --------
    >>> from sklearn.gaussian_process import GaussianProcessRegressor
    >>> from anchored.plots import BandDisplay
    >>> model = GaussianProcessRegressor(alpha=0.1).fit([[0.0], [1.0]], [0.0, 1.0])
    >>> display = BandDisplay.from_estimator(model, [[0.0], [1.0]], [0.0, 1.0], limits=(-2, 3))
    >>> display.mean.shape
    (200,)
    """

    x: np.ndarray  # (points,)
    mean: np.ndarray  # (points,)
    std: np.ndarray  # (points,)
    members: np.ndarray | None = None  # (members, points)
    x_data: np.ndarray | None = None  # (rows,)
    y_data: np.ndarray | None = None  # (rows,)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike,
        *,
        limits: tuple[float, float] | None = None,
        n_points: int = 200,
        n_members: int = 0,
        random_state: RandomState = None,
        ax: "Axes | None" = None,
        **kwargs: Any,
    ) -> "BandDisplay":
        """Predict on an even grid: within `limits`, or a third of the data's range beyond them on either side.

        `n_members` functions from `estimator.sample_functions` are drawn too. X has one column.
        """
        x_data, y_data = np.asarray(X, np.float64), np.asarray(y, np.float64)
        if x_data.ndim != 2 or x_data.shape[1] != 1 or y_data.size != len(x_data):
            raise ValueError(f"X must have one column and y one target a row, got {x_data.shape} and {y_data.shape}")
        margin = (x_data.max() - x_data.min()) / 3
        low, high = (x_data.min() - margin, x_data.max() + margin) if limits is None else limits
        grid = np.linspace(low, high, n_points)[:, None]
        # A frame where X is one, so that the estimator finds the column it knows.
        mean, std = estimator.predict(type(X)(grid, columns=X.columns) if hasattr(X, "iloc") else grid, return_std=True)
        functions = estimator.sample_functions(n_members, random_state) if n_members else []
        members = np.stack([np.ravel(function(grid)) for function in functions]) if functions else None
        return cls.from_predictions(
            grid[:, 0], mean, std, members=members, x_data=x_data, y_data=y_data, ax=ax, **kwargs
        )

    @classmethod
    def from_predictions(
        cls,
        x: ArrayLike,
        mean: ArrayLike,
        std: ArrayLike,
        *,
        members: ArrayLike | None = None,
        x_data: ArrayLike | None = None,
        y_data: ArrayLike | None = None,
        ax: "Axes | None" = None,
        **kwargs: Any,
    ) -> "BandDisplay":
        """Of predictions at `x`, in ascending order; `members` are (members, points)."""
        data = (None if values is None else np.ravel(values) for values in (x_data, y_data))
        functions = None if members is None else np.asarray(members)
        return cls(np.ravel(x), np.ravel(mean), np.ravel(std), functions, *data).plot(ax, **kwargs)

    def plot(self, ax: "Axes | None" = None, *, n_bands: int = 3, **kwargs: Any) -> "BandDisplay":
        """Draw; `kwargs` go to the line of the mean."""
        if n_bands not in (0, 1, 2, 3):
            raise ValueError(f"n_bands must be 0, 1, 2 or 3, got {n_bands!r}")
        ax = self.begin(ax)
        for width in range(n_bands, 0, -1):  # the widest first, so that narrower ones lie on top
            label = f"± {width} standard deviation{'s' if width > 1 else ''}"
            lower, upper = self.mean - width * self.std, self.mean + width * self.std
            ax.fill_between(self.x, lower, upper, color=BAND_SHADES[width - 1], linewidth=0, label=label)
        if self.members is not None:
            lines = ax.plot(self.x, self.members.T, color=MEMBER, linewidth=0.7, alpha=0.8)
            lines[0].set_label("members")
        ax.plot(self.x, self.mean, **{"color": LINE, "linewidth": 2, "label": "mean", **kwargs})
        if self.x_data is not None:
            y_data = cast(np.ndarray, self.y_data)  # given with x_data
            ax.plot(self.x_data, y_data, "o", color=INK, markersize=4, markeredgewidth=0, label="data")
        ax.set(xlabel="x", ylabel="y", xlim=(self.x[0], self.x[-1]))
        return finish(self, reverse=True)


@dataclass(eq=False)
class CalibrationDisplay(Display):
    """How many targets central intervals cover, against how many they should."""

    expected: np.ndarray  # (levels,)
    observed: np.ndarray  # (levels,)
    error: float | None = None  # shown in the title

    @classmethod
    def from_estimator(
        cls, estimator: PredictsNormals, X: ArrayLike, y: ArrayLike, **kwargs: Any
    ) -> "CalibrationDisplay":
        """Of an estimator with `predict(X, return_std=True)`; `kwargs` as in `from_predictions`."""
        return cls.from_predictions(y, *estimator.predict(X, return_std=True), **kwargs)

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
        """Of normals; `levels` as in `metrics.calibration_curve`."""
        curve = metrics.calibration_curve(y_true, mean, std, levels)
        return cls(*curve, metrics.calibration_error(y_true, mean, std, levels)).plot(ax, **kwargs)

    def plot(self, ax: "Axes | None" = None, **kwargs: Any) -> "CalibrationDisplay":
        """Draw; `kwargs` go to the curve. Above the diagonal intervals are too wide, below too narrow."""
        ax = self.begin(ax)
        ax.plot([0, 1], [0, 1], **REFERENCE, label="perfect")
        style = {"color": LINE, "marker": "o", "markersize": 4, "linewidth": 1.5, "label": "predictions"}
        ax.plot(self.expected, self.observed, **{**style, **kwargs})
        ax.text(0.04, 0.66, "intervals too wide", color=REFERENCE["color"], transform=ax.transAxes)
        ax.text(0.96, 0.3, "intervals too narrow", color=REFERENCE["color"], transform=ax.transAxes, ha="right")
        ax.set(xlabel="expected coverage", ylabel="observed coverage", xlim=(0, 1), ylim=(0, 1), aspect="equal")
        if self.error is not None:
            ax.set_title(f"calibration error {self.error:.3f}")
        return finish(self, loc="upper left")


@dataclass(eq=False)
class PITDisplay(Display):
    """Histogram of the probability integral transform: flat where the predictive distributions are right."""

    values: np.ndarray  # (targets,), in [0, 1]

    @classmethod
    def from_estimator(cls, estimator: PredictsNormals, X: ArrayLike, y: ArrayLike, **kwargs: Any) -> "PITDisplay":
        """Of an estimator with `predict(X, return_std=True)`; `kwargs` as in `plot`."""
        return cls.from_predictions(y, *estimator.predict(X, return_std=True), **kwargs)

    @classmethod
    def from_predictions(
        cls, y_true: ArrayLike, mean: ArrayLike, std: ArrayLike, *, ax: "Axes | None" = None, **kwargs: Any
    ) -> "PITDisplay":
        """Of normals."""
        return cls(metrics.pit(y_true, mean, std).ravel()).plot(ax, **kwargs)

    def plot(self, ax: "Axes | None" = None, *, n_bins: int = 10, **kwargs: Any) -> "PITDisplay":
        """Draw; `kwargs` go to the bars. A valley shows too little uncertainty, a hill too much, a slope a bias."""
        ax = self.begin(ax)
        style = {"color": BAND_SHADES[0], "edgecolor": "white", "label": "predictions"}
        edges = np.linspace(0, 1, n_bins + 1)
        ax.hist(self.values, edges, density=True, **{**style, **kwargs})  # type: ignore[arg-type]  # arrays do, too
        ax.axhline(1, **REFERENCE, label="uniform")
        ax.set(xlabel="probability integral transform", ylabel="density", xlim=(0, 1))
        ax.set_ylim(0, 1.25 * ax.get_ylim()[1])  # room for the legend
        return finish(self, loc="upper right", ncols=2)


@dataclass(eq=False)
class ReliabilityDisplay(Display):
    """How often the most probable class is right, against how sure of it the classifier was."""

    confidence: np.ndarray  # (bins,), NaN where no row falls
    accuracy: np.ndarray  # (bins,), NaN where no row falls
    share: np.ndarray  # (bins,), of all rows
    error: float | None = None  # shown in the title

    @classmethod
    def from_estimator(cls, estimator: Any, X: ArrayLike, y: ArrayLike, **kwargs: Any) -> "ReliabilityDisplay":
        """Of a classifier; `kwargs` as in `from_predictions`."""
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
        """Of probabilities (rows, classes); `labels` are those of the columns, sorted."""
        curve = metrics.reliability_curve(y_true, probabilities, n_bins, labels=labels)
        error = metrics.expected_calibration_error(y_true, probabilities, n_bins, labels=labels)
        return cls(*curve, error).plot(ax, **kwargs)

    def plot(self, ax: "Axes | None" = None, **kwargs: Any) -> "ReliabilityDisplay":
        """Draw; `kwargs` go to the bars of accuracy. The area of a dot is its bin's share of the rows."""
        ax = self.begin(ax)
        n_bins = len(self.share)
        left = np.arange(n_bins) / n_bins
        style = {"color": BAND_SHADES[1], "edgecolor": "white", "label": "accuracy in the bin"}
        ax.bar(left, np.nan_to_num(self.accuracy), 1 / n_bins, align="edge", **{**style, **kwargs})
        ax.plot([0, 1], [0, 1], **REFERENCE, label="perfect")
        area = 20 + 300 * self.share
        ax.scatter(self.confidence, self.accuracy, area, color=LINE, alpha=0.8, linewidth=0, label="share of rows")
        ax.set(xlabel="confidence", ylabel="accuracy", xlim=(0, 1), ylim=(0, 1.05), aspect="equal")
        if self.error is not None:
            ax.set_title(f"expected calibration error {self.error:.3f}")
        return finish(self, loc="upper left")


@dataclass(eq=False)
class PredictionDisplay(Display):
    """Predictions against the truth, with their intervals."""

    y_true: np.ndarray  # (targets,)
    mean: np.ndarray  # (targets,)
    lower: np.ndarray  # (targets,)
    upper: np.ndarray  # (targets,)
    coverage: float | None = None  # that the intervals claim, shown in the title

    @classmethod
    def from_estimator(
        cls, estimator: PredictsNormals, X: ArrayLike, y: ArrayLike, **kwargs: Any
    ) -> "PredictionDisplay":
        """Of an estimator with `predict(X, return_std=True)`; `kwargs` as in `from_predictions`."""
        return cls.from_predictions(y, *estimator.predict(X, return_std=True), **kwargs)

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
        """Of normals, with their central intervals. For other intervals, call the constructor."""
        lower, upper = metrics.gaussian_interval(mean, std, coverage)
        return cls(np.ravel(y_true), np.ravel(mean), lower.ravel(), upper.ravel(), coverage).plot(ax, **kwargs)

    def plot(self, ax: "Axes | None" = None, **kwargs: Any) -> "PredictionDisplay":
        """Draw; `kwargs` go to the points."""
        covered = metrics.coverage(self.y_true, self.lower, self.upper)
        ax = self.begin(ax)
        ax.vlines(self.y_true, self.lower, self.upper, color=BAND_SHADES[0], linewidth=1, label="interval")
        style = {"color": LINE, "marker": "o", "markersize": 4, "linestyle": "none", "label": "mean"}
        ax.plot(self.y_true, self.mean, **{**style, **kwargs})
        ax.axline((self.y_true[0], self.y_true[0]), slope=1, **REFERENCE, zorder=3, label="perfect")
        ax.set(xlabel="truth", ylabel="prediction")
        claim = "intervals" if self.coverage is None else f"{100 * self.coverage:g}% intervals"
        ax.set_title(f"{claim} hold {covered:.0%} of targets")
        return finish(self, loc="upper left")


@dataclass(eq=False)
class CertificateDisplay(Display):
    """Standard deviations of an ensemble against those of the exact posterior, point by point.

    The band is where 95 % of the standard deviations of as many perfect draws lie; crosses are what theory predicts
    for this way of anchoring; the colour of a point is how far its mean is off, in posterior standard deviations.
    """

    exact_std: np.ndarray  # (points,)
    std: np.ndarray  # (points,)
    mean_gap: np.ndarray  # (points,)
    n_members: int
    finding: str
    predicted_std: np.ndarray | None = None  # (points,)

    @classmethod
    def from_certificate(cls, certificate: Any, *, ax: "Axes | None" = None, **kwargs: Any) -> "CertificateDisplay":
        """Of what `anchored.certify` returns."""
        c = certificate
        gap = np.ravel((c.mean - c.exact_mean) / c.exact_std)
        predicted = None if c.predicted_std is None else np.ravel(c.predicted_std)
        display = cls(np.ravel(c.exact_std), np.ravel(c.std), gap, c.n_members, c.finding, predicted)
        return display.plot(ax, **kwargs)

    def plot(self, ax: "Axes | None" = None, **kwargs: Any) -> "CertificateDisplay":
        """Draw; `kwargs` go to the points."""
        ax = self.begin(ax)
        largest = 1.05 * max(self.exact_std.max(), self.std.max())
        ends = np.array([0.0, largest])
        if self.n_members > 1:
            freedom = self.n_members - 1
            low, high = np.sqrt(stats.chi2.ppf([0.025, 0.975], freedom) / freedom)
            label = f"95 % of s.d. of {self.n_members} perfect draws"
            ax.fill_between(ends, low * ends, high * ends, color=BAND_SHADES[2], linewidth=0, label=label)
        ax.plot(ends, ends, **REFERENCE, label="exact")
        if self.predicted_std is not None:
            ax.plot(self.exact_std, self.predicted_std, "+", color="#d9722e", markersize=4, alpha=0.6, label="theory")
        style = {"c": np.abs(self.mean_gap), "s": 14, "cmap": "viridis_r", "vmin": 0, "label": "ensemble"}
        points = ax.scatter(self.exact_std, self.std, **{**style, **kwargs})
        self.figure_.colorbar(points, ax=ax, label="mean off by, posterior s.d.")
        ax.set(
            xlabel="posterior s.d.", ylabel="ensemble s.d.", xlim=(0, 1.05 * self.exact_std.max()), ylim=(0, largest)
        )
        ax.set_title(f"{self.finding}: s.d. ratio {np.mean(self.std / self.exact_std):.2f}")
        return finish(self, loc="upper left")


def _new_axes() -> "Axes":
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install 'anchored[plot]'") from error
    return pyplot.subplots(layout="constrained")[1]


def as_png(figure: "Figure", dpi: int = 110) -> bytes:
    """The picture as a PNG file; the figure is closed."""
    from matplotlib import pyplot

    stream = io.BytesIO()
    figure.savefig(stream, dpi=dpi)
    pyplot.close(figure)
    return stream.getvalue()


def finish(display: _Drawn, **legend: Any) -> _Drawn:
    """What all pictures share: no box, and a legend."""
    display.ax_.spines[["top", "right"]].set_visible(False)
    display.ax_.legend(frameon=False, fontsize="small", **legend)
    return display
