"""Which network the defaults choose, and that all features work with encoded inputs."""

import jax
import numpy as np
import pytest

from anchored import AnchoredClassifier, AnchoredRegressor, BayesianRegressor, certify, load
from anchored.estimators import settings
from anchored.exact.kernels import MLPKernel
from anchored.exact.processes import GaussianProcess as Process
from anchored.methods import GaussianProcess
from anchored.model.likelihoods import Gaussian

QUICK = {"n_estimators": 3, "max_iter": 60, "random_state": 0}
ENCODED = {**QUICK, "input_encoding": "piecewise_linear", "noise_variance": 0.01, "prior_scale": 1.0}


@pytest.fixture(scope="module")
def steps():
    """A step function of one column, which a network fits better with encoded inputs."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(200, 2))
    return X, np.sign(X[:, 0] - 0.2) + 0.3 * X[:, 1] + 0.1 * rng.normal(size=200)


@pytest.fixture(scope="module")
def chosen(steps):
    return AnchoredRegressor(**QUICK).fit(*steps)


def test_inputs_are_encoded_for_steps_and_not_for_lines(steps, chosen):
    X, y = steps
    assert chosen.candidates_[0].input_encoding == "piecewise_linear"
    assert chosen.input_encoding_.n_features == 18
    order = [(-c.n_epochs, c.score) for c in chosen.candidates_]
    assert order == sorted(order)
    assert {c.input_encoding for c in chosen.candidates_} == {"standard", "piecewise_linear"}
    line = AnchoredRegressor(**QUICK, noise_variance=0.01, prior_scale=1.0).fit(X, X[:, 0] - X[:, 1])
    assert line.candidates_[0].input_encoding == "standard"
    assert line.input_encoding_ is None
    given = AnchoredRegressor(**QUICK, hidden_layer_sizes=(20,), noise_variance=0.01, prior_scale=1.0).fit(X, y)
    assert given.input_encoding_ is None  # the encoding is chosen only if the network is


def test_sampling_saving_and_chunks_with_encoded_inputs(steps, chosen, tmp_path):
    X, _ = steps
    chosen.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert loaded.candidates_ == chosen.candidates_
    assert np.array_equal(loaded.predict_dist(X).logpdf(X[:, 0]), chosen.predict_dist(X).logpdf(X[:, 0]))
    values = np.mean([function(X) for function in chosen.sample_functions(3)], axis=0)
    assert np.allclose(values, chosen.predict(X), atol=1e-5)
    many = np.tile(X, (40, 1))  # predicted in several chunks
    assert np.allclose(chosen.predict(many)[:200], chosen.predict(X), atol=1e-5)


def test_warm_start_and_partial_fit_with_encoded_inputs(steps):
    X, y = steps
    few = AnchoredRegressor(**ENCODED, warm_start=True).fit(X, y)
    before = jax.tree.leaves(few.posterior_.members)
    more = jax.tree.leaves(few.set_params(n_estimators=5).fit(X, y).posterior_.members)
    assert all(np.array_equal(b, m[:3]) for b, m in zip(before, more, strict=True))
    stream = AnchoredRegressor(**ENCODED)
    for _ in range(40):
        stream.partial_fit(X, y)
    assert stream.score(X, y) > 0.9


def test_classifier_with_encoded_inputs(steps):
    X, y = steps
    model = AnchoredClassifier(**QUICK, input_encoding="piecewise_linear", temperature=0.1, prior_scale=1.0)
    assert model.fit(X, y > 0).score(X, y > 0) > 0.95


def test_the_network_for_data_without_noise(tmp_path):
    """For a smooth function, a last layer in closed form is chosen. The model can be saved, loaded and extended."""
    rng = np.random.default_rng(0)
    X, X_new = rng.uniform(-1, 1, (300, 3)), rng.uniform(-1, 1, (500, 3))

    def function(x):
        return np.sin(3 * x[:, 0]) + x[:, 1] * x[:, 2]

    model = AnchoredRegressor(3, input_encoding="standard", random_state=0, warm_start=True).fit(X, function(X))
    best = model.candidates_[0]
    assert (best.hidden_layer_sizes, best.trainable) == ((1000,), "last_layer")
    assert model.posterior_.model.network.hidden_layer_sizes == (1000,)
    assert {c.trainable for c in model.candidates_} == {"all", "last_layer"}
    trained = AnchoredRegressor(3, (50, 50), prior_scale=1.0, random_state=0).fit(X, function(X))
    assert trained.posterior_.record.method.solver.max_iter == 2 * settings.solver(trained, 300).max_iter
    assert model.score(X_new, function(X_new)) > 0.9999
    assert 1 - model.score(X_new, function(X_new)) < 1 - trained.score(X_new, function(X_new))

    before = jax.tree.leaves(model.posterior_.members)
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert loaded.candidates_ == model.candidates_
    more = jax.tree.leaves(loaded.set_params(n_estimators=4).fit(X, function(X)).posterior_.members)
    assert all(np.array_equal(b, m[:3]) for b, m in zip(before, more, strict=True))


def test_the_network_depends_on_the_number_of_rows():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(2001, 1))
    given = {"noise_variance": 1.0, "prior_scale": 1.0, "n_estimators": 1, "max_iter": 1}
    for n_rows, sizes in ((2000, (50, 50)), (2001, (50, 50, 50))):
        model = AnchoredRegressor(input_encoding="standard", **given).fit(X[:n_rows], X[:n_rows, 0])
        assert model.posterior_.model.network.hidden_layer_sizes == sizes


def test_the_process_of_encoded_inputs_is_exact(steps):
    """Compared with standardising, encoding and conditioning by hand; an exact ensemble is certified too."""
    X, y = (part[:80] for part in steps)
    given = {"prior_scale": 1.0, "input_encoding": "piecewise_linear", "random_state": 0}
    model = BayesianRegressor(GaussianProcess(), Gaussian(0.04), **given).fit(X, y)
    features = model.input_encoding_.transform((X - X.mean(0)) / X.std(0))
    process = Process(MLPKernel((1 / 18, 1.0), (1.0, 0.0)), 0.04 / y.var())
    mean = process.condition(features, (y - y.mean())[:, None] / y.std()).predict(features)
    assert np.allclose(model.predict(X), mean[:, 0] * y.std() + y.mean())
    exact = {"trainable": "last_layer", "anchoring": "randomized", "noise_variance": 0.04, **given}
    ensemble = AnchoredRegressor(100, hidden_layer_sizes=(300,), activation="relu", **exact).fit(X, y)
    assert certify(ensemble, X, y, X[:30]).finding == "bayesian"


def test_noise_alone_is_not_learnt():
    """In 200 rows of 50 columns of pure noise, cross-validation must not find a signal."""
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(1200, 50)), rng.normal(size=1200)
    model = AnchoredRegressor(n_estimators=5, max_iter=60, random_state=0).fit(X[:200], y[:200])
    lower, upper = model.predict_interval(X[200:])
    assert 0.92 < np.mean((lower < y[200:]) & (y[200:] < upper)) < 0.98
    assert model.prior_scale_ < 1
    assert model.score(X[200:], y[200:]) > -0.05
