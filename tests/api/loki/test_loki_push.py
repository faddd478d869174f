"""Loki's push API as its clients use it: their headers and bodies, built here byte by byte."""

from __future__ import annotations

import gzip
import json
import time

import httpx
import pyarrow as pa
import pytest

from lakerunner.api.push.push_store import Origin
from lakerunner.api.push.receiver import check_all
from lakerunner.model.protobuf import DELIMITED, VARINT, delimited, tag, varint
from suites.doors import MAX_BYTES, Doors
from suites.pushed import ACME, OTHER, pushed_objects

pytestmark = pytest.mark.parametrize("address", ["local"], indirect=True)
ONE, TWO = tag(1, DELIMITED), tag(2, DELIMITED)
PUSH = "/loki/api/v1/push"


def push_request(labels: str, *lines: str) -> bytes:
    """logproto.PushRequest with one stream, the lines a nanosecond apart."""
    entries = b""
    for number, line in enumerate(lines):
        stamp = tag(1, VARINT) + varint(1_766_577_984) + tag(2, VARINT) + varint(1 + number)
        entries += delimited(TWO, delimited(ONE, stamp) + delimited(TWO, line.encode()))
    return delimited(ONE, delimited(ONE, labels.encode()) + entries)


def snappy(data: bytes) -> bytes:
    return bytes(pa.compress(data, "snappy", asbytes=True))


def post(doors: Doors, body: bytes, path: str = PUSH, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    sent = {"authorization": "Bearer lrk_acme"} | named
    return httpx.post(doors.url + path, content=body, headers=sent, timeout=60)


STREAM = push_request('{job="varlogs", host="a"}', "one", "two")
FLUENT_BIT = (
    b'{"streams":[{"stream":{"job":"fluent-bit"},"values":[["1766577984449000001","{\\"log\\":\\"hello\\"}"]]}]}'
)
PROMTAIL_HEADERS = {
    "content_type": "application/x-protobuf",
    "user_agent": "promtail/3.5.0",
    "x_scope_orgid": ACME.name,
}
FLUENT_BIT_HEADERS = {"content_type": "application/json", "user_agent": "Fluent-Bit", "x_scope_orgid": str(OTHER.id)}


@pytest.mark.parametrize("path", [PUSH, "/api/prom/push"])
def test_promtail(doors: Doors, path: str) -> None:
    for _ in range(2):
        answer = post(doors, snappy(STREAM), path, **PROMTAIL_HEADERS)
        assert (answer.status_code, answer.content) == (204, b"")
    ((key, data),) = pushed_objects(doors.store).items()
    assert key.startswith(f"otel-raw/{ACME.id}/loki/")  # the key's organization, whatever the tenant header says
    assert key.endswith(".lokipb.zst")
    assert data == bytes([len(STREAM)]) + STREAM
    (record,) = doors.index.sources.list(None)
    assert (record.source.key, record.collector, record.signal) == (key, "loki", "logs")


@pytest.mark.parametrize("packed", [False, True])
def test_fluent_bit(doors: Doors, packed: bool) -> None:
    body = gzip.compress(FLUENT_BIT) if packed else FLUENT_BIT
    headers = FLUENT_BIT_HEADERS | ({"content_encoding": "gzip"} if packed else {})
    basic = httpx.BasicAuth("anyone", "lrk_other")
    answer = httpx.post(
        doors.url + PUSH,
        content=body,
        headers={name.replace("_", "-"): value for name, value in headers.items()},
        auth=basic,
        timeout=60,
    )
    assert (answer.status_code, answer.content) == (204, b"")
    ((key, data),) = pushed_objects(doors.store).items()
    assert key.startswith(f"otel-raw/{OTHER.id}/loki/")
    assert key.endswith(".lokijson.zst")
    assert data == bytes([len(FLUENT_BIT)]) + FLUENT_BIT


def test_snappy_by_name_gzip_around_it_and_json_with_metadata(doors: Doors) -> None:
    kinds = {"content_type": "application/x-protobuf"}
    assert post(doors, snappy(STREAM), content_encoding="snappy", **kinds).status_code == 204
    assert post(doors, gzip.compress(snappy(STREAM)), content_encoding="gzip", **kinds).status_code == 204
    assert len(pushed_objects(doors.store)) == 1  # the same request three times
    value = ["1766577984449000001", "line", {"trace_id": "ab" * 16}]
    body = json.dumps({"streams": [{"stream": {"app": "x"}, "values": [value]}]}).encode()
    assert post(doors, body, content_type="application/json; charset=utf-8").status_code == 204
    assert len(pushed_objects(doors.store)) == 2


def test_a_push_without_streams_is_no_error(doors: Doors) -> None:
    assert post(doors, snappy(b""), content_type="application/x-protobuf").status_code == 204
    assert post(doors, b'{"streams": []}', content_type="application/json").status_code == 204


@pytest.mark.parametrize(
    ("body", "headers", "status", "words"),
    [
        (b"{", {"content_type": "application/json"}, 400, "message at byte 0"),
        (b"[]", {"content_type": "application/json"}, 400, "an object with a list of streams"),
        (b'{"streams":[{"values":[["x","y"]]}]}', {"content_type": "application/json"}, 400, "stream 0, value 0"),
        (snappy(b"\xff\xff"), {"content_type": "application/x-protobuf"}, 400, "not a Loki push request"),
        (snappy(push_request("job=x", "a")), {"content_type": "application/x-protobuf"}, 400, "do not start with"),
        (STREAM, {"content_type": "application/x-protobuf"}, 400, "cannot read the snappy body"),
        (snappy(bytes(MAX_BYTES + 1)), {"content_type": "application/x-protobuf"}, 413, "request_max_bytes"),
        (b"x", {"content_type": "text/plain"}, 400, "content-type 'text/plain' is not one of Loki's"),
        (FLUENT_BIT, {"content_type": "application/json", "authorization": "Bearer wrong"}, 401, "unknown or revoked"),
    ],
)
def test_what_is_wrong_is_refused_in_plain_text(
    doors: Doors, body: bytes, headers: dict[str, str], status: int, words: str
) -> None:
    answer = post(doors, body, **headers)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "text/plain; charset=utf-8")
    assert words in answer.text
    assert pushed_objects(doors.store) == {}


LABELS = '{job="a"}'
OLDEST = 946_684_800 * 10**9  # 2000-01-01
NOW = 1_794_916_800 * 10**9  # 2026-11-17T12:00:00Z


@pytest.mark.usefixtures("address")
@pytest.mark.parametrize(
    ("ns", "words"),
    [
        (NOW + 600 * 10**9, ""),
        (NOW + 600 * 10**9 + 1, "has timestamp too new: 2026-11-17T12:10:00.000000001Z"),
        (2**63, f"has timestamp too new: {2**63} ns"),
        (OLDEST, ""),
        (OLDEST - 1, "has timestamp too old: 1999-12-31T23:59:59.999999999Z, oldest acceptable timestamp is: 2000-"),
        (0, "has timestamp too old: 1970-"),
    ],
)
def test_a_time_that_is_probably_wrong_is_refused_in_the_words_of_loki(ns: int, words: str) -> None:
    seconds, nanos = divmod(ns, 10**9)
    stamp = tag(1, VARINT) + varint(seconds) + tag(2, VARINT) + varint(nanos)
    entry = delimited(TWO, delimited(ONE, stamp) + delimited(TWO, b"a"))
    bodies = {
        "lokipb": delimited(ONE, delimited(ONE, LABELS.encode()) + entry),
        "lokijson": json.dumps({"streams": [{"stream": {"job": "a"}, "values": [[str(ns), "a"]]}]}).encode(),
    }
    for form, body in bodies.items():
        _, refused = check_all(Origin(ACME.id, "logs", form), {b"x": body}, NOW)
        assert (b"x" in refused) == bool(words)
        if words:
            assert str(refused[b"x"]).startswith(f"entry for stream '{LABELS}' {words}")


def test_a_push_of_tomorrow_is_refused_whole(doors: Doors) -> None:
    times = [time.time_ns(), time.time_ns() + 86_400 * 10**9]
    push = {"streams": [{"stream": {"job": "a"}, "values": [[str(ns), "line"] for ns in times]}]}
    answer = post(doors, json.dumps(push).encode(), content_type="application/json")
    assert answer.status_code == 400
    assert answer.text.startswith(f"entry for stream '{LABELS}' has timestamp too new: 2")
    assert pushed_objects(doors.store) == {}


def test_one_bad_push_does_not_spoil_its_neighbours(doors: Doors) -> None:
    doors.hold()
    good = doors.receiver.offer(ACME, "logs", "lokijson", FLUENT_BIT)
    bad = doors.receiver.offer(ACME, "logs", "lokijson", b"{")
    doors.release()
    assert good.result(30) is None
    assert bad.exception(30) is not None
    (data,) = pushed_objects(doors.store).values()
    assert data == bytes([len(FLUENT_BIT)]) + FLUENT_BIT


def test_beyond_what_may_wait_the_answer_is_429(doors: Doors) -> None:
    doors.hold()
    waiting = [doors.offer(line) for line in ("a", "b")]
    answer = post(doors, FLUENT_BIT, content_type="application/json")
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "2")
    doors.release()
    for item in waiting:
        item.result(30)


def test_another_organizations_tenant_is_refused(doors: Doors) -> None:
    body = b'{"streams": [{"stream": {"a": "b"}, "values": [["1700000000000000000", "x"]]}]}'
    for tenant, status in ((ACME.name, 204), (str(ACME.id), 204), (OTHER.name, 403)):
        headers = {"content-type": "application/json", "authorization": "Bearer lrk_acme", "x-scope-orgid": tenant}
        answer = httpx.post(f"{doors.url}/loki/api/v1/push", content=body, headers=headers)
        assert (answer.status_code, tenant) == (status, tenant)
