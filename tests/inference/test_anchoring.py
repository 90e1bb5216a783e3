"""The anchored loss and its members. For a linear network their distribution is known in closed form (Theorem 1)."""

from functools import cache

import jax
import numpy as np
import pytest

from anchored import trees
from anchored.inference import anchoring
from anchored.inference.solvers.first_order import FirstOrder
from anchored.methods.anchored_ensemble import AnchoredEnsemble
from anchored.model.bayesian_model import BayesianModel
from anchored.model.layered_prior import default_layer_scales, layered_prior
from anchored.model.likelihoods import Gaussian
from anchored.model.networks import MLP
from anchored.types import Data

pytestmark = pytest.mark.usefixtures("double")

N_MEMBERS = {"all": 200, "last_layer": 1_000}  # training the last layer has a closed form, and takes little time
NOISE, SCALE, N_ROWS, N_COLUMNS = 0.5, 1.5, 12, 3


@pytest.fixture(scope="module")
def problem():
    """A linear model with correlated inputs and rows of different weights."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(N_ROWS, N_COLUMNS)) @ np.array([[1, 0.5, 0], [0, 1, 0.3], [0, 0, 0.4]])
    y = X @ np.array([1.0, -2.0, 0.5]) + np.sqrt(NOISE) * rng.normal(size=N_ROWS)
    weights = rng.uniform(0.5, 2, size=N_ROWS)
    network = MLP((), 1)
    prior = layered_prior(network, network.init(None, X), default_layer_scales(network, SCALE))
    model = BayesianModel(network, prior, Gaussian(np.array([NOISE])))
    return model, Data(X, y[:, None], weights[:, None])


def closed_form(data):
    """Return the precisions of prior and likelihood, and the covariance and mean of the posterior of the weights."""
    X, W = data.inputs, np.diag(data.weights[:, 0])
    prior_precision = np.eye(N_COLUMNS) * N_COLUMNS / SCALE**2
    A = X.T @ W @ X / NOISE
    P = np.linalg.inv(prior_precision + A)
    return prior_precision, A, P, P @ X.T @ W @ data.targets[:, 0] / NOISE


@pytest.fixture(scope="module")
def fitted(problem):
    """A function that fits one kind of ensemble to the problem, once."""

    @cache
    def fit(anchoring, trainable):
        solver = FirstOrder(max_iter=2_000, learning_rate=0.1)
        method = AnchoredEnsemble(N_MEMBERS[trainable], anchoring, trainable, solver)
        return method.fit(jax.random.key(0), *problem)

    return fit


@pytest.mark.parametrize("trainable", ["all", "last_layer"])
@pytest.mark.parametrize("how", ["prior", "randomized", 0.4])
def test_members_have_the_mean_and_covariance_of_theorem_1(problem, fitted, how, trainable):
    _, data = problem
    prior_precision, _, P, mean = closed_form(data)
    without_noise = P @ prior_precision @ P  # covariance of members with anchors from the prior
    covariance = {"prior": without_noise, "randomized": P, 0.4: 0.4 * without_noise}[how]
    members = fitted(how, trainable).members["layer_0"]["weights"][..., 0]
    n = N_MEMBERS[trainable]
    standard_error = np.sqrt(np.diag(covariance) / n)
    assert np.all(np.abs(members.mean(0) - mean) < 4 * standard_error)
    expected_error = np.sqrt((1 + np.trace(covariance) ** 2 / np.sum(covariance**2)) / n)  # of n independent draws
    error = np.linalg.norm(np.cov(members.T) - covariance) / np.linalg.norm(covariance)
    assert error < 3 * expected_error
    if how == "prior" and trainable == "last_layer":  # the posterior covariance is larger by P A P
        assert np.linalg.norm(np.cov(members.T) - P) / np.linalg.norm(P) > 5 * expected_error


@pytest.mark.parametrize("trainable", ["all", "last_layer"])
def test_each_member_is_the_minimum_for_its_anchor(problem, fitted, trainable):
    """The minimum is P Σp⁻¹ θ₀ + posterior mean, with prior covariance Σp and anchor θ₀."""
    _, data = problem
    prior_precision, _, P, mean = closed_form(data)
    posterior = fitted("prior", trainable)
    anchors = posterior.record.training.anchors["layer_0"]["weights"][..., 0]
    expected = anchors @ (P @ prior_precision).T + mean
    assert np.abs(posterior.members["layer_0"]["weights"][..., 0] - expected).max() < 1e-5


@pytest.mark.parametrize("network", [MLP((), 1), MLP((5, 4), 1)])
def test_without_data_a_member_equals_its_anchor(network):
    X = np.ones((4, 2))
    prior = layered_prior(network, network.init(None, X), default_layer_scales(network, 2.0))
    model = BayesianModel(network, prior, Gaussian(np.array([1.0])))
    data = Data(X, np.ones((4, 1)), np.zeros((4, 1)))
    posterior = AnchoredEnsemble(3, solver=FirstOrder(max_iter=50)).fit(jax.random.key(0), model, data)
    anchors = posterior.record.training.anchors
    assert all(np.array_equal(m, a) for m, a in zip(*map(jax.tree.leaves, (posterior.members, anchors))))


def test_with_kappa_zero_members_start_at_draws_from_the_prior():
    """All anchors are the prior mean, but initial parameters still differ."""
    network = MLP((50,), 1)
    X = np.linspace(-1, 1, 8)[:, None]
    prior = layered_prior(network, network.init(None, X), default_layer_scales(network, 2.0))
    normals = trees.normal_like(jax.random.key(0), network.init(None, X))
    start, anchor = anchoring.start_and_anchor(normals, prior, jax.tree.map(lambda _: 0.0, normals))
    assert all(np.all(leaf == 0) for leaf in jax.tree.leaves(anchor))
    assert all(np.std(leaf) > 0 for leaf in jax.tree.leaves(start))


def test_loss_is_equation_2(problem):
    model, data = problem
    rng = np.random.default_rng(0)
    theta, anchor = ({"layer_0": {"weights": rng.normal(size=(N_COLUMNS, 1))}} for _ in range(2))
    squared_errors = (data.targets - data.inputs @ theta["layer_0"]["weights"]) ** 2
    penalty = np.sum((theta["layer_0"]["weights"] - anchor["layer_0"]["weights"]) ** 2) / (SCALE**2 / N_COLUMNS)
    expected = squared_errors.mean() + NOISE / N_ROWS * penalty
    batch = data._replace(weights=np.ones((N_ROWS, 1)))
    assert np.isclose(anchoring.anchored_loss(theta, anchor, model, batch, N_ROWS), expected, rtol=1e-12)


def test_the_mean_gradient_of_batches_is_that_of_all_rows(problem):
    """The penalty is divided by the size of the data set, not of the batch."""
    model, data = problem
    rng = np.random.default_rng(0)
    theta, anchor = ({"layer_0": {"weights": rng.normal(size=(N_COLUMNS, 1))}} for _ in range(2))
    gradient = jax.jit(jax.grad(anchoring.anchored_loss))
    total_weight = data.weights.sum()
    expected = gradient(theta, anchor, model, data, total_weight)["layer_0"]["weights"]
    halves = [jax.tree.map(lambda leaf, h=h: leaf[h], data) for h in (slice(0, 6), slice(6, 12))]
    halves = [half._replace(weights=2 * half.weights) for half in halves]  # each represents all rows
    gradients = [gradient(theta, anchor, model, half, total_weight)["layer_0"]["weights"] for half in halves]
    assert np.allclose(np.mean(gradients, axis=0), expected, rtol=1e-12)


def test_training_the_last_layer_is_ridge_regression_on_its_inputs():
    """The solution equals that of the normal equations in NumPy, for two outputs with different noise."""
    rng = np.random.default_rng(0)
    network = MLP((20,), 2, "tanh")
    X, Y, w = rng.normal(size=(30, 3)), rng.normal(size=(30, 2)), rng.uniform(0.1, 2, size=(30, 1))
    noise = np.array([0.1, 0.7])
    prior = layered_prior(network, network.init(None, X), default_layer_scales(network, 1.0))
    model = BayesianModel(network, prior, Gaussian(noise))
    posterior = AnchoredEnsemble(4, "prior", "last_layer").fit(jax.random.key(0), model, Data(X, Y, w))
    anchors = posterior.record.training.anchors
    for i in range(4):
        body, last = (jax.tree.map(lambda leaf, i=i: leaf[i], anchors[name]) for name in ("layer_0", "layer_1"))
        features = np.tanh(X @ body["weights"] + body["bias"])
        for k in range(2):
            precision = features.T @ (w * features) / noise[k] + 20 * np.eye(20)
            right_side = features.T @ (w[:, 0] * Y[:, k]) / noise[k] + 20 * last["weights"][:, k]
            expected = np.linalg.solve(precision, right_side)
            assert np.allclose(posterior.members["layer_1"]["weights"][i, :, k], expected, atol=1e-9)
        assert np.array_equal(posterior.members["layer_0"]["weights"][i], body["weights"])


def test_noise_of_randomized_targets_has_the_variance_of_their_rows():
    data = Data(np.zeros((3, 1)), np.zeros((3, 1)), np.array([[1.0], [4.0], [0.0]]))
    keys = jax.random.split(jax.random.key(0), 20_000)
    draw = jax.jit(jax.vmap(lambda k: anchoring.randomized_targets(k, Gaussian(np.array([0.5])), data)))
    draws = np.asarray(draw(keys))[..., 0]
    assert np.allclose(draws.var(0), [0.5, 0.125, 0.0], rtol=4 * np.sqrt(2 / 20_000))
