"""OTLP over HTTP on a real index and store: encodings, refusals, what may be sent again."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import pyarrow as pa
import pytest
from google.rpc.status_pb2 import Status

from lakerunner.model.signal import SIGNALS
from servers.lake import wait_until
from suites.doors import MAX_BYTES, Doors
from suites.pushed import pushed_lines, pushed_objects
from suites.requests import request_of

pytestmark = pytest.mark.parametrize("address", ["local"], indirect=True)
PROTOBUF, JSON = "application/x-protobuf", "application/json"


def zstd(data: bytes) -> bytes:
    return bytes(pa.compress(data, "zstd", asbytes=True))


def snappy(data: bytes) -> bytes:
    return bytes(pa.compress(data, "snappy", asbytes=True))


PACKINGS: dict[str, Callable[[bytes], bytes]] = {
    "identity": bytes,
    "gzip": gzip.compress,
    "zstd": zstd,
    "snappy": snappy,
}


def post(doors: Doors, body: bytes, signal: str = "logs", kind: str = PROTOBUF, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    sent = {"content-type": kind, "authorization": "Bearer lrk_acme"} | named
    return httpx.post(f"{doors.url}/v1/{signal}", content=body, headers=sent, timeout=60)


@pytest.mark.parametrize("packing", sorted(PACKINGS))
def test_protobuf_in_every_packing_is_the_same_request(doors: Doors, packing: str) -> None:
    for name in ("identity", packing):
        answer = post(doors, PACKINGS[name](request_of("a")), content_encoding=name)
        assert (answer.status_code, answer.content, answer.headers["content-type"]) == (200, b"", PROTOBUF)
    assert list(pushed_objects(doors.store).values()) == [request_of("a")]


def test_json_is_stored_as_protobuf(doors: Doors) -> None:
    record = {"timeUnixNano": "1766577984449000001", "body": {"stringValue": "a"}, "traceId": "ab" * 16}
    body = json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]}).encode()
    answer = post(doors, body, kind=f"{JSON}; charset=utf-8")
    assert (answer.status_code, answer.content, answer.headers["content-type"]) == (200, b"{}", JSON)
    assert pushed_lines(doors.store) == {"a": 1}


@pytest.mark.parametrize(
    ("signal", "body", "headers", "status", "words"),
    [
        ("logs", b"\xff\xff", {}, 400, "not an OTLP logs request"),
        ("logs", b"x", {"kind": "text/plain"}, 400, "content-type 'text/plain' is not OTLP"),
        ("logs", b"x", {"content_encoding": "gzip"}, 400, "cannot read the gzip body"),
        (
            "logs",
            gzip.compress(request_of("a"), mtime=0)[:-5],
            {"content_encoding": "gzip"},
            400,
            "cannot read the gzip body",
        ),
        ("logs", b"junk", {"content_encoding": "zstd"}, 400, "cannot read the zstd body"),
        ("logs", zstd(request_of("a"))[:-2], {"content_encoding": "zstd"}, 400, "cannot read the zstd body"),
        ("logs", b"\xff\xff\xff", {"content_encoding": "snappy"}, 400, "cannot read the snappy body"),
        ("logs", b"\x90\x4ejunk", {"content_encoding": "snappy"}, 400, "cannot hold the stated 10000"),
        ("logs", b"x", {"content_encoding": "br"}, 400, "send gzip, zstd, snappy or none"),
        ("logs", b"x" * (MAX_BYTES + 1), {}, 413, "request_max_bytes"),
        ("logs", gzip.compress(bytes(MAX_BYTES + 1), mtime=0), {"content_encoding": "gzip"}, 413, "request_max_bytes"),
        ("logs", zstd(bytes(MAX_BYTES + 1)), {"content_encoding": "zstd"}, 413, "request_max_bytes"),
        ("logs", snappy(bytes(MAX_BYTES + 1)), {"content_encoding": "snappy"}, 413, "request_max_bytes"),
        ("logs", request_of("a"), {"authorization": "Bearer wrong"}, 401, "unknown or revoked"),
        ("logs", request_of("a"), {"authorization": ""}, 401, "API key required"),
        ("profiles", b"x", {}, 400, "unknown signal 'profiles'"),
    ],
)
def test_what_is_wrong_is_refused_and_not_to_be_sent_again(
    doors: Doors, signal: str, body: bytes, headers: dict[str, str], status: int, words: str
) -> None:
    answer = post(doors, body, signal, **headers)
    assert answer.status_code == status
    assert words in Status.FromString(answer.content).message
    assert "retry-after" not in answer.headers
    assert pushed_objects(doors.store) == {}


@pytest.mark.parametrize("signal", sorted(SIGNALS))
def test_the_door_is_open_for_every_signal(doors: Doors, signal: str) -> None:
    answer = post(doors, b"\x0a\x00", signal)
    assert answer.status_code == 200
    assert [key.split("/")[-1].split("_")[0] for key in pushed_objects(doors.store)] == [signal]


def test_beyond_its_share_of_what_may_wait_an_organization_gets_429_and_others_do_not(doors: Doors) -> None:
    doors.hold()
    waiting = [doors.offer(line) for line in ("a", "b")]
    for kind, body in ((PROTOBUF, request_of("c")), (JSON, b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[{}]}]}]}')):
        answer = post(doors, body, kind=kind)
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "2")
        assert (
            b"your organization uses 2 of the 4 requests that may wait to be stored (push_max_waiting_requests)"
            in answer.content
        )
    assert post(doors, request_of("a"), authorization="Bearer lrk_other").status_code == 200
    assert not any(item.done() for item in waiting)
    doors.release()
    for item in waiting:
        item.result(30)
    assert post(doors, request_of("c")).status_code == 200
    assert pushed_lines(doors.store) == {"a": 2, "b": 1, "c": 1}


def test_a_body_counts_for_the_organization_whose_key_came_with_it(doors: Doors) -> None:
    doors.hold()
    bodies = [request_of(letter * 90_000) for letter in "abc"]
    held = sum(map(len, bodies[:2]))
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(post, doors, body) for body in bodies[:2]]
        wait_until(lambda: len(doors.receiver._answers) == 2, "two requests that wait", 60)
        for path in ("/v1/logs", "/loki/api/v1/push", "/api/v1/write"):
            headers = {"content-type": PROTOBUF, "authorization": "Bearer lrk_acme"}
            answer = httpx.post(doors.url + path, content=bodies[2], headers=headers, timeout=60)
            assert answer.status_code == 429
            assert f"your organization uses {held} of the {4 * MAX_BYTES} bytes of bodies" in answer.text
        assert post(doors, bodies[2], authorization="Bearer lrk_other").status_code == 200
        doors.release()
        assert [item.result().status_code for item in waiting] == [200, 200]


def test_without_an_index_or_while_it_stops_the_answer_is_503(doors: Doors) -> None:
    doors.index.close()
    away = post(doors, request_of("a"))
    doors.receiver.stop()
    stopping = post(doors, request_of("b"))
    for answer in (away, stopping):
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
    assert "stopping" in Status.FromString(stopping.content).message
