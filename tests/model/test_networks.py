"""The multilayer perceptron against NumPy, and Flax, Equinox and function networks in both estimators."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx
from scipy import special

from anchored import AnchoredClassifier, AnchoredRegressor, from_equinox, from_flax
from anchored.inference.solvers import first_order
from anchored.model.adapters import as_network
from anchored.model.layered_prior import layered_prior
from anchored.model.networks import ACTIVATIONS, MLP, FunctionNetwork

pytestmark = pytest.mark.usefixtures("unoptimised")
QUICK = {
    "n_estimators": 2,
    "max_iter": 20,
    "learning_rate_init": 0.03,
    "batch_size": 32,
    "prior_scale": 2.0,
    "random_state": 0,
}
WIDTH = 6

NUMPY_ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "erf": special.erf,
    "gelu": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x * special.expit(x),
    "softplus": lambda x: np.logaddexp(x, 0),
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "logistic": special.expit,
    "sin": np.sin,
    "identity": lambda x: x,
}


class LinenNetwork(linen.Module):
    n_outputs: int

    @linen.compact
    def __call__(self, x):
        hidden = linen.tanh(linen.Dense(WIDTH)(x))
        return linen.Dense(self.n_outputs)(hidden)


class NnxNetwork(nnx.Module):
    def __init__(self, n_outputs):
        self.body = nnx.Linear(2, WIDTH, rngs=nnx.Rngs(0))
        self.head = nnx.Linear(WIDTH, n_outputs, rngs=nnx.Rngs(1))

    def __call__(self, x):
        return self.head(jnp.tanh(self.body(x)))


class EquinoxNetwork(eqx.Module):
    body: eqx.nn.Linear
    head: eqx.nn.Linear

    def __init__(self, n_outputs):
        self.body = eqx.nn.Linear(2, WIDTH, key=jax.random.key(0))
        self.head = eqx.nn.Linear(WIDTH, n_outputs, key=jax.random.key(1))

    def __call__(self, row):
        return self.head(jnp.tanh(self.body(row)))


def pair(n_outputs):
    """The functions init and apply of the same network as above."""

    def init(key, inputs):
        sizes = {"body": (inputs.shape[-1], WIDTH), "head": (WIDTH, n_outputs)}
        return {name: {"kernel": jnp.zeros(s), "bias": jnp.zeros(s[1])} for name, s in sizes.items()}

    def apply(params, inputs):
        hidden = jnp.tanh(inputs @ params["body"]["kernel"] + params["body"]["bias"])
        return hidden @ params["head"]["kernel"] + params["head"]["bias"]

    return init, apply


KINDS = {"linen": LinenNetwork, "nnx": NnxNetwork, "equinox": EquinoxNetwork, "pair": pair}


def with_last_layer(kind, n_outputs):
    """Return a network of this kind whose last layer is known by its name."""
    if kind == "pair":
        return FunctionNetwork(*pair(n_outputs), last_layer="head")
    wrap, name = {"linen": (from_flax, "Dense_1"), "nnx": (from_flax, "head"), "equinox": (from_equinox, "head")}[kind]
    return wrap(KINDS[kind](n_outputs), last_layer=name)


@pytest.mark.parametrize(
    ("activation", "depth"), [*(("relu", depth) for depth in (0, 1, 2)), *((name, 3) for name in ACTIVATIONS)]
)
@pytest.mark.usefixtures("double")
def test_perceptron_agrees_with_numpy(activation, depth):
    rng = np.random.default_rng(0)
    network = MLP((5, 4, 3)[:depth], 2, activation)
    X = rng.normal(size=(7, 3))
    params = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape), network.init(None, X))
    hidden = X
    for i in range(depth):
        hidden = hidden @ params[f"layer_{i}"]["weights"] + (params["layer_0"]["bias"] if i == 0 else 0)
        hidden = NUMPY_ACTIVATIONS[activation](hidden)
    assert np.allclose(network.apply(params, X), hidden @ params[f"layer_{depth}"]["weights"], atol=1e-12)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.usefixtures("double")
def test_derivatives_of_activations(activation):
    """They equal finite differences, and are bounded at 0 and for large inputs."""
    points, step = np.array([-2.0, -0.7, 0.4, 3.0]), 1e-6
    above, below = (NUMPY_ACTIVATIONS[activation](points + sign * step) for sign in (1, -1))
    derivative = jax.jit(jax.vmap(jax.grad(ACTIVATIONS[activation])))(np.r_[points, -1e4, 0, 1e4])
    assert np.allclose(derivative[:4], (above - below) / (2 * step), atol=1e-8)
    assert np.all(np.abs(derivative[4:]) <= 1.2)


@pytest.mark.parametrize("sizes", [(), (6, 5, 4)])
def test_networks_of_no_and_of_three_hidden_layers_learn(waves, sizes):
    assert_learns(AnchoredRegressor(hidden_layer_sizes=sizes), waves)


def assert_learns(estimator, data):
    """Fit an estimator, and check that the loss falls, predictions are finite and every parameter leaves its anchor."""
    X, y = data
    estimator.set_params(**QUICK, noise_variance=0.01).fit(X, y)
    mean, std = estimator.predict(X, return_std=True)
    assert np.all(np.isfinite(mean)) and np.all(std > 0.1)
    assert estimator.loss_curve_[-1] < 0.9 * estimator.loss_curve_[0]
    members, anchors = (jax.tree.leaves(tree) for tree in (estimator.posterior_.members, estimator.anchors_))
    assert not any(np.array_equal(m, a) for m, a in zip(members, anchors, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_own_networks_in_regression(waves, kind):
    assert_learns(AnchoredRegressor(network=KINDS[kind](1)), waves)


@pytest.mark.parametrize("kind", KINDS)
def test_own_networks_in_classification(waves, kind):
    X, y = waves
    model = AnchoredClassifier(network=KINDS[kind](2), temperature=0.1, **{**QUICK, "max_iter": 200}).fit(X, y > 0)
    assert model.score(X, y > 0) > 0.85
    assert np.all(model.predict_dist(X).epistemic_entropy >= 0)
    assert np.allclose(model.predict_proba(X).sum(1), 1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("double")
def test_training_the_last_layer_is_ridge_regression_on_its_inputs(waves, kind):
    """The solution is that of the normal equations, with each member's anchor as the centre of the penalty."""
    X, y = waves
    model = AnchoredRegressor(
        network=with_last_layer(kind, 1), trainable="last_layer", n_estimators=2, noise_variance=0.03, prior_scale=1.3
    ).fit(X, y)
    inputs, targets = (X - X.mean(0)) / X.std(0), (y - y.mean()) / y.std()
    noise = 0.03 / y.var()
    body, head = ("Dense_0", "Dense_1") if kind == "linen" else ("body", "head")
    for i in range(2):
        kernel, bias = weights_of(kind, model.posterior_.members, body, i)
        anchor_kernel, anchor_bias = weights_of(kind, model.anchors_, head, i)
        trained_kernel, trained_bias = weights_of(kind, model.posterior_.members, head, i)
        features = np.c_[np.tanh(inputs @ kernel + bias), np.ones(len(X))]
        prior_variances = np.r_[np.full(WIDTH, 1 / WIDTH), 1.0]  # of kernel and bias: the last layer has the scale 1
        precision = features.T @ features / noise + np.diag(1 / prior_variances)
        anchor = np.r_[anchor_kernel[:, 0], anchor_bias]
        expected = np.linalg.solve(precision, features.T @ targets / noise + anchor / prior_variances)
        assert np.allclose(np.r_[trained_kernel[:, 0], trained_bias], expected, atol=1e-8)


def weights_of(kind, tree, name, member):
    """Return the kernel (in, out) and the bias of one layer of one member."""
    if kind == "equinox":
        layer = getattr(tree, name)
        return np.asarray(layer.weight[member]).T, np.asarray(layer.bias[member])
    return np.asarray(tree[name]["kernel"][member]), np.asarray(tree[name]["bias"][member])


@pytest.mark.parametrize("kind", KINDS)
def test_last_layer_must_be_named(waves, kind):
    model = AnchoredRegressor(network=KINDS[kind](1), trainable="last_layer", noise_variance=0.01, **QUICK)
    with pytest.raises(
        ValueError, match=r"trainable='last_layer'.*from_flax, from_equinox or from_functions with last_layer"
    ):
        model.fit(*waves)


@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_number_of_outputs_is_refused(waves, kind):
    with pytest.raises(ValueError, match=r"network: must return an array of shape \(1, 1\)"):
        AnchoredRegressor(network=KINDS[kind](3), noise_variance=0.01, **QUICK).fit(*waves)


def test_an_object_that_is_not_a_network_is_refused(waves):
    for wrong in ("MLP", 3, (jnp.tanh,), np.zeros(3), LinenNetwork):
        with pytest.raises(TypeError, match="network: cannot use a"):
            AnchoredRegressor(network=wrong, noise_variance=0.01, **QUICK).fit(*waves)


class LinenBatchNorm(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(1)(linen.BatchNorm(use_running_average=False)(x))


class NnxBatchNorm(nnx.Module):
    def __init__(self):
        self.norm, self.head = nnx.BatchNorm(2, rngs=nnx.Rngs(0)), nnx.Linear(2, 1, rngs=nnx.Rngs(0))

    def __call__(self, x):
        return self.head(self.norm(x))


def equinox_batch_norm():
    linear = eqx.nn.Linear(2, 1, key=jax.random.key(0))
    return eqx.nn.Sequential([eqx.nn.BatchNorm(2, axis_name="batch", mode="batch"), linear])


@pytest.mark.parametrize("make", [LinenBatchNorm, NnxBatchNorm, equinox_batch_norm])
def test_running_statistics_are_refused(waves, make):
    with pytest.raises(ValueError, match=r"network: .*statistics.* no prior"):
        AnchoredRegressor(network=make(), noise_variance=0.01, **QUICK).fit(*waves)


class LinenLayerNorm(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(1)(linen.LayerNorm()(linen.Dense(WIDTH)(x)))


def equinox_layer_norm():
    first, last = (eqx.nn.Linear(*s, key=jax.random.key(0)) for s in ((2, WIDTH), (WIDTH, 1)))
    return eqx.nn.Sequential([first, eqx.nn.LayerNorm(WIDTH), last])


@pytest.mark.parametrize("make", [LinenLayerNorm, equinox_layer_norm])
def test_the_scale_of_a_normalisation_layer_has_prior_mean_one(waves, make):
    network = as_network(make())
    params = network.init(jax.random.key(0), np.zeros((1, 2), np.float32))
    mean = layered_prior(network, params, (1.0, 1.0)).mean
    ones = [path for path, value in jax.tree_util.tree_leaves_with_path(mean) if value == 1]
    assert len(ones) == 1 and sum(jax.tree.leaves(mean)) == 1
    assert "LayerNorm_0" in str(ones) or "[1].weight" in jax.tree_util.keystr(ones[0])
    assert_learns(AnchoredRegressor(network=make()), waves)


def test_fan_in_of_kernels():
    """The prior of weights is N(0, c²/fan-in) for kernels (…, in, out) of Flax and (out, in, …) of Equinox."""
    inputs = np.zeros((1, 8, 8, 3), np.float32)
    flax_network = from_flax(linen.Conv(5, (2, 4)))
    equinox_network = from_equinox(eqx.nn.Conv2d(3, 5, (2, 4), key=jax.random.key(0)))
    for network in (flax_network, equinox_network):
        params = network.init(jax.random.key(0), inputs)
        scale = layered_prior(network, params, (1.5, 1.0)).scale
        assert np.allclose(sorted(jax.tree.leaves(scale)), [1.5 / np.sqrt(3 * 2 * 4), 1.5])
    network = from_equinox(EquinoxNetwork(1))
    prior = layered_prior(network, network.arrays.tree, (1.0, 1.0))
    assert np.allclose(prior.scale.body.weight, 1 / np.sqrt(2))
    assert np.allclose(prior.scale.head.weight, 1 / np.sqrt(WIDTH))


@pytest.mark.parametrize("kind", KINDS)
def test_a_network_is_compiled_once(waves, kind, monkeypatch):
    traces = []
    batch = first_order._batch
    monkeypatch.setattr(first_order, "_batch", lambda *a: (traces.append(1), batch(*a))[1])
    network, arguments = KINDS[kind](1), {**QUICK, "noise_variance": 0.01}
    model = AnchoredRegressor(network=network, **arguments).fit(*waves)
    traces.clear()  # there is one, unless another test has trained this network with data of this shape
    model.set_params(random_state=1, prior_scale=1.0, learning_rate_init=0.01, noise_variance=0.1).fit(*waves)
    AnchoredRegressor(network=network, **arguments).fit(*waves)
    if kind != "pair":  # a second module equals the first, but a second pair of functions does not
        AnchoredRegressor(network=KINDS[kind](1), **arguments).fit(*waves)
    assert not traces


def test_dropout_in_a_flax_module_is_refused():
    module = linen.Sequential([linen.Dense(4), linen.Dropout(0.5, deterministic=False), linen.Dense(1)])
    with pytest.raises(ValueError, match="draws random numbers, as dropout does"):
        AnchoredRegressor(2, network=module, noise_variance=0.1, prior_scale=1.0).fit(np.eye(4), np.arange(4.0))
