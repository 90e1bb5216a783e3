"""Likelihoods: negative log-likelihoods against SciPy's log densities."""

import jax
import numpy as np
import pytest
from scipy import stats

from anchored.model.likelihoods import Categorical, CenteredGaussian, Gaussian, HeteroscedasticGaussian

pytestmark = pytest.mark.usefixtures("double")


def test_misfits_are_negative_log_likelihoods():
    """Differences of the negative log-likelihood between parameters equal differences of SciPy's log densities."""
    y = np.array([[0.3], [-1.0]])
    one, two = np.array([[0.1], [0.4]]), np.array([[1.0], [-0.6]])
    cases = [
        (Gaussian(np.array([0.7])), lambda o: stats.norm.logpdf(y, o, np.sqrt(0.7))),
        (
            CenteredGaussian(np.array([0.7])),
            lambda o: stats.norm.logpdf(y, 0, np.sqrt(0.7 * np.exp(4 * np.tanh(o / 4)))),
        ),
    ]
    for likelihood, log_density in cases:
        difference = likelihood.negative_log_likelihood(one, y) - likelihood.negative_log_likelihood(two, y)
        assert np.allclose(difference, log_density(two) - log_density(one))
    both = np.concatenate([one, two], axis=1)
    expected = stats.norm.logpdf(y, one, np.exp(two / 2)) - stats.norm.logpdf(y, two, np.exp(one / 2))
    head = HeteroscedasticGaussian()
    assert np.allclose(head.negative_log_likelihood(both[:, ::-1], y) - head.negative_log_likelihood(both, y), expected)
    logits = np.array([[1.0, 2.0, 3.0], [0.0, 0.0, 1.0]])
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    assert np.allclose(
        Categorical(1.0).negative_log_likelihood(logits, np.array([2, 0]))[:, 0], -np.log(probabilities[[0, 1], [2, 0]])
    )


def test_likelihoods_have_structures_of_their_own():
    """Two likelihoods with as many numbers must not share a compiled program."""
    structures = [jax.tree.structure(kind(1.0)) for kind in (Gaussian, CenteredGaussian, Categorical)]
    assert all(structures[i] != structures[j] for i in range(3) for j in range(i))
