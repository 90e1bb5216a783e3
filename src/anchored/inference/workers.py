"""Run functions on joblib's workers, after a check that the workers would train the same members as this process.

A worker with another version of anchored or of JAX would train different members without any warning. A worker that
cannot import anchored would make joblib wait forever, since joblib's Dask backend drops the error of a task that cannot
be unpickled. Therefore all workers of a Dask cluster are checked first. Every task checks its worker again, since
workers may join later, and any Python that has joblib and NumPy can unpickle a task.
"""

import asyncio
import hashlib
import multiprocessing
import operator
import os
import pickle
import socket
import sys
import time
from collections.abc import Callable, Iterable
from functools import reduce
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, TypeVar

import jax
import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from joblib.parallel import MultiprocessingBackend, get_active_backend

from anchored import __version__
from anchored.errors import ClusterError
from anchored.inference import worker_warnings

try:
    import cloudpickle  # used by Dask; the user may have registered modules with it that are pickled by value
except ImportError:
    from joblib.externals import cloudpickle

if TYPE_CHECKING:
    from distributed import Client

# Libraries and settings that can change the bits of a member (on a CPU, JAX uses SciPy's LAPACK). A library is compared
# only if it has been imported.
LIBRARIES = ("jax", "jaxlib", "scipy", "optax", "flax", "equinox")
SETTINGS = ("jax_default_matmul_precision", "jax_threefry_partitionable")

RESPONSE_TIMEOUT = 5.0  # seconds without an answer or a new import, after which a worker is assumed to hang
POLL_INTERVAL = 0.5  # seconds between two checks of a worker that has not answered
MAX_WORKERS_NAMED = 3  # workers that one error message lists

Result = TypeVar("Result")
Fingerprint = dict[str, str]  # versions and settings by name


def _source_hash(package: Path) -> str:
    """Return a hash of all source files, since different checkouts may have the same version number."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:12]


SOURCE_HASH = _source_hash(Path(__file__).parent.parent)  # computed at import, before the files may change


def fingerprint(libraries: Iterable[str]) -> Fingerprint:
    """Return the versions and settings of this process that workers must share.

    `libraries` are the names of the packages to include.
    """
    return {
        "Python": f"{sys.version_info.major}.{sys.version_info.minor}",  # functions are sent as bytecode
        "anchored": f"{__version__} (source {SOURCE_HASH})",
        **{name: _version(name) for name in libraries},
        "jax_platforms": jax.default_backend(),
        **{name: str(getattr(jax.config, name)) for name in SETTINGS},
        "XLA_FLAGS": os.environ.get("XLA_FLAGS", ""),
    }


def _version(library: str) -> str:
    """Return the version of a library, or "missing"."""
    try:
        return import_module(library).__version__
    except ImportError:
        return "missing"


def check(n_jobs: int | None) -> None:
    """Raise an error if joblib's current workers cannot train the same members as this process.

    Workers of a Dask cluster are checked now. Other workers are checked when a task starts on them.

    Parameters
    ----------
    n_jobs : int or None
        Number of processes, as in joblib.
    """
    if n_jobs == 1:
        return
    backend, _ = get_active_backend()
    is_multiprocessing = type(backend) is MultiprocessingBackend  # Ray's backend is a subclass that does not fork
    if is_multiprocessing and effective_n_jobs(n_jobs) > 1:
        _check_start_method()
    if hasattr(backend, "client"):  # Dask's backend
        _check_cluster(backend.client, backend.wait_for_workers_timeout)


def run(function: Callable[..., Result], arguments: Iterable[tuple], n_jobs: int | None) -> list[Result]:
    """Call a function on joblib's workers.

    Parameters
    ----------
    function : callable
        The function to call.
    arguments : iterable of tuple
        Positional arguments of each call, which consist of plain values and arrays.
    n_jobs : int or None
        Number of processes, as in joblib.

    Returns
    -------
    list
        The results, in order.

    Raises
    ------
    ClusterError
        If a worker cannot import the package, or would train different members.
    """
    expected, pickled = own_fingerprint(), cloudpickle.dumps(function)
    tasks = (
        delayed(reduce)(*call_by_name(f"{__name__}:run_task", (expected, pickled, call_arguments)))
        for call_arguments in arguments
    )
    try:
        parts = Parallel(n_jobs=n_jobs)(tasks)
    except ImportError as error:
        raise cannot_import(error) from error
    for _, issued in parts:
        worker_warnings.show(issued, stacklevel=4)
    return [result for result, _ in parts]


def run_task(task: tuple[Fingerprint, bytes, tuple]) -> tuple[object, list[Warning]]:
    """Check the fingerprint of this worker, call the function of a task, and return its result and its warnings.

    `task` consists of the fingerprint of the sender, the pickled function and its positional arguments.
    """
    expected, pickled, arguments = task
    require_same(expected)
    with worker_warnings.collecting() as issued:
        result = unpickled(pickled)(*arguments)
    return result, issued


def require_same(expected: Fingerprint) -> None:
    """Raise a ClusterError if this worker would train other members than a process with the fingerprint `expected`."""
    difference = _difference(_name(), expected, fingerprint(_libraries(expected)))
    if difference:
        raise ClusterError(difference)


def unpickled(pickled: bytes, buffers: Iterable[np.ndarray] = ()) -> Any:
    """Return the object of a pickle and its out-of-band `buffers`; the error names a package that is missing here."""
    try:
        return pickle.loads(pickled, buffers=buffers)
    except (ImportError, AttributeError) as error:
        raise ClusterError(
            f"Worker {_name()} cannot import the network to train: {error}. Install the missing package on it."
        ) from error


def cannot_import(error: ImportError) -> ClusterError:
    """Return the error to raise if a worker could not import anchored, because of `error`."""
    return ClusterError(f"A worker cannot import anchored: {error} ({_remedy('anchored')}).")


def _name() -> str:
    """Return the name of this worker in messages."""
    return f"{socket.gethostname()}:{os.getpid()}"


def call_by_name(function: str, argument: object) -> tuple:
    """Return arguments for `reduce` with which it calls a function of the package with `argument`.

    `function` is its name, as "module:name". reduce(operator.call, (name, argument), resolve_name) is
    resolve_name(name)(argument). All three functions are in the standard library, so that a worker can unpickle a task
    without anchored, which is imported only when the task runs.
    """
    return operator.call, (function, argument), resolve_name


def own_fingerprint() -> Fingerprint:
    """Return the fingerprint of this process, with all libraries that it has imported."""
    return fingerprint(name for name in LIBRARIES if name in sys.modules)


def _libraries(expected: Fingerprint) -> tuple[str, ...]:
    """Return the names of the libraries in a fingerprint."""
    return tuple(name for name in LIBRARIES if name in expected)


def _difference(worker: str, expected: Fingerprint, found: Fingerprint) -> str | None:
    """Return an error message with remedies if `worker` would train different members, otherwise None."""
    differences = [
        f"{name} is {found.get(name) or 'not set'} there and {here or 'not set'} here ({_remedy(name, here)})"
        for name, here in expected.items()
        if found.get(name) != here
    ]
    return f"Worker {worker} would train different members: {'; '.join(differences)}." if differences else None


def _remedy(name: str, value: str = "") -> str:
    """Return what to do so that the entry `name` of a worker's fingerprint has this process's `value`."""
    if name == "Python":
        return f"start it with Python {value}"
    if name == "anchored":
        return f"install the same version on it and restart it: pip install anchored=={__version__}, or this checkout"
    if name in LIBRARIES:
        return f"install the same version on it and restart it: pip install {name}=={value}"
    setting = f"without {name.upper()}" if value in ("", "None") else f"with {name.upper()}={value}"
    return f"start it {setting} in its environment"


def _check_start_method() -> None:
    """Raise a ValueError if joblib's backend "multiprocessing" would fork this process."""
    default = multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]
    if (os.environ.get("JOBLIB_START_METHOD", "").strip() or default) == "fork":
        raise ValueError(
            'joblib\'s backend "multiprocessing" forks this process, and JAX hangs in a fork. Use '
            'parallel_config(backend="loky"), which is joblib\'s default, or "dask" for a cluster.'
        )


def _check_cluster(client: "Client", joblib_timeout: float | None) -> None:
    """Raise a ClusterError unless every worker of a Dask cluster would train the same members as this process.

    `joblib_timeout` is the number of seconds that joblib waits for the first worker.
    """
    if not client.nthreads():
        _wait_for_worker(client, max(0.0, (joblib_timeout or 0.0) - 2))  # fail 2 seconds before joblib does
    expected = own_fingerprint()
    problems = []
    for address, answer in _fingerprints(client, list(client.nthreads()), _libraries(expected)).items():
        if answer is None or address not in client.nthreads():
            continue  # it has left the cluster
        if isinstance(answer, dict):
            problem = _difference(address, expected, answer)
        else:
            problem = f"Worker {address} cannot train members: {answer}."
        if problem:
            problems.append(problem)
    if problems:
        n_more = len(problems) - MAX_WORKERS_NAMED
        ending = f"\n… and {n_more} more" if n_more > 0 else ""
        raise ClusterError("\n".join(problems[:MAX_WORKERS_NAMED]) + ending)


def _wait_for_worker(client: "Client", timeout: float) -> None:
    """Submit a task, so that an adaptive cluster starts a worker, and wait for its result for `timeout` seconds."""
    try:
        client.submit(os.getpid, pure=False).result(timeout=timeout)
    except TimeoutError as error:
        address = client.scheduler.address  # type: ignore[union-attr]  # set while the client is connected
        raise ClusterError(
            f"The Dask cluster at {address} has no workers, and none joined within {timeout:.0f} "
            f"seconds. Start workers (dask worker {address}), or wait longer for them: "
            'parallel_config(backend="dask", wait_for_workers_timeout=60).'
        ) from error


def _fingerprints(
    client: "Client", addresses: list[str], libraries: tuple[str, ...]
) -> dict[str, Fingerprint | str | None]:
    """Return for each address the result of `_fingerprint_of`, asking all workers at once."""

    async def gather() -> list[Fingerprint | str | None]:
        return await asyncio.gather(*(_fingerprint_of(client, address, libraries) for address in addresses))

    return dict(zip(addresses, client.sync(gather), strict=True))


async def _fingerprint_of(client: "Client", address: str, libraries: tuple[str, ...]) -> Fingerprint | str | None:
    """Return the fingerprint of a worker, an error message, or None if the worker has left the cluster.

    The fingerprint is computed in a thread of the worker. Meanwhile, its event loop can answer how many modules have
    been imported. If the number grows, the worker is slow; otherwise it hangs.
    """
    from distributed.comm import CommClosedError

    call = (asyncio.to_thread, reduce, *call_by_name(f"{__name__}:fingerprint", libraries))
    request = asyncio.ensure_future(client.run(*call, workers=[address], on_error="return"))
    n_modules, last_import = 0, time.monotonic()
    while time.monotonic() - last_import < RESPONSE_TIMEOUT:
        await asyncio.wait([request], timeout=POLL_INTERVAL)
        if request.done():
            answer = request.result()[address]
            if isinstance(answer, CommClosedError):
                return None
            remedy = f" ({_remedy('anchored')})" if isinstance(answer, ImportError | AttributeError) else ""
            return answer if isinstance(answer, dict) else f"{type(answer).__name__}: {answer}{remedy}"
        n_before, n_modules = n_modules, await _n_modules(client, address, n_modules)
        if n_modules != n_before:
            last_import = time.monotonic()
    request.cancel()
    return (
        f"for {RESPONSE_TIMEOUT:.0f} seconds it has neither answered nor imported another module (see its log, and "
        "restart it; if it is only slow, fit again)"
    )


async def _n_modules(client: "Client", address: str, n_before: int) -> int:
    """Return the number of modules that a worker has imported, or `n_before` if it does not answer."""
    try:
        count = client.run(eval, "len(__import__('sys').modules)", workers=[address])
        return (await asyncio.wait_for(count, POLL_INTERVAL))[address]
    except Exception:
        return n_before
