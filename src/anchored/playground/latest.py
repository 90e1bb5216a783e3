"""A thread that runs only the newest request."""

import atexit
import threading
import weakref
from collections.abc import Callable, Iterator
from functools import partial

SECONDS_TO_END = 20  # how long the interpreter waits at exit for each thread whose computation is under way

Work = Callable[[], Iterator[Callable[[], None]]]


class LatestWorker:
    """A thread that runs only the newest request, so that a page is never blocked.

    A request is a function that returns an iterator. After each item, the worker checks whether a newer request has
    arrived. If so, the item is dropped, and the iterator is closed. Otherwise the item, a function without arguments,
    is passed to `deliver`.

    Parameters
    ----------
    deliver : callable
        Called in the worker's thread with each item; for example a document's `add_next_tick_callback`.
    on_error : callable
        Called in the worker's thread with an exception that a request has raised.
    """

    def __init__(self, deliver: Callable[[Callable[[], None]], object], on_error: Callable[[Exception], object]):
        self._deliver, self._on_error = deliver, on_error
        self._changed = threading.Condition()
        self._waiting: Work | None = None
        self._number = 0
        self._is_closed = False
        self._thread: threading.Thread | None = None
        _workers.add(self)

    def submit(self, work: Work) -> int:
        """Run `work` as soon as the current request ends or yields an item, and drop all other requests.

        Returns the number of the request, or of the last one if the worker is closed.
        """
        with self._changed:
            if self._is_closed:
                return self._number
            self._waiting, self._number = work, self._number + 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="playground", daemon=True)
                self._thread.start()
            self._changed.notify()
            return self._number

    def cancel(self) -> None:
        """Drop all requests."""
        self.submit(lambda: iter(()))

    def close(self) -> None:
        """Drop all requests, and end the thread; later requests are ignored."""
        with self._changed:
            self._is_closed, self._waiting, self._number = True, None, self._number + 1
            self._changed.notify()

    def join(self, seconds: float) -> None:
        """Wait until the thread has ended, at most for `seconds`."""
        if self._thread is not None:
            self._thread.join(seconds)

    def _run(self) -> None:
        """Run requests until `close`."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_closed or self._waiting is not None)
                if self._is_closed or self._waiting is None:
                    return
                work, self._waiting, number = self._waiting, None, self._number
            try:
                self._run_one(work, number)
            except Exception as error:  # shown in the page; the thread must live on
                self._hand_over(number, partial(self._on_error, error))
            del work  # it may hold the state of a page that is gone

    def _run_one(self, work: Work, number: int) -> None:
        """Deliver the items of `work` until it ends or a newer request has arrived."""
        for item in work():
            if not self._hand_over(number, partial(self._deliver, item)):
                return
            del item

    def _hand_over(self, number: int, act: Callable[[], object]) -> bool:
        """Call `act` if request `number` is the newest and the worker is not closed; return whether it was called."""
        with self._changed:
            is_newest = number == self._number and not self._is_closed
            if is_newest:
                act()
            return is_newest


_workers: "weakref.WeakSet[LatestWorker]" = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    """End all threads, since the process would crash if it ended while a thread runs a compiled program."""
    workers = list(_workers)
    for worker in workers:
        worker.close()
    for worker in workers:
        worker.join(SECONDS_TO_END)
