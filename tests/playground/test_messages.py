"""What pages and strangers send: refused with an error in the page, while the server and other pages go on."""

import gc
import http.client
import os
import socket
import struct
import time
import urllib.request
import weakref

import numpy as np
import pytest
from bokeh.document import Document
from bokeh.util.token import generate_jwt_token, generate_session_id

from anchored.playground.cart_pole_page import CartPolePage
from anchored.playground.curves_page import CurvesPage
from anchored.playground.planes_page import PlanesPage
from anchored.playground.points import PRESETS
from anchored.playground.running import run_in_thread

SIX = PRESETS["Six points"]
BAD_COLUMNS = [
    {"x": [float("nan")] * 6, "y": [0.0] * 6},
    {"x": ["x"] * 6, "y": [0.0] * 6},
    {"x": [0.0] * 1000, "y": [0.0] * 1000},
    {"z": [0.0]},
    {"x": [[1.0]], "y": [None]},
]


def idle(kind):
    """Return a page that computes nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("anchored.playground.latest.LatestWorker.submit", lambda worker, work: 0)
        page = kind(Document())
    for worker in page._workers:
        worker.submit = lambda work: 0
    return page


@pytest.fixture(scope="module")
def page():
    """The page of curves."""
    return idle(CurvesPage)


@pytest.mark.parametrize("columns", BAD_COLUMNS)
def test_bad_points_change_nothing(page, columns):
    page.source.data = columns
    assert "points must" in page.status.text
    np.testing.assert_array_equal(page.source.data["x"], SIX[:, 0])


@pytest.mark.parametrize(
    ("control", "attribute", "value"),
    [("noise", "value_throttled", 1e9), ("n_members", "value_throttled", -3), ("width", "value_throttled", 7.5)],
)
def test_bad_numbers_change_nothing(page, control, attribute, value):
    before, good = page.settings, page.sliders[control].value
    page.sliders[control].value = value
    page.sliders[control].trigger(attribute, 0, value)
    page.sliders[control].value = good
    assert control in page.status.text and "failed" in page.status.text
    assert page.settings == before


def test_bad_names_change_nothing(page):
    for name, choice in page.choices.items():
        before, good = page.settings, choice.value
        choice.value = "__import__('os')"
        assert f"{name} must be one of" in page.status.text and page.settings == before
        choice.value = good
    page.preset.value = "<script>"
    assert "failed" in page.status.text
    page.text.value = "<script>alert(1)</script>"
    assert "failed" in page.status.text and "<script>" not in page.status.text


def test_two_pages_do_not_mix(page):
    other = idle(CurvesPage)
    other.source.data = {"x": [0.0, 1.0, 2.0], "y": [0.0, 1.0, 0.0]}
    other.sliders["noise"].value = 0.5
    other.settings_changed()
    assert other.settings.noise == 0.5 and len(other.source.data["x"]) == 3
    assert page.settings.noise == 0.1
    other.source.selected.indices = [0]
    other.preset.value = "A gap"
    assert len(other.source.data["x"]) == 20 and other.source.selected.indices == []
    np.testing.assert_array_equal(page.source.data["x"], SIX[:, 0])


@pytest.mark.parametrize(("kind", "source"), [(PlanesPage, "source"), (CartPolePage, "handles")])
def test_other_pages_refuse_bad_columns(kind, source):
    page = idle(kind)
    good = dict(getattr(page, source).data)
    for columns in BAD_COLUMNS:
        getattr(page, source).data = columns
        assert "failed" in page.status.text
        np.testing.assert_array_equal(getattr(page, source).data["x"], good["x"])


def test_a_closed_page_is_forgotten():
    page = CurvesPage(Document())
    threads = [worker._thread for worker in page._workers if worker._thread is not None]
    reference = weakref.ref(page.left)
    page._destroyed(None)
    del page
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    gc.collect()
    assert reference() is None


@pytest.fixture(scope="module")
def server():
    server = run_in_thread(0)
    yield server
    server.io_loop.add_callback(server.stop)
    server.io_loop.add_callback(server.io_loop.stop)


def frame(text):
    """Return a message of a websocket's client."""
    content, mask = text.encode(), os.urandom(4)
    size = struct.pack("!BBQ", 0x81, 0xFF, len(content))
    return size + mask + bytes(byte ^ mask[i % 4] for i, byte in enumerate(content))


@pytest.mark.parametrize("text", ["{", '{"msgtype": "PATCH-DOC"}', "x" * 1_100_000], ids=["broken", "lone", "long"])
def test_a_message_that_is_none_closes_its_own_connection(server, text):
    token = generate_jwt_token(generate_session_id())
    headers = (
        f"GET /planes/ws HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nSec-WebSocket-Version: 13\r\n"
        f"Origin: http://127.0.0.1:{server.port}\r\nSec-WebSocket-Protocol: bokeh, {token}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", server.port), 30) as connection:
        connection.sendall(headers.encode())
        assert b"101 Switching" in connection.recv(4096)
        for _ in range(3):
            connection.sendall(frame(text))
            time.sleep(0.05)
            if len(text) > 1000:
                break
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/curves", timeout=60) as answer:
        assert answer.status == http.client.OK
