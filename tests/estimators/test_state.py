"""The state of estimators after fits that succeed, fail or are continued."""

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from anchored import AnchoredClassifier, AnchoredRegressor, DivergenceError

pytestmark = pytest.mark.usefixtures("unoptimised")
FIXED = {
    "n_estimators": 3,
    "max_iter": 20,
    "hidden_layer_sizes": (50,),
    "batch_size": 32,
    "noise_variance": 0.01,
    "prior_scale": 2.0,
    "random_state": 0,
}


def test_an_estimator_is_not_fitted_after_a_failed_fit(waves):
    X, y = waves
    model = AnchoredRegressor(**FIXED).fit(X, y)
    with pytest.raises(DivergenceError):
        model.set_params(optimizer="sgd", learning_rate_init=1e12).fit(X, 1000 + y)
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_a_failed_warm_start_changes_nothing(waves):
    X, y = waves
    model = AnchoredRegressor(**FIXED, warm_start=True).fit(X, y)
    before = model.predict(X)
    with pytest.raises(ValueError, match="features"):
        model.set_params(n_estimators=4).fit(X[:, :1], y)
    assert np.array_equal(model.predict(X), before)


def test_warm_start_needs_the_same_arguments(waves):
    model = AnchoredRegressor(**FIXED, warm_start=True).fit(*waves)
    with pytest.raises(ValueError, match="anchoring"):
        model.set_params(n_estimators=4, anchoring="randomized").fit(*waves)


def test_classes_of_a_failed_partial_fit_are_forgotten(waves):
    X, y = waves
    model = AnchoredClassifier(2, (50,), max_iter=5, prior_scale=1.0, temperature=1.0)
    with pytest.raises(ValueError, match="NaN"):
        model.partial_fit(np.full_like(X, np.nan), (y > 0).astype(int), classes=[0, 1, 2])
    assert model.fit(X, y > 0).classes_.tolist() == [False, True]


def test_partial_fit_continues_a_last_layer_fit(waves):
    X, y = waves
    model = AnchoredRegressor(**FIXED, trainable="last_layer")
    score = model.fit(X, y).score(X, y)
    model.set_params(learning_rate_init=1e-3).partial_fit(X[:5], y[:5])
    assert model.score(X, y) > score - 0.05


def test_the_noise_model_is_bounded_far_from_the_data():
    """A log-variance that continued as a straight line would overflow here."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(200, 1))
    y = 0.2 * np.exp(1.5 * X[:, 0]) * rng.normal(size=200)
    settings = {"noise_variance": "heteroscedastic", "prior_scale": 2.0, "max_iter": 100, "random_state": 0}
    model = AnchoredRegressor(3, (20,), **settings).fit(X, y)
    noise = model.predict_dist(np.array([[-1e6], [-10], [10], [1e6]])).aleatoric_variance
    middle = model.noise_model_.model.likelihood.base_variance * model.y_standardisation_.scale**2
    assert np.all(noise > middle * np.exp(-4.001))
    assert np.all(noise < middle * np.exp(4.001))
    assert model.noise_variance_ == pytest.approx(model.predict_dist(X).aleatoric_variance.mean(), rel=0.3)


def test_one_member_has_no_standard_error(waves):
    X, y = waves
    predictive = AnchoredRegressor(**{**FIXED, "n_estimators": 1}).fit(X, y).predict_dist(X)
    assert np.all(np.isnan(predictive.mean_standard_error))
    assert np.all(predictive.epistemic_variance == 0)


@pytest.mark.parametrize("scale", [[2.0, 1.0], np.array([2.0, 1.0]), (2, 1), 2])
def test_types_of_prior_scale(waves, scale):
    model = AnchoredRegressor(**{**FIXED, "prior_scale": scale}).fit(*waves)
    same = AnchoredRegressor(**FIXED).fit(*waves)
    assert np.array_equal(model.predict(waves[0]), same.predict(waves[0]))


def test_functions_of_inputs_with_a_large_mean(waves):
    X, y = waves
    model = AnchoredRegressor(**FIXED).fit(X + 1e8, y)
    mean = np.mean([f(X + 1e8) for f in model.sample_functions(3)], axis=0)
    assert np.allclose(mean, model.predict(X + 1e8), atol=1e-4)


def test_weights_in_partial_fit(waves):
    X, y = waves
    model = AnchoredRegressor(**FIXED).partial_fit(X, y, sample_weight=np.full(60, 10.0))
    assert (model.n_rows_seen_, model.weight_seen_) == (60, 600)


def test_the_closed_form_has_a_loss_and_ignores_early_stopping(waves):
    model = AnchoredRegressor(**FIXED, trainable="last_layer", early_stopping=True).fit(*waves)
    assert model.loss_curve_[0] > 0
    on_all_rows = AnchoredRegressor(**FIXED, trainable="last_layer").fit(*waves)
    assert np.array_equal(model.predict(waves[0]), on_all_rows.predict(waves[0]))
