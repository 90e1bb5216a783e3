"""The page of planes: points of two to four classes, and maps of a classifier's probabilities and uncertainty."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from bokeh.document import Document
from bokeh.models import ColumnDataSource, FixedTicker, InlineStyleSheet, LinearColorMapper, Model
from bokeh.models.annotations import ColorBar
from bokeh.models.widgets import Div, RadioButtonGroup, Slider
from bokeh.palettes import Cividis256
from bokeh.transform import factor_cmap, factor_mark

from anchored.model.networks import ACTIVATIONS
from anchored.playground import planes
from anchored.playground.code import plane_code
from anchored.playground.look import drawing_tool
from anchored.playground.page import Control, Group, Panel, select
from anchored.playground.planes import N_CLASSES, PRESETS, RANGE, Maps, PlaneFit, PlaneSettings
from anchored.playground.points import MAX_POINTS, Points, checked, parsed, written
from anchored.playground.points_page import Columns, PointsPage

N_GRID = 96  # points of the maps in each direction
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7")  # of the classes (Okabe & Ito 2008)
MARKERS = ("circle", "square", "triangle", "diamond")
NAMES = tuple(str(k + 1) for k in range(N_CLASSES))
SYMBOLS = ("●", "■", "▲", "◆")
INKS = ("#ffffff", "#14181d", "#14181d", "#14181d")  # that can be read on COLOURS
OF_CLASS = """
.bk-btn:nth-child({number}) {{ box-shadow: inset 0 -5px {colour}; padding-bottom: 9px; }}
.bk-btn.bk-active:nth-child({number}) {{ background: {colour} !important; color: {ink} !important; }}
"""


class PlanesPage(PointsPage):
    """The page of planes of one visitor.

    Parameters
    ----------
    document : bokeh.document.Document
        The document of the visitor.
    """

    heading = "Planes"
    title_line = "Where a classifier knows, and where it guesses"
    lead = (
        "Choose a class and click into the first picture to add a point of it; drag a point to move it; click it and "
        "press Backspace, or the button below, to delete it. In the second picture, members disagree where the map is "
        "bright."
    )

    presets = PRESETS

    def __init__(self, document: Document):
        super().__init__(document, PRESETS["Two moons"])
        self.settings = PlaneSettings()
        self.fit: PlaneFit | None = None
        self.source.default_values = {"label": NAMES[0]}
        self._prepared: PlaneSettings | None = None  # settings for which programs have been compiled
        self._make_plots()
        self._make_controls()
        self.computing, self.preparing = self.worker(), self.worker()
        self._build()
        self.listen()
        self.refit(anew=True)

    # Points as columns and as text

    def columns(self, points: Points) -> Columns:
        """Return `points` as columns of a source."""
        labels = [NAMES[int(number)] for number in points[:, 2]]
        return {"x": points[:, 0].copy(), "y": points[:, 1].copy(), "label": labels}

    def checked(self, columns: Columns) -> Points:
        """Return the points in `columns`, (points, 3), or raise a ValueError."""
        labels = columns.get("label")
        if not isinstance(labels, list | np.ndarray) or len(labels) > MAX_POINTS:
            raise ValueError(f"points must have classes, and be at most {MAX_POINTS}")
        numbers = [NAMES.index(name) if isinstance(name, str) and name in NAMES else -1 for name in labels]
        return planes.checked_classes(checked({**columns, "label": numbers}, ("x", "y", "label")))

    def written(self, points: Points) -> str:
        """Return `points` as text, in which classes begin with 1."""
        return written(points + (0, 0, 1))

    def parsed(self, text: str) -> Points:
        """Return the points in `text`, or raise a ValueError."""
        return planes.checked_classes(parsed(text, ("x", "y", "class")) - (0, 0, 1))

    def forget(self) -> None:
        """Let the next fit begin anew."""
        self.fit = None

    def _make_plots(self) -> None:
        """Make the two maps, with the points on both."""
        low, high = RANGE
        place: dict[str, Any] = {"x": low, "y": low, "dw": high - low, "dh": high - low}
        self.mixture = ColumnDataSource({"image": [np.zeros((2, 2), np.uint32)]})
        self.unsure = ColumnDataSource({"image": [np.zeros((2, 2), np.float32)]})
        mapper = LinearColorMapper(palette=Cividis256, low=0.0, high=float(np.log(2)))
        axes = {"x_axis_label": "x", "y_axis_label": "y"}
        self.left, self.right = (self.look.figure(RANGE, RANGE, 430, **axes) for _ in range(2))
        self.left.image_rgba("image", source=self.mixture, **place).glyph.global_alpha = 0.7  # points stand out
        self.right.image("image", source=self.unsure, **place).glyph.color_mapper = mapper
        bar = ColorBar(color_mapper=mapper, width=10, ticker=FixedTicker(ticks=[0, 0.2, 0.4, 0.6]),
                       background_fill_alpha=0.0, padding=4,
                       major_label_text_font_size="13px")  # fmt: skip
        self.right.add_layout(bar, "right")
        self.look.bars.append(bar)
        for plot in (self.left, self.right):
            plot.grid.visible = False
            points = plot.scatter(
                "x", "y", source=self.source, size=12, line_color="#ffffff", line_width=1.5,
                fill_color=factor_cmap("label", COLOURS, NAMES), marker=factor_mark("label", MARKERS, NAMES),
            )  # fmt: skip
            points.nonselection_glyph = points.glyph
            if plot is self.left:
                drawing_tool(plot, [self.look.coloured(points, "point", "line_color")], MAX_POINTS)
            self.look.selectable(points)

    def _make_controls(self) -> None:
        """Make the controls, and register their callbacks."""
        s = self.settings
        labels = [f"{symbol} {name}" for symbol, name in zip(SYMBOLS, NAMES, strict=True)]
        colours = "".join(
            OF_CLASS.format(number=number, colour=colour, ink=ink)
            for number, (colour, ink) in enumerate(zip(COLOURS, INKS, strict=True), 1)
        )
        self.label = RadioButtonGroup(labels=labels, active=0)
        self.class_colours = InlineStyleSheet(css=colours)
        self.sliders = {
            "n_members": Slider(title="Members", start=2, end=50, step=1, value=s.n_members),
            "width": Slider(title="Units of each layer", start=5, end=300, step=5, value=s.width),
            "depth": Slider(title="Hidden layers", start=1, end=3, step=1, value=s.depth),
            "prior_scale": Slider(title="Prior scale", start=0.5, end=8, step=0.25, value=s.prior_scale),
        }
        activations = {name: name for name in sorted(ACTIVATIONS)}
        self.choices = {"activation": select("Activation", activations, s.activation)}
        self.on(self.label, "active", self.label_chosen)

    def _build(self) -> None:
        """Lay the page out."""
        self.code = Div(text="", sizing_mode="stretch_width")
        sliders = self.sliders
        groups = [
            Group("Points", (
                Control("label", self.label, "The class of the points that you add next.", "Class"),
                Control("preset", self.preset, "Replaces all points by a small data set."),
                Control("text", self.text, "One point on each line, x, y, class. Edit them here if you use no mouse."),
                *self.deleting(),
            )),
            Group("Ensemble", (
                Control("n_members", sliders["n_members"], "More networks measure their disagreement more precisely."),
                Control("width", sliders["width"], "How many units each layer has."),
                Control("depth", sliders["depth"], "How many layers lie between input and output."),
                Control("activation", self.choices["activation"], "The bend of a unit: how smooth the borders are."),
            )),
            Group("Prior and training", (
                Control("prior_scale", sliders["prior_scale"], "The larger, the more members differ far from points."),
                Control("anew", self.button("Fit anew", partial(self.refit, anew=True), True),
                        "Trains all members from their anchors, as fit does; after a drag they continue instead."),
            )),
        ]  # fmt: skip
        panels = [
            Panel("Class probabilities", (), ("left",), "The colours of the classes, mixed by their probabilities."),
            Panel("Epistemic uncertainty", (), ("right",), "How much members disagree, in nats."),
        ]  # fmt: skip
        roots: dict[str, Model] = {"left": self.left, "right": self.right, "code": self.code}
        self.build(panels, groups, roots, below=("code",))
        self.label.stylesheets = [*self.label.stylesheets, self.class_colours]

    # What the visitor does

    def label_chosen(self, number: object) -> None:
        """Give further points the class with this number."""
        if number not in range(N_CLASSES):
            raise ValueError(f"the class of the next point must be 1 to {N_CLASSES}")
        self.source.default_values = {"label": NAMES[int(number)]}  # type: ignore[call-overload]

    def settings_changed(self) -> None:
        """Take the settings from the controls, and fit anew."""
        settings = replace(self.settings, **self.values())
        settings.check()
        self.settings = settings
        self.refit(anew=True)

    # Work

    def refit(self, anew: bool = False) -> None:
        """Compute both maps for the present points and settings.

        Members are trained from their anchors if `anew` or if there is no fit yet; otherwise they are trained further.
        """
        points, settings, fit = self._valid_points, self.settings, None if anew else self.fit
        self.preparing.cancel()
        self.numbers.text = ""
        planes.require_two_classes(points)
        self.submit(self.computing, "Computing …", lambda: self._compute(points, settings, fit))

    def _compute(self, points: Points, settings: PlaneSettings, fit: PlaneFit | None) -> Iterator:
        """Yield the action that draws both maps."""
        fit = planes.fit_anew(settings, points) if fit is None else planes.continued(settings, fit, points)
        maps = fit.maps(N_GRID)
        yield lambda: self._draw(fit, maps, settings)

    def _draw(self, fit: PlaneFit, maps: Maps, settings: PlaneSettings) -> None:
        """Draw both maps, and prepare for the next point."""
        self.fit = fit
        self.mixture.data = {"image": [_mixed(maps)]}
        self.unsure.data = {"image": [maps.epistemic.astype(np.float32)]}
        n = fit.model.posterior_.n_members
        how = "that continued from the previous fit" if fit.is_continued else "trained from their anchors"
        self.say(f"Shown: {n} members {how}, on {len(fit.points)} points.")
        self.code.text = plane_code(settings.arguments(), fit.points)
        accuracy = np.mean(fit.model.predict(fit.points[:, :2]) == fit.points[:, 2])
        self.show_numbers((
            (f"{100 * accuracy:.0f} %", "of the points are classified correctly"),
            (f"{maps.epistemic.mean():.2f}", "mean disagreement of members over the map, in nats"),
            (f"{100 * np.mean(maps.probabilities.max(2) < 0.75):.0f} %", "of the map has no class above 75 %"),
        ))  # fmt: skip
        if settings != self._prepared:
            self._prepared = settings
            self.preparing.submit(lambda: _prepare(settings, fit))


def _prepare(settings: PlaneSettings, fit: PlaneFit) -> Iterator:
    """Compile what further points need; yields nothing."""
    planes.prepare(settings, fit)
    yield from ()


def _mixed(maps: Maps) -> np.ndarray:
    """Return the colours of the classes mixed by their probabilities, (points, points) of RGBA in 32 bits."""
    colours = np.array([[int(COLOURS[k][i : i + 2], 16) for i in (1, 3, 5)] for k in maps.classes], float)
    image = np.full((*maps.epistemic.shape, 4), 255, np.uint8)
    image[..., :3] = np.round(maps.probabilities @ colours)
    return image.view(np.uint32)[..., 0]
