"""The base class of displays, and the colours and functions that all plots share."""

import io
from typing import TYPE_CHECKING, Any, TypeVar

from anchored.errors import MissingPackageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

LINE = "#08519c"  # colour of the mean, or of the main curve
BAND_SHADES = ("#9ecae1", "#c6dbef", "#e4eef8")  # colours of bands of 1, 2 and 3 standard deviations
MEMBER = "#4a90c2"  # colour of members
INK = "#222222"  # colour of data
NOTE = "#555555"  # colour of words in a plot
# Style of the line on which perfect predictions would lie
REFERENCE: dict[str, Any] = {"color": "#888888", "linestyle": "--", "linewidth": 1}


_Display = TypeVar("_Display", bound="Display")


class Display:
    """Base class of displays.

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
        The axes of the last plot.
    figure_ : matplotlib.figure.Figure
        The figure of `ax_`.
    """

    ax_: "Axes"
    figure_: "Figure | SubFigure"

    def set_axes(self, ax: "Axes | None") -> "Axes":
        """Set `ax_` and `figure_` to `ax` and its figure, or to new ones if `ax` is None, and return the axes."""
        self.ax_ = _new_axes() if ax is None else ax
        self.figure_ = self.ax_.figure
        return self.ax_


def _new_axes() -> "Axes":
    """Return new axes in a new figure."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise MissingPackageError("plots", "matplotlib", "plot") from error
    return pyplot.subplots(layout="constrained")[1]


def as_png(figure: "Figure", dpi: int = 110) -> bytes:
    """Return `figure` as the bytes of a PNG file with `dpi` dots per inch, and close the figure."""
    from matplotlib import pyplot

    stream = io.BytesIO()
    figure.savefig(stream, dpi=dpi)
    pyplot.close(figure)
    return stream.getvalue()


def finish(display: _Display, **legend: Any) -> _Display:
    """Remove the top and right spines of the axes of `display`, add a legend, and return `display`.

    `legend` are arguments of `Axes.legend`.
    """
    display.ax_.spines[["top", "right"]].set_visible(False)
    display.ax_.legend(fontsize=9, framealpha=0.8, edgecolor="none", **legend)
    return display
