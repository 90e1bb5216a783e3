"""The page of CartPole: shows an agent while it learns, and its Q-values at any state."""

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from bokeh.document import Document
from bokeh.models import ColumnDataSource, Model, Range1d
from bokeh.models.annotations import Label
from bokeh.models.widgets import RadioButtonGroup, Slider

from anchored.playground import cart_pole
from anchored.playground.cart_pole import MAX_POSITION, STATE_LIMITS, Agent, CartPoleSettings, Snapshot
from anchored.playground.look import drawing_tool, empty
from anchored.playground.page import Control, Group, Page, Panel, select, whole_numbers

MODES = ("Pause", "Learn", "Watch")
SPEEDS = {"4": "4 steps", "16": "16 steps", "64": "64 steps", "256": "256 steps"}  # steps between two pictures
EXPLORATIONS = {
    "thompson": "Thompson sampling",
    "paired": "Thompson, paired within members",
    "member": "one member per episode",
    "index": "one drawn function per episode",
    "epsilon": "ε-greedy",
    "greedy": "none",
}
ACTIONS = ("left", "right")
ROLES = ("second", "ensemble")  # names, in `look`, of the colours of the two actions, as in figures 5 to 7
SECONDS_PER_FRAME = 1 / 28
PIVOT, LENGTH = 0.3, 1.0  # height of the pole's foot and length of the pole in the picture, in m
MEAN_OVER = 20  # episodes


class CartPolePage(Page):
    """The page of CartPole of one visitor.

    Parameters
    ----------
    document : bokeh.document.Document
        The document of the visitor.
    agent_file : pathlib.Path, optional
        File of a saved agent, which the page shows at first, instead of a new one.
    """

    heading = "CartPole"
    title_line = "An agent learns to balance a pole"
    lead = (
        "The agent learns to keep the pole upright, by exploring where its networks disagree. Press Learn, or drag the "
        "tip of the pole or the cart, and see the agent's Q-values in that state."
    )

    def __init__(self, document: Document, agent_file: Path | None = None):
        super().__init__(document)
        self.settings, self.agent_file = CartPoleSettings(), agent_file
        self.agent: Agent | None = None
        self.state = np.zeros(4)
        self._make_plots()
        self._make_controls()
        self.acting = self.worker()
        self._build()
        self.begin()

    # The parts of the page

    def _make_plots(self) -> None:
        """Make the pictures of the cart, of the Q-values and of the returns."""
        coloured = self.look.coloured
        cart = self.look.figure((-2.8, 2.8), (-0.25, 1.75), 300, x_axis_label="position, m")
        cart.yaxis.visible, cart.ygrid.visible = False, False
        self.scene = ColumnDataSource({"x": [0.0], "y": [0.15], "x0": [0.0], "y0": [PIVOT], "x1": [0.0], "y1": [1.3]})
        self.handles = ColumnDataSource({"x": [0.0, 0.0], "y": [0.15, PIVOT + LENGTH]})
        coloured(cart.segment([-3], [0], [3], [0], line_width=2), "ground", "line_color")
        limits = [-MAX_POSITION, MAX_POSITION]
        coloured(cart.segment(limits, [0, 0], limits, [1.7, 1.7], line_dash="dashed"), "ground", "line_color")
        coloured(cart.rect("x", "y", 0.6, 0.3, source=self.scene, line_color=None), "ensemble", "fill_color")
        pole = cart.segment("x0", "y0", "x1", "y1", source=self.scene, line_width=9, line_cap="round")
        coloured(pole, "second", "line_color")
        handles = cart.scatter("x", "y", source=self.handles, size=13, line_width=2)
        coloured(handles, "halo", "fill_color")
        coloured(handles, "point", "line_color")
        drawing_tool(cart, [handles], 2).add = False
        q = self.look.figure((0.0, 10.0), (0.0, 1.0), 300, x_axis_label="Q-value, units of reward")
        q.yaxis.visible = False
        self.densities = [empty("x", "y") for _ in ACTIONS]
        self.marks = [empty("x", "y0", "y1") for _ in ACTIONS]
        for density, marks, role in zip(self.densities, self.marks, ROLES, strict=True):
            coloured(q.varea("x", 0, "y", source=density, fill_alpha=0.25), role, "fill_color")
            line = q.line("x", "y", source=density, line_width=3, line_dash="solid" if role == "ensemble" else "dashed")
            coloured(line, role, "line_color")
            coloured(q.segment("x", "y0", "x", "y1", source=marks, line_width=2), role, "line_color")
        curve = self.look.figure((0, 20), (0, 210), 300, x_axis_label="episode", y_axis_label="return")
        self.returns, self.means = empty("x", "y"), empty("x", "y")
        coloured(curve.line("x", "y", source=self.returns, line_width=1, line_alpha=0.6), "ensemble", "line_color")
        coloured(curve.line("x", "y", source=self.means, line_width=3), "ensemble", "line_color")
        self.no_episode = Label(x=10, y=105, text="No episode yet", text_align="center", text_font_size="15px")
        self.look.roles.append((self.no_episode, "text_color", "soft"))
        curve.add_layout(self.no_episode)
        self.value_range, self.episode_range = Range1d(start=0, end=10), Range1d(start=0, end=20)
        self._shown_values = 0.0, 10.0
        q.x_range, curve.x_range = self.value_range, self.episode_range
        self.figures = {"cart": cart, "q": q, "curve": curve}

    def _make_controls(self) -> None:
        """Make the controls, and register their callbacks."""
        self.mode = RadioButtonGroup(labels=list(MODES), active=0)
        self.speed = select("Speed", SPEEDS, "4")
        self.exploration = select("Exploration", EXPLORATIONS, self.settings.exploration)
        self.members = Slider(title="Members", start=2, end=50, step=1, value=self.settings.n_members)
        titles = ("Position, m", "Velocity, m/s", "Angle, rad", "Angular velocity, rad/s")
        self.entries = {
            name: Slider(title=title, start=-round(most, 2), end=round(most, 2), step=0.01, value=0.0)
            for title, (name, most) in zip(titles, STATE_LIMITS.items(), strict=True)
        }
        for slider in (self.members, *self.entries.values()):
            slider.sizing_mode = "stretch_width"
        for slider in self.entries.values():
            self.on(slider, "value_throttled", lambda _: self.sliders_changed())
        self.on(self.handles, "data", lambda _: self.handle_dragged())
        self.on(self.mode, "active", lambda _: self.go_on())
        self.on(self.speed, "value", lambda _: self.go_on())
        self.on(self.exploration, "value", lambda _: self.settings_changed())
        self.on(self.members, "value_throttled", lambda _: self.settings_changed())

    def _build(self) -> None:
        """Lay the page out."""
        of_actions = tuple((role, words) for role, words in zip(("second", "line"), ACTIONS, strict=True))
        panels = [
            Panel("Cart and pole", (), ("cart",), "Drag the white dots to any state."),
            Panel("Value of each push", of_actions, ("q",), "One mark for each member, and the normal fitted to them."),
            Panel("Return of each episode", (("thin", "episode"), ("line", f"mean of {MEAN_OVER}")), ("curve",)),
        ]  # fmt: skip
        entries = self.entries
        groups = [
            Group("Agent", (
                Control("mode", self.mode, "Learn: the agent plays and learns. Watch: it plays without learning."),
                Control("speed", self.speed, "How much is played between two pictures."),
                Control("again", self.button("Start again", self.start_again, True), "Begins with a new agent."),
            )),
            Group("A new agent", (
                Control("exploration", self.exploration, "How it decides to try something. Starts again."),
                Control("n_members", self.members, "How many networks it consists of. Starts again."),
            )),
            Group("A state of your own", (
                Control("position", entries["position"], "Where the cart is; it must stay between the dashed lines."),
                Control("velocity", entries["velocity"], "How quickly the cart moves to the right."),
                Control("angle", entries["angle"], "How far the pole leans to the right; it has fallen at 0.21."),
                Control("angular_velocity", entries["angular_velocity"], "How quickly the pole turns to the right."),
            )),
        ]  # fmt: skip
        roots: dict[str, Model] = {**self.figures}
        self.build(panels, groups, roots)

    # What the visitor does

    def begin(self) -> None:
        """Make the agent, and show its first state."""
        settings, path = self.settings, self.agent_file
        self.submit(self.acting, "Preparing the agent …", lambda: self._begin(settings, path))

    def start_again(self) -> None:
        """Begin with a new agent, of another seed."""
        self.agent_file = None
        self.settings = replace(self.settings, seed=self.settings.seed + 1)
        self.mode.active = 0
        self.begin()

    def settings_changed(self) -> None:
        """Begin with a new agent that has the settings of the controls."""
        values = whole_numbers({"n_members": self.members.value}, ("n_members",))
        settings = replace(self.settings, exploration=self.exploration.value, **values)
        settings.check()
        self.settings = settings
        self.start_again()

    def go_on(self) -> None:
        """Continue in the selected mode: learn, watch or pause."""
        number = self.mode.active
        if number not in range(len(MODES)) or self.speed.value not in SPEEDS:
            raise ValueError("mode and speed must be among those of the page")
        agent, mode = self.agent, MODES[number or 0]
        if agent is None:
            return
        if mode == "Pause":
            state = self.state  # now: a picture that is still to be drawn would replace it
            self.acting.submit(lambda: self._evaluate(agent, state))
        else:
            n_steps, work = int(self.speed.value), self._learn if mode == "Learn" else self._watch
            self.submit(self.acting, "Learning …" if mode == "Learn" else "Watching …", lambda: work(agent, n_steps))

    def sliders_changed(self) -> None:
        """Show the Q-values at the state that the sliders describe."""
        self._show_state(cart_pole.checked_state({name: slider.value for name, slider in self.entries.items()}))

    def handle_dragged(self) -> None:
        """Show the Q-values at the state to which the pole or the cart was dragged."""
        data = self.handles.data
        handles = [data.get(name) for name in ("x", "y")]
        try:
            (cart, tip), (_, height) = (np.asarray(column, np.float64) for column in handles)
        except (TypeError, ValueError):
            self._draw_scene(self.state)
            raise ValueError("the cart and the pole must be two points") from None
        expected = _handles(self.state)
        if np.allclose([cart, tip, height], [expected["x"][0], expected["x"][1], expected["y"][1]], atol=1e-6):
            return
        is_cart = abs(cart - expected["x"][0]) > 1e-6
        angle = self.state[2] if is_cart else np.arctan2(tip - cart, height - PIVOT)
        values = np.array([cart, self.state[1], angle, self.state[3]])
        limits = np.array(list(STATE_LIMITS.values()))
        if not np.isfinite(values).all():
            self._draw_scene(self.state)
            raise ValueError("the cart and the pole must be at finite positions")
        self._show_state(np.clip(values, -limits, limits))

    def _show_state(self, state: np.ndarray) -> None:
        """Pause, and show the Q-values at `state`."""
        self.state = state
        agent = self.agent
        self._draw_scene(state)
        if self.mode.active != 0:
            self.mode.active = 0  # its callback, go_on, shows the Q-values
        elif agent is not None:
            self.acting.submit(lambda: self._evaluate(agent, state))

    # Work

    def _begin(self, settings: CartPoleSettings, path: Path | None) -> Iterator:
        """Yield the action that shows a new or a stored agent, with all programs compiled."""
        agent = cart_pole.new_agent(settings) if path is None else cart_pole.loaded_agent(path)
        found = cart_pole.snapshot(agent, cart_pole.current_state(agent))
        yield lambda: self._show_agent(agent, found)

    def _show_agent(self, agent: Agent, found: Snapshot) -> None:
        """Show `agent`, which has just been made or loaded."""
        self.agent = agent
        self._draw(found, f"An agent after {agent.n_steps:,} steps. Press Learn.")

    def _evaluate(self, agent: Agent, state: np.ndarray) -> Iterator:
        """Yield the action that shows the Q-values at `state`."""
        found = cart_pole.snapshot(agent, state)
        yield lambda: self._draw(found, f"Paused after {found.n_steps:,} steps, at the state that is shown.")

    def _learn(self, agent: Agent, n_steps: int) -> Iterator:
        """Yield pictures while the agent learns, `n_steps` steps between two."""
        while True:
            started = time.perf_counter()
            agent.learn(n_steps, reset_num_timesteps=False)
            found = cart_pole.snapshot(agent, cart_pole.current_state(agent))
            yield from self._frame(
                found, f"Learning: {found.n_steps:,} steps, {len(found.returns):,} episodes.", started
            )

    def _watch(self, agent: Agent, n_steps: int) -> Iterator:
        """Yield pictures while the agent plays greedily, without learning, `n_steps` / 4 steps between two."""
        state, episode, n_played = cart_pole.first_state(0), 0, 0
        while True:
            started = time.perf_counter()
            for _ in range(max(n_steps // 4, 1)):
                action, _ = agent.predict(state.astype(np.float32), deterministic=True)
                state, has_ended = cart_pole.next_state(state, int(action))
                n_played += 1
                if has_ended or n_played == cart_pole.MAX_STEPS:
                    episode, n_played = episode + 1, 0
                    state = cart_pole.first_state(episode)
            found = cart_pole.snapshot(agent, state)
            yield from self._frame(found, f"Watching: step {n_played} of episode {episode + 1}.", started)

    def _frame(self, found: Snapshot, message: str, started: float) -> Iterator:
        """Yield the action that draws one picture, then wait for the browser, and until SECONDS_PER_FRAME have passed.

        `started` is the time at which the computation of the picture began.
        """
        yield from self.frame(partial(self._draw, found, message))
        time.sleep(max(0.0, SECONDS_PER_FRAME - (time.perf_counter() - started)))

    # Drawing

    def _draw(self, found: Snapshot, message: str) -> None:
        """Draw the cart, the Q-values and the returns."""
        self.state = found.state
        self._draw_scene(found.state)
        self._draw_values(found)
        n = len(found.returns)
        if n != len(self.returns.data["x"]):
            episodes = np.arange(1, n + 1)
            total = np.concatenate([[0], np.cumsum(found.returns)])
            first = np.maximum(episodes - MEAN_OVER, 0)
            self.returns.data = {"x": episodes, "y": found.returns}
            self.means.data = {"x": episodes, "y": (total[episodes] - total[first]) / (episodes - first)}
            self.episode_range.end = max(20, n)
            self.no_episode.visible = n == 0
        parts: tuple[tuple[str, str], ...] = (
            (f"{100 * found.probabilities[0]:.0f} %", "probability of a push to the left"),
            (f"{100 * found.probabilities[1]:.0f} %", "to the right"),
        )  # fmt: skip
        if n:
            explored, mean = found.explored[-MEAN_OVER:].mean(), found.returns[-MEAN_OVER:].mean()
            parts += (
                (f"{100 * explored:.0f} %", f"of the steps of the last {MEAN_OVER} episodes explored"),
                (f"{mean:.0f}", f"mean return of the last {MEAN_OVER}, of 200"),
            )
        self.show_numbers(parts)
        self.say(message)

    def _draw_scene(self, state: np.ndarray) -> None:
        """Draw the cart and the pole in `state`, and set the sliders to it."""
        handles = _handles(state)
        (x, tip), (_, height) = handles["x"], handles["y"]
        self.scene.data = {"x": [x], "y": [0.15], "x0": [x], "y0": [PIVOT], "x1": [tip], "y1": [height]}
        self.handles.data = handles
        for slider, value in zip(self.entries.values(), state, strict=True):
            slider.value = float(np.clip(round(value, 2), slider.start, slider.end))

    def _draw_values(self, found: Snapshot) -> None:
        """Draw the distributions of both actions' Q-values."""
        low = float(np.min(found.mean - 4 * found.std))
        high = max(float(np.max(found.mean + 4 * found.std)), low + 1e-3)
        start, end = self._shown_values
        if low < start or high > end or high - low < 0.3 * (end - start):  # else the range stays
            margin = 0.25 * (high - low)
            start, end = self._shown_values = low - margin, high + margin
            self.value_range.update(start=start, end=end)
        at = np.linspace(start, end, 200)
        heights = [cart_pole.density(m, s, at) for m, s in zip(found.mean, found.std, strict=True)]
        top = max(float(np.max(heights)), 1e-9)
        for k, height in enumerate(heights):
            self.densities[k].data = {"x": at, "y": 0.92 * height / top}
            foot = np.full(len(found.q), 0.01 + 0.05 * k)
            self.marks[k].data = {"x": found.q[:, k].astype(float), "y0": foot, "y1": foot + 0.05}


def _handles(state: np.ndarray) -> dict[str, list[float]]:
    """Return the positions in the picture of the handles of the cart and of the pole, as columns of a source."""
    x, angle = float(state[0]), float(state[2])
    return {"x": [x, x + LENGTH * np.sin(angle)], "y": [0.15, PIVOT + LENGTH * np.cos(angle)]}
