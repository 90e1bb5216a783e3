"""Guaranteed coverage: the exact finite-sample quantile, the share of covered observations, and files."""

import numpy as np
import pytest
from mapie.regression import SplitConformalRegressor
from sklearn.exceptions import NotFittedError

from anchored import AnchoredClassifier, AnchoredRegressor, load
from anchored.errors import ArgumentError
from anchored.estimators import guarantee
from anchored.model.predictive import CategoricalPredictive, Predictive

pytestmark = pytest.mark.usefixtures("unoptimised")
SOLVED = {"trainable": "last_layer", "noise_variance": 1e-3, "prior_scale": 1.0, "random_state": 0}  # in closed form


def standard_normal(*shape):
    """A predictive distribution that is the same for all rows, though the observations may be anything."""
    return Predictive(np.zeros(shape), np.zeros(shape), np.ones(shape), np.inf)


@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9])
def test_coverage_is_the_exact_one(coverage):
    """A new observation is covered with probability ⌈(n + 1) · coverage⌉/(n + 1), over calibration rows and itself."""
    rng, n, n_repetitions = np.random.default_rng(0), 19, 20_000
    draws = rng.exponential(size=(n + 1, n_repetitions)) - 3  # very unlike the prediction
    found = guarantee.of_regression(draws[:n], standard_normal(n, n_repetitions), coverage)
    lower, upper = found.interval(standard_normal(1, n_repetitions))
    covered = np.mean((lower <= draws[n]) & (draws[n] <= upper))
    exact = np.ceil((n + 1) * coverage) / (n + 1)
    assert exact >= coverage and abs(covered - exact) < 4 * np.sqrt(exact * (1 - exact) / n_repetitions)


def test_the_margin_is_that_score_of_the_calibration_rows():
    rng = np.random.default_rng(1)
    y, predictive = rng.standard_cauchy(99), standard_normal(99)
    found = guarantee.of_regression(y, predictive, 0.9)
    half_width = predictive.interval(0.9)[1][0]
    assert found.margin[0] == pytest.approx(np.sort(np.abs(y))[89] - half_width, rel=1e-12)
    both = guarantee.of_regression(np.column_stack([y, 2 * y]), standard_normal(99, 2), 0.9)
    assert both.margin == pytest.approx((found.margin[0], 2 * np.sort(np.abs(y))[89] - half_width), rel=1e-12)


def test_sets_of_classes_cover_as_promised():
    """The labels are drawn with other probabilities than those that are predicted."""
    rng, n, coverage = np.random.default_rng(2), 39, 0.9
    covered = []
    for _ in range(4_000):
        p = rng.dirichlet(np.ones(4), n + 1)
        labels = (p.cumsum(1) > rng.random((n + 1, 1))).argmax(1)
        q = p[:, ::-1] ** 2 + 0.1  # wrong on purpose
        wrong = CategoricalPredictive(q / q.sum(1, keepdims=True), np.zeros(n + 1), np.zeros_like(q), 5)
        calibration = CategoricalPredictive(wrong.probabilities[:n], np.zeros(n), np.zeros((n, 4)), 5)
        in_set = guarantee.of_classification(labels[:n], calibration, coverage).classes(wrong)
        assert in_set.any(axis=1).all()
        covered.append(in_set[n, labels[n]])
    assert coverage - 4 * 0.3 / np.sqrt(4_000) < np.mean(covered) < coverage + 1 / (n + 1) + 4 * 0.3 / np.sqrt(4_000)


def test_too_few_rows_or_no_probability_are_errors():
    with pytest.raises(ArgumentError, match=r"0\.95 can be guaranteed with 19 .* there are 18"):
        guarantee.checked_rank(0.95, 18)
    assert guarantee.checked_rank(0.95, 19) == 19 and guarantee.checked_rank(0.9, 9) == 9
    assert guarantee.checked_rank(0.7, 9) == 7  # 0.7 · 10 is 7 exactly, not a little more
    with pytest.raises(ArgumentError, match="coverage must lie between 0 and 1"):
        guarantee.checked_rank(1.0, 100)


@pytest.fixture(scope="module")
def curve():
    rng = np.random.default_rng(3)
    X = rng.uniform(-2, 2, (1200, 2))
    y = np.sin(2 * X[:, 0]) + (0.1 + 0.3 * (X[:, 1] > 0)) * rng.standard_t(2, 1200)
    return X, y


@pytest.fixture(scope="module")
def model(curve):
    """A model that is far too sure of itself, and calibrated rows."""
    X, y = curve
    return AnchoredRegressor(3, (20,), **SOLVED).fit(X[:100], y[:100]).conformalize(X[100:400], y[100:400], 0.9)


def test_a_wrong_model_covers_as_promised(curve, model):
    X, y = curve[0][400:], curve[1][400:]

    def share(lower, upper):
        return np.mean((lower <= y) & (y <= upper))

    assert share(*model.predict_interval(X, 0.9)) < 0.6
    error = np.sqrt(0.9 * 0.1 * (1 / 800 + 1 / 300))  # of the new rows and of the calibration rows
    assert abs(share(*model.predict_guaranteed_interval(X)) - 0.9) < 3 * error


def test_mapie_finds_the_same_interval(curve):
    """With one standard deviation for all rows, the scores differ from MAPIE's absolute residuals by a constant."""
    X, y = curve
    same = AnchoredRegressor(3, (20,), **SOLVED | {"noise_variance": 1e6}).fit(X[:100], y[:100])
    same.conformalize(X[100:400], y[100:400], 0.9)
    lower, upper = same.predict_guaranteed_interval(X[400:])
    theirs = SplitConformalRegressor(same, confidence_level=0.9, prefit=True)
    theirs.conformalize(X[100:400], y[100:400])
    interval = theirs.predict_interval(X[400:])[1][:, :, 0]
    assert np.allclose(np.column_stack([lower, upper]), interval, atol=1e-2)


def test_files_keep_the_guarantee_and_a_fit_drops_it(curve, model, tmp_path):
    X, y = curve
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.guarantee_ == model.guarantee_ and again.guarantee_.n_rows == 300
    assert np.array_equal(again.predict_guaranteed_interval(X), model.predict_guaranteed_interval(X))
    assert again.fit(X[:100], y[:100]).guarantee_ is None
    with pytest.raises(NotFittedError, match="call conformalize with rows"):
        again.predict_guaranteed_interval(X)
    with pytest.raises(ArgumentError, match="X, y are the rows that the model was fitted to"):
        again.conformalize(X[:100], y[:100])


def test_classes(tmp_path):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(600, 2))
    labels = np.array(["a", "b", "c"])[np.digitize(X[:, 0] + rng.normal(size=600), [-0.5, 0.5])]
    few = {"max_iter": 20, "temperature": 0.02, "prior_scale": 2.0, "random_state": 0}
    model = AnchoredClassifier(2, (5,), **few).fit(X[:80], labels[:80]).conformalize(X[80:280], labels[80:280], 0.9)
    in_set = model.predict_guaranteed_set(X[280:])
    covered = in_set[np.arange(320), np.searchsorted(model.classes_, labels[280:])].mean()
    assert in_set.shape == (320, 3) and abs(covered - 0.9) < 3 * np.sqrt(0.09 * (1 / 320 + 1 / 200))
    model.save(tmp_path / "model")
    assert np.array_equal(load(tmp_path / "model").predict_guaranteed_set(X), model.predict_guaranteed_set(X))
    with pytest.raises(ValueError, match="not among"):
        model.conformalize(X[:30], ["d"] * 30)
