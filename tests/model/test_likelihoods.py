"""Negative log-likelihoods against SciPy's log densities."""

import jax
import numpy as np
import pytest
from scipy import stats

from anchored.model.likelihoods import Categorical, CenteredGaussian, Gaussian, HeteroscedasticGaussian

pytestmark = pytest.mark.usefixtures("double")


TARGETS = np.array([[0.3], [-1.0]])
FIRST, SECOND = np.array([[0.1], [0.4]]), np.array([[1.0], [-0.6]])  # outputs of two networks


@pytest.mark.parametrize(
    ("likelihood", "log_density"),
    [
        (Gaussian(np.array([0.7])), lambda f: stats.norm.logpdf(TARGETS, f, np.sqrt(0.7))),
        (
            CenteredGaussian(np.array([0.7])),
            lambda g: stats.norm.logpdf(TARGETS, 0, np.sqrt(0.7 * np.exp(4 * np.tanh(g / 4)))),
        ),
    ],
)
def test_negative_log_likelihood_agrees_with_scipy(likelihood, log_density):
    """Differences are compared, because constants are left out of the negative log-likelihood."""
    first, second = (likelihood.negative_log_likelihood(outputs, TARGETS) for outputs in (FIRST, SECOND))
    assert np.allclose(first - second, log_density(SECOND) - log_density(FIRST))


def test_heteroscedastic_likelihood_agrees_with_scipy():
    likelihood = HeteroscedasticGaussian()
    first = likelihood.negative_log_likelihood(np.concatenate([FIRST, SECOND], axis=1), TARGETS)
    second = likelihood.negative_log_likelihood(np.concatenate([SECOND, FIRST], axis=1), TARGETS)
    expected = stats.norm.logpdf(TARGETS, FIRST, np.exp(SECOND / 2)) - stats.norm.logpdf(
        TARGETS, SECOND, np.exp(FIRST / 2)
    )
    assert np.allclose(second - first, expected)


def test_categorical_likelihood_is_the_log_probability_of_the_class():
    logits = np.array([[1.0, 2.0, 3.0], [0.0, 0.0, 1.0]])
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    found = Categorical(1.0).negative_log_likelihood(logits, np.array([2, 0]))
    assert np.allclose(found[:, 0], -np.log(probabilities[[0, 1], [2, 0]]))


def test_classes_of_likelihoods_have_different_tree_structures():
    """Otherwise, two likelihoods with the same number of fields would share a compiled program."""
    structures = [jax.tree.structure(kind(1.0)) for kind in (Gaussian, CenteredGaussian, Categorical)]
    assert all(structures[i] != structures[j] for i in range(3) for j in range(i))
