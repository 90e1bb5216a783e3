"""Certificates of fits whose distance from the exact posterior is known."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression

import anchored
from anchored import AnchoredClassifier, AnchoredRegressor, BayesianRegressor, certify, from_functions
from anchored.certification.certificate import Certificate
from anchored.errors import ArgumentError
from anchored.methods import AnchoredEnsemble, GaussianProcess
from anchored.model.bayesian_model import BayesianModel
from anchored.model.layered_prior import default_layer_scales, layered_prior
from anchored.model.likelihoods import Gaussian
from anchored.model.networks import MLP
from anchored.plots import CertificateDisplay
from anchored.types import Data

GIVEN = {
    "noise_variance": 0.04,
    "prior_scale": 2.0,
    "random_state": 0,
    "hidden_layer_sizes": (50,),
    "activation": "relu",
    "learning_rate_init": 0.03,
    "max_iter": 800,
}
LAST_LAYER = {
    "hidden_layer_sizes": (200,),
    "trainable": "last_layer",
}  # one width, so that all tests share one compiled program
EXACT = {**LAST_LAYER, "anchoring": "randomized"}


@cache
def table():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 3)) * [1, 10, 0.1] + [0, 5, 0]
    return X, 10 * np.sin(X[:, 0]) + 0.2 * (X[:, 1] - 5) + 2 * rng.normal(size=150)


@cache
def points():
    """Sixty points distributed like the table's rows; the default of 200 points would take ten times as long."""
    return np.random.default_rng(7).normal(size=(60, 3)) * [1, 10, 0.1] + [0, 5, 0]


@cache
def certified(**settings):
    """The certificate of a fit to the table."""
    return certify(fit(**settings), *table(), points())


@cache
def fit(**settings):
    return AnchoredRegressor(**{**GIVEN, "noise_variance": 4.0, **settings}).fit(*table())


@pytest.fixture(scope="module")
def default():
    """Ten members of the default network, and their certificate."""
    model = fit()
    return model, certify(model, *table())


def test_last_layer_randomized_is_bayesian():
    """Members are exact draws: distances are within the Monte-Carlo error, and further training changes nothing."""
    certificate = certified(n_estimators=100, **EXACT)
    assert certificate.finding == "bayesian" and certificate.summary.startswith("Bayesian")
    exact_draws = certificate.distances_of_exact_draws["std_ratio"]
    assert exact_draws.low <= certificate.distances["std_ratio"] <= exact_draws.high
    assert not certificate.asymptotic
    assert certificate.optimisation.gradient < 0.01
    assert max(certificate.optimisation.mean_shift, certificate.optimisation.std_shift) < 0.01


def test_each_member_is_compared_with_its_own_features():
    """Features of ten units differ much between members. Only the first hundred members are compared."""
    certificate = certified(n_estimators=130, **{**EXACT, "hidden_layer_sizes": (10,)})
    exact_draws = certificate.distances_of_exact_draws["std_ratio"]
    assert certificate.n_members == 100
    assert exact_draws.low <= certificate.distances["std_ratio"] <= exact_draws.high


@pytest.mark.parametrize("trainable", ["last_layer", "all"])
def test_prior_anchoring_is_too_narrow_as_theory_predicts(trainable):
    """The theory is exact for the last layer, and for all layers in the limit of infinite width."""
    n_members = 100 if trainable == "last_layer" else 30
    certificate = certified(n_estimators=n_members, hidden_layer_sizes=(200,), trainable=trainable)
    assert certificate.finding == "too narrow"
    assert certificate.predicted["std_ratio"] < 0.85
    tolerance = 0.03 if trainable == "last_layer" else 0.1  # the width is finite
    assert abs(certificate.distances["std_ratio"] - certificate.predicted["std_ratio"]) < tolerance


def test_a_shared_anchor_is_collapsed():
    certificate = certified(anchoring=0.0)
    assert certificate.finding == "collapsed"


def test_too_few_units():
    """With ten units, exact draws are far from a wide network. Anchors from the prior are found too narrow first."""
    exact = certified(n_estimators=130, **{**EXACT, "hidden_layer_sizes": (10,)})
    assert exact.finding == "too few units" and exact.to_wide_limit["mean_gap"] > 1
    narrow = certified(n_estimators=130, hidden_layer_sizes=(10,), trainable="last_layer")
    assert narrow.finding == "too narrow"
    assert abs(narrow.distances["std_ratio"] - narrow.predicted["std_ratio"]) < 0.05


def test_kappa():
    """One κ also changes fixed features, so the reference is infinite width. For a κ of the last layer it is exact."""
    collapsed = certified(n_estimators=100, **LAST_LAYER, anchoring=0.0)
    assert collapsed.finding == "collapsed" and collapsed.asymptotic
    wide = certified(n_estimators=100, **LAST_LAYER, anchoring=(1.0, 4.0))
    assert not wide.asymptotic
    assert abs(wide.distances["std_ratio"] - wide.predicted["std_ratio"]) < 0.05
    all_layers = certified(n_estimators=30, hidden_layer_sizes=(200,), anchoring=0.5)
    assert abs(all_layers.distances["std_ratio"] - all_layers.predicted["std_ratio"]) < 0.1


def test_a_ratio_predicted_by_theory_is_not_called_collapsed():
    """A linear model with much data and anchors from the prior is too narrow by a factor that theory predicts."""
    certificate = certified(n_estimators=50, hidden_layer_sizes=())
    assert certificate.finding == "too narrow" and "theory" in certificate.summary
    assert np.isclose(certificate.distances["std_ratio"], certificate.predicted["std_ratio"], rtol=0.35)


def test_single_and_double_precision_agree():
    single = certified(n_estimators=100, **EXACT)
    with jax.enable_x64(True):
        double = certify(fit(n_estimators=100, **EXACT), *table(), points())
    assert double.finding == single.finding
    assert double.optimisation.gradient < 0.01


def test_members_with_early_stopping_are_not_trained_further():
    certificate = certified(early_stopping=True)
    assert certificate.optimisation is None


def test_too_few_members():
    """Members are exact draws, but there are too few."""
    certificate = certified(n_estimators=4, **EXACT)
    assert certificate.finding == "too few members" and "Monte-Carlo" in certificate.summary
    one = certified(n_estimators=1, **EXACT)
    assert one.finding == "too few members" and "One member" in one.summary


def test_short_training_is_not_converged():
    certificate = certified(max_iter=5)
    assert certificate.finding == "not converged"
    assert certificate.optimisation.mean_shift > 0.25


def test_linear_model_against_the_closed_form():
    """For a linear network, the reference is the posterior of Bayesian linear regression."""
    rng = np.random.default_rng(1)
    X, noise, scale = rng.normal(size=(30, 4)), 0.3, 1.5
    y = X @ [1.0, -1.0, 0.5, 0.0] + np.sqrt(noise) * rng.normal(size=30)
    network = MLP((), 1)
    prior = layered_prior(network, network.init(None, X), default_layer_scales(network, scale))
    model = BayesianModel(network, prior, Gaussian(np.array([noise], np.float32)))
    data = Data(*(a.astype(np.float32) for a in (X, y[:, None], np.ones((30, 1)))))
    posterior = AnchoredEnsemble(300, "randomized", "last_layer").fit(jax.random.key(0), model, data)
    points = rng.normal(size=(20, 4))
    certificate = certify(posterior, X, y, points)
    P = np.linalg.inv(X.T @ X / noise + 4 / scale**2 * np.eye(4))
    assert np.allclose(certificate.exact_mean[:, 0], points @ P @ X.T @ y / noise, atol=1e-5)
    assert np.allclose(certificate.exact_std[:, 0], np.sqrt(np.einsum("ij,jk,ik->i", points, P, points)), atol=1e-5)
    assert certificate.finding == "bayesian"


def test_the_monte_carlo_error_of_exact_draws():
    """The mean of M draws has the standard error 1/√M, and their s.d. a known expectation."""
    certificate = certified(n_estimators=4, **EXACT)
    assert np.isclose(certificate.distances_of_exact_draws["mean_gap"].mean, 1 / np.sqrt(4), rtol=0.15)
    assert np.isclose(certificate.distances_of_exact_draws["std_ratio"].mean, 0.92, atol=0.03)  # E √(χ²₃/3)


def test_units_of_y_do_not_matter():
    X, y = table()
    settings = {"n_estimators": 100, "prior_scale": 2.0, "random_state": 0, "activation": "relu", **EXACT}
    one = certify(AnchoredRegressor(noise_variance=4.0, **settings).fit(X, y), X, y, points())
    other = certify(AnchoredRegressor(noise_variance=4e6, **settings).fit(X, 1000 * y), X, 1000 * y, points())
    assert np.isclose(one.distances["std_ratio"], other.distances["std_ratio"], rtol=1e-4)
    assert np.isclose(1000 * one.distances["wasserstein"], other.distances["wasserstein"], rtol=1e-3)


def test_means_are_those_of_predictions():
    """Also if the mean of y is far from zero. The exact mean is that of a GaussianProcess fitted to the same data."""
    X, y = table()
    model = AnchoredRegressor(**{**GIVEN, "noise_variance": 4.0}).fit(X, y + 1000)
    certificate = certify(model, X, y + 1000, points())
    assert np.allclose(certificate.mean[:, 0], model.predict(points()), rtol=1e-5)
    given = {name: GIVEN[name] for name in ("hidden_layer_sizes", "prior_scale", "activation")}
    process = BayesianRegressor(GaussianProcess(), Gaussian(4.0), **given).fit(X, y + 1000)
    assert np.allclose(certificate.exact_mean[:, 0], process.predict(points()), rtol=1e-6)


def test_several_outputs_and_weights():
    X, y = table()
    rng = np.random.default_rng(2)
    Y, weights = np.stack([y, rng.normal(size=len(y))], axis=1), rng.uniform(0.2, 3, size=len(y))
    model = AnchoredRegressor(100, **{**GIVEN, "noise_variance": (4.0, 1.0), **EXACT})
    certificate = certify(model.fit(X, Y, weights), X, Y, points(), sample_weight=weights)
    assert certificate.mean.shape == (60, 2) and certificate.finding == "bayesian"
    # The reference depends on the weights
    other = certify(model.fit(X, Y), X, Y, points())
    assert not np.allclose(other.exact_std, certificate.exact_std, rtol=0.01)


def test_tangent_correction_is_compared_with_the_tangent_kernel():
    X = np.linspace(-1, 1, 8)[:, None]
    y = np.sin(3 * X)
    network = MLP((500,), 1, "erf")
    prior = layered_prior(network, network.init(None, X), default_layer_scales(network, 1.5))
    model = BayesianModel(network, prior, Gaussian(np.array([0.05], np.float32)))
    method = AnchoredEnsemble(100, "randomized", solver=anchored.methods.GaussNewton(), tangent_correction=True)
    data = Data(*(a.astype(np.float32) for a in (X, y, np.ones((8, 1)))))
    certificate = certify(method.fit(jax.random.key(0), model, data), X, y, np.linspace(-1.5, 1.5, 30)[:, None])
    assert "tangent" in certificate.reference
    assert certificate.finding == "bayesian"


def test_saved_and_loaded_models_certify_alike(default, tmp_path):
    model, certificate = default
    model.save(tmp_path / "model.safetensors")
    loaded = anchored.load(tmp_path / "model.safetensors")
    assert str(certify(loaded, *table())) == str(certificate)


def test_text_and_plot(default, tmp_path):
    _, certificate = default
    assert certificate.asymptotic and "50 units" in certificate.reference
    text = str(certificate)
    assert text.startswith(certificate.summary) and "exact draws" in text and "asymptotic" in text
    display = CertificateDisplay.from_certificate(certificate)
    display.figure_.savefig(tmp_path / "certificate.png")
    assert np.array_equal(display.std, certificate.std.ravel())
    assert Certificate.members_needed(0.1) == 100 and Certificate.members_needed(0.05) == 400


@pytest.mark.parametrize("trainable", ["all", "last_layer"])
def test_a_network_without_a_closed_form(trainable):
    """The error names a setting that has a closed form, and with that setting the fit is certified."""
    keys = {"features": (3, 20), "outputs": (20, 1)}
    network = from_functions(
        lambda key, x: {name: jax.random.normal(key, shape) / shape[0] ** 0.5 for name, shape in keys.items()},
        lambda params, x: jnp.tanh(x @ params["features"]) @ params["outputs"],
        last_layer="outputs",
    )
    model = fit(
        n_estimators=100 if trainable == "last_layer" else 5,
        network=network,
        max_iter=5,
        trainable=trainable,
        anchoring="randomized",
    )
    if trainable == "all":
        with pytest.raises(ArgumentError, match=r'FunctionNetwork, .* no closed form; fit with trainable="last_layer"'):
            certify(model, *table(), points())
    else:
        assert certify(model, *table(), points()).finding == "bayesian"


def test_invalid_arguments(default):
    X, y = table()
    model, _ = default
    with pytest.raises(ValueError, match="not the data of the fit"):
        certify(model, X, y + 1)
    with pytest.raises(ValueError, match="max_memory_gb"):
        certify(model, X, y, max_memory_gb=0.001)
    for wrong in ([1], AnchoredRegressor, LinearRegression()):
        with pytest.raises(TypeError, match="cannot certify"):
            certify(wrong, X, y)
    for wrong in (-1, "2", float("nan")):
        with pytest.raises(ValueError, match="max_memory_gb must be"):
            certify(model, X, y, max_memory_gb=wrong)
    with pytest.raises(ValueError, match="same number of rows"):
        certify(model.posterior_, X, y[:-1])
    with pytest.raises(ValueError, match="X_eval must have rows"):
        certify(model.posterior_, X, y, X[:, :1])
    with pytest.raises(NotFittedError):
        certify(AnchoredRegressor(), X, y)
    classifier = AnchoredClassifier(2, (50,), max_iter=5, prior_scale=1.0, temperature=1.0).fit(X, y > 0)
    with pytest.raises(ArgumentError, match=r"Categorical, with which .* Gaussian noise can be certified, such as"):
        certify(classifier, X, y > 0)
    with pytest.raises(ValueError, match="X has 2 features"):
        certify(model, X, y, X[:, :2])
    with pytest.raises(ValueError, match="precision"):
        Certificate.members_needed(0)
