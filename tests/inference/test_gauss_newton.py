"""The Gauss–Newton solver against closed forms, brute force and other optimisers of the same objective."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize
from sklearn.exceptions import ConvergenceWarning

from anchored import from_flax
from anchored.inference import anchoring
from anchored.inference.failures import DivergenceError
from anchored.inference.solvers import gauss_newton
from anchored.inference.solvers.first_order import FirstOrder
from anchored.inference.solvers.gauss_newton import GaussNewton
from anchored.methods.anchored_ensemble import AnchoredEnsemble
from anchored.model.bayesian_model import BayesianModel
from anchored.model.layered_prior import default_layer_scales, layered_prior
from anchored.model.likelihoods import Categorical, Gaussian, HeteroscedasticGaussian
from anchored.model.networks import MLP, FunctionNetwork
from anchored.model.priors import Prior
from anchored.types import Data

pytestmark = pytest.mark.usefixtures("unoptimised")
KEY = jax.random.key(0)
NOISE = np.array([0.1, 0.7])  # noise variances of two outputs
NETWORK = MLP((30,), 2, "tanh")  # many tests use this network, so that they share a program
EXACT = GaussNewton(max_iter=1_000, tolerance=1e-14)


def model_of(network, inputs, noise=NOISE, first=1.5):
    """Return a model of `network` with the default prior, whose first scale is `first`, and this noise variance."""
    params = network.init(KEY, inputs)
    return BayesianModel(network, layered_prior(network, params, default_layer_scales(network, first)), Gaussian(noise))


def table(n_rows=8, n_outputs=2, seed=0):
    """Return random rows with different weights."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 2))
    Y = np.sin(2 * X[:, :1]) * np.arange(1, n_outputs + 1) + 0.1 * rng.normal(size=(n_rows, n_outputs))
    return Data(X, Y, rng.uniform(0.2, 3, size=(n_rows, 1)))


def prior_draw(model, inputs, seed):
    """Return parameters that are drawn from the prior."""
    return jax.tree.map(np.asarray, model.prior.sample(jax.random.key(seed), model.network.init(KEY, inputs)))


def nats(params, anchor, model, data):
    """Return the negative log posterior under the prior N(anchor, s²), which is eq. 2 without its factor 2σ²/N."""
    return anchoring.anchored_loss(params, anchor, model, data, 1.0) / model.likelihood.loss_scale


def in_prior_units(gradient, model):
    """Return the gradient with respect to θ/s, with prior scales s, as one vector."""
    return np.concatenate(
        [np.ravel(leaf * s) for leaf, s in zip(*map(jax.tree.leaves, (gradient, model.prior.scale)), strict=True)]
    )


def assert_stationary(params, anchor, model, data, tolerance=1e-6):
    """Check that the gradient is negligible compared with that at the anchor."""
    gradient = jax.jit(jax.grad(nats))
    at_params, at_anchor = (in_prior_units(gradient(p, anchor, model, data), model) for p in (params, anchor))
    assert np.linalg.norm(at_params) < tolerance * np.linalg.norm(at_anchor)


@given(st.integers(0, 2**32 - 1), st.booleans())
@settings(max_examples=25, deadline=None)
def test_solution_for_a_linear_network_agrees_with_its_closed_form(seed, one_weight_per_row):
    """For any anchor, start, noise and weights, and two outputs with different noise."""
    with jax.enable_x64(True):
        rng = np.random.default_rng(seed)
        data = table(seed=rng.integers(2**32))
        weights = rng.choice([0.0, 0.1, 1.0, 7.0], size=(8, 1 if one_weight_per_row else 2))
        data, noise = data._replace(weights=weights), rng.uniform(0.05, 2, size=2)
        model = model_of(MLP((), 2), data.inputs, noise)
        anchor, start = (prior_draw(model, data.inputs, int(rng.integers(2**31))) for _ in range(2))
        params, _, n_steps = gauss_newton.solve(anchor, start, model, data, GaussNewton())
    prior_precision = np.eye(2) * 2 / 1.5**2
    for k in range(2):
        weighted = data.inputs.T * np.broadcast_to(weights, (8, 2))[:, k] / noise[k]
        right_side = weighted @ data.targets[:, k] + prior_precision @ anchor["layer_0"]["weights"][:, k]
        expected = np.linalg.solve(weighted @ data.inputs + prior_precision, right_side)
        assert np.allclose(params["layer_0"]["weights"][:, k], expected, rtol=0, atol=1e-9)
    assert n_steps <= 2  # the second finds that the first has reached the minimum


def test_rows_of_weight_zero_have_no_effect(double):
    data = table()
    weights = np.where(np.arange(8)[:, None] % 3 == 1, 0.0, data.weights)
    kept = weights[:, 0] > 0
    all_rows = data._replace(targets=np.where(kept[:, None], data.targets, 1e6), weights=weights)
    model = model_of(NETWORK, data.inputs)
    anchor = prior_draw(model, data.inputs, 1)
    kept_rows = Data(*(leaf[kept] for leaf in all_rows))
    one, other = (gauss_newton.solve(anchor, anchor, model, rows, EXACT)[0] for rows in (all_rows, kept_rows))
    assert all(np.allclose(a, b, atol=1e-7) for a, b in zip(*map(jax.tree.leaves, (one, other))))


@pytest.mark.parametrize(
    "sizes, activation", [((), "relu"), ((7,), "relu"), *(((6, 5), a) for a in ("relu", "erf", "elu"))]
)
def test_gram_matrix_is_the_product_of_the_jacobian_with_itself(double, sizes, activation):
    network, X = MLP(sizes, 2, activation), table().inputs
    model = model_of(network, X)
    params = prior_draw(model, X, 2)
    jacobian = jax.jit(jax.jacobian(network.apply))(params, X)
    parts = jax.tree.map(lambda j, s: np.asarray(j * s).reshape(16, -1), jacobian, model.prior.scale)
    flat = np.concatenate(jax.tree.leaves(parts), axis=1)
    of_function = BayesianModel(FunctionNetwork(network.init, network.apply), model.prior, model.likelihood)
    for tested in (model, of_function):  # MLPs have their own, faster computation
        assert np.allclose(jax.jit(gauss_newton._gram)(tested, params, X), flat @ flat.T, atol=1e-12)


def test_a_prior_with_one_scale_for_each_parameter(double):
    """The fast computation of the Gram matrix of MLPs, which needs one scale per leaf, is then not used."""
    network, data = MLP((7,), 2, "tanh"), table()
    model = model_of(network, data.inputs)
    params = network.init(KEY, data.inputs)
    scale = jax.tree.map(lambda p, s: s * np.linspace(0.5, 2, p.size).reshape(p.shape), params, model.prior.scale)
    model = BayesianModel(network, Prior(model.prior.mean, scale), model.likelihood)
    anchor = prior_draw(model, data.inputs, 3)
    params = gauss_newton.solve(anchor, anchor, model, data, EXACT)[0]
    assert_stationary(params, anchor, model, data)


@pytest.mark.parametrize("network", [NETWORK, MLP((12, 10), 2, "tanh")])
def test_solution_is_a_stationary_point(double, network):
    data = table()
    model = model_of(network, data.inputs)
    for seed in range(3):
        anchor, start = prior_draw(model, data.inputs, seed), prior_draw(model, data.inputs, seed + 10)
        params, loss, _ = gauss_newton.solve(anchor, start, model, data, EXACT)
        assert_stationary(params, anchor, model, data)
        expected = anchoring.anchored_loss(params, anchor, model, data, data.weights.sum())
        assert np.isclose(loss, expected, rtol=1e-12)


@pytest.mark.parametrize("activation, max_excess", [("tanh", 0.1), ("relu", 0.5)])
def test_objective_is_not_above_that_of_a_long_adam_run(double, activation, max_excess):
    """Members with the same anchors and noisy targets are compared, in nats of the log posterior.

    The kinks of ReLU units can block steps, so that such members may end some tenths of a nat above the minimum.
    """
    data, noise = table(12, 1), 0.1
    model = model_of(MLP((500,), 1, activation), data.inputs, np.array([noise]))
    newton, adam = (
        AnchoredEnsemble(4, "randomized", "all", solver).fit(KEY, model, data).record.training.loss_curve[-1]
        for solver in (GaussNewton(tolerance=0.01), FirstOrder(max_iter=2_000, learning_rate=0.01))
    )
    excess = (newton - adam) * data.weights.sum() / (2 * noise)
    assert np.max(excess) < max_excess
    assert np.median(excess) < max_excess / 2


def test_a_step_without_gain_is_not_mistaken_for_convergence(double):
    """f rises up to a kink at 0.01 and then falls. Steps of all lengths that are tried first lead beyond the kink."""
    network = FunctionNetwork(
        lambda key, x: {"a": np.zeros(1)},
        lambda p, x: jnp.where(p["a"] < 0.01, p["a"], 0.51 - 50 * p["a"]) * x,
    )
    model = BayesianModel(network, Prior({"a": np.float64(0)}, {"a": np.float64(1)}), Gaussian(np.array([1e-3])))
    data, anchor = Data(np.ones((1, 1)), np.ones((1, 1)), np.ones((1, 1))), {"a": np.zeros(1)}
    params, _, _ = gauss_newton.solve(anchor, anchor, model, data, GaussNewton())
    assert 500 - nats(params, anchor, model, data) > 0.9 * (500 - 0.99**2 * 500)  # 10 nats are between start and kink


def test_a_step_to_nan_is_shortened(double):
    """f = log θ is NaN after a full step. SciPy's scalar minimiser finds the expected minimum."""
    network = FunctionNetwork(lambda key, x: {"a": np.ones(1)}, lambda p, x: jnp.log(p["a"]) * x)
    model = BayesianModel(network, Prior({"a": np.float64(0)}, {"a": np.float64(4)}), Gaussian(np.array([0.1])))
    data = Data(np.ones((2, 1)), np.full((2, 1), -3.0), np.ones((2, 1)))
    anchor = {"a": np.ones(1)}
    params, _, _ = gauss_newton.solve(anchor, anchor, model, data, EXACT)
    objective = lambda a: 10 * (np.log(a) + 3) ** 2 + 0.5 * ((a - 1) / 4) ** 2  # noqa: E731
    expected = optimize.minimize_scalar(objective, bounds=(1e-3, 1), method="bounded", options={"xatol": 1e-10}).x
    assert np.isclose(params["a"][0], expected, rtol=1e-6)


def test_full_step_and_its_length_agree_with_explicit_matrices(double):
    """They are −H⁻¹g and √(gᵀH⁻¹g), with H = Jᵀ N⁻¹ J + S⁻² for noise variances N and prior variances S²."""
    data = table()._replace(weights=np.random.default_rng(3).uniform(0, 2, size=(8, 2)))
    model = model_of(NETWORK, data.inputs)
    anchor, params = prior_draw(model, data.inputs, 4), prior_draw(model, data.inputs, 5)
    flat, unravel = jax.flatten_util.ravel_pytree(params)
    jacobian = np.asarray(jax.jacobian(lambda p: NETWORK.apply(unravel(p), data.inputs).ravel())(flat))
    scales = jax.tree.map(lambda p, s: np.full(p.shape, s), params, model.prior.scale)
    scale = np.asarray(jax.flatten_util.ravel_pytree(scales)[0])
    precision = (data.weights / NOISE).ravel()
    hessian = jacobian.T @ (precision[:, None] * jacobian) + np.diag(scale**-2)
    residual = np.asarray(data.targets - NETWORK.apply(params, data.inputs)).ravel()
    gradient = (flat - jax.flatten_util.ravel_pytree(anchor)[0]) / scale**2 - jacobian.T @ (precision * residual)
    step, length = gauss_newton.full_step(anchor, params, model, data)
    assert np.allclose(jax.flatten_util.ravel_pytree(step)[0], -np.linalg.solve(hessian, gradient), atol=1e-9)
    assert np.isclose(length, np.sqrt(gradient @ np.linalg.solve(hessian, gradient)), rtol=1e-9)
    solution = gauss_newton.solve(anchor, params, model, data, EXACT)[0]
    assert gauss_newton.full_step(anchor, solution, model, data)[1] < 1e-5


class LinenNetwork(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(2)(linen.tanh(linen.Dense(6)(x)))


def test_solution_for_a_flax_network_is_a_stationary_point(double):
    data = table()
    model = model_of(from_flax(LinenNetwork()), data.inputs)
    posterior = AnchoredEnsemble(2, solver=EXACT).fit(KEY, model, data)
    for i in range(2):
        trees = (posterior.members, posterior.record.training.anchors)
        params, anchor = (jax.tree.map(lambda leaf, i=i: leaf[i], tree) for tree in trees)
        assert_stationary(params, anchor, model, data)


def test_an_mlp_as_a_function_network_has_the_same_members(double):
    data = table()
    model = model_of(NETWORK, data.inputs)
    as_function = BayesianModel(FunctionNetwork(NETWORK.init, NETWORK.apply), model.prior, model.likelihood)
    method = AnchoredEnsemble(3, "randomized", solver=EXACT)
    one, other = (method.fit(KEY, m, data).members for m in (model, as_function))
    assert all(np.allclose(a, b, atol=1e-7) for a, b in zip(*map(jax.tree.leaves, (one, other)), strict=True))


@pytest.fixture(scope="module", params=[False, True], ids=["uncorrected", "corrected"])
def seven(request):
    """A function that fits an ensemble, with or without tangent correction, and such an ensemble of seven members."""
    data = table()
    model = model_of(NETWORK, data.inputs)

    def fit(n_members, **settings):
        method = AnchoredEnsemble(
            n_members,
            "randomized",
            solver=GaussNewton(),
            tangent_correction=request.param,
        )
        return method.fit(KEY, model, data, **settings)

    return fit, fit(7)


def assert_same(one, other, n):
    """Check that the first `n` members of two posteriors are equal."""
    leaves = zip(*(jax.tree.leaves(posterior.members) for posterior in (one, other)), strict=True)
    assert all(np.array_equal(a[:n], b[:n]) for a, b in leaves)


@pytest.mark.parametrize("n", [1, 3, 7])
def test_members_do_not_depend_on_their_number(seven, n):
    fit, whole = seven
    assert_same(fit(n), whole, n)


def test_growing_an_ensemble_keeps_its_members(seven):
    fit, whole = seven
    grown = fit(7, existing=fit(3))
    assert_same(grown, whole, 7)
    assert grown.record.training.loss_curve.shape == (1, 7)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_members_have_the_callers_precision(dtype):
    data = table()
    with jax.enable_x64(dtype == np.float64):
        model = model_of(NETWORK, data.inputs)
        posterior = AnchoredEnsemble(2, solver=EXACT).fit(KEY, model, data)
    for tree in (posterior.members, posterior.record.training.anchors):
        assert all(leaf.dtype == dtype for leaf in jax.tree.leaves(tree))
    with jax.enable_x64(True):  # solutions are computed in float64, and only then rounded
        for i in range(2):
            trees = (posterior.members, posterior.record.training.anchors)
            params, anchor = (jax.tree.map(lambda leaf, i=i: np.float64(leaf[i]), tree) for tree in trees)
            assert_stationary(params, anchor, model, data, tolerance=1e-6 if dtype == np.float64 else 1e-5)


def test_without_data_members_equal_their_anchors(double):
    data = table()._replace(weights=np.zeros((8, 1)))
    model = model_of(NETWORK, data.inputs)
    for anchors in ("prior", 0.5):  # in the second case, members do not start at their anchors
        posterior = AnchoredEnsemble(3, anchors, solver=GaussNewton()).fit(KEY, model, data)
        trained = posterior.record.training
        leaves = zip(*map(jax.tree.leaves, (posterior.members, trained.anchors)), strict=True)
        assert all(np.allclose(m, a, rtol=0, atol=1e-12) for m, a in leaves)
        assert trained.loss_curve.shape == (1, 3)


def test_progress_adds_up_to_one(double):
    data = table()
    model = model_of(NETWORK, data.inputs)
    reports = []
    posterior = AnchoredEnsemble(5, solver=GaussNewton()).fit(
        KEY, model, data, on_progress=lambda share, loss: reports.append((share, loss))
    )
    shares, losses = zip(*reports)
    assert len(shares) == 5 and np.isclose(sum(shares), 1)
    assert np.allclose(sorted(losses), np.sort(posterior.record.training.loss_curve[-1]))


@pytest.mark.parametrize("likelihood", [Categorical(1.0), HeteroscedasticGaussian()])
def test_other_likelihoods_are_refused(likelihood):
    data = table()
    model = model_of(MLP((10,), 2), data.inputs)
    model = BayesianModel(model.network, model.prior, likelihood)
    with pytest.raises(ValueError, match=r"solver.*GaussNewton.*Gaussian likelihood.*FirstOrder"):
        AnchoredEnsemble(2, solver=GaussNewton()).fit(KEY, model, data)


def test_a_warning_names_members_that_did_not_converge():
    data = table()
    model = model_of(NETWORK, data.inputs)
    with pytest.warns(ConvergenceWarning, match=r"members 0, 1, 2 .*max_iter=2 steps. Raise max_iter"):
        AnchoredEnsemble(3, solver=GaussNewton(max_iter=2)).fit(KEY, model, data)


def test_infinite_targets_are_an_error_that_names_the_member():
    data = table()
    model = model_of(NETWORK, data.inputs)
    with pytest.raises(DivergenceError, match=r"member 0 .*y, sample_weight"):
        AnchoredEnsemble(1, solver=GaussNewton()).fit(KEY, model, data._replace(targets=np.full((8, 2), np.inf)))


def test_new_hyperparameters_need_no_compilation():
    data = table()
    network = MLP((13,), 2, "tanh")  # no other test has this width, so that nothing is compiled yet
    before = gauss_newton._solve.n_created
    for noise, first, solver in ((0.1, 1.0, GaussNewton()), (0.3, 2.0, GaussNewton(30, 0.01))):
        AnchoredEnsemble(4, solver=solver).fit(KEY, model_of(network, data.inputs, np.full(2, noise), first), data)
    assert gauss_newton._solve.n_created == before + 1
