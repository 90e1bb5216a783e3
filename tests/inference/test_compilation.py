"""The number of programs is bounded, the cache on disk is private, and its damaged entries are replaced."""

import os
import subprocess
import sys
import threading
import zlib
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV

from anchored import AnchoredRegressor
from anchored.inference import compilation, compilation_cache
from anchored.inference.compilation import jit
from anchored.inference.solvers import first_order

n_maps = compilation._n_maps  # `conftest.py` replaces it in all other tests


@pytest.fixture
def no_programs(monkeypatch):
    """An empty set of programs, which replaces the one that other tests share."""
    programs = compilation._Programs()
    monkeypatch.setattr(compilation, "_programs", programs)
    return programs


@pytest.fixture
def cache_folder(tmp_path, monkeypatch):
    """The folder of the cache on disk, which does not exist yet."""
    monkeypatch.setenv("ANCHORED_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_pytrees_are_arguments_and_results(no_programs):
    @jit
    def scaled(tree, factor):
        return {name: factor * leaf for name, leaf in tree.items()}

    found = scaled({"a": np.arange(3.0), "b": np.ones((2, 2))}, 2.0)
    assert np.array_equal(found["a"], [0, 2, 4]) and found["b"].shape == (2, 2)


def test_calls_with_equal_shapes_and_static_arguments_share_a_program(no_programs):
    n_traces = []

    def counted(power, x):
        n_traces.append(power)
        return x**power

    raised = jit(counted, static_argnums=(0,))
    for _ in range(3):
        raised(2, np.arange(3.0))
    raised(3, np.arange(3.0))
    raised(2, np.arange(4.0))
    assert n_traces == [2, 3, 2] and raised.n_created == 3


def test_xla_knows_the_option_of_graphs_and_the_user_may_choose_it(no_programs, monkeypatch):
    assert compilation._options_of_graphs() == {}  # on a CPU
    monkeypatch.setattr(compilation.jax, "default_backend", lambda: "gpu")
    assert list(compilation._options_of_graphs()["compiler_options"]) == [compilation.GRAPHS_OPTION]
    # XLA refuses an option that it does not know
    counted = jit(lambda n: jnp.arange(n.shape[0]) + n, in_graphs=lambda n: True)
    np.testing.assert_array_equal(counted(jnp.ones(3)), [1, 2, 3])
    monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_enable_command_buffer=")
    assert compilation._options_of_graphs() == {}


def test_the_least_recently_used_programs_are_removed(no_programs, monkeypatch):
    monkeypatch.setattr(compilation, "MAX_PROGRAMS", 8)
    monkeypatch.setattr(compilation, "MIN_PROGRAMS", 2)
    doubled = jit(lambda x: 2 * x)
    for n in range(1, 12):
        assert np.all(doubled(np.ones(n)) == 2)
        doubled(np.ones(1))  # always the most recently used
        assert len(no_programs._by_key) <= 8
    kept = {key[3][0][0] for key in no_programs._by_key}
    assert (1,) in kept and (11,) in kept and (2,) not in kept


def test_after_many_removals_all_programs_are_removed(no_programs, monkeypatch):
    """JAX's caches are cleared too; but not in this process, where all tests after this one would compile again."""
    for name, value in (("MAX_PROGRAMS", 4), ("MIN_PROGRAMS", 2), ("CLEAR_AFTER", 4)):
        monkeypatch.setattr(compilation, name, value)
    doubled, n_held, n_held_when_cleared = jit(lambda x: 2 * x), [], []
    monkeypatch.setattr(compilation.jax, "clear_caches", lambda: n_held_when_cleared.append(list(n_held)))
    for n in range(1, 10):
        assert np.all(doubled(np.ones(n)) == 2)
        n_held.append(len(no_programs._by_key))
    assert n_held == [1, 2, 3, 4, 3, 4, 1, 2, 3]  # two are removed before the fifth, all before the seventh
    assert n_held_when_cleared == [[1, 2, 3, 4, 3, 4]]


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="the system has no /proc")
def test_memory_maps_of_removed_programs_are_freed(no_programs, monkeypatch):
    monkeypatch.setattr(compilation, "MIN_PROGRAMS", 2)
    monkeypatch.setattr(compilation, "MAX_MAPS", 60)
    monkeypatch.setattr(compilation, "_n_maps", n_maps)
    before = n_maps()
    sorted_waves = jit(lambda x: jnp.sort(jnp.tanh(x[:, None] * x)).sum())
    most = 0
    for n in range(2, 14):
        sorted_waves(np.linspace(0, 1, n))
        most = max(most, n_maps())
    assert most < before + 2 * 60
    assert len(no_programs._by_key) < 12


def test_clear_cache_removes_the_programs_of_a_function(no_programs):
    factor = [2]
    scaled = jit(lambda x: factor[0] * x)
    assert scaled(np.ones(2)).sum() == 4
    factor[0] = 3
    assert scaled(np.ones(2)).sum() == 4, "the program contains the old value"
    scaled.clear_cache()
    assert scaled(np.ones(2)).sum() == 6


def test_a_program_is_compiled_only_once_by_several_threads(no_programs):
    n_traces = []

    @jit
    def slow(x):
        n_traces.append(threading.get_ident())
        return jnp.cumsum(x)

    threads = [threading.Thread(target=slow, args=(np.ones(5),)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(n_traces) == 1


def test_several_threads_compile_at_the_same_time(no_programs):
    both_trace, found = threading.Barrier(2), {}

    def waiting(x):
        both_trace.wait(timeout=30)
        return jnp.cumsum(x)

    def call(n):
        found[n] = jit(waiting)(np.ones(n))

    before = compilation.jax.config.jax_raise_persistent_cache_errors
    threads = [threading.Thread(target=call, args=(n,)) for n in (3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {n: sums[-1] for n, sums in found.items()} == {3: 3, 4: 4}
    assert compilation.jax.config.jax_raise_persistent_cache_errors == before


def test_nothing_is_cleared_while_a_program_is_compiled():
    compiling, done = compilation._Compiling(), []
    with compiling:
        with compiling:
            pass
        compiling.if_none(lambda: done.append("while compiling"))
    compiling.if_none(lambda: done.append("afterwards"))
    assert done == ["afterwards"]


def test_a_new_folder_is_private(cache_folder):
    assert compilation_cache._own_folder() == cache_folder
    assert cache_folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_others_may_write_to_is_not_used(cache_folder):
    cache_folder.mkdir()
    cache_folder.chmod(0o777)
    with pytest.warns(UserWarning, match=r"is writable by other users.*ANCHORED_CACHE"):
        assert compilation_cache._own_folder() is None
    assert cache_folder.stat().st_mode & 0o777 == 0o777, "a folder named by the user keeps its permissions"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_not_used(cache_folder):
    cache_folder.mkdir(mode=0o700)
    os.chown(cache_folder, 12345, 12345)
    with pytest.warns(UserWarning, match="belongs to another user"):
        assert compilation_cache._own_folder() is None


def test_the_default_folder_is_made_private(tmp_path, monkeypatch):
    monkeypatch.delenv("ANCHORED_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "anchored").mkdir(mode=0o755)
    assert compilation_cache._own_folder() == tmp_path / "anchored"
    assert (tmp_path / "anchored").stat().st_mode & 0o777 == 0o700


def entry(folder, name, content=b"x" * 100):
    """Write a file that is named like JAX's entry of the function `name`, and return its path."""
    path = folder / f"jit_{name}-{'0' * 64}-cache"
    path.write_bytes(content)
    return path


def test_the_least_recently_used_entries_are_removed(tmp_path):
    for age in range(5):
        os.utime(entry(tmp_path, f"f{age}"), (1e9 - age, 1e9 - age))
    (tmp_path / "my-cache").write_bytes(b"not an entry" * 100)
    (tmp_path / "dir-cache").mkdir()
    compilation_cache._remove_oldest(tmp_path, 250)
    kept = [entry(tmp_path, f"f{age}").name for age in range(2)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dir-cache", *kept, "my-cache"]


def test_damaged_entries_are_replaced(tmp_path):
    """One entry is truncated, and one is not a program. JAX reads its settings only once in a process."""
    environment = os.environ | {"ANCHORED_CACHE": str(tmp_path)}
    program = (
        "import numpy as np; from anchored.inference import compilation_cache; compilation_cache.MIN_SECONDS = 0;"
        "from anchored.inference.compilation import jit\n"
        "def f(x): return (2 * x).sum()\n"
        "def g(x): return (3 * x).sum()\n"
        "print(float(jit(f)(np.ones(3))), float(jit(g)(np.ones(3))))"
    )

    def run() -> dict[str, int]:
        done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
        assert (done.returncode, done.stdout, done.stderr) == (0, "6.0 9.0\n", "")
        return {path.name: path.stat().st_size for path in tmp_path.glob("jit_[fg]-*-cache")}

    sizes = run()
    assert len(sizes) == 2
    truncated, other = sorted(tmp_path.glob("jit_[fg]-*-cache"))
    truncated.write_bytes(truncated.read_bytes()[:-20])
    other.write_bytes(zlib.compress(b"1234 not a program"))
    for path in (truncated, other):
        os.utime(path, (1e9, 1e9))
    new_sizes = run()
    assert new_sizes.keys() == sizes.keys()
    assert all(abs(new_sizes[name] - sizes[name]) < 20 for name in sizes), "both entries are complete again"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_fork_of_a_process_that_used_jax_is_refused():
    program = (
        "import multiprocessing, warnings; warnings.simplefilter('ignore'); import numpy as np\n"
        "from anchored import AnchoredRegressor\n"
        "from anchored.inference.compilation import jit\n"
        "jit(lambda x: 2 * x)(np.ones(2))\n"
        "def fit(_):\n"
        "    try: AnchoredRegressor(max_iter=1).fit(np.eye(5), np.arange(5))\n"
        "    except RuntimeError as error: return str(error)\n"
        "with multiprocessing.get_context('fork').Pool(1) as pool: print(pool.map(fit, [0])[0])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert 'parallel_config(backend="loky")' in done.stdout, done.stderr


def test_grid_search_traces_the_training_program_twice(monkeypatch):
    """Learning rate, noise and prior scale are traced, and folds of nearly equal size share a program."""
    traces = []
    batch = first_order._batch
    monkeypatch.setattr(first_order, "_batch", lambda *a: (traces.append(1), batch(*a))[1])
    rng = np.random.default_rng(0)
    X = rng.normal(size=(126, 9))  # no other test has this number of columns, so that nothing is compiled yet
    y = X[:, 0] + 0.1 * rng.normal(size=126)
    grid = {"learning_rate_init": [0.01, 0.03], "noise_variance": [0.01, 0.1], "prior_scale": [1.0, 2.0]}
    model = AnchoredRegressor(n_estimators=2, hidden_layer_sizes=(50,), max_iter=3, batch_size=8, random_state=0)
    search = GridSearchCV(model, grid, cv=5).fit(X, y)
    assert search.best_score_ > 0.5
    assert len(traces) <= 2
