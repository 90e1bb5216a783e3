"""What the page of CartPole shows is what the agent says."""

import numpy as np
import pytest

from anchored.errors import ArgumentError
from anchored.playground import cart_pole
from anchored.playground.cart_pole import CartPoleSettings
from anchored.rl import QEnsembleAgent
from anchored.rl.environments import CartPole, MountainCar


@pytest.fixture(scope="module")
def agent():
    agent = cart_pole.new_agent(CartPoleSettings(n_members=3))
    for _ in range(40):
        agent.learn(16, reset_num_timesteps=False)
    return agent


def test_an_agent_that_is_watched_learns_the_same(agent):
    """Pictures between steps change nothing: it is the agent that learns in one go."""
    whole = QEnsembleAgent(CartPole(200), 3, "thompson", seed=0).learn(640)
    assert whole.history.returns == agent.history.returns
    state = np.array([0.1, 0.2, 0.05, -0.3])
    shown = cart_pole.snapshot(agent, state)
    _, _, q = whole.q_values(state.astype(np.float32))
    np.testing.assert_allclose(shown.q, q, atol=1e-6)
    np.testing.assert_allclose(shown.mean, q.mean(0), atol=1e-6)
    np.testing.assert_allclose(shown.std, q.std(0, ddof=1), atol=1e-6)
    np.testing.assert_allclose(shown.probabilities, whole.action_probabilities(state.astype(np.float32)), atol=1e-6)
    np.testing.assert_allclose(shown.explored, np.divide(whole.history.explored, whole.history.lengths))
    assert shown.n_steps == 640


def test_steps_are_those_of_gymnasium():
    gymnasium = pytest.importorskip("gymnasium")
    env = gymnasium.make("CartPole-v1").unwrapped
    env.reset(seed=0)
    state = np.array(env.state)
    for action in (0, 1, 1, 0, 1):
        expected = env.step(action)[0]
        state, has_ended = cart_pole.next_state(state, action)
        np.testing.assert_allclose(state, expected, atol=1e-6)
        assert not has_ended
    assert cart_pole.next_state(np.array([2.39, 3.0, 0.0, 0.0]), 1)[1]


def test_a_saved_agent_is_replayed(agent, tmp_path):
    agent.save(tmp_path / "agent")
    loaded = cart_pole.loaded_agent(tmp_path / "agent")
    state = cart_pole.current_state(agent)
    np.testing.assert_array_equal(cart_pole.snapshot(loaded, state).q, cart_pole.snapshot(agent, state).q)
    QEnsembleAgent(MountainCar(), 3, seed=0).save(tmp_path / "other")
    with pytest.raises(ArgumentError, match="CartPole"):
        cart_pole.loaded_agent(tmp_path / "other")


def test_a_density_integrates_to_one():
    at = np.linspace(-10, 10, 4001)
    assert np.trapezoid(cart_pole.density(1.0, 0.5, at), at) == pytest.approx(1)
    assert np.isfinite(cart_pole.density(1.0, 0.0, at)).all()


@pytest.mark.parametrize("value", [float("nan"), 5.0, "0", None, True, [0.0]])
def test_a_bad_state_is_refused(value):
    with pytest.raises(ArgumentError, match="position"):
        cart_pole.checked_state({"position": value, "velocity": 0.0, "angle": 0.0, "angular_velocity": 0.0})


@pytest.mark.parametrize(
    ("name", "value"), [("n_members", 1), ("n_members", 2.5), ("exploration", "all"), ("seed", -1)]
)
def test_settings_are_checked(name, value):
    with pytest.raises(ArgumentError, match=name):
        CartPoleSettings(**{name: value}).check()
