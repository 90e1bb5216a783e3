import os
import tempfile

os.environ.setdefault("MPLBACKEND", "Agg")
# Programs compiled by one test process serve its workers too, and nobody's own cache is touched.
os.environ.setdefault("ANCHORED_CACHE", tempfile.mkdtemp(prefix="anchored-cache-"))
# Most of a test's time is compiling: XLA's optimiser is off, but for tests that take the fixture `optimised`.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")

import numpy as np
import pytest


@pytest.fixture(scope="session", autouse=True)
def programs_are_kept():
    """Hold more programs than a user's process does: hundreds of tests share them."""
    from anchored.inference import compilation

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compilation, "MOST_PROGRAMS", 400)
        patch.setattr(compilation, "MOST_MAPS", 40_000)  # Linux allows 65,530
        yield


@pytest.fixture(scope="module")
def optimised():
    """Compile as for users, here and in workers: what holds bit for bit must hold for optimised programs."""
    import jax
    from joblib.externals.loky import get_reusable_executor

    from anchored.inference import compilation

    flag = "jax_disable_most_optimizations"
    before = jax.config.values[flag]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(flag.upper(), "0")
        patch.setattr(compilation, "_programs", compilation._Programs())
        get_reusable_executor().shutdown()  # workers keep the environment they were started with
        jax.config.update(flag, False)
        yield
        jax.config.update(flag, before)
        get_reusable_executor().shutdown()


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
