"""Replay and Q-learning: against brute force, a hand-written gradient and value iteration."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from anchored.model.priors import Prior
from anchored.rl import AgentConfig, QLearningConfig, RunConfig, q_learning, replay, train
from anchored.rl.environments import CartPole, NChain
from anchored.rl.exploration import EpsilonGreedy, Thompson
from anchored.rl.q_learning import init_members, update_targets
from anchored.rl.q_network import QNetwork, Rescaled, anchor_strength, q_prior
from anchored.rl.replay import Transition
from anchored.rl.training import reward_scale

run, members_of, update = jax.jit(train), jax.jit(init_members), jax.jit(q_learning.update)
add, newest, choose = jax.jit(replay.add), jax.jit(replay.newest, static_argnums=1), jax.jit(q_learning._choose)
sample, n_step_batch = jax.jit(replay.sample, static_argnums=2), jax.jit(replay.n_step_batch, static_argnums=3)


def transitions(n, seed=0, size=3):
    """A stream of episodes of random length, ended by the environment or by their time."""
    generator = np.random.default_rng(seed)
    last = generator.random(n) < 0.2
    return Transition(
        generator.normal(size=(n, size)).astype(np.float32),
        generator.integers(0, 2, n).astype(np.int32),
        generator.normal(size=n).astype(np.float32),
        generator.normal(size=(n, size)).astype(np.float32),
        last & (generator.random(n) < 0.5),
        last,
    )


def filled(stream, capacity, block=4):
    buffer = replay.empty(jax.tree.map(lambda leaf: leaf[0], stream), capacity)
    n = len(stream.reward)
    for start in range(0, n, block):
        rows = jax.tree.map(lambda leaf, s=start: np.resize(leaf[s : s + block], (block, *leaf.shape[1:])), stream)
        buffer = add(buffer, rows, min(block, n - start))
    return buffer


@pytest.mark.parametrize("capacity", [7, 64])
def test_the_ring_keeps_the_newest(capacity):
    stream = transitions(30)
    buffer = filled(stream, capacity)
    assert int(buffer.n_added) == 30
    kept = min(capacity, 30)
    assert int(buffer.size) == kept
    places = np.asarray(newest(buffer, kept))
    for ring, leaf in zip(buffer.transitions, stream, strict=True):
        np.testing.assert_array_equal(np.asarray(ring)[places], leaf[::-1][:kept])
    drawn = np.asarray(sample(jax.random.key(0), buffer, 4000))
    assert set(drawn) == set(range(kept))


@pytest.mark.parametrize(("n_step", "buffer_size"), [(1, 64), (2, 16), (3, 16), (3, 64), (5, 16)])
def test_returns_of_several_steps_against_brute_force(n_step, buffer_size):
    stream, gamma = transitions(50, seed=n_step), 0.9
    buffer = filled(stream, buffer_size)
    newest_first = np.asarray(newest(buffer, int(buffer.size)))
    batch = n_step_batch(buffer, newest_first, gamma, n_step)
    batch = jax.tree.map(np.asarray, batch)
    for row, number in enumerate(range(49, 49 - int(buffer.size), -1)):
        total, scale = 0.0, 1.0
        for k in range(number, min(number + n_step, 50)):
            total += scale * stream.reward[k]
            scale *= gamma
            if stream.done[k]:
                break
        assert batch.reward[row] == pytest.approx(total, abs=1e-6)
        assert batch.discount[row] == pytest.approx(0 if stream.terminated[k] else scale, abs=1e-6)
        np.testing.assert_array_equal(batch.next_observation[row], stream.next_observation[k])
        np.testing.assert_array_equal(batch.observation[row], stream.observation[number])


def linear_learning(members=3, **settings):
    network = QNetwork((), 2)
    like = network.init(None, np.zeros((1, 3)))
    prior = Prior(
        {"layer_0": {"weights": 0.0, "bias": 0.0}}, {"layer_0": {"weights": np.float32(1), "bias": np.float32(0.5)}}
    )
    strength = {"layer_0": {"weights": np.float32(0.3), "bias": np.float32(0)}}
    settings = {"gamma": 0.9, "learning_rate": 0.1, "optimizer": "sgd", "batch_size": 8, **settings}
    return QLearningConfig(network, prior, strength, n_estimators=members, **settings), like


def initial(members=3):
    """Members with target networks; they depend on neither batches nor replay, so that one program makes them all."""
    learning, like = linear_learning(members, target_update_interval=3)
    return members_of(jax.random.key(0), learning, like)


def gradient_by_hand(w, b, w0, batch, target, size):
    """Of mean squared error of the action taken plus 0.3/size |w − w₀|²."""
    error = (batch.observation @ w + b)[np.arange(len(target)), batch.action] - target
    taken = np.eye(2)[batch.action] * (2 * error / len(target))[:, None]
    return batch.observation.T @ taken + 2 * 0.3 / size * (w - w0), taken.sum(0)


@pytest.mark.parametrize(("double", "anchor_size", "own"), [(False, None, False), (True, 300.0, True)])
def test_a_step_equals_the_gradient_written_by_hand(double, anchor_size, own):
    settings = {"double_q": double, "anchor_size": anchor_size, "own_batches": own}
    share = 0.5 if own else None  # of the steps so far that averages reach back over
    learning, _ = linear_learning(target_update_interval=3, averaged_share=share, **settings)
    members = initial()
    members = members._replace(averages=members.anchors if own else None, n_gradient_steps=np.int32(4))
    generator = np.random.default_rng(0)
    moved = jax.tree.map(lambda leaf: leaf + generator.normal(size=leaf.shape).astype(np.float32), members.params)
    members = members._replace(params=moved)
    buffer = filled(transitions(20), 64)
    key = jax.random.key(5)
    after = update(key, learning, members, buffer, 4, 0.5)
    batch_key = jax.random.fold_in(key, 0)
    batch_keys = jax.random.split(batch_key, 3) if own else [batch_key] * 3
    size = 20 if anchor_size is None else 300
    for m in range(3):
        batch = jax.tree.map(np.asarray, n_step_batch(buffer, sample(batch_keys[m], buffer, 8), 0.9, 1))
        w, b = (np.asarray(members.params["layer_0"][name][m], float) for name in ("weights", "bias"))
        w0, b0 = (np.asarray(members.anchors["layer_0"][name][m], float) for name in ("weights", "bias"))
        values = batch.next_observation @ w0 + b0  # the target network is still the anchor
        chosen = (batch.next_observation @ w + b).argmax(1) if double else values.argmax(1)
        target = 0.5 * batch.reward + batch.discount * values[np.arange(8), chosen]
        dw, db = gradient_by_hand(w, b, w0, batch, target, size)
        np.testing.assert_allclose(after.params["layer_0"]["weights"][m], w - 0.1 * dw, atol=2e-5)
        np.testing.assert_allclose(after.params["layer_0"]["bias"][m], b - 0.1 * db, atol=2e-5)
        if own:  # the fifth step has the weight 1 / (1 + 0.5 · 4)
            np.testing.assert_allclose(after.policy["layer_0"]["weights"][m], w0 + (w - 0.1 * dw - w0) / 3, atol=2e-5)


def test_target_networks_are_copied_in_time():
    """After the rollout in which a multiple of the interval, in environment steps, was reached."""
    learning, _ = linear_learning(target_update_interval=6)
    members = initial()
    for before, after in ((0, 4), (4, 6), (6, 11), (11, 12), (12, 30), (30, 31)):
        members = members._replace(params=jax.tree.map(lambda leaf: leaf + 1, members.params))
        is_due = any(step % 6 == 0 for step in range(before + 1, after + 1))
        expected = members.params if is_due else members.targets
        members = update_targets(learning, members, before, after)
        jax.tree.map(np.testing.assert_array_equal, members.targets, expected)


def test_automatic_scale_of_rewards():
    """Rewards of 2 at every step, for ever: 2 / (1 − 0.8) = 10; larger ones are scaled to that, smaller ones kept."""
    config = replace(chain_config().agent, reward_scale=None)
    for mean, expected in ((0.0, 1.0), (0.1, 1.0), (2.0, 1.0), (4.0, 0.5), (200.0, 0.01)):
        assert float(reward_scale(config, mean)) == pytest.approx(expected, rel=1e-5)
    assert reward_scale(replace(config, reward_scale=0.25), 100.0) == 0.25
    train_state, log = run(jax.random.key(0), replace(chain_config(), agent=config))
    assert float(train_state.mean_reward) == pytest.approx(np.abs(log.reward).mean(), rel=1e-3)


def test_newest_transitions_join_every_batch():
    learning, _ = linear_learning(n_newest=6, learning_rate=1.0)
    places, weight = choose(jax.random.key(0), learning, initial(), filled(transitions(20), 64), 4)
    np.testing.assert_array_equal(places[8:], [19, 18, 17, 16, 15, 14])
    np.testing.assert_array_equal(weight, [1] * 12 + [0] * 2)


def test_replay_by_uncertainty_prefers_what_members_disagree_on():
    learning, _ = linear_learning(members=10, replay="uncertainty", batch_size=512)
    stream = transitions(40)
    stream = stream._replace(observation=np.repeat([[0.1, 0, 0], [3, 3, 3]], 20, 0).astype(np.float32))
    places, _ = choose(jax.random.key(0), learning, initial(members=10), filled(stream, 64), 1)
    assert (np.asarray(places) >= 20).mean() > 0.75  # uniform replay: one half


def test_rare_replay_draws_every_pair_equally_often():
    """Pairs of observation and action, and of each pair its rows; no resets, and nothing of empty rows."""
    stream = transitions(40)
    generator = np.random.default_rng(1)
    observation = (generator.random(40) ** 3 * 4).astype(np.int32)
    stream = stream._replace(observation=observation, next_observation=observation)
    buffer = filled(stream, 64)
    n_draws = 40_000
    weights = jax.jit(replay.cumulative_weights, static_argnums=(1, 2))(buffer, 4, 2)
    drawn = np.asarray(jax.jit(replay.sample_weighted, static_argnums=2)(jax.random.key(0), weights, n_draws))
    counted = np.asarray(replay.is_step(stream))
    pairs = list(zip(observation, stream.action, strict=True))
    of_pair = {pair: [i for i in range(40) if counted[i] and pairs[i] == pair] for pair in set(pairs)}
    of_pair = {pair: rows for pair, rows in of_pair.items() if rows}
    expected = np.zeros(64)
    for rows in of_pair.values():
        expected[rows] = 1 / len(of_pair) / len(rows)
    assert max(map(len, of_pair.values())) > 4 * min(map(len, of_pair.values()))
    error = np.bincount(drawn, minlength=64) / n_draws - expected
    assert np.abs(error).max() < 5 * (expected.max() / n_draws) ** 0.5
    assert not np.bincount(drawn, minlength=64)[expected == 0].any()


def test_a_round_longer_than_the_ring_leaves_the_newest():
    stream = transitions(30)
    buffer = filled(stream, 7, block=30)
    for ring, leaf in zip(buffer.transitions, stream, strict=True):
        np.testing.assert_array_equal(np.asarray(ring)[np.asarray(newest(buffer, 7))], leaf[::-1][:7])


def test_unknown_replay_is_named():
    with pytest.raises(ValueError, match="replay must be one of"):
        linear_learning(replay="uncertanty")


def test_integers_are_gathered_as_one_hot_vectors_would_be():
    gathered, dense = QNetwork((8, 8), 3, 5), QNetwork((8, 8), 3)
    params = gathered.init(None, np.zeros(1, np.int32))
    params = jax.tree.map(lambda leaf: np.random.default_rng(0).normal(size=leaf.shape), params)
    rows = np.array([4, 0, 2], np.int32)
    one_hot = jax.jit(dense.apply)(params, np.eye(5)[rows])
    np.testing.assert_allclose(jax.jit(gathered.apply)(params, rows), one_hot, rtol=1e-5)


def test_one_row_and_many_agree():
    network = QNetwork((16,), 2, activation="tanh")
    params = network.init(None, np.zeros((1, 4)))
    params = jax.tree.map(lambda leaf: np.random.default_rng(0).normal(size=leaf.shape).astype(np.float32), params)
    rows = np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32)
    apply = jax.jit(network.apply)
    together = apply(params, rows)
    np.testing.assert_allclose(np.concatenate([apply(params, row[None]) for row in rows]), together, rtol=1e-4)
    scaled = jax.jit(Rescaled(network, (1.0,) * 4, (2.0,) * 4).apply)
    np.testing.assert_allclose(scaled(params, rows), apply(params, (rows - 1) / 2), rtol=1e-4)


def test_the_prior_of_q_values():
    network = QNetwork((64,), 2, 10)
    like = network.init(None, np.zeros(1, np.int32))
    prior = q_prior(network, like, (1.0, 3.0))
    draw = jax.jit(jax.vmap(lambda k: network.apply(prior.sample(k, like), np.arange(10))))
    draws = draw(jax.random.split(jax.random.key(0), 3000))
    hidden_second_moment = 1.0  # E relu(z)² for z ~ N(0, 1² + 1²)
    expected = 9 * hidden_second_moment
    assert np.var(draws) == pytest.approx(expected, rel=0.1)
    assert np.asarray(anchor_strength(prior, 0.01)["layer_1"]["bias"]) == 0
    assert np.asarray(anchor_strength(prior, 0.01)["layer_1"]["weights"]) == pytest.approx(0.01 / (9 / 64), rel=1e-5)


def chain_config(**settings):
    chain = NChain(n_states=5, slip=0.0, max_episode_steps=25)
    network = QNetwork((), 2, 5)
    like = network.init(None, np.zeros(1, np.int32))
    prior = q_prior(network, like, (1.0,))
    greedy = settings.pop("greedy", False)  # returns of several steps are those of the policy: let it be the best
    settings = {"optimizer": "sgd", "learning_rate": 1.0, "batch_size": 64, "gamma": 0.8, **settings}
    learning = QLearningConfig(network, prior, anchor_strength(prior, 0.0), n_estimators=3, **settings)
    exploration = EpsilonGreedy(1.0, 0.0, 60.0) if greedy else EpsilonGreedy(1.0, 1.0, 1.0)
    agent = AgentConfig(learning, exploration, train_freq=1, learning_starts=50, buffer_size=2000)
    return RunConfig(chain, agent, n_rollouts=4000)


@pytest.mark.parametrize(
    "settings",
    [{}, {"double_q": True, "target_update_interval": 5, "own_batches": True}, {"greedy": True, "n_step": 3}],
)
def test_every_member_finds_the_values_of_value_iteration(settings):
    train_state, _ = run(jax.random.key(0), chain_config(**settings))
    q = np.zeros((5, 2))
    for _ in range(500):  # forward (0) to the end, whose reward is 10, or back (1) for 2
        best = q.max(1)
        forward = np.where(np.arange(5) == 4, 10, 0) + 0.8 * best[np.minimum(np.arange(5) + 1, 4)]
        q = np.stack([forward, 2 + 0.8 * best[0] * np.ones(5)], 1)
    layer = train_state.members.params["layer_0"]
    weights = np.asarray(layer["weights"] + layer["bias"][:, None])
    visited = np.s_[:, :, 0] if "greedy" in settings else np.s_[:]  # the best policy only goes forward
    assert np.abs(weights - q)[visited].max() < 0.3  # of values up to 50


def test_a_member_does_not_depend_on_their_number_until_it_acts():
    few, many = initial(members=3), initial(members=10)
    jax.tree.map(lambda x, y: np.testing.assert_array_equal(x, y[:3]), few.params, many.params)


def test_a_run_is_a_function_of_its_key_and_its_log_tells_episodes_apart():
    network = QNetwork((16,), 2)
    prior = q_prior(network, network.init(None, np.zeros((1, 4))), (1.0, 1.0))
    learning = QLearningConfig(network, prior, anchor_strength(prior, 0.01), 3, optimizer="sgd", batch_size=16)
    config = RunConfig(CartPole(40), AgentConfig(learning, Thompson(), 5, 25, buffer_size=500), n_rollouts=30)
    train_state, log = run(jax.random.key(0), config)
    jax.tree.map(np.testing.assert_array_equal, log, run(jax.random.key(0), config)[1])
    assert not np.array_equal(log.final_observation, run(jax.random.key(1), config)[1].final_observation)
    assert (np.asarray(log.length) == 5).all()
    assert int(train_state.n_steps) == 150
    assert int(train_state.n_episodes) == np.asarray(log.done).sum()
    assert np.asarray(log.reward).sum() == 150
    buffer = jax.tree.map(np.asarray, train_state.buffer.transitions)
    inside = ~buffer.done[:149]
    np.testing.assert_array_equal(buffer.next_observation[:149][inside], buffer.observation[1:150][inside])
    starts = np.flatnonzero(buffer.done[:149]) + 1
    assert len(starts) > 2
    assert (np.abs(buffer.observation[starts]) <= 0.05).all()
    assert not (buffer.terminated & ~buffer.done).any()
