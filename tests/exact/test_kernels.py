"""Kernels of infinitely wide networks against averages over random networks, closed forms and finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from anchored.exact import kernels
from anchored.exact.kernels import (
    MLPKernel,
    RBFNetworkKernel,
    diagonal,
    gram,
    gram_derivatives,
    kernel_of,
    tangent_kernel,
)
from anchored.model.bayesian_model import BayesianModel
from anchored.model.layered_prior import default_layer_scales, layered_prior
from anchored.model.likelihoods import Gaussian
from anchored.model.networks import ACTIVATIONS, MLP, FunctionNetwork, RBFNetwork
from anchored.model.priors import Prior

pytestmark = pytest.mark.usefixtures("unoptimised")
ROWS = np.random.default_rng(0).normal(size=(5, 3))[[0, 1, 2, 3, 4, 0]]  # the first row occurs twice
SCALE = 1.5


def model_of(network, scale=SCALE):
    """Return a model of `network` with the default prior, whose first scale is `scale`."""
    like = network.init(None, ROWS)
    prior = layered_prior(network, like, default_layer_scales(network, scale))
    return BayesianModel(network, prior, Gaussian(np.array([1.0])))


def average_over_networks(model, product, n_networks):
    """Return the mean of product(parameters) over draws from the prior, and its standard error."""
    like = model.network.init(None, ROWS)
    keys = jax.random.split(jax.random.key(0), n_networks)
    draws = jax.jit(lambda keys: jax.lax.map(lambda key: product(model.prior.sample(key, like)), keys))(keys)
    draws = np.asarray(draws, np.float64)
    return draws.mean(0), draws.std(0, ddof=1) / n_networks**0.5


def of_outputs(network):
    """Return a function of parameters: the products of outputs between rows, averaged over outputs.

    Given the other layers, outputs are independent draws.
    """

    def product(params):
        outputs = network.apply(params, ROWS)
        return outputs @ outputs.T / network.n_outputs

    return product


def of_gradients(model):
    """Return a function of parameters: the empirical tangent kernel of the one output."""

    def product(params):
        gradients = jax.jacrev(lambda params: model.network.apply(params, ROWS)[:, 0])(params)
        gradients = jax.tree.map(lambda gradient, scale: scale * gradient, gradients, model.prior.scale)
        features = [leaf.reshape(len(ROWS), -1) for leaf in jax.tree.leaves(gradients)]
        return sum(feature @ feature.T for feature in features)

    return product


def assert_within_error(found, expected):
    """Check that a mean, given with its standard error, agrees with `expected`."""
    mean, standard_error = found
    assert np.all(np.abs(mean - expected) < 5 * standard_error)
    assert np.all(standard_error < 0.03 * np.abs(expected).max())  # otherwise the test would show little


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_kernel_is_the_prior_covariance_of_outputs_for_one_hidden_layer(activation):
    """This holds at any width, although outputs are normal only in the limit."""
    network = MLP((50,), 50, activation)
    model = model_of(network)
    assert_within_error(average_over_networks(model, of_outputs(network), 500), gram(kernel_of(model), ROWS))


@pytest.mark.parametrize("activation", ["relu", "erf", "gelu"])
def test_kernel_is_the_prior_covariance_of_outputs_for_two_hidden_layers(activation):
    """The error due to finite width, about 1 % for 100 units, is smaller than the Monte-Carlo error."""
    network = MLP((100, 100), 100, activation)
    model = model_of(network)
    assert_within_error(average_over_networks(model, of_outputs(network), 200), gram(kernel_of(model), ROWS))


def test_kernel_is_the_prior_covariance_of_outputs_for_rbf_units():
    network = RBFNetwork(50, 50, unit_scale=1.3)
    model = model_of(network)
    kernel = kernel_of(model)
    assert np.isclose(kernel.centre_scale, SCALE / 3**0.5)
    assert_within_error(average_over_networks(model, of_outputs(network), 2000), gram(kernel, ROWS))


def test_kernel_of_a_model_has_the_papers_variances():
    kernel = kernel_of(model_of(MLP((20, 30), 2)))
    assert np.allclose(kernel.weight_variances, (SCALE**2 / 3, 2, 1))
    assert np.allclose(kernel.bias_variances, (SCALE**2, 0, 0))
    assert kernel.activation == "relu"


def test_kernel_without_hidden_layers_is_linear():
    model = model_of(MLP((), 1))
    assert np.allclose(gram(kernel_of(model), ROWS), SCALE**2 / 3 * ROWS @ ROWS.T)
    assert np.allclose(gram(tangent_kernel(kernel_of(model)), ROWS), SCALE**2 / 3 * ROWS @ ROWS.T)


@pytest.mark.parametrize("activation", ["relu", "tanh", "sin"])
def test_tangent_kernel_is_the_product_of_gradients_for_one_hidden_layer(activation):
    model = model_of(MLP((100,), 1, activation))
    found = average_over_networks(model, of_gradients(model), 2000)
    assert_within_error(found, gram(tangent_kernel(kernel_of(model)), ROWS))


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_tangent_kernel_is_the_product_of_gradients_for_two_hidden_layers(activation):
    model = model_of(MLP((100, 100), 1, activation))
    found = average_over_networks(model, of_gradients(model), 200)
    assert_within_error(found, gram(tangent_kernel(kernel_of(model)), ROWS))


def test_tangent_kernel_is_the_product_of_gradients_for_rbf_units():
    model = model_of(RBFNetwork(100, 1, unit_scale=1.3))
    found = average_over_networks(model, of_gradients(model), 4000)
    assert_within_error(found, gram(tangent_kernel(kernel_of(model)), ROWS))


def test_relu_kernels_agree_with_their_formulas():
    """K = √(u u')/2π (sin φ + (π − φ) cos φ) and Θ = K + (π − φ)/2π (b + w x·x')."""
    w, b = 0.6, 1.1
    u = b + w * ROWS @ ROWS.T
    size = np.sqrt(np.outer(np.diag(u), np.diag(u)))
    angle = np.arccos(np.clip(u / size, -1, 1))
    expected = size / (2 * np.pi) * (np.sin(angle) + (np.pi - angle) * np.cos(angle))
    kernel = MLPKernel((w, 1.0), (b, 0.0))
    assert np.allclose(gram(kernel, ROWS), expected, rtol=1e-12)
    assert np.allclose(gram(tangent_kernel(kernel), ROWS), expected + (np.pi - angle) / (2 * np.pi) * u, rtol=1e-7)


@pytest.mark.parametrize(
    ("activation", "tolerance"), [("erf", 1e-12), ("identity", 1e-12), ("sin", 1e-11), ("relu", 2e-4)]
)
def test_quadrature_equals_the_closed_form(activation, tolerance):
    """The tolerance for ReLU is larger, since quadrature converges slowly for a function with a kink."""
    p, q, correlation = (grid.ravel() for grid in np.meshgrid([0.1, 1.0, 4.0], [0.3, 4.0], [-1, -0.9, 0, 0.5, 0.99, 1]))
    u = correlation * np.sqrt(p * q)
    with jax.enable_x64(True):
        exact = np.asarray(kernels.MOMENTS[activation](u, p, q))
        numeric = np.asarray(kernels.quadrature(activation)(u, p, q))
    assert np.all(np.abs(numeric - exact) < tolerance * np.sqrt(p * q))


KERNELS = {
    "relu": MLPKernel((0.7, 1.6, 0.9), (1.2, 0.3, 0.2), "relu"),
    "erf": MLPKernel((0.7, 1.6, 0.9), (1.2, 0.3, 0.2), "erf"),
    "tanh": MLPKernel((0.7, 0.9), (1.2, 0.2), "tanh"),
    "rbf": RBFNetworkKernel(1.3, 0.8, 1.7),
    "relu tangent": tangent_kernel(MLPKernel((0.7, 1.6, 0.9), (1.2, 0.3, 0.2), "relu")),
    "erf tangent": tangent_kernel(MLPKernel((0.7, 0.9), (1.2, 0.2), "erf")),
    "tanh tangent": tangent_kernel(MLPKernel((0.7, 0.9), (1.2, 0.2), "tanh")),
    "rbf tangent": tangent_kernel(RBFNetworkKernel(1.3, 0.8, 1.7)),
}


@pytest.mark.parametrize("name", KERNELS)
def test_derivatives_agree_with_finite_differences(name):
    """Also on the diagonal and for equal rows, where the angle in the formula for ReLU is not differentiable."""
    kernel, step = KERNELS[name], 1e-4
    leaves, structure = jax.tree.flatten(kernel)
    derivatives = jax.tree.leaves(gram_derivatives(kernel, ROWS))
    assert len(derivatives) == len(leaves)
    # Rounding makes the angle between equal rows 1e-8 instead of 0, which affects the tangent kernel of ReLU
    tolerance = 3e-4 if name == "relu tangent" else 1e-7
    for i, derivative in enumerate(derivatives):
        above, below = (
            gram(jax.tree.unflatten(structure, [leaf + (j == i) * sign * step for j, leaf in enumerate(leaves)]), ROWS)
            for sign in (1, -1)
        )
        assert np.abs(derivative - (above - below) / (2 * step)).max() < tolerance


@pytest.mark.parametrize("name", KERNELS)
def test_diagonal_is_that_of_the_gram_matrix(name):
    tolerance = 1e-7 if name == "relu tangent" else 1e-12
    assert np.allclose(diagonal(KERNELS[name], ROWS), np.diag(gram(KERNELS[name], ROWS)), rtol=tolerance)


@given(
    rows=arrays(np.float64, (6, 3), elements=st.floats(-3, 3).map(lambda value: round(value, 1))),
    scale=st.floats(0.05, 5),
    bias=st.booleans(),
    activation=st.sampled_from(["relu", "erf", "tanh", "softplus"]),
    tangent=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_gram_matrices_are_positive_semidefinite(rows, scale, bias, activation, tangent):
    kernel = MLPKernel((scale**2 / 3, 1.0, 1.0), (bias * scale**2, 0.0, 0.0), activation)
    matrix = gram(tangent_kernel(kernel) if tangent else kernel, rows)
    assert np.array_equal(matrix, matrix.T)
    rounding = 1e-7 if tangent and activation == "relu" else 1e-13
    assert np.linalg.eigvalsh(matrix)[0] >= -rounding * np.trace(matrix)


@pytest.mark.parametrize("activation", ["relu", "erf", "tanh", "logistic"])
def test_rows_of_zeros_without_bias(activation):
    """The kernel is exactly 0 if φ(0) = 0. It is never NaN."""
    x = ROWS * np.array([0, 1, 1, 1, 1, 0])[:, None]
    kernel = MLPKernel((0.5, 1.0), (0.0, 0.0), activation)
    for tested in (kernel, tangent_kernel(kernel)):
        matrix = gram(tested, x)
        assert np.all(np.isfinite(matrix))
        assert np.array_equal(matrix[0], matrix[5])
        assert np.all(matrix[0] == 0) or activation == "logistic"
        assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(gram_derivatives(tested, x)))


def test_gram_matrix_between_two_sets_of_rows():
    for name in ("erf", "tanh", "rbf", "rbf tangent"):
        kernel = KERNELS[name]
        assert np.allclose(gram(kernel, ROWS[:2], ROWS[2:]), gram(kernel, ROWS)[:2, 2:], rtol=1e-12)


@pytest.mark.parametrize("name", ["relu", "tanh", "rbf tangent"])
@pytest.mark.parametrize("flag", [False, True])
def test_results_are_float64_and_the_precision_of_jax_is_kept(name, flag):
    kernel = jax.tree.map(np.float32, KERNELS[name])
    with jax.enable_x64(flag):
        found = [gram(kernel, ROWS.astype(np.float32)), diagonal(kernel, ROWS.tolist())]
        found += jax.tree.leaves(gram_derivatives(kernel, jnp.asarray(ROWS)))
        assert jax.config.jax_enable_x64 is flag
    assert all(isinstance(array, np.ndarray) and array.dtype == np.float64 for array in found)


def test_networks_without_a_closed_form_are_refused():
    network = FunctionNetwork(lambda key, inputs: {"a": np.zeros(2)}, lambda params, inputs: inputs @ params["a"])
    prior = Prior({"a": np.zeros(())}, {"a": np.ones(())})
    with pytest.raises(ValueError, match=r"FunctionNetwork.*MLP.*RBFNetwork"):
        kernel_of(BayesianModel(network, prior, Gaussian(np.array([1.0]))))


def test_priors_without_a_wide_limit_are_refused():
    model = model_of(MLP((4,), 1))
    mean, scale = (
        {layer: dict(leaves) for layer, leaves in tree.items()} for tree in (model.prior.mean, model.prior.scale)
    )
    mean["layer_0"]["bias"] = np.float32(0.5)
    with pytest.raises(ValueError, match="only if the prior has mean zero"):
        kernel_of(BayesianModel(model.network, Prior(mean, model.prior.scale), model.likelihood))
    scale["layer_0"]["bias"] = np.array([1.0, 1.0, 1.0, 2.0])
    with pytest.raises(ValueError, match="one scale for all parameters"):
        kernel_of(BayesianModel(model.network, Prior(model.prior.mean, scale), model.likelihood))
