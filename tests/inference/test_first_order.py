"""The order of batches, steps of Adam against a loop in NumPy, and divergence within an epoch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from anchored.inference.solvers import blocks, first_order
from anchored.inference.solvers.batches import Batches
from anchored.inference.solvers.first_order import FirstOrder, StackedProblems, initial_state, minimise
from anchored.inference.solvers.optimizers import OPTIMIZERS


def batch_rows(first, stop, seed=0):
    """Return the rows of steps `first` to `stop` − 1 for ten rows in batches of four, three of which are an epoch."""
    return Batches(jax.random.key(seed), 10, 4).rows(first, stop, stop - first)


def test_every_epoch_has_all_rows_in_its_own_order():
    rows = batch_rows(0, 9)
    assert rows.shape == (9, 4)
    epochs = rows.reshape(3, 12)
    for epoch in epochs:
        assert sorted(epoch[:10]) == list(range(10))
        assert np.array_equal(epoch[10:], epoch[:2])  # the last batch is filled up with rows of the first
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert not np.array_equal(rows, batch_rows(0, 9, seed=1))


@pytest.mark.parametrize("middle", [1, 3, 4, 7])
def test_the_order_does_not_depend_on_how_steps_are_split_into_calls(middle):
    parts = [batch_rows(0, middle), batch_rows(middle, 9)]
    assert np.array_equal(np.concatenate(parts), batch_rows(0, 9))


def test_steps_that_are_not_run_are_padding():
    rows = Batches(jax.random.key(0), 10, 4).rows(0, 5, 8)
    assert rows.shape == (8, 4) and not rows[5:].any()


class SquaredError:
    """The objective of a constant: its mean squared distance from the targets."""

    def loss(self, params, problem, batch, size):
        return jnp.sum(batch.weights * (batch.targets - params) ** 2) / size

    def held_out_loss(self, params, problem, batch):
        return jnp.sum(batch.weights * (batch.targets - params) ** 2)


@pytest.mark.parametrize(("max_steps", "device"), [(512, "cpu"), (2, "cpu"), (64, "gpu")])
def test_steps_agree_with_adam_in_numpy(double, monkeypatch, max_steps, device):
    """Kingma & Ba's algorithm, with a learning rate that falls along half a cosine, on the rows of each batch.

    The loops of a GPU also run on a CPU.
    """
    monkeypatch.setattr(first_order, "MAX_STEPS_PER_CALL", max_steps)
    monkeypatch.setattr(blocks, "device_kind", lambda: device)
    targets = np.random.default_rng(0).normal(size=(1, 10, 1))
    problems = StackedProblems((), np.zeros((10, 1)), targets, np.ones((1, 10, 1)), None, 10, np.full(1, 10.0))
    state = initial_state(OPTIMIZERS["adam"], np.zeros((1,)), False)
    key, solver = jax.random.key(3), FirstOrder(max_iter=3, batch_size=4)
    found = minimise(SquaredError(), solver, problems, state, jnp.array([0.1]), key)
    x, m, v, losses = 0.0, 0.0, 0.0, []
    for t, rows in enumerate(batch_rows(0, 9, seed=3)):
        batch = targets[0, rows, 0]
        losses.append(10 / 4 * np.sum((batch - x) ** 2) / 10)
        gradient = 10 / 4 * np.sum(2 * (x - batch)) / 10
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        rate = 0.1 * 0.5 * (1 + np.cos(np.pi * t / 9))
        x -= rate * (m / (1 - 0.9 ** (t + 1))) / (np.sqrt(v / (1 - 0.999 ** (t + 1))) + 1e-8)
    assert np.allclose(found.params, x, rtol=1e-10)
    assert np.allclose(found.loss_curve[:, 0], np.reshape(losses, (3, 3)).mean(1))
    assert np.allclose(found.first_loss, losses[0]) and found.n_epochs == 3


@pytest.mark.parametrize("max_steps", [512, 1])
def test_training_ends_after_an_epoch_that_diverges(monkeypatch, max_steps):
    """However many calls an epoch is split into, which depends on the speed of the machine, and with early stopping."""
    monkeypatch.setattr(first_order, "MAX_STEPS_PER_CALL", max_steps)
    targets = np.ones((1, 10, 1), np.float32)
    held_out = (np.arange(10) < 2).astype(np.float32)[None, :, None]
    problems = StackedProblems((), np.zeros((10, 1)), targets, 1 - held_out, held_out, 10, np.full(1, 8.0))
    state = initial_state(OPTIMIZERS["sgd"], np.zeros((1,), np.float32), True)
    solver = FirstOrder("sgd", max_iter=3, batch_size=4, early_stopping=True)
    found = minimise(SquaredError(), solver, problems, state, jnp.array([1e30]), jax.random.key(3))
    assert len(found.loss_curve) == 1 and not np.isfinite(found.loss_curve).any()
    assert found.n_epochs == 1


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_blocks_cover_the_lanes_and_do_not_depend_on_their_number(monkeypatch, device):
    monkeypatch.setattr(blocks, "device_kind", lambda: device)
    many = blocks.partition(0, 9_000, 700, 64)
    assert [lane for block in many for lane in block][:9_000] == list(range(9_000))
    for first, stop in [(0, 1), (0, 128), (3, 129), (128, 130), (1_030, 8_999)]:
        assert blocks.partition(first, stop, 700, 64) == [b for b in many if b.stop > first and b.start < stop]


def test_blocks_of_large_networks_are_narrow(monkeypatch):
    monkeypatch.setattr(blocks, "device_kind", lambda: "gpu")
    assert {len(block) for block in blocks.partition(0, 20, 3 * 1024**2, 1024)} == {5}
    assert blocks.partition(0, 2, 10**9, 10**6) == [range(1), range(1, 2)]
