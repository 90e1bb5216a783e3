"""What a fit leaves behind: nothing half-done, nothing mixed, nothing that explodes away from the data."""

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


def test_a_failed_refit_leaves_no_half_model(waves):
    X, y = waves
    model = AnchoredRegressor(**FIXED).fit(X, y)
    with pytest.raises(DivergenceError):
        model.set_params(optimizer="sgd", learning_rate_init=1e12).fit(X, 1000 + y)
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_rejected_growth_changes_nothing(waves):
    X, y = waves
    model = AnchoredRegressor(**FIXED, warm_start=True).fit(X, y)
    before = model.predict(X)
    with pytest.raises(ValueError, match="features"):
        model.set_params(n_estimators=4).fit(X[:, :1], y)
    assert np.array_equal(model.predict(X), before)


def test_growth_does_not_mix_configurations(waves):
    model = AnchoredRegressor(**FIXED, warm_start=True).fit(*waves)
    with pytest.raises(ValueError, match="anchoring"):
        model.set_params(n_estimators=4, anchoring="randomized").fit(*waves)


def test_declared_classes_do_not_outlive_a_failed_call(waves):
    X, y = waves
    model = AnchoredClassifier(n_estimators=2, max_iter=5, prior_scale=1.0, temperature=1.0)
    with pytest.raises(ValueError, match="NaN"):
        model.partial_fit(np.full_like(X, np.nan), (y > 0).astype(int), classes=[0, 1, 2])
    assert model.fit(X, y > 0).classes_.tolist() == [False, True]


def test_last_layer_goes_on_in_partial_fit(waves):
    X, y = waves
    model = AnchoredRegressor(**FIXED, trainable="last_layer")
    score = model.fit(X, y).score(X, y)
    model.set_params(learning_rate_init=1e-3).partial_fit(X[:5], y[:5])
    assert model.score(X, y) > score - 0.05


def test_noise_model_is_bounded_far_away():
    """A log-variance that went on in a straight line would overflow here."""
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


def test_one_member_does_not_claim_to_be_exact(waves):
    X, y = waves
    predictive = AnchoredRegressor(**{**FIXED, "n_estimators": 1}).fit(X, y).predict_dist(X)
    assert np.all(np.isnan(predictive.mean_standard_error))
    assert np.all(predictive.epistemic_variance == 0)


@pytest.mark.parametrize("scale", [[2.0, 1.0], np.array([2.0, 1.0]), (2, 1), 2])
def test_prior_scale_in_any_form(waves, scale):
    model = AnchoredRegressor(**{**FIXED, "prior_scale": scale}).fit(*waves)
    same = AnchoredRegressor(**FIXED).fit(*waves)
    assert np.array_equal(model.predict(waves[0]), same.predict(waves[0]))


def test_functions_survive_large_offsets(waves):
    X, y = waves
    model = AnchoredRegressor(**FIXED).fit(X + 1e8, y)
    mean = np.mean([f(X + 1e8) for f in model.sample_functions(3)], axis=0)
    assert np.allclose(mean, model.predict(X + 1e8), atol=1e-4)


def test_weights_count_in_a_stream(waves):
    X, y = waves
    model = AnchoredRegressor(**FIXED).partial_fit(X, y, sample_weight=np.full(60, 10.0))
    assert (model.n_rows_seen_, model.weight_seen_) == (60, 600)


def test_closed_form_reports_its_loss(waves):
    model = AnchoredRegressor(**FIXED, trainable="last_layer", early_stopping=True).fit(*waves)
    assert model.loss_curve_[0] > 0
    everything = AnchoredRegressor(**FIXED, trainable="last_layer").fit(*waves)
    assert np.array_equal(model.predict(waves[0]), everything.predict(waves[0]))  # there is nothing to stop early
