"""The server: this machine alone, its own pages alone, and errors that stay in the page."""

import asyncio
import http.client
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


@pytest.mark.parametrize("origin", ["http://example.com", "http://127.0.0.1:1", "null"])
def test_other_origins_are_refused(server, origin):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    connection.request("GET", "/curves/ws", headers=UPGRADE | {"Origin": origin})
    assert connection.getresponse().status == 403
    connection.close()


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
