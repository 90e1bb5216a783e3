"""Run tasks on a Dask cluster. Data are sent once to each worker, and the tasks of a worker that dies are run again.

Tasks are submitted to Dask directly, since joblib's backend gives up if a worker that has received data dies. A task
consists of two pickles, the function that all tasks share and the task's own arguments, so that a worker without
anchored can receive it and report what is missing.
"""

import asyncio
import hashlib
import pickle
import threading
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial, reduce
from itertools import islice
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar
from uuid import uuid4

import numpy as np
from joblib import parallel_config
from joblib.parallel import get_active_backend

from anchored.errors import ArgumentError, ClusterError, MissingPackageError
from anchored.inference import worker_warnings, workers
from anchored.types import OnProgress

if TYPE_CHECKING:
    from distributed import Client, Future

MIN_SHARED_BYTES = 1024  # arrays at least this large are sent apart from the pickle, once to each worker
TASKS_PER_THREAD = 4  # submitted at a time, so that the arguments of later ones do not fill the scheduler's memory
SECONDS_BETWEEN_REPORTS = 1.0  # time between two reports of the progress of a task
CONNECTION_TIMEOUT = 10.0  # seconds to wait for the scheduler
MAX_SENDINGS = 10  # attempts to send data while workers die
MAX_SESSIONS = 8  # number of sessions whose data a worker keeps; the least recently used are removed

Result = TypeVar("Result")
Task = Callable[..., Result]  # called with the task's argument and a function that reports progress

IN_PROCESS: Final = "in process"  # value of `_cluster` where no cluster is to be used
_cluster: ContextVar["Cluster | Literal['in process'] | None"] = ContextVar("cluster", default=None)


@contextmanager
def using(n_jobs: int | None = None) -> Iterator[None]:
    """Context manager in which joblib's Dask cluster, if there is one, trains members and predicts with them.

    It is the cluster of `joblib.parallel_config(backend="dask")`. Its workers are checked first. Inside another
    `using`, they have already been checked, and keep the data that they have received.

    Parameters
    ----------
    n_jobs : int or None
        If 1, everything runs in this process, also inside another `using`.
    """
    backend, _ = get_active_backend()
    outer = _cluster.get()
    if n_jobs == 1 or outer == IN_PROCESS:
        cluster: Cluster | Literal["in process"] | None = IN_PROCESS
    elif outer is not None and outer.client is getattr(backend, "client", None):
        cluster = outer
    elif hasattr(backend, "client"):
        workers.check(n_jobs)
        cluster = Cluster(backend)
    else:
        cluster = None
    token = _cluster.set(cluster)
    try:
        yield
    finally:
        _cluster.reset(token)
        if isinstance(cluster, Cluster) and cluster is not outer:
            cluster.close()


@contextmanager
def connected(address: str | None) -> Iterator[None]:
    """Context manager in which the Dask cluster at `address` trains members and predicts with them, see `using`.

    Parameters
    ----------
    address : str or None
        Address of the cluster's scheduler, such as tcp://10.0.0.7:8786. If None, everything runs in this process.
    """
    if address is None:
        yield
        return
    try:
        from distributed import Client
    except ImportError as error:
        raise MissingPackageError("a cluster", "dask[distributed]", "cluster") from error
    try:
        client = Client(address, timeout=CONNECTION_TIMEOUT, set_as_default=False)
    except (OSError, ValueError) as error:
        reason = f"is {address!r}, where no scheduler of Dask answers"
        raise ArgumentError("cluster", reason, "start one with dask scheduler, which prints its address") from error
    with client, parallel_config(backend="dask", client=client), using():
        yield


def current() -> "Cluster | None":
    """Return the cluster of the innermost `using`, or None."""
    cluster = _cluster.get()
    return cluster if isinstance(cluster, Cluster) else None


class Cluster:
    """A Dask cluster, and the data that its workers have received.

    Parameters
    ----------
    backend : DaskDistributedBackend
        Joblib's backend for the cluster.
    """

    def __init__(self, backend: Any):
        self.client: Client = backend.client
        self._backend = backend
        self._name = uuid4().hex
        self._sent: dict[bytes, Future] = {}  # data by hash, which Dask keeps as long as this object exists
        self._sendings: dict[tuple, Future] = {}  # tasks that send data, by the worker's address and the hashes

    def close(self) -> None:
        """Make the workers forget the data."""
        if self.client.status == "running":
            call = workers.call_by_name(f"{__name__}:forget", self._name)
            self.client.run(asyncio.to_thread, reduce, *call, wait=False, on_error="ignore")

    def run(
        self, function: Task[Result], arguments: Iterable[object], n_tasks: int, on_progress: OnProgress | None = None
    ) -> list[Result]:
        """Call a function for each of `arguments`, each in a task of its own, and return the results in order.

        Parameters
        ----------
        function, arguments
            As in `stream`.
        n_tasks : int
            Number of the arguments.
        on_progress : callable, optional
            Called with the fraction of all work done since the last call, and the loss.

        Returns
        -------
        list
            The results.
        """
        progress = None if on_progress is None else _Progress(n_tasks, on_progress)
        return list(self.stream(function, arguments, progress))

    def stream(
        self, function: Task[Result], arguments: Iterable[object], progress: "_Progress | None" = None
    ) -> Iterator[Result]:
        """Call a function for each of `arguments`, each in a task of its own, and yield the results in order.

        Parameters
        ----------
        function : callable
            Called with one of the arguments, and with a function that takes reports like `on_progress`, or None. Large
            arrays that are part of it, as in a `functools.partial`, are sent once to each worker.
        arguments : iterable
            The arguments. They are taken only a little before they are needed.
        progress : _Progress, optional
            Receives the reports.

        Yields
        ------
        result
            What the function returned.

        Raises
        ------
        ClusterError
            If a worker would compute something else, or workers die again and again.
        """
        buffers: list[pickle.PickleBuffer] = []
        pickled = workers.cloudpickle.dumps(function, protocol=5, buffer_callback=partial(_take_large, buffers))
        parts = [np.frombuffer(part, np.uint8) for part in (pickled, *(buffer.raw() for buffer in buffers))]
        shared = [(hashlib.blake2b(part.data, digest_size=16).digest(), part) for part in parts]
        tasks = enumerate(map(workers.cloudpickle.dumps, arguments))
        events: SimpleQueue[Future | _Report] = SimpleQueue()  # tasks that have ended, and reports of progress
        running: dict[Future, _Call] = {}
        results: dict[int, Result] = {}  # results that wait for the result of an earlier task
        n_yielded = 0
        with self._reports_to(events, progress) as topic, self._backend.retrieval_context():
            try:
                while True:
                    free = TASKS_PER_THREAD * self._n_threads() - len(running) - len(results)
                    for index, argument in islice(tasks, max(0, free)):
                        call = _Call(index, argument, shared, topic)
                        running[self._submit(call, events)] = call
                    if not running:
                        return
                    event = events.get()
                    if isinstance(event, _Report):
                        if progress is not None:
                            progress.update(event)
                        continue
                    call = running.pop(event)
                    result = self._result(event)
                    if isinstance(result, _Missing):
                        call = self._after_sending(call, result)
                        running[self._submit(call, events)] = call
                        continue
                    results[call.number] = result
                    if progress is not None:
                        progress.finish(call.number)
                    while n_yielded in results:
                        yield results.pop(n_yielded)
                        n_yielded += 1
            finally:
                for future in running:
                    future.release()  # the scheduler forgets the task

    def _submit(self, call: "_Call", events: "SimpleQueue[Future | _Report]") -> "Future":
        """Submit a task, which is put into `events` when it has ended."""
        digests = [digest for digest, _ in call.shared]
        content = workers.own_fingerprint(), self._name, digests, call.argument, call.topic, call.number, call.sending
        future = self._task("run_task", content, **self._backend.submit_kwargs)
        future.add_done_callback(events.put)
        return future

    def _task(self, function: str, content: tuple, **options: Any) -> "Future":
        """Submit a call of a `function` of this module; futures in `content` are replaced by their results."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph")  # a chunk of rows may be large
            call = workers.call_by_name(f"{__name__}:{function}", content)
            return self.client.submit(reduce, *call, key=f"anchored-{uuid4().hex}", **options)

    def _result(self, future: "Future") -> Any:
        """Return the result of a task that has ended, and show its warnings; a `_Missing` if its worker lacked data."""
        from distributed import KilledWorker

        try:
            result, issued = future.result()
        except CancelledError as error:  # no worker holds the data any more that the task waited for
            if self.client.status != "running":
                raise ClusterError("The connection to the scheduler of the Dask cluster was lost.") from error
            self._sent.clear()
            self._sendings.clear()
            return _Missing(None)
        except KilledWorker as error:
            raise ClusterError(
                f"A task was given up, because every worker that started it died: {error}. The logs of the workers say "
                "why; a frequent cause is too little memory."
            ) from error
        except ImportError as error:
            raise workers.cannot_import(error) from error
        worker_warnings.show(issued, stacklevel=5)
        return result

    def _after_sending(self, call: "_Call", missing: "_Missing") -> "_Call":
        """Return `call`, to be submitted again when its data have been sent to the worker that missed them."""
        if missing.address is None:
            return call._replace(sending=None)
        place = missing.address, *(digest for digest, _ in call.shared)
        sending = self._sendings.get(place)
        if sending is None or sending is call.sending:  # in the second case, the worker has forgotten the data
            absent = {digest: array for digest, array in call.shared if digest not in self._sent}
            if absent:
                self._sent |= zip(absent, self._scattered(list(absent.values())))
            arrays = [(digest, self._sent[digest]) for digest, _ in call.shared if digest in missing.digests]
            options = {"workers": [missing.address], "allow_other_workers": True}  # others if this worker dies
            sending = self._sendings[place] = self._task("receive", (self._name, arrays), **options)
        return call._replace(sending=sending)

    def _scattered(self, arrays: list[np.ndarray]) -> "list[Future]":
        """Send each of `arrays` to one of the workers that the user allows, from which the other workers fetch it."""
        receivers = self._backend.submit_kwargs.get("workers")
        for _ in range(MAX_SENDINGS):  # again if the worker dies meanwhile
            try:
                return self.client.scatter(arrays, workers=receivers, hash=False)
            except (OSError, TimeoutError) as error:
                reason = error
                time.sleep(1)
        raise ClusterError(f"The data cannot be sent to the workers of the Dask cluster: {reason!r}.") from reason

    def _n_threads(self) -> int:
        """Return the number of tasks that all workers can run at the same time."""
        return sum(self.client.nthreads().values())

    @contextmanager
    def _reports_to(
        self, events: "SimpleQueue[Future | _Report]", progress: "_Progress | None"
    ) -> "Iterator[str | None]":
        """Context manager that yields the topic under which workers report progress; None if `progress` is None."""
        if progress is None:
            yield None
            return
        topic = f"anchored-{uuid4().hex}"
        self.client.subscribe_topic(topic, lambda event: events.put(_Report(*event[1])))
        try:
            yield topic
        finally:
            self.client.unsubscribe_topic(topic)


class _Call(NamedTuple):
    """A call of the shared function, which one task makes."""

    number: int
    argument: bytes  # pickled
    shared: list[tuple[bytes, np.ndarray]]  # the function's pickle and large arrays, with their hashes
    topic: str | None  # topic under which the task reports its progress; None if it does not
    sending: "Future | None" = None  # a task that sends data to the worker, and must end first


class _Missing(NamedTuple):
    """What a task returns on a worker without the shared data."""

    address: str | None  # address of the worker; None if the data are on no worker at all
    digests: tuple[bytes, ...] = ()  # hashes of the data that are missing


class _Received:
    """The data that this worker has received, so that nothing is sent to it twice.

    Dask itself removes copies of data that no task is waiting for, and sends them again for the next task.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_session: OrderedDict[str, dict[bytes, np.ndarray]] = OrderedDict()  # by the name of a `Cluster`

    def of(self, session: str) -> dict[bytes, np.ndarray]:
        """Return the data of a session by their hashes; the data of the least recently used session may be removed."""
        with self._lock:
            arrays = self._by_session.setdefault(session, {})
            self._by_session.move_to_end(session)
            while len(self._by_session) > MAX_SESSIONS:
                self._by_session.popitem(last=False)
            return arrays

    def forget(self, session: str) -> None:
        """Remove the data of a session."""
        with self._lock:
            self._by_session.pop(session, None)


_received = _Received()


def receive(content: tuple[str, list[tuple[bytes, np.ndarray]]]) -> None:
    """Keep arrays on this worker; `content` holds the name of their `Cluster`, and pairs of a hash and an array."""
    session, arrays = content
    _received.of(session).update(arrays)


def forget(session: str) -> None:
    """Remove what this worker has received from the `Cluster` with the name `session`, which is closed."""
    _received.forget(session)


def run_task(
    content: tuple[workers.Fingerprint, str, list[bytes], bytes, str | None, int, None],
) -> tuple[object, list[Warning]]:
    """Run a task on a worker, and return its result and the warnings that it issued.

    `content` holds the fingerprint of the sender, the name of its `Cluster`, the hashes of the shared function (of its
    pickle and its large arrays), the pickled argument, the topic of reports (None for none) and the task's number. The
    last entry made the task wait until data were sent.
    """
    from distributed import get_worker

    expected, session, digests, argument, topic, index, _ = content
    workers.require_same(expected)
    arrays = _received.of(session)
    missing = tuple(digest for digest in digests if digest not in arrays)
    if missing:
        return _Missing(get_worker().address, missing), []
    pickled, *buffers = (arrays[digest] for digest in digests)
    with worker_warnings.collecting() as issued:
        function = workers.unpickled(pickled.tobytes(), buffers)
        result = function(workers.unpickled(argument), None if topic is None else _Reporter(topic, index))
    return result, issued


class _Report(NamedTuple):
    """The progress of a task."""

    number: int  # number of the task
    done: float  # fraction of the task
    loss: float


class _Reporter:
    """Reports the progress of the task with the number `index` from a worker, under the `topic`."""

    def __init__(self, topic: str, index: int):
        from distributed import get_worker

        self._topic, self._index, self._worker = topic, index, get_worker()
        self._done, self._reported_at = 0.0, time.monotonic()

    def __call__(self, fraction: float, loss: float) -> None:
        """Report that a further `fraction` of the task is done, unless there was a report a moment ago."""
        self._done += fraction
        if time.monotonic() - self._reported_at >= SECONDS_BETWEEN_REPORTS:
            self._reported_at = time.monotonic()
            self._worker.log_event(self._topic, _Report(self._index, self._done, loss))


class _Progress:
    """Sums the progress of `n_tasks` tasks, some of which may be run again, for a user's `on_progress`."""

    def __init__(self, n_tasks: int, on_progress: OnProgress):
        self._n_tasks, self._on_progress = n_tasks, on_progress
        self._done: dict[int, float] = {}  # fraction of each task
        self._loss = float("nan")

    def update(self, report: _Report) -> None:
        """Pass a report on to the user, unless an earlier run of the task had already come further."""
        further = min(report.done, 1.0) - self._done.get(report.number, 0.0)
        self._loss = report.loss
        if further > 0:
            self._done[report.number] = min(report.done, 1.0)
            self._on_progress(further / self._n_tasks, report.loss)

    def finish(self, index: int) -> None:
        """Tell the user that the task with this number is done."""
        self.update(_Report(index, 1.0, self._loss))


def _take_large(buffers: list[pickle.PickleBuffer], buffer: pickle.PickleBuffer) -> bool:
    """Add `buffer` to `buffers` if it is large; return whether it is small and must be part of the pickle."""
    is_small = buffer.raw().nbytes < MIN_SHARED_BYTES
    if not is_small:
        buffers.append(buffer)
    return is_small
