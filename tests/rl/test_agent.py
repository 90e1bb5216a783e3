"""The public agent: learning, resuming bit for bit, evaluation apart, clear errors."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import contextmanager, suppress
from dataclasses import replace

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.stats import bootstrap, trim_mean

from anchored import StorageError, trees
from anchored.model.networks import MLP
from anchored.rl import LearningCurveDisplay, QEnsembleAgent, learning_curves
from anchored.rl.arguments import build_config
from anchored.rl.environments import CartPole, DeepSea, GymnasiumAdapter, NChain
from anchored.rl.exploration import EpsilonGreedy, Greedy, Thompson, Until
from anchored.rl.history import History
from anchored.rl.q_network import QNetwork

# Q-learning at its plainest, which compiles sooner.
PLAIN = {"optimizer": "sgd", "n_step": 1, "gradient_steps": 1, "target_update_interval": None, "double_q": False}
SMALL = {"n_estimators": 3, "hidden_layer_sizes": (8,), "batch_size": 16, "learning_starts": 40, "buffer_size": 500}


def agent(env="CartPole-v1", seed=0, **settings):
    return QEnsembleAgent(env, seed=seed, **{**SMALL, **settings})


def same(a, b):
    assert a.history == b.history
    jax.tree.map(np.testing.assert_array_equal, a.train_state.members, b.train_state.members)
    jax.tree.map(np.testing.assert_array_equal, a.train_state.buffer, b.train_state.buffer)
    assert (a.n_steps, a.n_episodes) == (b.n_steps, b.n_episodes)


SEA = DeepSea(5, stochastic=True)
BY_EPISODE = {"train_freq": "episode", "learning_starts": 3}
# Each kind of runner, rollouts of steps and of episodes, every kind of exploration and replay, a buffer that is shorter
# than an episode. Other tests use the same agents, and so the same compiled programs.
RUNS = {
    "gymnasium": ("CartPole-v1", {}),
    # all episodes are padded to 16 steps: one program
    "short": (gymnasium.make("CartPole-v1", max_episode_steps=16), {**BY_EPISODE, "buffer_size": 6}),
    "compiled": (CartPole(60), {}),
    "integers": (gymnasium.make("FrozenLake-v1"), {"exploration": "index"}),  # whose steps slip at random
    "sea": (SEA, {**BY_EPISODE, "exploration": "member", "replay": "uncertainty"}),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_cut_in_two_is_the_run_uncut(name, tmp_path):
    env, settings = RUNS[name]
    learning = {"eval_every": 64, "n_eval_episodes": 2}
    whole = agent(env, **settings).learn(total_timesteps=300, **learning)
    cut = agent(env, **settings).learn(total_timesteps=132, checkpoint=tmp_path / "agent", **learning)
    if name in ("gymnasium", "compiled"):  # in the others an episode may end just there
        assert cut.history.current.length > 0
    resumed = QEnsembleAgent.load(tmp_path / "agent")
    resumed.learn(total_timesteps=300 - resumed.n_steps, checkpoint=tmp_path / "agent", **learning)
    same(resumed, whole)
    assert resumed.evaluations == whole.evaluations
    assert len(whole.evaluations) >= 4


def test_an_environment_that_does_not_repeat_itself(tmp_path):
    class Drifting(gymnasium.ObservationWrapper):
        n_made = 0

        def __init__(self, env):
            super().__init__(env)
            Drifting.n_made += 1
            self.offset = 0.01 * Drifting.n_made

        def observation(self, observation):
            return (observation + self.offset).astype(np.float32)

    agent(Drifting(gymnasium.make("CartPole-v1"))).learn(total_timesteps=100).save(tmp_path / "agent")
    with pytest.warns(UserWarning, match=r"cannot be restored.*its wrappers \(Drifting\)"):
        resumed = QEnsembleAgent.load(tmp_path / "agent", env=Drifting(gymnasium.make("CartPole-v1")))
    assert resumed.history.current[1] == 0
    assert resumed.learn(total_timesteps=20).n_steps == 120


def test_same_seed_same_curve():
    a, b, c = (agent(seed=seed).learn(total_episodes=10) for seed in (1, 1, 2))
    same(a, b)
    assert a.history.returns != c.history.returns
    assert a.n_episodes == 10


def test_a_killed_run_loses_only_what_came_after_its_checkpoint(tmp_path):
    path = tmp_path / "agent"
    code = f"""
        import sys
        from anchored.rl import QEnsembleAgent
        if "gymnasium" in sys.modules:
            sys.exit("gymnasium is imported before it is needed")
        agent = QEnsembleAgent("CartPole-v1", seed=0, **{SMALL!r})
        agent.learn(total_timesteps=10**7, checkpoint={str(path)!r}, checkpoint_every=200)
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path]), "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], env=environment, cwd=os.getcwd())
    try:
        waited = time.monotonic() + 90
        while not path.exists() and process.poll() is None and time.monotonic() < waited:
            time.sleep(0.05)
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

    hurt = agent(Failing(gymnasium.make("CartPole-v1")))
    with pytest.raises(RuntimeError, match="simulator broke"):
        hurt.learn(total_timesteps=1000, checkpoint=tmp_path / "agent", checkpoint_every=100)
    assert QEnsembleAgent.load(tmp_path / "agent", env="CartPole-v1").n_steps == 200
    assert hurt.n_steps == 248  # the last whole round
    Failing.steps = -(10**6)  # mended
    same(hurt.learn(total_timesteps=52), agent().learn(total_timesteps=300))


@contextmanager
def interrupted_after(n_instructions):
    """Raise KeyboardInterrupt after so many instructions of the package's own code, as Ctrl-C might."""
    left = n_instructions

    def trace(frame, event, _):
        nonlocal left
        if "anchored/rl/" not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes = True
        left -= event == "opcode"
        if left < 0:
            sys.settrace(None)
            raise KeyboardInterrupt
        return trace

    outer = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(outer)


@pytest.mark.parametrize("env", ["CartPole-v1", CartPole(60)])
def test_an_interrupt_loses_at_most_a_round(env, tmp_path):
    """Whichever instruction it comes at: also between an update and keeping what was learnt."""
    whole, hurt = agent(env).learn(total_timesteps=80), agent(env)
    n_instructions, n_interrupts = 0, 0
    while hurt.n_steps < 80:
        try:
            with interrupted_after(n_instructions):
                hurt.learn(total_timesteps=80 - hurt.n_steps)
        except KeyboardInterrupt:
            n_interrupts += 1
            n_instructions += 23
    assert n_interrupts > 20
    same(hurt, whole)
    with suppress(KeyboardInterrupt), interrupted_after(n_instructions // 2):
        hurt.learn(total_timesteps=40)
    hurt.save(tmp_path / "agent")
    same(QEnsembleAgent.load(tmp_path / "agent").learn(total_timesteps=40), hurt.learn(total_timesteps=40))


def test_evaluation_is_apart():
    plain = agent().learn(total_timesteps=200)
    evaluated = agent().learn(total_timesteps=200, eval_every=64, n_eval_episodes=3)
    same(plain, evaluated)
    assert [step for step, _ in evaluated.evaluations] == [64, 128, 192]
    often = agent().learn(total_timesteps=12, eval_every=2, n_eval_episodes=1)
    assert [step for step, _ in often.evaluations] == [4, 8, 12]
    own = gymnasium.make("CartPole-v1")
    with pytest.raises(ValueError, match="environment that the agent learns in"):
        agent(own).evaluate(1, env=own)
    with pytest.raises(ValueError, match="n_actions is 3"):
        agent().evaluate(1, env="MountainCar-v0")
    with pytest.raises(TypeError, match="compiled environment"):
        agent(CartPole(60)).evaluate(1, env="CartPole-v1")
    assert all(len(returns) == 3 for _, returns in evaluated.evaluations)
    before = jax.tree.map(np.array, plain.train_state.members)
    returns = plain.evaluate(5)
    assert returns.shape == (5,)
    jax.tree.map(np.testing.assert_array_equal, before, plain.train_state.members)
    np.testing.assert_array_equal(returns, plain.evaluate(5))


def test_episodes_without_end(monkeypatch):
    class Endless(Numbered):
        def step(self, action):
            observation, reward, *_ = super().step(action)
            return observation, reward, False, False, {}

    monkeypatch.setattr("anchored.rl.evaluation.MAX_STEPS", 16)
    monkeypatch.setattr("anchored.rl.runners.MAX_STEPS", 16)
    circling = agent(Endless(), train_freq="episode", buffer_size=6).learn(total_timesteps=40)
    assert circling.n_steps == 48
    with pytest.warns(UserWarning, match="not over after 16 steps"):
        assert circling.evaluate(1, env=Endless())[0] == 16


def test_learning_by_episode_begins_after_ten():
    learnt = agent(SEA, **{**RUNS["sea"][1], "learning_starts": None})
    assert int(learnt.learn(total_episodes=12).train_state.members.n_gradient_steps) == 2 * 2


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
    rows = np.random.default_rng(0).normal(size=(2000, 4)).astype(np.float32)
    rows[6:] = rows[0]
    mean, std, members = learnt.q_values(rows)
    assert (mean.shape, std.shape, members.shape) == ((2000, 2), (2000, 2), (2000, 3, 2))
    np.testing.assert_allclose(mean, members.mean(1), rtol=1e-5)
    np.testing.assert_allclose(std, members.std(1, ddof=1), rtol=1e-4)
    one = learnt.q_values(rows[2])
    assert one[0].shape == (2,)
    np.testing.assert_allclose(one[2], members[2], rtol=1e-3, atol=1e-4)
    p = learnt.action_probabilities(rows)
    np.testing.assert_allclose(p.sum(1), 1, rtol=1e-5)
    np.testing.assert_allclose(p[2], learnt.action_probabilities(rows[2]), atol=1e-4)
    draws = learnt.predict(rows)[0][6:]
    assert draws.mean() == pytest.approx(p[0, 1], abs=5 * 0.5 / len(draws) ** 0.5)


def test_settings_reach_the_learner():
    given = {
        "noise_variance": 0.02,
        "prior_scale": 2.0,
        "gamma": 0.9,
        "learning_rate": 0.03,
        "gradient_steps": 5,
        "target_update_interval": 7,
        "double_q": False,
        "n_step": 4,
        "replay": "uncertainty",
        "reward_scale": 0.25,
        "train_freq": 3,
    }
    mountain = agent("MountainCar-v0", **given)
    built = mountain.config
    learning = built.learning
    names = ("gamma", "learning_rate", "gradient_steps", "target_update_interval", "double_q", "n_step", "replay")
    assert {name: getattr(learning, name) for name in names} == {name: given[name] for name in names}
    assert (learning.n_estimators, learning.batch_size) == (3, 16)
    assert (built.reward_scale, built.train_freq, built.learning_starts, built.buffer_size) == (0.25, 3, 40, 500)
    assert built.first_update == 40 // 3  # rollouts
    weights, bias = (learning.anchor_strength["layer_1"][name] for name in ("weights", "bias"))
    assert weights == pytest.approx(0.02 / (2.0**2 / 8))  # noise variance / prior variance of a weight
    assert bias == 0
    assert learning.anchor_strength["layer_0"]["weights"] == pytest.approx(0.02 / (1 / 2))
    # MountainCar's position lies in [−1.2, 0.6], its speed in ±0.07
    np.testing.assert_allclose(learning.network.centre, [-0.3, 0], atol=1e-6)
    np.testing.assert_allclose(learning.network.half_range, [0.9, 0.07], atol=1e-6)

    def rebuilt(**changed):
        arguments = replace(mountain.arguments, **changed)
        return build_config(arguments, mountain.runner.spaces, mountain.runner.observation)

    assert rebuilt(rescale_observations=False).learning.network == QNetwork((8,), 3)
    plain = rebuilt(noise_variance=0, target_update_interval=None, double_q=True).learning
    assert max(np.max(leaf) for leaf in jax.tree.leaves(plain.anchor_strength)) == 0
    assert (plain.target_update_interval, plain.double_q) == (None, True)


def test_values_are_in_units_of_reward():
    fresh = agent(reward_scale=0.25)
    row = np.array([0.01, -0.02, 0.03, 0.04], np.float32)
    network, params = fresh.config.learning.network, jax.tree.map(np.asarray, fresh.train_state.members.params)
    first, last = params["layer_0"], params["layer_1"]
    for m, values in enumerate(fresh.q_values(row)[2]):
        hidden = (row - network.centre) / network.half_range @ first["weights"][m] + first["bias"][m]
        raw = np.maximum(hidden, 0) @ last["weights"][m] + last["bias"][m]
        np.testing.assert_allclose(values * 0.25, raw, rtol=1e-3, atol=1e-5)


class Numbered(gymnasium.Env):
    """Steps 1, 2, 3, …; every third is the last of its episode, in turn because it ended and because time was up."""

    observation_space = gymnasium.make("CartPole-v1").observation_space  # so that its programs serve here too
    action_space = gymnasium.spaces.Discrete(2)
    count = 0

    def __init__(self, reward=1.0):
        self.reward = reward

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(4, np.float32), {}

    def step(self, action):
        self.count += 1
        ends = self.count % 3 == 0
        terminated = self.count % 2 == 0
        return np.full(4, self.count % 10, np.float32), self.reward, ends and terminated, ends and not terminated, {}


def test_time_that_is_up_is_not_an_end():
    lived = agent(Numbered(reward=2.0), reward_scale=0.5).learn(total_timesteps=12)
    stored = jax.tree.map(lambda leaf: np.asarray(leaf)[:12], lived.train_state.buffer.transitions)
    count = np.arange(1, 13)
    np.testing.assert_array_equal(stored.done, count % 3 == 0)
    np.testing.assert_array_equal(stored.terminated, count % 6 == 0)
    np.testing.assert_array_equal(stored.next_observation[:, 0], count % 10)
    np.testing.assert_array_equal(stored.observation[:, 0], np.where(count % 3 == 1, 0, (count - 1) % 10))
    np.testing.assert_array_equal(stored.reward, 2)  # scaled when they are learnt from
    assert lived.history.returns == [6] * 4


def test_many_actions_and_integers():
    lake = agent("FrozenLake-v1", exploration="index").learn(total_timesteps=120)
    assert lake.q_values(3)[0].shape == (4,)
    assert lake.action_probabilities(np.array([1, 2])).shape == (2, 4)


def test_observations_and_actions_are_the_environments_own():
    class Odd(gymnasium.Env):
        observation_space = gymnasium.spaces.Discrete(16, start=5)  # as many as FrozenLake's, whose programs serve here
        action_space = gymnasium.spaces.Discrete(4, start=7)

        def reset(self, seed=None, options=None):
            super().reset(seed=seed)
            return 5, {}

        def step(self, action):
            assert action in (7, 8, 9, 10)
            return (
                int(self.np_random.integers(5, 21)),
                float(action == 8),
                bool(self.np_random.random() < 0.2),
                False,
                {},
            )

    learnt = agent(Odd(), exploration="index", learning_rate=0.03, gamma=0.5).learn(total_timesteps=600)
    assert learnt.predict(6, deterministic=True)[0] == 8
    assert set(learnt.predict([5, 6, 7] * 20)[0]) <= {7, 8, 9, 10}
    for wrong in (2, 99, -1, 5.5, "left", [[5]]):
        with pytest.raises(ValueError, match="observation: cannot use"):
            learnt.q_values(wrong)
    pair = gymnasium.wrappers.TransformObservation(
        gymnasium.make("CartPole-v1"),
        lambda x: x.reshape(2, 2),
        gymnasium.spaces.Box(-10, 10, (2, 2)),
    )
    square = agent(pair)
    assert square.q_values(np.zeros((2, 2)))[0].shape == (2,)
    assert square.q_values(np.zeros((3, 2, 2)))[0].shape == (3, 2)
    with pytest.raises(ValueError, match="observation"):
        agent().q_values(np.full(4, np.nan))
    with pytest.raises(ValueError, match="integers from 0 to 24"):
        agent(SEA).q_values(25)
    with pytest.raises(ValueError, match="finite"):
        agent(CartPole(60)).q_values(np.full(4, np.nan))


def test_precision_is_kept(tmp_path):
    agent(CartPole(60)).learn(total_timesteps=60).save(tmp_path / "single")
    with jax.enable_x64(True):
        with pytest.raises(StorageError, match="precision"):
            QEnsembleAgent.load(tmp_path / "single")
        double = agent(CartPole(60), **PLAIN).learn(total_timesteps=60)
        assert jax.tree.leaves(double.train_state.members.params)[0].dtype == np.float64
        double.save(tmp_path / "double")
        same(QEnsembleAgent.load(tmp_path / "double").learn(total_timesteps=20), double.learn(total_timesteps=20))


def test_cart_pole_is_learnt():
    """Mean return of the last episodes against that of the first."""
    returns = agent(reward_scale=0.1, learning_rate=0.01).learn(total_timesteps=3000).history.returns
    assert np.mean(returns[-5:]) > 3 * np.mean(returns[:10])


def test_networks_of_ones_own(tmp_path):
    flax = pytest.importorskip("flax.linen")

    class Net(flax.Module):
        @flax.compact
        def __call__(self, x):
            return flax.Dense(2)(flax.LayerNorm()(flax.relu(flax.Dense(8)(x))))

    learnt = agent(network=Net(), **PLAIN).learn(total_timesteps=100)
    assert learnt.config.learning.prior.mean["LayerNorm_0"]["scale"] == 1
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
    assert QEnsembleAgent.load(tmp_path / "agent").config.exploration == rule
    assert agent(exploration="thompson").config.exploration == Thompson()


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
        history.record(reward[:70], last[:70], explored[:70])  # and whatever else was recorded, but not kept
        history = history.record(reward[start : start + 7], last[start : start + 7], explored[start : start + 7])
    parts = np.split(np.arange(100), np.flatnonzero(last) + 1)
    np.testing.assert_allclose(history.returns, [reward[p].sum() for p in parts[:-1]])
    assert history.lengths == [len(p) for p in parts[:-1]]
    assert history.explored == [int(explored[p].sum()) for p in parts[:-1]]
    assert history.current[1] == len(parts[-1])


def test_learning_curves_against_brute_force():
    generator = np.random.default_rng(0)
    histories = [History(generator.normal(size=30).tolist(), generator.integers(5, 20, 30).tolist()) for _ in range(8)]
    steps, returns = learning_curves.returns_by_step(histories, 6)
    assert steps[-1] == min(sum(history.lengths) for history in histories)
    for history, row in zip(histories, returns, strict=True):
        ends = np.cumsum(history.lengths)
        for low, high, value in zip([0, *steps[:-1]], steps, row, strict=True):
            assert value == pytest.approx(np.mean(np.array(history.returns)[(ends > low) & (ends <= high)]))
    middle = np.sort(returns, 0)[2:6].mean(0)
    np.testing.assert_allclose(learning_curves.interquartile_mean(returns), middle)
    lower, upper = learning_curves.bootstrap_interval(returns)
    expected = bootstrap((returns[:, 0],), lambda x, axis: trim_mean(x, 0.25, axis), method="percentile", rng=0)
    assert lower[0] == pytest.approx(expected.confidence_interval.low, abs=0.1)
    assert upper[0] == pytest.approx(expected.confidence_interval.high, abs=0.1)
    display = LearningCurveDisplay(steps, returns).plot()
    np.testing.assert_allclose(display.ax_.lines[-1].get_ydata(), middle)
    with pytest.raises(ValueError, match="no finished episode"):
        learning_curves.returns_by_step([History()])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"exploration": "thomson"}, "exploration must be one of"),
        ({"exploration": 3}, "exploration must be one of"),
        ({"replay": "prioritised"}, "replay must be one of"),
        ({"replay": "rare"}, 'replay can be "rare" only if observations are integers'),
        ({"n_estimators": 0}, "n_estimators"),
        ({"train_freq": 0}, "train_freq"),
        ({"train_freq": "epoch"}, "train_freq"),
        ({"gamma": 1.5}, "gamma"),
        ({"noise_variance": -1}, "noise_variance"),
        ({"prior_scale": (1.0, 1.0, 1.0)}, "prior_scale must be one number or 2"),
        ({"hidden_layer_sizes": (0,)}, "hidden_layer_sizes"),
        ({"activation": "rulu"}, "activation"),
        ({"optimizer": "addam"}, "optimizer"),
        ({"reward_scale": 0}, 'reward_scale must be a positive number or "auto"'),
        ({"seed": -1}, "seed"),
        ({"seed": 2**32 + 3}, "seed must be below"),
        ({"exploration": Thompson}, "such as Thompson"),
        ({"hidden_layer_sizes": 8}, "hidden_layer_sizes must be a sequence"),
        ({"prior_scale": "auto"}, "prior_scale must be a number"),
        ({"prior_scale": None}, "prior_scale must be a number"),
        ({"network": MLP((8, 8), 2), "prior_scale": (1.0, 3.0)}, "prior_scale must be one number or 3"),
        ({"double_q": "no"}, "double_q must be True or False"),
        ({"rescale_observations": None}, "rescale_observations must be True or False"),
        ({"exploration": EpsilonGreedy(np.nan)}, "exploration must have finite numbers"),
        ({"exploration": Until(3.0, EpsilonGreedy("1"), Greedy())}, "exploration must have finite numbers"),
        ({"env": "Pendulum-v1"}, "Discretise"),
        ({"env": "CartPole-v9"}, "CartPole-v9"),
        ({"env": 3}, "env: cannot use a int"),
        ({"env": CartPole}, "env: .*instance"),
    ],
)
def test_bad_settings_are_named(settings, words):
    with pytest.raises((ValueError, TypeError), match=words):
        agent(**settings)


def test_a_buffer_beyond_memory_is_refused(monkeypatch):
    """Before anything is allocated: two buffers of pairs of observations of four float32 numbers."""
    monkeypatch.setattr("anchored.rl.run.physical_memory", lambda: 16e9)
    with pytest.raises(ValueError, match=r"buffer_size must be smaller: .*need 128.0 GB .*has 16.0 GB"):
        agent(buffer_size=2_000_000_000)


def test_bad_calls_are_named(tmp_path):
    fresh = agent()
    with pytest.raises(ValueError, match="total_timesteps or total_episodes"):
        fresh.learn()
    with pytest.raises(ValueError, match="total_episodes"):
        fresh.learn(total_episodes=0)
    with pytest.raises(ValueError, match="eval_every must be given together with eval_env"):
        fresh.learn(total_timesteps=10, eval_env="CartPole-v1")
    for call in (fresh.predict, fresh.q_values, fresh.action_probabilities):
        for wrong in (np.zeros(3), None, "abcd"):
            with pytest.raises(ValueError, match=r"observation: cannot use .*does not belong to the observation_space"):
                call(wrong)
    with pytest.raises(ValueError, match=r"observation: cannot use .*its entry 0 is nan"):
        fresh.predict(np.full(4, np.nan))
    with pytest.raises(FileNotFoundError):
        QEnsembleAgent.load(tmp_path / "nothing")
    (tmp_path / "text").write_text("not an agent")
    with pytest.raises(StorageError):
        QEnsembleAgent.load(tmp_path / "text")
    fresh.save(tmp_path / "agent")
    with pytest.raises(StorageError, match="does not fit"):
        QEnsembleAgent.load(tmp_path / "agent", env="Acrobot-v1")
    with pytest.raises(FileNotFoundError, match="no folder"):
        fresh.learn(total_timesteps=10, checkpoint=tmp_path / "nowhere" / "agent")
    for folder in (tmp_path, ""):
        with pytest.raises(IsADirectoryError, match="is a folder; name a file in it"):
            fresh.learn(total_timesteps=10, checkpoint=folder)

    class Mine(Greedy):
        """An exploration that `load` would not know."""

    with pytest.raises(TypeError, match="decorate it"):
        agent(exploration=Mine())
    trees.register(Mine)

    for unsaved, words in (
        (agent(optimizer=optax.adam), "optimizer"),
        (agent(exploration=Mine()), "exploration"),
        (agent(exploration=Until(2.0, Mine(), Greedy())), "exploration: .*Mine"),
    ):
        with pytest.raises(TypeError, match=words):
            unsaved.learn(total_timesteps=10, checkpoint=tmp_path / "other")
        assert unsaved.n_steps == 0
    assert not (tmp_path / "other").exists()
    agent(hidden_layer_sizes=np.array([8]), prior_scale=(np.float32(1), 3)).save(tmp_path / "numpy")
    assert QEnsembleAgent.load(tmp_path / "numpy").arguments.prior_scale == [1, 3]
    rule = EpsilonGreedy(jnp.float32(0.5), np.float32(0.25), 10)
    agent(hidden_layer_sizes=range(8, 9), prior_scale=jnp.array(3.0), exploration=rule).save(tmp_path / "other")
    loaded = QEnsembleAgent.load(tmp_path / "other")
    assert loaded.arguments.prior_scale == 3.0
    assert loaded.arguments.hidden_layer_sizes == [8]
    assert loaded.config.exploration == EpsilonGreedy(0.5, 0.25, 10.0)


@pytest.mark.parametrize(
    ("saved", "loaded"),
    [
        ("CartPole-v1", CartPole(60)),
        (CartPole(60), "CartPole-v1"),
        (SEA, NChain(25)),
        (NChain(25), SEA),
    ],
)
def test_an_agent_is_loaded_into_an_environment_of_its_kind(saved, loaded, tmp_path):
    agent(saved).save(tmp_path / "agent")
    with pytest.raises(StorageError, match="does not fit this environment"):
        QEnsembleAgent.load(tmp_path / "agent", env=loaded)


def test_rewards_are_recorded_as_they_are():
    """Whatever they are scaled by, and not in single precision."""
    assert agent(Numbered(reward=0.7), reward_scale=0.3).learn(total_timesteps=12).history.returns == [0.7 * 3] * 4
    tiny = agent(CartPole(60), reward_scale=1e-40).learn(total_timesteps=100).history
    assert tiny.returns == tiny.lengths


def test_environments_made_for_evaluation_are_closed():
    class Closing(gymnasium.Wrapper):
        n_closed = 0

        def close(self):
            Closing.n_closed += 1

    gymnasium.register("Closing-v0", lambda: Closing(gymnasium.make("CartPole-v1")), max_episode_steps=20)
    try:
        learning = agent("Closing-v0")
        learning.evaluate(1)
        learning.learn(total_timesteps=8, eval_every=4, n_eval_episodes=1)
        learning.evaluate(1, env="Closing-v0")
        assert Closing.n_closed == 3
        own = gymnasium.make("Closing-v0")
        learning.evaluate(1, env=own)
        assert Closing.n_closed == 3
    finally:
        del gymnasium.registry["Closing-v0"]


def test_members_that_are_lost_are_reported():
    with pytest.raises(ArithmeticError, match="learning_rate"):
        agent(learning_rate=1e30).learn(total_timesteps=300)
