"""Rows that are read in batches and stored on disk give the same fit as the same rows in memory."""

import jax
import numpy as np
import pytest

from anchored import AnchoredClassifier, AnchoredRegressor
from anchored.errors import ArgumentError
from anchored.inference import checkpoints, pieces
from anchored.inference.solvers import first_order

pytestmark = pytest.mark.usefixtures("unoptimised")
N_ROWS = 500
ARGUMENTS = {"n_estimators": 2, "hidden_layer_sizes": (8,), "max_iter": 2, "random_state": 0}


class ArrayStream:
    """A stream of the rows of arrays, in batches of several sizes."""

    def __init__(self, X, y):
        self.X, self.y, self.n_rows, self.labels = X, y, len(y), np.unique(y)
        self.identity = np.zeros(1)

    def first_piece(self):
        part = pieces.first_piece(self.n_rows)
        return self.X[part], self.y[part]

    def batches(self):
        for first, stop in [(0, 1), (1, 130), (130, 499), (499, N_ROWS)]:
            yield self.X[first:stop], self.y[first:stop]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(pieces, "PIECE_ROWS", 200)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N_ROWS, 3)) * [1.0, 100.0, 0.01]
    X[7, 0] = 1e6  # an outlier
    return X, np.sin(X[:, 0]) + X[:, 1] / 100 + 0.1 * rng.normal(size=N_ROWS)


def bits(estimator, X):
    """Return the bits of what was fitted, and of predictions."""
    fitted = jax.tree.leaves((estimator.posterior_.members, estimator.loss_curve_, estimator.prior_scale_))
    return [np.asarray(leaf).tobytes() for leaf in (*fitted, estimator.predict(X[:50]))]


@pytest.mark.parametrize("encoding", ["piecewise_linear", "standard"])
def test_a_regressor_is_the_same_from_memory_and_from_a_stream(table, encoding, tmp_path):
    arguments = {**ARGUMENTS, "input_encoding": encoding}
    in_memory = AnchoredRegressor(**arguments).fit(*table)
    streamed = AnchoredRegressor(**arguments).fit_stream(ArrayStream(*table), tmp_path / "kept")
    assert bits(in_memory, table[0]) == bits(streamed, table[0])
    assert streamed.noise_variance_ == in_memory.noise_variance_
    assert not [path for path in (tmp_path / "kept").rglob("*") if path.suffix not in (".json", ".block")]
    assert streamed.n_rows_seen_ == in_memory.n_rows_seen_ == N_ROWS


def test_a_classifier_knows_a_class_that_is_not_in_the_first_piece(table):
    labels = np.where(table[1] > 0, "high", "low").astype(object)
    outside = np.setdiff1d(np.arange(N_ROWS), np.arange(N_ROWS)[pieces.first_piece(N_ROWS)])
    labels[outside[:3]] = "rare"
    arguments = {**ARGUMENTS, "prior_scale": 1.0, "input_encoding": "standard"}
    in_memory = AnchoredClassifier(**arguments).fit(table[0], labels)
    streamed = AnchoredClassifier(**arguments).fit_stream(ArrayStream(table[0], labels))
    assert in_memory.classes_.tolist() == streamed.classes_.tolist() == ["high", "low", "rare"]
    assert np.array_equal(in_memory.predict_proba(table[0]), streamed.predict_proba(table[0]))


@pytest.mark.parametrize(
    "argument", [{"early_stopping": True}, {"anchoring": "randomized"}, {"trainable": "last_layer"}, {"n_jobs": 2}]
)
def test_what_needs_all_rows_in_memory_is_refused(table, argument):
    with pytest.raises(ArgumentError, match="too many") as caught:
        AnchoredRegressor(**ARGUMENTS | argument).fit_stream(ArrayStream(*table))
    assert caught.value.argument == next(iter(argument))


def test_one_piece_is_fitted_in_memory(table):
    X, y = table[0][:60], table[1][:60]
    stream = ArrayStream(X, y)
    fixed = {**ARGUMENTS, "noise_variance": 0.1, "prior_scale": 1.0, "input_encoding": "standard"}
    streamed = AnchoredRegressor(**fixed).fit_stream(stream)
    assert bits(streamed, X) == bits(AnchoredRegressor(**fixed).fit(X, y), X)


def test_a_fit_that_was_killed_continues(table, tmp_path, monkeypatch):
    fixed = {**ARGUMENTS, "noise_variance": 0.1, "prior_scale": 1.0, "input_encoding": "standard"}
    in_memory = AnchoredRegressor(**fixed).fit(*table)
    kept, run_steps, n_calls = tmp_path / "kept", first_order._run_steps, []

    def killed_in_the_third_call(*arguments):
        n_calls.append(1)
        if len(n_calls) == 3:
            raise KeyboardInterrupt
        return run_steps(*arguments)

    monkeypatch.setattr(first_order, "BYTES_PER_CALL", 1)  # eight steps per call
    monkeypatch.setattr(checkpoints, "SECONDS_BETWEEN_STATES", 0.0)
    monkeypatch.setattr(first_order, "_run_steps", killed_in_the_third_call)
    with pytest.raises(KeyboardInterrupt):
        AnchoredRegressor(**fixed).fit_stream(ArrayStream(*table), kept)
    (kept / "rows").mkdir()  # which a process that is killed leaves behind
    (kept / "rows" / "inputs").write_bytes(b"half written")
    continued = AnchoredRegressor(**fixed).fit_stream(ArrayStream(*table), kept)
    assert bits(continued, table[0]) == bits(in_memory, table[0])
    assert sorted(path.suffix for path in kept.rglob("*")) == [".block", ".json"]
    with pytest.raises(ArgumentError, match="with other y"):
        AnchoredRegressor(**fixed).fit_stream(ArrayStream(table[0], table[1] + 1), kept)
