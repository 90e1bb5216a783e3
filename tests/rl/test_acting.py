"""Actions computed by NumPy are those of the compiled rules."""

import jax
import numpy as np
import pytest

from anchored.rl import QEnsembleAgent
from anchored.rl.acting import CompiledActor, NumpyActor, make_actor

SMALL = {"n_estimators": 4, "hidden_layer_sizes": (8, 8), "learning_starts": 40, "buffer_size": 500, "seed": 0}


@pytest.mark.parametrize(
    ("env", "settings"),
    [
        ("CartPole-v1", {"exploration": "member"}),
        ("MountainCar-v0", {"exploration": "greedy", "activation": "tanh"}),  # whose observations are rescaled
        ("FrozenLake-v1", {"exploration": "member"}),  # whose observations are integers
    ],
)
def test_numpy_acts_as_the_compiled_rule(env, settings):
    agent = QEnsembleAgent(env, **SMALL, **settings)
    fast, compiled = make_actor(agent.config), CompiledActor(agent.config)
    assert isinstance(fast, NumpyActor)
    fast.load(agent.train_state)
    compiled.load(agent.train_state)
    space = agent.observation_space
    space.seed(0)
    for step in range(40):
        sampled = [np.clip(space.sample(), -5, 5).astype(space.dtype) for _ in range(3)]
        rows = np.concatenate([agent.runner.encode(one)[0] for one in sampled])
        arguments = rows, [step, step + 1, step + 2], [step // 4, step // 3, 0]
        expected = np.stack([agent.q_values(row)[2] for row in rows], 1)
        np.testing.assert_allclose(fast.q_values(rows), expected, rtol=1e-3, atol=1e-4)
        for a, b in zip(fast.act(*arguments), compiled.act(*arguments), strict=True):
            np.testing.assert_array_equal(a, b)


def test_other_rules_and_networks_are_compiled():
    for settings in ({"exploration": "thompson"}, {"activation": "erf"}):
        assert isinstance(make_actor(QEnsembleAgent("CartPole-v1", **SMALL, **settings).config), CompiledActor)


def test_numpy_follows_the_members_of_the_last_update():
    agent = QEnsembleAgent("CartPole-v1", **SMALL, averaged_share=None)
    actor = make_actor(agent.config)
    actor.load(agent.train_state)
    row = np.array([0.1, -0.2, 0.03, 0.4], np.float32)
    before = actor.q_values(row[None])[:, 0]
    agent.learn(100)
    actor.load(agent.train_state)
    scaled = agent.q_values(row)[2] * float(jax.numpy.minimum(1, 10 / 100))  # a reward of 1 at every step, γ = 0.99
    np.testing.assert_allclose(actor.q_values(row[None])[:, 0], scaled, rtol=1e-3, atol=1e-4)
    assert np.abs(actor.q_values(row[None])[:, 0] - before).max() > 1e-3
