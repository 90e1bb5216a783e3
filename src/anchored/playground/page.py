"""What all pages share: their frame, controls and explanations, messages, and work in threads."""

import html
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import jinja2
from bokeh.core.templates import MACROS
from bokeh.document import Document
from bokeh.models import CustomJS, Model
from bokeh.models.widgets import Button, Div, RadioButtonGroup, Select, Widget

from anchored import checks
from anchored.errors import ArgumentError
from anchored.playground import memory
from anchored.playground.latest import LatestWorker, Work
from anchored.playground.look import ASSETS, Look, widget_style
from anchored.playground.pace import SECONDS, Pace

PAGES = (("/curves", "Curves"), ("/planes", "Planes"), ("/cartpole", "CartPole"))  # path and title of each
THEMES = ("Light", "Dark")
FOLLOW_SYSTEM = """
const chosen = document.documentElement.dataset.theme
const is_dark = chosen ? chosen == "dark" : window.matchMedia("(prefers-color-scheme: dark)").matches
if (is_dark != (theme.active == 1)) theme.active = is_dark ? 1 : 0
"""
# What a figure is to a screen reader; only those that react to the mouse are stops of the keyboard
NAME_FIGURES = """
for (const plot of plots) {
  const view = Bokeh.index.find_one(plot).canvas_view
  const events = view.events_el
  const reacts = plot.toolbar.tools.length > 0
  events.setAttribute("role", reacts ? "application" : "img")
  events.setAttribute("aria-label", titles[plot.name])
  events.tabIndex = reacts ? 0 : -1
  const style = document.createElement("style")
  style.textContent = ".bk-events:focus-visible { outline: 3px solid var(--accent); outline-offset: -3px }"
  view.shadow_el.append(style)
}
"""
SET_THEME = """
document.documentElement.dataset.theme = this.active == 1 ? "dark" : "light"
"""

# Messages are dealt with in order, and a timer after the drawing that is under way
SAY_SEEN = """
const seen = cb_obj.tags
setTimeout(() => { numbers.tags = seen })
"""


@dataclass(frozen=True)
class Control:
    """A control and the sentence that explains it."""

    name: str
    widget: Widget
    sentence: str = ""
    title: str = ""  # for widgets that show none themselves


@dataclass(frozen=True)
class Group:
    """Controls that stand together under a title."""

    title: str
    controls: tuple[Control, ...]


@dataclass(frozen=True)
class Panel:
    """A picture with a title, a legend and a note."""

    title: str
    legend: tuple[tuple[str, str], ...]  # pairs of a class in page.css and its explanation
    roots: tuple[str, ...]  # names of the Bokeh models of the picture
    note: str = ""
    heading: str = ""  # name of a root that shows the title, if the title changes


class Page:
    """The frame of one page for one visitor. Subclasses fill it. Visitors share no state.

    Parameters
    ----------
    document : bokeh.document.Document
        The document of the visitor.
    """

    heading: str  # title of the page in PAGES
    title_line: str
    lead: str  # what can be done here, in a sentence or two

    def __init__(self, document: Document):
        self.document, self.look = document, Look()
        self.status = Div(text="", sizing_mode="stretch_width", name="status")
        self.numbers = Div(text="", sizing_mode="stretch_width", name="numbers")
        self.theme = RadioButtonGroup(labels=list(THEMES), active=0, name="theme")
        self._workers: list[LatestWorker] = []
        self._pace = Pace()

    def build(self, panels: list[Panel], groups: list[Group], roots: dict[str, Model], below: tuple[str, ...] = ()):
        """Put all parts into the document, and show the page.

        Parameters
        ----------
        panels : list of Panel
            The pictures, from left to right.
        groups : list of Group
            The controls.
        roots : dict of str to Model
            Figures and other models, by the names that panels and `below` use.
        below : tuple of str
            Names of roots that stand below the controls.
        """
        roots = roots | {"status": self.status, "numbers": self.numbers, "theme": self.theme}
        roots |= {control.name: control.widget for group in groups for control in group.controls}
        style = widget_style()
        for name, model in roots.items():
            model.name = name
            if isinstance(model, Widget):
                model.margin = 0
                model.stylesheets = [*model.stylesheets, style]
            self.document.add_root(model)
        self.theme.js_on_change("active", CustomJS(code=SET_THEME))
        self.theme.on_change("active", lambda name, old, new: self.look.apply(new == 1))
        self.status.js_on_change("tags", CustomJS(args={"numbers": self.numbers}, code=SAY_SEEN))
        self.on(self.numbers, "tags", lambda tags: self._pace.see(*tags))
        self.document.js_on_event("document_ready", CustomJS(args={"theme": self.theme}, code=FOLLOW_SYSTEM))
        titles = {name: panel.title for panel in panels for name in panel.roots}
        named = {"plots": self.look.figures, "titles": titles}
        self.document.js_on_event("document_ready", CustomJS(args=named, code=NAME_FIGURES))
        self.document.on_session_destroyed(self._destroyed)
        self.document.title = f"{self.heading} · anchored playground"
        self.document.template = template()
        self.document.template_variables.update(
            pages=PAGES, heading=self.heading, title_line=self.title_line, lead=self.lead, panels=panels, groups=groups,
            below=below, style=(ASSETS / "page.css").read_text(),
        )  # fmt: skip
        self.look.apply(False)

    def worker(self) -> LatestWorker:
        """Return a thread for work of this page; it ends with the page."""
        worker = LatestWorker(self._deliver, lambda error: self._deliver(lambda: self.fail(error)))
        self._workers.append(worker)
        return worker

    def _deliver(self, item: Callable[[], None]) -> None:
        """Call `item` in the thread of the document, with the document locked."""
        self.document.add_next_tick_callback(self.guarded(item))

    def guarded(self, act: Callable[..., None]) -> Callable[..., None]:
        """Return `act` as a callback, whose errors are shown in the page."""

        def call(*arguments: object) -> None:
            try:
                act(*arguments)
            except Exception as error:
                self.fail(error)

        return call

    def on(self, model: Model, name: str, act: Callable[[Any], None]) -> None:
        """Call `act` with the new value when the page changes the property `name` of `model`."""
        guarded = self.guarded(act)
        model.on_change(name, lambda attr, old, new: guarded(new))

    def submit(self, worker: LatestWorker, message: str, work: Work) -> None:
        """Show a spinner and `message` at once, and run `work` in the thread of `worker`."""
        self.status.text = f'<p class="busy"><span class="spin" aria-hidden="true"></span>{html.escape(message)}</p>'
        worker.submit(work)

    def frame(self, draw: Callable[[], None]) -> Iterator[Callable[[], None]]:
        """Yield the action that draws one picture of a film, and wait while the browser is behind."""
        pace = self._pace
        number = pace.send()

        def draw_numbered() -> None:
            draw()
            self.status.tags = [number]  # which the browser sends back

        yield draw_numbered
        ends = time.monotonic() + SECONDS
        while pace.is_ahead() and time.monotonic() < ends:
            pace.wait(0.05)
            yield nothing  # so that a newer request is noticed

    def say(self, message: str) -> None:
        """Show a `message` in the place of the spinner."""
        self.status.text = f'<p class="said">{html.escape(message)}</p>'

    def show_numbers(self, parts: tuple[tuple[str, str], ...], sentence: str = "") -> None:
        """Show `parts`, pairs of a number and its meaning, and a `sentence` below them."""
        cells = "".join(
            f"<div><b>{html.escape(value)}</b><span>{html.escape(words)}</span></div>" for value, words in parts
        )
        below = f'<p class="finding">{html.escape(sentence)}</p>' if sentence else ""
        self.numbers.text = f'<div class="row">{cells}</div>{below}'

    def fail(self, error: Exception) -> None:
        """Show an error in the page, and leave everything else as it is."""
        known = isinstance(error, ArgumentError | ValueError | TypeError)
        text = str(error) if known else f"This could not be computed: {type(error).__name__}: {error}"
        self.status.text = f'<p class="failed" role="alert">{html.escape(text[:300])}</p>'

    def button(self, label: str, act: Callable[[], None], primary: bool = False) -> Button:
        """Return a button that calls `act`."""
        button = Button(label=label, button_type="primary" if primary else "default", sizing_mode="stretch_width")
        guarded = self.guarded(act)
        button.on_click(lambda: guarded())  # without the event
        return button

    def _destroyed(self, session_context: object) -> None:
        """End the threads, and release everything that the page refers to."""
        for worker in self._workers:
            worker.close()
        self.close()
        self.__dict__.clear()
        memory.release()

    def close(self) -> None:
        """End anything that a subclass has started besides its workers."""


def nothing() -> None:
    """Do nothing."""


def select(title: str, options: dict[str, str], value: str) -> Select:
    """Return a drop-down list, whose `options` are labels by value."""
    pairs: list[str | tuple[Any, str]] = [*options.items()]
    return Select(title=title, options=pairs, value=value, sizing_mode="stretch_width")


def whole_numbers(values: dict[str, float], names: tuple[str, ...]) -> dict[str, Any]:
    """Return `values`, in which whole numbers of `names` are integers, since sliders send 10.0 for 10."""
    is_whole = {name: checks.is_real(values[name]) and values[name] == int(values[name]) for name in names}
    return values | {name: int(values[name]) for name in names if is_whole[name]}


@cache
def template() -> jinja2.Template:
    """Return the template of all pages."""
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["macros"] = MACROS
    return environment.from_string((ASSETS / "page.html").read_text())
