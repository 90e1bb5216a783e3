"""Every benchmark runs in its quick size, stores numbers, and makes the tables of the documents from them."""

import json
from pathlib import Path

import control
import deep_sea
import gaussian_process
import matplotlib.pyplot as plt
import noise
import numpy as np
import pytest
import reporting
import rl
import rl_seeds
import speed
import uci
from matplotlib.colors import to_rgb

STORED = Path(reporting.RESULTS)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder with a small set in the place of yacht: a straight line and little noise."""
    folder = tmp_path_factory.mktemp("data")
    random = np.random.default_rng(0)
    X = random.normal(size=(60, 6))
    (folder / "uci").mkdir()
    np.savez(folder / "uci" / "yacht.npz", X=X, y=X @ np.arange(6.0) + 0.1 * random.normal(size=60))
    return ["--data", str(folder)]


def quick(module, tmp_path, *options):
    """Run a benchmark; what it stored, which is what it gives and what its tables are made of."""
    path = tmp_path / "stored.json"
    found = module.main(["--quick", "--out", str(path), *options])
    stored = json.loads(path.read_text())
    assert stored == json.loads(json.dumps(found))
    assert {"written", "machine", "settings"} <= set(stored)
    for table in module.tables(stored).values():
        assert "nan" not in table.replace("± nan", "") and "python benchmarks/" in table
    return stored


def test_uci(data, tmp_path):
    (row,) = quick(uci, tmp_path, *data)["regression"]
    assert (row["set"], row["N"], row["D"], len(row["splits"])) == ("yacht", 60, 6, 2)
    assert row["mean"]["rmse"] < 5  # of a target with a standard deviation of 7.4
    assert "| Yacht | 60 | 6 |" in uci.tables(reporting.stored_result("uci") | {"regression": [row]})["regression"]


def test_gaussian_process(data, tmp_path):
    stored = quick(gaussian_process, tmp_path, *data)
    for protocol in ("authors", "standard"):
        assert [row["kernel"] for row in stored[protocol]] == ["relu", "erf"]
        assert all(split["rmse"] < 2 for row in stored[protocol] for split in row["splits"])
    assert "not the same" in gaussian_process.tables(stored)["processes"]  # as the published digits of another set
    assert "not the same" not in gaussian_process.tables(reporting.stored_result("gaussian_process"))["processes"]


def test_noise(data, tmp_path):
    by_treatment = quick(noise, tmp_path, *data)["results"]["yacht"]
    assert list(by_treatment) == list(noise.TREATMENTS)
    assert all(split["rmse"] < 6 for splits in by_treatment.values() for split in splits)


def test_control(tmp_path):
    found = quick(control, tmp_path)["CartPole-v1"]
    assert [run["steps"] for run in found["runs"]] == [500]
    assert 1 <= found["mean"]["value"] <= 500 and found["mean"]["goal"] is None  # no goal for fewer steps


def test_rl(tmp_path):
    """Ours alone, where torch is not installed."""
    lines = {line["what"]: line["value"] for line in quick(rl, tmp_path)["beside_torch"]}
    assert lines["acting, a step: anchored"] > 0 and 1 <= lines["an episode: anchored"] <= 200


def test_rl_seeds(tmp_path):
    lines = {line["what"]: line["value"] for line in quick(rl_seeds, tmp_path)["many_seeds"]}
    ratio = lines["12 episodes: 2 seeds"] / lines["12 episodes: 1 seed"]
    assert lines["throughput: 2 seeds / 1 seed"] == pytest.approx(ratio)


def test_speed(tmp_path, monkeypatch, capsys):
    def in_this_process(part, cache, quick):
        capsys.readouterr()
        speed.CHILDREN[part](quick)
        return 1.0, capsys.readouterr().out

    monkeypatch.setattr(speed, "run_child", in_this_process)
    monkeypatch.setattr(speed.os, "environ", dict(speed.os.environ))
    stored = quick(speed, tmp_path)
    assert set(speed.PARTS) <= set(stored)
    assert all(line["value"] > 0 for line in stored["prediction"])


def test_speed_on_a_gpu(tmp_path):
    """On a CPU here, and in the quick size alone."""
    lines = quick(speed, tmp_path, "--gpu")["gpu_steps"]
    assert [line["what"] for line in lines[:2]] == ["a step: 1 members", "a step: 10 members"]
    assert lines[2]["value"] == pytest.approx(lines[1]["value"] / lines[0]["value"])
    with pytest.raises(SystemExit, match="JAX finds no GPU"):
        speed.gpu_steps(1, quick=False)


def test_small_seas_are_solved(tmp_path):
    rows = quick(deep_sea, tmp_path)["rows"]
    assert [row["method"] for row in rows] == ["anchored", "ε-greedy, narrow prior"]
    for row in rows:
        assert None not in row["solved"], row["method"]  # 2⁴ ways down: even dithering finds the treasure
        assert f"2 of 2 within 150 episodes; median {np.median(row['solved']):.0f}" in deep_sea.describe(row)
    again = quick(deep_sea, tmp_path)["rows"]
    assert again == rows  # seconds too: what is known is not run again
    deep_sea.draw(rows[:1], tmp_path / "one.png")
    both, one = (plt.imread(tmp_path / name)[..., :3] for name in ("stored.png", "one.png"))
    orange = np.array(to_rgb("C1"))
    assert (np.abs(both - orange).max(2) < 0.02).any()  # the second method's
    assert not (np.abs(one - orange).max(2) < 0.02).any()


def test_slope_of_a_known_law():
    rows = [{"size": n, "solved": [3 * n**2, 3 * n**2, None]} for n in (10, 20, 40)]
    assert deep_sea.slope(rows) == pytest.approx(2)
    assert deep_sea.slope([{"size": 10, "solved": [100]}, {"size": 20, "solved": [None, None, 5]}]) is None


def test_stored_seas_are_not_run_again(tmp_path, capsys):
    path = tmp_path / "sea.json"
    path.write_text((STORED / "deep_sea.json").read_text())
    found = deep_sea.main(["--out", str(path), "--sizes", "10", "--methods", "anchored"])
    assert found["rows"] == reporting.stored_result("deep_sea")["rows"]
    with pytest.raises(SystemExit):
        deep_sea.main(["--out", str(path), "--sizes", "7"])
    assert "invalid choice: 7" in capsys.readouterr().err
