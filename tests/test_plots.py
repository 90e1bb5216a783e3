"""Displays hold the right arrays, and draw them."""

import sys

import matplotlib

matplotlib.use("Agg")

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot
from matplotlib.collections import FillBetweenPolyCollection, LineCollection
from sklearn.datasets import load_iris
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.linear_model import LogisticRegression

from anchored import AnchoredRegressor, metrics
from anchored.plots import BandDisplay, CalibrationDisplay, PITDisplay, PredictionDisplay, ReliabilityDisplay

REGRESSION_DISPLAYS = [BandDisplay, CalibrationDisplay, PITDisplay, PredictionDisplay]


@pytest.fixture(autouse=True)
def close_figures():
    yield
    pyplot.close("all")


@pytest.fixture(scope="module")
def line():
    """X and y of a noisy line."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 2, size=(30, 1))
    return X, X[:, 0] + 0.3 * rng.normal(size=30)


@pytest.fixture(scope="module")
def model(line):
    return GaussianProcessRegressor(RBF() + WhiteKernel(0.1), optimizer=None).fit(*line)


def labelled(ax, label):
    """The data of the line with this label."""
    return next(artist.get_xydata().T for artist in ax.lines if artist.get_label() == label)


@pytest.mark.parametrize("display_class", REGRESSION_DISPLAYS)
def test_displays_draw_into_given_axes_and_can_be_drawn_again(display_class, model, line):
    _, (left, right) = pyplot.subplots(1, 2)
    display = display_class.from_estimator(model, *line, ax=left)
    assert display.ax_ is left
    assert display.figure_ is left.figure
    assert not right.has_data()
    assert display.plot(right) is display
    assert display.ax_ is right
    assert len(right.get_children()) == len(left.get_children())
    assert display.plot().ax_ not in (left, right)


@pytest.mark.parametrize("display_class", REGRESSION_DISPLAYS)
def test_estimator_and_its_predictions_give_the_same_arrays(display_class, model, line):
    X, y = line
    from_estimator = display_class.from_estimator(model, X, y)
    grid = from_estimator.x[:, None] if display_class is BandDisplay else X
    mean, std = model.predict(grid, return_std=True)
    if display_class is BandDisplay:
        other = BandDisplay.from_predictions(grid, mean, std, x_data=X, y_data=y)
    else:
        other = display_class.from_predictions(y, mean, std)
    for name in vars(other).keys() - {"ax_", "figure_", "members"}:
        np.testing.assert_allclose(getattr(from_estimator, name), getattr(other, name), 1e-12, 1e-14, err_msg=name)


def test_bands_lie_around_the_mean(model, line):
    X, y = line
    display = BandDisplay.from_estimator(model, X, y, limits=(-3, 4), n_points=50, n_bands=2)
    mean, std = model.predict(np.linspace(-3, 4, 50)[:, None], return_std=True)
    np.testing.assert_array_equal(display.mean, mean)
    np.testing.assert_array_equal(labelled(display.ax_, "mean"), [np.linspace(-3, 4, 50), mean])
    np.testing.assert_array_equal(labelled(display.ax_, "data"), [X[:, 0], y])
    wide, narrow = (band for band in display.ax_.collections if isinstance(band, FillBetweenPolyCollection))
    for band, width in ((wide, 2), (narrow, 1)):
        heights = band.get_paths()[0].vertices[:, 1]
        assert heights.max() == pytest.approx(np.max(mean + width * std))
        assert heights.min() == pytest.approx(np.min(mean - width * std))


def test_the_grid_extends_beyond_the_data_by_a_third_of_their_range(model, line):
    X, y = line
    display = BandDisplay.from_estimator(model, X, y)
    assert display.x[0] == pytest.approx(X.min() - np.ptp(X) / 3)
    assert display.x[-1] == pytest.approx(X.max() + np.ptp(X) / 3)


def test_keyword_arguments_style_the_mean(model, line):
    display = BandDisplay.from_estimator(model, *line, n_bands=0, color="red", label="truth")
    assert not display.ax_.collections
    assert [artist.get_color() for artist in display.ax_.lines if artist.get_label() == "truth"] == ["red"]


def test_each_member_is_a_line():
    X = np.linspace(-1, 1, 10)[:, None]
    model = AnchoredRegressor(3, (50,), max_iter=3, noise_variance=0.1, prior_scale=1.0, random_state=0)
    frame = pd.DataFrame(X, columns=["dose"])
    display = BandDisplay.from_estimator(model.fit(frame, X[:, 0]), frame, X[:, 0], n_members=3, n_points=20)
    assert display.members.shape == (3, 20)
    np.testing.assert_allclose(display.members.mean(0), display.mean, rtol=1e-4, atol=1e-5)
    drawn = [artist.get_ydata() for artist in display.ax_.lines[:3]]
    np.testing.assert_array_equal(drawn, display.members)


def test_the_calibration_curve_is_that_of_metrics(model, line):
    X, y = line
    display = CalibrationDisplay.from_estimator(model, X, y, levels=[0.5, 0.9])
    mean, std = model.predict(X, return_std=True)
    curve = metrics.calibration_curve(y, mean, std, [0.5, 0.9])
    np.testing.assert_array_equal([display.expected, display.observed], curve)
    np.testing.assert_array_equal(labelled(display.ax_, "predictions"), curve)
    error = metrics.calibration_error(y, mean, std, [0.5, 0.9])
    assert display.ax_.get_title() == f"calibration error {error:.3f}"


def test_pit_bars_are_a_density(model, line):
    display = PITDisplay.from_estimator(model, *line, n_bins=4)
    np.testing.assert_allclose(display.values, metrics.pit(line[1], *model.predict(line[0], return_std=True)), 1e-12)
    heights = [bar.get_height() for bar in display.ax_.patches]
    np.testing.assert_allclose(heights, np.histogram(display.values, 4, (0, 1), density=True)[0])
    assert labelled(display.ax_, "uniform")[1].tolist() == [1, 1]


def test_predictions_with_intervals(model, line):
    X, y = line
    display = PredictionDisplay.from_estimator(model, X, y, coverage=0.8)
    mean, std = model.predict(X, return_std=True)
    lower, upper = metrics.gaussian_interval(mean, std, 0.8)
    np.testing.assert_allclose([display.lower, display.upper], [lower, upper], 1e-12, 1e-14)
    np.testing.assert_array_equal(labelled(display.ax_, "mean"), [y, mean])
    (intervals,) = (artist for artist in display.ax_.collections if isinstance(artist, LineCollection))
    np.testing.assert_allclose([segment[:, 1] for segment in intervals.get_segments()], np.stack([lower, upper], 1))
    covered = metrics.coverage(y, lower, upper)
    assert display.ax_.get_title() == f"80% intervals contain {covered:.0%} of targets"


def test_intervals_need_not_contain_the_mean():
    display = PredictionDisplay(np.zeros(2), np.zeros(2), np.array([-1.0, 0.5]), np.array([1.0, 2.0])).plot()
    assert display.ax_.get_title() == "intervals contain 50% of targets"


def test_reliability_of_a_classifier():
    X, y = load_iris(return_X_y=True)
    model = LogisticRegression(max_iter=500).fit(X, y)
    seen = y < 2  # the third class does not occur, but has a column of probabilities
    display = ReliabilityDisplay.from_estimator(model, X[seen], y[seen], n_bins=5)
    probabilities = model.predict_proba(X[seen])
    curve = metrics.reliability_curve(y[seen], probabilities, 5, labels=range(3))
    np.testing.assert_array_equal([display.confidence, display.accuracy, display.share], curve)
    np.testing.assert_array_equal([bar.get_height() for bar in display.ax_.patches], np.nan_to_num(display.accuracy))
    (dots,) = display.ax_.collections
    filled = display.share > 0
    np.testing.assert_allclose(np.ma.getdata(dots.get_offsets())[filled], np.stack(curve[:2], 1)[filled])
    error = metrics.expected_calibration_error(y[seen], probabilities, 5, labels=range(3))
    assert display.ax_.get_title() == f"expected calibration error {error:.3f}"


def test_figures_can_be_saved(model, line, tmp_path):
    for display_class in REGRESSION_DISPLAYS:
        path = tmp_path / f"{display_class.__name__}.png"
        display_class.from_estimator(model, *line).figure_.savefig(path)
        assert path.stat().st_size > 0


def test_invalid_arguments_of_a_band(model, line):
    with pytest.raises(ValueError, match="X must have one column"):
        BandDisplay.from_estimator(model, np.zeros((3, 2)), np.zeros(3))
    with pytest.raises(ValueError, match="n_bands must be"):
        BandDisplay.from_estimator(model, *line, n_bands=4)


def test_the_error_without_matplotlib_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install 'anchored\[plot\]'"):
        PITDisplay(np.array([0.5])).plot()
