"""The public agent: learning, resuming bit for bit, evaluation apart, clear errors."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import gymnasium
import jax
import numpy as np
import pytest
from scipy.stats import bootstrap, trim_mean

from anchored import StorageError
from anchored.plots import LearningCurveDisplay
from anchored.rl import QEnsembleAgent, curves
from anchored.rl.environments import CartPole, DeepSea, GymnasiumAdapter
from anchored.rl.exploration import EpsilonGreedy, Greedy, Thompson, Until
from anchored.rl.history import History

SMALL = {"n_estimators": 3, "hidden_layer_sizes": (8,), "batch_size": 16, "learning_starts": 40, "buffer_size": 500}


def agent(env="CartPole-v1", seed=0, **settings):
    return QEnsembleAgent(env, seed=seed, **{**SMALL, **settings})


def same(a, b):
    assert a.history == b.history
    jax.tree.map(np.testing.assert_array_equal, a.mind.members, b.mind.members)
    jax.tree.map(np.testing.assert_array_equal, a.mind.buffer, b.mind.buffer)
    assert (a.n_steps, a.n_episodes) == (b.n_steps, b.n_episodes)


ENVIRONMENTS = {
    "gymnasium": "CartPole-v1",
    "compiled": CartPole(60),
    "integers": gymnasium.make("FrozenLake-v1"),  # whose steps slip at random
    "sea": DeepSea(5, stochastic=True),
}


@pytest.mark.parametrize("name", ENVIRONMENTS)
@pytest.mark.parametrize("rhythm", [4, "episode"])
def test_a_run_cut_in_two_is_the_run_uncut(name, rhythm, tmp_path):
    env = ENVIRONMENTS[name]
    settings = {"train_freq": rhythm, "learning_starts": 40 if rhythm == 4 else 3}
    whole = agent(env, **settings).learn(total_timesteps=300)
    cut = agent(env, **settings).learn(total_timesteps=132)  # amid an episode, where rounds are steps
    assert rhythm == "episode" or cut.history.under_way[1] > 0 or name == "sea"
    cut.save(tmp_path / "agent")
    resumed = QEnsembleAgent.load(tmp_path / "agent")
    resumed.learn(total_timesteps=300 - resumed.n_steps)
    same(resumed, whole)


def test_same_seed_same_curve():
    a, b, c = (agent(seed=seed).learn(total_episodes=10) for seed in (1, 1, 2))
    same(a, b)
    assert a.history.returns != c.history.returns
    assert a.n_episodes == 10


def test_a_killed_run_loses_only_what_came_after_its_checkpoint(tmp_path):
    path = tmp_path / "agent"
    code = f"""
        from tests.test_agent import agent
        agent().learn(total_timesteps=10**7, checkpoint={str(path)!r}, checkpoint_every=200)
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path])}
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], env=environment, cwd=os.getcwd())
    try:
        waited = time.monotonic() + 90
        while not path.exists() and time.monotonic() < waited:
            time.sleep(0.05)
        time.sleep(0.3)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    resumed = QEnsembleAgent.load(path)
    assert resumed.n_steps >= 200
    assert resumed.n_steps % 200 == 0
    same(resumed, agent().learn(total_timesteps=resumed.n_steps))


def test_an_environment_that_fails_leaves_the_checkpoint_whole(tmp_path):
    class Failing(gymnasium.Wrapper):
        steps = 0

        def step(self, action):
            Failing.steps += 1
            if Failing.steps > 250:
                raise RuntimeError("the simulator broke")
            return self.env.step(action)

    with pytest.raises(RuntimeError, match="simulator broke"):
        agent(Failing(gymnasium.make("CartPole-v1"))).learn(
            total_timesteps=1000, checkpoint=tmp_path / "agent", checkpoint_every=100
        )
    assert QEnsembleAgent.load(tmp_path / "agent", env="CartPole-v1").n_steps == 200


def test_evaluation_is_apart():
    plain = agent().learn(total_timesteps=200)
    judged = agent().learn(total_timesteps=200, eval_every=64, n_eval_episodes=3)
    same(plain, judged)
    assert [step for step, _ in judged.evaluations] == [64, 128, 192]
    assert all(len(returns) == 3 for _, returns in judged.evaluations)
    before = jax.tree.map(np.array, plain.mind.members)
    returns = plain.evaluate(5)
    assert returns.shape == (5,)
    jax.tree.map(np.testing.assert_array_equal, before, plain.mind.members)
    np.testing.assert_array_equal(returns, plain.evaluate(5))


def test_evaluation_plays_the_greedy_policy():
    learnt = agent().learn(total_timesteps=200)
    env = GymnasiumAdapter("CartPole-v1")
    for i, total in enumerate(learnt.evaluate(3)):
        observation = env.reset(int(np.random.SeedSequence([0, 2**30 + i]).generate_state(1)[0]))
        earned, over = 0.0, False
        while not over:
            action, _ = learnt.predict(observation, deterministic=True)
            assert action == learnt.q_values(observation)[0].argmax()
            observation, reward, terminated, truncated = env.step(action)
            earned, over = earned + reward, terminated or truncated
        assert total == earned


def test_shapes_and_meaning_of_values():
    learnt = agent(reward_scale=0.5).learn(total_timesteps=100)
    rows = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    mean, std, members = learnt.q_values(rows)
    assert (mean.shape, std.shape, members.shape) == ((6, 2), (6, 2), (6, 3, 2))
    np.testing.assert_allclose(mean, members.mean(1), rtol=1e-5)
    np.testing.assert_allclose(std, members.std(1, ddof=1), rtol=1e-4)
    one = learnt.q_values(rows[2])
    assert one[0].shape == (2,)
    np.testing.assert_allclose(one[2], members[2], rtol=1e-3, atol=1e-4)
    p = learnt.action_probabilities(rows)
    np.testing.assert_allclose(p.sum(1), 1, rtol=1e-5)
    np.testing.assert_allclose(p[2], learnt.action_probabilities(rows[2]), atol=1e-4)
    draws = np.array([learnt.predict(np.repeat(rows[:1], 2000, 0))[0]]).ravel()
    assert draws.mean() == pytest.approx(p[0, 1], abs=5 * 0.5 / 2000**0.5)


def test_many_actions_and_integers():
    lake = agent("FrozenLake8x8-v1", exploration="member").learn(total_timesteps=220)
    assert lake.q_values(3)[0].shape == (4,)
    assert lake.action_probabilities(np.array([1, 2])).shape == (2, 4)


def test_a_compiled_environment_and_gymnasium_are_learnt_alike():
    """Different starts and rounding, but both learn: mean return of late against that at first."""
    for env in (CartPole(500), "CartPole-v1"):
        learnt = QEnsembleAgent(env, n_estimators=4, hidden_layer_sizes=(32, 32), reward_scale=0.1, seed=0)
        returns = learnt.learn(total_timesteps=4000).history.returns
        assert np.mean(returns[-5:]) > 3 * np.mean(returns[:10])


def test_networks_of_ones_own(tmp_path):
    flax = pytest.importorskip("flax.linen")

    class Net(flax.Module):
        @flax.compact
        def __call__(self, x):
            return flax.Dense(2)(flax.relu(flax.Dense(8)(x)))

    learnt = agent(network=Net()).learn(total_timesteps=100)
    learnt.save(tmp_path / "agent")
    with pytest.raises(ValueError, match="network of your own"):
        QEnsembleAgent.load(tmp_path / "agent")
    resumed = QEnsembleAgent.load(tmp_path / "agent", network=Net())
    same(resumed.learn(total_timesteps=50), learnt.learn(total_timesteps=50))
    with pytest.raises(ValueError, match="3 actions"):
        agent("MountainCar-v0", network=Net())


def test_explorations_are_saved(tmp_path):
    rule = Until(2.0, EpsilonGreedy(0.5, 0.1, 10.0), Greedy())
    agent(exploration=rule).save(tmp_path / "agent")
    assert QEnsembleAgent.load(tmp_path / "agent").agent.exploration == rule
    assert agent().agent.exploration == Thompson()


def test_progress_shows(capsys):
    agent().learn(total_timesteps=200, progress_bar=True)
    shown = capsys.readouterr().out
    assert "200/200" in shown
    assert "return" in shown


def test_history_against_brute_force():
    generator = np.random.default_rng(0)
    reward, last = generator.normal(size=100), generator.random(100) < 0.1
    explored = generator.random(100) < 0.3
    history = History()
    for start in range(0, 100, 7):  # however the steps are cut
        history.record(reward[start : start + 7], last[start : start + 7], explored[start : start + 7])
    parts = np.split(np.arange(100), np.flatnonzero(last) + 1)
    np.testing.assert_allclose(history.returns, [reward[p].sum() for p in parts[:-1]])
    assert history.lengths == [len(p) for p in parts[:-1]]
    assert history.explored == [int(explored[p].sum()) for p in parts[:-1]]
    assert history.under_way[1] == len(parts[-1])


def test_learning_curves_against_brute_force():
    generator = np.random.default_rng(0)
    histories = [History(generator.normal(size=30).tolist(), generator.integers(5, 20, 30).tolist()) for _ in range(8)]
    steps, returns = curves.returns_by_step(histories, 6)
    assert steps[-1] == min(sum(history.lengths) for history in histories)
    for history, row in zip(histories, returns, strict=True):
        ends = np.cumsum(history.lengths)
        for low, high, value in zip([0, *steps[:-1]], steps, row, strict=True):
            assert value == pytest.approx(np.mean(np.array(history.returns)[(ends > low) & (ends <= high)]))
    middle = np.sort(returns, 0)[2:6].mean(0)
    np.testing.assert_allclose(curves.interquartile_mean(returns), middle)
    lower, upper = curves.bootstrap_interval(returns)
    expected = bootstrap((returns[:, 0],), lambda x, axis: trim_mean(x, 0.25, axis), method="percentile", rng=0)
    assert lower[0] == pytest.approx(expected.confidence_interval.low, abs=0.1)
    assert upper[0] == pytest.approx(expected.confidence_interval.high, abs=0.1)
    display = LearningCurveDisplay(steps, returns).plot()
    np.testing.assert_allclose(display.ax_.lines[-1].get_ydata(), middle)
    with pytest.raises(ValueError, match="no finished episode"):
        curves.returns_by_step([History()])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"exploration": "thomson"}, "exploration must be one of"),
        ({"exploration": 3}, "exploration must be one of"),
        ({"replay": "prioritised"}, "replay must be one of"),
        ({"n_estimators": 0}, "n_estimators"),
        ({"train_freq": 0}, "train_freq"),
        ({"train_freq": "epoch"}, "train_freq"),
        ({"gamma": 1.5}, "gamma"),
        ({"noise_variance": -1}, "noise_variance"),
        ({"prior_scale": (1.0, 1.0, 1.0)}, "prior_scale must be one number or 2"),
        ({"hidden_layer_sizes": (0,)}, "hidden_layer_sizes"),
        ({"activation": "rulu"}, "activation"),
        ({"optimizer": "addam"}, "optimizer"),
        ({"seed": -1}, "seed"),
        ({"env": "Pendulum-v1"}, "Discretise"),
        ({"env": "CartPole-v9"}, "CartPole-v9"),
        ({"env": 3}, "env: cannot use a int"),
        ({"env": CartPole}, "env: .*instance"),
    ],
)
def test_bad_settings_are_named(settings, words):
    with pytest.raises((ValueError, TypeError), match=words):
        agent(**settings)


def test_bad_calls_are_named(tmp_path):
    fresh = agent()
    with pytest.raises(ValueError, match="total_timesteps or total_episodes"):
        fresh.learn()
    with pytest.raises(ValueError, match="total_episodes"):
        fresh.learn(total_episodes=0)
    for call in (fresh.predict, fresh.q_values, fresh.action_probabilities):
        with pytest.raises(ValueError, match=r"observation must have shape \(4,\)"):
            call(np.zeros(3))
    with pytest.raises(FileNotFoundError):
        QEnsembleAgent.load(tmp_path / "nothing")
    (tmp_path / "text").write_text("not an agent")
    with pytest.raises(StorageError):
        QEnsembleAgent.load(tmp_path / "text")
    fresh.save(tmp_path / "agent")
    with pytest.raises(StorageError, match="does not fit"):
        QEnsembleAgent.load(tmp_path / "agent", env="Acrobot-v1")
    with pytest.raises(TypeError, match="optimizer"):
        agent(optimizer=__import__("optax").adam).save(tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_members_that_are_lost_are_reported():
    with pytest.raises(ArithmeticError, match="learning_rate"):
        agent(learning_rate=1e30, optimizer="sgd").learn(total_timesteps=300)
