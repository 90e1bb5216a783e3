"""What the pages of points share: presets, points as text, and controls that are settings."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from bokeh.document import Document
from bokeh.models import ColumnDataSource
from bokeh.models.widgets import Select, Slider, TextAreaInput

from anchored.playground.page import Control, Page, select, whole_numbers
from anchored.playground.points import Points

Columns = dict[str, Any]  # the columns of a source, as Bokeh sends them


class PointsPage(Page, ABC):
    """A page whose points can be placed with the mouse or written as text.

    Parameters
    ----------
    document : bokeh.document.Document
        The document of the visitor.
    points : (points, columns) array
        The points to begin with.
    """

    presets: Mapping[str, Points]
    sliders: dict[str, Slider]  # by the names of settings
    choices: dict[str, Select]

    def __init__(self, document: Document, points: Points):
        super().__init__(document)
        self._valid_points = points  # the points before an invalid change
        self.source = ColumnDataSource(self.columns(points))
        first = next(iter(self.presets))
        self.preset = select("Points to start from", {name: name for name in self.presets}, first)
        self.text = TextAreaInput(title="Points as text", value=self.written(points), rows=8, max_length=8000)

    @abstractmethod
    def columns(self, points: Points) -> Columns:
        """Return `points` as columns of a source."""

    @abstractmethod
    def checked(self, columns: Columns) -> Points:
        """Return the points in `columns`, or raise a ValueError."""

    @abstractmethod
    def written(self, points: Points) -> str:
        """Return `points` as text."""

    @abstractmethod
    def parsed(self, text: str) -> Points:
        """Return the points in `text`, or raise a ValueError."""

    @abstractmethod
    def settings_changed(self) -> None:
        """Take the settings from the controls, and compute again."""

    @abstractmethod
    def refit(self, anew: bool = False) -> None:
        """Compute everything for the present points and settings.

        Members are trained from their anchors if `anew` or if there is no fit yet; otherwise they are trained further.
        """

    @abstractmethod
    def forget(self) -> None:
        """Let the next fit begin anew."""

    def listen(self) -> None:
        """Register the callbacks of points and settings."""
        for control in (*self.sliders.values(), *self.choices.values(), self.text):
            control.sizing_mode = "stretch_width"
        for slider in self.sliders.values():
            self.on(slider, "value_throttled", lambda _: self.settings_changed())
        for choice in self.choices.values():
            self.on(choice, "value", lambda _: self.settings_changed())
        self.on(self.preset, "value", self.preset_chosen)
        self.on(self.text, "value", self.text_changed)
        self.on(self.source, "data", lambda _: self.points_changed())

    def points_changed(self) -> None:
        """Take the points from the picture, or restore the last valid ones."""
        try:
            points = self.checked(self.source.data)
        except ValueError:
            self.source.data = self.columns(self._valid_points)
            raise
        if np.array_equal(points, self._valid_points):
            return
        self._valid_points = points
        self.text.value = self.written(points)
        self.refit()

    def deleting(self) -> tuple[Control, Control]:
        """Return the controls that delete points."""
        return (
            Control("delete", self.button("Delete selected point", self.delete), "Click or tap a point to select it."),
            Control("clear", self.button("Delete all points", self.clear), "Begin with an empty picture."),
        )

    def text_changed(self, text: str) -> None:
        """Take the points from the text."""
        if text != self.written(self._valid_points):
            self.replace(self.parsed(text))

    def preset_chosen(self, name: str) -> None:
        """Replace all points by those of a preset."""
        if name not in self.presets:
            raise ValueError(f"points to start from must be one of {list(self.presets)}")
        self.forget()
        self.replace(self.presets[name])

    def delete(self) -> None:
        """Delete the selected points."""
        points, selected = self._valid_points, self.source.selected.indices
        keep = ~np.isin(np.arange(len(points)), selected)
        if keep.all():
            raise ValueError("no point is selected: click or tap one in the picture, then delete it")
        self.replace(points[keep])

    def clear(self) -> None:
        """Delete all points."""
        self.replace(self._valid_points[:0])

    def replace(self, points: Points) -> None:
        """Replace all points, of which none is selected then."""
        self.source.selected.indices = []
        self.source.data = self.columns(points)

    def values(self) -> dict[str, Any]:
        """Return the values of the sliders and lists, by the names of settings."""
        numbers = {name: slider.value for name, slider in self.sliders.items()}
        chosen = {name: choice.value for name, choice in self.choices.items()}
        return whole_numbers(numbers, ("n_members", "width", "depth")) | chosen
