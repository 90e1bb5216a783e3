"""Metrics, compared with scoringrules, with formulas and with counting."""

import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import scoringrules
import sklearn.metrics
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats
from sklearn.datasets import load_iris
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.linear_model import BayesianRidge, LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from anchored import AnchoredRegressor, metrics

SCORERS = [metrics.neg_nll_scorer, metrics.neg_crps_scorer, metrics.neg_interval_score_scorer]
NORMAL_METRICS = [metrics.gaussian_nll, metrics.gaussian_crps, metrics.calibration_error]


@pytest.fixture
def normals():
    """Targets, and means and standard deviations that do not match them."""
    rng = np.random.default_rng(0)
    return rng.normal(size=50), rng.normal(size=50), rng.uniform(0.2, 2, size=50)


@pytest.fixture
def classes():
    """Labels of three classes, and probabilities for them."""
    rng = np.random.default_rng(1)
    return np.array(["ant", "bee", "cat"])[rng.integers(3, size=200)], rng.dirichlet(np.ones(3), size=200)


# Regression


def test_normal_scores_agree_with_scoringrules(normals):
    assert metrics.gaussian_nll(*normals) == pytest.approx(np.mean(scoringrules.logs_normal(*normals)))
    assert metrics.gaussian_crps(*normals) == pytest.approx(np.mean(scoringrules.crps_normal(*normals)))


@given(st.floats(-5, 5), st.floats(-5, 5), st.floats(0.1, 10))
@settings(max_examples=25, deadline=None)
def test_crps_against_numerical_integration(y, mean, std):
    below, _ = integrate.quad(lambda x: stats.norm.cdf(x, mean, std) ** 2, min(y, mean) - 12 * std, y)
    above, _ = integrate.quad(lambda x: stats.norm.sf(x, mean, std) ** 2, y, max(y, mean) + 12 * std)
    assert metrics.gaussian_crps([y], mean, std) == pytest.approx(below + above, rel=1e-5, abs=1e-7)


def test_sample_crps_against_scoringrules_and_all_pairs(normals):
    y, mean, std = normals
    samples = mean + std * np.random.default_rng(2).normal(size=(7, 50))
    pairs = np.abs(samples[:, None] - samples[None]).sum((0, 1)) / (2 * 7 * 6)
    assert metrics.sample_crps(y, samples) == pytest.approx(np.mean(np.abs(samples - y).mean(0) - pairs))
    expected = scoringrules.crps_ensemble(y, samples, m_axis=0, estimator="fair")
    assert metrics.sample_crps(y, samples) == pytest.approx(np.mean(expected))


def test_sample_crps_of_two_samples_is_unbiased(normals):
    y, mean, std = (array[:1] for array in normals)
    repeats = 20_000
    samples = mean + std * np.random.default_rng(3).normal(size=(2, repeats))
    error = np.std(np.abs(samples - y).mean(0) - np.abs(samples[0] - samples[1]) / 2) / np.sqrt(repeats)
    estimate = metrics.sample_crps(np.repeat(y, repeats), samples)
    assert estimate == pytest.approx(metrics.gaussian_crps(y, mean, std), abs=4 * error)


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=8), st.floats(-1e6, 1e6))
@settings(max_examples=50, deadline=None)
def test_sample_crps_is_invariant_to_shifts_and_order(samples, shift):
    samples = np.array(samples)[:, None]
    score = metrics.sample_crps([0.5], samples)
    assert metrics.sample_crps([0.5 + shift], samples[::-1] + shift) == pytest.approx(score, abs=1e-7)


def test_mixture_of_normals_agrees_with_scoringrules(normals):
    y, _, std = normals
    means = np.random.default_rng(4).normal(size=(5, 50))
    stds = std * np.linspace(0.5, 2, 5)[:, None]
    assert metrics.mixture_nll(y, means, stds) == pytest.approx(np.mean(scoringrules.logs_mixnorm(y, means.T, stds.T)))
    assert metrics.mixture_nll(y, means, std) == pytest.approx(metrics.mixture_nll(y, means, np.tile(std, (5, 1))))


def test_a_mixture_of_equal_members_is_one_normal_even_in_the_tails(normals):
    _, mean, std = normals
    y = mean + 100 * std  # where the density underflows to zero
    assert metrics.mixture_nll(y, np.tile(mean, (3, 1)), std) == pytest.approx(metrics.gaussian_nll(y, mean, std))


def test_intervals_agree_with_scoringrules_and_with_counting(normals):
    y, mean, std = normals
    lower, upper = metrics.gaussian_interval(mean, std, 0.8)
    np.testing.assert_allclose(stats.norm.cdf(upper, mean, std) - stats.norm.cdf(lower, mean, std), 0.8)
    expected = np.mean(scoringrules.interval_score(y, lower, upper, 0.2))
    assert metrics.interval_score(y, lower, upper, 0.8) == pytest.approx(expected)
    assert metrics.coverage(y, lower, upper) == np.mean([low <= value <= up for value, low, up in zip(y, lower, upper)])
    assert metrics.interval_width(lower, upper) == pytest.approx(np.mean(2 * stats.norm.ppf(0.9) * std))


def test_infinite_ends_and_single_numbers_as_intervals():
    assert metrics.coverage([1.0, 2.0, 3.0], -np.inf, 2.0) == pytest.approx(2 / 3)
    assert metrics.interval_width(0.0, 2.0) == 2
    assert metrics.interval_width(0.0, [2.0, 4.0]) == 3


@pytest.mark.parametrize("factor", [0.5, 0.8, 1.25, 2.0])
def test_proper_scores_are_lowest_for_the_true_distribution(factor):
    y = stats.norm.ppf((np.arange(2000) + 0.5) / 2000)

    def interval_score(y, mean, std):
        return metrics.interval_score(y, *metrics.gaussian_interval(np.full_like(y, mean), std), 0.95)

    for score in (metrics.gaussian_nll, metrics.gaussian_crps, interval_score):
        assert score(y, 0.0, 1.0) < score(y, 0.0, factor)


def test_pit_and_calibration_of_exact_quantiles():
    n_rows = 999
    ranks = np.arange(1, n_rows + 1) / (n_rows + 1)
    y = 3 + 2 * stats.norm.ppf(ranks)
    np.testing.assert_allclose(metrics.pit(y, 3.0, 2.0), ranks)
    expected, observed = metrics.calibration_curve(y, 3.0, 2.0, 9)
    np.testing.assert_allclose(expected, np.arange(1, 10) / 10)
    np.testing.assert_allclose(observed, expected, atol=2 / n_rows)
    assert metrics.calibration_error(y, 3.0, 2.0) < 2 / n_rows


def test_calibration_curve_is_the_coverage_of_central_intervals(normals):
    y, mean, std = normals
    expected, observed = metrics.calibration_curve(y, mean, std, [0.3, 0.9])
    by_hand = [metrics.coverage(y, *metrics.gaussian_interval(mean, std, level)) for level in (0.3, 0.9)]
    np.testing.assert_allclose(observed, by_hand)
    gap = (abs(by_hand[0] - 0.3) + abs(by_hand[1] - 0.9)) / 2
    assert metrics.calibration_error(y, mean, std, expected) == pytest.approx(gap)


@pytest.mark.parametrize("metric", NORMAL_METRICS)
def test_weights_equal_repetition(metric, normals):
    counts = np.random.default_rng(5).integers(0, 4, size=50)
    repeated = (np.repeat(array, counts) for array in normals)
    assert metric(*normals, sample_weight=counts) == pytest.approx(metric(*repeated))


def test_scores_are_averaged_over_outputs_and_numbers_are_broadcast(normals):
    y, mean, std = normals
    flat = metrics.gaussian_crps(y, mean, std)
    assert metrics.gaussian_crps(*(array.reshape(25, 2) for array in normals)) == pytest.approx(flat)
    assert metrics.gaussian_nll(y, 0.0, 1.0) == metrics.gaussian_nll(y, np.zeros(50), np.ones(50))


# Classification


def test_metrics_of_scikit_learn_are_not_reimplemented():
    assert metrics.log_loss is sklearn.metrics.log_loss
    assert metrics.root_mean_squared_error is sklearn.metrics.root_mean_squared_error


def test_brier_score_by_its_formula(classes):
    y, probabilities = classes
    one_hot = y[:, None] == np.unique(y)
    assert metrics.brier_score(y, probabilities) == pytest.approx(
        np.mean(np.sum((one_hot - probabilities) ** 2, axis=1))
    )
    two = probabilities[:, :2] / probabilities[:, :2].sum(1, keepdims=True)
    expected = 2 * np.mean(scoringrules.brier_score((y == "bee").astype(float), two[:, 1]))
    assert metrics.brier_score(y == "bee", two.astype(np.float32)) == pytest.approx(expected, rel=1e-5)


def test_expected_calibration_error_by_counting(classes):
    y, probabilities = classes
    confidence = probabilities.max(1)
    correct = np.unique(y)[probabilities.argmax(1)] == y
    gaps = 0.0
    for i in range(10):
        inside = (i / 10 < confidence) & (confidence <= (i + 1) / 10)
        gaps += abs(correct[inside].sum() - confidence[inside].sum())
    assert metrics.expected_calibration_error(y, probabilities, 10) == pytest.approx(gaps / 200)


def test_reliability_curve_of_a_few_rows():
    probabilities = [[0.9, 0.1], [0.7, 0.3], [0.2, 0.8], [1.0, 0.0]]
    confidence, accuracy, share = metrics.reliability_curve([0, 1, 1, 0], probabilities, 4)
    np.testing.assert_allclose(confidence, [np.nan, np.nan, 0.7, 0.9])
    np.testing.assert_allclose(accuracy, [np.nan, np.nan, 0.0, 1.0])
    np.testing.assert_allclose(share, [0, 0, 0.25, 0.75])
    weighted = metrics.reliability_curve([0, 1, 1, 0], probabilities, 1, sample_weight=[0, 3, 1, 0])
    np.testing.assert_allclose(np.ravel(weighted), [0.725, 0.25, 1.0])


def test_classes_that_do_not_occur():
    probabilities = [[0.2, 0.8, 0.0], [0.5, 0.4, 0.1]]
    assert metrics.expected_calibration_error([1, 0], probabilities, labels=range(3)) == pytest.approx(0.35)
    assert metrics.brier_score([1, 0], probabilities, labels=range(3)) == pytest.approx((0.08 + 0.42) / 2)


def test_out_of_distribution_auroc_counts_pairs():
    inside, outside = np.array([0.1, 0.4, 0.4]), np.array([0.3, 0.4, 0.9, 0.05])
    wins = np.mean((outside > inside[:, None]) + 0.5 * (outside == inside[:, None]))
    assert metrics.out_of_distribution_auroc(inside, outside) == pytest.approx(wins)


# Scorers


@pytest.fixture(scope="module")
def line():
    """X and y of a noisy line."""
    rng = np.random.default_rng(6)
    X = rng.uniform(-2, 2, size=(40, 1))
    return X, X[:, 0] + 0.3 * rng.normal(size=40)


@pytest.mark.parametrize("scorer", SCORERS)
def test_scorers_in_a_grid_search(scorer, line):
    X, y = line
    regressor = GaussianProcessRegressor(RBF() + WhiteKernel(0.09), optimizer=None)
    pipeline = make_pipeline(StandardScaler(), regressor)
    grid = {"gaussianprocessregressor__kernel": [RBF() + WhiteKernel(noise) for noise in (1e-4, 0.09, 30.0)]}
    search = GridSearchCV(pipeline, grid, scoring=pickle.loads(pickle.dumps(scorer)), cv=3).fit(X, y)
    assert search.best_index_ == 1
    assert search.best_score_ < 0 or scorer is metrics.neg_nll_scorer
    assert search.score(X, y) == scorer(search.best_estimator_, X, y)


def test_scorers_are_negative_metrics(line):
    X, y = line
    model = BayesianRidge().fit(X, y)
    weights = np.arange(40)
    mean, std = model.predict(X, return_std=True)
    lower, upper = stats.norm.interval(0.95, mean, std)
    expected = [
        -metrics.gaussian_nll(y, mean, std, sample_weight=weights),
        -metrics.gaussian_crps(y, mean, std, sample_weight=weights),
        -metrics.interval_score(y, lower, upper, 0.95, sample_weight=weights),
    ]
    assert [scorer(model, X, pd.Series(y), sample_weight=weights) for scorer in SCORERS] == pytest.approx(expected)


def test_scorers_take_a_single_column_of_targets(line):
    X, y = line
    model = GaussianProcessRegressor(RBF() + WhiteKernel(), optimizer=None).fit(X, y[:, None])
    assert metrics.neg_crps_scorer(model, X, y[:, None]) == metrics.neg_crps_scorer(model, X, y)


def test_scorers_take_an_anchored_regressor_in_a_pipeline(line):
    model = AnchoredRegressor(2, (50,), max_iter=3, noise_variance=0.1, prior_scale=1.0, random_state=0)
    scores = cross_val_score(make_pipeline(StandardScaler(), model), *line, scoring=metrics.neg_nll_scorer, cv=2)
    assert np.isfinite(scores).all()


def test_classifier_probabilities_score_well():
    X, y = load_iris(return_X_y=True)
    probabilities = LogisticRegression(max_iter=500).fit(X, y).predict_proba(X)
    assert metrics.brier_score(y, probabilities) < 0.1
    assert metrics.expected_calibration_error(y, probabilities) < 0.1


# Errors


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.gaussian_nll([0, 1], [[0], [1]], 1), r"mean must be one number or have the shape \(2,\)"),
        (lambda: metrics.gaussian_crps([0, 1], 0, [1, 0]), "std must be positive, got 0"),
        (lambda: metrics.gaussian_crps([0, np.nan], 0, 1), "y_true has entries that are NaN"),
        (lambda: metrics.pit([], 0, 1), "y_true must have at least one row"),
        (lambda: metrics.mixture_nll([0, 1], [0, 1], 1), "member_means must have one more axis"),
        (lambda: metrics.sample_crps([0, 1], [[0, 1]]), "samples: the fair estimator needs at least two"),
        (lambda: metrics.coverage([0, 1], [0, 2], [1, 1]), "lower must not be above upper"),
        (lambda: metrics.interval_score([0], [0], [1], 95), "coverage must lie above 0 and below 1, got 95"),
        (lambda: metrics.calibration_curve([0], [0], 1, [0.5, 1.0]), "levels must lie above 0 and below 1"),
        (lambda: metrics.calibration_curve([0], [0], 1, 0), "levels must be a whole number"),
        (lambda: metrics.gaussian_nll([0, 1], 0, 1, sample_weight=[1]), "sample_weight"),
        (lambda: metrics.gaussian_nll([0, 1], 0, 1, sample_weight=[1, -1]), "sample_weight"),
        (lambda: metrics.reliability_curve([0, 1], [[0.5, 0.5]]), "probabilities must have 2 rows and 2 classes"),
        (lambda: metrics.reliability_curve([0, 1], [[2, 0], [0, 1]]), "probabilities must lie between 0 and 1"),
        (lambda: metrics.brier_score([0, 1], np.eye(2), labels=[1, 0]), "labels must be sorted"),
        (lambda: metrics.brier_score([0, 5], np.eye(2), labels=[0, 1]), "y_true has classes that are not among"),
        (lambda: metrics.out_of_distribution_auroc([], [1]), "uncertainty_in must have at least one row"),
    ],
)
def test_errors_name_the_argument(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_metrics_do_not_load_jax():
    code = "import sys, anchored.metrics; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
