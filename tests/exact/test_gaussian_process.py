"""Exact Gaussian processes against scikit-learn's, brute force and a published table; and the estimator on top."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from scipy import linalg, stats
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, DotProduct
from sklearn.gaussian_process.kernels import Kernel as SklearnKernel
from sklearn.utils.estimator_checks import parametrize_with_checks

from anchored import datasets
from anchored.estimators.gaussian_process import NNGPRegressor
from anchored.exact.gaussian_process import GaussianProcess, cholesky
from anchored.exact.kernels import NetworkKernel, RBFKernel, TangentKernel, diagonal, gram, tangent_kernel

RNG = np.random.default_rng(0)
X, NEW = RNG.normal(size=(20, 3)), RNG.normal(size=(7, 3))
Y = np.stack([np.sin(X[:, 0]), X[:, 1] ** 2], axis=1) + 0.1 * RNG.normal(size=(20, 2))
WEIGHTS = RNG.uniform(0.3, 3, size=20)
NOISE = 0.05
RELU = NetworkKernel((0.6, 1.0), (1.5, 0.0))
KERNELS = {
    "relu": RELU,
    "deep erf": NetworkKernel((0.6, 1.2, 0.8), (1.5, 0.2, 0.1), "erf"),
    "relu tangent": tangent_kernel(RELU),
    "rbf": RBFKernel(1.2, 1.5),
}


class Wrapped(SklearnKernel):
    """One of our kernels as scikit-learn's."""

    def __init__(self, kernel):
        self.kernel = kernel

    def __call__(self, X, Y=None, eval_gradient=False):
        return np.array(gram(self.kernel, X, Y))  # to be written to

    def diag(self, X):
        return diagonal(self.kernel, X)

    def is_stationary(self):
        return False


# The process


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_equals_scikit_learns(name, weights):
    ours = GaussianProcess(KERNELS[name], NOISE).condition(X, Y, weights)
    alpha = np.full(20, NOISE) / (1 if weights is None else weights)
    theirs = GaussianProcessRegressor(Wrapped(KERNELS[name]), alpha=alpha, optimizer=None).fit(X, Y)
    for how in ({"return_std": True}, {"return_cov": True}):
        for our, their in zip(ours.predict(NEW, **how), theirs.predict(NEW, **how), strict=True):
            assert np.allclose(our, their, rtol=1e-8, atol=1e-8)
    assert np.allclose(ours.predict(NEW), theirs.predict(NEW), rtol=1e-8)
    assert np.isclose(ours.log_marginal_likelihood, theirs.log_marginal_likelihood_value_, rtol=1e-8)


def test_a_network_without_curvature_is_scikit_learns_dot_product():
    w, b = 0.7, 1.8
    theirs = ConstantKernel(w, "fixed") * DotProduct(np.sqrt(b / w), "fixed")
    theirs = GaussianProcessRegressor(theirs, alpha=NOISE, optimizer=None).fit(X, Y)
    ours = GaussianProcess(NetworkKernel((w, 1.0), (b, 0.0), "identity"), NOISE).condition(X, Y)
    for our, their in zip(ours.predict(NEW, return_cov=True), theirs.predict(NEW, return_cov=True), strict=True):
        assert np.allclose(our, their, rtol=1e-8, atol=1e-9)
    assert np.isclose(ours.log_marginal_likelihood, theirs.log_marginal_likelihood_value_, rtol=1e-10)


def test_equals_conditioning_of_the_joint_normal():
    """By the precision of all function values together, with a noise of its own for each row and output."""
    noise, weights = np.array([0.05, 0.4]), np.stack([WEIGHTS, WEIGHTS[::-1]], axis=1)
    ours = GaussianProcess(RELU, noise).condition(X, Y, weights)
    mean, covariance = ours.predict(NEW, return_cov=True)
    everywhere = gram(RELU, np.concatenate([NEW, X]))
    for k in range(2):
        of_rows = np.diag(noise[k] / weights[:, k])
        joint = everywhere + linalg.block_diag(np.zeros((7, 7)), of_rows)
        precision = np.linalg.inv(joint)
        expected = np.linalg.inv(precision[:7, :7])
        assert np.allclose(covariance[..., k], expected, rtol=1e-8, atol=1e-9)
        assert np.allclose(mean[:, k], -expected @ precision[:7, 7:] @ Y[:, k], rtol=1e-8)
    evidence = [stats.multivariate_normal(cov=gram(RELU, X) + np.diag(noise[k] / weights[:, k])) for k in range(2)]
    expected = sum(normal.logpdf(Y[:, k]) for k, normal in enumerate(evidence))
    assert np.isclose(GaussianProcess(RELU, noise).log_marginal_likelihood(X, Y, weights), expected, rtol=1e-10)


def test_outputs_are_as_if_alone():
    together = GaussianProcess(RELU, np.array([0.05, 0.4])).condition(X, Y).predict(NEW, return_std=True)
    for k, noise in enumerate((0.05, 0.4)):
        alone = GaussianProcess(RELU, noise).condition(X, Y[:, [k]]).predict(NEW, return_std=True)
        for both, one in zip(together, alone, strict=True):
            assert np.allclose(both[:, [k]], one, rtol=1e-12)


def test_weights_equal_repetition():
    counts = np.arange(20) % 3 + 1
    repeated = np.repeat(np.arange(20), counts)
    process = GaussianProcess(RELU, NOISE)
    by_weight = process.condition(X, Y, counts).predict(NEW, return_cov=True)
    by_repetition = process.condition(X[repeated], Y[repeated]).predict(NEW, return_cov=True)
    for one, other in zip(by_weight, by_repetition, strict=True):
        assert np.allclose(one, other, rtol=1e-9, atol=1e-10)
    shapes = (counts, counts[:, None], np.c_[counts, counts])
    one, *others = (process.condition(X, Y, weights).solved for weights in shapes)
    assert all(np.array_equal(one, other) for other in others)


@pytest.mark.parametrize("name", KERNELS)
def test_gradient_of_the_evidence_equals_differences(name):
    import jax

    kernel, noise, step = KERNELS[name], np.array([0.05, 0.4]), 1e-5
    found = GaussianProcess(kernel, noise).evidence(X, Y, WEIGHTS)

    def value(kernel, noise):
        return GaussianProcess(kernel, noise).log_marginal_likelihood(X, Y, WEIGHTS)

    assert found.value == value(kernel, noise)
    for k in range(2):
        change = step * np.eye(2)[k]
        difference = (value(kernel, noise + change) - value(kernel, noise - change)) / (2 * step)
        assert np.isclose(found.noise_variance[k], difference, rtol=1e-5)
    leaves, structure = jax.tree.flatten(kernel)
    tolerance = 2e-2 if name == "relu tangent" else 1e-5  # differences see √ε in the angle of equal rows
    for i, slope in enumerate(jax.tree.leaves(found.kernel)):
        above, below = (
            value(jax.tree.unflatten(structure, [leaf + (i == j) * h for j, leaf in enumerate(leaves)]), noise)
            for h in (step, -step)
        )
        assert np.isclose(slope, (above - below) / (2 * step), rtol=1e-5, atol=tolerance)


def test_samples_have_the_covariance():
    n_samples = 20_000
    prior, posterior = GaussianProcess(RELU, NOISE), GaussianProcess(RELU, NOISE).condition(X, Y)
    cases = [
        (prior.sample(NEW, n_samples, n_outputs=2), np.zeros((7, 2)), np.repeat(gram(RELU, NEW)[..., None], 2, -1)),
        (posterior.sample(NEW, n_samples, seed=1), *posterior.predict(NEW, return_cov=True)),
    ]
    for draws, mean, covariance in cases:
        assert draws.shape == (n_samples, 7, 2)
        assert_law(draws[..., 0], mean[:, 0], covariance[..., 0])
        assert_law(draws[..., 1], mean[:, 1], covariance[..., 1])
        assert np.abs(np.corrcoef(draws[:, 0, 0], draws[:, 0, 1])[0, 1]) < 5 / n_samples**0.5  # independent outputs


def assert_law(draws, mean, covariance):
    """Within five standard errors of the sample mean and covariance, entry by entry."""
    n, variance = len(draws), np.diag(covariance)
    assert np.all(np.abs(draws.mean(0) - mean) < 5 * np.sqrt(variance / n))
    standard_error = np.sqrt((np.outer(variance, variance) + covariance**2) / n)
    assert np.all(np.abs(np.cov(draws.T) - covariance) < 5 * standard_error)


def test_many_new_rows_go_in_pieces(monkeypatch):
    from anchored.exact import gaussian_process

    given = GaussianProcess(RELU, NOISE).condition(X, Y)
    whole = given.predict(NEW, return_std=True)
    monkeypatch.setattr(gaussian_process, "ROWS_AT_ONCE", 3)
    for one, other in zip(whole, given.predict(NEW, return_std=True), strict=True):
        assert np.allclose(one, other, rtol=1e-12)
    assert given.predict(NEW[:0]).shape == (0, 2)


# Where a process cannot be computed


def test_an_ill_conditioned_covariance_is_raised_and_said():
    linear = NetworkKernel((1.0,), (0.0,))  # 20 rows in 3 dimensions
    with pytest.warns(RuntimeWarning, match=r"ill-conditioned.*larger noise_variance"):
        given = GaussianProcess(linear, 0.0).condition(X, X @ np.ones((3, 1)))
    assert np.allclose(given.predict(NEW), NEW @ np.ones((3, 1)), atol=1e-4)


def test_a_covariance_that_is_none_is_refused():
    with pytest.raises(linalg.LinAlgError, match=r"3 rows holds NaN.*values out of range"):
        cholesky(np.full((3, 3), np.nan))
    with pytest.raises(linalg.LinAlgError, match=r"3 rows is not positive definite.*Raise noise_variance"):
        cholesky(np.diag([1.0, 1.0, -1.0]))
    with pytest.raises(linalg.LinAlgError, match="NaN"):
        GaussianProcess(NetworkKernel((np.nan, 1.0), (1.0, 0.0)), NOISE).condition(X, Y)


def test_arguments_of_the_process():
    process = GaussianProcess(RELU, NOISE)
    with pytest.raises(ValueError, match=r"targets must have the shape \(rows, outputs\)"):
        process.condition(X, Y[:, 0])
    for noise in (-0.1, np.nan, np.inf):
        with pytest.raises(ValueError, match="noise_variance"):
            GaussianProcess(RELU, noise).condition(X, Y)
    for weights in (np.zeros(20), -WEIGHTS, np.full(20, np.nan)):
        with pytest.raises(ValueError, match="weights must be positive"):
            process.condition(X, Y, weights)
    for weights in (WEIGHTS[:19], WEIGHTS[None], np.ones((20, 3))):
        with pytest.raises(ValueError, match="weights: 20 rows"):
            process.condition(X, Y, weights)
    with pytest.raises(ValueError, match="return_std and return_cov"):
        process.condition(X, Y).predict(NEW, return_std=True, return_cov=True)


# The estimator


GIVEN = {"prior_scale": 2.0, "noise_variance": 0.05}


@parametrize_with_checks([NNGPRegressor(**GIVEN)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize(
    ("arguments", "weights", "biases"),
    [
        ({}, (4 / 3, 1), (4, 0)),
        ({"n_hidden_layers": 3}, (4 / 3, 2, 2, 1), (4, 0, 0, 0)),
        ({"n_hidden_layers": 2, "activation": "erf"}, (4 / 3, 1, 1), (4, 0, 0)),
        ({"n_hidden_layers": 2, "prior_scale": (2.0, 1.5, 0.5)}, (4 / 3, 2.25, 0.25), (4, 0, 0)),
    ],
)
def test_the_prior_is_the_papers(arguments, weights, biases):
    model = NNGPRegressor(**{**GIVEN, **arguments}).fit(X, Y)
    assert np.allclose(model.kernel_.weight_variances, weights)
    assert np.allclose(model.kernel_.bias_variances, biases)
    assert model.prior_scale_ == arguments.get("prior_scale", 2.0)


@pytest.mark.parametrize("kernel", ["nngp", "ntk"])
def test_predictions_are_those_of_the_process_in_units_of_y(kernel):
    """Everything by hand: standardise, condition, and go back."""
    noise, centre, spread = np.array([0.05, 0.4]), Y.mean(0), Y.std(0)
    model = NNGPRegressor(kernel=kernel, prior_scale=2.0, noise_variance=noise).fit(X, Y)
    inputs, new = (X - X.mean(0)) / X.std(0), (NEW - X.mean(0)) / X.std(0)
    prior = NetworkKernel((4 / 3, 1.0), (4.0, 0.0))
    prior = tangent_kernel(prior) if kernel == "ntk" else prior
    assert isinstance(model.kernel_, TangentKernel if kernel == "ntk" else NetworkKernel)
    given = GaussianProcess(prior, noise / spread**2).condition(inputs, (Y - centre) / spread)
    expected_mean, expected_covariance = given.predict(new, return_cov=True)
    expected_covariance = expected_covariance * spread**2 + noise * np.eye(7)[..., None]

    mean, covariance = model.predict(NEW, return_cov=True)
    assert np.allclose(mean, expected_mean * spread + centre)
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
    assert np.isclose(model.log_marginal_likelihood_value_, given.log_marginal_likelihood)


def test_shapes_follow_y():
    one, two = NNGPRegressor(**GIVEN).fit(X, Y[:, 0]), NNGPRegressor(**GIVEN).fit(X, Y)
    for model, outputs in ((one, ()), (two, (2,))):
        mean, std = model.predict(NEW, return_std=True)
        covariance = model.predict(NEW, return_cov=True)[1]
        assert mean.shape == std.shape == (7, *outputs)
        assert covariance.shape == (7, 7, *outputs)
        assert model.sample_y(NEW, 4).shape == (7, *outputs, 4)
        assert np.shape(model.noise_variance_) == outputs
        assert model.n_features_in_ == 3
    assert np.allclose(one.predict(NEW), two.predict(NEW)[:, 0])


def test_sample_y_has_the_law_of_observations():
    model = NNGPRegressor(**GIVEN).fit(X, Y)
    draws = model.sample_y(NEW, 20_000)
    mean, covariance = model.predict(NEW, return_cov=True)
    for k in range(2):
        assert_law(draws[:, k].T, mean[:, k], covariance[..., k])
    assert np.array_equal(draws, model.sample_y(NEW, 20_000, random_state=0))
    assert not np.allclose(draws[..., :2], model.sample_y(NEW, 2, random_state=1))


@pytest.mark.parametrize("arguments", [GIVEN, {}, {"prior_scale": 2.0}, {"noise_variance": 0.05}])
def test_a_weight_counts_its_row(arguments):
    """Also where the noise is learnt from the rows, and in the evidence."""
    counts = np.arange(20) % 4
    repeated = np.repeat(np.arange(20), counts)
    by_weight = NNGPRegressor(**arguments).fit(X, Y, sample_weight=counts)
    by_repetition = NNGPRegressor(**arguments).fit(X[repeated], Y[repeated])
    for one, other in zip(by_weight.predict(NEW, return_std=True), by_repetition.predict(NEW, return_std=True)):
        assert np.allclose(one, other, rtol=1e-5)
    assert np.isclose(by_weight.log_marginal_likelihood_value_, by_repetition.log_marginal_likelihood_value_)


@pytest.mark.parametrize("kernel", ["nngp", "ntk"])
def test_auto_finds_what_was_planted(kernel):
    """Targets from the process itself: the noise is within four standard errors of some 90 rows."""
    rng = np.random.default_rng(1)
    inputs = rng.normal(size=(120, 2))
    scale, noise = 2.0, 0.1
    prior = NetworkKernel((scale**2 / 2, 1.0), (scale**2, 0.0), "relu")
    process = GaussianProcess(tangent_kernel(prior) if kernel == "ntk" else prior, noise)
    y = process.sample(inputs, 1, seed=3)[0, :, 0] + noise**0.5 * rng.normal(size=120)
    model = NNGPRegressor(kernel=kernel).fit(inputs, y)
    assert np.abs(np.log(model.noise_variance_ / noise)) < 4 * np.sqrt(2 / 90)
    assert 0.6 < model.prior_scale_ * y.std() / scale < 1.7  # ReLU's functions are as large as the scale
    best = model.log_marginal_likelihood_value_
    for factor in (0.8, 1.25):
        for wrong in (
            {"prior_scale": factor * model.prior_scale_, "noise_variance": model.noise_variance_},
            {"prior_scale": model.prior_scale_, "noise_variance": factor * model.noise_variance_},
        ):
            assert NNGPRegressor(kernel=kernel, **wrong).fit(inputs, y).log_marginal_likelihood_value_ < best
    planted = NNGPRegressor(kernel=kernel, prior_scale=scale / y.std(), noise_variance=noise).fit(inputs, y)
    assert planted.log_marginal_likelihood_value_ < best < planted.log_marginal_likelihood_value_ + 10


def test_auto_chooses_only_what_is_not_given():
    whole = NNGPRegressor().fit(X, Y)
    by_scale = NNGPRegressor(prior_scale=whole.prior_scale_).fit(X, Y)
    by_noise = NNGPRegressor(noise_variance=whole.noise_variance_).fit(X, Y)
    assert by_scale.prior_scale_ == whole.prior_scale_
    assert np.allclose(by_noise.noise_variance_, whole.noise_variance_, rtol=1e-12)
    assert np.allclose(by_scale.noise_variance_, whole.noise_variance_, rtol=1e-3)
    assert np.isclose(by_noise.prior_scale_, whole.prior_scale_, rtol=1e-3)
    assert np.allclose(whole.noise_variance_ / Y.var(0), whole.noise_variance_[0] / Y.var(0)[0])  # one share for all
    layered = NNGPRegressor(prior_scale=(3.0, 0.7)).fit(X, Y)
    assert layered.prior_scale_ == (3.0, 0.7)


def test_auto_on_a_large_table_looks_at_some_rows(monkeypatch):
    from anchored.estimators import gaussian_process

    monkeypatch.setattr(gaussian_process, "MOST_ROWS_TO_CHOOSE_BY", 12)
    models = [NNGPRegressor(random_state=seed).fit(X, Y) for seed in (0, 0, 1)]
    scales = [model.prior_scale_ for model in models]
    assert scales[0] == scales[1] != scales[2]
    assert len(models[0].process_.inputs) == 20


def test_constant_targets_and_columns():
    model = NNGPRegressor().fit(np.c_[X, np.ones(20)], np.full(20, 7.0))
    mean, std = model.predict(np.c_[NEW, np.ones(7)], return_std=True)
    assert np.allclose(mean, 7)
    assert np.all(std < 0.1)


def test_clone_and_pickle():
    model = NNGPRegressor(n_hidden_layers=2, kernel="ntk", **GIVEN).fit(X, Y)
    assert clone(model).get_params() == model.get_params()
    copy = pickle.loads(pickle.dumps(model))
    assert np.array_equal(copy.predict(NEW, return_std=True), model.predict(NEW, return_std=True))


BAD_ARGUMENTS = [
    *[("n_hidden_layers", value) for value in (0, -1, 1.5, "one", None, True)],
    *[("activation", value) for value in ("swoosh", None, 3)],
    *[("kernel", value) for value in ("rbf", None, RELU)],
    *[("prior_scale", value) for value in ("automatic", 0, -1.0, np.nan, (1.0,), (1.0, 0.0), (1.0, "auto"), None)],
    *[("noise_variance", value) for value in ("automatic", 0, -0.1, np.nan, np.inf, (0.1, 0.2), (), None, {"a": 1})],
    *[("max_rows", value) for value in (0, 2.5, None)],
]


@pytest.mark.parametrize(("name", "value"), BAD_ARGUMENTS)
def test_every_argument_is_checked_by_name(name, value):
    model = NNGPRegressor(**GIVEN).fit(X, Y[:, 0]).set_params(**{name: value})
    with pytest.raises(ValueError, match=name):
        model.fit(X, Y[:, 0])
    with pytest.raises(NotFittedError):  # nothing of the old fit is left
        model.predict(X)


def test_too_many_rows_are_refused_with_a_remedy():
    with pytest.raises(ValueError, match=r"X: 20 rows are more than max_rows=19.*AnchoredRegressor"):
        NNGPRegressor(max_rows=19, **GIVEN).fit(X, Y)
    few = NNGPRegressor(max_rows=10, **GIVEN).fit(X, Y, sample_weight=np.arange(20) < 10)
    assert few.predict(X).shape == (20, 2)  # row by row there is no limit
    with pytest.raises(ValueError, match=r"return_cov: 20 rows .* max_rows=10"):
        few.predict(X, return_cov=True)
    with pytest.raises(ValueError, match=r"sample_y: 20 rows .* max_rows=10"):
        few.sample_y(X)


def test_what_predictions_are_asked_for():
    with pytest.raises(NotFittedError):
        NNGPRegressor().predict(X)
    model = NNGPRegressor(**GIVEN).fit(X, Y)
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


# The published table

FOLDER = Path(os.environ.get(datasets.DATA_VARIABLE, "no folder given"))
# arXiv 1810.05546: noise variance, b, then RMSE and NLL with their standard errors, as printed
PUBLISHED = {
    ("boston", "relu"): (0.06, 10, "2.86 0.16", "2.45 0.05"),
    ("boston", "erf"): (0.05, 25, "2.94 0.18", "2.46 0.05"),
    ("concrete", "relu"): (0.05, 40, "4.88 0.13", "2.96 0.02"),
    ("concrete", "erf"): (0.06, 100, "5.21 0.12", "3.06 0.02"),
    ("energy", "relu"): (1e-7, 12, "0.60 0.02", "0.86 0.02"),
    ("energy", "erf"): (1e-7, 10, "0.78 0.03", "1.06 0.03"),
    ("wine_red", "relu"): (0.5, 20, "0.61 0.01", "0.92 0.01"),
    ("wine_red", "erf"): (0.5, 50, "0.60 0.01", "0.91 0.01"),
    ("yacht", "relu"): (1e-7, 15, "0.60 0.08", "0.49 0.07"),
    ("yacht", "erf"): (1e-5, 25, "1.48 0.15", "1.50 0.13"),
}


@pytest.mark.skipif(
    not (FOLDER / "uci").is_dir(),
    reason=f"needs the UCI files: set {datasets.DATA_VARIABLE} to the folder that holds uci/",
)
@pytest.mark.parametrize(("name", "activation"), PUBLISHED)
def test_every_printed_digit_of_the_published_table(name, activation):
    """Twenty splits of the authors' own, normalised with all rows as they did."""
    noise, b, rmse, nll = PUBLISHED[name, activation]
    table = datasets.load(name, FOLDER)
    centre, spread = table.y.mean(), table.y.std()
    inputs, targets = (table.X - table.X.mean(0)) / table.X.std(0), ((table.y - centre) / spread)[:, None]
    process = GaussianProcess(NetworkKernel((b / inputs.shape[1], 1.0), (b, 0.0), activation), noise)
    n_train = round(0.9 * len(inputs))
    scores = []
    for seed in range(1000, 1020):
        order = np.random.RandomState(seed).permutation(len(inputs))
        train, test = order[:n_train], order[n_train:]
        mean, std = process.condition(inputs[train], targets[train]).predict(inputs[test], return_std=True)
        mean, std = mean[:, 0] * spread + centre, np.sqrt(std[:, 0] ** 2 + noise) * spread
        error = np.sqrt(np.mean((table.y[test] - mean) ** 2))
        scores.append((error, -np.mean(stats.norm.logpdf(table.y[test], mean, std))))
    means, errors = np.mean(scores, axis=0), np.std(scores, axis=0, ddof=1) / 20**0.5
    assert [f"{mean:.2f} {error:.2f}" for mean, error in zip(means, errors)] == [rmse, nll]
