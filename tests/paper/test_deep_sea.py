"""The deep-sea table: bsuite's rule, the slope, and every method at a small size."""

import json
import runpy
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_rgb

from anchored.paper.evidence import FAILS, HOLDS
from anchored.paper.experiments import deep_sea, replay_by_uncertainty
from anchored.paper.experiments.deep_sea import METHODS, Setting
from anchored.rl import train


def test_solved_by_bsuites_rule():
    found = np.zeros(100, bool)
    assert deep_sea.solved_at(found) is None
    found[50:] = True
    expected = next(n for n in range(1, 101) if np.sum(~found[:n]) < 0.9 * n)
    assert deep_sea.solved_at(found) == expected == 56


def test_slope_of_a_known_law():
    rows = [{"size": n, "solved": [3 * n**2, 3 * n**2, None]} for n in (10, 20, 40)]
    assert deep_sea.slope(rows) == pytest.approx(2)
    assert deep_sea.slope([{"size": 10, "solved": [100]}, {"size": 20, "solved": [None, None, 5]}]) is None


SMALL = Setting(budgets=((4, 150),), n_seeds=2, n_estimators=4, hidden_layer_sizes=(16,), batch_size=32)


def test_small_seas_are_solved(tmp_path):
    setting = replace(SMALL, methods=("anchored", "ε-greedy, narrow prior"), learning_rate=3e-3)
    rows = deep_sea.run(setting, known=[{"method": "anchored", "size": 4, "budget": 1}])  # of another budget
    for row in rows:
        assert None not in row["solved"], row["method"]  # 2⁴ ways down: even dithering finds the treasure
        told = deep_sea.describe(row).split()
        assert f"{row['size']} {row['budget']} 2 of 2 {np.median(row['solved']):.0f}" in " ".join(told)
    asked = replace(SMALL, methods=("anchored",))
    assert deep_sea.run(asked, known=rows) == [rows[0]]  # what is known is not run again
    deep_sea.draw(rows, tmp_path / "sea.png")
    deep_sea.draw(rows[:1], tmp_path / "one.png")
    both, one = (plt.imread(tmp_path / name)[..., :3] for name in ("sea.png", "one.png"))
    orange = np.array(to_rgb("C1"))
    assert (np.abs(both - orange).max(2) < 0.02).any()  # the second method's
    assert not (np.abs(one - orange).max(2) < 0.02).any()


def test_the_benchmark_draws_all_it_knows(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    stored = Path(__file__).parents[2] / "benchmarks" / "results" / "deep_sea.json"
    benchmark = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "deep_sea.py"))
    shutil.copy(stored, tmp_path / "sea.json")
    out = ["deep_sea.py", "--out", str(tmp_path / "sea.json")]
    monkeypatch.setattr(sys, "argv", [*out, "--sizes", "10", "--methods", "anchored"])
    benchmark["main"]()
    assert "anchored: too few sizes solved" in capsys.readouterr().out
    deep_sea.draw(json.loads(stored.read_text())["rows"], tmp_path / "all.png")
    assert (tmp_path / "sea.png").read_bytes() == (tmp_path / "all.png").read_bytes()
    monkeypatch.setattr(sys, "argv", [*out, "--sizes", "7"])
    with pytest.raises(SystemExit):
        benchmark["main"]()
    assert "invalid choice: 7" in capsys.readouterr().err


def test_methods_differ_in_what_their_names_say():
    learning = {name: deep_sea.configuration(SMALL, name, 4, 20).agent.learning for name in METHODS}
    outputs = {name: jax.tree.leaves(its.prior.scale)[-1] for name, its in learning.items()}
    pulls = {name: max(map(np.max, jax.tree.leaves(its.strength))) for name, its in learning.items()}
    assert [name for name, pull in pulls.items() if pull > 0] == ["anchored"]
    assert outputs["anchored"] == outputs["unanchored"] == outputs["ε-greedy"] == pytest.approx(3 / 16**0.5)
    assert outputs["ε-greedy, narrow prior"] == pytest.approx(0.1 / 16**0.5)


def test_a_prior_function_stays():
    config = deep_sea.configuration(Setting(n_estimators=2, batch_size=8), "randomised prior functions", 4, 20)
    mind, _ = jax.jit(train)(jax.random.key(0), config)
    anchors, params = mind.members.anchors, mind.members.params
    jax.tree.map(np.testing.assert_array_equal, params["fixed"], anchors["fixed"])
    moved = jax.tree.map(lambda a, b: np.abs(a - b).max(), params["trained"], anchors["trained"])
    assert max(jax.tree.leaves(moved)) > 0
    np.testing.assert_array_equal(params["strength"], 1)


def test_replay_by_uncertainty_is_compared_seed_by_seed():
    config = deep_sea.configuration(replace(SMALL, methods=("anchored",)), "anchored", 4, 30)
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
    assert (cart_pole.status, sea.status) == (FAILS, FAILS)  # two standard errors are not more than two
    known["uncertainty"] = {"cart_pole": np.array([1300.0, 2250]), "deep_sea": np.array([2.0, 12])}
    assert {claim.status for claim in replay_by_uncertainty.claims(known)} == {HOLDS}
    (figure,) = replay_by_uncertainty.figures(replay_by_uncertainty.QUICK, known)
    assert figure.picture.startswith(b"\x89PNG")
