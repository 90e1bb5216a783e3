"""Exact Gaussian processes against scikit-learn, explicit joint normals and a published table."""

import os
from pathlib import Path

import numpy as np
import pytest
from scipy import linalg, stats
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, DotProduct
from sklearn.gaussian_process.kernels import Kernel as SklearnKernel

from anchored import datasets
from anchored.exact.kernels import MLPKernel, RBFNetworkKernel, diagonal, gram, tangent_kernel
from anchored.exact.processes import GaussianProcess, cholesky

RNG = np.random.default_rng(0)
X, NEW = RNG.normal(size=(20, 3)), RNG.normal(size=(7, 3))
Y = np.stack([np.sin(X[:, 0]), X[:, 1] ** 2], axis=1) + 0.1 * RNG.normal(size=(20, 2))
WEIGHTS = RNG.uniform(0.3, 3, size=20)
NOISE = 0.05
RELU = MLPKernel((0.6, 1.0), (1.5, 0.0))
KERNELS = {
    "relu": RELU,
    "deep erf": MLPKernel((0.6, 1.2, 0.8), (1.5, 0.2, 0.1), "erf"),
    "relu tangent": tangent_kernel(RELU),
    "rbf": RBFNetworkKernel(1.2, 1.5),
}


class AdaptedKernel(SklearnKernel):
    """One of our kernels with scikit-learn's interface."""

    def __init__(self, kernel):
        self.kernel = kernel

    def __call__(self, X, Y=None, eval_gradient=False):
        return np.array(gram(self.kernel, X, Y))  # scikit-learn writes to the matrix

    def diag(self, X):
        return diagonal(self.kernel, X)

    def is_stationary(self):
        return False


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_predictions_and_evidence_agree_with_scikit_learn(name, weights):
    ours = GaussianProcess(KERNELS[name], NOISE).condition(X, Y, weights)
    alpha = np.full(20, NOISE) / (1 if weights is None else weights)
    theirs = GaussianProcessRegressor(AdaptedKernel(KERNELS[name]), alpha=alpha, optimizer=None).fit(X, Y)
    for how in ({"return_std": True}, {"return_cov": True}):
        for our, their in zip(ours.predict(NEW, **how), theirs.predict(NEW, **how), strict=True):
            assert np.allclose(our, their, rtol=1e-8, atol=1e-8)
    assert np.allclose(ours.predict(NEW), theirs.predict(NEW), rtol=1e-8)
    assert np.isclose(ours.log_marginal_likelihood, theirs.log_marginal_likelihood_value_, rtol=1e-8)


def test_a_linear_network_agrees_with_scikit_learns_dot_product():
    w, b = 0.7, 1.8
    theirs = ConstantKernel(w, "fixed") * DotProduct(np.sqrt(b / w), "fixed")
    theirs = GaussianProcessRegressor(theirs, alpha=NOISE, optimizer=None).fit(X, Y)
    ours = GaussianProcess(MLPKernel((w, 1.0), (b, 0.0), "identity"), NOISE).condition(X, Y)
    for our, their in zip(ours.predict(NEW, return_cov=True), theirs.predict(NEW, return_cov=True), strict=True):
        assert np.allclose(our, their, rtol=1e-8, atol=1e-9)
    assert np.isclose(ours.log_marginal_likelihood, theirs.log_marginal_likelihood_value_, rtol=1e-10)


def test_posterior_is_the_joint_normal_conditioned_on_the_targets():
    """It is computed from the joint precision of all function values. The noise differs between rows and outputs."""
    noise, weights = np.array([0.05, 0.4]), np.stack([WEIGHTS, WEIGHTS[::-1]], axis=1)
    ours = GaussianProcess(RELU, noise).condition(X, Y, weights)
    mean, covariance = ours.predict(NEW, return_cov=True)
    joint_prior = gram(RELU, np.concatenate([NEW, X]))
    for k in range(2):
        row_noise = np.diag(noise[k] / weights[:, k])
        joint = joint_prior + linalg.block_diag(np.zeros((7, 7)), row_noise)
        precision = np.linalg.inv(joint)
        expected = np.linalg.inv(precision[:7, :7])
        assert np.allclose(covariance[..., k], expected, rtol=1e-8, atol=1e-9)
        assert np.allclose(mean[:, k], -expected @ precision[:7, 7:] @ Y[:, k], rtol=1e-8)
    normals = [stats.multivariate_normal(cov=gram(RELU, X) + np.diag(noise[k] / weights[:, k])) for k in range(2)]
    expected = sum(normal.logpdf(Y[:, k]) for k, normal in enumerate(normals))
    assert np.isclose(GaussianProcess(RELU, noise).log_marginal_likelihood(X, Y, weights), expected, rtol=1e-10)


def test_outputs_are_independent():
    together = GaussianProcess(RELU, np.array([0.05, 0.4])).condition(X, Y).predict(NEW, return_std=True)
    for k, noise in enumerate((0.05, 0.4)):
        alone = GaussianProcess(RELU, noise).condition(X, Y[:, [k]]).predict(NEW, return_std=True)
        for both, one in zip(together, alone, strict=True):
            assert np.allclose(both[:, [k]], one, rtol=1e-12)


def test_a_whole_number_as_weight_has_the_effect_of_repeated_rows():
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
def test_gradient_of_the_evidence_agrees_with_finite_differences(name):
    import jax

    kernel, noise, step = KERNELS[name], np.array([0.05, 0.4]), 1e-5
    found = GaussianProcess(kernel, noise).evidence(X, Y, WEIGHTS)

    def value(kernel, noise):
        return GaussianProcess(kernel, noise).log_marginal_likelihood(X, Y, WEIGHTS)

    assert found.value == value(kernel, noise)
    for k in range(2):
        change = step * np.eye(2)[k]
        difference = (value(kernel, noise + change) - value(kernel, noise - change)) / (2 * step)
        assert np.isclose(found.noise_gradient[k], difference, rtol=1e-5)
    leaves, structure = jax.tree.flatten(kernel)
    tolerance = 2e-2 if name == "relu tangent" else 1e-5  # rounding of the angle between equal rows
    for i, derivative in enumerate(jax.tree.leaves(found.kernel_gradient)):
        above, below = (
            value(jax.tree.unflatten(structure, [leaf + (i == j) * h for j, leaf in enumerate(leaves)]), noise)
            for h in (step, -step)
        )
        assert np.isclose(derivative, (above - below) / (2 * step), rtol=1e-5, atol=tolerance)


def test_samples_have_the_right_mean_and_covariance():
    n_samples = 20_000
    prior, posterior = GaussianProcess(RELU, NOISE), GaussianProcess(RELU, NOISE).condition(X, Y)
    cases = [
        (prior.sample(NEW, n_samples, n_outputs=2), np.zeros((7, 2)), np.repeat(gram(RELU, NEW)[..., None], 2, -1)),
        (posterior.sample(NEW, n_samples, seed=1), *posterior.predict(NEW, return_cov=True)),
    ]
    for draws, mean, covariance in cases:
        assert draws.shape == (n_samples, 7, 2)
        assert_mean_and_covariance(draws[..., 0], mean[:, 0], covariance[..., 0])
        assert_mean_and_covariance(draws[..., 1], mean[:, 1], covariance[..., 1])
        assert np.abs(np.corrcoef(draws[:, 0, 0], draws[:, 0, 1])[0, 1]) < 5 / n_samples**0.5  # independent outputs


def assert_mean_and_covariance(draws, mean, covariance):
    """Check that each entry of the sample mean and covariance is within five standard errors."""
    n, variance = len(draws), np.diag(covariance)
    assert np.all(np.abs(draws.mean(0) - mean) < 5 * np.sqrt(variance / n))
    standard_error = np.sqrt((np.outer(variance, variance) + covariance**2) / n)
    assert np.all(np.abs(np.cov(draws.T) - covariance) < 5 * standard_error)


def test_predictions_do_not_depend_on_the_size_of_chunks(monkeypatch):
    from anchored.exact import processes

    conditioned = GaussianProcess(RELU, NOISE).condition(X, Y)
    in_one_chunk = conditioned.predict(NEW, return_std=True)
    monkeypatch.setattr(processes, "CHUNK_SIZE", 3)
    for one, other in zip(in_one_chunk, conditioned.predict(NEW, return_std=True), strict=True):
        assert np.allclose(one, other, rtol=1e-12)
    assert conditioned.predict(NEW[:0]).shape == (0, 2)


def test_jitter_is_added_to_a_singular_covariance_with_a_warning():
    linear = MLPKernel((1.0,), (0.0,))  # its matrix of 20 rows in 3 dimensions has rank 3
    with pytest.warns(RuntimeWarning, match=r"ill-conditioned.*larger noise_variance"):
        conditioned = GaussianProcess(linear, 0.0).condition(X, X @ np.ones((3, 1)))
    assert np.allclose(conditioned.predict(NEW), NEW @ np.ones((3, 1)), atol=1e-4)


def test_a_matrix_that_is_not_a_covariance_is_refused():
    with pytest.raises(linalg.LinAlgError, match=r"3 rows holds NaN.*values out of range"):
        cholesky(np.full((3, 3), np.nan))
    with pytest.raises(linalg.LinAlgError, match=r"3 rows is not positive definite.*Raise noise_variance"):
        cholesky(np.diag([1.0, 1.0, -1.0]))
    with pytest.raises(linalg.LinAlgError, match="NaN"):
        GaussianProcess(MLPKernel((np.nan, 1.0), (1.0, 0.0)), NOISE).condition(X, Y)


def test_invalid_arguments_are_refused():
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
        with pytest.raises(ValueError, match="weights must have the shape"):
            process.condition(X, Y, weights)
    with pytest.raises(ValueError, match="return_std and return_cov"):
        process.condition(X, Y).predict(NEW, return_std=True, return_cov=True)


FOLDER = Path(os.environ.get(datasets.DATA_VARIABLE, "not set"))
# Table of arXiv 1810.05546: noise variance, b, RMSE and NLL, the last two with their standard errors, as printed
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
    reason=f"needs the UCI files: set {datasets.DATA_VARIABLE} to the folder that contains uci/",
)
@pytest.mark.parametrize(("name", "activation"), PUBLISHED)
def test_scores_agree_with_the_published_table_in_every_printed_digit(name, activation):
    """They are means over the authors' twenty splits. As in their code, data are standardised with all rows."""
    noise, b, rmse, nll = PUBLISHED[name, activation]
    table = datasets.load(name, FOLDER)
    y_mean, y_std = table.y.mean(), table.y.std()
    inputs, targets = (table.X - table.X.mean(0)) / table.X.std(0), ((table.y - y_mean) / y_std)[:, None]
    process = GaussianProcess(MLPKernel((b / inputs.shape[1], 1.0), (b, 0.0), activation), noise)
    n_train = round(0.9 * len(inputs))
    scores = []
    for seed in range(1000, 1020):
        order = np.random.RandomState(seed).permutation(len(inputs))
        train, test = order[:n_train], order[n_train:]
        mean, std = process.condition(inputs[train], targets[train]).predict(inputs[test], return_std=True)
        mean, std = mean[:, 0] * y_std + y_mean, np.sqrt(std[:, 0] ** 2 + noise) * y_std
        error = np.sqrt(np.mean((table.y[test] - mean) ** 2))
        scores.append((error, -np.mean(stats.norm.logpdf(table.y[test], mean, std))))
    means, errors = np.mean(scores, axis=0), np.std(scores, axis=0, ddof=1) / 20**0.5
    assert [f"{mean:.2f} {error:.2f}" for mean, error in zip(means, errors)] == [rmse, nll]
