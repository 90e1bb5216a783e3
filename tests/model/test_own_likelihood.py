"""A user's own likelihood: a Student-t likelihood, defined here as one class, can be trained, saved and loaded."""

from dataclasses import dataclass, replace

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import anchored
from anchored import BayesianRegressor, trees
from anchored.methods import AnchoredEnsemble, FirstOrder
from anchored.model.likelihoods import (
    Categorical,
    Gaussian,
    HeteroscedasticGaussian,
    Likelihood,
    variance_between_members,
)
from anchored.types import Array


@trees.register
@dataclass(frozen=True)
class StudentTNoise(Likelihood):
    """y = f(x) + scale · t, where t has a Student-t distribution: noise with outliers."""

    scale: Array
    degrees_of_freedom: Array

    def negative_log_likelihood(self, outputs, targets):
        z = (targets - outputs) / self.scale
        return 0.5 * (self.degrees_of_freedom + 1) * jnp.log1p(z**2 / self.degrees_of_freedom)

    def summarise(self, outputs):
        variance = self.scale**2 * self.degrees_of_freedom / (self.degrees_of_freedom - 2)
        return outputs.mean(0), variance_between_members(outputs), jnp.broadcast_to(variance, outputs.shape[1:])

    def rescaled(self, scale):
        return replace(self, scale=self.scale / scale)


@pytest.fixture(scope="module")
def outliers():
    """Inputs, targets and true values of a sine wave of amplitude 100; 300 is added to every tenth target."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, size=(200, 1))
    wave = 100 * np.sin(2 * x[:, 0])
    y = wave + rng.normal(size=200) + 300 * (np.arange(200) % 10 == 0)
    return x, y, wave


def fitted(likelihood, x, y):
    """Return a regressor that is fitted with `likelihood`."""
    method = AnchoredEnsemble(5, solver=FirstOrder(learning_rate=0.03, max_iter=300))
    return BayesianRegressor(method, likelihood, prior_scale=3.0, random_state=0).fit(x, y)


@pytest.fixture(scope="module")
def robust(outliers):
    """A regressor with the Student-t likelihood, fitted to the data with outliers."""
    return fitted(StudentTNoise(1.0, 3.0), *outliers[:2])


def test_negative_log_likelihood_agrees_with_scipy_up_to_a_constant():
    likelihood, targets = StudentTNoise(2.0, 3.0), np.linspace(-9, 9, 7)[:, None]
    expected = -stats.t.logpdf(targets, 3.0, 0.5, 2.0)
    found = np.asarray(likelihood.negative_log_likelihood(np.full((7, 1), 0.5), targets))
    assert np.allclose(found - found[0], expected - expected[0], rtol=1e-5)


def test_outliers_mislead_a_gaussian_but_not_a_student_t_likelihood(outliers, robust):
    x, y, wave = outliers
    gaussian = fitted(Gaussian(1.0), x, y)
    assert np.abs(robust.predict(x) - wave).mean() < 5 < np.abs(gaussian.predict(x) - wave).mean()


def test_the_aleatoric_variance_is_that_of_the_noise_in_units_of_y(outliers, robust):
    predictive = robust.predict_dist(outliers[0])
    assert np.allclose(predictive.aleatoric_variance, stats.t.var(3.0, scale=1.0), rtol=1e-4)
    assert np.isclose(robust.noise_variance_, stats.t.var(3.0, scale=1.0), rtol=1e-4)
    with pytest.raises(AttributeError, match="likelihood StudentTNoise has no training noise variance"):
        _ = robust.training_noise_variance_


def test_the_fields_are_saved_and_loaded(outliers, robust, tmp_path):
    robust.save(tmp_path / "model")
    loaded = anchored.load(tmp_path / "model")
    assert isinstance(loaded.likelihood, StudentTNoise) and loaded.likelihood == robust.likelihood
    assert loaded.posterior_.target.likelihood == robust.posterior_.target.likelihood
    assert np.array_equal(loaded.predict(outliers[0], return_std=True), robust.predict(outliers[0], return_std=True))


def test_invalid_likelihoods_are_refused():
    X, y = np.zeros((5, 1)), np.arange(5.0)
    for likelihood, reason in (
        (StudentTNoise(1.0, -3.0), "degrees_of_freedom must be positive"),
        (StudentTNoise(np.ones(2), 3.0), "scale must be one number"),
        (Categorical(1.0), "must be an instance of .*Gaussian"),
        (HeteroscedasticGaussian(), "needs 2 network outputs per output of y"),
    ):
        with pytest.raises(ValueError, match=f"likelihood.*{reason}"):
            fitted(likelihood, X, y)


def test_the_name_of_an_existing_likelihood_is_refused():
    with pytest.raises(TypeError, match="Gaussian is already the name of a likelihood"):
        type("Gaussian", (Likelihood,), {})
    assert Likelihood.kinds["Gaussian"] is Gaussian


def test_loading_a_likelihood_that_is_not_imported_is_an_error(robust, tmp_path, monkeypatch):
    robust.save(tmp_path / "model")
    monkeypatch.delitem(Likelihood.kinds, "StudentTNoise")
    with pytest.raises(ValueError, match="import the module that defines it first"):
        anchored.load(tmp_path / "model")
