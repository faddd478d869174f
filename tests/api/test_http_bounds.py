"""What a client that is not authenticated yet can take of a server: a bounded head, a bounded time, a connection."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lakerunner.api import server as server_module
from lakerunner.api.app import build_app
from lakerunner.api.http_protocol import PIPELINE_MAX, Bounds
from lakerunner.api.server import HttpServer, bind
from lakerunner.services.parts import http_bounds
from lakerunner.settings import load_settings
from servers.lake import wait_until
from suites.certificates import throw_away
from suites.held_server import LARGE, served
from suites.raw_http import Connection, asked, connected

GET = b"GET /quick HTTP/1.1\r\nHost: x\r\n\r\n"
BOTH = pytest.mark.parametrize("scheme", ["http", "https"])


def post(path: str, *headers: str) -> bytes:
    return "\r\n".join((f"POST {path} HTTP/1.1", "Host: x", *headers, "", "")).encode()


@pytest.mark.parametrize("begin", [b"", b"\r\n"])
def test_a_connection_on_which_nothing_is_asked_is_closed(begin: bytes) -> None:
    with served(Bounds(head_seconds=0.5)) as server, connected(server.url) as connection:
        connection.send(begin)
        assert connection.ended()


@pytest.mark.parametrize("begin", [b"G", b"GET /quick HTTP/1.1\r\nHost: x\r\nX-Slow: "])
def test_a_head_that_does_not_come_in_time_is_given_up(begin: bytes) -> None:
    """Neither silence nor a byte now and then keeps a connection open."""
    with served(Bounds(head_seconds=0.5)) as server, connected(server.url) as connection:
        connection.send(begin)
        stopped = threading.Event()
        dribble = threading.Thread(target=_dribble, args=(connection, stopped, b"a" if begin[-1:] == b" " else b""))
        dribble.start()
        answer = connection.answer()
        stopped.set()
        dribble.join()
        assert (answer.status, answer.headers["connection"]) == (408, "close")
        assert answer.text == "the head of the request did not arrive within 0.5 s\n"
        assert connection.ended()


def _dribble(connection: Connection, stopped: threading.Event, data: bytes) -> None:
    while data and not stopped.wait(0.05):
        try:
            connection.send(data)
        except OSError:
            return


@BOTH
@pytest.mark.parametrize(
    ("head", "piece"),
    [
        (post("/echo", "Content-Length: 1000000"), b"a"),
        (post("/echo", "Transfer-Encoding: chunked"), b"1\r\na\r\n"),
        (post("/echo", "Transfer-Encoding: chunked") + b"1;", b"x"),  # an extension of a chunk, without end
    ],
)
def test_a_body_that_comes_too_slowly_is_given_up(scheme: str, head: bytes, piece: bytes) -> None:
    with served(Bounds(body_seconds=0.5, body_min_bytes=1000), scheme) as server, connected(server.url) as connection:
        connection.send(head)
        stopped = threading.Event()
        dribble = threading.Thread(target=_dribble, args=(connection, stopped, piece))
        dribble.start()
        answer = connection.answer()
        stopped.set()
        dribble.join()
        assert (answer.status, answer.text) == (
            408,
            "the body arrives too slowly: send at least 2000 bytes per second\n",
        )
        assert server.left.acquire(timeout=60)  # the application is not left waiting


def test_a_body_that_takes_too_long_at_a_good_rate_is_given_up() -> None:
    bounds = Bounds(body_seconds=0.1, body_min_bytes=1, body_max_seconds=0.5)
    with served(bounds) as server, connected(server.url) as connection:
        connection.send(post("/echo", "Content-Length: 1000000"))
        stopped = threading.Event()
        dribble = threading.Thread(target=_dribble, args=(connection, stopped, b"a" * 10))
        dribble.start()
        answer = connection.answer()
        stopped.set()
        dribble.join()
        assert (answer.status, answer.text) == (408, "the body did not arrive within 0.5 s: send smaller requests\n")


def test_all_bodies_together_are_bounded() -> None:
    body = b"a" * 900_000
    with served(Bounds(), bodies_max_bytes=1_000_000) as server, connected(server.url) as first:
        first.send(post("/hold", "Content-Length: 900000") + body)
        assert server.waiting.acquire(timeout=60)
        second = httpx.post(f"{server.url}/echo", content=body)
        assert (second.status_code, second.headers["retry-after"]) == (429, "2")
        held = "all organizations together use 900000 of the 1000000 bytes of bodies that may be received at once"
        assert held in second.text
        server.release.set()
        assert first.answer().status == 200
        wait_until(lambda: httpx.post(f"{server.url}/echo", content=body).status_code == 200, "room again", 60)


def test_an_organization_may_hold_as_many_bytes_of_bodies_as_it_leaves_free() -> None:
    def hold(organization: int, size: int) -> bytes:
        return post("/hold", f"X-Organization: {organization}", f"Content-Length: {size}") + b"a" * size

    with served(Bounds(), bodies_max_bytes=1_000_000) as server, ExitStack() as open_:
        first, second, third, other = (open_.enter_context(connected(server.url)) for _ in range(4))
        first.send(hold(1, 300_000))
        assert server.waiting.acquire(timeout=60)
        second.send(hold(1, 300_000))
        refused = second.answer()
        assert (refused.status, refused.headers["retry-after"]) == (429, "2")
        assert "your organization uses 300000 of the 1000000 bytes of bodies" in refused.text
        third.send(hold(1, 200_000))
        assert server.waiting.acquire(timeout=60)
        other.send(hold(2, 500_000))  # all that is left, for one that holds nothing
        assert server.waiting.acquire(timeout=60)
        server.release.set()
        assert [held.answer().text for held in (first, third, other)] == ["300000", "200000", "500000"]
        wait_until(lambda: httpx.post(f"{server.url}/echo", content=b"a" * 900_000).status_code == 200, "room", 60)


@BOTH
def test_a_body_that_the_server_does_not_read_is_not_slow(scheme: str) -> None:
    bounds = Bounds(body_seconds=0.2, body_min_bytes=1000)
    with served(bounds, scheme) as server, connected(server.url) as connection:
        connection.send(post("/wait", "Content-Length: 1000000") + b"a" * 100_000)
        assert server.waiting.acquire(timeout=60)
        # Sent before the server reads on, so that it is not this test that is slow then.
        with ThreadPoolExecutor(1) as pool:
            sent = pool.submit(connection.send, b"a" * 900_000)
            time.sleep(1)  # several times as long as a slow client has
            server.release.set()
            sent.result(60)
        assert connection.answer().text == "1000000"


def test_a_client_that_waits_for_100_continue_is_not_slow() -> None:
    bounds = Bounds(body_seconds=2, body_min_bytes=1000)  # after it, this test has as long to send three bytes
    with served(bounds) as server, connected(server.url) as connection:
        connection.send(post("/wait", "Content-Length: 3", "Expect: 100-continue"))
        assert server.waiting.acquire(timeout=60)
        time.sleep(2.5)
        server.release.set()
        assert connection.answer().status == 100
        connection.send(b"abc")
        assert connection.answer().text == "3"


def test_an_idle_connection_outlives_a_scrape_interval_and_not_much_more() -> None:
    """The default of every port: the API, OTLP over HTTP, and /metrics beside either."""
    assert Bounds().idle_seconds >= 75
    assert http_bounds(load_settings({})).idle_seconds == Bounds().idle_seconds
    with served(Bounds(idle_seconds=1)) as server, connected(server.url) as connection:
        connection.send(GET)
        assert connection.answer().status == 200
        assert connection.ended()


def endless(connection: Connection, head: bytes) -> int:
    """Send until the server takes no more; how many bytes it took."""
    sent = 0
    try:
        connection.send(head)
        while sent < 200 << 20:
            sent += connection.socket.send(b"a" * (1 << 16))
    except OSError:
        pass
    return sent


@BOTH
@pytest.mark.parametrize(
    "head",
    [
        b"GET /quick HTTP/1.1\r\nHost: x\r\nX-Large: ",
        b"GET /quick HTTP/1.1\r\nHost: x\r\n",
        b"GET /",
        post("/echo", "Transfer-Encoding: chunked") + b"1\r\na\r\n0\r\nX-Trailer: ",
        post("/echo", "Transfer-Encoding: chunked") + b"1\r\na\r\n1;x=",
    ],
    ids=["value", "name", "url", "trailer", "chunk extension"],
)
def test_a_head_without_end_is_refused_by_its_size(scheme: str, head: bytes) -> None:
    with served(Bounds(linger_seconds=0.5), scheme) as server, connected(server.url) as connection:
        connection.send(head + b"a" * (1 << 20))
        answer = connection.answer()
        assert answer.status in (414, 431)
        assert asked(server.url, GET).status == 200
        assert endless(connection, b"") < 200 << 20  # what still comes is dropped, and soon not even taken


def test_trailers_are_read_and_dropped() -> None:
    body = post("/headers", "Transfer-Encoding: chunked") + b"1\r\na\r\n0\r\nAuthorization: Bearer x\r\n\r\n"
    with served(Bounds()) as server, connected(server.url) as connection:
        connection.send(body)
        assert connection.answer().text == '["host","transfer-encoding"]'
        many = b"".join(b"X-%d: a\r\n" % number for number in range(101))
        connection.send(body.replace(b"Authorization: Bearer x\r\n", many))
        assert connection.answer().status == 431


def test_a_connection_beyond_the_last_is_refused_at_once_if_all_are_at_work() -> None:
    with served(Bounds(connections=3)) as server, ExitStack() as open_:
        busy = [open_.enter_context(connected(server.url)) for _ in range(3)]
        for connection in busy:
            connection.send(post("/wait", "Content-Length: 0"))
            assert server.waiting.acquire(timeout=60)
        for _ in range(5):
            with connected(server.url) as refused:
                answer = refused.answer()
                assert (answer.status, answer.headers["retry-after"]) == (503, "2")
                assert "http_max_connections" in answer.text
        server.release.set()
        assert [connection.answer().status for connection in busy] == [200] * 3
        assert asked(server.url, GET).status == 200


@BOTH
def test_a_connection_beyond_the_last_takes_the_place_of_an_idle_one(scheme: str) -> None:
    """Nobody locks others out by opening connections and leaving them."""
    with served(Bounds(connections=3), scheme) as server, ExitStack() as open_:
        busy, silent, idle = (open_.enter_context(connected(server.url)) for _ in range(3))
        busy.send(post("/wait", "Content-Length: 0"))
        assert server.waiting.acquire(timeout=60)
        silent.send(b"GET /quick")
        for _ in range(2):
            idle.send(GET)  # the last to have been of use
            assert idle.answer().status == 200
        assert asked(server.url, GET).status == 200
        assert silent.ended()
        for _ in range(10):
            assert asked(server.url, GET).status == 200
        server.release.set()
        assert busy.answer().status == 200


@BOTH
def test_a_connection_that_still_takes_its_answer_is_not_idle(scheme: str) -> None:
    with served(Bounds(connections=1), scheme) as server, connected(server.url) as reader:
        reader.send(GET.replace(b"quick", b"large"))
        reader.await_answer()
        with socket.create_connection(reader.socket.getpeername(), 60) as refused:
            assert refused.recv(12) == (b"HTTP/1.1 503" if scheme == "http" else b"")
        assert len(reader.answer().body) == LARGE


@BOTH
def test_what_is_announced_as_too_large_is_refused_before_it_comes(scheme: str) -> None:
    with served(Bounds(), scheme) as server, connected(server.url) as connection:
        connection.send(post("/echo", "Content-Length: 1048577"))
        answer = connection.answer()
        assert answer.status == 413
        assert "larger than 1048576 bytes (the limit of a test)" in answer.text
        connection.send(b"a" * 1048577)  # a client that sends it all the same can go on with the next request
        connection.send(GET)
        assert connection.answer().status == 200


@BOTH
def test_the_rest_of_an_answered_request_is_not_waited_for_long(scheme: str) -> None:
    with served(Bounds(linger_seconds=0.3), scheme) as server, connected(server.url) as connection:
        connection.send(post("/echo", "Content-Length: 1048577"))
        assert connection.answer().status == 413
        assert connection.ended()


@BOTH
def test_a_client_that_writes_first_and_reads_later_gets_its_answer(scheme: str) -> None:
    """20 MB refused by their announcement: many clients look at the answer only when all is written."""
    with served(Bounds(), scheme) as server:
        answer = httpx.post(f"{server.url}/echo", content=b"a" * 20_000_000, verify=throw_away().trust)
    assert answer.status_code == 413


@BOTH
def test_requests_in_a_row_are_bounded(scheme: str) -> None:
    with served(Bounds(), scheme) as server, connected(server.url) as connection:
        connection.send(GET * PIPELINE_MAX)
        assert [connection.answer().status for _ in range(PIPELINE_MAX)] == [200] * PIPELINE_MAX
        connection.send(post("/wait", "Content-Length: 0") + GET * (PIPELINE_MAX + 1))
        assert connection.ended()


def test_a_bad_request_behind_another_does_not_answer_it() -> None:
    with served(Bounds()) as server, connected(server.url) as connection:
        connection.send(post("/wait", "Content-Length: 0") + b"nonsense\r\n\r\n")
        assert connection.ended()


def test_a_request_that_a_stop_cuts_off_is_no_fault_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Else Ctrl-C during a long query shows a trace."""
    monkeypatch.setattr(server_module, "_DRAIN_SECONDS", 0.1)
    began = threading.Event()

    async def wait(_: Request) -> Response:
        began.set()
        await asyncio.sleep(600)
        return Response()

    server = HttpServer(build_app([Route("/", wait)]), bind("127.0.0.1", 0), lambda _: None)
    server.start()
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(httpx.get, server.url, timeout=60)
        assert began.wait(60)
        server.stop()
    assert answer.result().status_code == 503
    assert [record.getMessage() for record in caplog.records if record.name == "uvicorn.error"] == []
