"""Densities of priors against SciPy, and the scales of their draws against the paper's."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from anchored import trees
from anchored.model.layered_prior import default_layer_scales, layered_prior
from anchored.model.networks import MLP
from anchored.model.priors import Prior

pytestmark = pytest.mark.usefixtures("double")


@given(st.integers(1, 6), st.floats(0.1, 10), st.floats(-3, 3))
@settings(max_examples=20, deadline=None)
def test_unwhiten_is_the_inverse_of_whiten(n, scale, mean):
    with jax.enable_x64(True):
        prior = Prior({"a": np.float64(mean)}, {"a": np.float64(scale)})
        params = {"a": np.linspace(-1, 1, n)}
        assert np.allclose(prior.unwhiten(prior.whiten(params))["a"], params["a"])


def test_prior_density_agrees_with_scipy():
    prior = Prior({"a": np.float64(0.5)}, {"a": np.float64(2.0)})
    values = np.linspace(-1, 1, 5)
    assert np.isclose(prior.log_density({"a": values}), stats.norm.logpdf(values, 0.5, 2.0).sum())


def test_prior_draws_have_the_papers_scales():
    """First layer: weights N(0, b/D), biases N(0, b). Second hidden layer: N(0, 2/H). Output layer: N(0, 1/H)."""
    network = MLP((300, 200), 1)
    params = network.init(None, np.zeros((1, 100)))
    prior = layered_prior(network, params, default_layer_scales(network, 3.0))
    draw = jax.jit(prior.sample)(jax.random.key(0), params)
    expected = {
        ("layer_0", "weights"): 3 / np.sqrt(100),
        ("layer_0", "bias"): 3,
        ("layer_1", "weights"): np.sqrt(2 / 300),
        ("layer_2", "weights"): 1 / np.sqrt(200),
    }
    for path, leaf in zip(trees.paths(draw), jax.tree.leaves(draw), strict=True):
        assert np.isclose(np.std(leaf), expected[path], rtol=4 / np.sqrt(2 * leaf.size)), path
