"""Predictions of the estimators and their uncertainty, compared with brute force and known truth."""

import warnings

import jax
import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold

from anchored import AnchoredClassifier, AnchoredRegressor, DivergenceError
from anchored.errors import ArgumentError
from anchored.inference import posterior
from anchored.inference.solvers import first_order
from anchored.inference.solvers.first_order import FirstOrder
from anchored.methods.anchored_ensemble import AnchoredEnsemble
from anchored.metrics import expected_calibration_error

QUICK = {
    "n_estimators": 5,
    "max_iter": 40,
    "batch_size": 32,
    "prior_scale": 2.0,
    "random_state": 0,
    "hidden_layer_sizes": (50,),
    "activation": "relu",
    "learning_rate_init": 0.03,
}
FIXED = {**QUICK, "noise_variance": 0.01}
CLOSED_FORM = {
    "n_estimators": 10,
    "trainable": "last_layer",
    "noise_variance": 0.01,
    "prior_scale": 2.0,
    "hidden_layer_sizes": (50,),
    "activation": "relu",
    "learning_rate_init": 0.03,
}
FAR = np.array([[6.0, 0.0], [0.0, -6.0], [-6.0, 6.0]])


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(60, 2))
    return X, np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=60)


@pytest.fixture(scope="module")
def fitted(table):
    return AnchoredRegressor(**FIXED).fit(*table)


@pytest.fixture(scope="module")
def two_outputs(table):
    X, y = table
    rng = np.random.default_rng(1)
    both = np.c_[y, 100 + 50 * X[:, 1] + 5 * rng.normal(size=60)]
    return AnchoredRegressor(**{**QUICK, "max_iter": 200}, noise_variance=[0.01, 25.0]).fit(X, both), both


# Several outputs


def test_shapes_of_several_outputs(two_outputs, table):
    model, both = two_outputs
    X = table[0][:7]
    mean, std = model.predict(X, return_std=True)
    assert mean.shape == std.shape == (7, 2)
    assert model.predict(X, return_cov=True)[1].shape == (7, 7, 2)
    assert model.sample_y(X, 3).shape == (7, 2, 3)
    assert model.sample_functions()[0](X).shape == (7, 2) and model.sample_functions()[0](X[0]).shape == (2,)
    assert [end.shape for end in model.predict_interval(X)] == [(7, 2), (7, 2)]
    assert model.score(table[0], both) > 0.8


def test_noise_of_several_outputs(two_outputs, table):
    model, _ = two_outputs
    assert np.allclose(model.predict_dist(table[0]).aleatoric_variance, [0.01, 25.0])
    rng = np.random.default_rng(1)
    X = rng.uniform(-2, 2, size=(400, 2))
    both = np.c_[np.sin(2 * X[:, 0]), 100 + 50 * X[:, 1]] + [0.1, 5] * rng.normal(size=(400, 2))
    estimated = AnchoredRegressor(2, (50,), max_iter=100, prior_scale=2.0, random_state=0).fit(X, both)
    assert np.allclose(estimated.noise_variance_ / [0.01, 25.0], 1, atol=4 * np.sqrt(2 / 400))


def test_y_as_one_column_keeps_its_axis(table, fitted):
    X, y = table
    column = AnchoredRegressor(**FIXED).fit(X, y[:, None])
    assert column.predict(X).shape == (60, 1)
    assert np.array_equal(column.predict(X)[:, 0], fitted.predict(X))


# The predictive distribution


def test_epistemic_and_aleatoric_variance(table, fitted):
    X, _ = table
    near, far = fitted.predict_dist(X), fitted.predict_dist(FAR)
    members = np.stack([function(X) for function in fitted.sample_functions(5)])
    assert np.allclose(near.variance, near.epistemic_variance + near.aleatoric_variance)
    assert np.allclose(near.epistemic_variance, members.var(0, ddof=1), rtol=1e-3, atol=1e-6)
    assert np.allclose(near.aleatoric_variance, 0.01)
    assert np.allclose(near.std, fitted.predict(X, return_std=True)[1])
    assert far.epistemic_variance.min() > 10 * np.median(near.epistemic_variance)


def test_intervals_of_a_normal(table, fitted):
    X, _ = table
    mean, std = fitted.predict(X, return_std=True)
    lower, upper = fitted.predict_interval(X, coverage=0.9)
    assert np.allclose([lower, upper], [mean - 1.644854 * std, mean + 1.644854 * std], atol=1e-5)


def test_standard_errors_against_independent_ensembles(table):
    """The standard errors of one ensemble match the spread of mean and std over many ensembles."""
    n = 120
    dists = [AnchoredRegressor(**CLOSED_FORM, random_state=seed).fit(*table).predict_dist(FAR) for seed in range(n)]
    for name, error in (("mean", "mean_standard_error"), ("std", "std_standard_error")):
        observed = np.std([getattr(d, name) for d in dists], axis=0, ddof=1)
        predicted = np.sqrt(np.mean([getattr(d, error) ** 2 for d in dists], axis=0))
        assert np.all(np.abs(observed / predicted - 1) < 4 / np.sqrt(2 * n)), name


def test_one_member_has_no_spread(table):
    model = AnchoredRegressor(**{**FIXED, "n_estimators": 1}).fit(*table)
    dist = model.predict_dist(FAR)
    assert np.all(dist.epistemic_variance == 0) and np.allclose(dist.std, 0.1)
    assert np.all(np.isnan(dist.std_standard_error))


def test_covariance_agrees_with_std(table, fitted, two_outputs):
    X, _ = table
    for model in (fitted, two_outputs[0]):
        mean, covariance = model.predict(X, return_cov=True)
        expected, std = model.predict(X, return_std=True)
        assert np.allclose(mean, expected, rtol=1e-5, atol=1e-5)
        assert np.allclose(np.diagonal(covariance).T, std**2, rtol=1e-3)
        assert np.allclose(covariance, np.swapaxes(covariance, 0, 1))
    assert np.linalg.eigvalsh(fitted.predict(X, return_cov=True)[1]).min() > 0.009  # noise on the diagonal


def test_samples_of_y_have_the_predicted_moments(table):
    X, y = table
    n = 4_000
    model = AnchoredRegressor(**{**CLOSED_FORM, "n_estimators": 100}, random_state=0).fit(X, y)
    rows = np.r_[X[:4], FAR]
    mean, std = model.predict(rows, return_std=True)
    draws = model.sample_y(rows, n, random_state=0)
    assert np.all(np.abs(draws.mean(1) - mean) < 4 * std / np.sqrt(n))
    assert np.allclose(draws.std(1), std, rtol=4 * np.sqrt(1 / n) + 0.01)  # samples divide by M, predictions by M − 1
    covariance = model.predict(rows, return_cov=True)[1]
    error = np.sqrt((std[:, None] ** 2 * std**2 + covariance**2) / n)
    assert np.all(np.abs(np.cov(draws) - covariance) < 5 * error + 0.01 * np.abs(covariance))


def test_functions_are_the_members(table, fitted):
    X, _ = table
    functions = fitted.sample_functions(5, random_state=0)
    values = np.stack([function(X) for function in functions])
    assert np.array_equal(values, np.stack([function(X) for function in functions]))
    one_by_one = np.stack([[function(row) for row in X[:4]] for function in functions])
    assert np.allclose(one_by_one, values[:, :4], atol=1e-5)
    scale, mean = fitted.y_standardisation_.scale, fitted.y_standardisation_.mean
    inputs = fitted.x_standardisation_.transform_inputs(X, np.float32, "X")
    outputs = fitted.posterior_.outputs(inputs)[..., 0] * scale + mean
    difference = np.abs(values[:, None] - outputs).max(-1)  # between each function and each member
    assert np.all(difference.min(1) < 1e-5) and sorted(difference.argmin(1)) == [0, 1, 2, 3, 4]
    assert np.allclose(values.mean(0), fitted.predict(X), atol=1e-5)


def test_functions_have_gradients(fitted):
    function, x = fitted.sample_functions(random_state=0)[0], np.array([0.3, -0.4])
    step = 1e-2 * np.eye(2)
    differences = [(function(x + h) - function(x - h)) / 2e-2 for h in step]
    assert np.allclose(jax.jit(jax.grad(function))(x), differences, rtol=0.05, atol=0.05)


def test_functions_of_a_classifier_are_probabilities(table):
    X, y = table
    model = AnchoredClassifier(**QUICK, temperature=0.3).fit(X, y > 0)
    values = np.stack([function(X) for function in model.sample_functions(5)])
    assert np.allclose(values.sum(-1), 1, atol=1e-5)
    assert np.allclose(values.mean(0), model.predict_proba(X), atol=1e-5)
    dist = model.predict_dist(X)
    assert np.allclose(dist.total_entropy, dist.aleatoric_entropy + dist.epistemic_entropy, atol=1e-5)


def test_many_rows_are_predicted_in_chunks(table, fitted, monkeypatch):
    X = np.tile(table[0], (5, 1))
    whole = fitted.predict_dist(X)
    monkeypatch.setattr(posterior, "MIN_ROWS", 16)
    monkeypatch.setattr(posterior, "UNITS_PER_CHUNK", 2)
    chunked = fitted.predict_dist(X)
    for name in ("mean", "epistemic_variance", "aleatoric_variance"):
        assert np.allclose(getattr(chunked, name), getattr(whole, name), rtol=1e-4, atol=1e-6)
    assert np.allclose(fitted.sample_y(X, 2), fitted.sample_y(X, 2))


# Estimated noise


def noisy(kind, seed):
    """A sine with noise that varies with x, or is constant."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, size=(400, 1))
    std = 0.2 * np.exp(1.5 * x[:, 0]) if kind == "varies" else np.full(400, 0.3)
    return x, np.sin(2 * x[:, 0]) + std * rng.normal(size=400)


@pytest.mark.parametrize("noise_variance", ["auto", "heteroscedastic"])
def test_noise_that_varies_is_recovered(noise_variance):
    model = AnchoredRegressor(2, (50,), max_iter=200, prior_scale=2.0, noise_variance=noise_variance, random_state=0)
    model.fit(*noisy("varies", 0))
    found = np.sqrt(model.predict_dist([[-0.9], [0.0], [0.9]]).aleatoric_variance)
    ratio = found / (0.2 * np.exp(1.5 * np.array([-0.9, 0.0, 0.9])))
    assert model.noise_model_ is not None
    assert np.all((ratio > 0.7) & (ratio < 1.4)) and found[2] / found[0] > 0.6 * np.exp(2.7)


def test_noise_that_does_not_vary_is_recovered():
    """On several data sets, since on some a noise model is a little better by chance."""
    settings = {"n_estimators": 2, "hidden_layer_sizes": (50,), "max_iter": 100, "prior_scale": 1.0, "random_state": 0}
    found = [AnchoredRegressor(**settings).fit(*noisy("constant", seed)).noise_variance_ for seed in range(4)]
    assert abs(np.mean(found) / 0.09 - 1) < 0.15
    assert np.all(np.abs(np.array(found) / 0.09 - 1) < 4 * np.sqrt(2 / 400) + 0.15)


def test_randomized_anchoring_is_wider_at_the_data(table):
    X, _ = table
    settings = {**CLOSED_FORM, "n_estimators": 100, "noise_variance": 0.1, "random_state": 0}
    prior, randomized = (
        AnchoredRegressor(**settings, anchoring=anchoring).fit(*table).predict_dist(X).epistemic_variance
        for anchoring in ("prior", "randomized")
    )
    assert np.mean(randomized) > 1.4 * np.mean(prior) and np.mean(randomized > prior) > 0.9


# Classification


def test_digits_accuracy_and_calibration():
    """One of five folds, a quarter of the epochs, and no encoding; benchmarks/classes.py measures the defaults."""
    X, y = load_digits(return_X_y=True)
    train, test = next(StratifiedKFold(5, shuffle=True, random_state=0).split(X, y))
    model = AnchoredClassifier(max_iter=75, input_encoding="standard", random_state=0)
    probabilities = model.fit(X[train], y[train]).predict_proba(X[test])
    assert np.mean(probabilities.argmax(1) == y[test]) >= 0.97
    assert expected_calibration_error(y[test], probabilities, n_bins=15) <= 0.03


# partial_fit


def test_partial_fit_approximates_fit(table):
    X, y = table
    settings = {**FIXED, "max_iter": 400, "batch_size": 10, "learning_rate_init": 0.01}
    whole = AnchoredRegressor(**settings).fit(X, y)
    stream = AnchoredRegressor(**settings)
    before = None
    for i in range(80):
        rows = slice(30 * (i % 2), 30 * (i % 2 + 1))
        stream.partial_fit(X[rows], y[rows])
        if before is None:
            before = (stream.anchors_, stream.posterior_.members)
            first_error = np.sqrt(np.mean((stream.predict(X) - whole.predict(X)) ** 2))
    assert stream.n_rows_seen_ == 80 * 30
    for a, b in zip(*map(jax.tree.leaves, (before[0], stream.anchors_)), strict=True):
        assert np.array_equal(a, b)
    for a, b in zip(*map(jax.tree.leaves, (before[1], stream.posterior_.members)), strict=True):
        assert not np.array_equal(a, b)
    error = np.sqrt(np.mean((stream.predict(X) - whole.predict(X)) ** 2))
    assert error < 0.15 and error < first_error / 3


# Training


def test_early_stopping(table):
    X, _ = table
    noise = np.random.default_rng(0).normal(size=60)  # nothing to learn, so that the held-out loss soon rises
    model = AnchoredRegressor(**{**FIXED, "max_iter": 500}, early_stopping=True, n_iter_no_change=5).fit(X, noise)
    assert model.n_iter_ < 500 and len(model.loss_curve_) == model.n_iter_
    assert model._held_out(model._standardised_data(X, noise, np.ones(60))).sum() == 6


def test_copies_of_a_row_are_held_out_together(table):
    X, y = (part[np.arange(60) % 10] for part in table)  # ten different rows, with six copies each
    model = AnchoredRegressor(**FIXED, early_stopping=True).fit(X, y)
    held_out = model._held_out(model._standardised_data(X, y, np.ones(60)))
    assert held_out.sum() == 6 and np.array_equal(held_out, np.tile(held_out[:10], 6))
    with pytest.raises(
        ArgumentError, match="none of the 60 rows would then remain to train on; set early_stopping=False"
    ):
        model.fit(X[:1].repeat(60, axis=0), y[:1].repeat(60))


def test_held_out_rows_are_not_trained_on(table, fitted):
    """An epoch with held-out rows equals an epoch in which these rows have weight zero."""
    X, y = table
    data, held_out = fitted._standardised_data(X, y, np.ones(60)), np.arange(60) % 10 == 3
    one, two = (
        AnchoredEnsemble(2, solver=FirstOrder(max_iter=1, early_stopping=stop)).fit(
            jax.random.key(0), fitted.posterior_.model, data._replace(weights=weights), held_out=mask, will_resume=True
        )
        for stop, mask, weights in (
            (True, held_out, data.weights),
            (False, None, np.where(held_out[:, None], 0, data.weights)),
        )
    )
    for a, b in zip(*map(jax.tree.leaves, (one.members, two.members)), strict=True):
        assert np.allclose(a, b, atol=1e-6)


def test_a_warning_names_members_that_did_not_converge(table):
    with pytest.warns(ConvergenceWarning, match=r"members 0, 1.*max_iter=3 epochs\. Raise max_iter"):
        AnchoredRegressor(**{**FIXED, "max_iter": 3, "learning_rate_init": 0.1}).fit(*table)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        AnchoredRegressor(**{**FIXED, "max_iter": 400}).fit(*table)


def test_members_that_diverge_are_retried(table):
    sgd = {**FIXED, "optimizer": "sgd"}
    del sgd["learning_rate_init"]
    with pytest.warns(ConvergenceWarning, match=r"members 0, 1.*; training again with a learning rate of 0\.01"):
        model = AnchoredRegressor(**sgd, learning_rate_init=1.0).fit(*table)
    mean, std = model.predict(table[0], return_std=True)
    assert np.all(np.isfinite(mean)) and np.all(np.isfinite(std)) and model.score(*table) > 0.1
    with (
        pytest.warns(ConvergenceWarning, match="training again"),
        pytest.raises(DivergenceError, match=r"members 0, 1.*learning_rate_init"),
    ):
        AnchoredRegressor(**sgd, learning_rate_init=1e6).fit(*table)


def test_verbose_shows_epochs_and_loss(table, capsys, monkeypatch):
    monkeypatch.setattr(first_order, "SECONDS_PER_CALL", 1e-9)
    AnchoredRegressor(**FIXED).fit(*table)
    assert capsys.readouterr().out == ""
    AnchoredRegressor(**FIXED, verbose=1).fit(*table)
    printed = capsys.readouterr()
    assert "training members" in printed.out and "40/40 epochs" in printed.out and "loss 0." in printed.out
    assert printed.err == ""
