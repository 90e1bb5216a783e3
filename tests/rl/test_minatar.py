"""The games of MinAtar against the package `minatar`, step by step with its own random numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from forging import parts, write_forged
from minatar import Environment

from anchored.rl import QEnsembleAgent
from anchored.rl.environments import Asterix, Breakout, Freeway, Seaquest, SpaceInvaders
from anchored.rl.environments.asterix import Noise as AsterixNoise
from anchored.rl.environments.breakout import Noise as BreakoutNoise
from anchored.rl.environments.freeway import Noise as FreewayNoise
from anchored.rl.environments.seaquest import Noise as SeaquestNoise
from anchored.rl.environments.space_invaders import Noise as SpaceInvadersNoise
from anchored.storage.headers import StorageError

GAMES = {
    "asterix": Asterix(),
    "breakout": Breakout(),
    "freeway": Freeway(),
    "seaquest": Seaquest(),
    "space_invaders": SpaceInvaders(),
}
N_STEPS = 3_000
NOT_DRAWN = np.float32(np.nan)


class Recorder:
    """The package's own random numbers, written down: integers as the middle of the interval of [0, 1) for each."""

    def __init__(self, seed):
        self._random, self.uniforms, self.integers = np.random.RandomState(seed), [], []

    def forget(self):
        self.uniforms, self.integers = [], []

    def rand(self, *shape):
        self.uniforms.append(self._random.rand(*shape))
        return self.uniforms[-1]

    def randint(self, low, high=None, size=None):
        low, high = (0, low) if high is None else (low, high)
        drawn = self._random.randint(low, high, size)
        self.integers.append((drawn - low + 0.5) / (high - low))
        return drawn


def noise_of(name, recorder):
    """What was drawn in one step, as our game takes it."""
    sticky, *uniforms = recorder.uniforms
    integers = recorder.integers
    if name == "asterix":
        return AsterixNoise(sticky, *(uniforms or [NOT_DRAWN] * 2), *(integers or [NOT_DRAWN]))
    if name == "freeway":
        return FreewayNoise(sticky, *(integers or [np.full(8, NOT_DRAWN)]), *(uniforms or [np.full(8, NOT_DRAWN)]))
    if name == "seaquest":  # two uniforms and an integer for an enemy, then one and one for a diver
        enemy = (*uniforms[:2], integers[0]) if len(uniforms) >= 2 else [NOT_DRAWN] * 3
        diver = (uniforms[-1], integers[-1]) if len(uniforms) % 2 else [NOT_DRAWN] * 2
        return SeaquestNoise(sticky, *enemy, *diver)
    return {"breakout": BreakoutNoise, "space_invaders": SpaceInvadersNoise}[name](sticky)


def start_of(name, game, recorder):
    if name == "breakout":
        return game.start(recorder.integers[0] > 0.5)
    if name == "freeway":
        return game.start(recorder.integers[0], recorder.uniforms[0])
    return game.reset(None)


def policy(name, game, rng):
    """An index of the game's actions; a way to play that reaches everything that can happen."""
    if name == "breakout":  # follow the ball when it goes up, otherwise go where it will come down
        ahead = (game.ball_x if game.ball_dir in (1, 2) else 19 - game.ball_x) + np.array([8, 9]) - game.ball_y
        columns = np.minimum(ahead % 20, 19 - ahead % 20) if game.ball_dir in (2, 3) else [game.ball_x]
        return 0 if game.pos in columns else 1 if columns[0] < game.pos else 2
    if name == "freeway" and rng.random() < 0.8:  # cross
        return 1
    if name == "seaquest":
        if game.diver_count == 6 or (game.diver_count < 0 and game.ramp_index < 19):  # surface, until all is fast
            return 2 if game.sub_y > 0 else 4
        if game.divers and rng.random() < 0.3:  # rescue
            row = game.divers[0][1]
            return 0 if row == game.sub_y else 4 if row > game.sub_y else 2
        action = rng.choice(6, p=[0.1, 0.15, 0.1, 0.15, 0.1, 0.4])
        return 4 if action == 2 and game.sub_y == 1 and rng.random() < 0.9 else action
    return rng.integers(GAMES[name].n_actions)


def play(name, ramping, n_steps=N_STEPS):
    """Play the package's game, which goes on after its end, so that its late stages are reached; Breakout cannot.

    Returns states of ours to start from, whether each is the start of an episode, our actions and noise; rewards, ends
    and observations of the package; and the values of some of its variables after each step.
    """
    ours, env, rng = GAMES[name], Environment(name, difficulty_ramping=ramping), np.random.default_rng(1)
    env.random = env.env.random = recorder = Recorder(0)
    rows, theirs, seen, is_over = [], [], [], True
    for _ in range(n_steps):
        if is_over:
            recorder.forget()
            env.reset()
            env.last_action = 0  # of no episode before
            start = start_of(name, ours, recorder)
        recorder.forget()
        action = policy(name, env.env, rng)
        reward, terminated = env.act(env.minimal_action_set()[action])
        rows.append((start, is_over, action, noise_of(name, recorder)))
        theirs.append((reward, terminated, env.state()))
        seen.append({key: value for key, value in vars(env.env).items() if isinstance(value, int | np.integer)})
        is_over, env.env.terminal = terminated and name == "breakout", False
    columns = {key: np.array([values[key] for values in seen]) for key in seen[0]}
    return jax.tree.map(lambda *leaves: np.stack(leaves), *rows), map(np.stack, zip(*theirs)), columns


def check_equal(game, rows, theirs):
    def walk(state, row):
        start, is_start, action, noise = row
        state = jax.tree.map(lambda a, b: jnp.where(is_start, a, b), start, state)
        step = game.transition(state, action, jax.tree.map(lambda leaf: leaf.astype(np.float32), noise))
        return step.state, (step.reward, step.terminated, game.observe(step.state))

    first = jax.tree.map(lambda leaf: leaf[0], rows[0])
    ours = jax.jit(lambda rows: jax.lax.scan(walk, first, rows)[1])(rows)
    for our_column, their_column in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(our_column, their_column)


@pytest.mark.parametrize("name", GAMES)
def test_steps_equal_the_packages(name):
    rows, theirs, seen = play(name, ramping=True)
    reward, terminated, observation = theirs = list(theirs)
    assert observation.shape[1:] == (10, 10, GAMES[name].n_channels) and observation.dtype == bool
    check_equal(GAMES[name], rows, theirs)
    # everything was reached: rewards, ends, every channel, and what comes late
    assert reward.sum() > 20 and 5 < terminated.sum() < N_STEPS
    assert observation.any((0, 1, 2)).all()
    if name == "asterix":
        assert seen["spawn_speed"].min() == seen["move_speed"].min() == 1
    if name == "breakout":  # a new wall of bricks, in the same episode
        bricks = observation[:, :, :, 3].sum((1, 2))
        assert ((np.diff(bricks) > 20) & ~terminated[:-1]).any()
    if name == "seaquest":
        assert (seen["e_spawn_speed"].min(), seen["move_speed"].min(), seen["ramp_index"].max()) == (1, 2, 19)
        assert seen["diver_count"].max() == 6 and seen["diver_count"].min() < -5 and reward.max() > 2
    if name == "space_invaders":
        assert seen["enemy_move_interval"].min() <= 7


@pytest.mark.parametrize("name", ["asterix", "seaquest", "space_invaders"])
def test_difficulty_need_not_rise(name):
    rows, theirs, seen = play(name, ramping=False, n_steps=1_500)
    assert seen["ramp_index"].max() == 0
    check_equal(type(GAMES[name])(difficulty_ramping=False), rows, theirs)


def many(step, state, action, n=4_000):
    """The states after one step with different keys."""
    keys = jax.random.split(jax.random.key(0), n)
    return jax.jit(jax.vmap(step, (0, None, None)))(keys, state, action).state


def check_share(is_so, probability):
    """To four standard errors."""
    assert abs(np.mean(is_so) - probability) < 4 * np.sqrt(probability * (1 - probability) / np.size(is_so))


def test_asterix_draws_its_own_noise():
    game = GAMES["asterix"]
    is_full = np.arange(8) % 2 == 0  # every other lane
    start = game.reset(None)._replace(spawn_timer=np.int32(0), exists=is_full, last_action=np.int32(1))
    states = many(game.step, start, 3)
    new = np.asarray(states.exists) & ~is_full
    assert (new.sum(1) == 1).all()
    for lane in range(1, 8, 2):
        check_share(new[:, lane], 1 / 4)
    check_share(states.moves_right[new], 1 / 2)
    check_share(states.is_gold[new], 1 / 3)
    check_share(states.column == 4, 0.1)  # left again, not right


def test_freeway_draws_its_own_noise():
    game = GAMES["freeway"]
    start = game.start(np.zeros(8), np.zeros(8))._replace(row=np.int32(1), player_timer=np.int32(0))
    crossed = many(game.step, start, 1)
    assert 0.85 < np.mean(crossed.interval.var(1) > 0) < 1  # a tenth keeps its cars, whose intervals are all 1
    has_crossed = np.asarray(crossed.interval).var(1) > 0
    reset = jax.jit(jax.vmap(game.reset))(jax.random.split(jax.random.key(0), 4_000))
    for states in (reset, jax.tree.map(lambda leaf: leaf[has_crossed], crossed)):
        for interval in range(1, 6):
            check_share(states.interval == interval, 1 / 5)
        check_share(states.moves_right, 1 / 2)


def test_seaquest_draws_its_own_noise():
    game, zero = GAMES["seaquest"], np.int32(0)
    start = game.reset(None)._replace(enemy_spawn_timer=zero, diver_spawn_timer=zero, last_action=np.int32(1))
    states = many(game.step, start, 3)
    enemies, divers = (jax.tree.map(lambda leaf: leaf[:, 0], things) for things in (states.enemies, states.divers))
    assert enemies.exists.all() and divers.exists.all()
    check_share(enemies.is_submarine, 1 / 3)
    check_share(states.column == 4, 0.1)
    for things in (enemies, divers):
        check_share(things.moves_right, 1 / 2)
        for row in range(1, 9):
            check_share(things.row == row, 1 / 8)
    assert abs(np.corrcoef(enemies.row, divers.row)[0, 1]) < 4 / np.sqrt(4_000)


def test_breakout_starts_on_either_side():
    states = jax.jit(jax.vmap(GAMES["breakout"].reset))(jax.random.split(jax.random.key(0), 4_000))
    check_share(states.column == 0, 1 / 2)
    assert (np.asarray(states.step_right == 1) == (states.column == 0)).all()


def test_an_agent_learns_in_images_and_resumes(tmp_path):
    """The buffer holds booleans, and a saved agent goes on bit for bit."""
    small = {"n_estimators": 2, "hidden_layer_sizes": (8,), "buffer_size": 200, "learning_starts": 20}
    agent = QEnsembleAgent(Breakout(), seed=0, **small).learn(total_timesteps=60)
    assert agent.train_state.buffer.transitions.observation.dtype == bool
    agent.save(tmp_path / "agent")
    resumed = QEnsembleAgent.load(tmp_path / "agent")
    for one in (agent, resumed):
        one.learn(total_timesteps=60)
    jax.tree.map(np.testing.assert_array_equal, agent.train_state.members, resumed.train_state.members)
    assert agent.q_values(np.zeros((5, 10, 10, 4), bool))[0].shape == (5, 3)
    header, arrays = parts(tmp_path / "agent")
    write_forged(tmp_path / "agent", header, {**arrays, "env_state/1": arrays["env_state/1"] - np.int32(2**30)})
    with pytest.raises(StorageError, match="array 'env_state/1' must be from −12500 to 12500"):
        QEnsembleAgent.load(tmp_path / "agent")
