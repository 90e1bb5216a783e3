import os
import tempfile

os.environ.setdefault("MPLBACKEND", "Agg")
# Programs compiled by one test process serve its workers too, and nobody's own cache is touched.
os.environ.setdefault("ANCHORED_CACHE", tempfile.mkdtemp(prefix="anchored-cache-"))

import numpy as np
import pytest

collect_ignore_glob = ["*/conftest.py"]  # no doctests in them, and modules of one name cannot be collected


@pytest.fixture
def double():
    """Run a test in float64."""
    import jax

    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="session")
def waves():
    """Sixty rows of a noisy wave in two columns, one of them idle."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(60, 2))
    return X, np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=60)
