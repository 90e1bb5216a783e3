"""Workers train the same members as this process, and those that would not are refused."""

import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from joblib import parallel_config
from joblib.parallel import MultiprocessingBackend
from sklearn.base import clone

from anchored import AnchoredClassifier, AnchoredRegressor
from anchored.inference import workers
from anchored.methods import AnchoredEnsemble, EarlyStoppedEnsemble, FirstOrder, GaussNewton, RandomizedPrior
from anchored.model.bayesian_model import BayesianModel
from anchored.model.layered_prior import default_layer_scales, layered_prior
from anchored.model.likelihoods import Gaussian
from anchored.model.networks import MLP
from anchored.types import Data

pytestmark = pytest.mark.usefixtures("unoptimised")
FIXED = {"noise_variance": 0.01, "prior_scale": 2.0, "input_encoding": "standard", "max_iter": 3, "random_state": 0}


def fit(waves, **arguments):
    """Fit a regressor with these further arguments."""
    return AnchoredRegressor(n_estimators=10, **FIXED, **arguments).fit(*waves)


@pytest.mark.parametrize(
    ("name", "there", "remedy"),
    [
        ("anchored", "0.1.0 (source 0)", f"pip install anchored=={workers.__version__}"),
        ("jaxlib", "0.0.1", "pip install jaxlib=="),
        ("jax_platforms", "tpu", "JAX_PLATFORMS=cpu"),
        ("XLA_FLAGS", "--fast", "without XLA_FLAGS"),
    ],
)
def test_a_task_checks_the_worker_that_runs_it(waves, monkeypatch, name, there, remedy):
    """This matters for a worker that joins after the others have been checked."""
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    sent = workers.own_fingerprint()
    monkeypatch.setattr(workers, "fingerprint", lambda libraries: {**sent, name: there})
    monkeypatch.setattr(workers, "own_fingerprint", lambda: sent)
    with parallel_config(backend="threading"), pytest.raises(RuntimeError) as refused:
        fit(waves, n_jobs=2)
    here = sent[name] or "not set"
    assert f":{os.getpid()} would train different members: {name} is {there} there and {here} here" in str(
        refused.value
    )
    assert remedy in str(refused.value)


@pytest.mark.parametrize("kind", ["regressor", "classifier", "last_layer", "double"])
def test_processes_train_the_same_members(waves, kind):
    """Members are equal bit for bit. `test_purity.py` tests a cluster, with programs optimised as for users."""
    X, y = waves
    settings = {"n_estimators": 10, "prior_scale": 2.0, "max_iter": 12, "batch_size": 16, "random_state": 3}
    settings["input_encoding"] = "standard"
    if kind == "classifier":
        estimator, y = AnchoredClassifier(**settings, temperature=0.3), (y > 0).astype(int)
    else:
        trainable = "last_layer" if kind == "last_layer" else "all"
        estimator = AnchoredRegressor(**settings, noise_variance=0.01, trainable=trainable)
    with jax.enable_x64(kind == "double"):
        in_one_process = estimator.fit(X, y)
        in_two_processes = clone(estimator).set_params(n_jobs=2).fit(X, y)
    one, other = (jax.tree.leaves(model.posterior_.members) for model in (in_one_process, in_two_processes))
    assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    assert one[0].dtype == (np.float64 if kind == "double" else np.float32) and len(one[0]) == 10


@pytest.mark.parametrize(
    "method",
    [
        AnchoredEnsemble(7, "randomized", solver=GaussNewton()),
        AnchoredEnsemble(7, "randomized", solver=GaussNewton(), tangent_correction=True),
        RandomizedPrior(7, solver=FirstOrder(max_iter=12)),
        EarlyStoppedEnsemble(7, solver=FirstOrder("sgd", 0.05, max_iter=50, batch_size=16, decay=False)),
    ],
    ids=["Gauss-Newton", "corrected", "randomized prior", "early stopped"],
)
def test_processes_train_the_same_members_of_other_methods(waves, method):
    X, y = (np.asarray(column, np.float32) for column in waves)
    network = MLP((6,), 1, "tanh")
    prior = layered_prior(network, network.init(None, X), default_layer_scales(network, 2.0))
    model = BayesianModel(network, prior, Gaussian(np.array([0.05], np.float32)))
    data, shares = Data(X, y[:, None], np.ones((len(X), 1), np.float32)), []
    in_one_process = method.fit(jax.random.key(0), model, data)
    in_two_processes = replace(method, n_jobs=2).fit(
        jax.random.key(0), model, data, lambda share, loss: shares.append(share)
    )
    assert np.isclose(sum(shares), 1)
    one, other = (jax.tree.leaves(posterior.members) for posterior in (in_one_process, in_two_processes))
    assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    assert in_one_process.n_members == 7 and in_one_process.record.training.n_epochs.min() > 0


def test_the_source_hash_changes_with_any_file(tmp_path):
    package = Path(workers.__file__).parent.parent
    copy = shutil.copytree(package, tmp_path / "anchored", ignore=shutil.ignore_patterns("__pycache__"))
    assert workers._source_hash(copy) == workers.SOURCE_HASH
    (copy / "trees.py").write_text((copy / "trees.py").read_text() + "\n")
    assert workers._source_hash(copy) != workers.SOURCE_HASH


def test_multiprocessing_with_forks_is_refused(waves, monkeypatch):
    monkeypatch.setattr(workers.multiprocessing, "get_start_method", lambda allow_none=False: "fork")
    with parallel_config(backend="multiprocessing"):
        with pytest.raises(ValueError, match='backend="loky"'):
            fit(waves, n_jobs=2)
        workers.check(1)  # nothing would be forked


def test_subclasses_of_the_multiprocessing_backend_are_accepted():
    class Ray(MultiprocessingBackend):
        pass

    with parallel_config(backend=Ray()):
        workers.check(2)


@pytest.fixture(scope="module")
def cluster():
    """A Dask cluster without workers."""
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=0, dashboard_address=":0") as cluster, distributed.Client(cluster):
        yield cluster


@contextmanager
def wrong_workers(cluster, tmp_path):
    """Start workers for which the import of anchored goes wrong, and yield their addresses by name.

    "other" has another version of JAX, "missing" has no package anchored, "stuck" hangs when it imports the package,
    and "dying" exits.
    """
    fingerprint = {**workers.own_fingerprint(), "jax": "0.0.1"}
    module = f"def fingerprint(libraries):\n    return {fingerprint}\n"
    packages = {
        "other": {"__init__.py": "", "inference/__init__.py": "", "inference/workers.py": module},
        "missing": {"__init__.py": "raise ImportError('no anchored here')\n"},
        "stuck": {"__init__.py": "import time\n\ntime.sleep(600)\n"},
        "dying": {"__init__.py": "import os\n\nos._exit(1)\n"},
    }
    started = []
    for name, files in packages.items():
        package = tmp_path / name / "anchored"
        for file, text in files.items():
            (package / file).parent.mkdir(parents=True, exist_ok=True)
            (package / file).write_text(text)
        options = ["--no-nanny", "--nthreads=1", "--no-dashboard", f"--name={name}"]
        command = [sys.executable, "-m", "distributed.cli.dask_worker", cluster.scheduler_address, *options]
        env = {**os.environ, "PYTHONPATH": str(package.parent)}
        started.append(subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL))
    try:
        client = cluster.get_client()
        client.wait_for_workers(len(packages), timeout=60)
        yield {worker["name"]: address for address, worker in client.scheduler_info()["workers"].items()}
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_a_cluster_without_workers_is_refused(cluster, waves):
    with parallel_config(backend="dask", wait_for_workers_timeout=2.5), pytest.raises(RuntimeError, match="no workers"):
        fit(waves)


def test_a_cluster_with_wrong_workers_is_refused(cluster, waves, tmp_path, monkeypatch):
    with wrong_workers(cluster, tmp_path) as addresses:
        monkeypatch.setattr(workers, "RESPONSE_TIMEOUT", 2.0)
        with parallel_config(backend="dask"), pytest.raises(RuntimeError) as refused:
            fit(waves)
        problems = dict(line.removeprefix("Worker ").split(" ", 1) for line in str(refused.value).splitlines())
        assert "jax is 0.0.1 there" in problems[addresses["other"]]
        assert "ImportError: no anchored here (install the same version on it" in problems[addresses["missing"]]
        assert "neither answered nor imported" in problems[addresses["stuck"]]
        assert addresses["dying"] not in problems  # it has left the cluster

        monkeypatch.setattr(workers, "_check_cluster", lambda *_: None)  # as if the worker had joined later
        with (
            parallel_config(backend="dask", workers=[addresses["missing"]]),
            pytest.raises(RuntimeError, match="cannot import anchored: no anchored here"),
        ):
            fit(waves)
