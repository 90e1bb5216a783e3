"""Member i depends only on (seed, i, data, configuration), bit for bit."""

import jax
import numpy as np
import pytest
from joblib import parallel_config

from anchored import AnchoredRegressor
from anchored.inference.solvers import blocks

pytestmark = pytest.mark.usefixtures("optimised")
FIXED = {"noise_variance": 0.01, "prior_scale": 2.0, "max_iter": 12, "batch_size": 16, "random_state": 3}
FIXED["input_encoding"] = "standard"  # `test_automatic_choices_do_not_depend_on_the_number_of_members` tests the choice


def members(estimator):
    """Return the arrays of all members."""
    return jax.tree.leaves(estimator.posterior_.members)


def assert_same(one, other, n):
    """Check that the first `n` members of two estimators are equal."""
    assert all(np.array_equal(a[:n], b[:n]) for a, b in zip(members(one), members(other), strict=True))


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(70, 4))
    return X, np.sin(X[:, 0]) + 0.1 * rng.normal(size=70)


@pytest.fixture(scope="module")
def ten(table):
    """An estimator with ten members."""
    return AnchoredRegressor(n_estimators=10, **FIXED).fit(*table)


def test_members_differ(ten):
    weights = ten.posterior_.members["layer_0"]["weights"]
    assert len({w.tobytes() for w in weights}) == 10


@pytest.mark.parametrize("n", [1, 3, 20])
def test_members_do_not_depend_on_their_number(table, ten, n):
    assert_same(AnchoredRegressor(n_estimators=n, **FIXED).fit(*table), ten, min(n, 10))


@pytest.fixture(scope="module")
def automatic(table):
    """An estimator with two members that chooses its network, encoding, prior and noise."""
    return AnchoredRegressor(n_estimators=2, max_iter=8, random_state=0).fit(*table)


def test_automatic_choices_do_not_depend_on_the_number_of_members(table, automatic):
    more = AnchoredRegressor(n_estimators=6, max_iter=8, random_state=0).fit(*table)
    assert (automatic.prior_scale_, automatic.noise_variance_) == (more.prior_scale_, more.noise_variance_)
    assert_same(automatic, more, 2)


def test_a_warm_start_keeps_members(table, ten):
    grown = AnchoredRegressor(n_estimators=4, warm_start=True, **FIXED).fit(*table)
    before = [leaf.copy() for leaf in members(grown)]
    grown.set_params(n_estimators=10).fit(*table)
    assert all(np.array_equal(a, b[:4]) for a, b in zip(before, members(grown), strict=True))
    assert_same(grown, ten, 10)
    assert np.array(grown.posterior_.record.training.loss_curve).shape == (12, 10)


def test_a_warm_start_with_other_data_or_fewer_members_is_refused(table):
    grown = AnchoredRegressor(n_estimators=2, warm_start=True, **FIXED).fit(*table)
    with pytest.raises(ValueError, match="needs the data of the last fit"):
        grown.set_params(n_estimators=3).fit(table[0], table[1] + 1)
    with pytest.raises(ValueError, match="n_estimators=1"):
        grown.set_params(n_estimators=1).fit(*table)


def test_members_do_not_depend_on_the_number_of_threads(table, ten, monkeypatch):
    monkeypatch.setattr(blocks, "_n_threads", lambda: 1)
    assert_same(AnchoredRegressor(n_estimators=10, **FIXED).fit(*table), ten, 10)


def test_members_do_not_depend_on_how_often_progress_is_reported(table, ten, monkeypatch):
    from anchored.inference.solvers import first_order

    monkeypatch.setattr(first_order, "SECONDS_PER_CALL", 1e-9)
    assert_same(AnchoredRegressor(n_estimators=10, **FIXED).fit(*table), ten, 10)


def test_threads_of_joblib_train_the_same_members(table, ten):
    with parallel_config(backend="threading"):
        assert_same(AnchoredRegressor(n_estimators=10, n_jobs=2, **FIXED).fit(*table), ten, 10)


def test_a_second_fit_makes_the_same_choices_and_gives_the_same_members(table, automatic):
    again = AnchoredRegressor(n_estimators=2, max_iter=8, random_state=0).fit(*table)
    assert again.candidates_ == automatic.candidates_
    assert_same(again, automatic, 2)
    std, std_again = (model.predict(table[0], return_std=True)[1] for model in (automatic, again))
    assert np.array_equal(std, std_again)
