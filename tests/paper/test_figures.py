"""Figures 1 and 2 and the distance per second, in a small size, and their claims."""

import jax
import numpy as np
import pytest

from anchored.inference.posterior import MemberPosterior
from anchored.methods import GaussianProcess
from anchored.paper.experiments import distance_per_second, figure_1, figure_2, six_points
from anchored.paper.experiments.distance_per_second import Point
from anchored.paper.experiments.regression_tasks import exact_marginals, standard_errors
from anchored.paper.experiments.six_points import SixPoints
from anchored.paper.findings import Verdict

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


PNG = b"\x89PNG"
WIDTH = 100  # number of hidden units; all networks have the same, so that tests share programs


def held(claims):
    """Return whether each of `claims` holds, by its text."""
    return {claim.text: claim.verdict is Verdict.HOLDS for claim in claims}


def test_the_process_has_distance_zero_to_itself():
    task = SixPoints("erf", width=50)
    distances = six_points.compare(task, *exact_marginals(task))
    assert distances["mean_gap"] == distances["wasserstein"] == 0
    assert distances["std_ratio"] == distances["std_ratio_between"] == distances["std_ratio_at_points"] == 1


def test_figure_1():
    config = figure_1.Config(
        ("erf",), WIDTH, WIDTH, n_members=60, n_warmup=40, n_samples=60, variational_steps=300, dropout_iterations=400
    )
    results = figure_1.run(config)
    rows = results["rows"]
    distances = {name: row["distances"] for name, row in rows.items()}
    assert distances["erf: Gaussian process"]["wasserstein"] < 1e-6
    # 120 draws of chains that mix well, and 60 exact members with 100 hidden units, are close to the process
    assert distances["erf: Hamiltonian Monte Carlo"]["wasserstein"] < 0.05
    assert distances["erf: anchored, last layer"]["wasserstein"] < 0.06
    assert distances["erf: MC dropout"]["std_ratio_between"] < 0.5
    (figure,) = figure_1.figures(config, results)
    found = held(figure.claims)
    assert found["erf: MC dropout is too narrow between the points."]
    exact = {"distances": {"mean_gap": 0.1, "std_ratio": 1.0, "std_ratio_between": 1.0, "wasserstein": 0.01}}
    near = {name: row | exact | {"errors": dict.fromkeys(row["errors"], 0.01)} for name, row in rows.items()}
    assert all(holds for claim, holds in held(figure_1.claims(config, near)).items() if "is close to" in claim)
    far = {name: row | {"distances": row["distances"] | {"mean_gap": 0.8}} for name, row in rows.items()}
    assert not any(holds for claim, holds in held(figure_1.claims(config, far)).items() if "is close to" in claim)
    assert figure.picture.startswith(PNG) and len(figure.picture) > 20_000
    assert [row[0] for row in figure.tables[0].rows] == list(rows)


def test_figure_2():
    config = figure_2.Config("erf", WIDTH, n_members=30, max_iter=1500)
    (figure,) = figure_2.figures(config, figure_2.run(config))
    assert all(held(figure.claims).values()), figure.claims
    assert figure.picture.startswith(PNG) and len(figure.picture) > 20_000


def test_distance_per_second():
    config = distance_per_second.Config(members=(5, 40), max_iter=100, draws=(20,), steps=(100,), width=WIDTH)
    offered = distance_per_second.budgets(config, config.members, config.draws, config.max_iter)
    exact, ours, sampler = (getattr(distance_per_second, name) for name in ("EXACT", "OURS", "SAMPLER"))
    assert offered.keys() >= {exact, ours, sampler, *distance_per_second.RIVALS, "anchored, all layers"}
    task = SixPoints("erf", WIDTH)
    measured = {}
    for name in (ours, "bootstrap", exact):
        measured[name] = distance_per_second.measure(task, *offered[name], config.seed)
        assert all(point.seconds > 0 and np.isfinite(point.distance) for point in measured[name]), name
    assert measured[exact][0].distance < 1e-6
    assert measured[ours][-1].distance < measured[ours][0].distance  # more members are closer
    assert 0 < measured[ours][-1].error < measured["bootstrap"][-1].distance - measured[ours][-1].distance
    curves = {
        title: {name: [Point(0.1, 0.2), Point(0.4, 0.1)] for name in offered} for title in ("six points", "table")
    }
    (figure,) = distance_per_second.figures(config, curves)
    assert not any(held(figure.claims).values())  # all methods have the same curves, so none is closer or faster
    assert figure.picture.startswith(PNG) and len(figure.picture) > 20_000
    assert all(table.timed == ("seconds",) for table in figure.tables)


def test_time_to_reach_a_distance_is_between_two_budgets():
    points = [Point(1.0, 0.5), Point(2.0, 0.1), Point(4.0, 0.05)]
    assert distance_per_second.time_to_reach(0.2, points) == (1.0, 2.0)
    assert distance_per_second.time_to_reach(0.6, points) == (0.0, 1.0)
    assert distance_per_second.time_to_reach(0.01, points) == (4.0, np.inf)


@pytest.mark.parametrize(("seconds", "holds"), [(0.04, True), (0.06, False)])
def test_twenty_times_faster_than_the_lower_bound(seconds, holds):
    """The sampler reaches the distance between 1 and 2 seconds, so 0.05 s is the limit for "20 times"."""
    curves = {name: [Point(1.0, 0.3)] for name in distance_per_second.RIVALS}
    curves |= {name: [Point(seconds, 0.2)] for name in (distance_per_second.OURS, "anchored, all layers")}
    curves[distance_per_second.SAMPLER] = [Point(1.0, 0.5), Point(2.0, 0.1)]
    found = held(distance_per_second.claims(curves, 100))
    assert [is_held for claim, is_held in found.items() if "faster" in claim] == [holds, holds]
    assert all(is_held for claim, is_held in found.items() if "closer" in claim)
    curves["deep ensemble"] = [Point(1.0, 0.25, error=0.03)]  # farther, but within two standard errors
    assert not any(
        is_held for claim, is_held in held(distance_per_second.claims(curves, 100)).items() if "closer" in claim
    )
    curves["deep ensemble"] = [Point(1.0, 0.3)]
    curves["bootstrap"] = [Point(1.0, 0.1), Point(2.0, 0.4)]  # the best of the budgets counts
    failed = [claim for claim in distance_per_second.claims(curves, 100) if "closer" in claim.text]
    assert [claim.verdict for claim in failed] == [Verdict.FAILS, Verdict.FAILS]
    assert all("standard errors: bootstrap 0.1000" in claim.measured for claim in failed)


def test_standard_errors_are_those_of_the_mean_and_the_spread():
    """If members are independent normal draws, the standard error of a standard deviation is known."""
    task, random = SixPoints("erf", width=20), np.random.default_rng(0)
    mean, std = exact_marginals(task)
    n = 400

    class Members(MemberPosterior):
        def outputs(self, inputs):
            return (mean + std * random.standard_normal((n, 1)))[..., None]

    def std_ratio(mean, std):
        return [six_points.compare(task, mean, std)["std_ratio"]]

    found = [standard_errors(task, Members(task.model(), np.zeros((n, 1), np.float32)), std_ratio) for _ in range(30)]
    # the deviations at all points are proportional, so the ratio has the relative error of one s.d., 1/√(2(n − 1))
    assert np.mean(found) == pytest.approx(1 / (2 * (n - 1)) ** 0.5, rel=0.1)
    exact = GaussianProcess().fit(jax.random.key(0), task.model(), task.data())
    assert standard_errors(task, exact, std_ratio).tolist() == [0]
