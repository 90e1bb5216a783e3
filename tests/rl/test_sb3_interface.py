"""What users of Stable-Baselines3 expect: callbacks, logs, schedules, pickles, another environment, `evaluate_policy`.

The tests with the real package run where it is installed, and `make test-sb3` installs it.
"""

import csv
import pickle

import gymnasium
import jax
import numpy as np
import pytest

from anchored.paper.experiments.cart_pole_study import VARIANTS, Study, configuration
from anchored.rl import FileLogger, LinearSchedule, QEnsembleAgent
from anchored.rl.environments import CartPole, DeepSea
from anchored.rl.exploration import Greedy

SMALL = {"n_estimators": 3, "hidden_layer_sizes": (8,), "batch_size": 16, "learning_starts": 40, "buffer_size": 500}


def agent(env="CartPole-v1", **settings):
    return QEnsembleAgent(env, **{**SMALL, "seed": 0, **settings})


def assert_same(a, b):
    assert a.history == b.history
    jax.tree.map(np.testing.assert_array_equal, a.train_state.members, b.train_state.members)


def test_a_function_ends_training():
    seen = []

    def stop(locals_, globals_):
        seen.append((locals_["rewards"][0], locals_["dones"][0], locals_["infos"][0]))
        return len(seen) < 50

    learnt = agent().learn(500, stop)
    assert learnt.n_steps == 52 == len(seen)  # a whole rollout of 4 steps
    ends = [info["episode"] for _, done, info in seen if done]
    assert [end["r"] for end in ends] == learnt.history.returns
    assert [end["l"] for end in ends] == learnt.history.lengths
    with pytest.raises(ValueError, match="callback must be"):
        agent().learn(8, callback=3)


def test_counters_of_several_calls():
    learnt = agent().learn(40)
    assert (learnt.num_timesteps, learnt.n_steps) == (40, 40)
    assert learnt.learn(20, reset_num_timesteps=False).num_timesteps == 60
    assert learnt.learn(20).num_timesteps == 20
    assert learnt.n_steps == 80


def test_predict_has_their_signature():
    learnt = agent()
    rows = np.zeros((3, 4), np.float32)
    actions, state = learnt.predict(rows, state="kept", episode_start=np.ones(3, bool), deterministic=True)
    assert (actions.shape, state) == ((3,), "kept")


def test_schedule_of_the_learning_rate(tmp_path):
    """SGD with a rate that has fallen to almost nothing moves nothing; a run cut in two equals one that is not."""
    schedule = LinearSchedule(1e-3, 1e-12, 60)
    assert [float(schedule(step)) for step in (0, 30, 60, 90)] == pytest.approx([1e-3, 5e-4, 1e-12, 1e-12], rel=1e-4)
    whole = agent(learning_rate=schedule).learn(100)
    at_rest = jax.tree.map(np.array, whole.train_state.members.params)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-7), whole.learn(20).get_parameters()["members"], at_rest
    )
    agent(learning_rate=schedule).learn(52).save(tmp_path / "agent")
    resumed = QEnsembleAgent.load(tmp_path / "agent")
    assert resumed.arguments.learning_rate == schedule
    assert_same(resumed.learn(68), whole)
    with pytest.raises(TypeError, match="LinearSchedule"):
        agent(learning_rate=lambda progress: 1e-3)
    with pytest.raises(ValueError, match=r"learning_rate\.end must be"):
        agent(learning_rate=LinearSchedule(1e-3, 0, 10))


def test_arguments_changed_when_loaded(tmp_path):
    agent().learn(80).save(tmp_path / "agent")
    changed = QEnsembleAgent.load(tmp_path / "agent", learning_rate=1e-12, exploration="greedy")
    assert changed.config.exploration == Greedy()
    before = changed.get_parameters()["members"]
    after = changed.learn(40).get_parameters()["members"]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-7), before, after)
    with pytest.raises(ValueError, match="n_estimators"):
        QEnsembleAgent.load(tmp_path / "agent", n_estimators=5)


@pytest.mark.parametrize("env", ["CartPole-v1", CartPole(60)])
def test_pickle(env):
    whole = agent(env).learn(200)
    copy = pickle.loads(pickle.dumps(agent(env).learn(100)))
    assert_same(copy.learn(100), whole)


def test_another_environment():
    learnt = agent().learn(60)
    n_steps = sum(learnt.history.lengths)
    learnt.set_env(gymnasium.make("CartPole-v1", max_episode_steps=10))
    assert learnt.get_env().spec.max_episode_steps == 10
    newest = (int(learnt.train_state.buffer.n_added) - 1) % 500
    assert bool(learnt.train_state.buffer.transitions.done[newest])
    learnt.learn(60)
    assert sum(learnt.history.lengths) + learnt.history.current.length == n_steps + 60
    assert max(learnt.history.lengths[-3:]) <= 10
    with pytest.raises(ValueError, match="n_actions is 3"):
        learnt.set_env("MountainCar-v0")


def test_spaces_and_text():
    assert agent().observation_space == gymnasium.make("CartPole-v1").observation_space
    sea = agent(DeepSea(5))
    assert (sea.observation_space, sea.action_space) == (gymnasium.spaces.Discrete(25), gymnasium.spaces.Discrete(2))
    assert sea.get_env() == DeepSea(5)
    assert repr(sea) == "<QEnsembleAgent(DeepSea, n_estimators=3, exploration='member', seed=0), 0 steps, 0 episodes>"


def test_log(tmp_path):
    learnt = agent(reward_scale=0.5)
    learnt.set_logger(FileLogger(tmp_path / "log"))
    assert_same(learnt.learn(200, log_interval=2), agent(reward_scale=0.5).learn(200))  # a log changes nothing
    with (tmp_path / "log" / "progress.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(float(row["time/episodes"])) for row in rows] == list(range(2, learnt.n_episodes + 1, 2))
    n, last = int(float(rows[-1]["time/episodes"])), rows[-1]
    lengths, explored = learnt.history.lengths[:n], learnt.history.explored[:n]
    assert float(last["rollout/ep_rew_mean"]) == pytest.approx(np.mean(lengths))  # one for each step
    assert float(last["rollout/exploration_share"]) == pytest.approx(sum(explored) / sum(lengths))
    assert float(last["train/learning_rate"]) == pytest.approx(1e-3)
    assert all(float(last[f"train/{name}"]) > 0 for name in ("loss", "td_error", "q_std"))


def test_log_for_tensorboard(tmp_path):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logger = FileLogger(tmp_path, ("tensorboard",))
    logger.record("train/loss", 0.25)
    logger.dump(7)
    events = EventAccumulator(str(tmp_path)).Reload()
    assert events.Tensors("train/loss")[0].step == 7


def test_the_papers_agent(tmp_path):
    """Configured as in the study of figure 4, and saved as any other."""
    agent = QEnsembleAgent.paper(CartPole(200), seed=0)
    study = configuration(Study(), VARIANTS["thompson"]).agent
    for name in ("network", "n_estimators", "optimizer", "batch_size", "gradient_steps", "own_batches", "double_q"):
        assert getattr(agent.config.learning, name) == getattr(study.learning, name)
    for name in ("prior", "anchor_strength", "gamma", "learning_rate", "anchor_size"):
        a, b = getattr(agent.config.learning, name), getattr(study.learning, name)
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-6), a, b)
    for name in ("train_freq", "learning_starts", "buffer_size", "reward_scale"):
        assert getattr(agent.config, name) == pytest.approx(getattr(study, name)) or name == "train_freq"
    assert agent.config.train_freq == study.train_freq == "episode"
    agent.learn(total_episodes=2).save(tmp_path / "agent")
    assert QEnsembleAgent.load(tmp_path / "agent").arguments == agent.arguments


def test_evaluate_policy_of_stable_baselines3():
    pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed")
    from stable_baselines3.common.evaluation import evaluate_policy

    learnt = agent().learn(400)
    mean, std = evaluate_policy(learnt, gymnasium.make("CartPole-v1"), n_eval_episodes=3, warn=False)
    assert 1 <= mean <= 500 and std >= 0
    lake = agent("FrozenLake-v1").learn(100)
    assert 0 <= evaluate_policy(lake, gymnasium.make("FrozenLake-v1"), n_eval_episodes=3, warn=False)[0] <= 1


@pytest.mark.filterwarnings("ignore:Training and eval env are not of the same type")  # theirs are always vectorised
def test_callbacks_of_stable_baselines3(tmp_path):
    callbacks = pytest.importorskip("stable_baselines3.common.callbacks", reason="stable-baselines3 is not installed")

    class StopAt(callbacks.BaseCallback):
        def _on_step(self):
            return self.num_timesteps < 100

    assert agent().learn(1000, StopAt()).n_steps == 100
    assert 5 <= agent().learn(5000, callbacks.StopTrainingOnMaxEpisodes(5, verbose=0)).n_episodes <= 6
    logged = agent()
    logged.set_logger(FileLogger(tmp_path / "log"))
    logged.learn(100, callbacks.LogEveryNTimesteps(40), log_interval=1000)
    assert len((tmp_path / "log" / "progress.csv").read_text().splitlines()) == 3
    saved = callbacks.CheckpointCallback(50, str(tmp_path / "saved"))
    agent().learn(100, [saved])
    assert len(list((tmp_path / "saved").iterdir())) == 2
    evaluation = callbacks.EvalCallback(
        gymnasium.make("CartPole-v1"), n_eval_episodes=2, eval_freq=100, warn=False, verbose=0
    )
    assert agent().learn(100, evaluation).n_steps == 100
    assert evaluation.last_mean_reward >= 1
