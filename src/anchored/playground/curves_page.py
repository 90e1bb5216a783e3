"""The page of curves: an ensemble fitted to points that visitors place and drag, beside another posterior."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from threading import Event

import numpy as np
from bokeh.document import Document
from bokeh.models import ColumnDataSource, CustomJS, Model
from bokeh.models.widgets import Button, CheckboxGroup, Div, RadioButtonGroup, Slider
from bokeh.plotting import figure

from anchored.model.networks import ACTIVATIONS
from anchored.playground import curves
from anchored.playground.code import curve_code
from anchored.playground.curves import Curve, CurveFit, CurveSettings
from anchored.playground.look import ASSETS, drawing_tool, empty
from anchored.playground.page import Control, Group, Page, Panel, nothing, select
from anchored.playground.points import MAX_POINTS, PRESETS, X_RANGE, Y_RANGE, Points, checked, parsed, written
from anchored.playground.points_page import Columns, PointsPage

N_GRID = 161  # inputs at which curves are drawn
SHOWN = ("Members", "Bands of the function", "Band of observations")
SECONDS_PER_FRAME = 0.04  # while a training is watched
ANCHORINGS = {"prior": "from the prior", "randomized": "randomized targets", "kappa": "κ × the prior"}
TRAINABLE = {"all": "all, by descent", "last_layer": "the last, in closed form"}
OTHERS = {  # names of what the second picture can show
    "process": "exact Gaussian process",
    "tangent process": "exact process of the tangent kernel",
    **{name: name for name in curves.METHODS},
    "randomized targets": "ensemble of randomized targets",
}
IF_KAPPA = 'kappa.disabled = this.value != "kappa"'
IF_PAUSED = "step.disabled = this.active != 1"
LEGEND = (("line", "mean"), ("band", "1 and 2 s.d."), ("dash", "2 s.d. with noise"))


class Plot:
    """One panel: a curve with its bands and functions, and the points."""

    def __init__(self, page: Page, plot: figure, role: str, points: ColumnDataSource):
        self.figure = plot
        self.bands = empty("x", "mean", "low1", "high1", "low2", "high2", "low", "high")
        self.functions = empty("x", "y")
        coloured = page.look.coloured
        two = coloured(plot.varea("x", "low2", "high2", source=self.bands, fill_alpha=0.16), role, "fill_color")
        one = coloured(plot.varea("x", "low1", "high1", source=self.bands, fill_alpha=0.22), role, "fill_color")
        lines = plot.line("x", "y", source=self.functions, line_width=1, line_alpha=0.6)
        edges = [
            plot.line("x", name, source=self.bands, line_width=1.5, line_dash="dashed") for name in ("low", "high")
        ]
        for renderer in (lines, *edges):
            coloured(renderer, role, "line_color")
        coloured(plot.line("x", "mean", source=self.bands, line_width=3), role, "line_color")
        self.points = plot.scatter("x", "y", source=points, size=11, line_width=2)
        coloured(self.points, "point", "fill_color")
        coloured(self.points, "halo", "line_color")
        page.look.selectable(self.points)
        self.parts = ((lines,), (two, one), tuple(edges))

    def draw(self, grid: np.ndarray, curve: Curve) -> None:
        """Draw `curve` at the inputs `grid`."""
        mean, std, total = curve.mean, curve.std, curve.total_std
        self.bands.data = {
            "x": grid, "mean": mean, "low1": mean - std, "high1": mean + std, "low2": mean - 2 * std,
            "high2": mean + 2 * std, "low": mean - 2 * total, "high": mean + 2 * total,
        }  # fmt: skip
        gaps = np.full((len(curve.functions), 1), np.nan)  # a line for each function, with gaps between them
        self.functions.data = {
            "x": np.hstack([np.tile(grid, (len(gaps), 1)), gaps]).ravel(),
            "y": np.hstack([curve.functions, gaps]).ravel(),
        }

    def show(self, active: list[int]) -> None:
        """Show the parts whose numbers in SHOWN are `active`."""
        for i, part in enumerate(self.parts):
            for renderer in part:
                renderer.visible = i in active


class CurvesPage(PointsPage):
    """The page of curves of one visitor.

    Parameters
    ----------
    document : bokeh.document.Document
        The document of the visitor.
    start : CurveFit, optional
        A fit to begin with, such as a user's own model; by default the six points of figure 1.
    """

    heading = "Curves"
    title_line = "What networks predict between your points"
    lead = (
        "Click into the first picture to add a point; drag a point to move it; click it and press Backspace, or the "
        "button below, to delete it. The first picture shows an anchored ensemble; the second what you compare it "
        "with, at first the Gaussian process that it approximates, computed exactly."
    )

    presets = PRESETS

    def __init__(self, document: Document, start: CurveFit | None = None):
        points = PRESETS["Six points"] if start is None else start.points
        super().__init__(document, points)
        self.grid = _grid(points if start is not None else np.zeros((0, 2)))
        self.settings, self.fit, self.start = CurveSettings(), start, start
        self._make_plots(points if start is not None else np.zeros((0, 2)))
        self._make_controls()
        self.computing, self.certifying = self.worker(), self.worker()
        self._is_paused, self._next_frame = Event(), Event()
        # The settings, and the number of points // 8, for which programs have been compiled
        self._prepared: tuple[CurveSettings, int] | None = None
        self._build()
        self.listen()
        self.refit(anew=start is None)

    # Points as columns and as text

    def columns(self, points: Points) -> Columns:
        """Return `points` as columns of a source."""
        return {"x": points[:, 0].copy(), "y": points[:, 1].copy()}

    def checked(self, columns: Columns) -> Points:
        """Return the points in `columns`, or raise a ValueError."""
        return checked(columns)

    def written(self, points: Points) -> str:
        """Return `points` as text."""
        return written(points)

    def parsed(self, text: str) -> Points:
        """Return the points in `text`, or raise a ValueError."""
        return parsed(text)

    def forget(self) -> None:
        """Let the next fit begin anew."""
        self.fit = None

    # The parts of the page

    def _make_plots(self, points: Points) -> None:
        """Make the two pictures, which show at least the ranges that `points` need."""
        x_range, y_range = (self.grid[0], self.grid[-1]), _y_range(points)
        self.left, self.right = (
            Plot(self, self.look.figure(x_range, y_range, x_axis_label="x", y_axis_label="y"), role, self.source)
            for role in ("ensemble", "other")
        )
        self.right.figure.x_range, self.right.figure.y_range = self.left.figure.x_range, self.left.figure.y_range
        drawing_tool(self.left.figure, [self.left.points], MAX_POINTS)

    def _make_controls(self) -> None:
        """Make the controls, and register their callbacks."""
        s = self.settings
        self.sliders = {
            "n_members": Slider(title="Members", start=2, end=50, step=1, value=s.n_members),
            "width": Slider(title="Units of each layer", start=5, end=300, step=5, value=s.width),
            "depth": Slider(title="Hidden layers", start=1, end=3, step=1, value=s.depth),
            "noise": Slider(title="Noise", start=0.02, end=1, step=0.02, value=s.noise),
            "prior_scale": Slider(title="Prior scale", start=0.5, end=6, step=0.25, value=s.prior_scale),
            "kappa": Slider(
                title="κ, variance of the anchors ÷ that of the prior", start=0, end=4, step=0.25, value=s.kappa
            ),
        }
        self.choices = {
            "activation": select("Activation", {name: name for name in sorted(ACTIVATIONS)}, s.activation),
            "anchoring": select("Anchoring", ANCHORINGS, s.anchoring),
            "trainable": select("Layers that are trained", TRAINABLE, s.trainable),
            "other": select("Compare with", OTHERS, s.other),
        }
        self.shown = CheckboxGroup(labels=list(SHOWN), active=[0, 1, 2])
        self.playing = RadioButtonGroup(labels=["Play", "Pause"], active=0)
        self.on(self.shown, "active", self.show_parts)
        self.on(self.playing, "active", lambda active: self.pause(active == 1))
        self.one_step = self.button("One step", self.step)
        self.one_step.disabled, self.sliders["kappa"].disabled = True, True
        self.playing.js_on_change("active", CustomJS(args={"step": self.one_step}, code=IF_PAUSED))
        kappa = {"kappa": self.sliders["kappa"]}
        self.choices["anchoring"].js_on_change("value", CustomJS(args=kappa, code=IF_KAPPA))

    def _build(self) -> None:
        """Lay the page out."""
        self.code = Div(text="", sizing_mode="stretch_width")
        self.other_title = Div(text=_title(self.settings.other), sizing_mode="stretch_width")
        save = Button(label="Save picture and points", sizing_mode="stretch_width")
        arguments = {"left": self.left.figure, "right": self.right.figure, "points": self.source}
        save.js_on_click(CustomJS(args=arguments, code=(ASSETS / "save.js").read_text()))
        panels = [
            Panel("Anchored ensemble", (("thin", "members"), *LEGEND), ("left",)),
            Panel("What it is compared with", (("thin", "functions"), *LEGEND), ("right",), heading="other_title"),
        ]
        sliders, choices = self.sliders, self.choices
        groups = [
            Group("Points", (
                Control("preset", self.preset, "Replaces all points by a small data set."),
                Control("text", self.text, "One point on each line, x, y. Edit them here if you use no mouse."),
                *self.deleting(),
                Control("save", save, "Writes both pictures as PNG, and the points as CSV."),
            )),
            Group("Ensemble", (
                Control("n_members", sliders["n_members"], "More networks measure the spread more precisely."),
                Control("width", sliders["width"], "Wider layers bring the ensemble nearer to the process."),
                Control("depth", sliders["depth"], "How many layers lie between input and output."),
                Control("activation", choices["activation"], "The function that units apply: how smooth curves are."),
                Control("anchoring", choices["anchoring"], "Where anchors come from. Randomized also adds noise to the "
                        "targets, which widens bands to those of the posterior."),
                Control("kappa", sliders["kappa"], "Used by “κ × the prior” only: 0 ties all members to one anchor."),
                Control("trainable", choices["trainable"], "Only the last layer can be solved exactly."),
            )),
            Group("Prior and pictures", (
                Control("noise", sliders["noise"], "Standard deviation of an observation, in units of y."),
                Control("prior_scale", sliders["prior_scale"], "The larger, the more quickly functions vary."),
                Control("other", choices["other"], "The exact process of the same prior, or another method."),
                Control("shown", self.shown, "Hide what distracts you.", "Shown in both pictures"),
            )),
            Group("Training", (
                Control("anew", self.button("Fit anew", partial(self.refit, anew=True), True),
                        "Trains all members again, from their anchors. After a drag, training continues instead."),
                Control("watch", self.button("Watch it train", self.watch), "Shows members move from their anchors."),
                Control("playing", self.playing, "Pauses the training that you watch.", "While you watch"),
                Control("step", self.one_step, "While it is paused: shows the next picture."),
            )),
        ]  # fmt: skip
        roots: dict[str, Model] = {"left": self.left.figure, "right": self.right.figure, "code": self.code}
        roots["other_title"] = self.other_title
        self.build(panels, groups, roots, below=("code",))

    # What the visitor does

    def settings_changed(self) -> None:
        """Take the settings from the controls, and fit anew unless only the second picture has changed."""
        settings = replace(self.settings, **self.values())
        settings.check()
        same_fit = replace(settings, other=self.settings.other) == self.settings
        self.settings = settings
        self.refit(anew=not same_fit)

    def show_parts(self, active: list[int]) -> None:
        """Show or hide parts of both pictures."""
        self.left.show(active)
        self.right.show(active)

    # Work

    def refit(self, anew: bool = False) -> None:
        """Compute everything for the present points and settings.

        Members are trained from their anchors if `anew` or if there is no fit yet; otherwise they are trained further.
        """
        points, settings, fit = self._valid_points, self.settings, None if anew else self.fit
        self.certifying.cancel()
        self.numbers.text = ""
        curves.require_two(points)
        self.submit(self.computing, "Computing …", lambda: self._compute(points, settings, fit))

    def _compute(self, points: Points, settings: CurveSettings, fit: CurveFit | None) -> Iterator:
        """Yield the actions that draw the ensemble, then the curve that it is compared with, and the numbers."""
        if fit is None:
            fit = self._fit_anew(settings, points)
        elif not np.array_equal(fit.points, points):
            fit = curves.continued(fit, points)
        yield from self._pictures(fit, settings)

    def _fit_anew(self, settings: CurveSettings, points: Points) -> CurveFit:
        """Return a fit from the anchors, with the arguments of `start` as long as no control has been moved."""
        if self.start is not None and settings == CurveSettings(other=settings.other):
            return curves.fit_like(self.start, points)
        return curves.fit_anew(settings, points)

    def _pictures(self, fit: CurveFit, settings: CurveSettings) -> Iterator:
        """Yield the actions that draw `fit` and the curve that it is compared with."""
        curve = fit.curve(self.grid)
        if settings.other not in curves.PROCESSES:
            yield lambda: self._draw_left(fit, curve)
        other = curves.other_curve(fit, settings.other, self.grid)
        yield lambda: self._draw(fit, curve, other, settings)

    def _draw_left(self, fit: CurveFit, curve: Curve) -> None:
        """Draw the ensemble."""
        self.fit = fit
        self.left.draw(self.grid, curve)

    def _draw(self, fit: CurveFit, curve: Curve, other: Curve, settings: CurveSettings) -> None:
        """Draw the ensemble and the curve that it is compared with, and start to compute the certificate."""
        self._draw_left(fit, curve)
        self.right.draw(self.grid, other)
        self.other_title.text = _title(settings.other)
        self.say(_description(fit))
        self.code.text = curve_code(curves.arguments_of(fit), fit.points)
        self._numbers, self._compared_with = curves.compared(curve, other), OTHERS[settings.other]
        self._show_numbers("The certificate is being computed …")
        grid = self.grid
        self.certifying.submit(lambda: self._certify(fit, settings, grid))

    def _certify(self, fit: CurveFit, settings: CurveSettings, grid: np.ndarray) -> Iterator:
        """Compile what a fit to further points needs, and yield the action that shows the certificate's finding."""
        key = replace(settings, other=""), len(fit.points) // 8
        if key != self._prepared:
            curves.prepare(settings, fit)
            self._prepared = key
            yield nothing  # so that a newer request is noticed
        summary = curves.finding(fit, grid)
        yield lambda: self._show_numbers(summary)

    def _show_numbers(self, finding: str) -> None:
        """Show the distances of the two pictures, and the certificate's finding in words."""
        n = self._numbers
        parts = (
            (f"{n['std_ratio']:.2f}", f"s.d. of the ensemble / of the {self._compared_with}"),
            (f"{n['mean_gap']:.2f}", "gap between the means, in s.d."),
            (f"{n['wasserstein']:.3f}", "Wasserstein distance, units of y"),
        )
        self.show_numbers(parts, finding)

    # Watching a training

    def watch(self) -> None:
        """Show the members move from their anchors to the posterior."""
        points, settings, fit = self._valid_points, self.settings, self.fit
        curves.require_two(points)
        self.certifying.cancel()
        self.numbers.text = ""
        self._next_frame.clear()
        self.submit(self.computing, "Training …", lambda: self._frames(points, settings, fit))

    def _frames(self, points: Points, settings: CurveSettings, fit: CurveFit | None) -> Iterator:
        """Yield the actions that draw a training, and then the final fit with the curve that it is compared with."""
        paused, next_frame = self._is_paused, self._next_frame
        if fit is None or fit.is_continued or not np.array_equal(fit.points, points):
            fit = self._fit_anew(settings, points)
        for epoch, shown in curves.training_frames(fit):
            curve = shown.curve(self.grid)
            yield from self.frame(partial(self._draw_frame, epoch, shown, curve))
            while paused.is_set() and not next_frame.wait(0.05):
                yield nothing  # so that a newer request is noticed
            if not next_frame.is_set():
                Event().wait(SECONDS_PER_FRAME)
            next_frame.clear()
        yield from self._pictures(shown, settings)

    def _draw_frame(self, epoch: int, fit: CurveFit, curve: Curve) -> None:
        """Draw one picture of a training."""
        self._draw_left(fit, curve)
        self.say(f"Epoch {epoch} of {curves.N_EPOCHS}" + (": every member is at its anchor." if epoch == 0 else ""))

    def pause(self, is_paused: bool) -> None:
        """Pause the training that is watched, or continue it."""
        (self._is_paused.set if is_paused else self._is_paused.clear)()

    def step(self) -> None:
        """Show the next picture of a paused training."""
        self._next_frame.set()

    def close(self) -> None:
        """Continue a paused training, so that it can end."""
        self._is_paused.clear()


def _title(other: str) -> str:
    """Return the title of the second picture."""
    name = OTHERS[other]
    return f"<h2>{name[0].upper()}{name[1:]}</h2>"


def _description(fit: CurveFit) -> str:
    """Return the sentence that says which fit is shown."""
    n = fit.model.posterior_.n_members
    if fit.is_closed_form:
        return f"Shown: {n} members, whose last layer is solved in closed form for these {len(fit.points)} points."
    if fit.is_continued:
        return f"Shown: {n} members that continued from the previous fit. “Fit anew” trains them from their anchors."
    return f"Shown: a fit of {n} members from their anchors, on {len(fit.points)} points."


def _grid(points: Points) -> np.ndarray:
    """Return the inputs at which curves are drawn, around the `points` of a user's model; by default in X_RANGE."""
    low, high = X_RANGE
    if len(points):
        margin = 0.25 * max(np.ptp(points[:, 0]), 1e-9)
        low, high = points[:, 0].min() - margin, points[:, 0].max() + margin
    return np.linspace(low, high, N_GRID)


def _y_range(points: Points) -> tuple[float, float]:
    """Return the range of y that is shown, around the `points` of a user's model; by default Y_RANGE."""
    if not len(points):
        return Y_RANGE
    margin = 0.6 * max(float(np.ptp(points[:, 1])), 1e-9)
    return float(points[:, 1].min()) - margin, float(points[:, 1].max()) + margin
