"""Exploration: probabilities against SciPy and brute force, frequencies against probabilities."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from anchored.rl.exploration import (
    EXPLORATIONS,
    Episode,
    EpsilonGreedy,
    OneMember,
    PairedThompson,
    Thompson,
    Until,
)

N_DRAWS = 10_000
ALL = {**EXPLORATIONS, "until": Until(3.0, OneMember(), EpsilonGreedy(0.4, 0.2, 10.0))}


def random_q(seed, members, actions):
    """Members' values about an offset, with spreads that differ by decades; some actions tie, on some all agree."""
    generator = np.random.default_rng(seed)
    spreads = 10 ** generator.uniform(-2, 0.5, actions) * (generator.random(actions) < 0.8)
    offset = generator.choice([0, 0, 50, -50])
    q = offset + generator.normal(size=(1, actions)) + spreads * generator.normal(size=(members, actions))
    if seed % 3 == 0:
        q[:, generator.integers(actions)] = q[:, generator.integers(actions)]
    return q.astype(np.result_type(jnp.result_type(float)))


@jax.jit
def chances(exploration, q, number=0):
    return exploration.probabilities(q, number)


@jax.jit
def chances_and_action(exploration, q):
    action = exploration(jax.random.key(0), q, Episode(0, jax.random.key(1))).action
    return exploration.probabilities(q, 0), action


@jax.jit
def all_rules(rules, q, number, keys):
    """Probabilities and choices of several rules, each in one action of many episodes, in one program."""

    def draw(rule):
        return jax.vmap(lambda k: rule(k[0], q, Episode(number, k[1])))(keys)

    return {name: (rule.probabilities(q, number), draw(rule)) for name, rule in rules.items()}


@pytest.mark.parametrize("members", [2, 12])
def test_algorithm_1_agrees_with_scipy(full_optimisation, members):
    for seed in range(40):
        q = random_q(seed, members, 2)
        mean, variance = q.mean(0, dtype=float), np.where(np.ptp(q, 0) == 0, 0, q.var(0, ddof=1, dtype=float))
        sure = float(mean[0] >= mean[1])
        expected = scipy.stats.norm.sf(0, mean[0] - mean[1], np.sqrt(variance.sum())) if variance.sum() else sure
        # Pr(N0 − N1 ≥ 0), to the rounding of the means
        error = 2e-6 + 2 * np.abs(mean).max() * np.finfo(q.dtype).eps / max(np.sqrt(variance.sum()), 1e-3)
        np.testing.assert_allclose(chances(Thompson(), q), [expected, 1 - expected], atol=error)


@pytest.mark.parametrize("actions", [2, 3])
def test_paired_thompson_has_the_variance_of_differences(full_optimisation, actions):
    """All members prefer the first action by 1 ± 0.5, about values that differ by 50."""
    generator = np.random.default_rng(0)
    values, gains = 50 * generator.normal(size=(200, 1)), 1 + 0.5 * generator.normal(size=200)
    q = np.repeat(values, actions, axis=1)
    q[:, 0] += gains
    found = chances(PairedThompson(), q.astype(np.float32))
    expected = scipy.stats.norm.cdf(gains.mean() / gains.std(ddof=1))
    tolerance = 5e-4 if actions == 2 else 5 * np.sqrt(expected * (1 - expected) / 4096)
    assert found[0] == pytest.approx(expected, abs=tolerance)
    assert chances(Thompson(), q.astype(np.float32))[0] < 0.55


@pytest.mark.parametrize("actions", [2, 3])
def test_one_member_makes_thompson_greedy(full_optimisation, actions):
    for seed in range(20):
        q = random_q(seed, 1, actions)
        probabilities, action = chances_and_action(Thompson(), q)
        np.testing.assert_array_equal(probabilities, np.eye(actions)[q.argmax()])
        assert action == q.argmax()


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("actions", [2, 3])
def test_members_that_agree_make_thompson_greedy(full_optimisation, actions, x64):
    """However far from zero their values lie; of equal actions the first is taken."""
    with jax.enable_x64(x64):
        number = np.result_type(jnp.result_type(float))
        for offset in (0, 1, -50.1, 50.1, 1e4, -1e4 + 0.1):
            for steps in ((0, -0.1, -0.2), (-0.1, 0, -0.1), (0, 0, -0.1), (0, 0, 0), (-1, -1, 0)):
                q = np.repeat(np.array([steps[:actions]], number) + number.type(offset), 3, 0)
                probabilities, action = chances_and_action(Thompson(), q)
                np.testing.assert_array_equal(probabilities, np.eye(actions)[q[0].argmax()])
                assert action == q[0].argmax()


@pytest.mark.parametrize(("actions", "x64"), [(3, False), (5, True)])
def test_probabilities_of_many_actions_against_draws(full_optimisation, actions, x64):
    with jax.enable_x64(x64):
        for seed in range(12):
            q = random_q(seed, 7, actions)
            generator = np.random.default_rng(seed)
            mean, variance = q.mean(0, dtype=float), np.where(np.ptp(q, 0) == 0, 0, q.var(0, ddof=1, dtype=float))
            draws = mean + np.sqrt(variance) * generator.normal(size=(100_000, actions))
            share = np.bincount(draws.argmax(1), minlength=actions) / len(draws)
            error = np.sqrt(share * (1 - share) / len(draws))
            assert (np.abs(chances(Thompson(), q) - share) < 5 * error + 1e-3).all()


@pytest.mark.parametrize(("members", "actions"), [(5, 2), (5, 4), (1, 4), (3, 1)])
def test_frequencies_match_probabilities(members, actions):
    """Also what counts as exploration. The other rules do the same for one member or one action as for several."""
    rules = ALL if members == 5 else {name: ALL[name] for name in ("thompson", "index")}
    keys = jax.random.split(jax.random.key(1), (N_DRAWS, 2))
    for seed, number in enumerate([0, 2, 3, 7, 12]):
        q = random_q(seed, members, actions)
        found = jax.tree.map(np.asarray, all_rules(rules, q, number, keys))
        for name, (p, choice) in found.items():
            assert p.shape == (actions,)
            assert p.sum() == pytest.approx(1, abs=1e-5)
            share = np.bincount(choice.action, minlength=actions) / N_DRAWS
            draws = 4096 if name == "index" else N_DRAWS  # whose probabilities are themselves estimated
            assert (np.abs(share - p) < 5 * np.sqrt(p * (1 - p) * (1 / N_DRAWS + 1 / draws)) + 2e-3).all(), name
            if name in ("thompson", "member", "index"):
                (best,) = set(found["greedy"][1].action) if members == 5 else {q.mean(0).argmax()}
                np.testing.assert_array_equal(choice.explored, choice.action != best)
        if rules is ALL:
            assert not found["greedy"][1].explored.any()
            at_random, epsilon = found["epsilon"][1], 1 - 0.9 * number / 400
            assert at_random.explored.mean() == pytest.approx(epsilon, abs=5 * 0.5 / N_DRAWS**0.5)
            assert (at_random.action[at_random.explored] == best).any()  # a random draw may be the best
            before, after = found["member"][1], found["until"][1]
            assert np.array_equal(before.action, after.action) == (number < 3)


def test_epsilon_falls_in_a_straight_line():
    epsilon = jax.jit(lambda rule, number: rule.epsilon(number))
    found = [epsilon(EpsilonGreedy(1.0, 0.1, 400.0), number) for number in (0, 100, 200, 400, 900)]
    np.testing.assert_allclose(found, [1, 0.775, 0.55, 0.1, 0.1], rtol=1e-6)
    assert epsilon(EpsilonGreedy(3.0, 0.1, 0.0), 0) == 1  # neither more than certain nor divided by zero
    assert epsilon(EpsilonGreedy(1.0, 0.1, 0.0), 1) == pytest.approx(0.1)


def test_an_episode_keeps_its_member_and_its_index():
    q = np.random.default_rng(3).normal(size=(6, 4))
    keys = jax.random.split(jax.random.key(0), 200)

    @jax.jit
    def actions(rule, q, episode):
        return jax.vmap(lambda k: rule(k, q, episode).action)(keys)

    for name in ("member", "index"):
        for episode in range(5):
            assert len(np.unique(actions(ALL[name], q, Episode(episode, jax.random.key(episode))))) == 1
