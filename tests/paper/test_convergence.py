"""The convergence study in a small size, and its closed forms in full size."""

import os
from dataclasses import replace

import numpy as np
import pytest

from anchored.certification.distances import distances
from anchored.exact.kernels import kernel_of
from anchored.exact.processes import GaussianProcess
from anchored.paper.experiments import convergence, convergence_boston
from anchored.paper.experiments.convergence import KINDS, Config
from anchored.paper.findings import Verdict

SMALL = Config(widths=(4, 256), members=(3, 10, 40), max_trained_members=10, n_runs=3)
BOSTON = pytest.mark.skipif(not os.environ.get("ANCHORED_DATA"), reason="ANCHORED_DATA names no folder with the data")


@pytest.fixture(scope="module")
def results():
    return convergence.run(SMALL)


def test_ideal_line_against_draws_of_the_process():
    """The closed form of the expected KL against brute force."""
    X, X_test, y = convergence.load(SMALL)
    mean, std = convergence.exact_marginals(SMALL, X, X_test, y)
    process = GaussianProcess(kernel_of(convergence.make_model(SMALL, 1)), SMALL.noise_variance).condition(X, y)
    draws = process.sample(X_test, 1000)[..., 0]
    for m, expected in convergence.closed_forms(SMALL, X, X_test, y)["ideal"].items():
        groups = draws[: 1000 // m * m].reshape(-1, m, len(X_test))
        found = [distances(mean, std, g.mean(0), g.std(0, ddof=1), SMALL.noise_variance)["kl"] for g in groups]
        assert abs(np.mean(found) - expected) < 4 * np.std(found) / np.sqrt(len(found))


def test_last_layer_with_noisy_targets_follows_the_ideal_line(results):
    points = results["curves"]["last_layer", "randomized", 256]["by_members"]
    for m, ideal in results["ideal"].items():
        kl, error = points[m]["kl"]
        assert kl < 1.3 * ideal + 3 * error  # 256 units are not yet infinitely many


def test_anchors_from_the_prior_are_too_narrow(results):
    for trainable in ("all", "last_layer"):
        ratio = results["curves"][trainable, "prior", 256]["pooled"]["std_ratio"]
        assert abs(ratio - results["floors"][trainable, "prior"]["std_ratio"]) < 0.12
        assert ratio < results["curves"][trainable, "randomized", 256]["pooled"]["std_ratio"]


def test_wider_networks_are_closer(results):
    for kind in (("last_layer", "prior"), ("last_layer", "randomized")):
        narrow, wide = (results["curves"][(*kind, width)]["pooled"]["kl"] for width in SMALL.widths)
        assert wide < narrow / 5


def test_claims_table_and_picture(results):
    (figure,) = convergence.figures(SMALL, results)
    converges, wider, spread = (claim.verdict for claim in figure.claims)
    assert converges in (Verdict.CORRECTED, Verdict.UNDECIDED)  # three runs may be too few to tell
    assert (wider, spread) == (Verdict.HOLDS, Verdict.CORRECTED)
    assert len(figure.picture) > 20_000
    (table,) = figure.tables
    assert len(table.rows) == 1 + len(KINDS) * len(SMALL.widths)
    assert {len(row) for row in table.rows} == {len(table.header)}
    # if the corrected form were far from the process, too, the claim would fail
    points = results["curves"]["last_layer", "randomized", 256]["by_members"]
    far = {m: {**found, "kl": (1.0, 0.01)} for m, found in points.items()}
    curves = {**results["curves"], ("last_layer", "randomized", 256): {"by_members": far}}
    assert convergence.claims(SMALL, {**results, "curves": curves})[0].verdict is Verdict.FAILS


@BOSTON
def test_published_floors_and_ideal_line():
    """Boston in the setting of the literature: the ideal line and the floors of infinite width."""
    config = convergence_boston.FULL
    closed = convergence.closed_forms(config, *convergence.load(config))
    expected = {3: 0.193, 5: 0.0975, 10: 0.0433, 20: 0.0204, 40: 0.0099, 100: 0.0039}
    for m, ideal in closed["ideal"].items():
        assert np.isclose(ideal, expected[m], rtol=0.02), m
    assert round(closed["floors"]["all", "prior"]["kl"], 4) == 0.0241
    assert round(closed["floors"]["all", "randomized"]["kl"], 4) == 0.0135
    assert closed["floors"]["last_layer", "randomized"]["kl"] < 1e-12
    over_splits = [
        convergence.closed_forms(c, *convergence.load(c))["floors"]
        for c in (replace(config, split_seed=seed, members=(3,)) for seed in range(10))
    ]
    for anchoring, mean in (("prior", 0.0202), ("randomized", 0.0100)):
        assert round(float(np.mean([floors["all", anchoring]["kl"] for floors in over_splits])), 4) == mean
