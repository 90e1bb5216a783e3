"""Fixtures that all tests share, and compiler options that make the tests faster."""

import gc
import os
import tempfile
from contextlib import contextmanager
from importlib.metadata import version

import pytest

os.environ.setdefault("MPLBACKEND", "Agg")
# Matrices are small, so that OpenBLAS's threads, which wait actively for each other, would take most of the time of
# closed forms. OpenBLAS reads this when it is loaded, above all in pytest's workers and in processes that tests start.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Test processes and their workers share a temporary cache of compiled programs. The user's cache is not touched.
os.environ.setdefault("ANCHORED_CACHE", tempfile.mkdtemp(prefix="anchored-cache-"))
# Most of the time of a test is compilation. With these options of XLA, a fit compiles three times as fast, and runs
# nearly as fast. Tests with the fixture `optimised` compile as for users. JAX reads the options when it compiles its
# first program, and ends the process if it does not know one.
COMPILER_OPTIONS = {  # option -> (value in tests, value for users)
    "xla_backend_optimization_level": (1, 3),
    "xla_cpu_enable_concurrency_optimized_scheduler": (False, True),
    "xla_cpu_parallel_codegen_split_count": (1, 32),
}
if version("jaxlib") < "0.11":
    COMPILER_OPTIONS["xla_cpu_use_fusion_emitters"] = (False, True)
os.environ.setdefault(
    "XLA_FLAGS", " ".join(f"--{name}={value}".lower() for name, (value, _) in COMPILER_OPTIONS.items())
)


@pytest.fixture(scope="session", autouse=True)
def programs_are_kept():
    """Keep more compiled programs than a user's process does, since hundreds of tests share them."""
    import jax

    from anchored.inference import compilation

    jax.jit(lambda x: x + 1)(1.0)  # JAX reads XLA_FLAGS now, before a test changes it
    gc.freeze()  # imported modules are never freed, so the garbage collector need not visit them
    gc.set_threshold(50_000, 20, 50)  # programs consist of many objects that are kept, so collections are rarer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compilation, "MAX_PROGRAMS", 300)
        patch.setattr(compilation, "_n_maps", lambda: 0)  # counting the maps of so many programs takes long
        yield


@pytest.fixture(scope="session", autouse=True)
def training_is_short():
    """If `max_iter` is "auto", train for a quarter of the steps. Most tests do not check how well a model predicts."""
    from anchored.estimators import settings

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settings, "N_STEPS", settings.N_STEPS // 4)
        patch.setattr(settings, "MAX_EPOCHS", settings.MAX_EPOCHS // 4)
        yield


@pytest.fixture
def trained_as_for_users(monkeypatch):
    """If `max_iter` is "auto", train for as many steps as for users."""
    from anchored.estimators import settings

    monkeypatch.setattr(settings, "N_STEPS", settings.N_STEPS * 4)
    monkeypatch.setattr(settings, "MAX_EPOCHS", settings.MAX_EPOCHS * 4)


@pytest.fixture(scope="module")
def optimised():
    """Compile as for users, also in workers. Needed by tests that compare bits, which depend on the compiler."""
    import jax

    from anchored.inference import compilation

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XLA_FLAGS", "")
        patch.setattr(jax, "jit", _jit_with({name: value for name, (_, value) in COMPILER_OPTIONS.items()}))
        patch.setattr(compilation, "_programs", compilation._Programs())
        yield


@pytest.fixture(scope="module")
def unoptimised():
    """Compile twice as fast to slower programs. For tests that train at many shapes, but only for a few epochs."""
    with compiling(disable_most_optimizations=True):
        yield


@pytest.fixture
def compiled_as_for_users():
    """Compile with full optimisation in a module that uses `unoptimised`."""
    with compiling(disable_most_optimizations=False):
        yield


@contextmanager
def compiling(disable_most_optimizations):
    """Set JAX's option of this name within the block, also in processes that are started there.

    Programs that were compiled before are not used within the block.
    """
    import jax

    from anchored.inference import compilation

    flag = "jax_disable_most_optimizations"
    before = jax.config.values[flag]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compilation, "_programs", compilation._Programs())
        patch.setenv(flag.upper(), str(disable_most_optimizations))
        jax.config.update(flag, disable_most_optimizations)
        try:
            yield
        finally:
            jax.config.update(flag, before)


def _jit_with(options):
    """Return a version of `jax.jit` with these compiler options.

    JAX does not accept compiler options for a function that is called while another function is traced, since both
    become one program. Such calls are made without the options.
    """
    import jax

    jit = jax.jit

    def jit_with_options(function, **settings):
        without_options, with_options = jit(function, **settings), jit(function, compiler_options=options, **settings)

        def call(*arguments):
            is_traced = any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(arguments))
            return (without_options if is_traced else with_options)(*arguments)

        return call

    return jit_with_options


collect_ignore_glob = ["*/conftest.py"]  # they contain no doctests, and pytest refuses two modules of the same name


@pytest.fixture
def double():
    """Run a test in float64."""
    import jax

    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="session")
def waves():
    """Sixty rows of X and y: y is a sine of the first column with noise, and does not depend on the second."""
    import numpy as np

    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(60, 2))
    return X, np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=60)
