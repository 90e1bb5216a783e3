"""HMC, variational inference, dropout and Gaussian processes, compared with closed forms and brute force."""

import itertools
import sys
import warnings
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from anchored.exact import LinearGaussian, last_layer_distribution
from anchored.exact.kernels import gram, kernel_of
from anchored.exact.processes import GaussianProcess as ExactProcess
from anchored.inference.anchoring import anchored_loss
from anchored.inference.failures import DivergenceError, warn_if_improving
from anchored.methods import hmc, mc_dropout, variational
from anchored.methods.gaussian_process import GaussianProcess
from anchored.methods.hmc import HMC
from anchored.methods.mc_dropout import MCDropout
from anchored.methods.variational import VariationalInference
from anchored.model.bayesian_model import BayesianModel
from anchored.model.layered_prior import default_layer_scales, layered_prior
from anchored.model.likelihoods import Categorical, Gaussian, HeteroscedasticGaussian
from anchored.model.networks import MLP, FunctionNetwork, RBFNetwork
from anchored.model.priors import Prior
from anchored.types import Data

pytestmark = pytest.mark.usefixtures("unoptimised")
KEY = jax.random.key(5)
NOISE, SCALE, COLUMNS = 0.5, 1.5, 3
CHAINS = HMC(n_chains=4, n_warmup=300, n_samples=1000, max_members=4000)


@pytest.fixture
def linear():
    """A linear model with correlated columns, and its posterior in closed form. The last row has weight zero."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(13, COLUMNS)) @ np.array([[1, 0.5, 0], [0, 1, 0.3], [0, 0, 0.4]])
    y = X @ np.array([1.0, -2.0, 0.5]) + np.sqrt(NOISE) * rng.normal(size=13)
    weights = np.append(rng.uniform(0.5, 2, size=12), 0)
    y[-1] = 1000
    model = model_of(MLP((), 1), X, Gaussian(np.array([NOISE])), SCALE)
    covariance = np.eye(COLUMNS) * SCALE**2 / COLUMNS
    truth = LinearGaussian.regression(X, y, NOISE, covariance, weights=weights)
    return model, Data(X, y[:, None], weights[:, None]), truth


@pytest.fixture
def curve():
    """Twenty rows of a curve with two outputs, and a small network."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(20, 1))
    Y = np.column_stack([np.sin(2 * X[:, 0]), X[:, 0]]) + 0.1 * rng.normal(size=(20, 2))
    return model_of(MLP((10,), 2, "erf"), X, Gaussian(np.array([0.01, 0.04]))), Data(X, Y, np.ones((20, 1)))


def model_of(network, X, likelihood, scale=2.0):
    prior = layered_prior(network, network.init(KEY, X), default_layer_scales(network, scale))
    return BayesianModel(network, prior, likelihood)


def without_rows(data):
    return data._replace(weights=np.zeros_like(data.weights))


def assert_moments(draws, mean, covariance, n_effective):
    """Check that `draws`, (draws, dimensions), have this mean and covariance, within 4.5 standard errors."""
    variance = np.diag(covariance)
    assert np.all(np.abs(draws.mean(0) - mean) < 4.5 * np.sqrt(variance / n_effective))
    error = np.sqrt((np.outer(variance, variance) + covariance**2) / n_effective)
    assert np.all(np.abs(np.cov(draws.T) - covariance) < 4.5 * error)


# Hamiltonian Monte Carlo


def test_hmc_draws_from_the_posterior_of_a_linear_model(linear, double):
    model, data, truth = linear
    fractions = []
    posterior = CHAINS.fit(KEY, model, data, lambda fraction, loss: fractions.append(fraction))
    record = posterior.record
    draws = posterior.members["layer_0"]["weights"][..., 0]
    assert draws.shape == (4000, COLUMNS)
    assert 800 < record.effective_sample_size < 20_000 and record.r_hat < 1.01
    assert record.divergences == 0 and 0.7 < record.acceptance < 1 and record.seconds > 0
    exact = truth.posterior()
    assert_moments(draws, exact.mean, exact.covariance, record.effective_sample_size)
    assert np.isclose(sum(fractions), 1) and min(fractions) > 0


def test_hmc_without_rows_draws_from_the_prior(linear, double):
    model, data, _ = linear
    posterior = CHAINS.fit(KEY, model, without_rows(data))
    draws = posterior.members["layer_0"]["weights"][..., 0]
    size = posterior.record.effective_sample_size
    assert_moments(draws, np.zeros(COLUMNS), np.eye(COLUMNS) * SCALE**2 / COLUMNS, size)


def test_hmc_chains_are_independent_and_thinned_evenly(linear, double):
    """A chain depends only on the key and its number, and members are evenly spaced draws."""
    model, data, _ = linear
    method = replace(CHAINS, n_chains=2, n_samples=40)
    all_draws = method.fit(KEY, model, data).members["layer_0"]["weights"].reshape(2, 40, COLUMNS)
    one = replace(method, n_chains=1).fit(KEY, model, data).members["layer_0"]["weights"].reshape(40, COLUMNS)
    few = replace(method, max_members=9).fit(KEY, model, data).members["layer_0"]["weights"].reshape(2, 4, COLUMNS)
    other = method.fit(jax.random.key(6), model, data).members["layer_0"]["weights"].reshape(2, 40, COLUMNS)
    assert np.array_equal(one, all_draws[0])
    assert np.array_equal(few, all_draws[:, [0, 13, 26, 39]])
    assert not np.any(other == all_draws)


def test_hmc_is_exact_for_a_wide_last_layer():
    """With 400 fixed random features, the posterior of the outputs is a Gaussian process in closed form."""
    rng = np.random.default_rng(2)
    weights, bias = rng.normal(size=(1, 400)).astype(np.float32), rng.normal(size=400).astype(np.float32)

    def init(key, inputs):
        return {"head": np.zeros((400, 1), np.float32)}

    def apply(params, inputs):
        return jax.nn.relu(inputs @ weights + bias) @ params["head"]

    network = FunctionNetwork(init, apply, "head")
    x = np.array([-1.5, -1.1, -0.6, 0.7, 1.0, 1.6], np.float32)[:, None]
    data = Data(x, np.sin(2 * x), np.ones_like(x))
    prior = Prior({"head": np.float32(0)}, {"head": np.float32(400**-0.5)})
    model = BayesianModel(network, prior, Gaussian(np.array([0.01], np.float32)))
    points = np.linspace(-2, 2, 9, dtype=np.float32)[:, None]
    posterior = replace(CHAINS, n_chains=2, n_samples=400).fit(KEY, model, data)
    outputs = posterior.outputs(points)[..., 0]
    mean, covariance = last_layer_distribution(model, init(None, x), data, points)
    assert_moments(outputs, mean[:, 0], covariance[..., 0], posterior.record.effective_sample_size)
    assert posterior.record.r_hat < 1.02


@pytest.mark.parametrize("likelihood", [Categorical(np.float64(0.5)), HeteroscedasticGaussian()])
def test_hmc_against_integration_over_a_grid(likelihood, double):
    """With two parameters, the slopes of two outputs, the posterior is summed over a fine grid."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(15, 1))
    noise = rng.normal(size=(15, 1))
    targets = np.ravel(x + noise > 0).astype(int) if isinstance(likelihood, Categorical) else x + np.exp(x / 2) * noise
    model = model_of(MLP((), 2), x, likelihood)
    data = Data(x, targets, rng.uniform(0.5, 2, size=(15, 1)))
    posterior = CHAINS.fit(KEY, model, data)
    draws = posterior.members["layer_0"]["weights"][:, 0]
    grid = np.array(list(itertools.product(np.linspace(-9, 9, 401), repeat=2)))

    def log_density(slopes):
        params = {"layer_0": {"weights": slopes[None]}}
        loss = likelihood.negative_log_likelihood(x * slopes, jnp.asarray(targets))
        return model.prior.log_density(params) - jnp.sum(data.weights * loss)

    density = np.asarray(jax.jit(jax.vmap(log_density))(grid))
    density = np.exp(density - density.max())
    density /= density.sum()
    mean = density @ grid
    covariance = (density[:, None] * (grid - mean)).T @ (grid - mean)
    # The covariance of draws from a skewed posterior has a larger standard error than that of normal draws
    assert_moments(draws, mean, covariance, posterior.record.effective_sample_size / 1.5)


def test_hmc_warns_if_chains_are_too_short(curve):
    model, data = curve
    with pytest.warns(ConvergenceWarning, match=r"r_hat.*raise n_warmup.*raise n_samples"):
        posterior = HMC(n_warmup=2, n_samples=6).fit(KEY, model, data)
    assert posterior.record.r_hat > 1.05 and posterior.n_members == 24


def test_hmc_monitors_points_between_the_rows(double):
    """Chains in different modes are detected, even if the modes differ only between the rows."""
    network = FunctionNetwork(
        lambda key, x: {"a": np.zeros(1)}, lambda p, x: p["a"] ** 2 * x**2 + p["a"] * (1 - x**2), None
    )
    model = BayesianModel(network, Prior({"a": 0.0}, {"a": 2.0}), Gaussian(np.array([0.01])))
    x = np.array([[-1.0], [1.0]])
    with pytest.warns(ConvergenceWarning, match="chains disagree"):
        posterior = HMC(n_warmup=200, n_samples=200).fit(KEY, model, Data(x, np.full((2, 1), 4.0), np.ones((2, 1))))
    assert np.ptp(posterior.outputs(x)) < 1 < np.ptp(posterior.outputs(np.zeros((1, 1))))


def test_hmc_standard_errors_of_correlated_draws(linear, double):
    """With short trajectories, errors of the mean over many fits agree with the standard errors."""
    model, data, truth = linear
    points = np.random.default_rng(0).normal(size=(4, COLUMNS))
    method = HMC(n_chains=2, n_warmup=200, n_samples=1000, max_tree_depth=1)
    ratios = []
    for seed in range(12):
        posterior = method.fit(jax.random.key(seed), model, data)
        predictive = posterior.predict(points)
        assert predictive.n_members == posterior.n_effective == posterior.record.effective_sample_size < 100
        ratios.append((predictive.mean[:, 0] - points @ truth.posterior().mean) / predictive.mean_standard_error[:, 0])
    assert 0.3 < np.sqrt(np.mean(np.square(ratios))) < 1.5


def test_hmc_needs_a_finite_posterior(curve):
    model, data = curve
    with pytest.raises(DivergenceError, match="the log posterior of a chain is not finite"):
        HMC(n_warmup=2, n_samples=6).fit(KEY, model, data._replace(targets=np.full((20, 2), np.inf)))


# Variational inference


def test_mean_field_optimum_of_a_linear_model(linear, double):
    """Means are exact, variances are 1/Λⱼⱼ, which is too small, and the ELBO is log p(y) − KL(q ‖ posterior)."""
    model, data, _ = linear
    data = data._replace(weights=np.append(np.ones(12), 0)[:, None])
    X, y = data.inputs[:12], data.targets[:12, 0]
    prior_covariance = np.eye(COLUMNS) * SCALE**2 / COLUMNS
    exact = LinearGaussian.regression(X, y, NOISE, prior_covariance).posterior()
    precision = np.linalg.inv(exact.covariance)
    fractions = []
    method = VariationalInference(n_particles=32, n_members=20_000)
    posterior = method.fit(KEY, model, data, lambda fraction, loss: fractions.append(fraction))
    draws = posterior.members["layer_0"]["weights"][..., 0]
    variance = 1 / np.diag(precision)
    assert np.all(np.abs(draws.mean(0) - exact.mean) < 0.1 * np.sqrt(variance))
    assert np.allclose(draws.var(0), variance, rtol=0.06)  # 4.5 standard errors, and 1.5 % for the noisy gradient
    assert np.all(draws.var(0) < 0.6 * np.diag(exact.covariance))
    evidence = ExactProcess(kernel_of(model), NOISE).log_marginal_likelihood(X, y[:, None])
    divergence = 0.5 * (np.sum(np.log(np.diag(precision))) - np.linalg.slogdet(precision)[1])
    elbo = posterior.record.elbo
    assert elbo.shape == (3000,)
    last = elbo[-500:] - 6 * np.log(2 * np.pi * NOISE)
    assert abs(last.mean() - (evidence - divergence)) < 4.5 * last.std() / np.sqrt(500) + 0.01
    assert np.isclose(sum(fractions), 1)


def test_variational_inference_without_rows_is_the_prior(curve):
    model, data = curve
    posterior = VariationalInference(n_steps=1500, n_members=2000).fit(KEY, model, without_rows(data))
    assert abs(posterior.record.elbo[-1]) < 1e-3  # it is −KL(q ‖ prior)
    for draws, scale in zip(*map(jax.tree.leaves, (posterior.members, model.prior.scale)), strict=True):
        assert np.allclose(draws.std(0), scale, rtol=0.1)


def test_a_warning_only_if_the_curve_still_rises():
    """Synthetic curves: neither a large gain in the first steps nor noise matters."""
    steps, rng = np.arange(1000), np.random.default_rng(0)
    start = -1e6 * np.exp(-steps / 10)
    for still_rising in (start - 500 - 8000 * np.exp(-steps / 300), start - 1 - 1e3 / (1 + steps)):
        with pytest.warns(ConvergenceWarning, match="Anything was still improving after n_steps=1000"):
            warn_if_improving(still_rising, "Anything", "n_steps")
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        warn_if_improving(start - 500 - 8000 * np.exp(-steps / 60), "Anything", "n_steps")
        warn_if_improving(start - 100 + 30 * rng.normal(size=1000), "Anything", "n_steps")
        warn_if_improving(-np.exp(-steps / 10), "Anything", "n_steps")  # converges to zero, as without data


def test_variational_inference_warns_if_it_is_too_short(curve):
    model, data = curve
    with pytest.warns(ConvergenceWarning, match="still improving after n_steps=150.*Raise n_steps"):
        VariationalInference(n_steps=150).fit(KEY, model, data)
    with pytest.raises(DivergenceError, match="Lower learning_rate"):
        VariationalInference(n_steps=150).fit(KEY, model, data._replace(targets=np.full((20, 2), np.inf)))


# Monte-Carlo dropout


def test_dropout_at_rate_zero_is_one_map_network(curve, double):
    """All members are equal, and the loss is eq. 2 with the prior mean as the anchor, at its minimum."""
    model, data = curve
    posterior = MCDropout(0.0, n_members=3, max_iter=4000).fit(KEY, model, data)
    assert all(np.all(leaf == leaf[0]) for leaf in jax.tree.leaves(posterior.members))
    params = jax.tree.map(lambda leaf: leaf[0], posterior.members)
    zero = jax.tree.map(jnp.zeros_like, params)
    value, gradient = jax.jit(jax.value_and_grad(anchored_loss))(params, zero, model, data, 20.0)
    losses = posterior.record.loss_curve
    assert losses.shape == (4000,) and np.isclose(value, losses[-1], rtol=1e-6) and losses[-1] < 0.1 * losses[0]
    assert max(np.abs(leaf).max() for leaf in jax.tree.leaves(gradient)) < 1e-3


def test_masks_in_the_weights_are_dropout(double):
    """Compared with hidden units multiplied by their masks by hand. The mean of a mask is 1."""
    rng = np.random.default_rng(4)
    network = MLP((30, 20), 2, "tanh")
    x = rng.normal(size=(7, 3))
    params = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape), network.init(KEY, x))
    rates = np.array([0.2, 0.5])
    first, second = map(np.asarray, mc_dropout.draw_masks(KEY, network, rates))
    assert set(first) == {0, 1.25} and set(second) == {0, 2}
    hidden = first * np.tanh(x @ params["layer_0"]["weights"] + params["layer_0"]["bias"])
    outputs = second * np.tanh(hidden @ params["layer_1"]["weights"]) @ params["layer_2"]["weights"]
    assert np.allclose(network.apply(mc_dropout.apply_masks(params, [first, second]), x), outputs)
    assert np.allclose(network.apply(params, x, [first, second]), outputs)
    for mask, rate in zip(mc_dropout.draw_masks(KEY, network, rates, (1000,)), rates, strict=True):
        assert abs(np.mean(mask) - 1) < 4.5 * np.sqrt(rate / (1 - rate) / mask.size)


def test_dropout_with_a_rate_for_each_layer():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 2)).astype(np.float32)
    model = model_of(MLP((20, 20), 1), x, Gaussian(np.array([0.01], np.float32)))
    fractions = []
    method = MCDropout((0.0, 0.5), n_members=200, max_iter=150)
    data = Data(x, np.sin(x[:, :1]), np.ones((30, 1)))
    posterior = method.fit(KEY, model, data, lambda fraction, loss: fractions.append(fraction))
    middle, top = posterior.members["layer_1"]["weights"], posterior.members["layer_2"]["weights"]
    assert np.all(middle == middle[0]) and abs(np.mean(top == 0) - 0.5) < 4.5 * 0.5 / np.sqrt(200 * 20)
    assert np.isclose(sum(fractions), 1)
    assert np.array_equal(replace(method, n_members=5).fit(KEY, model, data).members["layer_2"]["weights"], top[:5])
    assert not np.array_equal(method.fit(jax.random.key(6), model, data).members["layer_2"]["weights"], top)


def test_dropout_without_rows_is_zero(curve):
    model, data = curve
    posterior = MCDropout().fit(KEY, model, without_rows(data))
    assert np.abs(posterior.outputs(data.inputs)).max() < 1e-4


def test_dropout_of_radial_units(curve):
    """Dropped units have weight zero in a member, for all outputs."""
    _, data = curve
    model = model_of(RBFNetwork(20, 2), data.inputs, Gaussian(np.array([0.01, 0.04])))
    posterior = MCDropout(0.25, n_members=50, max_iter=300).fit(KEY, model, data)
    weights = posterior.members["layer_1"]["weights"]
    assert abs(np.mean(weights == 0) - 0.25) < 4.5 * np.sqrt(0.25 * 0.75 / (50 * 20))
    assert np.array_equal((weights == 0)[..., 0], (weights == 0)[..., 1])
    residual = posterior.predict(data.inputs).mean - data.targets
    assert np.all(residual.std(0) < 0.5 * data.targets.std(0))


def test_dropout_errors_and_warnings(curve):
    model, data = curve
    for network in (MLP((), 1), FunctionNetwork(MLP((3,), 1).init, MLP((3,), 1).apply)):
        with pytest.raises(ValueError, match="network: MCDropout needs an MLP or RBFNetwork with hidden units"):
            MCDropout().fit(KEY, replace(model, network=network), data)
    for method in (MCDropout(max_iter=50, learning_rate=0.01), MCDropout(0.0, max_iter=100)):
        with pytest.warns(ConvergenceWarning, match="MCDropout was still improving after max_iter="):
            method.fit(KEY, model, data)


# The Gaussian process


def test_process_against_the_closed_form(curve):
    """Two outputs with different noise, weights, one of them zero, and the kernel of Williams (1996)."""
    model, data = curve
    weights = np.random.default_rng(0).uniform(0.5, 2, size=(20, 1))
    weights[3] = 0
    points = np.linspace(-3, 3, 11)[:, None]
    fractions = []
    posterior = GaussianProcess().fit(
        KEY, model, data._replace(weights=weights), lambda fraction, loss: fractions.append(fraction)
    )

    def kernel(a, b):
        u, p, q = (4 * (1 + s) for s in (a @ b.T, np.sum(a**2, 1)[:, None], np.sum(b**2, 1)))
        return 2 / np.pi * np.arcsin(2 * u / np.sqrt((1 + 2 * p) * (1 + 2 * q)))

    seen = np.arange(20) != 3
    x, y = data.inputs[seen], data.targets[seen]
    predictive = posterior.predict(points)
    evidence = 0.0
    for k, noise in enumerate((0.01, 0.04)):
        covariance = kernel(x, x) + np.diag(noise / weights[seen, 0])
        gain = kernel(points, x) @ np.linalg.inv(covariance)
        assert np.allclose(predictive.mean[:, k], gain @ y[:, k], atol=1e-5)  # the prior scale is in float32
        variance = np.diag(kernel(points, points) - gain @ kernel(x, points))
        assert np.allclose(predictive.epistemic_variance[:, k], variance, atol=1e-5)
        assert np.allclose(predictive.aleatoric_variance[:, k], noise)
        log_determinant = np.linalg.slogdet(2 * np.pi * covariance)[1]
        evidence -= 0.5 * (y[:, k] @ np.linalg.solve(covariance, y[:, k]) + log_determinant)
        w = weights[seen, 0]  # N(y; f, σ²)ʷ is N(y; f, σ²/w) times this factor
        evidence += np.sum(0.5 * (1 - w) * np.log(2 * np.pi * noise) - 0.5 * np.log(w))
    assert np.isclose(posterior.log_marginal_likelihood, evidence, rtol=1e-4)
    assert predictive.n_members == np.inf and np.all(predictive.mean_standard_error == 0)
    assert fractions == [1.0]


def test_process_of_a_linear_model_is_its_posterior(linear):
    model, data, truth = linear
    points = np.random.default_rng(0).normal(size=(5, COLUMNS))
    predictive = GaussianProcess().fit(KEY, model, data).predict(points)
    exact = truth.posterior()
    assert np.allclose(predictive.mean[:, 0], points @ exact.mean, atol=1e-5)
    assert np.allclose(predictive.epistemic_variance[:, 0], np.diag(points @ exact.covariance @ points.T), atol=1e-5)


def test_draws_of_the_process_are_correlated_between_rows(curve):
    model, data = curve
    points = np.linspace(-2, 2, 5)[:, None]
    posterior = GaussianProcess(n_draws=4000).fit(KEY, model, data)
    outputs = posterior.outputs(points)
    assert outputs.shape == (4000, 5, 2) and posterior.n_members == 4000
    process = ExactProcess(kernel_of(model), model.likelihood.noise_variance).condition(*data)
    mean, covariance = process.predict(points, return_cov=True)
    for k in range(2):
        assert_moments(outputs[..., k], mean[:, k], covariance[..., k], 4000)
    assert np.array_equal(outputs, posterior.outputs(points))
    with pytest.raises(ValueError, match=r"10,001 rows are more than max_rows=10,000"):
        posterior.outputs(np.zeros((10_001, 1)))
    assert not np.any(outputs == GaussianProcess(n_draws=4000).fit(jax.random.key(6), model, data).outputs(points))


def test_process_without_rows_is_the_prior(curve):
    model, data = curve
    points = np.linspace(-2, 2, 5)[:, None]
    posterior = GaussianProcess(n_draws=4000).fit(KEY, model, without_rows(data))
    predictive, covariance = posterior.predict(points), gram(kernel_of(model), points)
    assert np.all(predictive.mean == 0)
    assert np.allclose(predictive.epistemic_variance, np.diag(covariance)[:, None])
    assert posterior.log_marginal_likelihood == 0
    for k in range(2):
        assert_moments(posterior.outputs(points)[..., k], np.zeros(5), covariance, 4000)


def test_process_computes_in_float64(curve):
    """Results are the same bit for bit, whatever JAX's default precision is."""
    model, data = curve
    single = GaussianProcess().fit(KEY, model, data).predict(data.inputs)
    with jax.enable_x64(True):
        double = GaussianProcess().fit(KEY, model, data).predict(data.inputs)
    assert single.mean.dtype == np.float64 and np.array_equal(single.mean, double.mean)


def test_process_errors(curve):
    model, data = curve
    with pytest.raises(ValueError, match=r"likelihood: .* got Categorical.* HMC"):
        GaussianProcess().fit(KEY, replace(model, likelihood=Categorical(1.0)), data)
    network = FunctionNetwork(lambda key, x: {"a": np.zeros(1)}, lambda p, x: x * p["a"])
    with pytest.raises(ValueError, match="the wide limit of a FunctionNetwork is not implemented"):
        GaussianProcess().fit(KEY, BayesianModel(network, Prior({"a": 0.0}, {"a": 1.0}), model.likelihood), data)
    weights = np.ones((20, 2))
    weights[0, 1] = 0
    with pytest.raises(ValueError, match="weights: a row must have weight zero for all outputs or for none"):
        GaussianProcess().fit(KEY, model, data._replace(weights=weights))


# All methods


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (HMC(n_chains=0), "n_chains must be a whole number of at least 1, got 0"),
        (HMC(n_warmup=0), "n_warmup must be a whole number of at least 1"),
        (HMC(n_samples=3), "n_samples must be a whole number of at least 4"),
        (HMC(max_tree_depth=0), "max_tree_depth must be a whole number of at least 1"),
        (HMC(target_accept=1.0), "target_accept must lie between 0 and 1"),
        (HMC(max_members=3), "max_members must be at least n_chains=4"),
        (VariationalInference(n_steps=0), "n_steps must be a whole number"),
        (VariationalInference(learning_rate=-1.0), "learning_rate must be a positive number"),
        (VariationalInference(n_members=2.5), r"n_members must be a whole number .* got 2\.5"),
        (VariationalInference(n_particles=0), "n_particles must be a whole number"),
        (MCDropout(rate=1.0), r"rate must be a number in \[0, 1\)"),
        (MCDropout(rate=-0.1), r"rate must be a number in \[0, 1\)"),
        (MCDropout(rate=(0.1, 0.1)), "one for each of the 1 hidden layers"),
        (MCDropout(rate="x"), r"rate must be a number in \[0, 1\)"),
        (MCDropout(max_iter=0), "max_iter must be a whole number"),
        (MCDropout(n_members=0), "n_members must be a whole number"),
        (GaussianProcess(n_draws=0), "n_draws must be a whole number"),
        (GaussianProcess(max_rows=19), "20 rows are more than max_rows=19"),
    ],
)
def test_invalid_settings(method, message, curve):
    with pytest.raises(ValueError, match=message):
        method.fit(KEY, *curve)


@pytest.mark.parametrize("method", [HMC(), VariationalInference()])
def test_the_error_without_numpyro_names_the_extra(method, curve, monkeypatch):
    monkeypatch.setitem(sys.modules, "numpyro", None)
    message = r"numpyro is needed for \w+, but is not installed: pip install 'anchored\[compare\]'"
    with pytest.raises(ImportError, match=message):
        method.fit(KEY, *curve)


def test_new_numbers_need_no_compilation(curve):
    """Another key, noise, prior, learning rate or number of steps runs the same programs."""
    model, data = curve
    other = replace(model, likelihood=Gaussian(np.array([0.3, 0.1])))
    pairs = [
        (HMC(n_warmup=2, n_samples=6), HMC(n_warmup=2, n_samples=8, n_chains=2), hmc._advance),
        (
            VariationalInference(n_steps=150),
            VariationalInference(n_steps=120, learning_rate=0.01),
            variational._run_steps,
        ),
        (MCDropout(max_iter=50), MCDropout(0.3, max_iter=70, learning_rate=0.01), mc_dropout._run_steps),
    ]
    for first, second, program in pairs:
        first.fit(KEY, model, data)
        n_programs = program.n_created
        second.fit(jax.random.key(6), other, data)
        assert program.n_created == n_programs
