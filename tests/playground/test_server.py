"""The server: this machine alone, its own pages alone, and errors that stay in the page."""

import asyncio
import json
import urllib.error
import urllib.request

import pytest
from tornado.httpclient import HTTPClientError
from tornado.websocket import websocket_connect

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


@pytest.mark.parametrize("origin", ["http://example.com", "http://127.0.0.1:1", "null"])
def test_other_origins_are_refused(server, origin):
    from tornado.httpclient import HTTPRequest

    async def connect():
        url = address(server, "/curves/ws").replace("http", "ws", 1)
        await websocket_connect(HTTPRequest(url, headers={"Origin": origin}), subprotocols=["bokeh", "token"])

    with pytest.raises(HTTPClientError, match="403"):
        asyncio.run(connect())


def test_a_message_that_is_no_message_is_survived(server):
    async def send(text):
        page = get(address(server))
        token = json.loads(page.split('"token":')[1].split(",")[0].split("}")[0])
        url = address(server, "/curves/ws").replace("http", "ws", 1)
        connection = await websocket_connect(url, subprotocols=["bokeh", token])
        await connection.write_message(text)
        connection.close()
        while await connection.read_message() is not None:
            pass

    for text in ("{", "[]" * 1000, json.dumps({"msgtype": "PATCH-DOC", "msgid": 5}), "x" * 3_000_000):
        asyncio.run(send(text))
    assert "playground" in get(address(server))


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
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(address(server, "/nothing"))
