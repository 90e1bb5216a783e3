"""Tests that all methods have in common, run for every row of a table of methods."""

from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any

import jax
import numpy as np
import optax
import pytest

import anchored
from anchored import AnchoredRegressor, BayesianClassifier, BayesianRegressor, certify, estimators, metrics
from anchored.estimators import selection
from anchored.estimators.saved_arguments import METHODS
from anchored.exact.kernels import diagonal, kernel_of, tangent_kernel
from anchored.methods import (
    HMC,
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
from anchored.model.bayesian_model import BayesianModel
from anchored.model.layered_prior import default_layer_scales, layer_indices, layered_prior
from anchored.model.likelihoods import Categorical, Gaussian
from anchored.model.networks import MLP
from anchored.types import Data

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.usefixtures("unoptimised"),
]
KEY = jax.random.key(3)
NOISE = 0.05
POINTS = np.linspace(-2, 2, 9, dtype=np.float32)[:, None]
AWAY = np.repeat([-5, 5, 5], 3).astype(np.float32)[:, None]  # as many as POINTS, so that programs are shared
SHORT = FirstOrder(max_iter=300, learning_rate=0.03)
STEADY = FirstOrder("sgd", learning_rate=1.0, max_iter=1024, decay=False)
PRIOR, ZERO = "draws from the prior, or from that of the anchors", "the prior mean, zero"
SUPPORTED = ""


@dataclass(frozen=True)
class Row:
    """A method with settings that are fast, and what it returns without data."""

    method: Any
    classes: str  # SUPPORTED, or the argument that is named by the error for a classification problem
    without_data: str  # PRIOR or ZERO
    many: Any  # the method with enough members, or epochs, to test `without_data`


TABLE = {
    "anchored": Row(
        AnchoredEnsemble(10, solver=SHORT), SUPPORTED, PRIOR, AnchoredEnsemble(300, solver=FirstOrder(max_iter=3))
    ),
    "anchored, randomized": Row(
        AnchoredEnsemble(10, "randomized", solver=SHORT), "anchoring", PRIOR,
        AnchoredEnsemble(300, "randomized", solver=FirstOrder(max_iter=3)),
    ),
    "anchored, κ a layer": Row(
        AnchoredEnsemble(10, (0.5, 2.0), solver=SHORT), SUPPORTED, PRIOR,
        AnchoredEnsemble(100, [0.5, 2.0], solver=SHORT),
    ),
    "anchored, last layer": Row(
        AnchoredEnsemble(10, "randomized", "last_layer", SHORT), "anchoring", PRIOR,
        AnchoredEnsemble(300, "randomized", "last_layer"),
    ),
    "anchored, last layer, classes": Row(
        AnchoredEnsemble(10, 1.0, "last_layer", SHORT), SUPPORTED, PRIOR,
        AnchoredEnsemble(300, 1.0, "last_layer", FirstOrder(max_iter=3)),
    ),
    "anchored, Gauss-Newton": Row(
        AnchoredEnsemble(10, "randomized", solver=GaussNewton()), "solver", PRIOR,
        AnchoredEnsemble(300, "randomized", solver=GaussNewton()),
    ),
    "anchored, tangent correction": Row(
        AnchoredEnsemble(10, "randomized", solver=SHORT, tangent_correction=True), "anchoring", PRIOR,
        AnchoredEnsemble(300, "randomized", solver=FirstOrder(max_iter=3), tangent_correction=True),
    ),
    "unregularized": Row(
        UnregularizedEnsemble(10, SHORT), SUPPORTED, PRIOR, UnregularizedEnsemble(300, FirstOrder(max_iter=3))
    ),
    "regularized": Row(
        RegularizedEnsemble(10, SHORT), SUPPORTED, ZERO, RegularizedEnsemble(5, FirstOrder(max_iter=1500))
    ),
    "bootstrap": Row(BootstrapEnsemble(10, SHORT), SUPPORTED, ZERO, BootstrapEnsemble(5, FirstOrder(max_iter=1500))),
    "deep": Row(DeepEnsemble(10, SHORT), SUPPORTED, ZERO, DeepEnsemble(5, FirstOrder(max_iter=1500))),
    "randomized prior": Row(
        RandomizedPrior(10, solver=SHORT), SUPPORTED, PRIOR, RandomizedPrior(100, solver=SHORT)
    ),
    "early stopped": Row(
        EarlyStoppedEnsemble(10, solver=STEADY), SUPPORTED, PRIOR, EarlyStoppedEnsemble(300, solver=STEADY)
    ),
    "MC dropout": Row(MCDropout(n_members=50, max_iter=400), SUPPORTED, ZERO, MCDropout(n_members=50, max_iter=1500)),
    "variational": Row(
        VariationalInference(n_steps=1000, n_members=50), SUPPORTED, PRIOR,
        VariationalInference(n_steps=1000, n_members=300),
    ),
    "HMC": Row(HMC(2, 50, 60), SUPPORTED, PRIOR, HMC(2, 50, 60)),
    "Gaussian process": Row(GaussianProcess(), "likelihood", PRIOR, GaussianProcess(n_draws=300)),
}  # fmt: skip
# With this scope, all tests of a row follow each other, mostly in one process, which compiles their programs once
rows = pytest.mark.parametrize("row", TABLE.values(), ids=TABLE, scope="module")


def model_of(likelihood, n_outputs=1, width=20):
    network = MLP((width,), n_outputs, "tanh")
    prior = layered_prior(network, network.init(KEY, POINTS), default_layer_scales(network, 2.0))
    return BayesianModel(network, prior, likelihood)


def regression():
    """A model and data of a noisy sine."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, size=(40, 1))
    y = np.sin(2 * x) + NOISE**0.5 * rng.normal(size=(40, 1))
    data = Data(*(a.astype(np.float32) for a in (x, y, np.ones((40, 1)))))
    return model_of(Gaussian(np.array([NOISE], np.float32))), data


def classification():
    """A model and data of three classes."""
    rng = np.random.default_rng(1)
    x = rng.uniform(-2, 2, size=(40, 1)).astype(np.float32)
    labels = np.digitize(x[:, 0], [-0.7, 0.7]).astype(np.int32)
    return model_of(Categorical(np.float32(0.3)), 3), Data(x, labels, np.ones((40, 1), np.float32))


def problems_of(row):
    """The problems that the method can solve."""
    return (regression, classification) if row.classes == SUPPORTED else (regression,)


@cache
def fitted(method, problem):
    """The fit that all tests of a method and a problem share, and the fractions reported to `on_progress`."""
    fractions = []
    return method.fit(KEY, *problem(), lambda fraction, loss: fractions.append(fraction)), fractions


def test_every_method_has_a_row():
    assert {type(row.method) for row in TABLE.values()} == set(METHODS.values())


@rows
def test_regression(row):
    """Predictions have the right shape and fit the curve; if members keep the prior, they spread far from the data."""
    posterior, _ = fitted(row.method, regression)
    predictive = posterior.predict(POINTS)
    assert predictive.mean.shape == predictive.epistemic_variance.shape == (9, 1)
    outputs = posterior.outputs(POINTS)
    assert outputs.shape[:2] == (posterior.n_members, 9)
    assert np.all(np.isfinite(outputs)) and np.all(predictive.epistemic_variance >= 0)
    truth = np.sin(2 * POINTS)
    assert np.sqrt(np.mean((predictive.mean - truth) ** 2)) < 0.5 * np.std(truth)
    assert posterior.record.method == row.method
    # Mean-field inference is an exception: its spread is nearly the same far from the data
    if row.without_data == PRIOR and not isinstance(row.method, VariationalInference):
        away = posterior.predict(AWAY).epistemic_variance
        assert away.mean() > 3 * predictive.epistemic_variance.mean()


@rows
def test_classification(row):
    model, data = classification()
    if row.classes != SUPPORTED:
        with pytest.raises(ValueError, match=f"^{row.classes}"):
            row.method.fit(KEY, model, data)
        return
    predictive = fitted(row.method, classification)[0].predict(data.inputs)
    assert np.allclose(predictive.probabilities.sum(1), 1, atol=1e-5)
    assert np.mean(predictive.probabilities.argmax(1) == data.targets) > 0.8


@rows
def test_a_fit_depends_on_the_key(row):
    first = fitted(row.method, regression)[0].outputs(POINTS)
    again, other = (row.method.fit(jax.random.key(k), *regression()).outputs(POINTS) for k in (3, 4))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@rows
def test_progress_sums_to_one(row):
    for problem in problems_of(row):
        _, fractions = fitted(row.method, problem)
        assert np.isclose(sum(fractions), 1, atol=1e-6) and min(fractions) >= 0


def prior_variance(method, model):
    """Prior variance of an output at POINTS, with anchors of κ times the variance, or by the tangent kernel."""
    kappa = getattr(method, "anchoring", "prior")
    if isinstance(kappa, tuple):
        index = layer_indices(model.network, model.network.init(KEY, POINTS))
        scale = jax.tree.map(lambda s, i: s * kappa[i] ** 0.5, model.prior.scale, index)
        model = replace(model, prior=replace(model.prior, scale=scale))
    kernel = kernel_of(model)
    return diagonal(tangent_kernel(kernel) if getattr(method, "tangent_correction", False) else kernel, POINTS)


@rows
def test_without_data(row):
    """With rows of weight zero only, members are what the table says."""
    for problem in problems_of(row):
        model, data = problem()
        no_data = data._replace(weights=np.zeros_like(data.weights))
        posterior = row.many.fit(KEY, model, no_data)
        outputs = posterior.outputs(POINTS)[..., :1]
        if row.without_data == ZERO:
            assert np.abs(outputs).max() < 0.02
            continue
        expected, n_effective = prior_variance(row.many, model), posterior.n_effective
        assert np.all(np.abs(outputs.mean(0)[:, 0]) < 4.5 * np.sqrt(expected / n_effective))
        ratio = outputs.var(0)[:, 0] / expected
        # 4.5 standard errors of a variance, times 1.3 since outputs of narrow networks have heavier tails than normals
        assert np.all(np.abs(ratio - 1) < 4.5 * 1.3 * np.sqrt(2 / n_effective))


SMALL = {"hidden_layer_sizes": (20,), "activation": "tanh", "prior_scale": 2.0, "random_state": 0}


def usable_likelihood(method, likelihood):
    """The likelihood, or "auto" if the method does not use its fields."""
    return "auto" if {field.name for field in fields(likelihood)} & set(getattr(method, "ignores", ())) else likelihood


@rows
def test_in_a_regressor_saved_and_loaded(row, tmp_path):
    """All kinds of predictions work, and a loaded model equals the saved one."""
    X, y = (np.asarray(column, np.float64) for column in regression()[1][:2])
    X, y = 10 + X, 100 * y[:, 0]
    model = BayesianRegressor(row.method, usable_likelihood(row.method, Gaussian(1e4 * NOISE)), **SMALL).fit(X, y)
    mean, std = model.predict(X, return_std=True)
    assert mean.shape == std.shape == (40,) and np.all(std > 0) and model.score(X, y) > 0.3
    assert model.sample_y(X, 3).shape == (40, 3)
    lower, upper = model.predict_interval(X)
    assert np.all(lower < upper)
    joint_mean, covariance = model.predict(X, return_cov=True)
    assert np.array_equal(joint_mean, mean) and np.allclose(np.diag(covariance), std**2, rtol=1e-3)
    model.save(tmp_path / "model.safetensors")
    loaded = anchored.load(tmp_path / "model.safetensors")
    for one, other in zip(loaded.predict(X, return_std=True), (mean, std), strict=True):
        assert np.allclose(one, other, rtol=1e-6)
    assert loaded.method == row.method
    assert type(loaded.posterior_.record) is type(model.posterior_.record)
    assert np.array_equal(loaded.posterior_.record.key, model.posterior_.record.key)
    certificate = certify(loaded, X, y, X + 0.1)
    assert np.isfinite(certificate.distances["wasserstein"])


@rows
def test_in_a_classifier_saved_and_loaded(row, tmp_path):
    _, (X, labels, _) = classification()
    y = np.array(["low", "middle", "high"])[labels]
    model = BayesianClassifier(row.method, usable_likelihood(row.method, Categorical(0.3)), **SMALL)
    if row.classes != SUPPORTED:
        with pytest.raises(ValueError, match=f"^{row.classes}"):
            model.fit(X, y)
        return
    assert model.fit(X, y).score(X, y) > 0.8
    model.save(tmp_path / "model.safetensors")
    loaded = anchored.load(tmp_path / "model.safetensors")
    assert np.allclose(loaded.predict_proba(X), model.predict_proba(X), atol=1e-6)
    assert loaded.method == row.method


def table():
    """X and y of the regression problem, in float64."""
    X, y = (np.asarray(column, np.float64) for column in regression()[1][:2])
    return X, y[:, 0]


def test_certificates_rank_methods():
    """With one reference for all, exact draws are nearest to it, then anchored members, then collapsed ones."""
    X, y = table()
    settings = {"likelihood": Gaussian(NOISE), "hidden_layer_sizes": (60,), "prior_scale": 2.0, "random_state": 0}
    methods = {
        "exact": GaussianProcess(n_draws=60),
        "last layer": AnchoredEnsemble(60, "randomized", "last_layer"),
        "anchored": AnchoredEnsemble(60, "randomized", solver=GaussNewton()),
        "collapsed": RegularizedEnsemble(10, FirstOrder(max_iter=1000, learning_rate=0.01)),
    }
    fits = {name: BayesianRegressor(method, **settings).fit(X, y) for name, method in methods.items()}
    found = {name: certify(fitted, X, y, reference=GaussianProcess()) for name, fitted in fits.items()}
    assert len({certificate.reference for certificate in found.values()}) == 1
    assert all(
        np.allclose(found["exact"].exact_std, certificate.exact_std, rtol=1e-5) for certificate in found.values()
    )
    distance = {name: certificate.distances["wasserstein"] for name, certificate in found.items()}
    assert max(distance["exact"], distance["last layer"]) < distance["anchored"] < distance["collapsed"]
    assert found["exact"].finding == "bayesian" and found["collapsed"].finding == "collapsed"
    # By default, last-layer members are compared with the posterior given their own features
    own = certify(fits["last layer"], X, y)
    assert own.reference != found["last layer"].reference and own.to_wide_limit is not None
    assert np.isclose(own.to_wide_limit["wasserstein"], distance["last layer"], rtol=1e-6)


def test_a_sampler_as_the_reference():
    """For a linear model, it agrees with the closed form."""
    X, y = table()
    given = {"noise_variance": NOISE, "prior_scale": 2.0, "random_state": 0}
    linear = AnchoredRegressor(50, (), anchoring="randomized", max_iter=50, **given).fit(X, y)
    drawn, exact = (certify(linear, X, y, reference=method) for method in (HMC(2, 200, 500), None))
    assert "HMC" in drawn.reference and not drawn.asymptotic
    assert np.all(np.abs(drawn.exact_mean - exact.exact_mean) < 0.25 * exact.exact_std)  # 4.5 s.e. of 300 draws
    assert np.allclose(drawn.exact_std, exact.exact_std, rtol=0.2)
    for wrong in ("exact", RegularizedEnsemble(3), VariationalInference(), HMC):
        with pytest.raises(ValueError, match=r"an exact method of anchored.methods, GaussianProcess\(\) or HMC\(\)"):
            certify(linear, X, y, reference=wrong)


def test_a_gaussian_process_is_exact_in_an_estimator():
    X, y = table()
    model = BayesianRegressor(GaussianProcess(), Gaussian(NOISE), prior_scale=2.0, random_state=0).fit(X, y)
    predictive = model.predict_dist(X)
    assert predictive.n_members == np.inf and np.all(predictive.mean_standard_error == 0)
    mean, covariance = model.predict(X, return_cov=True)
    assert np.array_equal(mean, model.predict(X))
    assert np.allclose(np.diag(covariance), predictive.variance, rtol=1e-9)
    inputs = model.x_standardisation_.transform_inputs(X, np.float64, "X")
    exact = model.posterior_._conditioned.predict(inputs, return_cov=True)[1]
    assert np.allclose(covariance, exact[..., 0] * y.var() + NOISE * np.eye(40), rtol=1e-9)


def test_the_noise_of_a_deep_ensemble(monkeypatch):
    """The estimator reports the noise that members have learned, and estimates no other."""
    monkeypatch.setattr(estimators.noise, "estimate", None)
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(300, 1))
    y = 10 * (np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=300))
    model = BayesianRegressor(DeepEnsemble(5), prior_scale=2.0, random_state=0).fit(X, y)
    predictive = model.predict_dist(X)
    assert np.isclose(model.noise_variance_, predictive.aleatoric_variance.mean(), rtol=1e-5)
    assert 5 < model.noise_variance_ < 14 and model.noise_model_ is None
    certificate = certify(model, X, y, X[:50])
    predictive, exact_noise = model.predict_dist(X[:50]), model.training_noise_variance_
    exact_std = np.sqrt(certificate.exact_std[:, 0] ** 2 + exact_noise)
    kl = metrics.gaussian_kl(certificate.exact_mean[:, 0], exact_std, predictive.mean, predictive.std)
    assert np.isclose(certificate.distances["kl"], kl.mean(), rtol=1e-3)


def test_progress_bar_of_a_method(capsys):
    X, y = table()
    method = RegularizedEnsemble(2, FirstOrder(max_iter=5))
    BayesianRegressor(method, Gaussian(NOISE), **SMALL, verbose=1).fit(X, y)
    written = capsys.readouterr().out
    assert "RegularizedEnsemble" in written and "100/100 %" in written


@dataclass(frozen=True)
class Foreign:
    """A method that is not defined in anchored, and cannot be saved."""

    def check(self, model):
        pass

    def fit(self, key, model, data, on_progress=None):
        posterior = RegularizedEnsemble(2, FirstOrder(max_iter=5)).fit(key, model, data)
        return replace(posterior, record=replace(posterior.record, method=self))


def test_custom_methods_and_optimisers_in_files(tmp_path):
    """A custom method cannot be saved. A custom optimiser is not stored, and is required only for the next fit."""
    X, y = table()
    given = {"likelihood": Gaussian(NOISE), **SMALL}
    with pytest.raises(TypeError, match="cannot save a Foreign"):
        BayesianRegressor(Foreign(), **given).fit(X, y).save(tmp_path / "model")
    method = RegularizedEnsemble(2, FirstOrder(optax.adam, max_iter=5))
    model = BayesianRegressor(method, **given).fit(X, y)
    model.save(tmp_path / "model")
    loaded = anchored.load(tmp_path / "model")
    assert np.array_equal(loaded.predict(X), model.predict(X))
    with pytest.raises(ValueError, match="optimizer is None"):
        loaded.fit(X, y)


def test_methods_are_checked_before_training(monkeypatch):
    monkeypatch.setattr(selection.PilotTrainer, "out_of_fold", None)  # pilot members would fail
    X, y = table()
    for method, message in (
        (RegularizedEnsemble(0), "n_estimators"),
        (AnchoredEnsemble(2, (1.0, 1.0, 1.0)), "each of the network.s 2 layers"),
        (AnchoredEnsemble(2, solver=FirstOrder(early_stopping=True)), "early_stopping=True needs held-out rows"),
        (MCDropout(rate=2.0), "rate"),
        (GaussianProcess(n_draws=0), "n_draws"),
    ):
        with pytest.raises(ValueError, match=message):
            BayesianRegressor(method).fit(X, y)


def test_fields_of_a_likelihood_that_a_method_ignores():
    X, y = np.zeros((5, 1)), np.arange(5.0)
    for noise in (1.0, np.ones(2)):
        with pytest.raises(ValueError, match=r"likelihood: (DeepEnsemble does not use|noise_variance must be one)"):
            BayesianRegressor(DeepEnsemble(), Gaussian(noise)).fit(X, y)
    for method in (UnregularizedEnsemble(), EarlyStoppedEnsemble()):
        with pytest.raises(ValueError, match="does not use temperature"):
            BayesianClassifier(method, Categorical(1.0)).fit(X, y > 1)
    for wrong in (HMC, "hmc", 3):
        with pytest.raises(ValueError, match="method must be an instance"):
            BayesianRegressor(wrong).fit(X, y)


def test_a_gaussian_process_has_no_members():
    X, y = np.linspace(0, 1, 8)[:, None], np.arange(8.0)
    model = BayesianRegressor(GaussianProcess(), Gaussian(0.1), prior_scale=1.0, random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="has no members; use sample_y"):
        model.sample_functions()
