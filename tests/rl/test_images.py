"""Images of bytes: a convolutional network, and a replay buffer that stores each observation once, as bytes."""

import forging
import gymnasium
import jax
import numpy as np
import pytest

from anchored import StorageError
from anchored.rl import QEnsembleAgent, replay, run
from anchored.rl.arguments import build_config
from anchored.rl.image_network import FOR_LARGE, FOR_SMALL, ImageQNetwork
from anchored.rl.q_network import Rescaled
from anchored.rl.runners import make_runner

SMALL = {"n_estimators": 3, "hidden_layer_sizes": (8,), "batch_size": 16, "learning_starts": 40, "buffer_size": 150}
SIZE = 5


class Catch(gymnasium.Env):
    """A ball falls onto a paddle; images are (SIZE, SIZE, 1)."""

    observation_space = gymnasium.spaces.Box(0, 255, (SIZE, SIZE, 1), np.uint8)
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.row, self.column, self.paddle = 0, int(self.np_random.integers(1, SIZE)), SIZE // 2
        return self.image(), {}

    def step(self, action):
        self.paddle = int(np.clip(self.paddle + action - 1, 0, SIZE - 1))
        self.row += 1
        ends = self.row == SIZE - 1
        return self.image(), float(ends) * (1 if self.column == self.paddle else -1), ends, False, {}

    def image(self):
        image = np.zeros((SIZE, SIZE, 1), np.uint8)
        image[self.row, self.column], image[-1, self.paddle] = 255, 128
        return image


def several():
    return gymnasium.vector.SyncVectorEnv([Catch] * 3)


def agent(env, **settings):
    return QEnsembleAgent(env, **{**SMALL, "seed": 0, **settings})


@pytest.mark.parametrize("make", [Catch, several])
def test_a_run_cut_in_two_is_the_run_uncut(make, tmp_path):
    whole = agent(make()).learn(240)
    cut = agent(make()).learn(131)
    cut.save(tmp_path / "agent")
    resumed = QEnsembleAgent.load(tmp_path / "agent", env=make())
    resumed.learn(240 - resumed.n_steps)
    assert resumed.history == whole.history
    jax.tree.map(np.testing.assert_array_equal, resumed.train_state.members, whole.train_state.members)
    jax.tree.map(np.testing.assert_array_equal, resumed.train_state.buffer, whole.train_state.buffer)


@pytest.mark.parametrize("make", [Catch, several])
def test_transitions_are_what_the_environment_did(make):
    """Every row that is drawn is a possible step of the game, though each observation is stored once."""
    learnt = agent(make()).learn(300)
    buffer, n_envs = learnt.train_state.buffer, learnt.n_envs
    assert buffer.transitions.next_observation is None
    assert buffer.transitions.observation.dtype == np.uint8
    batch = jax.jit(replay.n_step_batch, static_argnums=(3, 4))(buffer, np.arange(150), 0.9, 1, n_envs)
    before, after = (np.asarray(part)[..., 0] for part in (batch.observation, batch.next_observation))
    for image, action, reward, following, discount in zip(
        before, np.asarray(batch.action), np.asarray(batch.reward), after, np.asarray(batch.discount), strict=True
    ):
        game = Catch()
        game.row, game.column = np.argwhere(image == 255)[0]
        game.paddle = np.argmax(image[-1] == 128)
        expected, expected_reward, ends, *_ = game.step(action)
        np.testing.assert_array_equal(following, expected[..., 0])
        assert (reward, discount) == (expected_reward, 0 if ends else np.float32(0.9))
    learnt.set_env(make())
    cut = learnt.train_state.buffer  # has a row for the last observation before the change
    newest = (int(cut.n_added) - 1 - np.arange(n_envs)) % 150
    assert not np.asarray(replay.is_step(cut.transitions))[newest].any()


def test_convolutions_are_sums_over_patches():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (2, 3, 7, 6), np.uint8)  # channels first
    network = ImageQNetwork((4,), 2, convolutions=((5, 3, 2),), channels_first=True)
    shapes = network.init(jax.random.key(0), images)
    params = {
        name: {part: rng.normal(size=value.shape).astype(np.float32) for part, value in layer.items()}
        for name, layer in shapes.items()
    }
    hidden = np.zeros((2, 3, 2, 5))
    for i, j in np.ndindex(3, 2):
        patch = images[:, :, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3].astype(float)
        hidden[:, i, j] = np.einsum("nchw,hwcf->nf", patch, params["layer_0"]["weights"]) + params["layer_0"]["bias"]
    hidden = np.maximum(hidden, 0).reshape(2, -1)
    hidden = np.maximum(hidden @ params["layer_1"]["weights"] + params["layer_1"]["bias"], 0)
    expected = hidden @ params["layer_2"]["weights"] + params["layer_2"]["bias"]
    np.testing.assert_allclose(network.apply(params, images), expected, rtol=1e-4)


def test_networks_follow_the_size_of_images():
    arguments = agent(Catch()).arguments

    def network(shape, dtype=np.uint8):
        class Screen(gymnasium.Env):
            observation_space = gymnasium.spaces.Box(0, 255, shape, dtype)
            action_space = gymnasium.spaces.Discrete(2)

            def reset(self, *, seed=None, options=None):
                return np.zeros(shape, dtype), {}

        runner = make_runner(Screen(), 0)
        return build_config(arguments, runner.spaces, runner.observation).learning.network

    large, small, grey = network((4, 84, 84)), network((10, 10, 6)), network((9, 9))
    assert isinstance(large, Rescaled) and large.half_range == (255.0,)
    assert (large.network.convolutions, large.network.channels_first) == (FOR_LARGE, True)
    assert (small.network.convolutions, small.network.channels_first) == (FOR_SMALL, False)
    assert isinstance(grey.network, ImageQNetwork)
    assert not isinstance(network((10, 10, 6), np.float32).network, ImageQNetwork)


def test_memory_is_estimated_first(monkeypatch):
    with pytest.raises(ValueError, match=r"buffer_size must be smaller: 1,000,000,000 transitions .* need 50\.0 GB"):
        monkeypatch.setattr(run, "physical_memory", lambda: 4e9)
        agent(Catch(), buffer_size=10**9)


def test_a_forged_network_is_refused(tmp_path):
    agent(Catch()).save(tmp_path / "agent")
    header, arrays = forging.parts(tmp_path / "agent")
    arrays["train_state/members/params/layer_0/weights"] = arrays["train_state/members/params/layer_0/weights"] + 1e14
    forging.write_forged(tmp_path / "agent", header, arrays)
    with pytest.raises(StorageError, match="allow values beyond"):
        QEnsembleAgent.load(tmp_path / "agent", env=Catch())
