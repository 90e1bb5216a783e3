"""Splits of rows: copies of a row stay together, and no part is empty."""

import numpy as np
import pytest

from anchored.inference.splits import first_copies, folds, held_out


def test_copies_are_found():
    X, y = np.array([[1.0, 2], [3, 4], [1, 2], [1, 2]]), np.array([[5.0], [6], [5], [7]])
    assert first_copies(X, y).tolist() == [0, 1, 0, 3]


@pytest.mark.parametrize("n_different", [1, 2, 3, 7, 12, 300])
def test_folds_of_rows_with_copies(n_different):
    """Each fold has one of the different rows at least, and nearly as many as the others if there are few."""
    rows = np.arange(3_000) % n_different
    for seed in range(5):
        fold = folds(first_copies(rows), 10, seed)
        assert np.array_equal(fold, fold[:n_different][rows])
        sizes = np.bincount(fold[:n_different])
        assert len(sizes) == min(10, n_different) and sizes.min() > 0
        assert n_different > 100 or np.ptp(sizes) <= 1


def test_folds_of_rows_without_copies():
    assert np.array_equal(folds(np.arange(25), 10, 3), np.random.default_rng(3).permutation(25) % 10)
    sizes = np.bincount(folds(np.arange(1_003), 10, 3))
    assert sizes.tolist() == [101] * 3 + [100] * 7


def test_rows_held_out():
    rng = np.random.default_rng(0)
    order = rng.permutation(50)
    assert np.flatnonzero(held_out(np.arange(50), order, 7)).tolist() == sorted(order[:7])
    value = rng.integers(8, size=50)
    for n_rows in (5, 10, 20):
        mask = held_out(first_copies(value), order, n_rows)
        assert 0 < mask.sum() <= max(n_rows, np.bincount(value).min())
        assert not set(value[mask]) & set(value[~mask])
    often = np.minimum(np.arange(50), 40)  # ten copies of one row: more than are to be held out
    assert not held_out(first_copies(often), order[::-1], 4)[40:].any()
    pairs = first_copies(np.arange(50) // 25)
    assert held_out(pairs, order, 5).sum() == 25 and held_out(np.zeros(50, int), order, 5).all()
