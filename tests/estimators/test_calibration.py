"""Class probabilities are calibrated on held-out rows."""

import numpy as np
import pytest
from scipy import optimize, special

from anchored import AnchoredClassifier, load
from anchored.estimators import calibration
from anchored.estimators.selection import PilotTrainer
from anchored.model.likelihoods import Categorical
from anchored.types import Data


def found_temperature(monkeypatch, logits, targets):
    """The temperature that is found for pilot members with these out-of-fold logits, (members, rows, classes)."""
    monkeypatch.setattr(PilotTrainer, "out_of_fold", lambda *_, **__: logits[None])
    data = Data(np.zeros((len(targets), 1)), targets, np.ones((len(targets), 1)))
    return calibration.predictive_temperature(PilotTrainer(None, None, data, 0), None)


@pytest.mark.parametrize("true", [0.7, 1.0, 1.6])
def test_the_true_temperature_is_found(monkeypatch, true):
    """Labels are drawn with logits divided by the true temperature. The estimate is the maximum-likelihood one."""
    rng = np.random.default_rng(0)
    logits = 2 * rng.normal(size=(5000, 3))
    p = special.softmax(logits / true, axis=1)
    targets = (p.cumsum(1) > rng.uniform(size=(5000, 1))).argmax(1)
    found = found_temperature(monkeypatch, logits[None], targets)
    scores = [np.log(special.softmax(logits / t, axis=1)[np.arange(5000), targets]).sum() for t in (found, 1.0)]
    best = optimize.minimize_scalar(
        lambda t: -np.log(special.softmax(logits / t, axis=1)[np.arange(5000), targets]).sum(), bounds=(0.5, 2)
    )
    assert abs(found - true) < 0.08  # 4 standard errors
    assert found == 1.0 or (scores[0] == pytest.approx(-best.fun, abs=0.01) and scores[0] > scores[1] + 1)


def test_a_gain_by_chance_is_ignored(monkeypatch):
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(40, 2))
    p = special.softmax(logits, axis=1)
    found = [
        found_temperature(monkeypatch, logits[None], (p.cumsum(1) > rng.uniform(size=(40, 1))).argmax(1))
        for _ in range(40)
    ]
    assert np.mean(np.array(found) == 1.0) > 0.7  # 84 % in theory: χ²₁ < 2


def test_the_temperature_is_used_and_saved_unless_one_is_given(tmp_path):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(150, 2))
    y = X[:, 0] + 0.8 * rng.normal(size=150) > 0
    settings = {"n_estimators": 3, "max_iter": 40, "hidden_layer_sizes": (20,), "prior_scale": 2.0, "random_state": 0}
    model = AnchoredClassifier(**settings).fit(X, y)
    likelihood = model.posterior_.model.likelihood
    assert isinstance(likelihood, Categorical) and model.predictive_temperature_ == likelihood.predictive_temperature
    logits = np.asarray(model.posterior_.outputs(model._standardised_inputs(X))) / model.predictive_temperature_
    by_member = special.softmax(logits.astype(np.float64), axis=-1)
    assert np.allclose(model.predict_proba(X), by_member.mean(0), atol=1e-6)
    functions = model.sample_functions(3)
    assert np.allclose(np.mean([function(X) for function in functions], axis=0), by_member.mean(0), atol=1e-5)
    model.save(tmp_path / "model")
    assert np.array_equal(load(tmp_path / "model").predict_proba(X), model.predict_proba(X))
    given = AnchoredClassifier(**settings, temperature=model.temperature_).fit(X, y)
    assert given.predictive_temperature_ == 1.0
