"""Quick runs of every benchmark: they store numbers, from which the tables of the documents are made."""

import json
import subprocess
from pathlib import Path

import bsuite_scores
import cart_pole
import classes
import deep_sea
import defaults
import fits
import gaussian_process
import jax
import matplotlib.pyplot as plt
import million_rows
import minatar_games
import noise
import numpy as np
import odd_rows
import pytest
import replays
import reporting
import rivals
import rl
import rl_agents
import rl_gymnasium
import rl_seeds
import speed
import speed_gpu
import streaming
import table_shapes
import table_speed
import tables
import uci
import uci_sets
from matplotlib.colors import to_rgb
from scipy import stats
from threadpoolctl import threadpool_limits

from anchored.inference import pieces
from anchored.rl.q_network import QNetwork

STORED = Path(reporting.RESULTS)
INPUTS = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Options that name a folder of data, in which yacht is a small linear regression with little noise."""
    folder = tmp_path_factory.mktemp("data")
    random = np.random.default_rng(0)
    X = random.normal(size=(60, 6))
    (folder / "uci").mkdir()
    np.savez(folder / "uci" / "yacht.npz", X=X, y=X @ np.arange(6.0) + 0.1 * random.normal(size=60))
    return ["--data", str(folder)]


def quick(module, tmp_path, *options):
    """Run the benchmark `module` with --quick; return the stored result, which must be what `main` returns."""
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
    assert sum(row["pit"]) == 12  # test rows of both splits
    assert "| Yacht | 60 | 6 |" in uci.tables(reporting.stored_result("uci") | {"regression": [row]})["regression"]


def test_calibration_error_of_known_transforms():
    """It is 0 for a flat histogram; if all transforms are in the middle, every interval covers all targets."""
    assert uci.calibration_error(np.full(100, 7)) == pytest.approx(0)
    middle = np.zeros(100, int)
    middle[49:51] = 5
    assert uci.calibration_error(middle) == pytest.approx(1 - np.mean(np.arange(1, 51) / 50))
    transforms = np.random.default_rng(0).beta(2, 2, 100_000)
    counts, _ = np.histogram(transforms, np.linspace(0, 1, 101))
    levels = np.arange(1, 51) / 50
    expected = [abs(np.mean(np.abs(2 * transforms - 1) < level) - level) for level in levels]
    assert uci.calibration_error(counts) == pytest.approx(np.mean(expected), abs=1e-3)


def test_classes(tmp_path):
    ours, theirs = quick(classes, tmp_path)["classes"]
    assert (ours["method"], theirs["method"]) == ("anchored", "logistic_regression")
    assert ours["accuracy"] > 0.9 and theirs["accuracy"] > 0.9
    with pytest.raises(SystemExit, match="has no mnist"):
        classes.main(["--sets", "mnist", "--data", str(tmp_path), "--out", str(tmp_path / "classes.json")])


def test_table_shapes(tmp_path):
    (row,) = quick(table_shapes, tmp_path)["rows"]
    assert row["rmse"] == pytest.approx(row["clean_rmse"], rel=1e-6)  # the matrices are the same


def test_odd_rows(tmp_path):
    (row,) = quick(odd_rows, tmp_path)["rows"]
    assert row["coverage"] + row["below"] + row["above"] == pytest.approx(1)
    assert row["coverage"] > 0.85
    for make in odd_rows.ODD.values():
        X, y, X_new, y_new = make(np.random.default_rng(0), 60)
        assert len(X) == len(y) == 60 and X_new.shape == (odd_rows.N_NEW, X.shape[1]) and len(y_new) == len(X_new)
        assert np.isfinite(X).all() and np.isfinite(X_new).all()


# Comparison with other libraries


@pytest.fixture
def in_this_process(monkeypatch):
    """Run rivals in this process, which has imported scikit-learn, with one thread; the list of those run so far."""
    finished = []

    def run_script(interpreter, arguments, time_limit):
        finished.append(arguments[0])
        with threadpool_limits(1):
            rivals.main(*arguments)

    monkeypatch.setattr(fits, "run_script", run_script)
    return finished


@pytest.mark.filterwarnings("ignore:.*close to the specified")  # length scales of the process, at their bounds
def test_tables(data, tmp_path, in_this_process):
    rows = quick(tables, tmp_path, *data)["rows"]
    assert [(row["method"], row["split"]) for row in rows] == [
        (method, split) for method in ("anchored", "gaussian_process", "hist_gradient_boosting") for split in (0, 1)
    ]
    by_method = {row["method"]: row for row in rows}
    assert by_method["gaussian_process"]["rmse"] < 0.3  # the standard deviation of the noise is 0.1
    assert by_method["anchored"]["rmse"] < by_method["hist_gradient_boosting"]["rmse"]
    assert all(row["seconds"] > 0 and row["version"] for row in rows)
    finished = list(in_this_process)
    assert quick(tables, tmp_path, *data)["rows"] == rows and in_this_process == finished  # stored fits are not run
    again = quick(tables, tmp_path, *data, "--again", "hist_gradient_boosting")["rows"]
    assert in_this_process == [*finished, "hist_gradient_boosting", "hist_gradient_boosting"]
    assert [row["nll"] for row in again] == [row["nll"] for row in rows]


@pytest.mark.filterwarnings("ignore:.*close to the specified")
def test_an_interrupted_comparison_continues(data, tmp_path, in_this_process, monkeypatch):
    """A run that is killed in the second fit of a rival keeps the rows before it."""
    fit_rival = fits.fit_rival

    def killed(*arguments):
        if len(in_this_process) == 1:
            raise KeyboardInterrupt
        return fit_rival(*arguments)

    monkeypatch.setattr(fits, "fit_rival", killed)
    path = tmp_path / "stored.json"
    with pytest.raises(KeyboardInterrupt):
        tables.main(["--quick", "--out", str(path), *data])
    kept = json.loads(path.read_text())["rows"]
    assert len(kept) == 3
    monkeypatch.setattr(fits, "fit_rival", fit_rival)
    rows = quick(tables, tmp_path, *data)["rows"]
    assert len(rows) == 6 and len(in_this_process) == 4
    assert [row for row in rows if row in kept] == kept  # with the same seconds, so they were not run again


def test_ablation(data, tmp_path):
    rows = quick(tables, tmp_path, *data, "--ablation")["ablation"]
    assert [row["variant"] for row in rows] == ["defaults", "normal shape", "inputs not encoded"]
    assert {row["split"] for row in rows} == {5}
    defaults, normal, _ = rows
    assert normal["rmse"] == defaults["rmse"]
    change = f"{normal['nll'] - defaults['nll']:+.2f}".replace("-", "−")
    assert f"| Yacht | {change} (+0.0 %, +0.0 s) |" in tables.tables({**EMPTY, "ablation": rows})["ablation"]


EMPTY = {"written": "2026-11-16", "rows": [], "ablation": []}
EMPTY["machine"] = {"cpu": "CPU", "cores": 2, "device": "cpu", "versions": {"jax": "0.10"}}


def rows_of(method, name, *nlls, first_split=0):
    """Return rows of one method on one set, for splits with these NLLs; the other scores are equal to them."""
    return [
        {"method": method, "set": name, "split": first_split + i, "version": "1"}
        | {"nll": nll, "crps": nll, "rmse": nll, "coverage": 0.95, "seconds": 2.0 if method == "anchored" else 6.0}
        for i, nll in enumerate(nlls)
    ]


def test_methods_with_all_splits_are_ranked_by_their_means():
    rows = rows_of("anchored", "yacht", 1.0, 2.0) + rows_of("catboost", "yacht", 0.0, 4.0)
    rows += rows_of("ngboost", "yacht", 0.0)  # one of two splits
    rows += rows_of("anchored", "kin8nm", 3.0) + rows_of("catboost", "kin8nm", 3.0) + rows_of("ngboost", "kin8nm", 1.0)
    stored = {**EMPTY, "rows": rows}
    sets = tables.by_set(stored)
    assert tables.ranks(sets, "nll") == {"anchored": [2.5, 1.0], "catboost": [2.5, 2.0], "ngboost": [1.0]}
    made = tables.tables(stored)
    assert "| Yacht | **1.50** | 2.00 |  |" in made["rivals_nll"]
    assert "| anchored | 1 | 2 | 1.8 | 1.8 | 1.8 | 1.0 | 1.0 | 1.0 | 95.0 % |" in made["rivals_ranks"]
    assert "anchored 1.8 (2)" in tables.in_words(stored)
    assert f"| CatBoost | {tables.PREDICTS['catboost']} | 2.0 | 2.0 | 95 % |" in made["libraries"]  # on Yacht


def test_bde_is_compared_on_all_common_splits():
    ours = rows_of("anchored", "yacht", *np.arange(7.0))
    theirs = rows_of("bde", "yacht", 0.0, 0.0, first_split=5)
    stored = {**EMPTY, "rows": ours + theirs}
    assert "| Yacht | 2 | 5.50 ± 0.50 | 0.00 ± 0.00 | 2.0 | 6.0 | 3.0 |" in tables.tables(stored)["bde"]
    assert "bde" not in tables.by_set(stored)["yacht"]  # which has only the first five splits
    assert tables.in_words(stored).endswith("on 1 of 1 sets, and takes 3 to 3 times as long")


def test_scores_of_samples_are_those_of_their_distribution():
    """A mixture of equal components is a normal distribution, whose scores are known."""
    random = np.random.default_rng(1)
    mean, std = random.normal(size=300), random.uniform(0.5, 2, size=300)
    y = mean + std * random.normal(size=300)
    draws = np.tile(mean, (50, 1)), np.tile(std, (50, 1))
    log_density, samples = rivals.mixture_log_density(*draws, y), rivals.mixture_samples(*draws)
    found = fits.rival_scores(y, {"mean": mean, "log_density": log_density, "samples": samples})
    exact = uci_sets.normal_scores(y, mean, std)
    assert found["nll"] == pytest.approx(exact["nll"]) and found["rmse"] == pytest.approx(exact["rmse"])
    assert found["crps"] == pytest.approx(exact["crps"], rel=5 / np.sqrt(samples.size))
    assert found["coverage"] == pytest.approx(exact["coverage"], abs=0.011)


def test_densities_and_samples_of_mixtures():
    mean, std = np.array([[-3.0], [3.0]]), np.array([[0.5], [1.0]])
    y = np.array([2.0])
    density = 0.5 * stats.norm.pdf(y, -3, 0.5) + 0.5 * stats.norm.pdf(y, 3, 1)
    assert np.exp(rivals.mixture_log_density(mean, std, y)) == pytest.approx(density)
    samples = rivals.mixture_samples(mean, std)[:, 0]
    assert np.mean(samples > 0) == pytest.approx(0.5, abs=0.01)
    assert np.std(samples[samples < 0]) == pytest.approx(0.5, rel=0.1)


def test_point_predictions_get_the_variance_of_residuals():
    class Mean:
        """A regressor that predicts the mean of its targets."""

        def fit(self, X, y):
            self.mean = y.mean()

        def predict(self, X):
            return np.full(len(X), self.mean)

    y = 3 * np.random.default_rng(0).normal(size=5_000)
    found = rivals.with_residual_variance(Mean, np.zeros((5_000, 1)), y, np.zeros((4, 1)))
    assert found["mean"] == pytest.approx(np.full(4, y.mean()))
    assert found["std"] == pytest.approx(np.full(4, 3.0), rel=4 / np.sqrt(2 * 500))


def test_intervals_of_their_own_are_scored_as_they_are():
    """The normal distribution is as wide as MAPIE's intervals, whose coverage is that of the intervals."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(60, 1))
    y = X[:, 0] + rng.exponential(size=60)
    found = rivals.random_forest(X[:40], y[:40], X[40:], y[40:])
    assert found["upper"] - found["lower"] == pytest.approx(2 * stats.norm.ppf(0.975) * found["std"], rel=1e-6)
    scored = fits.rival_scores(y[40:], found | {end: found[end] + 100 for end in ("lower", "upper")})
    assert scored["coverage"] == 0 and scored["nll"] == fits.rival_scores(y[40:], found)["nll"]
    assert fits.rival_scores(y[40:], found)["coverage"] > 0.6


def test_a_rival_that_is_not_installed_is_left_out(data, tmp_path, capsys):
    python = tmp_path / "no" / "python"
    arguments = ["--out", str(tmp_path / "stored.json"), "--sets", "yacht", "--methods", "bde,ngboost,catboost", *data]
    arguments += ["--python", f"catboost={python}"]
    try:
        import ngboost  # noqa: F401
    except ImportError:
        pass
    else:
        pytest.skip("ngboost is installed")
    assert tables.main(arguments)["rows"] == []
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert "bde is left out: ModuleNotFoundError" in lines[0] and "pip install sklearn-contrib-bde" in lines[0]
    assert "ngboost is left out: ModuleNotFoundError" in lines[1] and "pip install ngboost" in lines[1]
    assert f"catboost is left out: there is no interpreter {python}" in lines[2]


def test_a_method_that_fails_or_is_too_slow_is_left_out_on_that_set(monkeypatch, data, tmp_path, capsys):
    def run_script(interpreter, arguments, time_limit):
        if arguments[0] == "ngboost":
            raise subprocess.TimeoutExpired("python", time_limit)
        raise subprocess.CalledProcessError(1, "python", stderr="Traceback ...\nLinAlgError: singular\n")

    monkeypatch.setattr(fits, "run_script", run_script)
    arguments = ["--out", str(tmp_path / "stored.json"), "--sets", "yacht", *data, "--time-limit", "7"]
    tables.main([*arguments, "--methods", "catboost,ngboost"])
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("catboost is left out on yacht: LinAlgError: singular; `")
    assert lines[1].startswith("ngboost is left out on yacht: a fit takes more than 7 s; raise --time-limit")


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--sets", "yacht,sea", "invalid choice: 'sea'"),
        ("--methods", "boosting", "invalid choice: 'boosting'"),
        ("--python", "bde", "is not METHOD=INTERPRETER"),
        ("--python", "anchored=python", "is not METHOD=INTERPRETER"),
    ],
)
def test_options_of_tables_are_checked(option, value, message, capsys):
    with pytest.raises(SystemExit):
        tables.main([option, value])
    assert message in capsys.readouterr().err


# Others


def test_gaussian_process(data, tmp_path):
    stored = quick(gaussian_process, tmp_path, *data)
    for protocol in ("authors", "standard"):
        assert [row["kernel"] for row in stored[protocol]] == ["relu", "erf"]
        assert all(split["rmse"] < 2 for row in stored[protocol] for split in row["splits"])
    assert "not the same" in gaussian_process.tables(stored)["processes"]  # these data are not the published ones
    assert "not the same" not in gaussian_process.tables(reporting.stored_result("gaussian_process"))["processes"]


def test_noise(data, tmp_path):
    by_treatment = quick(noise, tmp_path, *data)["results"]["yacht"]
    assert list(by_treatment) == list(noise.TREATMENTS)
    assert all(split["rmse"] < 6 for splits in by_treatment.values() for split in splits)


def test_cart_pole_runs_are_stored_as_they_are(tmp_path):
    """The statistics of a stored row are those that were stored; stored agents are not run again."""
    stored = reporting.stored_result("cart_pole")
    assert [(row["agent"], row["updates"], len(row["total"])) for row in stored["rows"]] == [
        (agent, n_updates, n_runs) for n_updates, n_runs in cart_pole.N_RUNS.items() for agent in cart_pole.AGENTS
    ]
    for row in stored["rows"]:
        learning = cart_pole.from_json(row)
        assert cart_pole.as_json(learning) == {name: row[name] for name in learning._fields}
        assert learning.total == pytest.approx(50 * learning.curves.sum(1), rel=1e-4)
    path = tmp_path / "stored.json"
    path.write_text(json.dumps(stored))
    assert cart_pole.main(["--out", str(path)])["rows"] == stored["rows"]


def test_defaults(tmp_path, capsys):
    (row,) = quick(defaults, tmp_path)["rows"]
    assert (row["environment"], row["seed"], row["steps"]) == ("CartPole-v1", 100, 500)
    assert 1 <= row["mean_return"] <= 500
    capsys.readouterr()
    assert quick(defaults, tmp_path)["rows"] == [row]  # what is stored is not run again
    assert "seed" not in capsys.readouterr().err
    (stored,) = tmp_path.glob("*.json")
    other = json.loads(stored.read_text())
    other["rows"] = [{**row, "seed": 99, "machine": "elsewhere"}, {**row, "mean_return": -1.0}]
    (tmp_path / "other").write_text(json.dumps(other))
    merged = defaults.main(["--out", str(stored), "--merge", str(tmp_path / "other")])
    assert merged["rows"] == [other["rows"][0], row]  # a run that is stored here is kept
    assert "*On elsewhere: 1 of CartPole-v1.*" in defaults.tables(merged)["defaults"]
    other["settings"] = {}
    (tmp_path / "other").write_text(json.dumps(other))
    with pytest.raises(SystemExit, match="present defaults"):
        defaults.main(["--out", str(stored), "--merge", str(tmp_path / "other")])


def test_defaults_table():
    def sea(seed, solved):
        return {"environment": "DeepSea 10", "seed": seed, "mean_return": 0.99, "solved": solved}

    lake = [{"environment": "FrozenLake-v1", "seed": i, "mean_return": x} for i, x in enumerate((0.5, 0.8, 0.8))]
    stored = {**reporting.stored_result("deep_sea"), "rows": [sea(100, 258), sea(101, None), *lake]}
    shown = defaults.tables(stored)["defaults"]
    assert "| 258, not solved | solved by 1 of 2 | 10 of 10 |" in shown
    assert "| 0.50, 0.80, 0.80 | 0.700 ± 0.100 | ≥ 0.70 |" in shown
    poles = [{"environment": "CartPole-v1", "seed": i, "mean_return": x} for i, x in enumerate((400.0, 500.0))]
    assert defaults.means({"rows": [*lake, *poles]}) == {"CartPole-v1": 450}  # of control, as far as it has been run


def test_replays(tmp_path, capsys):
    rows = quick(replays, tmp_path)["rows"]
    assert [(row["variant"], row["size"], row["seed"]) for row in rows] == [("default", 4, 100), ("rare", 4, 100)]
    assert all(row["solved"] is None or 1 <= row["solved"] <= 100 for row in rows)
    capsys.readouterr()
    assert quick(replays, tmp_path)["rows"] == rows  # what is stored is not run again
    assert "seed" not in capsys.readouterr().err
    several = [{**rows[1], "size": 20, "seed": i, "solved": n} for i, n in enumerate((300, None, 400))]
    (table,) = replays.tables({**reporting.stored_result("deep_sea"), "rows": several}).values()
    assert "| rare | 350 (300, not solved, 400) |" in table


def test_rl(tmp_path):
    """Without torch, only our agent is measured."""
    lines = {line["what"]: line["value"] for line in quick(rl, tmp_path)["beside_torch"]}
    assert lines["acting, per step: anchored"] > 0 and 1 <= lines["length of an episode: anchored"] <= 200


def test_rl_gymnasium(tmp_path):
    numpy_rate, compiled_rate, eight, *ratios = (line["value"] for line in quick(rl_gymnasium, tmp_path)["lines"])
    assert ratios == pytest.approx([numpy_rate / compiled_rate, eight / numpy_rate])


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
    assert all(line["value"] > 0 for line in stored["first_fit"])


def test_table_speed(tmp_path):
    lines = {line["what"]: line for line in quick(table_speed, tmp_path)["lines"]}
    assert list(lines) == [
        "anchored --help", "read, infer and encode 1,000 × 10 mixed columns",
        "predict 1,000 mixed rows, file to file", "fit 60 rows × 12 columns",
    ]  # fmt: skip
    assert all(line["value"] > 0 for line in lines.values()) and lines["fit 60 rows × 12 columns"]["goal"] == 15


def test_million_rows(tmp_path, monkeypatch, capsys):
    def in_this_process(part, quick):
        capsys.readouterr()
        million_rows.CHILDREN[part](quick)
        return [[float(word) for word in line.split()] for line in capsys.readouterr().out.splitlines()]

    monkeypatch.setattr(million_rows, "run_child", in_this_process)
    lines = quick(million_rows, tmp_path)["lines"]
    assert [line["unit"] for line in lines] == ["s", "MB"] * 3
    assert all(line["value"] > 0 for line in lines if line["unit"] == "s")


def test_speed_on_a_gpu(tmp_path):
    """A quick run also works on a CPU; a full run does not."""
    stored = quick(speed_gpu, tmp_path)
    steps = {line["what"]: line["value"] for line in stored["small_networks"]}
    ratio = steps["a step: 1 members"] / steps["a step: 1 members, bare program"]
    assert steps["anchored / bare, 1 members"] == pytest.approx(ratio)
    assert stored["purity"][0]["value"] == 0
    with pytest.raises(SystemExit, match="JAX finds no GPU"):
        next(speed_gpu.run(1, quick=False))


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


def bsuite_rows(agent, experiment, log):
    """Runs of all three settings with the same log."""
    ids = bsuite_scores.settings_of_experiments()[experiment]
    return [{"agent": agent, "bsuite_id": each, "log": log} for each in ids]


def test_bsuite(tmp_path):
    """Runs that are stored are not run again, and one that is missing is."""
    agents = ["anchored", "bootstrapped DQN"]
    stored = quick(bsuite_scores, tmp_path, "--agents", *agents)
    rows = stored["rows"]
    ids = bsuite_scores.settings_of_experiments()["bandit"]
    assert [(row["bsuite_id"], row["agent"]) for row in rows] == [(i, a) for i in ids for a in agents]
    assert ids == ["bandit/0", "bandit/10", "bandit/19"] and all(row["steps"] == 20 for row in rows)
    regret = {a: np.mean([1 - row["mean_return"] for row in rows if row["agent"] == a]) for a in agents}
    for agent, by_name in stored["experiments"].items():  # bsuite's score of a bandit is 1 − regret / 0.5
        assert by_name == {"bandit": pytest.approx(max(0, 1 - regret[agent] / 0.5), abs=1e-6)}
    path = tmp_path / "stored.json"
    path.write_text(json.dumps({**stored, "rows": rows[:-1]}))
    again = quick(bsuite_scores, tmp_path, "--agents", *agents)["rows"]
    assert again[:-1] == rows[:-1] and again[-1]["mean_return"] == rows[-1]["mean_return"]
    assert not any(name.startswith("mnist") for name in bsuite_scores.settings_of_experiments())


def test_bsuite_scores_are_bsuites(tmp_path):
    """Of an agent that solves two seas of three, and one that never does."""
    header = "episode,total_return,total_bad_episodes,denoised_return\n"
    solved, unsolved = (f"{header}100,1,{bad},1\n10000,1,{100 * bad},1\n" for bad in (10, 100))
    first = [*bsuite_rows("anchored", "deep_sea", solved)[:2], bsuite_rows("anchored", "deep_sea", unsolved)[2]]
    first += bsuite_rows("anchored", "deep_sea_stochastic", solved)
    first += bsuite_rows("anchored", "cartpole_swingup", "episode,total_return,best_episode\n1000,700000,700\n")
    other = (
        bsuite_rows("DQN", "deep_sea", unsolved) + bsuite_rows("DQN", "bandit", "episode,total_regret\n10000,0\n")[:2]
    )
    found = bsuite_scores.scores(first + other)
    assert found["experiments"] == {
        "anchored": {"cartpole_swingup": 1, "deep_sea": pytest.approx(2 / 3), "deep_sea_stochastic": 1},
        "DQN": {"deep_sea": 0},  # the bandit is not complete
    }
    assert found["categories"] == {"anchored": {"exploration": pytest.approx(8 / 9)}, "DQN": {}}
    made = bsuite_scores.tables({**EMPTY, **found})["bsuite"]
    assert "| *exploration* | **0.89** |  |" in made and "| `deep_sea` | **0.67** | 0.00 |" in made
    scores = dict.fromkeys(bsuite_scores.CATEGORIES, 0.5)
    bsuite_scores.draw({"anchored": scores, "DQN": scores}, tmp_path / "radar.png")
    assert (np.abs(plt.imread(tmp_path / "radar.png")[..., :3] - to_rgb("C1")).max(2) < 0.02).any()


def test_minatar_games_continue_after_a_cut(tmp_path, monkeypatch):
    """A run that is stopped within its segments equals one that is not."""
    arguments = ["--agents", "DQN"]
    checkpoint = ["--checkpoint", str(tmp_path / "run.npz")]
    whole = quick(minatar_games, tmp_path, *arguments)
    assert [(row["game"], row["agent"]) for row in whole["rows"]] == [("breakout", "DQN")]
    assert all(np.shape(row["greedy"]) == (2,) and np.shape(row["curve"]) == (2, 20) for row in whole["rows"])
    assert (tmp_path / "stored.png").exists()
    (tmp_path / "stored.json").unlink()
    write, n_written = minatar_games.write_checkpoint, []

    def killed(*values):
        write(*values)
        n_written.append(1)
        if len(n_written) == 7:
            raise KeyboardInterrupt

    monkeypatch.setattr(minatar_games, "write_checkpoint", killed)
    with pytest.raises(KeyboardInterrupt):
        minatar_games.main(["--quick", "--out", str(tmp_path / "stored.json"), *arguments, *checkpoint])
    again = quick(minatar_games, tmp_path, *arguments, *checkpoint)
    assert len(n_written) == 20  # and no segment was run twice
    for row, expected in zip(again["rows"], whole["rows"], strict=True):
        assert {**row, "seconds": 0} == {**expected, "seconds": 0}


def test_returns_of_segments_are_those_of_their_episodes():
    rewards = np.random.default_rng(0).integers(5, size=(3, 40)).astype(float)
    done = np.zeros((3, 40), bool)
    done[0, [3, 9, 25]] = done[1, [0, 39]] = True  # the third is one long episode
    first, unfinished = minatar_games.mean_returns(rewards[:, :20], done[:, :20], np.zeros(3))
    second, unfinished = minatar_games.mean_returns(rewards[:, 20:], done[:, 20:], unfinished)
    assert first == [rewards[0, :10].sum() / 2, rewards[1, 0], None]
    assert second == [rewards[0, 10:26].sum(), rewards[1, 1:].sum(), None]
    assert unfinished.tolist() == [rewards[0, 26:].sum(), 0, rewards[2].sum()]


def test_the_convolution_is_jaxs():
    network, random = rl_agents.ConvolutionalQNetwork(3, 5, 2), np.random.default_rng(0)
    images = random.random((2, 6, 7, 4)) < 0.3
    params = jax.tree.map(lambda leaf: random.normal(size=leaf.shape).astype(np.float32), network.init(None, images))
    kernel = params["convolution"]["weights"].reshape(3, 3, 4, 3)
    hidden = jax.lax.conv_general_dilated(
        images.astype(np.float32), kernel, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    hidden = np.maximum(hidden + params["convolution"]["bias"], 0).reshape(2, -1)
    hidden = np.maximum(hidden @ params["hidden"]["weights"] + params["hidden"]["bias"], 0)
    expected = hidden @ params["outputs"]["weights"] + params["outputs"]["bias"]
    np.testing.assert_allclose(network.apply(params, images), expected, rtol=1e-4, atol=1e-4)


def test_prior_functions_are_fixed():
    """The gradient is that of the trained network, and the output the sum of both."""
    network = rl_agents.PriorFunctions(QNetwork((4,), 2), 3.0)
    shapes, random = network.network.init(None, INPUTS), np.random.default_rng(1)
    trained, fixed = (jax.tree.map(lambda leaf: random.normal(size=leaf.shape), shapes) for _ in range(2))
    params = {"trained": trained, "fixed": fixed}
    expected = network.network.apply(trained, INPUTS) + 3 * network.network.apply(fixed, INPUTS)
    np.testing.assert_allclose(jax.jit(network.apply)(params, INPUTS), expected, rtol=1e-5)
    gradient = jax.jit(jax.grad(lambda params: network.apply(params, INPUTS).sum()))(params)
    assert all(not leaf.any() for leaf in jax.tree.leaves(gradient["fixed"]))
    assert all(leaf.any() for leaf in jax.tree.leaves(gradient["trained"]))


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


def test_streaming(tmp_path, monkeypatch):
    monkeypatch.setattr(pieces, "PIECE_ROWS", pieces.PIECE_ROWS)  # the benchmark changes it
    monkeypatch.setattr(streaming, "in_process", lambda *call: streaming.child(*call, is_limited=False))
    lines = quick(streaming, tmp_path)["lines"]
    assert lines[0]["value"] == 0  # the members are the same
    assert len(lines) == 6 and all(np.isfinite(line["value"]) for line in lines)
