"""The limit of infinite width: closed forms against each other, and ensembles of wide networks against them."""

import jax
import numpy as np
import pytest

from anchored.exact.kernels import gram, kernel_of, tangent_kernel
from anchored.exact.linear_gaussian import LinearGaussian
from anchored.exact.processes import GaussianProcess
from anchored.exact.wide_limit import wide_limit
from anchored.inference import anchoring
from anchored.inference.anchoring import anchored_loss
from anchored.inference.posterior import MemberPosterior
from anchored.inference.solvers import ridge
from anchored.inference.solvers.first_order import FirstOrder
from anchored.inference.solvers.gauss_newton import GaussNewton
from anchored.inference.training import member_problems
from anchored.methods.anchored_ensemble import AnchoredEnsemble
from anchored.model.bayesian_model import BayesianModel
from anchored.model.layered_prior import default_layer_scales, layered_prior
from anchored.model.likelihoods import Categorical, Gaussian
from anchored.model.networks import MLP, FunctionNetwork, RBFNetwork
from anchored.model.priors import Prior
from anchored.types import Data

pytestmark = pytest.mark.usefixtures("double", "unoptimised")

KEY = jax.random.key(0)
NOISE, KAPPA = 0.1, 0.5
WIDTH, N_MEMBERS = 1_000, 120
# Tolerance for the error due to finite width, in standard deviations; test_members_approach_the_limit measures it
FINITE_WIDTH = 0.05
SOLVER = GaussNewton(max_iter=200, tolerance=1e-4)

_rng = np.random.default_rng(2)
X, POINTS = _rng.uniform(-1.5, 1.5, size=(8, 2)), _rng.uniform(-2, 2, size=(8, 2))
Y = 0.5 * np.sin(2 * X[:, :1])
ONES = np.ones((8, 1))
WEIGHTS = _rng.uniform(0.3, 3, size=(8, 1))

SMALL = MLP((WIDTH // 4,), 1, "tanh")
NETWORKS = {
    "relu": MLP((WIDTH,), 1, "relu"),
    "tanh": MLP((WIDTH,), 1, "tanh"),
    "deep": MLP((200, 200), 1, "erf"),
    "rbf": RBFNetwork(WIDTH, 1, unit_scale=1.2),
}


def model_of(network, noise=NOISE):
    """Return a model of `network` with the default prior and this noise variance."""
    params = network.init(KEY, X)
    prior = layered_prior(network, params, default_layer_scales(network, 1.0))
    return BayesianModel(network, prior, Gaussian(np.array([noise])))


def process_posterior(kernel, weights=ONES):
    """Return mean and covariance of the posterior of the Gaussian process with this kernel, at POINTS."""
    mean, covariance = GaussianProcess(kernel, NOISE).condition(X, Y, weights).predict(POINTS, return_cov=True)
    return mean[:, 0], covariance[..., 0]


def limit_of(model, how, trainable="all", tangent_correction=False):
    """Return the wide limit of an ensemble with anchoring `how`, which is a name or κ.

    For κ it is that of anchors from the prior N(0, κs²) with noise variance κσ², which has the same loss.
    """
    if isinstance(how, str):
        return wide_limit(kernel_of(model), NOISE, how, trainable, tangent_correction)
    scale = jax.tree.map(lambda s: np.sqrt(how) * s, model.prior.scale)
    scaled = BayesianModel(model.network, Prior(model.prior.mean, scale), model.likelihood)
    return wide_limit(kernel_of(scaled), how * NOISE, "prior", trainable, tangent_correction)


def fitted(model, how, n_members=N_MEMBERS, weights=ONES, **settings):
    """Return the posterior of an ensemble with anchoring `how` and further settings."""
    method = AnchoredEnsemble(n_members, how, solver=SOLVER, **settings)
    return method.fit(KEY, model, Data(X, Y, weights))


def assert_agrees(outputs, mean, covariance):
    """Check means and standard deviations at every point, within Monte-Carlo error and FINITE_WIDTH."""
    n, std = len(outputs), np.sqrt(np.diag(covariance))
    assert np.all(np.abs(outputs.mean(0) - mean) < (4 / np.sqrt(n) + FINITE_WIDTH) * std)
    assert np.all(np.abs(outputs.std(0, ddof=1) / std - 1) < 4 / np.sqrt(2 * (n - 1)) + FINITE_WIDTH)


@pytest.mark.parametrize("name", NETWORKS)
def test_limit_of_the_last_layer_with_noisy_targets_is_the_posterior(name):
    """This is Proposition 1."""
    kernel = kernel_of(model_of(NETWORKS[name]))
    found = wide_limit(kernel, NOISE, "randomized", "last_layer").distribution(X, Y, POINTS, WEIGHTS)
    for result, expected in zip(found, process_posterior(kernel, WEIGHTS), strict=True):
        assert np.allclose(result, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", NETWORKS)
def test_corrected_limit_is_the_posterior_under_the_tangent_kernel(name):
    kernel = kernel_of(model_of(NETWORKS[name]))
    found = wide_limit(kernel, NOISE, "randomized", "all", tangent_correction=True).distribution(X, Y, POINTS, WEIGHTS)
    for result, expected in zip(found, process_posterior(tangent_kernel(kernel), WEIGHTS), strict=True):
        assert np.allclose(result, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", NETWORKS)
def test_anchors_from_the_prior_give_a_covariance_that_is_too_small(name):
    """It is too small by B N Bᵀ with B = K_*X (K_XX + N)⁻¹. The mean is that of the posterior."""
    kernel = kernel_of(model_of(NETWORKS[name]))
    mean, covariance = wide_limit(kernel, NOISE, "prior", "last_layer").distribution(X, Y, POINTS, WEIGHTS)
    noise = np.diag(NOISE / WEIGHTS[:, 0])
    gain = gram(kernel, POINTS, X) @ np.linalg.inv(gram(kernel, X) + noise)
    expected_mean, posterior = process_posterior(kernel, WEIGHTS)
    assert np.allclose(mean, expected_mean, rtol=0, atol=1e-10)
    assert np.allclose(covariance, posterior - gain @ noise @ gain.T, rtol=0, atol=1e-10)


@pytest.mark.parametrize("how", ["prior", "randomized", KAPPA])
@pytest.mark.parametrize("trainable", ["all", "last_layer"])
def test_limit_of_a_linear_model_is_that_of_theorem_1(how, trainable):
    """A linear model has no width, and the distribution of its weights is known."""
    model = model_of(MLP((), 1))
    prior = np.eye(2) / 2
    linear = LinearGaussian.regression(X, Y[:, 0], NOISE, prior, weights=WEIGHTS[:, 0])
    anchors = {"prior": prior, "randomized": linear.exact_anchor_covariance(), KAPPA: KAPPA * prior}[how]
    weights = linear.anchored_distribution(anchors)
    mean, covariance = limit_of(model, how, trainable).distribution(X, Y, POINTS, WEIGHTS)
    assert np.allclose(mean, POINTS @ weights.mean, rtol=0, atol=1e-10)
    assert np.allclose(covariance, POINTS @ weights.covariance @ POINTS.T, rtol=0, atol=1e-10)


@pytest.mark.parametrize("corrected", [False, True])
@pytest.mark.parametrize("how", ["prior", "randomized"])
def test_without_data_the_limit_is_the_distribution_of_anchors(how, corrected):
    kernel = kernel_of(model_of(NETWORKS["relu"]))
    limit = wide_limit(kernel, NOISE, how, tangent_correction=corrected)
    mean, covariance = limit.distribution(X, Y, POINTS, 1e-12 * ONES)
    assert np.allclose(mean, 0, atol=1e-9)
    assert np.allclose(covariance, gram(tangent_kernel(kernel) if corrected else kernel, POINTS), atol=1e-9)


def test_limit_of_training_all_layers_is_not_a_posterior():
    """It is neither the posterior of K nor that of Θ, but with noisy targets it is close to that of K."""
    kernel = kernel_of(model_of(NETWORKS["relu"]))
    std = np.sqrt(np.diag(wide_limit(kernel, NOISE, "randomized").distribution(X, Y, POINTS)[1]))
    for other in (kernel, tangent_kernel(kernel)):
        assert np.max(np.abs(std / np.sqrt(np.diag(process_posterior(other)[1])) - 1)) > 0.02


def test_a_number_as_anchoring_is_refused():
    with pytest.raises(ValueError, match=r"anchoring.*'prior' or 'randomized'.*0\.5"):
        wide_limit(kernel_of(model_of(NETWORKS["relu"])), NOISE, KAPPA)


@pytest.mark.parametrize(
    "name, trainable, how",
    [
        ("relu", "all", "prior"),
        ("relu", "all", "randomized"),
        ("tanh", "all", "prior"),
        ("tanh", "all", "randomized"),
        ("tanh", "all", KAPPA),
        ("deep", "all", "randomized"),
        ("rbf", "all", "randomized"),
        ("relu", "last_layer", "randomized"),
        ("tanh", "last_layer", "prior"),
        ("relu", "last_layer", KAPPA),
        ("rbf", "last_layer", "randomized"),
    ],
)
def test_wide_members_agree_with_the_limit(name, trainable, how):
    model = model_of(NETWORKS[name])
    weights = WEIGHTS if how == "randomized" else ONES
    outputs = fitted(model, how, weights=weights, trainable=trainable).outputs(POINTS)[..., 0]
    assert_agrees(outputs, *limit_of(model, how, trainable).distribution(X, Y, POINTS, weights))


def differences_from_limit(model, posterior, kernels):
    """Yield, for the G of each kernel, the differences of members from f₀ + G (y + ε − f₀(X)) at POINTS.

    Each member has its own anchor, with outputs f₀, and its own noisy targets y + ε.
    """
    config, corrected = posterior.record.method.training_config(), "anchor" in posterior.members
    problems = member_problems(KEY, config, model, Data(X, Y, ONES), np.arange(posterior.n_members))
    anchors = problems.anchor_and_model[0]
    # δ(X), the tangent correction of the rows, is already subtracted from the targets
    residuals = (np.asarray(problems.targets) - MemberPosterior(model, anchors).outputs(X))[..., 0]
    untrained = posterior.members | {"trained": anchors} if corrected else anchors
    changes = (posterior.outputs(POINTS) - MemberPosterior(posterior.model, untrained).outputs(POINTS))[..., 0]
    for kernel in kernels:
        gain = gram(kernel, POINTS, X) @ np.linalg.inv(gram(kernel, X) + NOISE * np.eye(8))
        yield changes - residuals @ gain.T


def test_members_approach_the_limit():
    """Each member differs from its limit by O(1/√width), at random, so that the differences of means are smaller."""
    distances = []
    for network in (SMALL, NETWORKS["tanh"]):  # the second is four times as wide
        model = model_of(network)
        limit, posterior = limit_of(model, "randomized"), fitted(model, "randomized", 100)
        std = np.sqrt(np.diag(limit.distribution(X, Y, POINTS)[1]))
        kernels = (limit.trained_kernel, limit.anchor_kernel)
        from_tangent, from_anchor = differences_from_limit(model, posterior, kernels)
        distances.append(np.sqrt(np.mean((from_tangent / std) ** 2)))
    assert distances[1] < 0.1
    assert 1.4 < distances[0] / distances[1] < 2.6  # 2, within the error of a hundred members
    assert np.all(np.abs(from_tangent.mean(0)) < 4 * from_tangent.std(0) / np.sqrt(100) + FINITE_WIDTH / 5 * std)
    assert np.sqrt(np.mean((from_anchor / std) ** 2)) > 2 * distances[1]  # G is that of Θ, not of K


@pytest.mark.parametrize("name", ["relu", "tanh"])
def test_corrected_members_agree_with_the_posterior_under_the_tangent_kernel(name):
    model = model_of(NETWORKS[name])
    outputs = fitted(model, "randomized", tangent_correction=True).outputs(POINTS)[..., 0]
    assert_agrees(outputs, *process_posterior(tangent_kernel(kernel_of(model))))


def test_uncorrected_members_differ_from_the_posterior_under_the_tangent_kernel():
    """Their standard deviations are too small, by more than the tolerance."""
    model = model_of(NETWORKS["relu"])
    std = np.sqrt(np.diag(process_posterior(tangent_kernel(kernel_of(model)))[1]))
    n = 200
    ratio = fitted(model, "randomized", n).outputs(POINTS)[..., 0].std(0, ddof=1) / std
    assert np.min(ratio) < 1 - 4 / np.sqrt(2 * (n - 1)) - FINITE_WIDTH


def test_corrected_members_with_a_trained_last_layer_agree_with_their_limit():
    """With δ, the covariance at the anchors is Θ. The kernel of the trained layer is still K."""
    model = model_of(NETWORKS["tanh"])
    posterior = fitted(model, "randomized", trainable="last_layer", tangent_correction=True)
    limit = limit_of(model, "randomized", "last_layer", True)
    mean, covariance = limit.distribution(X, Y, POINTS)
    assert_agrees(posterior.outputs(POINTS)[..., 0], mean, covariance)
    kernels = (limit.trained_kernel, limit.anchor_kernel)
    with_k, with_theta = (np.mean(difference**2) for difference in differences_from_limit(model, posterior, kernels))
    assert with_k < with_theta / 4


def test_corrected_members_without_data_are_draws_from_the_tangent_process():
    model, n = model_of(MLP((40, 40), 1, "erf")), 400
    outputs = fitted(model, "randomized", n, weights=0 * ONES, tangent_correction=True).outputs(POINTS)[..., 0]
    expected = gram(tangent_kernel(kernel_of(model)), POINTS)
    error = np.sqrt((np.outer(np.diag(expected), np.diag(expected)) + expected**2) / n)
    assert np.all(np.abs(outputs.T @ outputs / n - expected) < 4.5 * error)
    assert np.all(np.abs(outputs.mean(0)) < 4 * np.sqrt(np.diag(expected) / n))


def test_correction_is_the_jacobian_times_a_prior_draw():
    model = model_of(SMALL)
    posterior = fitted(model, "randomized", 3, tangent_correction=True)
    for i, outputs in enumerate(posterior.outputs(POINTS)):
        trained, anchor, direction = (
            jax.tree.map(lambda leaf, i=i: leaf[i], posterior.members[part])
            for part in ("trained", "anchor", "direction")
        )
        jacobian = jax.jit(jax.jacobian(SMALL.apply))(anchor, POINTS)
        products = jax.tree.map(lambda j, d: np.tensordot(j, d, d.ndim), jacobian, direction)
        expected = SMALL.apply(trained, POINTS) + sum(jax.tree.leaves(products))
        assert np.allclose(outputs, expected, rtol=0, atol=1e-10)
        assert np.all(direction["layer_1"]["weights"] == 0)
        for leaf, scale in ((direction["layer_0"][n], model.prior.scale["layer_0"][n]) for n in ("weights", "bias")):
            assert np.isclose(leaf.std(), scale, rtol=4 / np.sqrt(2 * leaf.size))
        anchors = posterior.record.training.anchors
        assert not np.any(np.isclose(direction["layer_0"]["bias"], anchors["layer_0"]["bias"][i], rtol=1e-6))


def test_both_solvers_find_the_same_corrected_members():
    model = model_of(SMALL)
    one, other = (
        AnchoredEnsemble(3, "randomized", solver=solver, tangent_correction=True).fit(KEY, model, Data(X, Y, ONES))
        for solver in (GaussNewton(max_iter=200, tolerance=1e-8), FirstOrder(max_iter=2_000, learning_rate=0.01))
    )
    assert np.allclose(one.outputs(POINTS), other.outputs(POINTS), atol=0.01)


def test_a_second_corrected_fit_needs_no_compilation(monkeypatch):
    model, traces = model_of(SMALL), []
    fitted(model, "randomized", 2, tangent_correction=True)
    draw = anchoring.draw_direction
    monkeypatch.setattr(anchoring, "draw_direction", lambda *a: (traces.append(1), draw(*a))[1])
    fitted(model_of(SMALL, 2 * NOISE), "randomized", 2, tangent_correction=True)
    assert not traces


def test_correction_needs_a_named_last_layer():
    network = MLP((10,), 1)
    unnamed = FunctionNetwork(network.init, network.apply)
    model = BayesianModel(unnamed, model_of(network).prior, Gaussian(np.array([NOISE])))
    with pytest.raises(ValueError, match=r"last_layer=None.*last_layer set to one of.*layer_1"):
        fitted(model, "randomized", 2, tangent_correction=True)


def test_correction_needs_the_gaussian_likelihood():
    model = model_of(MLP((10,), 3))
    model = BayesianModel(model.network, model.prior, Categorical(1.0))
    data = Data(X, np.zeros(8, int), ONES)
    with pytest.raises(ValueError, match=r"tangent_correction=True needs the Gaussian likelihood"):
        AnchoredEnsemble(2, tangent_correction=True).fit(KEY, model, data)


def test_training_of_corrected_members_cannot_be_resumed():
    posterior = fitted(model_of(SMALL), "randomized", 2, tangent_correction=True)
    with pytest.raises(ValueError, match=r"tangent_correction=True.*call fit with all rows"):
        posterior.record.method.resume(KEY, posterior, Data(X, Y, ONES))


@pytest.mark.parametrize("width, rows_per_chunk", [(20, 1024), (30, 7), (31, 1024), (31, 7)])
def test_training_the_last_layer_is_ridge_regression_on_its_inputs(width, rows_per_chunk, monkeypatch):
    """For 30 rows, networks of up to 30 units have one equation for each unit, and wider ones one for each row."""
    monkeypatch.setattr(ridge, "ROWS_PER_CHUNK", rows_per_chunk)
    ridge._solve_all.clear_cache()
    rng = np.random.default_rng(width)
    inputs, targets = rng.normal(size=(30, 3)), rng.normal(size=(30, 2))
    weights = rng.uniform(0.1, 2, size=(30, 2)) * (rng.uniform(size=(30, 1)) > 0.2)
    noise = np.array([0.1, 0.7])
    network = MLP((width,), 2, "tanh")
    prior = layered_prior(network, network.init(KEY, inputs), default_layer_scales(network, 1.0))
    model = BayesianModel(network, prior, Gaussian(noise))
    anchor = jax.tree.map(np.asarray, prior.sample(KEY, network.init(KEY, inputs)))
    arguments = (anchor, model, targets, weights)
    anchors, models, *data = jax.tree.map(lambda leaf: np.asarray(leaf)[None], arguments)  # of one member
    solved = jax.tree.map(lambda leaf: leaf[0], ridge.solve(anchored_loss, anchors, models, Data(inputs, *data))[0])
    features = np.tanh(inputs @ anchor["layer_0"]["weights"] + anchor["layer_0"]["bias"])
    for k in range(2):
        weighted = features.T * weights[:, k] / noise[k]
        right_side = weighted @ targets[:, k] + width * anchor["layer_1"]["weights"][:, k]
        expected = np.linalg.solve(weighted @ features + width * np.eye(width), right_side)
        assert np.allclose(solved["layer_1"]["weights"][:, k], expected, rtol=0, atol=1e-9)
    assert np.array_equal(solved["layer_0"]["weights"], anchor["layer_0"]["weights"])
