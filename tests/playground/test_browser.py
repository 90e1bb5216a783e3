"""The pages in a real browser, with the mouse and the keyboard; skipped where no browser is installed."""

import logging
import time

import browser
import jax
import matplotlib.pyplot as plt
import numpy as np
import pytest

from anchored import AnchoredRegressor, BayesianRegressor
from anchored.exact import processes
from anchored.exact.kernels import kernel_of
from anchored.exact.padding import with_zeros
from anchored.methods import AnchoredEnsemble, GaussianProcess
from anchored.model.likelihoods import Gaussian
from anchored.playground import continuation, curves
from anchored.playground.look import LIGHT
from anchored.playground.points import PRESETS, parsed
from anchored.playground.running import run_in_thread
from anchored.types import Data

pytestmark = pytest.mark.skipif(
    bool(browser.why_unavailable()), reason=browser.why_unavailable() or "a browser is installed"
)
SIX = PRESETS["Six points"]
GRID = np.linspace(-3, 3, 161)


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
    time.sleep(1)  # so that the next click is not the second one of a double click
    visitor.click_at("left", *SIX[2])
    time.sleep(1)  # Bokeh waits for a second click before it selects the point
    visitor.click("delete")
    visitor.until(lambda: len(points(visitor)) == 5 and "Shown" in visitor.read("status"))
    np.testing.assert_allclose(points(visitor), np.delete(SIX, 2, axis=0))
    visitor.click("delete")
    visitor.until_said("no point is selected")
    visitor.picture(tmp_path / "curves.png")
    assert (tmp_path / "curves.png").stat().st_size > 20_000
    assert visitor.errors() == [] and caplog.records == []


def assert_shows(visitor, figure, functions, mean, std, total_std):
    """The arrays in the browser are those that are given, (functions, points) and (points,)."""
    bands, lines = visitor.source(figure, -2), visitor.source(figure, 2)
    shown = np.array(lines["y"], float).reshape(-1, len(GRID) + 1)
    assert np.isnan(shown[:, -1]).all()  # between two lines
    np.testing.assert_allclose(bands["x"], GRID)
    if functions is not None:
        np.testing.assert_allclose(shown[:, :-1], functions, atol=1e-6)
    for name, expected in (
        ("mean", mean), ("low1", mean - std), ("high1", mean + std), ("low2", mean - 2 * std),
        ("high2", mean + 2 * std), ("low", mean - 2 * total_std), ("high", mean + 2 * total_std),
    ):  # fmt: skip
        np.testing.assert_allclose(bands[name], expected, atol=1e-6, err_msg=name)


def assert_shows_fit(visitor, model):
    """The left picture shows the members, the mean and the bands of a fitted AnchoredRegressor."""
    predicted, units = model.predict_dist(GRID[:, None]), model.y_standardisation_
    outputs = model.posterior_.outputs(model._standardised_inputs(GRID[:, None]))[..., 0]
    members = outputs * units.scale + units.mean
    assert_shows(visitor, "left", members, predicted.mean, np.sqrt(predicted.epistemic_variance), predicted.std)


def assert_shows_process(visitor, data):
    """The right picture shows the exact process."""
    exact = BayesianRegressor(GaussianProcess(), Gaussian(0.01), (50,), "gelu", prior_scale=2.0, random_state=0)
    predicted = exact.fit(data[:, :1], data[:, 1]).predict_dist(GRID[:, None])
    assert_shows(visitor, "right", None, predicted.mean, np.sqrt(predicted.epistemic_variance), predicted.std)


def assert_shows_conditioned(visitor, model, data):
    """The right picture shows the exact process in the units in which `model` was fitted."""
    x_units, y_units = model.x_standardisation_, model.y_standardisation_
    rows, noise = standardised(model, data), 0.01 / y_units.scale**2
    exact = processes.GaussianProcess(kernel_of(model.posterior_.target), noise).condition(*rows)
    mean, std = exact.predict((GRID[:, None] - x_units.mean) / x_units.scale, return_std=True)
    mean, std, total = (mean * y_units.scale + y_units.mean, std * y_units.scale, np.hypot(std * y_units.scale, 0.1))
    assert_shows(visitor, "right", None, mean[:, 0], std[:, 0], total[:, 0])


def standardised(model, data):
    x_units, y_units = model.x_standardisation_, model.y_standardisation_
    inputs, targets = (data[:, :1] - x_units.mean) / x_units.scale, (data[:, 1:] - y_units.mean) / y_units.scale
    return Data(inputs, targets, y_units.outlier_weights(targets))


def fitted(data, **arguments):
    settings = {"noise_variance": 0.01, "prior_scale": 2.0, "max_iter": 1000, "random_state": 0, **arguments}
    return AnchoredRegressor(10, (50,), "gelu", **settings).fit(data[:, :1], data[:, 1])


def resumed(model, data):
    """Continue the members of `model` by the library's `resume`, and put them into `model`."""
    rows = with_zeros(Data(*(np.float32(part) for part in standardised(model, data))))
    solver = continuation.solver_of(model, curves.N_CONTINUED, decay=True)
    key = jax.random.key(model.seed_)
    model.posterior_ = AnchoredEnsemble(10, solver=solver).resume(key, model.posterior_, rows)


def test_the_page_shows_what_the_library_computes(visitor, server):
    opened(visitor, server, "/curves", "from their anchors")
    model = fitted(SIX)
    assert_shows_fit(visitor, model)
    assert_shows_process(visitor, SIX)
    for x, y in ((0.2, 1.4), (-2.0, 0.5)):
        before = visitor.source("right", -2)["mean"]
        visitor.click_at("left", x, y)
        visitor.until(lambda before=before: visitor.source("right", -2)["mean"] != before)
        visitor.until_said("continued")
        resumed(model, points(visitor))
        assert_shows_fit(visitor, model)
        assert_shows_conditioned(visitor, model, points(visitor))
    visitor.click("anew")
    visitor.until_said("from their anchors, on 8 points")
    assert_shows_fit(visitor, fitted(points(visitor)))
    assert_shows_process(visitor, points(visitor))
    visitor.change("trainable", value="last_layer")
    visitor.until_said("closed form")
    assert_shows_fit(visitor, fitted(points(visitor), trainable="last_layer"))


def test_the_picture_and_the_points_are_saved(visitor, server, tmp_path):
    opened(visitor, server, "/curves", "Shown")
    visitor.click_at("left", 0.123, 1.4)
    visitor.until(lambda: len(points(visitor)) == 7 and "continued" in visitor.read("status"))
    visitor.download_to(tmp_path)
    visitor.click("save")
    picture, table = tmp_path / "anchored-playground.png", tmp_path / "anchored-points.csv"
    visitor.until(lambda: picture.exists() and table.exists())
    text = table.read_text()
    np.testing.assert_array_equal(parsed(text), points(visitor))
    visitor.until(lambda: picture.stat().st_size > 0)
    image = np.round(255 * plt.imread(picture)[..., :3]).astype(int)
    halves = np.array_split(image, 2, axis=1)
    assert image.shape[0] > 300 and image.shape[1] > 800
    for half, colour in zip(halves, (LIGHT["ensemble"], LIGHT["other"]), strict=True):
        is_mean = np.abs(half - [int(colour[i : i + 2], 16) for i in (1, 3, 5)]).max(-1) < 8
        assert is_mean.any(0).mean() > 0.5  # the line of the mean goes through most columns of its half
    assert visitor.errors() == []


def test_controls_and_the_film(visitor, server):
    opened(visitor, server, "/curves", "Shown")
    visitor.change("trainable", value="last_layer")
    visitor.until_said("closed form")
    visitor.change("noise", value_throttled=9.0, value=9.0)
    visitor.until_said("noise must lie")
    visitor.change("noise", value_throttled=0.1, value=0.1)
    visitor.change("trainable", value="all")
    visitor.until_said("from their anchors")
    assert visitor.read("other_title") == "<h2>Exact Gaussian process</h2>"
    visitor.change("other", value="deep ensemble")
    visitor.until(lambda: visitor.read("other_title") == "<h2>Deep ensemble</h2>")
    assert visitor.read("kappa", "disabled") and visitor.read("step", "disabled")
    events = "return Bokeh.index.find_one(Bokeh.documents[0].get_model_by_name(arguments[0])).canvas_view.events_el"
    for figure, name, stop in (("left", "Anchored ensemble", 0), ("right", "What it is compared with", -1)):
        assert visitor.script(f"{events}.ariaLabel", figure) == name
        assert visitor.script(f"{events}.tabIndex", figure) == stop
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
    lines = visitor.read("text", "value").splitlines()
    assert len(lines) == 29 and lines[-1].endswith(", 3")
    visitor.change("text", value="\n".join([*lines[:-1], "0.5, 0.5, 4"]))  # as the keyboard does
    visitor.until(lambda: visitor.source("left")["label"][-1] == "4" and "Shown" in visitor.read("status"))
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
