"""JAX environments against Gymnasium's and bsuite's own, and the adapter for Gymnasium."""

import sys
from functools import partial

import bsuite
import dm_env
import dm_env.specs
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bsuite.environments.bandit import SimpleBandit
from bsuite.environments.deep_sea import DeepSea as BsuiteDeepSea
from gymnasium import spaces

from anchored.rl import QEnsembleAgent
from anchored.rl.environments import (
    Acrobot,
    Asterix,
    Bandit,
    Breakout,
    CartPole,
    DeepSea,
    Freeway,
    GymnasiumAdapter,
    MountainCar,
    NChain,
    Seaquest,
    SpaceInvaders,
)
from anchored.rl.environments.deep_sea import Noise
from anchored.storage.headers import StorageError

EVERY = [
    CartPole(),
    MountainCar(),
    Acrobot(),
    DeepSea(),
    DeepSea(size=7, stochastic=True),
    NChain(),
    Bandit(),
    Bandit(noise_scale=1.0),
    Asterix(),
    Breakout(),
    Freeway(),
    Seaquest(),
    SpaceInvaders(),
]
# Starts that reach every branch: ends of the track, the wall and the goal, angles that wrap, speeds that are cut.
# And Gymnasium's own, from where whole episodes are compared (the fast Acrobot is chaotic: there 1e-16 grows to 1e-4
# within 20 steps).
CONTROL = {
    "CartPole-v1": (CartPole(500), [2.4, 3.0, 0.2, 3.0], [0.05, 0.05, 0.05, 0.05], [0, 0, 0, 0]),
    "MountainCar-v0": (MountainCar(), [0.9, 0.07], [0.1, 0.0], [-0.5, 0.0]),
    "Acrobot-v1": (Acrobot(), [np.pi, np.pi, 4 * np.pi, 9 * np.pi], [0.1, 0.1, 0.1, 0.1], [0, 0, 0, 0]),
}


def keys(number, seed=0):
    return jax.random.split(jax.random.key(seed), number)


def gymnasium_run(name, half_range, centre, longest, n_steps=3_000):
    """Random steps of Gymnasium's environment in float64, in episodes of at most `longest` steps."""
    rng = np.random.default_rng(0)
    env = gymnasium.make(name).unwrapped
    rows, age = {n: [] for n in ("state", "fresh", "action", "following", "observation", "reward", "terminated")}, 0
    for step in range(n_steps):
        fresh = step == 0 or age == longest or rows["terminated"][-1]
        if fresh:
            env.reset(seed=0)
            env.state = rng.uniform(-1, 1, len(half_range)) * half_range + centre
            age = 0
        rows["state"].append(np.array(env.state, np.float64))
        rows["fresh"].append(fresh)
        rows["action"].append(rng.integers(env.action_space.n))
        observation, reward, terminated, _, _ = env.step(rows["action"][-1])
        rows["following"].append(np.array(env.state, np.float64))
        rows["observation"].append(observation)
        rows["reward"].append(reward)
        rows["terminated"].append(terminated)
        age += 1
    return {n: np.array(column) for n, column in rows.items()}


@pytest.mark.parametrize("name", CONTROL)
def test_steps_and_episodes_equal_gymnasiums(double, name):
    """Single steps from anywhere, and whole episodes, in one program."""
    environment, anywhere, starts, centre = CONTROL[name]
    single = gymnasium_run(name, anywhere, [-0.3, 0.0] if name == "MountainCar-v0" else centre, longest=20)
    assert 15 < single["terminated"].sum() < len(single["terminated"]) - 15
    single["fresh"][:] = True  # each step starts at Gymnasium's own state, episodes only where they begin
    episodes = gymnasium_run(name, starts, centre, longest=200)
    theirs = {column: np.concatenate([single[column], episodes[column]]) for column in single}

    def walk(state, row):
        start, fresh, action = row
        step = environment.step(None, jnp.where(fresh, start, state), action)
        return step.state, (step, environment.observe(step.state))

    rows = (theirs["state"], theirs["fresh"], theirs["action"])
    _, (ours, observed) = jax.jit(lambda rows: jax.lax.scan(walk, rows[0][0], rows))(rows)
    assert ours.state.dtype == ours.reward.dtype == np.float64
    np.testing.assert_allclose(ours.state, theirs["following"], rtol=0, atol=1e-10)
    np.testing.assert_array_equal(ours.reward, theirs["reward"])
    np.testing.assert_array_equal(ours.terminated, theirs["terminated"])
    np.testing.assert_allclose(observed, theirs["observation"], rtol=2e-7, atol=2e-7)  # theirs are float32


@pytest.mark.parametrize("name", CONTROL)
def test_control_starts_where_gymnasium_does(name):
    environment, _, half_range, centre = CONTROL[name]
    starts = np.asarray(jax.jit(jax.vmap(environment.reset))(keys(4000)))
    half_range, centre = np.array(half_range), np.array(centre)
    assert np.all(np.abs(starts - centre) <= half_range + 1e-6)
    # a uniform's mean and variance to four standard errors: σ² = w²/3, and the fourth moment is w⁴/5
    assert np.all(np.abs(starts.mean(0) - centre) <= 4 * half_range / np.sqrt(3 * 4000) + 1e-6)
    error = half_range**2 * np.sqrt((1 / 5 - 1 / 9) / 4000)
    assert np.all(np.abs(starts.var(0) - half_range**2 / 3) <= 4 * error + 1e-6)
    theirs = gymnasium.make(name)
    assert environment.max_episode_steps == theirs.spec.max_episode_steps
    assert environment.n_actions == theirs.action_space.n
    assert environment.observation_size == theirs.observation_space.shape[0]


class Recorder:
    """bsuite's own random numbers, written down; what it did not draw is NaN."""

    def __init__(self, seed):
        self._rng, self.reward, self.current = np.random.RandomState(seed), np.nan, np.nan

    def forget(self):
        self.reward = self.current = np.nan

    def randn(self):
        self.reward = self._rng.randn()
        return self.reward

    def rand(self):
        self.current = self._rng.rand()
        return self.current


def bsuite_run(size, stochastic, n_episodes=300):
    """Episodes of bsuite's deep sea that mostly go right, (episodes, steps) in every entry."""
    env = BsuiteDeepSea(size, deterministic=not stochastic, mapping_seed=42)
    env._rng = recorder = Recorder(1)
    rng = np.random.default_rng(0)
    names = ("seen", "action", "reward_noise", "current", "reward", "terminated", "bad", "denoised")
    rows = {n: [] for n in names}
    for _ in range(n_episodes):
        timestep, before = env.reset(), env.bsuite_info()["denoised_return"]
        while not timestep.last():
            rows["seen"].append(timestep.observation.argmax())
            right = env._action_mapping[env._row, env._column]
            rows["action"].append(right if rng.random() < 0.85 else 1 - right)
            recorder.forget()
            timestep = env.step(rows["action"][-1])
            rows["reward_noise"].append(recorder.reward)
            rows["current"].append(recorder.current)
            rows["reward"].append(timestep.reward)
            rows["terminated"].append(timestep.last())
            rows["bad"].append(env._bad_episode)
            rows["denoised"].append(env.bsuite_info()["denoised_return"] - before)
    return {n: np.reshape(column, (n_episodes, size)) for n, column in rows.items()}, env.bsuite_info()


@pytest.mark.parametrize("size, stochastic", [(10, False), (14, True)])
def test_deep_sea_equals_bsuites(double, size, stochastic):
    theirs, totals = bsuite_run(size, stochastic)
    environment = DeepSea(size, stochastic=stochastic)

    def walk(state, row):
        action, noise = row
        step = environment.transition(state, action, noise)
        return step.state, (environment.observe(state), step)

    def episode(actions, noise):
        return jax.lax.scan(walk, environment.reset(None), (actions, noise))[1]

    noise = Noise(theirs["reward_noise"], theirs["current"])
    seen, ours = jax.jit(jax.vmap(episode))(theirs["action"], noise)
    np.testing.assert_array_equal(seen, theirs["seen"])
    np.testing.assert_allclose(ours.reward, theirs["reward"], rtol=0, atol=1e-14)
    np.testing.assert_array_equal(ours.terminated, theirs["terminated"])
    np.testing.assert_array_equal(ours.state.bad, theirs["bad"])
    np.testing.assert_array_equal(ours.state.denoised_return, theirs["denoised"])
    assert ours.state.bad[:, -1].sum() == totals["total_bad_episodes"]
    assert ours.state.denoised_return[:, -1].sum() == totals["denoised_return"]
    # every branch was taken
    assert 0 < totals["denoised_return"] < 300 and 0 < totals["total_bad_episodes"] < 300
    assert np.isfinite(theirs["reward_noise"]).any() == stochastic
    assert environment.max_episode_steps == size


def test_deep_sea_draws_its_own_noise():
    """At the last cell of the way: a right move's reward is N(1 − 0.01/N, 1), and the current undoes 1 in N."""
    size, n = 5, 20_000
    environment = DeepSea(size, stochastic=True)
    start = environment.reset(None)
    right = environment.right_actions
    many = jax.jit(jax.vmap(environment.step, (0, None, None)))
    last = many(keys(n), start._replace(row=np.int32(4), column=np.int32(4)), right[4, 4])
    assert abs(np.mean(last.reward) - (1 - 0.01 / size)) < 4 / np.sqrt(n)
    assert abs(np.var(last.reward) - 1) < 4 * np.sqrt(2 / n)
    corner = many(keys(n, 1), start._replace(row=np.int32(4)), right[4, 0])
    stays, undone = 1 / size, np.asarray(corner.state.column) == 0
    assert abs(undone.mean() - stays) < 4 * np.sqrt(stays * (1 - stays) / n)
    assert abs(np.corrcoef(undone, corner.reward)[0, 1]) < 4 / np.sqrt(n)


@pytest.mark.parametrize("slip", [0.0, 0.2])
def test_n_chain_follows_its_definition(slip):
    n = 10_000
    environment = NChain(slip=slip)
    many = jax.jit(jax.vmap(environment.step, (0, None, None)))
    for state in range(5):
        onward = (min(state + 1, 4), 10.0 if state == 4 else 0.0)
        for action, (meant, slipped) in enumerate([(onward, (0, 2.0)), ((0, 2.0), onward)]):
            step = many(keys(n, 2 * state + action), np.int32(state), action)
            outcomes = np.stack([step.state, step.reward], 1)
            as_meant, as_slipped = np.all(outcomes == meant, 1), np.all(outcomes == slipped, 1)
            assert np.all(as_meant ^ as_slipped)
            assert abs(as_slipped.mean() - slip) <= 4 * np.sqrt(slip * (1 - slip) / n)
            assert not np.any(step.terminated)


@pytest.mark.parametrize("mapping_seed", [0, 7])
def test_bandit_arms_are_bsuites(double, mapping_seed):
    theirs = SimpleBandit(mapping_seed)
    pull = jax.jit(jax.vmap(lambda arm: Bandit(mapping_seed=mapping_seed).step(jax.random.key(0), np.int32(0), arm)))
    step = pull(np.arange(11))
    for arm in range(11):
        theirs.reset()
        timestep = theirs.step(arm)
        assert step.reward[arm] == timestep.reward and step.terminated[arm] == timestep.last()


def test_bandit_rewards_scatter_about_their_means():
    n, scale = 4000, 0.5
    environment = Bandit(n_arms=5, mapping_seed=3, noise_scale=scale)
    pull = jax.jit(jax.vmap(jax.vmap(environment.step, (0, None, None)), (0, None, 0)))
    rewards = np.asarray(pull(keys(5 * n).reshape(5, n), np.int32(0), np.arange(5)).reward)
    assert sorted(environment.means) == [0, 0.25, 0.5, 0.75, 1]
    assert np.all(np.abs(rewards.mean(1) - environment.means) < 4 * scale / np.sqrt(n))
    assert np.all(np.abs(rewards.var(1) - scale**2) < 4 * scale**2 * np.sqrt(2 / n))


@pytest.mark.parametrize("environment", EVERY, ids=str)
@pytest.mark.parametrize("x64", [False, True])
def test_every_environment_keeps_the_contract(environment, x64):
    """Shapes and dtypes, and states that a loop can carry."""
    with jax.enable_x64(x64):
        number = jnp.result_type(float)
        state = jax.eval_shape(environment.reset, jax.random.key(0))
        step = jax.eval_shape(environment.step, jax.random.key(0), state, jax.ShapeDtypeStruct((), np.int32))
        observation = jax.eval_shape(environment.observe, step.state)
        assert jax.tree.structure(state) == jax.tree.structure(step.state)
        assert [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(state)] == [
            (leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(step.state)
        ]
        assert (step.reward.shape, step.reward.dtype) == ((), number)
        assert (step.terminated.shape, step.terminated.dtype) == ((), bool)
        if len(observation.shape) == 3:
            assert (np.prod(observation.shape), observation.dtype) == (environment.observation_size, bool)
        elif environment.n_observations is None:
            assert (observation.shape, observation.dtype) == ((environment.observation_size,), number)
        else:
            assert (observation.shape, observation.dtype, environment.observation_size) == ((), np.int32, 1)
    assert hash(environment) == hash(type(environment)(**vars(environment)))


@pytest.mark.parametrize("environment", [e for e in EVERY if e not in (DeepSea(), Bandit())], ids=str)
def test_many_lanes_give_what_one_does(environment):
    def episode(key, actions):
        def walk(state, row):
            key, action = row
            step = environment.step(key, state, action)
            return step.state, (environment.observe(step.state), step.reward, step.terminated)

        steps = (jax.random.split(key, len(actions)), actions)
        return jax.lax.scan(walk, environment.reset(key), steps)[1]

    @jax.jit
    def both(keys, actions):
        return jax.vmap(episode)(keys, actions), jax.lax.map(lambda row: episode(*row), (keys, actions))

    length = min(environment.max_episode_steps, 6)
    actions = np.random.default_rng(0).integers(environment.n_actions, size=(4, length)).astype(np.int32)
    together, alone = both(keys(4), actions)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6), together, alone)
    if environment.n_observations is not None:
        assert np.all((together[0] >= 0) & (together[0] < environment.n_observations))


@pytest.mark.parametrize(
    "make, name",
    [
        (lambda: CartPole(0), "max_episode_steps"),
        (lambda: MountainCar(max_episode_steps=1.5), "max_episode_steps"),
        (lambda: Acrobot(max_episode_steps=True), "max_episode_steps"),
        (lambda: DeepSea(0), "size"),
        (lambda: DeepSea(mapping_seed=None), "mapping_seed"),
        (lambda: NChain(n_states=0), "n_states"),
        (lambda: NChain(slip=1.2), "slip"),
        (lambda: Bandit(n_arms=0), "n_arms"),
        (lambda: Bandit(noise_scale=-1.0), "noise_scale"),
        (lambda: Seaquest(max_episode_steps=0), "max_episode_steps"),
        (lambda: Breakout(sticky_action_prob=1.5), "sticky_action_prob"),
    ],
)
def test_wrong_settings_are_named(make, name):
    with pytest.raises(ValueError, match=f"^{name} must be"):
        make()


TWO = spaces.Discrete(2)
BOX = spaces.Box(-np.inf, np.inf, (3,))


class Scripted(gymnasium.Env):
    """Says what it is told to say, and records what it receives."""

    def __init__(self, observations, says, reward=0.0, actions=TWO):
        self.observation_space, self.action_space = observations, actions
        self.says, self.reward, self.received = says, reward, []

    def reset(self, *, seed=None, options=None):
        self.received.append(seed)
        return self.says, {}

    def step(self, action):
        self.received.append(action)
        return self.says, self.reward, False, False, {}


def test_adapter_gives_gymnasiums_own_numbers():
    theirs, ours = gymnasium.make("Acrobot-v1"), GymnasiumAdapter("Acrobot-v1")
    assert (ours.name, ours.n_actions, ours.n_observations, ours.observation_size) == ("Acrobot-v1", 3, None, 6)
    np.testing.assert_array_equal(ours.reset(seed=5), theirs.reset(seed=5)[0])
    for action in np.random.default_rng(0).integers(3, size=50):
        observation, reward, terminated, truncated = ours.step(action)
        expected = theirs.step(action)
        np.testing.assert_array_equal(observation, expected[0])
        assert observation.dtype == np.float32
        assert (reward, terminated, truncated) == expected[1:4]
        assert [type(value) for value in (reward, terminated, truncated)] == [float, bool, bool]


def test_adapter_tells_termination_from_truncation():
    short = GymnasiumAdapter(gymnasium.make("CartPole-v1", max_episode_steps=3))
    short.reset(seed=0)
    assert [short.step(action)[2:] for action in (0, 1, 0)] == [(False, False), (False, False), (False, True)]
    fallen = GymnasiumAdapter(gymnasium.make("CartPole-v1", max_episode_steps=50))
    fallen.reset(seed=0)
    ends = [fallen.step(1)[2:]]
    while not any(ends[-1]):
        ends.append(fallen.step(1)[2:])
    assert ends[-1] == (True, False) and len(ends) < 20


def test_adapter_of_integer_observations():
    ours = GymnasiumAdapter(gymnasium.make("FrozenLake-v1", is_slippery=False))
    assert (ours.n_actions, ours.n_observations, ours.observation_size) == (4, 16, 1)
    assert ours.reset(seed=0) == 0
    moves = [ours.step(action) for action in (2, 2, 1, 1, 1, 2)]  # right, right, down to the goal's row, right
    assert [int(observation) for observation, *_ in moves] == [1, 2, 6, 10, 14, 15]
    assert moves[-1][1:] == (1.0, True, False)
    assert moves[0][0].dtype == np.int32 and moves[0][0].shape == ()
    taxi = GymnasiumAdapter("Taxi-v4" if "Taxi-v4" in gymnasium.registry else "Taxi-v3")
    assert (taxi.n_actions, taxi.n_observations) == (6, 500)


def test_adapter_counts_from_zero():
    env = Scripted(spaces.Discrete(4, start=-2), says=np.int64(1), actions=spaces.Discrete(3, start=5))
    ours = GymnasiumAdapter(env)
    assert (ours.n_actions, ours.n_observations, ours.name) == (3, 4, "Scripted")
    assert ours.reset(seed=11) == 3
    assert [int(ours.step(action)[0]) for action in (0, 2)] == [3, 3]
    assert env.received == [11, 5, 7]
    assert env.action_space.contains(env.received[1])


@pytest.mark.parametrize(
    "space, says, expected",
    [
        (spaces.Box(0, 255, (2, 2), np.uint8), np.array([[1, 2], [3, 4]], np.uint8), [1, 2, 3, 4]),
        (spaces.Box(-1, 1, ()), np.float32(0.5), [0.5]),
        (spaces.MultiDiscrete([2, 3]), np.array([1, 0]), [0, 1, 1, 0, 0]),
        (spaces.MultiBinary(3), np.array([1, 0, 1], np.int8), [1, 0, 1]),
        (spaces.Dict(a=spaces.Discrete(2), b=BOX), {"a": 1, "b": np.array([7.0, 8, 9])}, [0, 1, 7, 8, 9]),
        (spaces.Tuple((spaces.Discrete(2), spaces.Discrete(2))), (0, 1), [1, 0, 0, 1]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_adapter_flattens(space, says, expected):
    ours = GymnasiumAdapter(Scripted(space, says))
    assert (ours.n_observations, ours.observation_size) == (None, len(expected))
    for observation in (ours.reset(seed=0), ours.step(0)[0]):
        np.testing.assert_array_equal(observation, expected)
        assert observation.dtype == np.float32


@pytest.mark.parametrize(
    "space, one",
    [
        (BOX, np.zeros(3)),
        (spaces.Discrete(3), 1),
        (spaces.MultiDiscrete([3, 4]), [1, 2]),
        (spaces.MultiBinary(2), np.array([1, 0], np.int8)),
        (spaces.Dict(a=spaces.Discrete(3)), {"a": 1}),
        (spaces.Tuple((spaces.Discrete(3), BOX)), (1, np.zeros(3))),
    ],
    ids=str,
)
def test_adapter_tells_one_observation_from_several(space, one):
    ours = GymnasiumAdapter(Scripted(space, one))
    assert ours.split(one) is None
    assert len(ours.split([one, one])) == 2
    for each in ours.split([one, one]):
        np.testing.assert_array_equal(ours.encode(each), ours.encode(one))


@pytest.mark.parametrize("reward", [2, True, np.float32(0.5), np.array([3.0])])
def test_adapter_takes_rewards_of_every_kind(reward):
    ours = GymnasiumAdapter(Scripted(BOX, np.zeros(3), reward))
    assert ours.step(0)[1] == float(np.ravel(reward)[0])


class SetsNoSpaces(gymnasium.Env):
    pass


@pytest.mark.parametrize(
    "env, error, message",
    [
        ("Pendulum-v1", ValueError, r"^env: Pendulum-v1 has the action space Box.*Discretise .* gymnasium wrapper"),
        (
            Scripted(BOX, None, actions=spaces.MultiDiscrete([2, 2])),
            ValueError,
            r"^env: Scripted .* MultiDiscrete.*Dis",
        ),
        (Scripted(spaces.Sequence(BOX), None), ValueError, "^env: .* no fixed length. .*TransformObservation"),
        ("NoSuchGame-v0", ValueError, "^env: .*'NoSuchGame-v0'.* failed: .*pprint_registry"),
        (CartPole(), TypeError, "^env: cannot use a CartPole. Pass a gymnasium.Env"),
        (3, TypeError, "^env: cannot use a int"),
        (Scripted, TypeError, "^env: got the class Scripted; pass an instance"),
        (SetsNoSpaces(), TypeError, "^env: SetsNoSpaces has no action_space; set one"),
    ],
    ids=str,
)
def test_adapter_refuses(env, error, message):
    with pytest.raises(error, match=message):
        GymnasiumAdapter(env)


def test_adapter_refuses_vectorised_environments():
    env = gymnasium.make_vec("CartPole-v1", num_envs=2)
    with pytest.raises(TypeError, match=r"^env: a single environment is needed here"):
        GymnasiumAdapter(env)
    env.close()


@pytest.mark.parametrize(
    "space, says, message",
    [
        (BOX, np.zeros(2), r"of shape \(2,\), but it does not belong to the observation_space Box.*check_env"),
        (BOX, np.zeros((3, 1)), r"of shape \(3, 1\), but it does not belong"),
        (BOX, {"a": 1}, "does not belong"),
        (BOX, np.array([0, np.nan, 0]), "(nan|inf) as float32"),
        (BOX, np.array([0, 0, 1e39]), "(nan|inf) as float32"),
        (spaces.Box(0, 255, (1,), np.uint8), np.array([np.nan]), "(nan|inf) as float32"),
        (spaces.Dict(a=BOX, b=BOX), {"a": np.zeros(3)}, "does not belong"),
        (spaces.Dict(a=BOX), {"a": np.zeros(4)}, "does not belong"),
        (spaces.Dict(a=BOX), {"a": np.full(3, np.inf)}, "(nan|inf) as float32"),
        (spaces.Dict(a=spaces.Discrete(3, start=2)), {"a": 0}, "does not belong"),
        (spaces.Tuple((BOX, spaces.Discrete(2))), (np.zeros(3), 2), "does not belong"),
        (spaces.Tuple((BOX, BOX)), (np.zeros(3),), "does not belong"),
        (spaces.MultiDiscrete([3, 4]), np.array([1, 7]), "does not belong"),
        (spaces.MultiBinary(2), np.array([0, 2]), "does not belong"),
        (spaces.Discrete(3), 3, "does not belong"),
        (spaces.Discrete(3, start=1), 0, "does not belong"),
        (spaces.Discrete(3), np.nan, "does not belong"),
        (spaces.Discrete(3), np.array([1, 2]), "does not belong"),
    ],
    ids=str,
)
def test_adapter_refuses_observations(space, says, message):
    ours = GymnasiumAdapter(Scripted(space, says))
    for call in (lambda: ours.reset(seed=0), lambda: ours.step(0)):
        with pytest.raises(ValueError, match=f"^env: Scripted returned .*{message}"):
            call()


@pytest.mark.parametrize("reward", [np.nan, -np.inf, None, "much", np.zeros(2), 1e39], ids=str)
def test_adapter_refuses_rewards(reward):
    with pytest.raises(ValueError, match=r"^env: Scripted returned the reward .* single numbers, .*TransformReward"):
        GymnasiumAdapter(Scripted(BOX, np.zeros(3), reward)).step(0)


def test_adapter_refuses_actions():
    ours = GymnasiumAdapter(Scripted(BOX, np.zeros(3)))
    for action in (-1, 2):
        with pytest.raises(ValueError, match=f"^action must be one of 0, …, 1 in Scripted, got {action}"):
            ours.step(action)
    with pytest.raises(TypeError, match="integer"):
        ours.step(0.5)


class OlderGym(Scripted):
    """Four values from a step and no info from a reset, as in gym before 0.26."""

    def reset(self, *, seed=None, options=None):
        return self.says

    def step(self, action):
        return self.says, 0.0, False, {}


def test_adapter_refuses_the_older_interface():
    ours = GymnasiumAdapter(OlderGym(BOX, np.zeros(3)))
    with pytest.raises(ValueError, match=r"^env: OlderGym.reset must return \(observation, info\).*ndarray.*shimmy"):
        ours.reset(seed=0)
    with pytest.raises(ValueError, match=r"^env: OlderGym.step must return \(observation, reward, .*4 values.*shimmy"):
        ours.step(0)


class Timed(dm_env.Environment):
    """A dm_env environment with nested observations, of one step after another until it is told that it is over."""

    def __init__(self, actions):
        self.actions, self.received, self.ends = actions, [], [dm_env.transition, dm_env.truncation]

    def observation_spec(self):
        return {
            "board": dm_env.specs.BoundedArray((1, 2), np.float32, [0, 1], [2, 3]),
            "clock": dm_env.specs.Array((), np.float32),
            "hand": dm_env.specs.DiscreteArray(3),
        }

    def action_spec(self):
        return self.actions

    def reset(self):
        return dm_env.restart(self.observation())

    def step(self, action):
        self.received.append(action)
        return self.ends.pop(0)(reward=0.5, observation=self.observation())

    def observation(self):
        return {"board": np.array([[1, 2]], np.float32), "clock": np.float32(7), "hand": 2}


def test_dm_env_gives_its_own_numbers():
    """Those of bsuite's catch, which is seeded, and whose last step terminates an episode."""
    ours, theirs = GymnasiumAdapter(bsuite.load("catch", {"seed": 3})), bsuite.load("catch", {"seed": 3})
    assert (ours.name, ours.n_actions, ours.n_observations, ours.observation_size) == ("Catch", 3, None, 50)
    low, high = ours.observation_bounds
    assert (low == 0).all() and (high == 1).all()
    rng = np.random.default_rng(0)
    for seed in range(3):
        expected = theirs.reset()
        np.testing.assert_array_equal(ours.reset(seed), expected.observation.ravel())
        while not expected.last():
            action = rng.integers(3)
            observation, reward, terminated, truncated = ours.step(action)
            expected = theirs.step(action)
            np.testing.assert_array_equal(observation, expected.observation.ravel())
            assert (reward, terminated, truncated) == (expected.reward, expected.last(), False)


def test_dm_env_with_nested_observations_and_a_time_limit():
    env = Timed(dm_env.specs.BoundedArray((), np.int32, 2, 4))
    ours = GymnasiumAdapter(env)
    assert (ours.n_actions, ours.observation_size) == (3, 6)
    np.testing.assert_array_equal(ours.reset(0), [1, 2, 7, 0, 0, 1])
    assert [ours.step(action)[1:] for action in (0, 2)] == [(0.5, False, False), (0.5, False, True)]
    assert env.received == [2, 4]  # counted from the spec's minimum


@pytest.mark.parametrize(
    "actions",
    [dm_env.specs.BoundedArray((2,), np.float32, 0, 1), dm_env.specs.Array((), np.int32)],
    ids=lambda spec: type(spec).__name__,
)
def test_dm_env_with_other_actions_is_refused(actions):
    with pytest.raises(ValueError, match=r"^env: Timed has the action spec .* needs integers: a dm_env.specs.Discrete"):
        GymnasiumAdapter(Timed(actions))


def test_an_agent_learns_in_a_dm_env(tmp_path):
    """A saved agent needs the environment again, whose state cannot be restored."""
    env = bsuite.load("catch", {"seed": 0})
    agent = QEnsembleAgent(env, n_estimators=2, hidden_layer_sizes=(8,), buffer_size=100, learning_starts=8, seed=0)
    agent.learn(total_timesteps=32)
    assert agent.n_episodes == 3 and agent.predict(env.reset().observation)[0] in range(3)
    assert set(agent.evaluate(2, env=bsuite.load("catch", {"seed": 1}))) <= {-1.0, 1.0}
    with pytest.raises(ValueError, match=r"^env: this is the environment"):
        agent.evaluate(2, env=env)
    agent.save(tmp_path / "agent")
    with pytest.raises(StorageError, match="pass the same environment again"):
        QEnsembleAgent.load(tmp_path / "agent")
    other = bsuite.load("catch", {"seed": 1})  # whose ball falls in another column
    with pytest.warns(UserWarning, match=r"^env: the state of Catch cannot be restored"):
        assert QEnsembleAgent.load(tmp_path / "agent", env=other).n_steps == 32


def test_adapter_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(ImportError, match=r"pip install 'anchored\[rl\]'"):
        GymnasiumAdapter("CartPole-v1")
