"""What the page of planes shows is what the library computes."""

import jax
import numpy as np
import pytest

from anchored import AnchoredClassifier
from anchored.errors import ArgumentError
from anchored.playground import continuation, planes
from anchored.playground.code import plane_code
from anchored.playground.planes import PlaneSettings
from anchored.playground.planes_page import PlanesPage, _mixed
from anchored.types import Data

SETTINGS = PlaneSettings(n_members=5, width=20, depth=1)
POINTS = planes.PRESETS["Three clusters"]
PAGE = PlanesPage.__new__(PlanesPage)  # without a document


@pytest.fixture(scope="module")
def fit():
    return planes.fit_anew(SETTINGS, POINTS)


def test_maps_are_those_of_the_estimator(fit):
    maps = fit.maps(9)
    model = AnchoredClassifier(5, (20,), temperature=1.0, prior_scale=3.0, max_iter=400, batch_size=200, random_state=0)
    predicted = model.fit(POINTS[:, :2], POINTS[:, 2].astype(int))
    axis = np.linspace(-3, 3, 9)
    for i, j in ((0, 0), (2, 7), (8, 3)):
        expected = predicted.predict_dist([[axis[j], axis[i]]])
        np.testing.assert_allclose(maps.probabilities[i, j], expected.probabilities[0], atol=1e-6)
        np.testing.assert_allclose(maps.epistemic[i, j], expected.epistemic_entropy[0], atol=1e-6)


def test_members_continue_as_in_the_library(fit):
    moved = np.vstack([POINTS, [[0.5, 0.5, 2.0]]])
    with jax.enable_x64(True):
        first = planes.fit_anew(SETTINGS, POINTS)
        shown = planes.continued(SETTINGS, first, moved)
        method, units = first.model.posterior_.record.method, first.model.x_standardisation_
        solver = continuation.solver_of(first.model, planes.N_CONTINUED, decay=True)
        inputs = (moved[:, :2] - units.mean) / units.scale
        data = Data(inputs, moved[:, 2].astype(np.int32), np.ones((len(moved), 1)))
        key = jax.random.key(first.model.seed_)
        posterior = type(method)(5, solver=solver).resume(key, first.model.posterior_, data)
        expected = posterior.outputs(inputs)
        found = shown.model.posterior_.outputs(inputs)
    assert shown.is_continued
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_other_classes_begin_anew(fit):
    shown = planes.continued(SETTINGS, fit, POINTS[POINTS[:, 2] > 0])
    assert not shown.is_continued and shown.maps(3).classes.tolist() == [1, 2]


def test_one_class_is_not_enough():
    with pytest.raises(ArgumentError, match="two classes"):
        planes.fit_anew(SETTINGS, POINTS[:5])


@pytest.mark.parametrize(
    "label", [["5"], [1], [None], ["x"], "1", None, ["1", "2"], [["1"]], np.zeros((1, 1)), ["1"] * 10**6]
)
def test_bad_classes_are_refused(label):
    with pytest.raises(ValueError, match="points must"):
        PAGE.checked({"x": [0.0], "y": [0.0], "label": label})


@pytest.mark.parametrize("name", planes.PRESETS)
def test_presets_can_be_sent(name):
    np.testing.assert_array_equal(PAGE.checked(PAGE.columns(planes.PRESETS[name])), planes.PRESETS[name])


@pytest.mark.parametrize("name", planes.PRESETS)
def test_presets_survive_being_written(name):
    np.testing.assert_allclose(PAGE.parsed(PAGE.written(planes.PRESETS[name])), planes.PRESETS[name], atol=1e-3)


@pytest.mark.parametrize("text", ["1, 2", "1, 2, 0", "1, 2, 5", "1, 2, 1.5", "1, 2, nan", "1, 2, a", "1, 2, 3, 4"])
def test_bad_text_is_refused(text):
    with pytest.raises(ArgumentError, match="points must"):
        PAGE.parsed(text)


def test_a_certain_class_has_its_own_colour():
    maps = planes.Maps(np.array([[[1.0, 0.0], [0.0, 1.0]]]), np.zeros((1, 2)), np.array([0, 3]))
    assert [f"{pixel & 0xFFFFFF:06x}" for pixel in _mixed(maps).ravel()] == ["b27200", "a779cc"]  # blue green red


def test_classes_have_the_same_numbers_everywhere():
    rows = np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 3.0]])
    assert [line[-1] for line in PAGE.written(rows).splitlines()] == ["1", "4"] == PAGE.columns(rows)["label"]
    assert "y = np.array([1, 4])" in plane_code({}, rows)
