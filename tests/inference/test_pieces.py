"""Rows in several pieces: how they are dealt, their order of batches, and members from rows in memory and on disk."""

import jax
import numpy as np
import pytest

from anchored.inference import pieces
from anchored.inference.solvers import first_order
from anchored.inference.solvers.batches import Batches
from anchored.inference.solvers.first_order import FirstOrder
from anchored.methods import AnchoredEnsemble
from anchored.model.bayesian_model import BayesianModel
from anchored.model.layered_prior import default_layer_scales, layered_prior
from anchored.model.likelihoods import Gaussian
from anchored.model.networks import MLP
from anchored.types import Data, StoredData

pytestmark = pytest.mark.usefixtures("optimised")


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(pieces, "PIECE_ROWS", 50)
    monkeypatch.setattr(pieces, "ROUNDS_PER_DRAW", 8)


@pytest.mark.parametrize("n", [51, 100, 101, 487])
def test_rows_are_dealt_evenly_and_the_same_from_anywhere(n):
    places = pieces.positions(n, 0, n)
    assert sorted(places) == list(range(n))
    assert all(
        np.array_equal(pieces.positions(n, first, stop), places[first:stop])
        for first, stop in [(0, 7), (13, 51), (3, n), (n - 1, n)]
    )
    assert np.array_equal(places[pieces.rows_in_store(n)], np.arange(n))
    begin, count = pieces.starts(n), pieces.n_pieces(n)
    assert max(np.diff(begin)) <= 50 and np.ptp(np.diff(begin)) <= 1
    piece = np.searchsorted(begin, places, "right") - 1
    rounds = piece[: n // count * count].reshape(-1, count)
    assert (np.sort(rounds, axis=1) == np.arange(count)).all()  # of so many rows in succession, each piece gets one
    assert (rounds != np.arange(count)).any()


def test_an_epoch_visits_every_row_once_and_one_piece_after_the_other():
    n, batch_size = 333, 8
    stored, in_memory = (Batches(jax.random.key(0), n, batch_size, in_store_order=flag) for flag in (True, False))
    n_steps = stored.steps_per_epoch
    for epoch in range(2):
        steps = range(epoch * n_steps, (epoch + 1) * n_steps)
        order = stored.rows(steps.start, steps.stop, n_steps).reshape(-1)
        assert sorted(order[:n]) == list(range(n)) and np.array_equal(order[n:], order[: len(order) - n])
        piece = np.searchsorted(pieces.starts(n), order[:n], "right") - 1
        assert np.count_nonzero(np.diff(piece)) == pieces.n_pieces(n) - 1
        rows = in_memory.rows(steps.start, steps.stop, n_steps).reshape(-1)
        assert np.array_equal(pieces.rows_in_store(n)[order], rows)
        part = in_memory.rows(steps.start + 3, steps.start + 5, 4)
        assert np.array_equal(part[:2].reshape(-1), rows[3 * batch_size : 5 * batch_size])
    assert not np.array_equal(stored.rows(0, 5, 5), stored.rows(n_steps, n_steps + 5, 5))


def test_members_are_the_same_from_memory_and_from_disk_however_many_rows_are_gathered(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    n = 333
    inputs = rng.normal(size=(n, 3)).astype(np.float32)
    weights = rng.uniform(0.1, 2.0, (n, 1)).astype(np.float32)
    data = Data(inputs, np.sin(inputs[:, :1]), weights)
    stored = []
    for name, array in data._asdict().items():
        path = tmp_path / name
        array[pieces.rows_in_store(n)].tofile(path)
        stored.append(np.memmap(path, array.dtype, "r", shape=array.shape))
    network = MLP((8,), 1)
    params = network.init(jax.random.key(0), inputs[:1])
    prior = layered_prior(network, params, default_layer_scales(network, 1.0))
    model = BayesianModel(network, prior, Gaussian(np.full(1, 0.1, np.float32)))
    method = AnchoredEnsemble(7, solver=FirstOrder(max_iter=3, batch_size=16))
    members = []
    for rows, n_bytes in [(data, 2**25), (StoredData(*stored), 2**25), (StoredData(*stored), 1)]:
        monkeypatch.setattr(first_order, "BYTES_PER_CALL", n_bytes)
        fitted = method.fit(jax.random.key(1), model, rows)
        members.append([np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(fitted.members)])
    assert members[0] == members[1] == members[2]
    monkeypatch.setattr(first_order, "BYTES_PER_CALL", 2**25)
    # The program that takes all rows as its arguments
    monkeypatch.setattr("anchored.inference.training._row_source", lambda *arguments: None)
    whole = method.fit(jax.random.key(1), model, data)
    flat = zip(jax.tree.leaves(whole.members), jax.tree.leaves(fitted.members))
    assert all(np.allclose(one, other, rtol=1e-4, atol=1e-6) for one, other in flat)
