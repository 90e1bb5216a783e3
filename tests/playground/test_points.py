"""What a page sends is checked like any argument."""

import numpy as np
import pytest

from anchored.errors import ArgumentError
from anchored.paper.experiments import six_points
from anchored.playground.points import MAX_POINTS, MAX_SIZE, PRESETS, checked, parsed, written

BAD = [
    {},
    {"x": [1.0]},
    {"x": [1.0], "y": [1.0, 2.0]},
    {"x": "12", "y": [1.0, 2.0]},
    {"x": [float("nan")], "y": [1.0]},
    {"x": [1.0], "y": [float("inf")]},
    {"x": [2 * MAX_SIZE], "y": [1.0]},
    {"x": [None], "y": [1.0]},
    {"x": ["1"], "y": [1.0]},
    {"x": [True], "y": [1.0]},
    {"x": [[1.0]], "y": [1.0]},
    {"x": np.zeros((2, 2)), "y": np.zeros(2)},
    {"x": [0.0] * (MAX_POINTS + 1), "y": [0.0] * (MAX_POINTS + 1)},
    {"x": np.zeros(1_000_000), "y": np.zeros(1_000_000)},
    {"x": {"a": 1}, "y": [1.0]},
]


@pytest.mark.parametrize("columns", BAD)
def test_bad_points_are_refused(columns):
    with pytest.raises(ArgumentError, match="points must"):
        checked(columns)


def test_good_points_are_kept():
    np.testing.assert_array_equal(checked({"x": [1, 2.5], "y": np.array([3.0, 4.0])}), [[1, 3], [2.5, 4]])
    assert checked({"x": [], "y": []}).shape == (0, 2)


@pytest.mark.parametrize("name", PRESETS)
def test_presets_survive_being_written(name):
    np.testing.assert_allclose(parsed(written(PRESETS[name])), PRESETS[name], atol=1e-3)
    assert len(PRESETS[name]) <= MAX_POINTS


@pytest.mark.parametrize("text", ["1", "1, 2, 3", "a, b", "1, nan", "1 2\n3 inf", 5, None, "1, 2\n" * 10_000])
def test_bad_text_is_refused(text):
    with pytest.raises(ArgumentError, match="points must"):
        parsed(text)


def test_text_may_be_separated_by_anything_usual():
    np.testing.assert_array_equal(parsed("1, 2\n\n 3;4 \n5\t6"), [[1, 2], [3, 4], [5, 6]])


def test_a_line_of_names_may_come_first():
    np.testing.assert_array_equal(parsed("x,y\n1,2\n"), [[1, 2]])
    np.testing.assert_array_equal(parsed("x, y, class\n1,2,3", ("x", "y", "class")), [[1, 2, 3]])
    with pytest.raises(ArgumentError, match="line 2"):
        parsed("1, 2\nx, y")


def test_six_points_are_those_of_figure_1():
    np.testing.assert_array_equal(PRESETS["Six points"], np.column_stack([six_points.INPUTS, six_points.TARGETS]))
