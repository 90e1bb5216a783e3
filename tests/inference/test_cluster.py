"""A Dask cluster computes what one process does, bit for bit, whatever happens to its workers.

Workers compile with the options of this process, which they inherit, so that they find its programs in the cache.
"""

import os
import signal
import warnings

import jax
import numpy as np
import pytest
from joblib import parallel_config
from sklearn.exceptions import ConvergenceWarning

from anchored import AnchoredRegressor
from anchored.inference import checkpoints, cluster, posterior
from anchored.inference.solvers import first_order
from anchored.methods import AnchoredEnsemble, FirstOrder
from anchored.model.bayesian_model import BayesianModel
from anchored.model.layered_prior import default_layer_scales, layered_prior
from anchored.model.likelihoods import Gaussian
from anchored.model.networks import MLP
from anchored.types import Data

distributed = pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def client():
    """A client of a cluster of two processes, with one thread each; a process that dies is started again."""
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
    with distributed.LocalCluster(**options) as two_processes, distributed.Client(two_processes) as client:
        yield client


@pytest.fixture(scope="module")
def problem():
    """A model, and data with inputs that are large enough to be sent apart from the tasks."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(70, 4)).astype(np.float32)
    network = MLP((50, 50), 1, "relu")
    prior = layered_prior(network, network.init(None, X), default_layer_scales(network, 2.0))
    data = Data(X, np.sin(X[:, :1]), np.ones((len(X), 1), np.float32))
    return BayesianModel(network, prior, Gaussian(np.array([0.01], np.float32))), data


def fit(problem, on_progress=None, **settings):
    """Return the posterior of twenty members, which are trained in four blocks."""
    method = AnchoredEnsemble(20, solver=FirstOrder(**{"max_iter": 30, "batch_size": 16} | settings))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*falling loss")
        return method.fit(jax.random.key(3), *problem, on_progress)


def same(one, other):
    """Return whether the members of two posteriors are equal."""
    return all(np.array_equal(a, b) for a, b in zip(*(jax.tree.leaves(p.members) for p in (one, other)), strict=True))


@pytest.fixture(scope="module")
def expected(problem):
    return fit(problem)


def test_choices_members_and_predictions_are_the_same(client, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=300)
    settings = {"n_estimators": 6, "hidden_layer_sizes": (50, 50), "max_iter": 8, "random_state": 0}
    settings |= {"noise_variance": 0.01, "input_encoding": "standard"}  # the prior scale is chosen
    monkeypatch.setattr(posterior, "UNITS_PER_CHUNK", 6 * 50 * 128)  # three chunks
    here = AnchoredRegressor(**settings).fit(X, y)
    with parallel_config(backend="dask"):
        there = AnchoredRegressor(**settings).fit(X, y)
        predictions = there.predict(X, return_std=True)
    scores = [[candidate.score for candidate in model.candidates_] for model in (here, there)]
    assert scores[0] == scores[1] and len(scores[0]) > 1
    assert same(here.posterior_, there.posterior_)
    assert all(np.array_equal(a, b) for a, b in zip(here.predict(X, return_std=True), predictions, strict=True))


def test_data_are_sent_once(client, problem, expected, monkeypatch):
    sent = []
    scatter = client.scatter
    monkeypatch.setattr(client, "scatter", lambda arrays, **options: sent.extend(arrays) or scatter(arrays, **options))
    with parallel_config(backend="dask"), cluster.using():
        assert same(fit(problem), expected)
        assert len({array.tobytes() for array in sent}) == len(sent) > 0
        n_sent = len(sent)
        assert same(fit(problem, max_iter=31), fit(problem, max_iter=31))
    assert len(sent) - n_sent == 1, "the function differs, but not the data"


def test_progress_and_warnings_reach_the_user(client, problem):
    with parallel_config(backend="dask"), pytest.warns(ConvergenceWarning, match="diverged; training again") as shown:
        shares = []
        fit(problem, lambda share, loss: shares.append((share, loss)), learning_rate=1.0, optimizer="sgd", max_iter=5)
    assert {warning.category for warning in shown} == {ConvergenceWarning}
    assert any("member 0" in str(w.message) or "members 0" in str(w.message) for w in shown)
    assert np.isclose(sum(share for share, _ in shares), 1) and len(shares) >= 4


def test_what_workers_have_trained_is_kept_in_a_checkpoint(client, problem, expected, tmp_path, monkeypatch):
    with checkpoints.using(tmp_path):
        with parallel_config(backend="dask"):
            assert same(fit(problem), expected)
        assert len(list(tmp_path.iterdir())) == 4, "one file for each block"
        monkeypatch.setattr(first_order, "_run_steps", None)  # nothing is trained again
        assert same(fit(problem), expected)


@pytest.mark.parametrize("n_killed", [2, 1])
def test_workers_that_die_cost_nothing_but_time(client, problem, expected, n_killed):
    """If both die, no worker has the data any more, and they are sent again.

    This is the last test, so that nobody waits for the process that replaces the last one killed.
    """
    shares = []

    def kill(share, loss):
        if not shares:
            for process in list(client.run(os.getpid).values())[:n_killed]:
                os.kill(process, signal.SIGKILL)
        shares.append(share)

    with parallel_config(backend="dask"):
        assert same(fit(problem, kill), expected)
    assert np.isclose(sum(shares), 1)
    if n_killed == 2:
        client.wait_for_workers(2)
