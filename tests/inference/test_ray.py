"""Ray's workers train the same members, by joblib's backend for Ray.

The tests run where Ray is installed, and `make test-ray` installs it.
"""

import jax
import numpy as np
import pytest
from joblib import parallel_config

from anchored import AnchoredRegressor

ray = pytest.importorskip("ray")


@pytest.mark.filterwarnings("ignore")  # of Ray itself
def test_ray_trains_the_same_members():
    from ray.util.joblib import register_ray

    rng = np.random.default_rng(0)
    X = rng.normal(size=(70, 4))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=70)
    model = AnchoredRegressor(10, (20,), noise_variance=0.01, prior_scale=2.0, max_iter=12, random_state=3)
    here = jax.tree.leaves(model.fit(X, y).posterior_.members)
    register_ray()
    ray.init(num_cpus=2, include_dashboard=False)
    try:
        with parallel_config(backend="ray"):
            there = jax.tree.leaves(model.set_params(n_jobs=2).fit(X, y).posterior_.members)
    finally:
        ray.shutdown()
    assert all(np.array_equal(a, b) for a, b in zip(here, there, strict=True)) and len(here[0]) == 10
