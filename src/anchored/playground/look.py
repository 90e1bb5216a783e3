"""How pages look: the colours of the light and the dark theme, and figures that use them.

The colours of data are those of Okabe & Ito (2008), which people with any colour vision can tell apart. Members are
also drawn thin, and bands of observations dashed, so that no information depends on colour alone.
"""

from dataclasses import dataclass, field
from pathlib import Path

from bokeh.models import ColumnDataSource, InlineStyleSheet, Model, PointDrawTool, Range1d
from bokeh.models.annotations import ColorBar
from bokeh.models.renderers import GlyphRenderer
from bokeh.plotting import figure

ASSETS = Path(__file__).parent / "assets"
LIGHT = {
    "ink": "#1f2328",
    "soft": "#59636e",
    "grid": "#e4e7eb",
    "frame": "#c3cad1",
    "ensemble": "#0072b2",
    "other": "#b04a00",
    "point": "#1f2328",
    "halo": "#ffffff",
    "second": "#d55e00",
    "third": "#007a5e",
    "fourth": "#a3487f",
    "ground": "#59636e",
}
DARK = {
    "ink": "#e6e9ed",
    "soft": "#a5afba",
    "grid": "#2b323a",
    "frame": "#47515c",
    "ensemble": "#56b4e9",
    "other": "#f0a030",
    "point": "#ffffff",
    "halo": "#14181d",
    "second": "#e8863a",
    "third": "#2fc29a",
    "fourth": "#dd93bd",
    "ground": "#a5afba",
}


def widget_style() -> InlineStyleSheet:
    """Return the style sheet of widgets, which takes its colours from the page."""
    return InlineStyleSheet(css=(ASSETS / "widgets.css").read_text())


@dataclass
class Look:
    """The figures of a page, and which of their colours depend on the theme."""

    figures: list[figure] = field(default_factory=list)
    bars: list[ColorBar] = field(default_factory=list)
    roles: list[tuple[Model, str, str]] = field(default_factory=list)  # a model, its property, a name in LIGHT

    def figure(self, x_range: tuple[float, float], y_range: tuple[float, float], height: int = 380, **kwargs) -> figure:
        """Return a figure of fixed ranges, without tools, as wide as its container."""
        plot = figure(
            x_range=Range1d(start=x_range[0], end=x_range[1]),
            y_range=Range1d(start=y_range[0], end=y_range[1]),
            height=height,
            sizing_mode="stretch_width",
            tools="",
            toolbar_location=None,
            background_fill_alpha=0,
            border_fill_alpha=0,
            min_border_left=44,
            min_border_right=12,
            output_backend="canvas",
            **kwargs,
        )
        plot.axis.minor_tick_line_color = None
        plot.axis.major_label_text_font_size = plot.axis.axis_label_text_font_size = "13px"
        plot.axis.axis_label_text_font_style = "normal"
        self.figures.append(plot)
        return plot

    def coloured(self, renderer: GlyphRenderer, role: str, *names: str) -> GlyphRenderer:
        """Colour the properties `names` of the renderer's glyph for `role` in every theme, and return the renderer."""
        self.roles += [(renderer.glyph, name, role) for name in names]
        renderer.nonselection_glyph = renderer.glyph  # a point that is not selected must not fade
        return renderer

    def selectable(self, renderer: GlyphRenderer) -> GlyphRenderer:
        """Let the selected points of `renderer` be larger, and return the renderer."""
        glyph = renderer.glyph
        larger = glyph.clone(size=1.5 * glyph.size, line_width=2 * glyph.line_width)
        renderer.selection_glyph = larger
        self.roles += [(larger, name, role) for model, name, role in self.roles if model is glyph]
        return renderer

    def apply(self, is_dark: bool) -> None:
        """Set the colours of all figures for the dark theme if `is_dark`, else for the light theme."""
        palette = DARK if is_dark else LIGHT
        for plot in self.figures:
            plot.outline_line_color = palette["frame"]
            plot.grid.grid_line_color = palette["grid"]
            plot.axis.axis_line_color = plot.axis.major_tick_line_color = palette["frame"]
            plot.axis.major_label_text_color = plot.axis.axis_label_text_color = palette["soft"]
        for bar in self.bars:
            bar.major_label_text_color = palette["soft"]
            bar.bar_line_color = bar.major_tick_line_color = palette["frame"]
        for model, name, role in self.roles:
            setattr(model, name, palette[role])


def drawing_tool(plot: figure, renderers: list[GlyphRenderer], most: int) -> PointDrawTool:
    """Return a tool, added to `plot`, by which at most `most` points are added, dragged and deleted (Backspace)."""
    tool = PointDrawTool(renderers=renderers, num_objects=most)
    plot.add_tools(tool)
    plot.toolbar.active_tap = plot.toolbar.active_drag = tool
    return tool


def empty(*names: str) -> ColumnDataSource:
    """Return a source with empty columns."""
    return ColumnDataSource({name: [] for name in names})
