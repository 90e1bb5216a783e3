"""BayesianRegressor with GaussianProcess, compared with the process by hand and with targets drawn from it."""

import pickle

import numpy as np
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

from anchored import BayesianRegressor
from anchored.exact import GaussianProcess as Process
from anchored.exact.kernels import MLPKernel, gram, tangent_kernel
from anchored.methods import GaussianProcess
from anchored.model.likelihoods import Gaussian

RNG = np.random.default_rng(0)
X, NEW = RNG.normal(size=(20, 3)), RNG.normal(size=(7, 3))
Y = np.stack([np.sin(X[:, 0]), X[:, 1] ** 2], axis=1) + 0.1 * RNG.normal(size=(20, 2))
GIVEN = {"likelihood": Gaussian(0.05), "prior_scale": 2.0}


def regressor(kernel="nngp", max_rows=10_000, **arguments):
    return BayesianRegressor(GaussianProcess(kernel, max_rows=max_rows), **{"random_state": 0, **arguments})


def evidence(model):
    return model.posterior_.log_marginal_likelihood


@parametrize_with_checks([regressor(**GIVEN)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize(
    ("arguments", "weights", "biases"),
    [
        ({}, (4 / 3, 1), (4, 0)),
        ({"hidden_layer_sizes": (9, 9, 9)}, (4 / 3, 2, 2, 1), (4, 0, 0, 0)),
        ({"hidden_layer_sizes": (9, 9), "activation": "erf"}, (4 / 3, 1, 1), (4, 0, 0)),
        ({"hidden_layer_sizes": (9, 9), "prior_scale": (2.0, 1.5, 0.5)}, (4 / 3, 2.25, 0.25), (4, 0, 0)),
    ],
)
def test_the_prior_is_that_of_the_paper(arguments, weights, biases):
    model = regressor(**{**GIVEN, **arguments}).fit(X, Y)
    kernel = model.posterior_._prior.kernel
    assert np.allclose(kernel.weight_variances, weights)
    assert np.allclose(kernel.bias_variances, biases)
    assert model.prior_scale_ == arguments.get("prior_scale", 2.0)


@pytest.mark.parametrize("kernel", ["nngp", "ntk"])
def test_predictions_are_those_of_the_process_in_units_of_y(kernel):
    """Compared with standardising, conditioning and converting to units of y by hand."""
    noise, y_mean, y_std = np.array([0.05, 0.4]), Y.mean(0), Y.std(0)
    model = regressor(kernel, prior_scale=2.0, likelihood=Gaussian(noise)).fit(X, Y)
    inputs, new = (X - X.mean(0)) / X.std(0), (NEW - X.mean(0)) / X.std(0)
    prior = MLPKernel((4 / 3, 1.0), (4.0, 0.0))
    prior = tangent_kernel(prior) if kernel == "ntk" else prior
    given = Process(prior, noise / y_std**2).condition(inputs, (Y - y_mean) / y_std)
    expected_mean, expected_covariance = given.predict(new, return_cov=True)
    expected_covariance = expected_covariance * y_std**2 + noise * np.eye(7)[..., None]

    mean, covariance = model.predict(NEW, return_cov=True)
    assert np.allclose(mean, expected_mean * y_std + y_mean)
    assert np.allclose(covariance, expected_covariance)
    assert np.allclose(model.predict(NEW), mean)
    variance = np.diagonal(covariance).T
    assert np.allclose(model.predict(NEW, return_std=True)[1] ** 2, variance)
    predictive = model.predict_dist(NEW)
    assert np.allclose(predictive.epistemic_variance + noise, variance)
    assert np.array_equal(predictive.aleatoric_variance, np.broadcast_to(noise, (7, 2)))
    assert np.all(predictive.mean_standard_error == 0)  # nothing is sampled
    assert np.all(predictive.std_standard_error == 0)
    lower, upper = model.predict_interval(NEW, coverage=0.9)
    assert np.allclose([lower, upper], stats.norm.interval(0.9, mean, np.sqrt(variance)))
    assert np.isclose(evidence(model), given.log_marginal_likelihood)


def test_shapes_follow_y():
    one, two = regressor(**GIVEN).fit(X, Y[:, 0]), regressor(**GIVEN).fit(X, Y)
    for model, outputs in ((one, ()), (two, (2,))):
        mean, std = model.predict(NEW, return_std=True)
        covariance = model.predict(NEW, return_cov=True)[1]
        assert mean.shape == std.shape == (7, *outputs)
        assert covariance.shape == (7, 7, *outputs)
        assert model.sample_y(NEW, 4).shape == (7, *outputs, 4)
        assert np.shape(model.noise_variance_) == outputs
    assert np.allclose(one.predict(NEW), two.predict(NEW)[:, 0])


def test_samples_of_y_have_the_predicted_moments():
    """Means and covariances agree within 4.5 standard errors."""
    model = regressor(**GIVEN).fit(X, Y)
    n = 20_000
    draws = model.sample_y(NEW, n)
    mean, covariance = model.predict(NEW, return_cov=True)
    for k in range(2):
        samples, variance = draws[:, k].T, np.diag(covariance[..., k])
        assert np.all(np.abs(samples.mean(0) - mean[:, k]) < 4.5 * np.sqrt(variance / n))
        error = np.sqrt((np.outer(variance, variance) + covariance[..., k] ** 2) / n)
        assert np.all(np.abs(np.cov(samples.T) - covariance[..., k]) < 4.5 * error)
    assert np.array_equal(draws, model.sample_y(NEW, n, random_state=0))
    assert not np.allclose(draws[..., :2], model.sample_y(NEW, 2, random_state=1))


@pytest.mark.parametrize("arguments", [GIVEN, {}, {"prior_scale": 2.0}, {"likelihood": Gaussian(0.05)}])
def test_weights_equal_repetition(arguments):
    """Also in the estimate of the noise, and in the evidence."""
    counts = np.arange(20) % 4
    repeated = np.repeat(np.arange(20), counts)
    by_weight = regressor(**arguments).fit(X, Y, sample_weight=counts)
    by_repetition = regressor(**arguments).fit(X[repeated], Y[repeated])
    for one, other in zip(by_weight.predict(NEW, return_std=True), by_repetition.predict(NEW, return_std=True)):
        assert np.allclose(one, other, rtol=1e-5)
    assert np.isclose(evidence(by_weight), evidence(by_repetition))


@pytest.mark.parametrize("kernel", ["nngp", "ntk"])
def test_auto_finds_the_true_hyperparameters(kernel):
    """Targets are drawn from the process. Both agree within four standard errors; the noise has those of 90 rows."""
    rng = np.random.default_rng(1)
    inputs = rng.normal(size=(120, 2))
    scale, noise = 2.0, 0.1
    prior = MLPKernel((scale**2 / 2, 1.0), (scale**2, 0.0), "relu")
    process = Process(tangent_kernel(prior) if kernel == "ntk" else prior, noise)
    y = process.sample(inputs, 1, seed=3)[0, :, 0] + noise**0.5 * rng.normal(size=120)
    model = regressor(kernel).fit(inputs, y)
    assert np.abs(np.log(model.noise_variance_ / noise)) < 4 * np.sqrt(2 / 90)
    # With ReLU, outputs are proportional to the scale c, so that the Fisher information of log c is 2 Σ (λ / (λ + σ²))²
    eigenvalues = np.linalg.eigvalsh(gram(process.kernel, inputs))
    information = 2 * np.sum((eigenvalues / (eigenvalues + noise)) ** 2)
    assert np.abs(np.log(model.prior_scale_ * y.std() / scale)) < 4 / np.sqrt(information)
    for factor in (0.8, 1.25):
        for wrong in (
            {"prior_scale": factor * model.prior_scale_, "likelihood": Gaussian(model.noise_variance_)},
            {"prior_scale": model.prior_scale_, "likelihood": Gaussian(factor * model.noise_variance_)},
        ):
            assert evidence(regressor(kernel, **wrong).fit(inputs, y)) < evidence(model)
    true = regressor(kernel, prior_scale=scale / y.std(), likelihood=Gaussian(noise)).fit(inputs, y)
    assert evidence(true) < evidence(model) < evidence(true) + 10


def test_auto_chooses_only_what_is_not_given():
    whole = regressor().fit(X, Y)
    by_scale = regressor(prior_scale=whole.prior_scale_).fit(X, Y)
    by_noise = regressor(likelihood=Gaussian(whole.noise_variance_)).fit(X, Y)
    assert by_scale.prior_scale_ == whole.prior_scale_
    assert np.allclose(by_noise.noise_variance_, whole.noise_variance_, rtol=1e-12)
    assert np.allclose(by_scale.noise_variance_, whole.noise_variance_, rtol=1e-3)
    assert np.isclose(by_noise.prior_scale_, whole.prior_scale_, rtol=1e-3)
    assert np.allclose(
        whole.noise_variance_ / Y.var(0), whole.noise_variance_[0] / Y.var(0)[0]
    )  # the same fraction of each variance
    layered = regressor(prior_scale=(3.0, 0.7)).fit(X, Y)
    assert layered.prior_scale_ == (3.0, 0.7)


def test_auto_uses_a_subset_of_many_rows(monkeypatch):
    monkeypatch.setattr(GaussianProcess, "max_rows_to_choose", 12)
    models = [regressor(random_state=seed).fit(X, Y) for seed in (0, 0, 1)]
    scales = [model.prior_scale_ for model in models]
    assert scales[0] == scales[1] != scales[2]
    assert len(models[0].posterior_.data.inputs) == 20


def test_constant_targets_and_columns():
    model = regressor().fit(np.c_[X, np.ones(20)], np.full(20, 7.0))
    mean, std = model.predict(np.c_[NEW, np.ones(7)], return_std=True)
    assert np.allclose(mean, 7)
    assert np.all(std < 0.1)


def test_clone_and_pickle():
    model = regressor("ntk", hidden_layer_sizes=(9, 9), **GIVEN).fit(X, Y)
    assert clone(model).get_params() == model.get_params()
    copy = pickle.loads(pickle.dumps(model))
    assert np.array_equal(copy.predict(NEW, return_std=True), model.predict(NEW, return_std=True))


BAD_ARGUMENTS = [
    *[("activation", value) for value in ("swoosh", None, 3)],
    *[("prior_scale", value) for value in ("automatic", 0, -1.0, np.nan, (1.0,), (1.0, 0.0), (1.0, "auto"), None)],
    *[("likelihood", value) for value in ("automatic", 0.1, None)],
    *[("likelihood", Gaussian(value)) for value in (0.0, -0.1, np.nan, np.inf, (0.1, 0.2), (), "a")],
    *[("method", value) for value in (None, "hmc", GaussianProcess)],
    *[("kernel", GaussianProcess(value)) for value in ("rbf", None)],
    *[("max_rows", GaussianProcess(max_rows=value)) for value in (0, 2.5, None)],
]


@pytest.mark.parametrize(("name", "value"), BAD_ARGUMENTS)
def test_an_error_names_the_invalid_argument(name, value):
    argument = name if name in ("activation", "prior_scale", "likelihood") else "method"
    model = regressor(**GIVEN).fit(X, Y[:, 0]).set_params(**{argument: value})
    with pytest.raises(ValueError, match=name):
        model.fit(X, Y[:, 0])


def test_too_many_rows_raise_an_error():
    with pytest.raises(ValueError, match=r"20 rows are more than max_rows=19.*use another method"):
        regressor(max_rows=19, **GIVEN).fit(X, Y)
    few = regressor(max_rows=10, **GIVEN).fit(X, Y, sample_weight=np.arange(20) < 10)
    assert few.predict(X).shape == (20, 2)  # there is no limit without covariances
    for call in (lambda: few.predict(X, return_cov=True), lambda: few.sample_y(X)):
        with pytest.raises(ValueError, match=r"20 rows .* max_rows=10"):
            call()


def test_invalid_arguments_of_predictions():
    with pytest.raises(NotFittedError):
        regressor().predict(X)
    model = regressor(**GIVEN).fit(X, Y)
    with pytest.raises(ValueError, match="return_std and return_cov"):
        model.predict(X, return_std=True, return_cov=True)
    for coverage in (0, 1, 95, np.nan):
        with pytest.raises(ValueError, match="coverage"):
            model.predict_interval(X, coverage)
    for n_samples in (0, -1, 1.5):
        with pytest.raises(ValueError, match="n_samples"):
            model.sample_y(X, n_samples)
    for n_left in (0, 1):
        with pytest.raises(ValueError, match=r"(?i)sample.weight"):
            model.fit(X, Y, sample_weight=np.arange(20) < n_left)
