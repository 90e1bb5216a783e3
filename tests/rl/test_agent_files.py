"""A saved agent may come from anywhere: whatever its file says, loading it runs no code and takes nothing on trust."""

import json
import os
import resource
import sys
from copy import deepcopy

import gymnasium
import jax
import numpy as np
import optax
import pytest
from forging import edited, edits, parts, write_forged
from test_agent import agent, same

from anchored import StorageError
from anchored.rl import QEnsembleAgent
from anchored.rl.environments import CartPole
from anchored.rl.exploration import Greedy, Until

KINDS = ("compiled", "gymnasium")
MEGABYTES = 500
COMMAND = "anchored_canary:call"


@pytest.fixture(scope="module")
def learnt():
    """Two agents that have learnt a little, each amid an episode."""
    agents = {"compiled": agent(CartPole(60)), "gymnasium": agent("CartPole-v1")}
    for one in agents.values():
        one.learn(total_timesteps=64)
        one.evaluations = [(40, [1.0, 2.0]), (60, [3.0])]
        assert one.history.current[1] > 1
        assert int(one.train_state.members.n_gradient_steps) > 0
    return agents


@pytest.fixture(scope="module")
def saved(learnt, tmp_path_factory):
    """Their headers and arrays."""
    folder = tmp_path_factory.mktemp("agents")
    for name, one in learnt.items():
        one.save(folder / name)
    return {name: parts(folder / name) for name in learnt}


@pytest.fixture
def canary(tmp_path, monkeypatch):
    """A module that leaves a trace when it is imported or called, and a command that does."""
    trace = tmp_path / "trace"
    code = f"open({str(trace)!r}, 'a').close()"
    (tmp_path / "anchored_canary.py").write_text(f"{code}\ndef call(*args, **kwargs):\n    {code}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(os, "system", lambda *args, **kwargs: trace.touch())
    monkeypatch.setattr(optax, "canary", lambda *args, **kwargs: trace.touch(), raising=False)
    monkeypatch.delitem(sys.modules, "anchored_canary", raising=False)
    return trace


def assigned(header, place, value):
    """A copy of the header with one field changed, or added."""
    header = inside = deepcopy(header)
    *above, last = place.split(".")
    for name in above:
        inside = inside[name]
    inside[last] = value
    return header


def as_gymnasium_writes_it(**changed):
    """What `EnvSpec.to_json` gives, with an entry point of the attacker's choice."""
    return json.dumps({**json.loads(gymnasium.spec("CartPole-v1").to_json()), **changed})


def nested(depth):
    rule = {"Greedy": {}}
    for _ in range(depth):
        rule = {"Until": {"episode": 1.0, "before": rule, "after": {"Greedy": {}}}}
    return rule


def doubled(depth):
    """2^(depth + 1) - 1 explorations."""
    rule = {"Greedy": {}}
    for _ in range(depth):
        rule = {"Until": {"episode": 1.0, "before": rule, "after": rule}}
    return rule


WRAPPER = {"name": "call", "entry_point": COMMAND, "kwargs": {}}
DESCRIPTION = "environment.gymnasium"
HOSTILE = [
    *(
        ("gymnasium", DESCRIPTION, description)
        for description in (
            as_gymnasium_writes_it(entry_point="os:system", kwargs={"command": "true"}),
            as_gymnasium_writes_it(entry_point=COMMAND),
            as_gymnasium_writes_it(vector_entry_point=COMMAND),
            as_gymnasium_writes_it(additional_wrappers=[WRAPPER]),
            json.loads(as_gymnasium_writes_it(entry_point="os:system", kwargs={"command": "true"})),
        )
    ),
    *(
        ("gymnasium", f"{DESCRIPTION}.{name}", value)
        for name, value in {
            "entry_point": COMMAND,
            "vector_entry_point": COMMAND,
            "additional_wrappers": [WRAPPER],
            "wrappers": [COMMAND],
            "omitted_kwargs": [COMMAND],
            "kwargs": [],
            "max_episode_steps": COMMAND,
        }.items()
    ),
    *(
        ("gymnasium", f"{DESCRIPTION}.id", value)
        for value in (COMMAND, "anchored_canary:CartPole-v1", "os:system", "anchored_canary", ":CartPole-v1", "", 1)
    ),
    ("gymnasium", f"{DESCRIPTION}.id", "Pendulum-v1"),  # registered, but not for such an agent
    *(("gymnasium", f"{DESCRIPTION}.id", name) for name in ("Ant-v5", "LunarLander-v3")),  # of other packages
    ("gymnasium", f"{DESCRIPTION}.id", "GymV21Environment-v0"),  # whose constructor raises
    *(
        ("gymnasium", f"{DESCRIPTION}.kwargs", {name: value})
        for name, value in {
            "entry_point": "x",
            "vector_entry_point": "x",
            "additional_wrappers": [],
            "apply_api_compatibility": True,
            "id": "CartPole-v0",
            "max_episode_steps": 1,
            "disable_env_checker": True,
            "render_mode": "human",
            "model_path": "x",
            "xml_file": "x",
            "__class__": 1,
            "self": 1,
            "no identifier": 1,
            "unknown": 1,
            "sutton_barto_reward": COMMAND,
        }.items()
    ),
    *(
        ("gymnasium", f"{DESCRIPTION}.kwargs", {"sutton_barto_reward": value})
        for value in ("../x", "a\\b", "x.xml", "~x", "x" * 65, {}, {"entry_point": COMMAND}, [[1]], [1] * 65, 10**400)
    ),
    *(
        ("compiled", "environment", environment)
        for environment in (
            {"compiled": "GymnasiumAdapter", "fields": {"env": "anchored_canary:CartPole-v1"}},
            {"compiled": "GymnasiumAdapter", "fields": {"env": "CartPole-v1"}},
            {"compiled": "Environment", "fields": {}},
            {"compiled": "cart_pole", "fields": {}},
            {"compiled": "__builtins__", "fields": {}},
            {"compiled": "CartPole", "fields": {"max_episode_steps": 60, "__class__": "x"}},
            {"compiled": "CartPole", "fields": {"max_episode_steps": 60}, "gymnasium": as_gymnasium_writes_it()},
            {"gymnasium": {"id": "anchored_canary:CartPole-v1"}},
            {},
        )
    ),
    *(
        ("compiled", "arguments.exploration", rule)
        for rule in (
            {"jax": {}},
            {"partial": {"func": COMMAND}},
            {"dataclass": {}},
            {"trees": {}},
            {"Exploration": {}},
            {"Choice": {"action": 0, "explored": 0}},
            {"greedy_action": {"q": 1}},
            {"__import__": {"name": "anchored_canary"}},
            {"__builtins__": {}},
            {COMMAND: {}},
            {"Greedy": {}, "Thompson": {}},
            {"Greedy": {"__class__": 1}},
            {"Until": {"episode": 1.0, "before": {"Greedy": {}}, "after": {"jax": {}}}},
            {"Until": {"episode": 1.0, "before": "greedy", "after": {"Greedy": {}}}},
            {"EpsilonGreedy": {"start": COMMAND, "end": 0.1, "n_episodes": 4}},
            {"EpsilonGreedy": {"start": 1e300, "end": 0.1, "n_episodes": 4}},
            nested(4),  # nine
            doubled(3),
            doubled(8),
            nested(200),
            COMMAND,
            "Greedy",
        )
    ),
    *(
        ("compiled", "arguments.optimizer", name)
        for name in (
            "os",
            "anchored_canary",
            COMMAND,
            "jax",
            "__class__",
            "__loader__",
            "__import__",
            "chain",
            None,
            [],
        )
    ),
    *(("compiled", f"arguments.{name}", "os") for name in ("activation", "replay", "train_freq", "network", "env")),
    ("compiled", "kind", "AnchoredRegressor"),
]


@pytest.mark.parametrize(("kind", "place", "value"), HOSTILE)
def test_no_file_names_code(saved, canary, tmp_path, kind, place, value):
    header, arrays = saved[kind]
    write_forged(tmp_path / "agent", assigned(header, place, value), arrays)
    known = dict(gymnasium.registry)
    with pytest.raises(StorageError, match=str(tmp_path / "agent")):
        QEnsembleAgent.load(tmp_path / "agent")
    assert not canary.exists()
    assert "anchored_canary" not in sys.modules
    assert gymnasium.registry == known


def test_the_canary_sings(canary):
    with pytest.raises(TypeError, match=r"inherit from the gymnasium\.Env"):
        gymnasium.make(gymnasium.envs.registration.EnvSpec("X-v0", entry_point=COMMAND))
    assert canary.exists()


@pytest.mark.parametrize("kind", KINDS)
def test_forged_files(saved, tmp_path, kind):
    """Edits at random: refused, or an agent without NaN comes of it; without much memory."""
    header, arrays = saved[kind]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    known = [edit for edit in edits(header, arrays) if not edit[0].startswith(("text", "header: format"))]
    chosen = np.random.default_rng(0).choice(len(known), 40, replace=False)
    n_refused = sum(is_refused(tmp_path / "agent", *edited(header, arrays, [known[i]])) for i in chosen)
    assert n_refused > 25
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MEGABYTES * 1024


def is_refused(path, what, header, arrays):
    write_forged(path, header, arrays)
    try:
        loaded = QEnsembleAgent.load(path)
    except StorageError:
        return True
    assert np.isfinite(loaded.q_values(np.zeros(4, np.float32))[2]).all(), what
    return False


HUGE = 2**31 - 1
SEA = {"compiled": "DeepSea", "fields": {"size": HUGE, "mapping_seed": 42, "stochastic": False}}


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("arguments.n_estimators", HUGE),
        ("arguments.hidden_layer_sizes", [HUGE] * 100),
        ("arguments.hidden_layer_sizes", [1] * 101),
        ("arguments.buffer_size", HUGE),
        ("arguments.buffer_size", 10**12),
        ("arguments.learning_starts", 10**12),
        ("arguments.reward_scale", 1e-300),
        ("arguments.prior_scale", 1e-30),
        ("environment", SEA),
        ("environment", {**SEA, "fields": {**SEA["fields"], "size": 2**32 - 1}}),
        ("environment", {**SEA, "fields": {**SEA["fields"], "size": 50_000}}),  # whose cells 32 bits cannot count
        ("environment", {"compiled": "Bandit", "fields": {"n_arms": HUGE, "mapping_seed": 0, "noise_scale": 0.0}}),
        ("environment", {"compiled": "CartPole", "fields": {"max_episode_steps": 10**12}}),
        ("environment", {"compiled": "CartPole", "fields": {"max_episode_steps": 0}}),
    ],
)
def test_sizes_are_compared_before_anything_is_made(saved, tmp_path, place, value):
    header, arrays = saved["compiled"]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert is_refused(tmp_path / "agent", place, assigned(header, place, value), arrays)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MEGABYTES * 1024


ROWS = "train_state/buffer/transitions"


@pytest.mark.parametrize(
    ("kind", "name", "change"),
    [
        ("compiled", f"{ROWS}/action", lambda array: array + 2),
        ("compiled", f"{ROWS}/reward", lambda array: array * np.float32(np.nan)),
        ("compiled", f"{ROWS}/terminated", lambda array: ~array),
        ("compiled", f"{ROWS}/done", lambda array: (array.view(np.uint8) + np.uint8(2)).view(bool)),
        ("compiled", "train_state/key", lambda array: array + np.uint32(1)),
        ("compiled", "train_state/n_steps", lambda array: array + np.int32(4)),
        ("compiled", "train_state/n_rollouts", lambda array: array - np.int32(1)),
        ("compiled", "train_state/n_episodes", lambda array: array + np.int32(1)),
        ("compiled", "train_state/buffer/n_added", lambda array: -array),
        ("compiled", "train_state/members/n_gradient_steps", lambda array: array * 0),
        ("compiled", "train_state/members/params/layer_0/bias", lambda array: array / np.float32(0)),
        ("compiled", "train_state/members/optimizer_state/0/count", lambda array: -array),
        ("compiled", "env_state/1", lambda array: array + np.int32(60)),
        ("compiled", "env_state/0", lambda array: array * np.float32(np.inf)),
        ("compiled", "history/returns", lambda array: array[1:]),
        ("compiled", "history/lengths", lambda array: array * 0),
        ("compiled", "history/explored", lambda array: array + 1000),
        ("compiled", "history/current", lambda array: array + [0, 1, 0]),
        ("compiled", "history/current", lambda array: array + [0, 0, 0.5]),
        ("compiled", "evaluations/steps", lambda array: array[::-1]),
        ("compiled", "evaluations/counts", lambda array: array + 2**62),
        ("compiled", "evaluations/returns", lambda array: array[1:]),
        ("gymnasium", "env_state/actions", lambda array: array + np.int32(2)),
        ("gymnasium", "env_state/actions", lambda array: -array - np.int32(1)),
        ("gymnasium", "env_state/actions", lambda array: 1 - array),
        ("gymnasium", "env_state/actions", lambda array: np.resize(array, 500)),
        ("gymnasium", "env_state/observation", lambda array: array + np.float32(1)),
        ("gymnasium", "env_state/episode", lambda array: array - 100),
    ],
)
def test_what_is_wrong_is_named(saved, tmp_path, kind, name, change):
    header, arrays = saved[kind]
    with np.errstate(all="ignore"):
        changed = {**arrays, name: change(arrays[name])}
    write_forged(tmp_path / "agent", header, changed)
    group = name.split("/")[0]  # counters are compared with one another, and with the history
    with pytest.raises(StorageError, match=f"agent'.*array '({group}|history)/"):
        QEnsembleAgent.load(tmp_path / "agent")


@pytest.mark.parametrize("group", ["params", "anchors"])
@pytest.mark.parametrize("size", [1e15, 1e13, 1e6])
def test_members_whose_values_are_not_finite_are_refused(saved, tmp_path, group, size):
    """Each weight is one that a member could have, but not all of them together."""
    header, arrays = saved["compiled"]
    signs = np.random.default_rng(0)
    where = f"train_state/members/{group}/"
    forged = {
        name: (signs.choice([-size, size], array.shape).astype(array.dtype) if name.startswith(where) else array)
        for name, array in arrays.items()
    }
    write_forged(tmp_path / "agent", header, forged)
    with pytest.raises(StorageError, match=f"array '{where}layer_./weights' .*beyond 1e\\+18"):
        QEnsembleAgent.load(tmp_path / "agent")


def test_what_cannot_be_loaded_is_not_saved(tmp_path):
    path = tmp_path / "agent"
    lost = agent(CartPole(60))
    lost.save(path)
    content = path.read_bytes()
    params = jax.tree.map(lambda leaf: leaf * np.float32(np.nan), lost.train_state.members.params)
    members = lost.train_state.members._replace(params=params)
    lost.run_state = lost.run_state._replace(train_state=lost.train_state._replace(members=members))
    with pytest.raises(
        StorageError, match=r"cannot be saved: array 'train_state/members/params/layer_0/bias'.*not finite"
    ):
        lost.save(path)
    rules = [Greedy()]
    for _ in range(4):
        rules.append(Until(1.0, rules[-1], Greedy()))
    with pytest.raises(TypeError, match=r"exploration.*more than 8 exploration rules"):
        agent(CartPole(60), exploration=rules[4]).save(path)
    assert path.read_bytes() == content
    agent(CartPole(60), exploration=rules[3]).save(path)  # seven
    assert QEnsembleAgent.load(path).arguments.exploration == rules[3]


def test_arguments_of_an_environment_are_kept(tmp_path):
    given = {"is_slippery": False, "desc": None, "render_mode": "rgb_array"}
    agent(gymnasium.make("FrozenLake-v1", max_episode_steps=7, **given)).save(tmp_path / "agent")
    spec = QEnsembleAgent.load(tmp_path / "agent").runner.adapter.env.spec
    assert (spec.id, spec.max_episode_steps) == ("FrozenLake-v1", 7)
    assert spec.kwargs == {"map_name": "4x4", "is_slippery": False, "desc": None}  # rendering is not stored


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: gymnasium.wrappers.TransformReward(gymnasium.make("CartPole-v1"), abs), "TransformReward, TimeLimit"),
        (lambda: gymnasium.wrappers.TimeLimit(gymnasium.make("CartPole-v1"), 1000), "TimeLimit, TimeLimit"),
        (lambda: gymnasium.make("FrozenLake-v1", reward_schedule=(1, 0, 0)), r"not stored \(reward_schedule\)"),
        (lambda: gymnasium.make("CartPole-v1").unwrapped.__class__(), "environment of your own"),
    ],
)
def test_other_environments_are_passed_again(make, words, tmp_path):
    agent(make()).save(tmp_path / "agent")
    with pytest.raises(StorageError, match=rf"{words}.*env=\.\.\."):
        QEnsembleAgent.load(tmp_path / "agent")
    assert QEnsembleAgent.load(tmp_path / "agent", env=make()).n_steps == 0


class Picky(gymnasium.Env):
    """Raises what it is told to when it is told to, and pays what it is told to; seen as CartPole is."""

    observation_space = gymnasium.make("CartPole-v1").observation_space  # so that nothing is compiled again
    action_space = gymnasium.spaces.Discrete(2)
    errors = {error.__name__: error for error in (KeyError, AttributeError, OverflowError, ValueError)}

    def __init__(self, at="", error="", reward=0.0):
        self.at, self.error, self.reward = at, error, reward

    def _raise(self, now):
        if now == self.at:
            raise self.errors[self.error]("picky")

    def reset(self, *, seed=None, options=None):
        self._raise("reset")
        return np.zeros(4, np.float32), {}

    def step(self, action):
        self._raise("step")
        return np.zeros(4, np.float32), self.reward, False, False, {}


@pytest.mark.parametrize(
    ("kwargs", "error"),
    [
        *(({"at": at, "error": name}, name) for at in ("reset", "step") for name in Picky.errors),
        *(({"reward": reward}, "ValueError") for reward in ("a", 1e308, [1.0, 2.0])),
    ],
)
def test_only_an_environment_passed_raises_errors_of_its_own(tmp_path, kwargs, error):
    gymnasium.register("Picky-v0", Picky, disable_env_checker=True)
    try:
        agent("Picky-v0").learn(total_timesteps=4).save(tmp_path / "agent")
        header, arrays = parts(tmp_path / "agent")
        write_forged(tmp_path / "agent", assigned(header, f"{DESCRIPTION}.kwargs", kwargs), arrays)
        with pytest.raises(StorageError, match=rf"{error}.*env=\.\.\."):
            QEnsembleAgent.load(tmp_path / "agent")
        with pytest.raises(Picky.errors[error]) as own:
            QEnsembleAgent.load(tmp_path / "agent", env=Picky(**kwargs))
        assert own.type is Picky.errors[error]  # no StorageError, which is a ValueError
    finally:
        del gymnasium.registry["Picky-v0"]


@pytest.mark.parametrize("where", ["entry_point", "additional_wrappers"])
def test_no_module_is_imported_for_a_file(saved, canary, tmp_path, where):
    """Not even that of an environment which is registered, but has not been used."""
    wrapper = gymnasium.envs.registration.WrapperSpec("call", COMMAND, {})
    code = {"entry_point": gymnasium.make("CartPole-v1").unwrapped.__class__, "additional_wrappers": (wrapper,)}
    gymnasium.register("Unused-v0", **{**code, "entry_point": COMMAND} if where == "entry_point" else code)
    try:
        header, arrays = saved["gymnasium"]
        write_forged(tmp_path / "agent", assigned(header, f"{DESCRIPTION}.id", "Unused-v0"), arrays)
        with pytest.raises(StorageError, match=r"'anchored_canary', which is not imported.*env=\.\.\."):
            QEnsembleAgent.load(tmp_path / "agent")
    finally:
        del gymnasium.registry["Unused-v0"]
    assert not canary.exists()
    assert "anchored_canary" not in sys.modules


def test_an_environment_is_registered_before_it_is_loaded(tmp_path):
    gymnasium.register("Mine-v0", gymnasium.make("CartPole-v1").unwrapped.__class__, max_episode_steps=20)
    try:
        mine = agent("Mine-v0").learn(total_timesteps=4)
        mine.save(tmp_path / "agent")
        same(QEnsembleAgent.load(tmp_path / "agent"), mine)
    finally:
        del gymnasium.registry["Mine-v0"]
    with pytest.raises(StorageError, match=r"'Mine-v0', which is not registered.*env=\.\.\."):
        QEnsembleAgent.load(tmp_path / "agent")


def test_an_episode_too_long_to_play_again_is_begun_again(learnt, tmp_path, monkeypatch):
    learnt["gymnasium"].save(tmp_path / "agent")
    monkeypatch.setattr("anchored.rl.runners.MAX_REPEATED_STEPS", 1)
    with pytest.warns(UserWarning, match=r"steps, more than the 1 that can be repeated"):
        resumed = QEnsembleAgent.load(tmp_path / "agent")
    assert resumed.history.current == (0.0, 0, 0)
    assert resumed.run_state.env_state.actions == ()
