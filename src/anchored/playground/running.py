"""Run the server of the playground, in this thread or in another."""

import asyncio
import threading
from collections.abc import Callable
from functools import partial

from bokeh.server.server import Server
from tornado.ioloop import IOLoop

from anchored.playground.curves import CurveFit
from anchored.playground.curves_page import CurvesPage
from anchored.playground.planes_page import PlanesPage
from anchored.playground.server import serve


def run(port: int, address: str, origins: tuple[str, ...], on_start: Callable[[Server], None]) -> None:
    """Serve all pages until the process is interrupted; the arguments are those of `serve`.

    `on_start` is called with the server as soon as it listens.
    """
    server = serve({"/curves": CurvesPage, "/planes": PlanesPage}, port, address, origins)
    server.io_loop.add_callback(on_start, server)
    try:
        server.io_loop.start()
    except KeyboardInterrupt:
        server.stop()


def run_in_thread(port: int, start: CurveFit | None = None) -> Server:
    """Return a server that runs in a thread; its page of curves begins with the fit `start`."""
    started: list[Server | Exception] = []
    is_started = threading.Event()

    def work() -> None:
        asyncio.set_event_loop(asyncio.new_event_loop())
        try:
            started.append(serve({"/curves": partial(CurvesPage, start=start), "/planes": PlanesPage}, port))
        except Exception as error:
            started.append(error)
            return
        finally:
            is_started.set()
        IOLoop.current().start()

    threading.Thread(target=work, name="playground server", daemon=True).start()
    is_started.wait()
    if isinstance(started[0], Exception):
        raise started[0]
    return started[0]
