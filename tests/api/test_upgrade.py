"""Clients that offer HTTP/2 with their first request (curl --http2, Java's HttpClient): it is served as HTTP/1.1, and
its body counts."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from starlette.requests import Request

from lakerunner.api.body import BodyLimit, read_body, read_sent
from lakerunner.model.errors import UserError
from suites.open_api import OpenApi, open_api
from suites.pushed import pushed_objects
from suites.raw_http import Answer, asked, connected
from suites.requests import TIME_NS, request_of

UPGRADE = {
    "Connection": "Upgrade, HTTP2-Settings",
    "Upgrade": "h2c",
    "HTTP2-Settings": "AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA",
}
Read = Callable[[Request, BodyLimit], Coroutine[Any, Any, bytes]]
PROTOBUF, JSON = "application/x-protobuf", "application/json"
CLIENT = Path(__file__).resolve().parent / "UpgradingClient.java"


@pytest.fixture(scope="module")
def api(embedded_postgres_url: str, tmp_path_factory: pytest.TempPathFactory, warmed: None) -> Iterator[OpenApi]:
    with open_api(embedded_postgres_url, tmp_path_factory.mktemp("upgrade")) as opened:
        yield opened


def metrics(name: str) -> bytes:
    made = ExportMetricsServiceRequest()
    point = made.resource_metrics.add().scope_metrics.add().metrics.add(name=name).gauge.data_points.add()
    point.time_unix_nano, point.as_int = TIME_NS, 1
    return made.SerializeToString()


def traces(name: str) -> bytes:
    made = ExportTraceServiceRequest()
    span = made.resource_spans.add().scope_spans.add().spans.add(name=name, trace_id=b"t" * 16, span_id=b"s" * 8)
    span.start_time_unix_nano = span.end_time_unix_nano = TIME_NS
    return made.SerializeToString()


def series(name: str) -> bytes:
    """A remote-write 1.0 request with one sample."""
    label = b"\x0a\x08__name__\x12" + bytes([len(name)]) + name.encode()
    sample = b"\x09" + bytes(8) + b"\x10\x01"
    whole = b"\x0a" + bytes([len(label)]) + label + b"\x12" + bytes([len(sample)]) + sample
    return bytes(pa.compress(b"\x0a" + bytes([len(whole)]) + whole, "snappy", asbytes=True))


def loki(line: str) -> bytes:
    return json.dumps({"streams": [{"stream": {"a": "b"}, "values": [[str(TIME_NS), line]]}]}).encode()


# Which server, path, content type, a body that holds this word, and the status of the answer; stored, if it is a push.
DOORS: dict[str, tuple[Any, ...]] = {
    "otlp logs": ("api", "/v1/logs", PROTOBUF, request_of, 200, True),
    "otlp metrics": ("api", "/v1/metrics", PROTOBUF, metrics, 200, True),
    "otlp traces": ("api", "/v1/traces", PROTOBUF, traces, 200, True),
    "otlp port logs": ("otlp", "/v1/logs", PROTOBUF, request_of, 200, True),
    "otlp port metrics": ("otlp", "/v1/metrics", PROTOBUF, metrics, 200, True),
    "otlp port traces": ("otlp", "/v1/traces", PROTOBUF, traces, 200, True),
    "remote write": ("api", "/api/v1/write", PROTOBUF, series, 204, True),
    "loki": ("api", "/loki/api/v1/push", JSON, loki, 204, True),
    "sql": ("api", "/api/v1/sql", JSON, lambda word: b'{"query": "select \'%s\' as word"}' % word.encode(), 200, False),
    "events": ("api", "/api/v1/events/s3", JSON, lambda word: b'{"Records": [{"%s": 1}]}' % word.encode(), 400, False),
    "worker": ("worker", "/internal/v1/run", JSON, lambda word: b'{"%s": 1}' % word.encode(), 422, False),
}


def url_of(api: OpenApi, server: str) -> str:
    return {"api": api.url, "otlp": api.otlp_url, "worker": api.worker_url}[server]


def head(path: str, **headers: str) -> bytes:
    named = {"Host": "localhost", **{name.replace("_", "-"): value for name, value in headers.items()}}
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in named.items())]
    return "\r\n".join((*lines, "", "")).encode()


def stored(api: OpenApi) -> bytes:
    return b"\n".join(pushed_objects(api.store).values())


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("framing", ["length", "chunks", "slowly"])
def test_every_door_reads_the_body_of_an_upgrade(api: OpenApi, door: str, framing: str) -> None:
    server, path, kind, body_with, status, is_push = DOORS[door]
    word = f"up_{door.replace(' ', '_')}_{framing}"
    body = body_with(word)
    if framing == "chunks":
        sent = head(path, Content_Type=kind, Transfer_Encoding="chunked", **UPGRADE)
        sent += b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    else:
        sent = head(path, Content_Type=kind, Content_Length=str(len(body)), **UPGRADE) + body
    with connected(url_of(api, server)) as connection:
        if framing == "slowly":
            for place in range(0, len(sent), 40):
                connection.send(sent[place : place + 40])
        else:
            connection.send(sent)
        answer = connection.answer()
        connection.send(head("/api/v1/nothing", Content_Length="0"))  # and the connection speaks HTTP/1.1 from there on
        assert connection.answer().status == 404
    assert answer.status == status, answer.text
    if is_push:
        assert word.encode() in stored(api)
    plain = httpx.post(url_of(api, server) + path, content=body, headers={"content-type": kind})
    assert plain.status_code == status
    if not is_push:
        assert word in answer.text or status != 200
        assert status == 200 or answer.body == plain.content  # which names what is wrong with the body


def test_requests_in_a_row_may_all_be_upgrades(api: OpenApi) -> None:
    bodies = [request_of(f"row {number}") for number in range(5)]
    with connected(api.otlp_url) as connection:
        sent = [
            head("/v1/logs", Content_Type=PROTOBUF, Content_Length=str(len(one)), **UPGRADE) + one for one in bodies
        ]
        connection.send(b"".join(sent))
        assert [connection.answer().status for _ in sent] == [200] * 5
    assert all(f"row {number}".encode() in stored(api) for number in range(5))


def test_an_http_2_preface_is_refused(api: OpenApi) -> None:
    assert asked(api.url, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").status == 400


def upgraded_by_curl(url: str, body: Path) -> Answer:
    arguments = ["-s", "-o", "/dev/null", "-w", "%{http_code}", "-H", f"content-type: {PROTOBUF}"]
    done = subprocess.run(
        ["curl", "--http2", *arguments, "--data-binary", f"@{body}", url],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return Answer(int(done.stdout), {}, b"")


def test_curl_with_http2(api: OpenApi, tmp_path: Path) -> None:
    curl = shutil.which("curl")
    if not curl or "HTTP2" not in subprocess.run([curl, "-V"], capture_output=True, text=True, check=True).stdout:
        pytest.skip("no curl that speaks HTTP/2 is installed")
    body = tmp_path / "logs.binpb"
    body.write_bytes(request_of("by curl"))
    assert upgraded_by_curl(f"{api.otlp_url}/v1/logs", body).status == 200
    assert b"by curl" in stored(api)


@pytest.mark.timeout(300)
def test_javas_http_client(api: OpenApi, tmp_path: Path) -> None:
    """Its default is HTTP/2, which it offers with its first request to a server."""
    java = shutil.which("java")
    if not java or not shutil.which("javac"):
        pytest.skip("no JDK is installed: java and javac are not both on the PATH")
    wanted = []
    for number, (door, (server, path, kind, body_with, status, _is_push)) in enumerate(DOORS.items()):
        body = tmp_path / str(number)
        body.write_bytes(body_with(f"java_{door.replace(' ', '_')}"))
        wanted.append((url_of(api, server) + path, kind, str(body), status))
    arguments = [part for url, kind, body, _ in wanted for part in (url, kind, body)]
    done = subprocess.run(
        [java, "-XX:TieredStopAtLevel=1", str(CLIENT), *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [int(line) for line in done.stdout.split()] == [status for *_, status in wanted]
    for door, (*_, is_push) in DOORS.items():
        if is_push:
            assert f"java_{door.replace(' ', '_')}".encode() in stored(api), door


@pytest.mark.parametrize("announced", ["1", "9"])
@pytest.mark.parametrize("read", [read_sent, read_body])
def test_a_body_that_is_not_as_long_as_announced_is_refused(announced: str, read: Read) -> None:
    """Whichever server loses it on its way."""

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b"abc", "more_body": False}

    scope = {"type": "http", "method": "POST", "headers": [(b"content-length", announced.encode())]}
    request = Request(scope, receive)
    with pytest.raises(UserError, match=f"the body has 3 bytes, Content-Length is {announced}"):
        asyncio.run(read(request, BodyLimit(100, "a limit")))
