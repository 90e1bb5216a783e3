"""Agents in the deep sea: bsuite's rule, the differences between the methods, and the two kinds of replay."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from anchored.paper.experiments import deep_sea_study, replay_by_uncertainty
from anchored.paper.experiments.deep_sea_study import METHODS, Setting
from anchored.paper.findings import Verdict


def test_solved_by_bsuites_rule():
    found = np.zeros(100, bool)
    assert deep_sea_study.solved_at(found) is None
    found[50:] = True
    expected = next(n for n in range(1, 101) if np.sum(~found[:n]) < 0.9 * n)
    assert deep_sea_study.solved_at(found) == expected == 56


SMALL = Setting(budgets=((4, 150),), n_seeds=2, n_estimators=4, hidden_layer_sizes=(16,), batch_size=32)


def test_methods_have_the_penalty_and_the_prior_of_their_names():
    learning = {name: deep_sea_study.configuration(SMALL, name, 4, 20).agent.learning for name in METHODS}
    output_scale = {name: jax.tree.leaves(config.prior.scale)[-1] for name, config in learning.items()}
    strength = {name: max(map(np.max, jax.tree.leaves(config.anchor_strength))) for name, config in learning.items()}
    assert [name for name in METHODS if strength[name] > 0] == ["anchored"]
    for name in ("anchored", "unanchored", "ε-greedy"):
        assert output_scale[name] == pytest.approx(3 / 16**0.5)
    assert output_scale["ε-greedy, narrow prior"] == pytest.approx(0.1 / 16**0.5)


def test_prior_functions_are_not_trained():
    """Their gradient is zero, and there is no penalty (see the test above)."""
    config = deep_sea_study.configuration(SMALL, "randomised prior functions", 4, 20)
    network = config.agent.learning.network
    like, random = network.init(jax.random.key(0), np.zeros(1, np.int32)), np.random.default_rng(0)
    params = jax.tree.map(lambda leaf: random.normal(size=np.shape(leaf)).astype(np.float32), like)
    gradient = jax.jit(jax.grad(lambda params: network.apply(params, np.arange(4)).sum()))(params)
    assert not any(np.any(leaf) for name in ("fixed", "strength") for leaf in jax.tree.leaves(gradient[name]))
    assert all(np.any(leaf) for leaf in jax.tree.leaves(gradient["trained"]))
    without = network.apply({**params, "fixed": jax.tree.map(np.zeros_like, params["fixed"])}, np.arange(4))
    assert not np.allclose(network.apply(params, np.arange(4)), without)  # but the prior function affects the output


def test_replay_by_uncertainty_is_compared_seed_by_seed():
    config = deep_sea_study.configuration(replace(SMALL, methods=("anchored",)), "anchored", 4, 30)
    uniform, uncertain = (replay_by_uncertainty.with_replay(config, kind) for kind in replay_by_uncertainty.KINDS)
    assert (uniform.agent.learning.replay, uncertain.agent.learning.replay) == ("uniform", "uncertainty")
    logs = replay_by_uncertainty.runs(uncertain, 2, seed=0)
    assert [log.reward.size for log in logs] == [4 * 30] * 2
    known = {
        "uniform": {"cart_pole": np.array([1000.0, 2000]), "deep_sea": np.array([10.0, 20])},
        "uncertainty": {"cart_pole": np.array([1300.0, 2100]), "deep_sea": np.array([9.0, 21])},
    }
    cart_pole, sea = replay_by_uncertainty.claims(known)
    assert cart_pole.measured == "1,700 against 1,500; difference 200 ± 100 over 2 seeds"
    assert (cart_pole.verdict, sea.verdict) == (
        Verdict.UNDECIDED,
        Verdict.UNDECIDED,
    )  # not more than two standard errors
    known["uncertainty"] = {"cart_pole": np.array([1300.0, 2250]), "deep_sea": np.array([2.0, 12])}
    assert {claim.verdict for claim in replay_by_uncertainty.claims(known)} == {Verdict.HOLDS}
    (figure,) = replay_by_uncertainty.figures(replay_by_uncertainty.QUICK, known)
    assert figure.picture.startswith(b"\x89PNG")
