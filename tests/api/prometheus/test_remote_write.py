"""The remote-write door over real HTTP, in front of a real receiver, index and store."""

from __future__ import annotations

from typing import Any

import httpx
import pyarrow as pa
import pytest

from lakerunner.api.body import BodyLimit
from lakerunner.api.push.http_doors import WRITE_PATHS, unsnapped
from lakerunner.model.errors import TooLarge
from lakerunner.pipeline.read.wire import varint
from suites.doors import MAX_BYTES, Doors
from suites.pushed import ACME, OTHER, pushed_objects

pytestmark = pytest.mark.parametrize("address", ["local"], indirect=True)
V1 = "application/x-protobuf"
V2 = "application/x-protobuf;proto=io.prometheus.write.v2.Request"
# One series without labels: a sample at 1 ms, in both versions; 2.0 with an exemplar and a histogram beside it.
SAMPLE_V1 = b"\x0a\x04\x12\x02\x10\x01"
REQUEST_V2 = b"\x22\x00\x2a\x04\x12\x02\x10\x01\x2a\x04\x1a\x00\x22\x00"


def snappy(message: bytes) -> bytes:
    return bytes(pa.Codec("snappy").compress(message, asbytes=True))


def post(doors: Doors, message: bytes, kind: str = V1, path: str = WRITE_PATHS[0], **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return send(doors, snappy(message), {"content-type": kind, "content-encoding": "snappy", **named}, path)


def send(doors: Doors, body: bytes, headers: dict[str, Any], path: str = WRITE_PATHS[0]) -> httpx.Response:
    return httpx.post(
        doors.url + path, content=body, headers={"authorization": "Bearer lrk_acme", **headers}, timeout=60
    )


@pytest.mark.parametrize("path", WRITE_PATHS)
def test_a_request_of_1_0_is_kept_uncompressed_and_once(doors: Doors, path: str) -> None:
    for _ in range(2):
        answer = post(doors, SAMPLE_V1, path=path)
        assert (answer.status_code, answer.content) == (204, b"")
    ((key, data),) = pushed_objects(doors.store).items()
    assert key.startswith(f"otel-raw/{ACME.id}/prometheus/")
    assert key.endswith(".prw1.zst")
    assert data == varint(len(SAMPLE_V1)) + SAMPLE_V1
    (record,) = doors.index.sources.list(None)
    assert (record.source.key, record.collector, record.signal) == (key, "prometheus", "metrics")


def test_a_request_of_2_0_is_told_what_was_written_also_the_second_time(doors: Doors) -> None:
    for _ in range(2):
        answer = post(doors, REQUEST_V2, V2)
        assert answer.status_code == 204
        names = ("samples", "histograms", "exemplars")
        assert [answer.headers[f"x-prometheus-remote-write-{name}-written"] for name in names] == ["1", "1", "1"]
    ((key, data),) = pushed_objects(doors.store).items()
    assert key.endswith(".prw2.zst")
    assert data == varint(len(REQUEST_V2)) + REQUEST_V2


@pytest.mark.parametrize(
    ("kind", "encoding"),
    [
        ("application/json", "snappy"),
        ("application/x-protobuf;proto=io.prometheus.write.v3.Request", "snappy"),
        (V1, "zstd"),
        (V1, "gzip"),
    ],
)
def test_what_we_do_not_take_is_415(doors: Doors, kind: str, encoding: str) -> None:
    answer = post(doors, SAMPLE_V1, kind, content_encoding=encoding)
    assert answer.status_code == 415
    assert "send" in answer.json()["error"]["message"]
    assert pushed_objects(doors.store) == {}


def test_1_0_may_be_named_and_the_encoding_left_out(doors: Doors) -> None:
    kind = 'application/x-protobuf; proto="prometheus.WriteRequest"'
    assert send(doors, snappy(SAMPLE_V1), {"content-type": kind}).status_code == 204
    assert [data[1:] for data in pushed_objects(doors.store).values()] == [SAMPLE_V1]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (snappy(b"\x0a\x05\x0a"), "byte 0: it has a field that is longer"),
        (b"\x06garbage", "not a snappy block"),
        (b"\xff" * 9, "not a snappy block"),
        (b"", "not a snappy block"),
    ],
)
def test_bad_data_is_400_and_named(doors: Doors, body: bytes, reason: str) -> None:
    answer = send(doors, body, {"content-type": V1, "content-encoding": "snappy"})
    assert answer.status_code == 400
    assert reason in answer.json()["error"]["message"]
    assert "retry-after" not in answer.headers
    assert pushed_objects(doors.store) == {}


def test_bodies_past_the_limit_are_413(doors: Doors) -> None:
    """Packed or unpacked; the length that the block states is looked at before it is unpacked."""
    unknown = b"\x7a" + varint(MAX_BYTES - 4)  # a field of this length, which nobody knows
    fits = unknown + bytes(MAX_BYTES - len(unknown))
    assert post(doors, fits).status_code == 204
    assert post(doors, fits + b"\0").status_code == 413
    assert send(doors, bytes(MAX_BYTES + 1), {"content-type": V1}).status_code == 413
    with pytest.raises(TooLarge):
        unsnapped(varint(MAX_BYTES + 1) + b"anything", BodyLimit(MAX_BYTES, "a setting"))
    assert unsnapped(b"\0", BodyLimit(MAX_BYTES, "a setting")) == b""


def test_a_key_is_needed_and_says_whose_samples_these_are(doors: Doors) -> None:
    assert post(doors, SAMPLE_V1, authorization="Bearer wrong").status_code == 401
    assert pushed_objects(doors.store) == {}
    basic = httpx.BasicAuth("anyone", "lrk_other")
    answer = httpx.post(
        doors.url + WRITE_PATHS[0], content=snappy(SAMPLE_V1), headers={"content-type": V1}, auth=basic, timeout=60
    )
    assert answer.status_code == 204
    assert [key.split("/")[1] for key in pushed_objects(doors.store)] == [str(OTHER.id)]


def test_beyond_what_may_wait_the_answer_is_429_and_later_204(doors: Doors) -> None:
    doors.hold()
    waiting = [doors.offer(line) for line in ("a", "b")]
    for message, kind in ((SAMPLE_V1, V1), (REQUEST_V2, V2)):
        answer = post(doors, message, kind)
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "2")
        assert "your organization uses 2 of the 4 requests that may wait" in answer.json()["error"]["message"]
        assert "x-prometheus-remote-write-samples-written" not in answer.headers
    doors.release()
    for item in waiting:
        item.result(30)
    assert [post(doors, SAMPLE_V1).status_code, post(doors, REQUEST_V2, V2).status_code] == [204, 204]
    kinds = sorted(key.split(".", 1)[1] for key in pushed_objects(doors.store))
    assert kinds[-2:] == ["prw1.zst", "prw2.zst"]


def test_without_an_index_or_while_it_stops_the_answer_is_503(doors: Doors) -> None:
    doors.index.close()
    away = post(doors, SAMPLE_V1)
    doors.receiver.stop()
    for answer in (away, post(doors, REQUEST_V2, V2)):
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
