"""Other ensembles, compared with closed forms: for linear networks, each member is known."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen
from scipy import stats
from sklearn.exceptions import ConvergenceWarning

from anchored import from_flax
from anchored.exact.linear_gaussian import LinearGaussian
from anchored.inference.solvers import first_order
from anchored.inference.solvers.first_order import FirstOrder
from anchored.inference.solvers.gauss_newton import GaussNewton
from anchored.inference.training import TrainingConfig, member_problems
from anchored.methods import early_stopped_ensemble
from anchored.methods.anchored_ensemble import AnchoredEnsemble
from anchored.methods.bootstrap_ensemble import BootstrapEnsemble, draw_counts
from anchored.methods.deep_ensemble import DeepEnsemble, with_learned_noise
from anchored.methods.early_stopped_ensemble import EarlyStoppedEnsemble
from anchored.methods.ensemble import UnregularizedSampler
from anchored.methods.randomized_prior import PriorFunctionSampler, RandomizedPrior
from anchored.methods.regularized_ensemble import RegularizedEnsemble
from anchored.methods.unregularized_ensemble import UnregularizedEnsemble
from anchored.model.adapters import from_functions
from anchored.model.bayesian_model import BayesianModel
from anchored.model.layered_prior import default_layer_scales, layered_prior
from anchored.model.likelihoods import Categorical, Gaussian, HeteroscedasticGaussian
from anchored.model.networks import MLP, RBFNetwork
from anchored.model.priors import Prior
from anchored.types import Data

pytestmark = pytest.mark.usefixtures("unoptimised")
KEY = jax.random.key(5)
NOISE, SCALE, ROWS, COLUMNS = 0.5, 1.5, 12, 3
CONVERGED = FirstOrder(max_iter=2_000, learning_rate=0.2)
SHORT = FirstOrder(max_iter=12, batch_size=16)
CONSTANT_RATE = FirstOrder("sgd", 0.05, max_iter=12, batch_size=16, decay=False)
METHODS = [
    UnregularizedEnsemble(7, SHORT),
    RegularizedEnsemble(7, SHORT),
    BootstrapEnsemble(7, SHORT),
    DeepEnsemble(7, SHORT),
    RandomizedPrior(7, solver=SHORT),
    EarlyStoppedEnsemble(7, solver=CONSTANT_RATE),
]
each_method = pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)


def model_of(network, inputs, likelihood, scale=2.0):
    params = network.init(jax.random.key(0), inputs)
    return BayesianModel(network, layered_prior(network, params, default_layer_scales(network, scale)), likelihood)


@pytest.fixture
def linear(double):
    """A linear network in float64, and rows of different weights, two of which are zero."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(ROWS, COLUMNS)) @ np.array([[1, 0.5, 0], [0, 1, 0.3], [0, 0, 1.0]])
    y = X @ np.array([1.0, -2.0, 0.5]) + np.sqrt(NOISE) * rng.normal(size=ROWS)
    weights = rng.uniform(0.5, 2, size=ROWS)
    weights[[2, 7]] = 0
    return model_of(MLP((), 1), X, Gaussian(np.array([NOISE])), SCALE), Data(X, y[:, None], weights[:, None])


@pytest.fixture(scope="module")
def waves():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(60, 2)).astype(np.float32)
    y = (np.sin(2 * X[:, :1]) + 0.1 * rng.normal(size=(60, 1))).astype(np.float32)
    return Data(X, y, np.ones((60, 1), np.float32))


@pytest.fixture(scope="module")
def model(waves):
    return model_of(MLP((8,), 1, "tanh"), waves.inputs, Gaussian(np.array([0.25], np.float32)))


def exact(data, targets=None, weights=None):
    """The posterior of the weights in closed form."""
    return LinearGaussian.regression(
        data.inputs,
        (data.targets if targets is None else targets)[:, 0],
        NOISE,
        np.eye(COLUMNS) * SCALE**2 / COLUMNS,
        weights=(data.weights if weights is None else weights)[:, 0],
    )


def weights_of(params):
    """The weights of linear networks with one output, (members, columns)."""
    return np.asarray(params["layer_0"]["weights"])[..., 0]


def problems(sampler, model, data, n):
    """The anchors and the targets of members 0 to n − 1, without padding."""
    stack = member_problems(KEY, TrainingConfig(sampler), model, data, np.arange(n))
    return stack.anchor_and_model[0], np.asarray(stack.targets)[:, : len(data.weights)]


def same(one, other):
    """Whether two pytrees are equal."""
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))


def without_rows(data):
    """Data whose rows all have weight zero."""
    return data._replace(weights=np.zeros_like(data.weights))


# Closed forms


def test_unregularized_members_are_least_squares(linear):
    model, data = linear
    posterior = UnregularizedEnsemble(7, CONVERGED).fit(KEY, model, data)
    root = np.sqrt(data.weights)
    expected = np.linalg.lstsq(root * data.inputs, (root * data.targets)[:, 0])[0]
    assert np.abs(weights_of(posterior.members) - expected).max() < 1e-6
    errors = (data.targets[:, 0] - data.inputs @ expected) ** 2
    loss = np.average(errors, weights=data.weights[:, 0])
    assert np.allclose(posterior.record.training.loss_curve[-1], loss, rtol=1e-8)


def test_unregularized_members_keep_directions_that_the_data_do_not_determine(linear):
    """A weight whose input is always zero stays at its initial value, bit for bit."""
    model, data = linear
    inputs = data.inputs.copy()
    inputs[:, 2] = 0
    posterior = UnregularizedEnsemble(7, CONVERGED).fit(KEY, model, data._replace(inputs=inputs))
    starts = posterior.record.training.anchors
    assert np.array_equal(weights_of(posterior.members)[:, 2], weights_of(starts)[:, 2])
    assert np.ptp(weights_of(posterior.members)[:, :2], axis=0).max() < 1e-6


def test_regularized_members_are_ridge_estimates(linear):
    model, data = linear
    posterior = RegularizedEnsemble(7, CONVERGED).fit(KEY, model, data)
    assert np.abs(weights_of(posterior.members) - exact(data).posterior().mean).max() < 1e-6


def test_bootstrap_members_are_ridge_estimates_of_their_rows(linear):
    model, data = linear
    posterior = BootstrapEnsemble(7, CONVERGED).fit(KEY, model, data)
    for i, member in enumerate(weights_of(posterior.members)):
        noise_key = jax.random.fold_in(KEY, 2 * i + 1)
        padded = np.concatenate([data.weights, np.zeros((4, 1))])
        counts = np.asarray(draw_counts(noise_key, padded))[:ROWS, None]
        rows = np.repeat(np.arange(ROWS), counts[:, 0].astype(int))  # the rows of the resample
        assert len(rows) == ROWS - 2
        resample = Data(*(column[rows] for column in data))
        assert np.abs(member - exact(resample).posterior().mean).max() < 1e-6
    assert np.ptp(weights_of(posterior.members), axis=0).min() > 0.01


def test_bootstrap_counts_are_multinomial():
    """Mean 1, variance 1 − 1/n and covariance −1/n; padding and rows of weight zero are never drawn."""
    weights = np.ones((16, 2), np.float32)
    weights[[1, 6]] = 0
    weights[12:] = 0
    weights[3, 0] = 0  # a row that has weight for one output is drawn too
    n, draws = 10, 20_000
    counts = jax.jit(jax.vmap(draw_counts, in_axes=(0, None)))(jax.random.split(KEY, draws), weights)
    counts = np.asarray(counts, np.float64)
    real = weights.any(1)
    assert np.all(counts[:, ~real] == 0) and np.all(counts.sum(1) == n)
    counts = counts[:, real]
    totals = counts.sum(0)
    assert stats.chisquare(totals).pvalue > 1e-3
    covariance = np.eye(n) - 1 / n
    assert np.abs(np.cov(counts.T) - covariance).max() < 5 * np.sqrt(2 / draws)


def test_randomized_prior_members_are_anchored_members(linear):
    """θ + θ̃ = P (Σp⁻¹ θ̃ + Φᵀ W (y + ε)/σ²) for each member, and θ̃ does not change."""
    model, data = linear
    posterior = RandomizedPrior(7, solver=CONVERGED).fit(KEY, model, data)
    anchors, targets = problems(PriorFunctionSampler(), posterior.model, data, 7)
    assert same(posterior.members["fixed"], anchors["fixed"])
    assert np.ptp(targets, axis=0)[data.weights > 0].min() > 0
    fixed = weights_of(posterior.members["fixed"])
    total = weights_of(posterior.members["trained"]) + fixed
    for i in range(7):
        assert np.abs(total[i] - exact(data, targets[i]).solve(fixed[i : i + 1])[0]).max() < 1e-6
    outputs = posterior.outputs(data.inputs)[..., 0]
    assert np.allclose(outputs, total @ data.inputs.T)


def test_randomized_prior_members_are_draws_from_the_posterior(linear):
    model, data = linear
    n = 500
    members = RandomizedPrior(n, solver=replace(CONVERGED, max_iter=500)).fit(KEY, model, data).members
    total = weights_of(members["trained"]) + weights_of(members["fixed"])
    exact_posterior = exact(data).posterior()
    assert np.all(np.abs(total.mean(0) - exact_posterior.mean) < 4 * np.sqrt(np.diag(exact_posterior.covariance) / n))
    assert exact_posterior.covariance_error(np.cov(total.T)) < 3 * exact_posterior.expected_covariance_error(n)


def test_a_new_prior_strength_needs_no_compilation(linear):
    model, data = linear
    one = RandomizedPrior(3, 0.5, CONVERGED).fit(KEY, model, data)
    compiled = first_order._run_steps.n_created
    other = RandomizedPrior(3, 2.0, CONVERGED).fit(KEY, model, data)
    assert first_order._run_steps.n_created == compiled
    assert same(one.members["fixed"], other.members["fixed"])
    _, targets = problems(PriorFunctionSampler(), one.model, data, 3)
    for posterior, strength in ((one, 0.5), (other, 2.0)):
        fixed = strength * weights_of(posterior.members["fixed"])
        total = weights_of(posterior.members["trained"]) + fixed
        expected = [exact(data, targets[i]).solve(fixed[i : i + 1])[0] for i in range(3)]
        assert np.abs(total - expected).max() < 1e-6


# Deep ensembles


def test_deep_ensemble_learns_noise_that_varies():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(1_500, 1))
    std = 0.1 + 0.2 * (X + 2) / 2
    y = np.sin(2 * X) + std * rng.normal(size=X.shape)
    data = Data(*(np.asarray(part, np.float32) for part in (X, y, np.ones_like(X))))
    model = model_of(MLP((30,), 1), data.inputs, Gaussian(np.array([0.1], np.float32)), 3.0)
    posterior = DeepEnsemble(5, FirstOrder(max_iter=500)).fit(KEY, model, data)
    assert posterior.record.target is model
    points = np.linspace(-1.8, 1.8, 19, dtype=np.float32)[:, None]
    predictive = posterior.predict(points)
    assert np.all(np.abs(np.sqrt(predictive.aleatoric_variance) / (0.1 + 0.2 * (points + 2) / 2) - 1) < 0.35)
    assert np.abs(predictive.mean - np.sin(2 * points)).max() < 0.2
    mean, log_variance = np.split(posterior.outputs(points), 2, axis=-1)
    assert np.allclose(predictive.epistemic_variance, mean.var(0, ddof=1), rtol=1e-3, atol=1e-7)
    assert np.allclose(predictive.aleatoric_variance, np.exp(log_variance).mean(0), rtol=1e-4)


def test_deep_ensemble_repeats_the_prior_of_each_output():
    network = MLP((4,), 3)
    scale = {"layer_0": {"weights": 1.0, "bias": 2.0}, "layer_1": {"weights": np.array([0.1, 0.2, 0.3])}}
    prior = Prior(jax.tree.map(lambda s: 0 * s, scale), scale)
    learned = with_learned_noise(BayesianModel(network, prior, Gaussian(np.ones(3))))
    assert learned.network == MLP((4,), 6) and isinstance(learned.likelihood, HeteroscedasticGaussian)
    assert learned.prior.scale["layer_1"]["weights"].tolist() == [0.1, 0.2, 0.3] * 2
    assert learned.prior.scale["layer_0"] == scale["layer_0"]
    radial = BayesianModel(RBFNetwork(4, 3), replace(prior, scale=scale), Gaussian(np.ones(3)))
    assert with_learned_noise(radial).network == RBFNetwork(4, 6)
    column = replace(prior, scale={**scale, "layer_1": {"weights": np.ones((4, 1))}})
    learned = with_learned_noise(BayesianModel(network, column, Gaussian(np.ones(3))))
    assert learned.prior.scale["layer_1"]["weights"].shape == (4, 1)  # it broadcasts to all six outputs


def test_deep_ensemble_leaves_other_likelihoods_unchanged(waves):
    for likelihood in (HeteroscedasticGaussian(), Categorical(np.float32(1))):
        model = model_of(MLP((4,), 2), waves.inputs, likelihood)
        assert with_learned_noise(model) is model


def test_deep_ensemble_with_a_custom_network_raises_an_error(waves):
    network = from_functions(lambda key, x: {"w": jnp.zeros((2, 1))}, lambda params, x: x @ params["w"])
    model = model_of(network, waves.inputs, Gaussian(np.array([0.1], np.float32)))
    with pytest.raises(ValueError, match=r"twice as many outputs.*HeteroscedasticGaussian"):
        DeepEnsemble().fit(KEY, model, waves)


# Early stopping


def overfitting():
    """Nearly as many columns as rows, and much noise: gradient descent should stop before least squares."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(60, 40))
    y = X @ rng.normal(size=40) / 40**0.5 + rng.normal(size=60)
    weights = rng.uniform(0.5, 1.5, size=60)
    weights[:5] = 0
    return model_of(MLP((), 1), X, Gaussian(np.array([1.0])), 3.0), Data(X, y[:, None], weights[:, None])


def after_descent(data, starts, rate, n_steps):
    """θₜ = θ∞ + (I − ηH)ᵗ (θ₀ − θ∞), where θ∞ is the least squares solution and H the Hessian of the loss."""
    weights = data.weights[:, 0] / data.weights.sum()
    hessian = 2 * (data.inputs.T * weights) @ data.inputs
    end = np.linalg.solve(hessian, 2 * (data.inputs.T * weights) @ data.targets[:, 0])
    path = np.linalg.matrix_power(np.eye(len(end)) - rate * hessian, int(n_steps))
    return end + (starts - end) @ path


def test_early_stopped_members_are_gradient_descent_stopped_at_the_best_epoch(double):
    model, data = overfitting()
    method = EarlyStoppedEnsemble(12, validation_fraction=0.25)
    posterior = method.fit(KEY, model, data)
    record, rate = posterior.record, posterior.record.learning_rate
    starts = weights_of(record.training.anchors)
    assert np.array_equal(record.epochs, [0, *2 ** np.arange(13)])
    assert 0 < record.best_epoch < 4096
    expected = after_descent(data, starts, rate, record.best_epoch)
    assert np.abs(weights_of(posterior.members) - expected).max() < 1e-9
    assert np.all(record.training.n_epochs == record.best_epoch)

    held_out = early_stopped_ensemble._draw_held_out(KEY, data, 0.25)
    assert held_out.sum() == 13 and not held_out[:5].any()
    training, validation = (Data(*(column[rows] for column in data)) for rows in (~held_out, held_out))
    for epoch, score in zip(record.epochs, record.held_out_log_likelihood, strict=True):
        pilots = after_descent(training, starts[: early_stopped_ensemble.N_PILOTS], rate, epoch) @ validation.inputs.T
        terms = stats.norm.logpdf(validation.targets[:, 0], pilots.mean(0), np.sqrt(1 + pilots.var(0, ddof=1)))
        assert np.isclose(score, np.average(terms, weights=validation.weights[:, 0]), rtol=1e-8)
    assert record.best_epoch == record.epochs[np.argmax(record.held_out_log_likelihood)]
    twice = Data(*(np.repeat(column, 2, axis=0) for column in data))
    with_copies = early_stopped_ensemble._draw_held_out(KEY, twice, 0.25)
    assert with_copies.sum() == 26 and np.array_equal(with_copies[::2], with_copies[1::2])


def test_the_learning_rate_is_bounded_by_the_curvature(double):
    model, data = overfitting()
    weights = data.weights[:, 0] / data.weights.sum()
    max_curvature = np.linalg.eigvalsh(2 * (data.inputs.T * weights) @ data.inputs).max()
    few_steps = [FirstOrder("sgd", rate, max_iter=4, decay=False) for rate in (10.0, 1e-3)]
    with pytest.warns(ConvergenceWarning, match="Raise max_iter"):
        fits = [EarlyStoppedEnsemble(12, solver=solver).fit(KEY, model, data) for solver in few_steps]
    bounded, given = (posterior.record.learning_rate for posterior in fits)
    assert np.isclose(bounded, 1 / max_curvature, rtol=0.02) and given == 1e-3


def test_zero_epochs_are_draws_from_the_prior(waves, model):
    """If training makes predictions worse, members are the draws that other methods start from, bit for bit."""
    starts, _ = problems(UnregularizedSampler(), model, waves, 7)
    uphill = replace(CONSTANT_RATE, optimizer=lambda rate: optax.sgd(-rate), max_iter=2)
    posterior = EarlyStoppedEnsemble(7, solver=uphill).fit(KEY, model, waves)
    assert posterior.record.best_epoch == 0
    assert same(posterior.members, starts)
    assert posterior.record.training.loss_curve.shape == (0, 7)
    assert np.isfinite(posterior.predict(waves.inputs).variance).all()


def test_one_row_gives_zero_epochs(waves, model):
    weights = np.zeros_like(waves.weights)
    weights[4] = 1
    posterior = EarlyStoppedEnsemble(7, solver=CONSTANT_RATE).fit(KEY, model, waves._replace(weights=weights))
    assert posterior.record.best_epoch == 0


# All methods


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (RegularizedEnsemble(0), "n_estimators must be a whole number of at least 1, got 0"),
        (BootstrapEnsemble(2.5), "n_estimators must be a whole number"),
        (UnregularizedEnsemble(2, FirstOrder(max_iter=0)), "max_iter must be a whole number"),
        (DeepEnsemble(2, FirstOrder("nope")), "optimizer: 'nope' is not a known name"),
        (DeepEnsemble(2, FirstOrder(learning_rate=-1.0)), "learning_rate must be a positive number"),
        (DeepEnsemble(2, FirstOrder(batch_size=0)), "batch_size must be a whole number .* or None"),
        (RegularizedEnsemble(2, FirstOrder(early_stopping=True)), "solver: early_stopping=True needs held-out rows"),
        (UnregularizedEnsemble(2, GaussNewton()), "solver must be a FirstOrder for UnregularizedEnsemble"),
        (EarlyStoppedEnsemble(solver=GaussNewton()), "solver must be a FirstOrder"),
        (EarlyStoppedEnsemble(solver=FirstOrder("sgd")), "solver: .* decay=False"),
        (EarlyStoppedEnsemble(validation_fraction=1.5), r"validation_fraction .* got 1\.5"),
        (RandomizedPrior(prior_strength=np.nan), "prior_strength must be a number of at most .* got nan"),
        (AnchoredEnsemble(2, "randomised"), r"anchoring must be one of \['prior', 'randomized'\]"),
        (AnchoredEnsemble(2, (1.0, 1.0, 1.0)), "each of the network's 2 layers, got 3"),
        (AnchoredEnsemble(2, -1.0), "anchoring must be .* none below 0"),
        (AnchoredEnsemble(2, trainable="last layer"), "trainable must be one of"),
        (AnchoredEnsemble(2, solver=GaussNewton(max_iter=0)), "max_iter must be a whole number"),
        (AnchoredEnsemble(2, solver="adam"), "solver must be a FirstOrder or GaussNewton"),
    ],
)
def test_invalid_settings(waves, model, method, message):
    with pytest.raises(ValueError, match=message):
        method.fit(KEY, model, waves)


def test_kappas_in_a_list(waves, model):
    by_list, by_tuple = (AnchoredEnsemble(2, kappa, solver=SHORT) for kappa in ([1.0, 0.5], (1.0, 0.5)))
    assert by_list == by_tuple and hash(by_list) == hash(by_tuple)
    assert same(*(method.fit(KEY, model, waves).members for method in (by_list, by_tuple)))


def test_weight_decay_does_not_change_the_fixed_part(waves, model):
    posterior = RandomizedPrior(3, 2.0, replace(SHORT, optimizer="adamw")).fit(KEY, model, waves)
    anchors, _ = problems(PriorFunctionSampler(), posterior.model, waves, 3)
    assert same(posterior.members["fixed"], anchors["fixed"]) and np.all(posterior.members["strength"] == 2)


@each_method
def test_members_do_not_depend_on_n_estimators(waves, model, method):
    one = method.fit(KEY, model, waves)
    fewer = replace(method, n_estimators=3).fit(KEY, model, waves)
    assert same(fewer.members, jax.tree.map(lambda leaf: leaf[:3], one.members))
    assert one.n_members == 7 and one.record.method is method and one.record.target is model
    assert len({leaf.tobytes() for leaf in jax.tree.leaves(one.members)[0]}) == 7


@each_method
def test_without_data(waves, model, method):
    """Members are draws from the prior, or its mean, and the reported fractions sum to 1."""
    if not isinstance(method, EarlyStoppedEnsemble):
        method = replace(method, solver=replace(SHORT, max_iter=400, learning_rate=0.1))
    fractions = []
    posterior = method.fit(KEY, model, without_rows(waves), lambda fraction, loss: fractions.append(fraction))
    assert np.isclose(sum(fractions), 1)
    if isinstance(method, UnregularizedEnsemble | EarlyStoppedEnsemble):
        assert same(posterior.members, problems(UnregularizedSampler(), model, waves, 7)[0])
        return
    is_sum = isinstance(method, RandomizedPrior)
    trained = posterior.members["trained"] if is_sum else posterior.members
    assert max(np.abs(leaf).max() for leaf in jax.tree.leaves(trained)) < 1e-3
    if is_sum:
        fixed = replace(posterior, model=model, members=posterior.members["fixed"])
        assert np.abs(posterior.outputs(waves.inputs) - fixed.outputs(waves.inputs)).max() < 1e-3


def test_prior_functions_add_logits():
    rng = np.random.default_rng(0)
    targets = np.arange(90) % 3
    centres = np.array([[2, 0], [-1, 2], [-1, -2]])
    X = (centres[targets] + 0.5 * rng.normal(size=(90, 2))).astype(np.float32)
    data = Data(X, targets, np.ones((90, 1), np.float32))
    model = model_of(MLP((10,), 3), X, Categorical(np.float32(1)))
    posterior = RandomizedPrior(3, 2.0, FirstOrder(max_iter=100)).fit(KEY, model, data)
    parts = [replace(posterior, model=model, members=posterior.members[name]) for name in ("trained", "fixed")]
    trained, fixed = (part.outputs(X) for part in parts)
    assert np.allclose(posterior.outputs(X), trained + 2 * fixed, atol=1e-4)
    assert same(posterior.members["fixed"], problems(PriorFunctionSampler(), posterior.model, data, 3)[0]["fixed"])
    assert np.mean(posterior.predict(X).probabilities.argmax(1) == targets) > 0.95


class Linen(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(2)(linen.LayerNorm()(linen.tanh(linen.Dense(6)(x))))


def _init(key, inputs):
    return {"hidden": jnp.ones((inputs.shape[1], 6)), "last": jnp.ones((6, 2))}


def _apply(params, inputs):
    return jnp.tanh(inputs @ params["hidden"]) @ params["last"]


LINEN, PAIR = from_flax(Linen(), "Dense_1"), from_functions(_init, _apply, "last")
PAIRS = list(zip(METHODS[3:], (PAIR, LINEN, LINEN), strict=True))


@pytest.mark.parametrize(("method", "network"), PAIRS, ids=lambda value: type(value).__name__)
def test_other_networks(waves, method, network):
    learns_noise = isinstance(method, DeepEnsemble)
    data = waves if learns_noise else waves._replace(targets=np.repeat(waves.targets, 2, axis=1))
    likelihood = HeteroscedasticGaussian() if learns_noise else Gaussian(np.array([0.01, 0.02], np.float32))
    posterior = replace(method, n_estimators=2).fit(KEY, model_of(network, waves.inputs, likelihood), data)
    predictive = posterior.predict(waves.inputs)
    assert predictive.mean.shape == data.targets.shape
    assert np.isfinite(predictive.variance).all() and np.all(predictive.epistemic_variance > 0)
