"""The server of the playground: one Bokeh application for each page, for this machine only unless told otherwise.

It listens on 127.0.0.1 by default, accepts messages only from its own pages, and serves all scripts itself.
"""

import logging
import re
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
UNUSED_MS = 5_000  # time after which a page that has been closed is forgotten
PORT = 5100  # by default
ADDRESS = "127.0.0.1"  # by default: this machine alone
ALL_ADDRESSES = ("0.0.0.0", "::")


def serve(
    pages: Mapping[str, Callable[[Document], object]],
    port: int = PORT,
    address: str = ADDRESS,
) -> Server:
    """Return a running server.

    Parameters
    ----------
    pages : mapping of str to callable
        For each path, such as "/curves", a function that fills a document. The first is shown at "/" too.
    port : int
        The port; 0 for any free one.
    address : str
        The address to listen on, or a name of it; "0.0.0.0" for all IPv4 addresses of this machine.

    Returns
    -------
    bokeh.server.server.Server
        The server, whose `io_loop` has not been started yet.

    Raises
    ------
    ArgumentError
        If the port or the address cannot be used.
    """
    checks.whole("port", port, 0)
    if port > 65535:
        raise ArgumentError("port", f"must be at most 65535, got {port}")
    _check_is_free(address, port)
    settings.resources = "server"  # scripts come from this server, none from another host
    warnings.simplefilter("ignore", ConvergenceWarning)  # certificates report it in the page
    logging.getLogger("bokeh.server.views.ws").setLevel(logging.ERROR)  # it warns of pictures for closed pages
    applications = {path: _application(fill) for path, fill in pages.items()}
    server = Server(
        applications,
        port=port,
        address=address,
        websocket_max_message_size=MAX_MESSAGE,
        unused_session_lifetime_milliseconds=UNUSED_MS,
        check_unused_sessions_milliseconds=UNUSED_MS,
        use_index=False,
        extra_patterns=[("/", RedirectHandler, {"url": next(iter(pages)), "permanent": False})],
    )
    server._tornado.websocket_origins.update(f"{host}:{server.port}".lower() for host in _hosts(address))
    server.start()
    return server


def _check_is_free(address: str, port: int) -> None:
    """Raise an ArgumentError unless the server can listen at `address` and `port`."""
    try:
        if not re.fullmatch(r"[\w.:%-]+", address):  # "*" would be a pattern of all origins
            raise OSError("not an address")
        family, *_, place = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)[0]
        socket.create_server(place, family=family).close()
    except (OSError, UnicodeError):
        raise ArgumentError("address", f"{address!r} is no address of this machine", "use 127.0.0.1") from None
    try:
        socket.create_server((place[0], port, *place[2:]), family=family).close()
    except OSError as error:
        raise ArgumentError("port", f"{port} cannot be used ({error.strerror or error})", "choose another") from None


def _hosts(address: str) -> set[str]:
    """Return the hosts by which a browser reaches a server that listens at `address`.

    A page under any other name is refused, even if that name resolves to this machine, since anyone may own the name.
    """
    hosts = {"127.0.0.1", "localhost"}
    if address in ALL_ADDRESSES:
        names = {socket.gethostname(), socket.getfqdn()}
        return hosts | names | {in_url(found) for name in names for found in _addresses(name)}
    return hosts | {in_url(address)}


def _addresses(name: str) -> set[str]:
    """Return the addresses of the host `name`, or none if it is unknown."""
    try:
        return {str(found[4][0]) for found in socket.getaddrinfo(name, None)}
    except OSError:
        return set()


def in_url(address: str) -> str:
    """Return `address` as it is written in a URL, where an IPv6 address needs brackets."""
    return f"[{address}]" if ":" in address else address


def _application(fill: Callable[[Document], object]) -> Application:
    """Return the application that fills a document for each visitor."""

    def fill_document(document: Document) -> None:
        fill(document)

    return Application(FunctionHandler(fill_document))
