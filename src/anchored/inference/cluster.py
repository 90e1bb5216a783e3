"""Run tasks on a Dask cluster: data travel once to each worker, and what a worker that dies was doing is done again.

Tasks are submitted to Dask directly. Joblib's backend would send arrays with every batch of tasks, and gives up if the
worker that received them dies. A task consists of two pickles, the function that all tasks share and the task's own
arguments, so that a worker without anchored can receive it and report what is missing.
"""

import hashlib
import pickle
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial, reduce
from itertools import islice
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
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
SECONDS_BETWEEN_REPORTS = 1.0  # of the progress of a task
CONNECTION_TIMEOUT = 10.0  # seconds to wait for the scheduler
MAX_SENDINGS = 10  # attempts to send data while workers die
LOST = ("cancelled", "lost")  # status of a task whose data are on no worker any more

Result = TypeVar("Result")
Task = Callable[..., Result]  # called with the task's argument and a function that reports progress

_cluster: ContextVar["Cluster | None"] = ContextVar("cluster", default=None)


@contextmanager
def using(n_jobs: int | None = None) -> Iterator[None]:
    """Context manager in which members are trained and predict on the Dask cluster of joblib, if there is one.

    That is the cluster of `joblib.parallel_config(backend="dask")`. Its workers are checked first; within another
    context manager of this kind, they have been checked, and the data that they have received are not sent again.

    Parameters
    ----------
    n_jobs : int or None
        If 1, everything runs in this process.
    """
    backend, _ = get_active_backend()
    cluster = _cluster.get()
    if cluster is None or cluster.client is not getattr(backend, "client", None):
        workers.check(n_jobs)
        cluster = Cluster(backend) if hasattr(backend, "client") else None
    token = _cluster.set(None if n_jobs == 1 else cluster)
    try:
        yield
    finally:
        _cluster.reset(token)


@contextmanager
def connected(address: str | None) -> Iterator[None]:
    """Context manager in which members are trained and predict on a Dask cluster, see `using`.

    Parameters
    ----------
    address : str or None
        Address of its scheduler, such as tcp://10.0.0.7:8786. If it is None, everything runs in this process.
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
    return _cluster.get()


class Cluster:
    """A Dask cluster, and the data that its workers have received.

    Parameters
    ----------
    backend : joblib's DaskDistributedBackend
        Its backend for the cluster.
    """

    def __init__(self, backend: Any):
        self.client: Client = backend.client
        self._backend = backend
        self._sent: dict[bytes, Future] = {}  # by the hash of the data; workers keep them as long as this object exists

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
        shared = [np.frombuffer(part, np.uint8) for part in (pickled, *(buffer.raw() for buffer in buffers))]
        tasks = enumerate(map(workers.cloudpickle.dumps, arguments))
        events: SimpleQueue[Future | _Report] = SimpleQueue()  # tasks that have ended, and reports of progress
        running: dict[Future, tuple[int, bytes]] = {}
        results: dict[int, Result] = {}  # those that wait for an earlier one
        n_yielded = 0
        with self._reports_to(events, progress) as topic, self._backend.retrieval_context():
            try:
                while True:
                    free = TASKS_PER_THREAD * self._n_threads() - len(running) - len(results)
                    for task in islice(tasks, max(0, free)):
                        running[self._submit(shared, task, topic, events)] = task
                    if not running:
                        return
                    event = events.get()
                    if isinstance(event, _Report):
                        if progress is not None:
                            progress.update(event)
                        continue
                    task = running.pop(event)
                    if event.status in LOST:  # its data disappeared with the last worker that had them
                        self._forget_sent()
                        running[self._submit(shared, task, topic, events)] = task
                        continue
                    results[task[0]] = _result(event)
                    if progress is not None:
                        progress.finish(task[0])
                    while n_yielded in results:
                        yield results.pop(n_yielded)
                        n_yielded += 1
            finally:
                for future in running:
                    future.release()  # the scheduler forgets the task

    def _submit(
        self,
        shared: list[np.ndarray],
        task: tuple[int, bytes],
        topic: str | None,
        events: "SimpleQueue[Future | _Report]",
    ) -> "Future":
        """Submit a task, which is put into `events` when it has ended."""
        index, argument = task
        content = workers.own_fingerprint(), self._shared(shared), argument, topic, index
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph")  # a chunk of rows may be large
            call = workers.call_by_name(f"{__name__}:run_task", content)
            future = self.client.submit(reduce, *call, key=f"anchored-{uuid4().hex}", **self._backend.submit_kwargs)
        future.add_done_callback(events.put)
        return future

    def _shared(self, arrays: list[np.ndarray]) -> "list[Future]":
        """Return `arrays` on the cluster. Those that it does not have yet are sent to all its workers."""
        digests = [hashlib.blake2b(array.data, digest_size=16).digest() for array in arrays]
        missing = {digest: array for digest, array in zip(digests, arrays) if digest not in self._sent}
        if missing:
            self._sent |= zip(missing, self._sent_to_all(list(missing.values())))
        return [self._sent[digest] for digest in digests]

    def _sent_to_all(self, arrays: list[np.ndarray]) -> "list[Future]":
        """Send `arrays` to all workers, or those that the user has named; again if one dies meanwhile."""
        receivers = self._backend.submit_kwargs.get("workers")
        for _ in range(MAX_SENDINGS):
            try:
                return self.client.scatter(arrays, workers=receivers, broadcast=True, hash=False)
            except (OSError, TimeoutError) as error:
                reason = error
                time.sleep(1)
        raise ClusterError(f"The data cannot be sent to the workers of the Dask cluster: {reason!r}.") from reason

    def _forget_sent(self) -> None:
        """Send data again when they are needed next, since no worker has them any more."""
        self._sent.clear()
        if self.client.status != "running":
            raise ClusterError("The connection to the scheduler of the Dask cluster was lost.")

    def _n_threads(self) -> int:
        """Return the number of tasks that all workers can run at the same time."""
        return sum(self.client.nthreads().values())

    @contextmanager
    def _reports_to(
        self, events: "SimpleQueue[Future | _Report]", progress: "_Progress | None"
    ) -> "Iterator[str | None]":
        """Context manager that yields the topic under which workers report progress; None if nobody wants it."""
        if progress is None:
            yield None
            return
        topic = f"anchored-{uuid4().hex}"
        self.client.subscribe_topic(topic, lambda event: events.put(_Report(*event[1])))
        try:
            yield topic
        finally:
            self.client.unsubscribe_topic(topic)


def run_task(content: tuple[workers.Fingerprint, list[np.ndarray], bytes, str | None, int]) -> tuple[object, list]:
    """Run a task on a worker, and return its result and the warnings that it issued.

    `content` holds the fingerprint of the sender, the shared function (its pickle and its large arrays, as bytes), the
    pickled argument, the topic of reports (None for none) and the task's number.
    """
    expected, (pickled, *buffers), argument, topic, index = content
    workers.require_same(expected)
    with worker_warnings.collecting() as issued:
        function = workers.unpickled(pickled.tobytes(), buffers)
        result = function(workers.unpickled(argument), None if topic is None else _Reporter(topic, index))
    return result, issued


class _Report(NamedTuple):
    """How far a task is."""

    number: int  # of the task
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
        """Tell the user about a report, as far as the task has not been further before."""
        further = min(report.done, 1.0) - self._done.get(report.number, 0.0)
        self._loss = report.loss
        if further > 0:
            self._done[report.number] = min(report.done, 1.0)
            self._on_progress(further / self._n_tasks, report.loss)

    def finish(self, index: int) -> None:
        """Tell the user that the task with this number is done."""
        self.update(_Report(index, 1.0, self._loss))


def _result(future: "Future") -> Any:
    """Return the result of a task that has ended, and show its warnings."""
    from distributed import KilledWorker

    try:
        result, issued = future.result()
    except KilledWorker as error:
        raise ClusterError(
            f"A task was given up, since each worker that began it died: {error}. The logs of the workers say why, "
            "which may be too little memory."
        ) from error
    except ImportError as error:
        raise workers.cannot_import(error) from error
    worker_warnings.show(issued, stacklevel=5)
    return result


def _take_large(buffers: list[pickle.PickleBuffer], buffer: pickle.PickleBuffer) -> bool:
    """Add `buffer` to `buffers` if it is large; return whether it is small and must be part of the pickle."""
    is_small = buffer.raw().nbytes < MIN_SHARED_BYTES
    if not is_small:
        buffers.append(buffer)
    return is_small
