"""Padding changes no result, and lets data sets of similar size share a compiled program."""

import numpy as np
import pytest

from anchored.exact import kernels
from anchored.exact.kernels import MLPKernel, RBFNetworkKernel, gram
from anchored.exact.padding import MAX_PADDED, padded_length, with_zeros
from anchored.types import Data

ROWS = np.random.default_rng(0).normal(size=(70, 2))


def test_lengths_are_few_and_never_shorter():
    lengths = [padded_length(n) for n in range(1, 2 * MAX_PADDED)]
    assert all(length >= n for n, length in enumerate(lengths, 1))
    assert len(set(lengths[:MAX_PADDED])) == 8
    assert lengths[MAX_PADDED:] == list(range(MAX_PADDED + 1, 2 * MAX_PADDED))


@pytest.mark.parametrize("kernel", [MLPKernel((1.0, 2.0), (1.0, 0.0), "erf"), RBFNetworkKernel(0.7, 1.5)])
def test_a_matrix_of_fewer_rows_is_a_part_of_the_whole(kernel):
    whole = gram(kernel, ROWS)
    before = kernels._matrix.n_created
    for n, m in ((1, 3), (5, 64), (64, 0)):
        part = gram(kernel, ROWS[:n], ROWS[:m])
        assert part.shape == (n, m)
        np.testing.assert_allclose(part, whole[:n, :m], rtol=1e-12)
    assert kernels._matrix.n_created <= before + 2  # one for (64, 64) and one for (64, 0)


def test_zeros_follow_the_rows():
    data = Data(ROWS[:5], np.arange(5), np.ones((5, 1)))
    padded = with_zeros(data)
    assert [part.shape for part in padded] == [(64, 2), (64,), (64, 1)]
    for part, longer in zip(data, padded, strict=True):
        np.testing.assert_array_equal(longer[:5], part)
        assert not longer[5:].any() and longer.dtype == part.dtype
