"""The estimated distribution of observations: its shape, and its robustness to outliers and copies of rows."""

import numpy as np
import pytest

from anchored import AnchoredRegressor
from anchored.estimators import noise

N_TEST = 2000
NOISE = 20.0  # standard deviation


def line(seed, n=300):
    """Training and test rows of a noisy line, with a second column that has no effect."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n + N_TEST, 2))
    y = 3 * X[:, 0] + NOISE * rng.normal(size=len(X))
    return X[:n], y[:n], X[n:], y[n:]


def with_an_indicator_of_one_row(X, y, X_test):
    indicators = [np.arange(len(rows)) == index for rows, index in ((X, 0), (X_test, -1))]
    return np.c_[X[:, 0], indicators[0]], y, np.c_[X_test[:, 0], indicators[1]]


def with_a_typo_in_x(X, y, X_test):
    X[0, 1] = 100
    return X, y, X_test


def with_a_typo_in_y(X, y, X_test):
    y[0] = 200 * NOISE
    return X, y, X_test


def with_categories_of_one_row(X, y, X_test):
    return np.c_[X[:, 0], np.eye(len(X))[:, :30]], y, np.c_[X_test[:, 0], np.zeros((len(X_test), 30))]


def with_copies(X, y, X_test):
    half = len(X) // 2
    return np.r_[X[:half], X[:half]], np.r_[y[:half], y[:half]], X_test


@pytest.mark.parametrize(
    "change",
    [with_an_indicator_of_one_row, with_a_typo_in_x, with_a_typo_in_y, with_categories_of_one_row, with_copies],
)
def test_outliers_do_not_change_the_intervals_of_other_rows(change):
    X, y, X_test, y_test = line(0)
    X, y, X_test = change(X, y, X_test)
    model = AnchoredRegressor(n_estimators=5, hidden_layer_sizes=(20,), max_iter=100, random_state=0).fit(X, y)
    lower, upper = model.predict_interval(X_test)
    assert 0.88 < np.mean((lower < y_test) & (y_test < upper)) < 0.99
    assert 0.7 < np.sqrt(model.noise_variance_) / NOISE < 1.4


@pytest.mark.parametrize("n", [30, 100])
def test_two_outliers_among_few_rows(n):
    """Two typos in y, of the same sign, are given little weight and leave the noise as it is."""
    X, y, X_test, y_test = line(2, n)
    y[:2] += [200 * NOISE, 150 * NOISE]
    model = AnchoredRegressor(n_estimators=5, hidden_layer_sizes=(20,), max_iter=60, random_state=0).fit(X, y)
    lower, upper = model.predict_interval(X_test)
    assert 0.85 < np.mean((lower < y_test) & (y_test < upper)) < 0.99
    assert 0.6 < np.sqrt(model.noise_variance_) / NOISE < 1.5


@pytest.mark.parametrize(
    ("draw", "name"),
    [
        (lambda rng, n: rng.standard_t(3, n), "heavy tails"),
        (lambda rng, n: rng.gamma(2.0, size=n) - 2.0, "skewed"),
    ],
)
def test_shape_of_residuals(draw, name):
    """Both tails have the right probability, and the likelihood is better than that of a normal distribution."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(1000 + N_TEST, 1))
    y = X[:, 0] + draw(rng, len(X))
    model = AnchoredRegressor(n_estimators=5, hidden_layer_sizes=(20,), max_iter=60, random_state=0)
    model.fit(X[:1000], y[:1000])
    predictive, y_test = model.predict_dist(X[1000:]), y[1000:]
    lower, upper = predictive.interval(0.9)
    below, above = np.mean(y_test < lower), np.mean(y_test > upper)
    assert 0.03 < below < 0.07, name
    assert 0.03 < above < 0.07, name
    normal = np.mean(0.5 * ((y_test - predictive.mean) / predictive.std) ** 2 + np.log(predictive.std))
    assert -predictive.logpdf(y_test).mean() < normal + 0.5 * np.log(2 * np.pi) - 0.02
    samples = model.sample_y(X[1000:1050], n_samples=2000, random_state=0)
    assert np.abs(np.mean(samples < lower[:50, None]) - 0.05) < 0.015
    assert np.abs(np.mean(samples > upper[:50, None]) - 0.05) < 0.015


def test_the_true_shape_is_found():
    """Residuals are drawn from known shapes. The variance between members, a part of the variance, differs by row."""
    rng, n = np.random.default_rng(4), 5000
    member_variance, variance = rng.gamma(2.0, 0.1, size=n), rng.gamma(4.0, 0.25, size=n)
    std = np.sqrt(member_variance + 2 * variance)
    is_narrow = rng.uniform(size=n) < 0.6
    mixture = np.where(is_narrow, 0.0, 0.5) + np.where(is_narrow, 1.0, 4.0) * rng.normal(size=n)
    drawn = {"mixture": (mixture - 0.2) / np.sqrt(0.6 + 0.4 * 16.25 - 0.04), "t": rng.standard_t(5, n) * np.sqrt(3 / 5)}
    drawn["normal"] = rng.normal(size=n)
    residual = np.stack([std * z for z in drawn.values()], axis=1)
    columns = [np.repeat(part[:, None], 3, axis=1) for part in (variance, member_variance)]
    mixed, student, normal = noise._fit_shapes(residual, *columns, np.ones((n, 1)), 3 * [noise._families(n)])
    assert (mixed.shape.share, mixed.shape.ratio) == (pytest.approx(0.6, abs=0.05), pytest.approx(4.0, rel=0.1))
    assert mixed.shape.shift == pytest.approx(0.5, abs=0.2)
    assert student.shape.degrees_of_freedom == pytest.approx(5.0, rel=0.25) and student.shape.share == 1
    assert normal.shape.is_normal
    assert [fit.factor for fit in (mixed, student, normal)] == pytest.approx([2.0] * 3, rel=0.12)


def test_two_peaks_and_few_rows():
    """Residuals with two peaks, such as of two groups that X does not distinguish. Few rows count as normal."""
    rng = np.random.default_rng(5)
    residual = np.where(rng.uniform(size=(2000, 1)) < 0.5, -1.0, 1.0) + 0.5 * rng.normal(size=(2000, 1))
    ones = np.ones_like(residual)
    (fit,) = noise._fit_shapes(residual, ones, 1e-6 * ones, ones, [noise._families(2000)])
    assert 0.4 < fit.shape.share < 0.6 and abs(fit.shape.shift) == pytest.approx(4.0, abs=0.4)
    for few in (np.array([[2.0], [-1.0], [-1.0]]), np.array([[1.0], [-1.0]])):
        (fit,) = noise._fit_shapes(
            few, np.ones_like(few), np.zeros_like(few), np.ones_like(few), [noise._families(2000)]
        )
        assert fit.shape.is_normal
    weights = np.where(np.arange(2000) == 0, 1e6, 1.0)[:, None]
    (fit,) = noise._fit_shapes(residual, ones, 1e-6 * ones, weights, [noise._families(2000)])
    assert fit.shape.is_normal
    (fit,) = noise._fit_shapes(
        residual, ones, 1e-6 * ones, ones, [noise._families(6)]
    )  # a target with six values, such as grades
    assert fit.shape.share == 1
