"""Piecewise linear features, compared with a loop over bins, and the treatment of outliers in standardisation."""

from itertools import pairwise

import jax.numpy as jnp
import numpy as np
import pytest

from anchored.estimators.encoding import EncodedInputs, PiecewiseLinearEncoding
from anchored.estimators.standardisation import Standardisation


def columns(n_rows=200):
    """A normal, a binary and a constant column."""
    rng = np.random.default_rng(0)
    return np.column_stack([rng.normal(size=n_rows), rng.integers(0, 2, n_rows), np.zeros(n_rows)])


def test_features_against_a_loop():
    inputs = columns()
    features = PiecewiseLinearEncoding.fit(inputs, np.ones(200)).transform(inputs)
    expected = [np.sqrt(0.5 * 12 / 3) * inputs[:, j] for j in range(3)]
    for j, n_bins in ((0, 8), (1, 1)):  # a binary column has one bin, and a constant column has none
        edges = np.unique(np.quantile(inputs[:, j], np.linspace(0, 1, 9), method="inverted_cdf"))
        assert len(edges) == n_bins + 1
        for low, high in pairwise(edges):
            position = [(min(max(x, low), high) - low) / (high - low) for x in inputs[:, j]]
            expected.append((2 * np.array(position) - 1) * np.sqrt(0.5 * 12 / (3 * n_bins)))
    assert np.allclose(features, np.column_stack(expected))


def test_jax_numpy_and_lazy_encoding_agree():
    inputs = columns().astype(np.float32)
    encoding = PiecewiseLinearEncoding.fit(inputs, np.ones(200))
    whole = encoding.transform(inputs)
    assert whole.dtype == np.float32
    assert np.allclose(encoding.transform(jnp.asarray(inputs)), whole, atol=1e-6)
    lazy = EncodedInputs(inputs, encoding)
    assert len(lazy) == 200
    assert np.array_equal(np.concatenate([lazy[:150], lazy[150:]]), whole)


def test_normal_columns_have_no_outliers():
    X = np.random.default_rng(1).normal(3, 2, size=(300, 4))
    standardisation = Standardisation.fit(X, np.ones(300), "X")
    assert np.allclose(standardisation.mean, X.mean(0))
    assert np.allclose(standardisation.scale, X.std(0))
    assert np.allclose(standardisation.transform_inputs(X, np.float64, "X"), (X - X.mean(0)) / X.std(0))
    assert np.all(standardisation.outlier_weights(standardisation.transform_targets(X, "X")) == 1)


def test_outliers_are_compressed_and_have_small_weights():
    rng = np.random.default_rng(2)
    X = np.column_stack([rng.normal(size=300), rng.normal(size=300), np.arange(300) == 7])
    X[5, 0], X[6, 1] = 100.0, -50.0
    standardisation = Standardisation.fit(X, np.ones(300), "X")
    ordinary = np.delete(np.arange(300), [5, 6, 7])
    assert np.allclose(standardisation.scale[:2], X[ordinary, :2].std(0), rtol=0.1)
    compressed = standardisation.transform_inputs(X, np.float64, "X")
    upper, beyond = standardisation.upper[0], (100 - standardisation.mean[0]) / standardisation.scale[0]
    assert np.isclose(compressed[5, 0], upper + np.log1p(beyond - upper))
    assert -15 < compressed[6, 1] < -4
    assert np.array_equal(compressed[:, 2], np.arange(300) == 7)  # a plain standardisation would give 17 for this row
    weights = standardisation.outlier_weights(standardisation.transform_targets(X, "X"))[:, 0]
    assert np.isclose(weights[5], (upper / beyond) ** 2)
    assert np.all(weights[ordinary] == 1)


@pytest.mark.parametrize("n", [20, 30, 100, 300])
def test_two_rows_may_be_outliers(n):
    """A flag of two rows, and two large values of the same sign. Ordinary rows are no outliers."""
    rng = np.random.default_rng(3)
    ordinary = rng.normal(size=(n, 50))
    X = np.where(np.arange(n)[:, None] < 2, 1e3, ordinary)
    standardisation = Standardisation.fit(np.c_[X, np.arange(n) < 2], np.ones(n), "X")
    assert np.all(standardisation.upper[:-1] < 50) and np.all(standardisation.scale[:-1] < 4)
    assert (standardisation.mean[-1], standardisation.scale[-1]) == (0, 1)  # not 1/√(2/n) times as large
    limits = Standardisation.fit(np.c_[X, -X], np.ones(n), "X")
    assert 3.5 < np.median(limits.upper[:50] * limits.scale[:50]) < 6.5  # 4.65 for infinitely many rows
    repeated = Standardisation.fit(np.repeat(X, 2, axis=0), np.ones(2 * n), "X")
    assert np.allclose(Standardisation.fit(X, np.full(n, 2.0), "X").upper, repeated.upper, rtol=1e-12)
    shares = Standardisation.fit(X, np.full(n, 1 / n), "X")
    assert np.allclose(shares.upper, standardisation.upper[:-1], rtol=1e-12)
    without = Standardisation.fit(ordinary, np.ones(n), "X")
    weights = without.outlier_weights(without.transform_targets(ordinary, "X"))
    assert np.mean(weights < 1) <= (0.35 if n < 30 else 0.05)  # of rows with 50 columns each


def test_values_that_overflow_raise_an_error():
    """Also on the side without a limit of a column that has a limit on the other side."""
    X = np.random.default_rng(2).normal(size=(300, 2)) * 0.1
    X[5] = -9.0
    standardisation = Standardisation.fit(X, np.ones(300), "X")
    assert np.isfinite(standardisation.lower).all() and np.isinf(standardisation.upper).all()
    far = X.copy()
    far[3, 1] = 1.7e308
    with pytest.raises(ValueError, match=r"X: row 3, column 1 lies more than 1e.15 standard deviations"):
        standardisation.transform_inputs(far, np.float32, "X")
