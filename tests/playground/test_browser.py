"""The pages in a real browser, with the mouse and the keyboard; skipped where no browser is installed."""

import logging

import browser
import numpy as np
import pytest

from anchored.playground.points import PRESETS
from anchored.playground.running import run_in_thread

pytestmark = pytest.mark.skipif(
    bool(browser.why_unavailable()), reason=browser.why_unavailable() or "a browser is installed"
)
SIX = PRESETS["Six points"]


@pytest.fixture(scope="module")
def server():
    server = run_in_thread(0)
    yield server
    server.io_loop.add_callback(server.stop)
    server.io_loop.add_callback(server.io_loop.stop)


@pytest.fixture(scope="module")
def visitor():
    with browser.Browser() as visitor:
        yield visitor


def opened(visitor, server, path, word):
    visitor.errors()
    visitor.open(f"http://127.0.0.1:{server.port}{path}")
    visitor.until_said(word)
    return visitor


def points(visitor):
    data = visitor.source("left")
    return np.column_stack([data["x"], data["y"]])


def test_points_are_added_dragged_and_deleted(visitor, server, tmp_path, caplog):
    caplog.set_level(logging.ERROR)
    opened(visitor, server, "/curves", "Shown")
    assert visitor.hosts() == {f"127.0.0.1:{server.port}"}
    before = visitor.source("left", -2)["mean"]
    visitor.click_at("left", 0.2, 1.5)
    visitor.until(lambda: len(points(visitor)) == 7 and "continued" in visitor.read("status"))
    added = points(visitor)[-1]
    np.testing.assert_allclose(added, [0.2, 1.5], atol=0.03)
    after = visitor.source("left", -2)["mean"]
    assert np.abs(np.subtract(before, after)).max() > 0.1
    visitor.drag("left", added, (-0.2, -1.0))
    visitor.until(lambda: np.allclose(points(visitor)[-1], [-0.2, -1.0], atol=0.06))
    visitor.until(lambda: visitor.source("left", -2)["mean"] != after and "Shown" in visitor.read("status"))
    assert len(visitor.read("text", "value").splitlines()) == 7
    visitor.click_at("left", *points(visitor)[-1])  # selects the point
    visitor.press("\ue003")  # Backspace
    visitor.until(lambda: len(points(visitor)) == 6 and "Shown" in visitor.read("status"))
    np.testing.assert_allclose(points(visitor), SIX)
    visitor.picture(tmp_path / "curves.png")
    assert (tmp_path / "curves.png").stat().st_size > 20_000
    assert visitor.errors() == [] and caplog.records == []


def test_controls_and_the_film(visitor, server):
    opened(visitor, server, "/curves", "Shown")
    visitor.change("trainable", value="last_layer")
    visitor.until_said("closed form")
    visitor.change("noise", value_throttled=9.0, value=9.0)
    visitor.until_said("noise must lie")
    visitor.change("noise", value_throttled=0.1, value=0.1)
    visitor.change("trainable", value="all")
    visitor.until_said("from their anchors")
    visitor.click("watch")
    visitor.until_said("Epoch")
    visitor.change("playing", active=1)
    visitor.until_said("Epoch")
    held = visitor.read("status")
    visitor.click("step")
    visitor.until(lambda: visitor.read("status") != held and "Epoch" in visitor.read("status"))
    visitor.click("anew")
    visitor.until_said("from their anchors")
    visitor.change("theme", active=1)
    assert visitor.script("return document.documentElement.dataset.theme") == "dark"
    visitor.until(lambda: visitor.script(
        "return Bokeh.documents[0].get_model_by_name('left').outline_line_color") == "#47515c")  # fmt: skip
    assert visitor.errors() == []


def test_a_class_is_added_to_the_plane(visitor, server):
    opened(visitor, server, "/planes", "Shown")
    visitor.change("label", active=2)
    chosen = "return Bokeh.documents[0].get_model_by_name('left').renderers.at(-1).data_source.default_values"
    visitor.until(lambda: "3" in str(visitor.script(chosen)))
    visitor.click_at("left", 2.0, 2.4)
    visitor.until_said("29 points")
    assert visitor.source("left")["label"][-1] == "3"
    assert visitor.errors() == []


def test_the_agent_learns_and_answers(visitor, server):
    opened(visitor, server, "/cartpole", "Press Learn")
    visitor.change("mode", active=1)
    visitor.until_said("Learning:")
    visitor.until(lambda: len(visitor.source("curve", 0)["x"]) > 1)
    visitor.change("mode", active=0)
    visitor.until_said("Paused")
    tip = visitor.source("cart")
    visitor.drag("cart", (tip["x"][1], tip["y"][1]), (tip["x"][0] + 0.3, 1.25))
    visitor.until(lambda: abs(visitor.read("angle", "value") - np.arctan2(0.3, 0.95)) < 0.03)
    visitor.change("mode", active=2)
    visitor.until_said("Watching:")
    visitor.change("mode", active=0)
    visitor.until_said("Paused")
    assert visitor.errors() == []
