"""One contract for all methods: every row of the table goes through the same tests."""

import warnings
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import anchored
from anchored import AnchoredClassifier, AnchoredRegressor, certify
from anchored.exact.kernels import diagonal, kernel_of
from anchored.likelihoods import Categorical, Gaussian
from anchored.methods import (
    HMC,
    METHODS,
    AnchoredEnsemble,
    BootstrapEnsemble,
    DeepEnsemble,
    EarlyStoppedEnsemble,
    FirstOrder,
    GaussianProcess,
    GaussNewton,
    MCDropout,
    RandomizedPrior,
    RegularizedEnsemble,
    UnregularizedEnsemble,
    VariationalInference,
)
from anchored.model import BayesianModel
from anchored.networks import MLP
from anchored.priors import default_layer_scales, layered_prior
from anchored.types import Data

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
KEY = jax.random.key(3)
NOISE = 0.05
POINTS = np.linspace(-2, 2, 9, dtype=np.float32)[:, None]
SHORT = FirstOrder(max_iter=300, learning_rate=0.03)
PRIOR, ZERO = "draws from the prior", "the prior's mean"


@dataclass(frozen=True)
class Row:
    """A method, small; whether it has classes; what it returns without data, and the method to show that with."""

    method: Any
    classes: bool
    without_data: str
    many: Any  # with members enough to tell


TABLE = {
    "anchored": Row(
        AnchoredEnsemble(10, solver=SHORT), True, PRIOR, AnchoredEnsemble(300, solver=FirstOrder(max_iter=3))
    ),
    "anchored, randomized": Row(
        AnchoredEnsemble(10, "randomized", solver=SHORT), False, PRIOR,
        AnchoredEnsemble(300, "randomized", solver=FirstOrder(max_iter=3)),
    ),
    "anchored, last layer": Row(
        AnchoredEnsemble(10, "randomized", "last_layer", SHORT), False, PRIOR,
        AnchoredEnsemble(300, "randomized", "last_layer"),
    ),
    "anchored, Gauss-Newton": Row(
        AnchoredEnsemble(10, "randomized", solver=GaussNewton()), False, PRIOR,
        AnchoredEnsemble(300, "randomized", solver=GaussNewton()),
    ),
    "unregularized": Row(
        UnregularizedEnsemble(10, SHORT), True, PRIOR, UnregularizedEnsemble(300, FirstOrder(max_iter=3))
    ),
    "regularized": Row(RegularizedEnsemble(10, SHORT), True, ZERO, RegularizedEnsemble(5, FirstOrder(max_iter=1500))),
    "bootstrap": Row(BootstrapEnsemble(10, SHORT), True, ZERO, BootstrapEnsemble(5, FirstOrder(max_iter=1500))),
    "deep": Row(DeepEnsemble(10, SHORT), True, ZERO, DeepEnsemble(5, FirstOrder(max_iter=1500))),
    "randomized prior": Row(
        RandomizedPrior(10, solver=SHORT), True, PRIOR, RandomizedPrior(300, solver=FirstOrder(max_iter=1500))
    ),
    "early stopped": Row(EarlyStoppedEnsemble(10), True, PRIOR, EarlyStoppedEnsemble(300)),
    "MC dropout": Row(MCDropout(n_members=50, max_iter=400), True, ZERO, MCDropout(n_members=50, max_iter=1500)),
    "variational": Row(
        VariationalInference(n_steps=1000, n_members=50), True, PRIOR, VariationalInference(n_steps=1000, n_members=300)
    ),
    "HMC": Row(HMC(2, 100, 100), True, PRIOR, HMC(2, 100, 300)),
    "Gaussian process": Row(GaussianProcess(), False, PRIOR, GaussianProcess(n_draws=300)),
}  # fmt: skip
rows = pytest.mark.parametrize("row", TABLE.values(), ids=TABLE)


def model_of(likelihood, n_outputs=1, width=20):
    network = MLP((width,), n_outputs, "tanh")
    prior = layered_prior(network, network.init(KEY, POINTS), default_layer_scales(network, 2.0))
    return BayesianModel(network, prior, likelihood)


def regression():
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, size=(40, 1))
    y = np.sin(2 * x) + NOISE**0.5 * rng.normal(size=(40, 1))
    data = Data(*(a.astype(np.float32) for a in (x, y, np.ones((40, 1)))))
    return model_of(Gaussian(np.array([NOISE], np.float32))), data


def classification():
    rng = np.random.default_rng(1)
    x = rng.uniform(-2, 2, size=(60, 1)).astype(np.float32)
    labels = np.digitize(x[:, 0], [-0.7, 0.7]).astype(np.int32)
    return model_of(Categorical(np.float32(0.3)), 3), Data(x, labels, np.ones((60, 1), np.float32))


def test_every_method_has_a_row():
    assert {type(row.method) for row in TABLE.values()} == set(METHODS)


@rows
def test_regression(row):
    """Shapes; the curve is learnt; the spread is finite, positive, and larger away from the data."""
    model, data = regression()
    posterior = row.method.fit(KEY, model, data)
    predictive = posterior.predict(POINTS)
    assert predictive.mean.shape == predictive.epistemic_variance.shape == (9, 1)
    outputs = posterior.outputs(POINTS)
    assert outputs.shape[:2] == (posterior.n_members, 9)
    assert np.all(np.isfinite(outputs)) and np.all(predictive.epistemic_variance >= 0)
    truth = np.sin(2 * POINTS)
    assert np.sqrt(np.mean((predictive.mean - truth) ** 2)) < 0.5 * np.std(truth)
    assert posterior.diagnostics["method"] == row.method


@rows
def test_classification(row):
    model, data = classification()
    if not row.classes:
        with pytest.raises((ValueError, AttributeError)):
            row.method.fit(KEY, model, data)
        return
    predictive = row.method.fit(KEY, model, data).predict(data.inputs)
    assert np.allclose(predictive.probabilities.sum(1), 1, atol=1e-5)
    assert np.mean(predictive.probabilities.argmax(1) == data.targets) > 0.8


@rows
def test_the_key_is_all_the_randomness(row):
    model, data = regression()
    first, again, other = (row.method.fit(jax.random.key(k), model, data).outputs(POINTS) for k in (3, 3, 4))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@rows
def test_progress_sums_to_one(row):
    model, data = regression()
    shares = []
    row.method.fit(KEY, model, data, lambda share, loss: shares.append(share))
    assert np.isclose(sum(shares), 1, atol=1e-6) and min(shares) >= 0


@rows
def test_without_data(row):
    """Rows of weight zero are not there: the prior is left, or what the table says instead."""
    model, data = regression()
    nothing = data._replace(weights=np.zeros_like(data.weights))
    posterior = row.many.fit(KEY, model, nothing)
    outputs = posterior.outputs(POINTS)[..., :1]
    if row.without_data == ZERO:
        assert np.abs(outputs).max() < 0.02
        return
    prior_variance = diagonal(kernel_of(model), POINTS)
    worth = min(len(outputs), np.min(posterior.diagnostics.get("effective_sample_size", np.inf)))
    assert np.all(np.abs(outputs.mean(0)[:, 0]) < 4.5 * np.sqrt(prior_variance / worth))
    ratio = outputs.var(0)[:, 0] / prior_variance
    # 4.5 standard errors of a variance; mixtures of normals, as narrow networks are, have heavier tails
    assert np.all(np.abs(ratio - 1) < 4.5 * 1.3 * np.sqrt(2 / worth))


@rows
def test_swapped_in_an_estimator_saved_and_loaded(row, tmp_path):
    """One argument; every way to predict works; a file brings the same model back."""
    rng = np.random.default_rng(2)
    X = 10 + rng.normal(size=(50, 2))
    y = 100 * np.sin(X[:, 0]) + X[:, 1]
    settings = {"hidden_layer_sizes": (20,), "noise_variance": 25.0, "prior_scale": 2.0, "random_state": 0}
    if "noise_variance" in getattr(row.method, "ignores", ()):
        settings["noise_variance"] = "auto"
    model = AnchoredRegressor(method=row.method, **settings).fit(X, y)
    mean, std = model.predict(X, return_std=True)
    assert mean.shape == std.shape == (50,) and np.all(std > 0) and model.score(X, y) > 0.3
    assert model.sample_y(X, 3).shape == (50, 3)
    lower, upper = model.predict_interval(X)
    assert np.all(lower < upper)
    model.save(tmp_path / "model.safetensors")
    loaded = anchored.load(tmp_path / "model.safetensors")
    for one, other in zip(loaded.predict(X, return_std=True), (mean, std), strict=True):
        assert np.allclose(one, other, rtol=1e-6)
    assert loaded.method == row.method
    certificate = certify(loaded, X, y, X[:20] + 0.1)
    assert np.isfinite(certificate.distances["wasserstein"])


def test_certificates_rank_methods():
    """Exact draws are nearest to the posterior, then members that are anchored; collapsed ones are farthest."""
    X, y = (np.asarray(a, np.float64) for a in regression()[1][:2])
    settings = {"hidden_layer_sizes": (500,), "noise_variance": NOISE, "prior_scale": 2.0, "random_state": 0}
    methods = {
        "exact": GaussianProcess(n_draws=200),
        "anchored": AnchoredEnsemble(200, "randomized", solver=GaussNewton()),
        "collapsed": RegularizedEnsemble(20, FirstOrder(max_iter=2000, learning_rate=0.01)),
    }
    found = {
        n: certify(AnchoredRegressor(method=m, **settings).fit(X, y[:, 0]), X, y[:, 0]) for n, m in methods.items()
    }
    distance = {name: certificate.distances["wasserstein"] for name, certificate in found.items()}
    assert distance["exact"] < distance["anchored"] < distance["collapsed"]
    assert found["exact"].finding == "bayesian" and found["collapsed"].finding == "collapsed"


def test_a_sampler_can_be_the_truth():
    """For a small network the posterior at its own width, by NUTS."""
    X, y = (np.asarray(a, np.float64) for a in regression()[1][:2])
    model = AnchoredRegressor(50, (5,), "tanh", noise_variance=NOISE, prior_scale=2.0, random_state=0).fit(X, y[:, 0])
    certificate = certify(model, X, y[:, 0], reference=HMC(2, 300, 300))
    assert not certificate.asymptotic and "HMC" in certificate.reference
    with pytest.raises(ValueError, match="reference"):
        certify(model, X, y[:, 0], reference="exact")


def test_classifier_takes_a_method(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = np.where(X[:, 0] > 0, "b", "a")
    method = VariationalInference(n_steps=500, n_members=30)
    model = AnchoredClassifier(method=method, temperature=1.0, prior_scale=2.0, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.9
    model.save(tmp_path / "model.safetensors")
    loaded = anchored.load(tmp_path / "model.safetensors")
    assert np.allclose(loaded.predict_proba(X), model.predict_proba(X), atol=1e-6)


def test_arguments_that_a_method_would_ignore_raise():
    X, y = np.zeros((5, 1)), np.arange(5.0)
    for name, value in {"n_estimators": 20, "max_iter": 5, "anchoring": "randomized", "warm_start": True}.items():
        with pytest.raises(ValueError, match=f"{name}=.*HMC.*ignore"):
            AnchoredRegressor(method=HMC(), **{name: value}).fit(X, y)
    with pytest.raises(ValueError, match=r"noise_variance=.*DeepEnsemble.*ignore"):
        AnchoredRegressor(method=DeepEnsemble(), noise_variance=1.0).fit(X, y)
    for wrong in (HMC, "hmc", 3):
        with pytest.raises(ValueError, match="method must be None or an object"):
            AnchoredRegressor(method=wrong).fit(X, y)
    with pytest.raises(ValueError, match="partial_fit"):
        AnchoredRegressor(method=HMC()).partial_fit(X, y)


def test_a_process_has_no_members_to_follow():
    X, y = np.linspace(0, 1, 8)[:, None], np.arange(8.0)
    model = AnchoredRegressor(method=GaussianProcess(), noise_variance=0.1, prior_scale=1.0, random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="no members to follow"):
        model.sample_functions()


def test_methods_are_small_values():
    """Equal settings are equal methods: what a grid search and a file need."""
    for row in TABLE.values():
        assert type(row.method)() == type(row.method)() and hash(row.method) == hash(row.method)
        with warnings.catch_warnings():
            warnings.simplefilter("error", ConvergenceWarning)
            assert repr(row.method).startswith(type(row.method).__name__)
