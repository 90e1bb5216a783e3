"""The CartPole study in a small size, and its claims, tested with curves whose shape is known."""

import jax
import matplotlib.pyplot as plt
import numpy as np
import pytest

from anchored.paper.experiments import cart_pole_claims, cart_pole_figures, cart_pole_statistics, cart_pole_study
from anchored.paper.experiments.cart_pole_study import BY_MEMBERS, STATES, VARIANTS, FirstMembersOnly, Runs, Study
from anchored.paper.findings import Verdict
from anchored.rl.exploration import Episode, EpsilonGreedy, Greedy, Thompson
from anchored.rl.q_learning import init_members
from anchored.rl.training import Log

SMALL = Study(
    n_episodes=30, n_runs=2, width=20, burn_in=3, annealed_over=16, greedy_from=20, n_evaluated=4, window=5,
    one_program=True,
)  # fmt: skip
MAX_MEMBERS = 20  # number of members of the largest ensemble, whose program all variants share


@pytest.fixture(scope="module")
def small():
    """The runs of every variant."""
    numbers = []
    runs = cart_pole_study.run(SMALL, on_progress=numbers.append)
    assert sum(numbers) == SMALL.n_runs * len(VARIANTS)
    return runs


def test_every_variant_runs(small):
    for name, runs in small.items():
        assert runs.reward.shape == runs.explored.shape == (SMALL.n_runs, SMALL.n_episodes)
        assert runs.q.shape == (SMALL.n_runs, SMALL.n_episodes, VARIANTS[name].n_members, len(STATES), 2)
        assert all(np.isfinite(leaf).all() for leaf in runs)
        assert runs.reward.min() >= 1 and runs.reward.max() <= 200
        assert runs.greedy_reward.shape == (SMALL.n_runs, SMALL.n_evaluated)
        position, angle = np.abs(runs.greedy_end[..., 0]), np.abs(runs.greedy_end[..., 2])
        assert ((position > 2.4) | (angle > 12 * np.pi / 180))[runs.greedy_reward < 200].all()


def test_variants_differ_where_they_should(small):
    last = {name: runs.q[:, -1] for name, runs in small.items()}
    assert not np.array_equal(last["thompson"], last["unanchored"])
    assert not np.array_equal(last["thompson"], last["last_episode"])
    # before the first update, the members of an ensemble are the first members of a larger one
    assert np.allclose(small["members_3"].q[:, 0], small["members_20"].q[:, 0, :3], atol=1e-6)
    explored = {name: runs.explored for name, runs in small.items()}
    before, after = slice(None, SMALL.greedy_from), slice(SMALL.greedy_from, None)
    assert np.array_equal(explored["until"][:, before], explored["thompson"][:, before])
    assert explored["thompson"][:, after].any() and not explored["until"][:, after].any()
    # ε is 1 in the first episode, and 0.1 after its schedule
    for name in ("single", "epsilon"):
        assert (explored[name][:, 0] == 200).all()
        assert abs(explored[name][:, SMALL.annealed_over :].mean() - 20) < 10


@pytest.mark.parametrize("name", ["single", "thompson", "unanchored"])
def test_the_authors_settings(name):
    study, variant = Study(width=400), VARIANTS[name]
    learning = cart_pole_study.configuration(study, variant).agent.learning
    like = learning.network.init(jax.random.key(0), np.zeros((1, 4)))
    members = jax.tree.map(np.asarray, jax.jit(init_members)(jax.random.key(0), learning, like))
    first, output = members.params["layer_0"], members.params["layer_1"]
    scale = 5 if name == "single" else 7
    n = first["weights"].size
    assert abs(first["weights"].std() / scale - 1) < 4 / np.sqrt(2 * n)
    assert abs(output["weights"].std() / (0.18 / 20) - 1) < 4 / np.sqrt(2 * output["weights"].size)
    assert not output["bias"].any()
    anchors = jax.tree.leaves(members.anchors)
    if name == "single":
        assert not any(anchor.any() for anchor in anchors)
    else:
        assert all(np.array_equal(a, p) for a, p in zip(anchors, jax.tree.leaves(members.params), strict=True))
    strength = jax.tree.map(float, learning.anchor_strength)
    expected = (0, 0) if name == "unanchored" else (np.float32(1e-6), np.float32(0.1))
    assert (strength["layer_0"]["weights"], strength["layer_1"]["weights"]) == expected
    assert strength["layer_1"]["bias"] == 0


def test_runs_in_threads_equal_a_direct_call(small):
    config = cart_pole_study.configuration(SMALL, VARIANTS["members_3"], MAX_MEMBERS)
    key = jax.random.fold_in(jax.random.key(SMALL.seed), 1)
    direct = jax.jit(cart_pole_study.run_once, static_argnames="n_evaluated")(
        key, config, n_evaluated=SMALL.n_evaluated
    )
    direct = direct._replace(q=direct.q[:, :3])
    for ours, theirs in zip(jax.tree.leaves(direct), jax.tree.leaves(small["members_3"]), strict=True):
        assert np.array_equal(ours, theirs[1])


def test_same_seed_same_curve(small):
    names = ["single", "members_20"]
    again = cart_pole_study.run(SMALL, names)["single"]
    assert all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(again), jax.tree.leaves(small["single"])))
    other = cart_pole_study.run(Study(**{**vars(SMALL), "seed": 1}), names)["single"]
    assert not np.array_equal(other.reward, again.reward)


def test_rewards_and_explorations_by_brute_force():
    rng = np.random.default_rng(0)
    length = np.array([1, 200, 37, 110])
    shape = (4, 200)  # entries after the end of an episode must not count
    log = Log(rng.normal(size=shape), rng.random(shape) < 0.5, rng.random(shape) < 0.3, length, None, None)
    rewards, explorations = cart_pole_study.rewards_and_explorations(log)
    for episode, n_steps in enumerate(length):
        reward, n_explored = 0.0, 0
        for step in range(n_steps):
            reward += log.reward[episode, step]
            n_explored += bool(log.explored[episode, step])
        assert np.isclose(rewards[episode], reward, atol=1e-4)
        assert np.isclose(explorations[episode], n_explored / n_steps * 200)


def test_runs_in_one_program_equal_single_runs(small):
    """On a GPU all runs are in one program, padded to the same number of members."""
    names = ["single", "members_3", "until"]
    lanes = [(name, i) for name in names for i in range(SMALL.n_runs)]
    numbers = []
    together = cart_pole_study._in_parallel(SMALL, lanes, numbers.append)
    assert numbers == [len(lanes)]  # one call
    early = slice(None, 15)  # rounding differs, so that later actions may differ
    for name, i in lanes:
        ours, theirs = together[name, i], small[name]
        assert np.array_equal(ours.reward[early], theirs.reward[i, early])
        assert np.allclose(ours.explored[early], theirs.explored[i, early])
        assert np.allclose(ours.q[early, : VARIANTS[name].n_members], theirs.q[i, early], atol=1e-4)


def test_one_program_for_all_agents_runs_the_same_agents(small):
    names = ["members_3"]
    apart = cart_pole_study.run(Study(**{**vars(SMALL), "one_program": False}), names)
    early = slice(None, 15)  # rounding differs, so that later actions may differ
    for name in names:
        assert np.array_equal(apart[name].reward[:, early], small[name].reward[:, early])
        assert apart[name].q.shape == small[name].q.shape


def test_the_first_members_explore_as_a_smaller_ensemble():
    q = np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32)
    episode = Episode(np.int32(7), jax.random.key(1))

    @jax.jit
    def explored(exploration, q, key):
        return exploration.probabilities(q, 7), exploration(key, q, episode)

    for n_members in (1, 3):
        for exploration in (Thompson(), Greedy(), EpsilonGreedy()):
            key = jax.random.key(2)
            probabilities, action = explored(FirstMembersOnly(n_members, exploration), q, key)
            expected_probabilities, expected_action = explored(exploration, q[:n_members], key)
            assert np.allclose(probabilities, expected_probabilities, atol=1e-5)
            assert action == expected_action


TIME = (np.arange(1000) + 0.5) / 1000
LOGISTIC = 195 / (1 + np.exp(-(TIME - 0.25) / 0.05))
DECAY = 20 + 165 * (1 - np.exp(-TIME / 0.25))


@pytest.mark.parametrize(("curve", "shape"), [(LOGISTIC, "logistic"), (DECAY, "exponential")])
def test_known_shapes_are_recognised(curve, shape):
    noise = np.random.default_rng(0).normal(0, 20, (20, 1000))
    for run in curve + noise:
        errors = cart_pole_statistics.curve_errors(run.reshape(-1, 50).mean(1))
        assert min(errors, key=errors.get) == shape
        # the remaining error is the noise of a window's mean, 20/√50, less three parameters fitted to 20 windows
        assert abs(errors[shape] - 20 / 50**0.5) < 1.5
    assert cart_pole_statistics.curve_errors(np.full(20, 30.0))["exponential"] < 0.01
    curves = (curve + noise).reshape(20, -1, 50).mean(2)
    advantage, error = cart_pole_statistics.shape_advantage(curves, shape)
    assert advantage > 4 * error > 0


def test_ratio_of_means_by_simulation():
    random = np.random.default_rng(0)
    values, others = random.normal(10, 1, (2000, 25)), random.normal(20, 3, (2000, 25))
    pairs = [cart_pole_statistics.ratio_of_means(v, o) for v, o in zip(values, others, strict=True)]
    ratios, errors = np.array(pairs).T
    assert ratios.mean() == pytest.approx(0.5, abs=0.001)
    assert errors.mean() == pytest.approx(ratios.std(), rel=0.05)


def as_the_paper_says(rng, n_runs=5):
    """Return runs in which all claims of the paper are true."""

    def runs(curve, n_members=10, dip=0.0, drift=0.0, spread=5.0):
        reward = np.clip(curve + rng.normal(0, spread, (n_runs, 1)) + rng.normal(0, 5, (n_runs, 1000)), 1, 200)
        reward[:, 800:850] -= dip
        q = np.zeros((n_runs, 1000, n_members, 3, 2))
        q[..., 0, :] = rng.normal(1, 0.02, q[..., 0, :].shape)
        q[..., 1, :] = rng.normal((1, 2), 0.2, q[..., 1, :].shape)
        q[..., 2, :] = rng.normal(0, 0.2, q[..., 2, :].shape)
        ended = np.zeros((n_runs, 100, 4))
        ended[..., 0] = rng.choice([-1, 1], (n_runs, 1)) * drift + rng.normal(0, 0.3, (n_runs, 100))
        ended[..., 1] = np.sign(ended[..., 0]) * drift
        return Runs(reward, reward / 10, q, np.full((n_runs, 100), 199.0), ended)

    agents = {name: runs(DECAY, VARIANTS[name].n_members, spread=1.0) for name in VARIANTS}
    return {**agents, "single": runs(LOGISTIC, 1, dip=60, drift=1.5, spread=8.0), "epsilon": runs(LOGISTIC)}


def test_equal_actions_have_probabilities_about_one_half():
    """With ten members, |p − ½| is 0.1 on average by chance, which is half of what counts as "about ½"."""
    q = np.random.default_rng(0).normal(size=(20_000, 10, 2))
    uneven = np.abs(cart_pole_statistics.probabilities(q)[:, 1] - 0.5).mean()
    assert uneven == pytest.approx(0.1, abs=0.005)
    assert round(2 * uneven, 1) == cart_pole_claims.EVEN


def held(runs):
    """Return whether each claim holds, by figure and text; it must not be undecided, as effects are large here."""
    claims = cart_pole_claims.claims(Study(), runs)
    verdicts = {(figure, claim.text): claim.verdict for figure, of_figure in claims.items() for claim in of_figure}
    return {key: verdict is Verdict.HOLDS for key, verdict in verdicts.items()}


def test_claims_hold_where_they_are_true():
    runs = as_the_paper_says(np.random.default_rng(0))
    assert all(held(runs).values()), held(runs)


def test_claims_fail_where_they_are_false():
    true = as_the_paper_says(np.random.default_rng(0))
    # the agents are swapped, so that Thompson sampling is one-sided, unstable and sigmoidal
    swapped = {**true, "single": true["thompson"], "thompson": true["single"], "last_episode": true["single"]}
    swapped["thompson"] = true["single"]._replace(q=true["thompson"].q)
    found = held(swapped)
    assert not any(holds for (figure, text), holds in found.items() if figure == 3)
    assert not any(holds for (figure, text), holds in found.items() if figure == 4 and "similar" not in text)

    q = true["thompson"].q.copy()
    late = q[:, -50:]
    late[..., 0, 0] += 1  # sure at the non-critical state
    late[..., 1, :] = late[..., 1, ::-1].copy()  # wrong at the critical state
    late[..., 2, :] /= 20  # narrow distributions at the rare state
    found = held({**true, "thompson": true["thompson"]._replace(q=q)})
    assert not found[7, "Distributions stay broad."] and found[7, "Probabilities stay about ½."]
    assert not any(holds for (figure, _), holds in found.items() if figure in (5, 6))

    poorer = {"single": 0.5, "unanchored": 0.9, "members_3": 0.8}
    changed = {name: true[name]._replace(reward=true[name].reward * factor) for name, factor in poorer.items()}
    found = held({**true, **changed, "epsilon": true["thompson"]})
    assert not found[4, "The cumulative reward is similar to that of ε-greedy."]
    assert not any(holds for (figure, _), holds in found.items() if figure in (10, 11, 12))


def test_dips_and_drift_by_hand():
    curve = np.concatenate([np.full(700, 150.0), np.full(100, 190.0), np.full(50, 120.0), np.full(150, 180.0)])
    position = np.array([[-1.0, -2.0, -0.5, 0.5]])
    ended = np.stack([position, np.array([[-1.0, 0.5, -0.25, 0.25]])] + [np.zeros((1, 4))] * 2, -1)
    runs = Runs(curve[None], None, None, None, ended)
    assert cart_pole_statistics.late_dips(cart_pole_statistics.windows(Study(), runs.reward)) == [70]
    drift = cart_pole_statistics.drift_of(runs)
    assert drift.same_side == [0.75] and drift.distance == [1.0]
    assert drift.outward == [0.25]


def test_figures(small, monkeypatch):
    real, drawn = cart_pole_figures.as_png, []

    def as_png(figure):
        """Render only two of the figures, since most are drawn alike."""
        drawn.append(figure)
        return real(figure) if len(drawn) in (1, 6) else b"\x89PNG" + bytes(30_000)

    monkeypatch.setattr(cart_pole_figures, "as_png", as_png)
    figures = cart_pole_figures.figures(SMALL, small)
    plt.close("all")
    assert len(drawn) == 9 and len({id(figure) for figure in drawn}) == 9
    assert [figure.name for figure in figures] == [f"figure_{n}" for n in (3, 4, 5, 6, 7, 9, 10, 11, 12)]
    assert all(figure.picture.startswith(b"\x89PNG") and len(figure.picture) > 20_000 for figure in figures)
    assert [len(figure.tables[0].rows) for figure in figures] == [1, 3, 1, 1, 1, 2, 2, 2, 4]
    averaged, cumulative, _ = cart_pole_figures.curves(SMALL, small["thompson"]).values()
    reward = small["thompson"].reward
    assert np.allclose(averaged[1, 2], reward[1, 10:15].mean())
    assert np.allclose(cumulative[:, -1], reward.sum(1) / 1000)
    assert set(BY_MEMBERS) == {3, 5, 10, 20}
