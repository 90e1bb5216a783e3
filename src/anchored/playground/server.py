"""The server of the playground: one Bokeh application for each page, for this machine only.

It listens on 127.0.0.1, accepts messages only from its own pages, and serves all scripts itself.
"""

import logging
import socket
import warnings
from collections.abc import Callable, Mapping

from bokeh.application import Application
from bokeh.application.handlers.function import FunctionHandler
from bokeh.document import Document
from bokeh.server.server import Server
from bokeh.settings import settings
from sklearn.exceptions import ConvergenceWarning
from tornado.web import RedirectHandler

from anchored import checks
from anchored.errors import ArgumentError

MAX_MESSAGE = 2**20  # bytes of one message from a page
UNUSED_MS = 5_000  # a page that has been closed is forgotten after this time
PORT = 5100  # by default


def serve(
    pages: Mapping[str, Callable[[Document], object]],
    port: int = PORT,
    address: str = "127.0.0.1",
    origins: tuple[str, ...] = (),
) -> Server:
    """Return a running server.

    Parameters
    ----------
    pages : mapping of str to callable
        For each path, such as "/curves", a function that fills a document. The first is shown at "/" too.
    port : int
        The port; 0 for any free one.
    address : str
        The address to listen on.
    origins : tuple of str
        Further origins, "host:port", from which messages are accepted.

    Returns
    -------
    bokeh.server.server.Server
        The server, whose `io_loop` has not been started yet.

    Raises
    ------
    ArgumentError
        If the port cannot be used.
    """
    checks.whole("port", port, 0)
    if port > 65535:
        raise ArgumentError("port", f"must be at most 65535, got {port}")
    _check_is_free(address, port)
    settings.resources = "server"  # scripts come from this server, none from another host
    warnings.simplefilter("ignore", ConvergenceWarning)  # certificates report it in the page
    logging.getLogger("bokeh.server.views.ws").setLevel(logging.ERROR)  # warns of each picture for a page just closed
    applications = {path: _application(fill) for path, fill in pages.items()}
    server = Server(
        applications,
        port=port,
        address=address,
        allow_websocket_origin=list(origins) or None,
        websocket_max_message_size=MAX_MESSAGE,
        unused_session_lifetime_milliseconds=UNUSED_MS,
        check_unused_sessions_milliseconds=UNUSED_MS,
        use_index=False,
        extra_patterns=[("/", RedirectHandler, {"url": next(iter(pages)), "permanent": False})],
    )
    server._tornado.websocket_origins.update(f"{host}:{server.port}" for host in ("127.0.0.1", "localhost"))
    server.start()
    return server


def _check_is_free(address: str, port: int) -> None:
    """Raise an ArgumentError unless the server can listen at `address` and `port`."""
    try:
        socket.create_server((address, port)).close()
    except OSError as error:
        raise ArgumentError("port", f"{port} cannot be used ({error.strerror or error})", "choose another") from None


def _application(fill: Callable[[Document], object]) -> Application:
    """Return the application that fills a document for each visitor."""

    def fill_document(document: Document) -> None:
        fill(document)

    return Application(FunctionHandler(fill_document))
