"""The server: this machine alone, its own pages alone, and errors that stay in the page."""

import asyncio
import contextlib
import http.client
import socket
import urllib.error
import urllib.request

import pytest

from anchored.errors import ArgumentError
from anchored.playground.running import run_in_thread
from anchored.playground.server import serve


@pytest.fixture(scope="module")
def server():
    server = run_in_thread(0)
    yield server
    server.io_loop.add_callback(server.stop)
    server.io_loop.add_callback(server.io_loop.stop)


def address(server, path="/curves"):
    return f"http://127.0.0.1:{server.port}{path}"


def get(url):
    with urllib.request.urlopen(url, timeout=20) as answer:
        return answer.read().decode()


def test_a_page_loads_nothing_from_another_host(server):
    page = get(address(server))
    for attribute in ("src=", "href="):
        for part in page.split(attribute)[1:]:
            assert part.startswith(('"static/', '"/', '"#', '"data:')), part[:80]
    assert "default-src 'self'" in page


def test_it_listens_to_this_machine_alone(server):
    sockets = server._http._sockets.values()
    assert {socket.getsockname()[0] for socket in sockets} == {"127.0.0.1"}


UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "MDEyMzQ1Njc4OWFiY2RlZg==",
}


def answer_to(origin, port, host="127.0.0.1"):
    """Return the status with which a server answers a page of `origin`; pages of its own lack a token only."""
    with contextlib.closing(http.client.HTTPConnection(host, port, timeout=20)) as connection:
        connection.request("GET", "/curves/ws", headers=UPGRADE | {"Origin": origin})
        return connection.getresponse().status


@pytest.mark.parametrize("origin", ["http://example.com", "http://127.0.0.1:1", "null", "http://127.0.0.2"])
def test_other_origins_are_refused(server, origin):
    assert answer_to(f"http://127.0.0.1:{server.port}", server.port) != 403
    assert answer_to(origin, server.port) == 403


@pytest.mark.parametrize("address", ["127.0.0.2", "0.0.0.0"])
def test_another_address_accepts_pages_of_its_own(address):
    """A page under the name of a stranger is refused, even if that name leads to this machine."""
    own = socket.gethostname() if address == "0.0.0.0" else address
    server = run_in_thread(0, address=address)
    try:
        assert server.address == address
        host = "127.0.0.2"  # of this machine too
        for name in (own, "127.0.0.1", "LocalHost"):
            assert answer_to(f"http://{name}:{server.port}", server.port, host) != 403
        for name in (f"{own}:1", f"example.com:{server.port}", f"{own}.example.com:{server.port}", "null"):
            assert answer_to(f"http://{name}", server.port, host) == 403
    finally:
        server.io_loop.add_callback(server.stop)
        server.io_loop.add_callback(server.io_loop.stop)


@pytest.mark.parametrize("address", ["192.0.2.1", "nowhere.invalid", "*", "", "a" * 300])
def test_a_bad_address_is_refused(address):
    with pytest.raises(ArgumentError, match="no address of this machine"):
        serve({"/": lambda document: None}, 0, address)


@pytest.mark.parametrize("port", [-1, 65536, "80", 2.5])
def test_a_bad_port_is_refused(port):
    with pytest.raises(ArgumentError, match="port"):
        serve({"/": lambda document: None}, port)


def test_a_port_in_use_is_refused(server):
    async def start():
        serve({"/": lambda document: None}, server.port)

    with pytest.raises(ArgumentError, match="choose another"):
        asyncio.run(start())


def test_a_missing_page_is_an_error(server):
    with pytest.raises(urllib.error.HTTPError, match="404") as refused:
        get(address(server, "/nothing"))
    refused.value.close()
