import gc
import os
import tempfile
from contextlib import contextmanager
from importlib.metadata import version

import numpy as np
import pytest

os.environ.setdefault("MPLBACKEND", "Agg")
# Programs compiled by one test process serve its workers too, and nobody's own cache is touched.
os.environ.setdefault("ANCHORED_CACHE", tempfile.mkdtemp(prefix="anchored-cache-"))
# Most of a test's time is compiling. With these options of XLA a fit compiles three times as fast, and runs nearly as
# fast. Tests with the fixture `optimised` compile as users do. JAX reads the options with its first program, and ends
# the process if it does not know one.
COMPILER = {
    "xla_backend_optimization_level": (1, 3),  # (in tests, for users)
    "xla_cpu_enable_concurrency_optimized_scheduler": (False, True),
    "xla_cpu_parallel_codegen_split_count": (1, 32),
}
if version("jaxlib") < "0.11":
    COMPILER["xla_cpu_use_fusion_emitters"] = (False, True)
os.environ.setdefault("XLA_FLAGS", " ".join(f"--{name}={here}".lower() for name, (here, _) in COMPILER.items()))


@pytest.fixture(scope="session", autouse=True)
def programs_are_kept():
    """Hold more programs than a user's process does: hundreds of tests share them."""
    import jax

    from anchored.inference import compilation

    jax.jit(lambda x: x + 1)(1.0)  # JAX reads XLA_FLAGS now, before a test changes them
    gc.freeze()  # what was imported stays, and need not be looked at in every collection
    gc.set_threshold(50_000, 20, 50)  # programs are many objects that stay

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compilation, "MAX_PROGRAMS", 300)
        patch.setattr(compilation, "_n_maps", lambda: 0)  # with so many, counting takes longer than some compilations
        yield


@pytest.fixture(scope="session", autouse=True)
def training_is_short():
    """Train for a quarter of the steps where `max_iter` is "auto": most tests do not ask how well a model predicts."""
    from anchored.estimators import settings

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settings, "N_STEPS", settings.N_STEPS // 4)
        patch.setattr(settings, "MAX_EPOCHS", settings.MAX_EPOCHS // 4)
        yield


@pytest.fixture
def trained_as_for_users(monkeypatch):
    """Train for as many steps as users do where `max_iter` is "auto"."""
    from anchored.estimators import settings

    monkeypatch.setattr(settings, "N_STEPS", settings.N_STEPS * 4)
    monkeypatch.setattr(settings, "MAX_EPOCHS", settings.MAX_EPOCHS * 4)


@pytest.fixture(scope="module")
def optimised():
    """Compile as for users, also in workers started from here: what holds bit for bit must hold for their programs."""
    import jax

    from anchored.inference import compilation

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XLA_FLAGS", "")
        patch.setattr(jax, "jit", _jit_with({name: value for name, (_, value) in COMPILER.items()}))
        patch.setattr(compilation, "_programs", compilation._Programs())
        yield


@pytest.fixture(scope="module")
def unoptimised():
    """Compile in half the time what then runs slowly: for tests of a contract, at many shapes and for a few epochs."""
    with compiling(disable_most_optimizations=True):
        yield


@pytest.fixture
def compiled_as_for_users():
    """Compile with full optimisation in a module that does without it."""
    with compiling(disable_most_optimizations=False):
        yield


@contextmanager
def compiling(disable_most_optimizations):
    """Compile in this way, apart from programs that were compiled in another."""
    import jax

    from anchored.inference import compilation

    flag = "jax_disable_most_optimizations"
    before = jax.config.values[flag]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compilation, "_programs", compilation._Programs())
        jax.config.update(flag, disable_most_optimizations)
        try:
            yield
        finally:
            jax.config.update(flag, before)


def _jit_with(options):
    """`jax.jit` with options of the compiler, which it takes for programs that are not part of others."""
    import jax

    jit = jax.jit

    def compiled(function, **settings):
        part, program = jit(function, **settings), jit(function, compiler_options=options, **settings)

        def call(*arguments):
            is_part = any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(arguments))
            return (part if is_part else program)(*arguments)

        return call

    return compiled


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
