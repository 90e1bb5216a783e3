"""Run the server of the playground, in this thread or in another."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
from bokeh.document import Document
from bokeh.server.server import Server
from tornado.ioloop import IOLoop

from anchored.inference.compilation import keep_fewer_programs
from anchored.playground import curves, memory
from anchored.playground.cart_pole import loaded_agent
from anchored.playground.cart_pole_page import CartPolePage
from anchored.playground.curves import CurveFit
from anchored.playground.curves_page import N_GRID, CurvesPage
from anchored.playground.latest import LatestWorker
from anchored.playground.planes_page import PlanesPage
from anchored.playground.points import PRESETS, X_RANGE
from anchored.playground.server import ADDRESS, ALL_ADDRESSES, in_url, serve

KEPT_PROGRAMS = 40  # a page needs about 25; others are read from the disk again


def pages(start: CurveFit | None = None, agent_file: Path | None = None) -> dict[str, Callable[[Document], object]]:
    """Return for each path a function that fills a document with the page.

    The page of curves shows the fit `start` at first, and the page of CartPole the agent in `agent_file`, if given.
    """
    return {
        "/curves": partial(CurvesPage, start=start),
        "/planes": PlanesPage,
        "/cartpole": partial(CartPolePage, agent_file=agent_file),
    }


def run(port: int, address: str, agent_file: Path | None, on_start: Callable[[str], None]) -> None:
    """Serve all pages until the process is interrupted.

    Parameters
    ----------
    port : int
        The port; 0 for any free one.
    address : str
        The address to listen on.
    agent_file : pathlib.Path or None
        File of a saved agent, which the page of CartPole shows at first.
    on_start : callable
        Called with the URL of the first page as soon as the server listens.
    """
    if agent_file is not None:
        loaded_agent(agent_file)  # raises an error now, not in the page
    memory.set_thresholds()
    keep_fewer_programs(KEPT_PROGRAMS)
    server = serve(pages(agent_file=agent_file), port, address)
    LatestWorker(lambda item: item(), lambda error: None).submit(warm_up)
    host = "127.0.0.1" if address in ALL_ADDRESSES else in_url(address)
    server.io_loop.add_callback(on_start, f"http://{host}:{server.port}")
    try:
        server.io_loop.start()
    except KeyboardInterrupt:
        server.stop()


def warm_up() -> Iterator:
    """Compile what the first page needs while the browser starts; yields nothing."""
    fit = curves.fit_anew(curves.CurveSettings(), PRESETS["Six points"])
    curves.other_curve(fit, curves.CurveSettings().other, np.linspace(*X_RANGE, N_GRID))
    fit.curve(np.linspace(*X_RANGE, N_GRID))
    yield from ()


def run_in_thread(port: int, start: CurveFit | None = None, address: str = ADDRESS) -> Server:
    """Return a server that runs in a thread; its page of curves shows the fit `start` at first."""
    started: list[Server | Exception] = []
    is_started = threading.Event()

    def work() -> None:
        asyncio.set_event_loop(asyncio.new_event_loop())
        try:
            started.append(serve(pages(start), port, address))
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
