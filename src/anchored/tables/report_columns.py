"""The sections of a report about columns: their permutation importance, and the effect of the most important ones."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from anchored import html_page, plots
from anchored.errors import MissingPackageError
from anchored.html_page import Html
from anchored.plots import as_png
from anchored.storage.text import printable
from anchored.tables import scores
from anchored.tables.model import TableModel
from anchored.tables.partial_dependence import PartialDependence, partial_dependence
from anchored.tables.permutation_importance import Importance
from anchored.tables.rows import RowBatch
from anchored.tables.target import Task

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

N_SHOWN = 4  # columns whose effect is shown
MAX_BARS = 20  # columns shown in the picture of importance
WIDTH = 3.8  # of pictures, in inches; a page shows an inch as 96 pixels
DENSITY = 2  # pixels of a picture for each pixel of the page, for sharp screens
LONGEST_NAME = 16  # characters of a column's name in a picture
LONGEST_LABEL = 12  # characters of a value below a picture
CLOSEST = 0.09  # least distance of two values written below a picture, as a share of its width


def importance_section(model: TableModel, importance: list[Importance]) -> Html:
    """The section with the permutation importance of each column."""
    is_regression = model.target.task == Task.REGRESSION
    uncertainty = "s.d." if is_regression else "entropy"
    picture = drawing(
        lambda ax: _draw_importance(ax, importance, uncertainty),
        "permutation importance of each column for the uncertainty",
        height=1.0 + 0.36 * min(MAX_BARS, len(importance)),
    )
    rows = [[c.column, *map(scores.format_number, (c.uncertainty, c.epistemic, c.error))] for c in importance]
    error = "RMSE" if is_regression else "log loss"
    return html_page.section(
        "Permutation importance",
        html_page.paragraph(
            "The values of one column at a time are shuffled among the rows, so that they no longer carry information. "
            f"The table shows by how much the {uncertainty} of a row and its epistemic part then change (root mean "
            f"square over rows), and by how much the {error} increases."
        ),
        picture,
        html_page.table(["column", f"change of {uncertainty}", "epistemic part", f"{error} increase"], rows),
        name="importance",
    )


def effects_section(model: TableModel, rows: RowBatch, importance: list[Importance]) -> Html:
    """The section with the partial dependence of the prediction on the most important columns; only for numbers."""
    if model.target.task != Task.REGRESSION:
        return Html("")
    effects = [partial_dependence(model, rows, column.column) for column in importance[:N_SHOWN]]
    which = f"the {N_SHOWN} most important columns" if len(importance) > N_SHOWN else "the columns"
    text = (
        f"The pictures are of {which}. Each shows the mean prediction if all rows had the same value of a column. The "
        "band, or the bar, is two epistemic standard deviations on either side. Where it is wide, few rows show what "
        "the effect is."
    )

    def picture(effect: PartialDependence) -> Html:
        return drawing(lambda ax: _draw_effect(ax, effect, model.target.name), f"effect of {effect.column}", height=3.2)

    pictures = html_page.pictures(map(picture, effects))
    return html_page.section("Effects of columns", html_page.paragraph(text), pictures, name="effects")


def _draw_effect(ax: "Axes", effect: PartialDependence, target: str) -> None:
    """Draw the mean prediction and two standard deviations against the values of the column.

    Categories have no order, so they are not joined by a line.
    """
    mean, spread = effect.mean, 2 * effect.std
    labels = [printable(value[:LONGEST_LABEL]) for value in effect.values]
    positions = np.arange(len(labels)) if effect.numbers is None else effect.numbers
    if effect.numbers is None:
        ax.errorbar(positions, mean, spread, fmt="o", color=plots.LINE, ecolor=plots.BAND_SHADES[0], elinewidth=4)
        ax.margins(x=0.15)
        shown = list(range(len(labels)))
    else:
        ax.fill_between(positions, mean - spread, mean + spread, color=plots.BAND_SHADES[0], linewidth=0)
        ax.plot(positions, mean, "o-", color=plots.LINE, markersize=4.5)
        shown = _apart(positions)
    ax.set_xticks(positions[shown], [labels[i] for i in shown], rotation=45, ha="right", parse_math=False)
    ax.set_xlabel(printable(effect.column), parse_math=False)
    ax.set_ylabel(printable(target), parse_math=False)
    ax.spines[["top", "right"]].set_visible(False)


def _apart(positions: np.ndarray) -> list[int]:
    """Return the indices of ascending `positions` whose labels do not overlap: the last one, and others before it."""
    chosen = [len(positions) - 1]
    for i in range(len(positions) - 2, -1, -1):
        if positions[chosen[-1]] - positions[i] >= CLOSEST * np.ptp(positions):
            chosen.append(i)
    return chosen[::-1]


def _draw_importance(ax: "Axes", importance: list[Importance], uncertainty: str) -> None:
    """Draw two bars for each of the most important columns; `uncertainty` is "s.d." or "entropy", for the labels."""
    largest = importance[:MAX_BARS][::-1]
    positions = np.arange(len(largest))
    ax.barh(
        positions + 0.2, [column.uncertainty for column in largest], 0.4, color=plots.LINE, label=f"total {uncertainty}"
    )
    epistemic = [column.epistemic for column in largest]
    ax.barh(positions - 0.2, epistemic, 0.4, color=plots.BAND_SHADES[0], label=f"epistemic {uncertainty}")
    names = [_shortened(printable(column.column)) for column in largest]
    ax.set_yticks(positions, names, parse_math=False)  # a name may hold $
    ax.set_xlabel(f"change of a row's {uncertainty}")
    ax.spines[["top", "right"]].set_visible(False)
    ax.figure.legend(frameon=False, fontsize=9, loc="outside upper center", ncols=2)


def _shortened(name: str) -> str:
    """Return `name`, or its beginning if it is long; the table below the picture has it in full."""
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"


def drawing(on_axes: Callable[["Axes"], object], description: str, caption: str = "", height: float = WIDTH) -> Html:
    """Return the picture that `on_axes` draws on new axes; large numbers are written as in tables.

    `description` and `caption` are passed to `html_page.picture`. The picture is WIDTH inches wide, so that a phone
    shows it whole, and `height` inches high.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingPackageError("reports", "matplotlib", "plot") from error
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    ax = figure.subplots()
    on_axes(ax)
    for axis in (ax.xaxis, ax.yaxis):
        _group_thousands(axis)
    return html_page.picture(as_png(figure, dpi=DENSITY * 96), description, caption, DENSITY)


def _group_thousands(axis: "Axis") -> None:
    """Write the numbers along `axis` with commas, as tables do, if they are large whole numbers."""
    from matplotlib.ticker import FixedLocator

    low, high = sorted(axis.get_view_interval())
    if isinstance(axis.get_major_locator(), FixedLocator) or not 1000 <= max(-low, high) < 1e9 or high - low < 100:
        return
    axis.set_major_formatter(lambda value, position: f"{value:,.0f}".replace("-", "−"))
