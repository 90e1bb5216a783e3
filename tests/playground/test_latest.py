"""The newest request wins, and stale ones are dropped."""

import threading

from anchored.playground.latest import LatestWorker


def test_a_newer_request_drops_the_older():
    delivered, has_begun, may_go_on, is_done = [], *(threading.Event() for _ in range(3))
    worker = LatestWorker(lambda item: item(), lambda error: None)

    def old():
        yield lambda: delivered.append("old, before")
        has_begun.set()
        may_go_on.wait(10)
        yield lambda: delivered.append("old, after")

    def new(name):
        yield lambda: delivered.append(name)
        is_done.set()

    worker.submit(old)
    assert has_begun.wait(10)
    worker.submit(lambda: new("between"))  # dropped before it begins
    worker.submit(lambda: new("new"))
    may_go_on.set()
    assert is_done.wait(10)
    assert delivered == ["old, before", "new"]
    worker.close()


def test_an_error_is_reported_and_the_thread_lives_on():
    errors, is_done = [], threading.Event()
    worker = LatestWorker(lambda item: item(), errors.append)

    def failing():
        raise ValueError("no")
        yield

    worker.submit(failing)
    while not errors:
        pass
    worker.submit(lambda: iter([is_done.set]))
    assert is_done.wait(10) and str(errors[0]) == "no"
    worker.close()


def test_a_closed_worker_ends():
    worker = LatestWorker(lambda item: item(), lambda error: None)
    worker.submit(lambda: iter(()))
    worker.close()
    worker._thread.join(10)
    assert not worker._thread.is_alive()
    worker.submit(lambda: iter([lambda: 1 / 0]))  # ignored
