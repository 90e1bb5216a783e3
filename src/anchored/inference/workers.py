"""Whether joblib's workers would train the same members as this process: asked before work is sent to them.

A worker with another version of the package, or of JAX, would train other members in silence. One that cannot import
the package would leave joblib waiting for ever: its Dask backend drops the error of a task that cannot be unpickled.
So all workers of a Dask cluster are asked first, every task asks again where it runs (workers may join later), and
what is sent can be unpickled by any Python with joblib and NumPy.
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
from joblib import Parallel, delayed, effective_n_jobs
from joblib.parallel import MultiprocessingBackend, get_active_backend

from anchored import __version__

try:
    import cloudpickle  # Dask's: it knows which modules the user wants sent by value
except ImportError:
    from joblib.externals import cloudpickle

if TYPE_CHECKING:
    from distributed import Client

# What a member's bits depend on besides its seed, data and configuration. JAX factorises with SciPy's LAPACK on a CPU;
# Flax and Equinox count where they are in use.
LIBRARIES = ("jax", "jaxlib", "scipy", "optax", "flax", "equinox")
SETTINGS = ("jax_default_matmul_precision", "jax_threefry_partitionable")

SILENCE = 5.0  # seconds in which a worker neither answers nor imports anything more, after which it hangs
POLL = 0.5  # seconds
NAMED = 3  # workers in one error

Result = TypeVar("Result")
Facts = dict[str, str]


def _source(package: Path) -> str:
    """A digest of the package's source: checkouts share a version number."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:12]


SOURCE = _source(Path(__file__).parent.parent)  # now, while the files are what is being imported


def facts(libraries: Iterable[str]) -> Facts:
    """What decides here whether members can be trained, and their bits, by name."""
    return {
        "Python": f"{sys.version_info.major}.{sys.version_info.minor}",  # functions are sent as its bytecode
        "anchored": f"{__version__} (source {SOURCE})",
        **{name: _version(name) for name in libraries},
        "jax_platforms": jax.default_backend(),
        **{name: str(getattr(jax.config, name)) for name in SETTINGS},
        "XLA_FLAGS": os.environ.get("XLA_FLAGS", ""),
    }


def _version(library: str) -> str:
    try:
        return import_module(library).__version__
    except ImportError:
        return "missing"


def check(n_jobs: int | None) -> None:
    """Raise where joblib, as it is set up now, would use workers that cannot train the same members as this process.

    A Dask cluster's are asked; others are known when a task starts on them.
    """
    if n_jobs == 1:
        return
    backend, _ = get_active_backend()
    if type(backend) is MultiprocessingBackend and effective_n_jobs(n_jobs) > 1:  # Ray's is a subclass, and no fork
        _refuse_fork()
    if hasattr(backend, "client"):  # Dask's
        _check_cluster(backend.client, backend.wait_for_workers_timeout)


def run(function: Callable[..., Result], arguments: Iterable[tuple], n_jobs: int | None) -> list[Result]:
    """`function` of each of `arguments`, tuples of plain values and arrays, on joblib's workers."""
    expected, sealed = _own_facts(), cloudpickle.dumps(function)
    work = (delayed(reduce)(*_by_name("start", (expected, sealed, given))) for given in arguments)
    try:
        return Parallel(n_jobs=n_jobs)(work)
    except ImportError as error:
        raise RuntimeError(f"A worker cannot import anchored: {error} ({_remedy('anchored')}).") from error


def start(order: tuple[Facts, bytes, tuple]) -> object:
    """On a worker: the call that was sent, if its result would be the same where it was sent from."""
    expected, sealed, arguments = order
    own_name = f"{socket.gethostname()}:{os.getpid()}"
    complaint = _complaint(own_name, expected, facts(_libraries(expected)))
    if complaint:
        raise RuntimeError(complaint)
    try:
        function = pickle.loads(sealed)
    except (ImportError, AttributeError) as error:
        raise RuntimeError(
            f"Worker {own_name} cannot import what it is to train: {error}. Install on it what the network is made of."
        ) from error
    return function(*arguments)


def _by_name(function: str, argument: object) -> tuple:
    """Arguments of `reduce` that call a function of this module, which is imported only when the call is made."""
    return operator.call, (f"{__name__}:{function}", argument), resolve_name


def _own_facts() -> Facts:
    return facts(name for name in LIBRARIES if name in sys.modules)


def _libraries(expected: Facts) -> tuple[str, ...]:
    return tuple(name for name in LIBRARIES if name in expected)


def _complaint(worker: str, expected: Facts, found: Facts) -> str | None:
    """Why a worker would train other members, and the remedies; None if it would not."""
    differing = [
        f"{name} is {found.get(name) or 'not set'} there and {here or 'not set'} here ({_remedy(name, here)})"
        for name, here in expected.items()
        if found.get(name) != here
    ]
    return f"Worker {worker} would train other members: {'; '.join(differing)}." if differing else None


def _remedy(name: str, value: str = "") -> str:
    """How a worker comes to have the value that this process has."""
    if name == "Python":
        return f"start it with Python {value}"
    if name == "anchored":
        return f"install the same on it and restart it: pip install anchored=={__version__}, or the same checkout"
    if name in LIBRARIES:
        return f"install the same on it and restart it: pip install {name}=={value}"
    setting = f"without {name.upper()}" if value in ("", "None") else f"with {name.upper()}={value}"
    return f"start it {setting} in its environment"


def _refuse_fork() -> None:
    default = multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]
    if (os.environ.get("JOBLIB_START_METHOD", "").strip() or default) == "fork":
        raise ValueError(
            'joblib\'s backend "multiprocessing" forks this process, and JAX hangs in a fork. Use '
            'parallel_config(backend="loky"), which is joblib\'s own choice, or "dask" for a cluster.'
        )


def _check_cluster(client: "Client", joblib_waits: float | None) -> None:
    """Raise unless every worker of a Dask cluster would train the same members as this process."""
    if not client.nthreads():
        _await_a_worker(client, max(0.0, (joblib_waits or 0.0) - 2))
    expected = _own_facts()
    complaints = []
    for address, answer in _ask(client, list(client.nthreads()), _libraries(expected)).items():
        if answer is None or address not in client.nthreads():
            continue  # it has left
        if isinstance(answer, dict):
            complaint = _complaint(address, expected, answer)
        else:
            complaint = f"Worker {address} cannot train members: {answer}."
        if complaint:
            complaints.append(complaint)
    if complaints:
        rest = f"\n… and {len(complaints) - NAMED} more" if len(complaints) > NAMED else ""
        raise RuntimeError("\n".join(complaints[:NAMED]) + rest)


def _await_a_worker(client: Any, patience: float) -> None:
    """Give a cluster that grows with its work some work."""
    try:
        client.submit(os.getpid, pure=False).result(timeout=patience)
    except TimeoutError as error:
        raise RuntimeError(
            f"The Dask cluster at {client.scheduler.address} has no workers, and none came within {patience:.0f} "
            f"seconds. Start some (dask worker {client.scheduler.address}), or wait longer for them: "
            'parallel_config(backend="dask", wait_for_workers_timeout=60).'
        ) from error


def _ask(client: "Client", addresses: list[str], libraries: tuple[str, ...]) -> dict[str, Facts | str | None]:
    """Each worker's facts, or why it has none; None where it left while it was asked."""

    async def ask_all() -> list[Facts | str | None]:
        return await asyncio.gather(*(_answer(client, address, libraries) for address in addresses))

    return dict(zip(addresses, client.sync(ask_all)))


async def _answer(client: "Client", address: str, libraries: tuple[str, ...]) -> Facts | str | None:
    """A worker's facts, or why it has none; None where it left while it was asked.

    Its event loop stays free: what it has imported tells slow from stuck.
    """
    from distributed.comm import CommClosedError

    question = (asyncio.to_thread, reduce, *_by_name("facts", libraries))
    asked = asyncio.ensure_future(client.run(*question, workers=[address], on_error="return"))
    n_modules, since = 0, time.monotonic()
    while time.monotonic() - since < SILENCE:
        await asyncio.wait([asked], timeout=POLL)
        if asked.done():
            answer = asked.result()[address]
            if isinstance(answer, CommClosedError):
                return None
            remedy = f" ({_remedy('anchored')})" if isinstance(answer, ImportError | AttributeError) else ""
            return answer if isinstance(answer, dict) else f"{type(answer).__name__}: {answer}{remedy}"
        before, n_modules = n_modules, await _n_modules(client, address, n_modules)
        if n_modules != before:
            since = time.monotonic()
    asked.cancel()
    return (
        f"for {SILENCE:.0f} seconds it has neither answered nor imported anything more (see its log, and restart it; "
        "if it is only slow, fit again)"
    )


async def _n_modules(client: "Client", address: str, before: int) -> int:
    """How many modules a worker has imported; as many as before if it does not say."""
    try:
        count = client.run(eval, "len(__import__('sys').modules)", workers=[address])
        return (await asyncio.wait_for(count, POLL))[address]
    except Exception:
        return before
