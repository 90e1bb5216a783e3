"""Several environments at once: what is stored, exact resume, and what cannot be restored."""

import pickle

import gymnasium
import jax
import numpy as np
import pytest

from anchored.rl import LinearSchedule, QEnsembleAgent, replay, runners, saved_state
from anchored.rl.replay import ReplayBuffer, Transition

N = 3  # environments
SMALL = {"n_estimators": 3, "hidden_layer_sizes": (8,), "batch_size": 16, "learning_starts": 40, "buffer_size": 500}


def make(mode="vector_entry_point", name="CartPole-v1", **settings):
    return gymnasium.make_vec(name, N, vectorization_mode=mode, **settings)


def agent(env, **settings):
    return QEnsembleAgent(env, **{**SMALL, "seed": 0, **settings})


def assert_same(a, b):
    assert a.history == b.history
    assert (a.n_steps, a.n_episodes) == (b.n_steps, b.n_episodes)
    jax.tree.map(np.testing.assert_array_equal, a.train_state.members, b.train_state.members)
    jax.tree.map(np.testing.assert_array_equal, a.train_state.buffer, b.train_state.buffer)


@pytest.fixture
def resets_often(monkeypatch):
    for module in (runners, saved_state):
        monkeypatch.setattr(module, "STEPS_PER_START", 37)


@pytest.mark.parametrize(
    ("mode", "name", "settings"),
    [
        ("vector_entry_point", "CartPole-v1", {"learning_rate": LinearSchedule(1e-3, 1e-4, 300), "n_step": 3}),
        ("sync", "CartPole-v1", {"exploration": "thompson"}),
        ("sync", "FrozenLake-v1", {}),  # whose observations are integers
    ],
)
def test_a_run_cut_in_two_is_the_run_uncut(mode, name, settings, tmp_path, resets_often):
    whole = agent(make(mode, name), **settings).learn(360)
    cut = agent(make(mode, name), **settings).learn(200)
    assert max(current.length for current in cut.history.currents) > 0
    cut.save(tmp_path / "agent")
    resumed = QEnsembleAgent.load(tmp_path / "agent")  # the environments are made again
    resumed.learn(360 - resumed.n_steps)
    assert_same(resumed, whole)
    assert_same(pickle.loads(pickle.dumps(cut)).learn(360 - cut.n_steps), whole)
    assert sum(whole.history.lengths) + sum(part.length for part in whole.history.currents) == whole.n_steps


def test_stored_rows_are_what_the_environments_did(resets_often):
    """Another run of the same environments, with the stored actions, gives the stored rows."""
    learnt = agent(make(), reward_scale=1.0).learn(360)
    rows, n_rows = learnt.train_state.buffer.transitions, int(learnt.train_state.buffer.n_added)
    counted = np.asarray(replay.is_step(rows))[:n_rows].reshape(-1, N)
    observation, action, next_observation, done = (
        np.asarray(part)[:n_rows].reshape(-1, N, *part.shape[1:])
        for part in (rows.observation, rows.action, rows.next_observation, rows.done)
    )
    np.testing.assert_array_equal(observation[1:], next_observation[:-1])
    env = make()
    seed = int(np.random.SeedSequence([0, 0]).generate_state(1)[0] >> 1)
    np.testing.assert_array_equal(env.reset(seed=seed)[0], observation[0])
    for step in range(36):  # before all are reset
        expected, _, terminated, truncated, _ = env.step(action[step].astype(np.int64))
        np.testing.assert_array_equal(next_observation[step], expected)
        np.testing.assert_array_equal(done[step], terminated | truncated)
    assert learnt.n_steps == counted.sum() < n_rows
    assert learnt.history.lengths[0] == np.argmax(done.any(1)) + 1


def test_returns_follow_one_environment():
    """n-step returns of two environments that take turns are those of each alone; resets are never drawn."""
    terminated = np.array([[0, 0], [1, 0], [1, 0], [0, 0], [0, 1], [0, 1]], bool)  # a reset follows each
    done = np.array([[0, 0], [1, 0], [0, 0], [0, 0], [0, 1], [0, 0]], bool)
    reward = np.arange(12.0, dtype=np.float32).reshape(6, 2)
    rows = np.arange(12, dtype=np.float32)[:, None]
    block = Transition(rows, np.zeros(12, np.int32), reward.ravel(), rows + 100, terminated.ravel(), done.ravel())
    buffer = replay.add(replay.empty(jax.tree.map(lambda leaf: leaf[0], block), 12), block, 12)
    batch = jax.jit(replay.n_step_batch, static_argnums=(3, 4))(buffer, np.arange(12), 0.5, 3, 2)
    start = np.asarray(batch.observation)[:, 0]
    np.testing.assert_array_equal(start, [0, 1, 2, 3, 2, 5, 6, 7, 8, 9, 10, 9])
    expected = {
        0: 0 + 2 / 2,
        1: 1 + 3 / 2 + 5 / 4,
        2: 2,
        3: 3 + 5 / 2 + 7 / 4,
        5: 5 + 7 / 2 + 9 / 4,
        6: 6 + 8 / 2 + 10 / 4,
    }
    expected |= {7: 7 + 9 / 2, 8: 8 + 10 / 2, 9: 9, 10: 10}
    np.testing.assert_allclose(batch.reward, [expected[int(row)] for row in start])
    np.testing.assert_allclose(batch.discount[:4], [0, 0.125, 0, 0.125])
    whole = ReplayBuffer(buffer.transitions, np.int32(36))  # a full buffer, whose oldest rows may be resets
    assert replay.is_step(jax.tree.map(lambda ring: ring[replay._nearest_step(whole, np.arange(12), 2)], block)).all()


def test_callbacks_and_counters():
    seen = []
    learnt = agent(make())
    learnt.learn(60, lambda locals_, _: seen.append((len(locals_["dones"]), sum(locals_["dones"]))))
    assert learnt.num_timesteps == learnt.n_steps == sum(n for n, _ in seen)
    assert sum(ended for _, ended in seen) == learnt.n_episodes > 0
    assert max(n for n, _ in seen) == N
    assert learnt.get_env().num_envs == learnt.n_envs == N
    assert len(learnt.evaluate(2)) == 2  # in a single environment
    n_episodes = learnt.n_episodes
    learnt.set_env(make("sync"))
    assert all(part.length == 0 for part in learnt.history.currents)
    learnt.learn(60)
    assert learnt.n_episodes > n_episodes


def test_environments_that_do_not_repeat_themselves(tmp_path):
    class Drifting(gymnasium.vector.VectorObservationWrapper):
        n_made = 0

        def __init__(self, env):
            super().__init__(env)
            Drifting.n_made += 1
            self.offset = np.float32(0.01 * Drifting.n_made)

        def observations(self, observations):
            return observations + self.offset

    agent(Drifting(make())).learn(48).save(tmp_path / "agent")
    with pytest.warns(UserWarning, match=r"cannot be restored.*wrappers: Drifting"):
        resumed = QEnsembleAgent.load(tmp_path / "agent", env=Drifting(make()))
    n_steps = resumed.n_steps
    assert resumed.learn(24).n_steps >= n_steps + 24


def test_what_is_refused():
    with pytest.raises(ValueError, match="train_freq must be a number of steps"):
        agent(make(), train_freq="episode")
    with pytest.raises(ValueError, match="has one environment only"):
        agent(gymnasium.make_vec("CartPole-v1", 1))
    same_step = {"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP}
    with pytest.raises(ValueError, match="autoreset mode is SAME_STEP"):
        agent(make("sync", vector_kwargs=same_step))
    with pytest.raises(ValueError, match="buffer_size must be at least 24"):
        agent(make(), buffer_size=20)
