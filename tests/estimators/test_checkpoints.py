"""A fit with `checkpoint` continues where it stopped, with the bits of one that was not interrupted."""

import jax
import numpy as np
import pytest

from anchored import AnchoredClassifier, AnchoredRegressor
from anchored.errors import ArgumentError
from anchored.inference import checkpoints
from anchored.inference.solvers import first_order

pytestmark = pytest.mark.usefixtures("unoptimised")
FIXED = {"hidden_layer_sizes": (8,), "max_iter": 40, "batch_size": 16, "random_state": 3}
N_MEMBERS = 7  # in two blocks


class KilledError(Exception):
    """Raised in the place of a signal that kills the process."""


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(70, 4))
    return X, np.sin(X[:, 0]) + 0.1 * rng.normal(size=70)


@pytest.fixture(scope="module")
def whole(table):
    """An estimator that was fitted without interruption."""
    return AnchoredRegressor(N_MEMBERS, **FIXED).fit(*table)


def members(estimator):
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(estimator.posterior_.members)]


def assert_same(one, other):
    assert members(one) == members(other)
    assert one.loss_curve_ == other.loss_curve_
    assert one.noise_variance_ == other.noise_variance_


@pytest.fixture
def killed_after(monkeypatch):
    """A function that makes the nth call of the training program fail, and stores states after every call."""
    run_steps = first_order._run_steps
    monkeypatch.setattr(checkpoints, "SECONDS_BETWEEN_STATES", 0.0)
    monkeypatch.setattr(first_order, "SECONDS_PER_CALL", 1e-9)  # a few steps per call

    def kill(n_calls):
        calls = iter(range(n_calls))

        def run(*arguments):
            if next(calls, None) is None:
                raise KilledError
            return run_steps(*arguments)

        monkeypatch.setattr(first_order, "_run_steps", run)

    return kill


def test_a_fit_continues_wherever_it_was_cut(table, whole, tmp_path, killed_after):
    n_cuts = 0
    while True:
        killed_after(31)
        try:
            fitted = AnchoredRegressor(N_MEMBERS, **FIXED).fit(*table, checkpoint=tmp_path / "kept")
        except KilledError:
            n_cuts += 1
            continue
        break
    assert n_cuts >= 5
    assert_same(fitted, whole)
    names = {path.suffix for path in (tmp_path / "kept").iterdir()}
    assert names == {".json", checkpoints.SUFFIX}


def test_a_finished_fit_is_not_trained_again(table, tmp_path, killed_after):
    fixed = FIXED | {"noise_variance": 0.01, "prior_scale": 1.0, "input_encoding": "standard"}
    first = AnchoredRegressor(N_MEMBERS, **fixed).fit(*table, checkpoint=tmp_path / "kept")
    killed_after(0)
    assert_same(AnchoredRegressor(N_MEMBERS, **fixed).fit(*table, checkpoint=tmp_path / "kept"), first)


def test_early_stopping_and_retries_continue(table, tmp_path, killed_after):
    labels = table[1] > 0
    fixed = FIXED | {"early_stopping": True, "n_iter_no_change": 3, "learning_rate_init": 0.5, "prior_scale": 1.0}
    expected = AnchoredClassifier(2, **fixed).fit(table[0], labels)
    for n_calls in (100, 10_000):
        killed_after(n_calls)
        try:
            found = AnchoredClassifier(2, **fixed).fit(table[0], labels, checkpoint=tmp_path)
        except KilledError:
            assert n_calls == 100
    assert members(found) == members(expected)
    assert found.n_iter_ == expected.n_iter_ < 40


@pytest.mark.parametrize(
    "change, named",
    [
        ({"X": 1.0}, "X"),
        ({"y": 1.0}, "y"),
        ({"max_iter": 41}, r"max_iter \(40 there, 41 here\)"),
        ({"random_state": 4}, "random_state"),
        ({"optimizer": lambda rate: first_order.OPTIMIZERS["adam"](rate)}, "optimizer"),
    ],
)
def test_another_fit_is_refused(table, tmp_path, change, named):
    X, y = table
    AnchoredRegressor(2, **FIXED, noise_variance=0.01, prior_scale=1.0).fit(X, y, checkpoint=tmp_path)
    arguments = FIXED | {name: value for name, value in change.items() if name not in ("X", "y")}
    changed = AnchoredRegressor(2, noise_variance=0.01, prior_scale=1.0, **arguments)
    with pytest.raises(ArgumentError, match=f"with other {named}") as caught:
        changed.fit(X + change.get("X", 0.0), y + change.get("y", 0.0), checkpoint=tmp_path)
    assert caught.value.argument == "checkpoint"


def test_unusable_folders_are_refused(table, tmp_path):
    (tmp_path / "file").write_text("")
    for folder, seed, reason in [
        (tmp_path, 0, "contains other files"),
        (tmp_path / "file", 0, "must be a folder"),
        (tmp_path / "new", None, "needs a seed"),
    ]:
        with pytest.raises(ArgumentError, match=reason):
            AnchoredRegressor(2, random_state=seed).fit(*table, checkpoint=folder)


def test_a_damaged_block_is_named(table, tmp_path):
    model = AnchoredRegressor(2, **FIXED, noise_variance=0.01, prior_scale=1.0)
    model.fit(*table, checkpoint=tmp_path)
    (block, *_) = tmp_path.glob(f"*{checkpoints.SUFFIX}")
    for path in tmp_path.glob(f"*{checkpoints.SUFFIX}"):
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ArgumentError, match=r"damaged.*trained again"):
        model.fit(*table, checkpoint=tmp_path)
    assert block.exists()
