"""The remote-write door over real HTTP. What it takes is kept in memory: to make it durable is the receiver's part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pyarrow as pa
import pytest

from lakerunner.api.app import build_app
from lakerunner.api.auth import Authenticator
from lakerunner.api.remote_write import PATHS, RemoteWriteApi, unsnapped
from lakerunner.api.server import HttpServer, bind
from lakerunner.model.errors import TooLarge, Unavailable, UserError
from lakerunner.model.organization import DEFAULT_ORGANIZATION, Organization
from lakerunner.pipeline.read.remote_write_check import check_message
from lakerunner.pipeline.read.wire import varint

V1 = "application/x-protobuf"
V2 = "application/x-protobuf;proto=io.prometheus.write.v2.Request"
MAX_BYTES = 10_000
# One series without labels: a sample at 1 ms, in both versions; 2.0 with an exemplar and a histogram beside it.
SAMPLE_V1 = b"\x0a\x04\x12\x02\x10\x01"
REQUEST_V2 = b"\x22\x00\x2a\x04\x12\x02\x10\x01\x2a\x04\x1a\x00\x22\x00"


@dataclass
class Kept:
    """What was taken; `error` is raised in its place."""

    taken: list[tuple[Organization, str, str, bytes]] = field(default_factory=list)
    error: Exception | None = None

    async def accept_soon(self, organization: Organization, signal: str, form: str, data: bytes) -> None:
        if self.error is not None:
            raise self.error
        self.taken.append((organization, signal, form, data))


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.fixture(scope="module")
def compiled() -> None:
    for version in (0, 1):
        check_message(b"", version)


@pytest.fixture
def url(kept: Kept, compiled: None) -> Iterator[str]:
    who = Authenticator(lambda key: DEFAULT_ORGANIZATION if key == "right" else None, None)
    api = RemoteWriteApi(kept, who, MAX_BYTES)  # type: ignore[arg-type]
    server = HttpServer(build_app(api.routes()), bind("127.0.0.1", 0), lambda _reason: None)
    server.start()
    yield server.url
    server.stop()


def post(url: str, message: bytes, kind: str = V1, path: str = PATHS[0], **headers: str) -> httpx.Response:
    block = pa.Codec("snappy").compress(message, asbytes=True)
    return send(url + path, block, {"content-type": kind, "content-encoding": "snappy", **headers})


def send(url: str, body: bytes, headers: dict[str, Any]) -> httpx.Response:
    return httpx.post(url, content=body, headers={"authorization": "Bearer right", **headers}, timeout=60)


@pytest.mark.parametrize("path", PATHS)
def test_a_request_of_1_0_is_kept_uncompressed(url: str, kept: Kept, path: str) -> None:
    answer = post(url, SAMPLE_V1, path=path)
    assert (answer.status_code, answer.content) == (204, b"")
    assert kept.taken == [(DEFAULT_ORGANIZATION, "metrics", "prw1", SAMPLE_V1)]


def test_a_request_of_2_0_is_told_what_was_written(url: str, kept: Kept) -> None:
    answer = post(url, REQUEST_V2, V2)
    assert answer.status_code == 204
    names = ("samples", "histograms", "exemplars")
    assert [answer.headers[f"x-prometheus-remote-write-{name}-written"] for name in names] == ["1", "1", "1"]
    assert [form for _, _, form, _ in kept.taken] == ["prw2"]


@pytest.mark.parametrize(
    ("kind", "encoding"),
    [
        ("application/json", "snappy"),
        ("application/x-protobuf;proto=io.prometheus.write.v3.Request", "snappy"),
        (V1, "zstd"),
        (V1, "gzip"),
    ],
)
def test_what_we_do_not_take_is_415(url: str, kept: Kept, kind: str, encoding: str) -> None:
    answer = post(url, SAMPLE_V1, kind, **{"content-encoding": encoding})
    assert answer.status_code == 415
    assert "send" in answer.json()["error"]["message"]
    assert kept.taken == []


def test_1_0_may_be_named_and_the_encoding_left_out(url: str) -> None:
    block = pa.Codec("snappy").compress(SAMPLE_V1, asbytes=True)
    kind = 'application/x-protobuf; proto="prometheus.WriteRequest"'
    assert send(url + PATHS[0], block, {"content-type": kind}).status_code == 204


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (pa.Codec("snappy").compress(b"\x0a\x05\x0a", asbytes=True), "byte 0: it holds a field that is longer"),
        (b"\x06garbage", "not a snappy block"),
        (b"\xff" * 9, "not a snappy block"),
        (b"", "not a snappy block"),
    ],
)
def test_bad_data_is_400_and_named(url: str, kept: Kept, body: bytes, reason: str) -> None:
    answer = send(url + PATHS[0], body, {"content-type": V1, "content-encoding": "snappy"})
    assert answer.status_code == 400
    assert reason in answer.json()["error"]["message"]
    assert kept.taken == []


def test_a_length_past_the_limit_is_refused_before_it_is_unpacked() -> None:
    assert unsnapped(pa.Codec("snappy").compress(bytes(MAX_BYTES), asbytes=True), MAX_BYTES) == bytes(MAX_BYTES)
    with pytest.raises(TooLarge):
        unsnapped(varint(MAX_BYTES + 1) + b"anything", MAX_BYTES)
    assert unsnapped(b"\0", MAX_BYTES) == b""


def test_bodies_past_the_limit_are_413(url: str) -> None:
    assert post(url, bytes(MAX_BYTES + 1)).status_code == 413
    assert send(url + PATHS[0], bytes(MAX_BYTES + 1), {"content-type": V1}).status_code == 413


def test_a_key_is_needed(url: str, kept: Kept) -> None:
    assert post(url, SAMPLE_V1, authorization="Bearer wrong").status_code == 401
    assert post(url, SAMPLE_V1, authorization="Basic dXNlcjpyaWdodA==").status_code == 204
    assert len(kept.taken) == 1


def test_what_may_pass_is_to_be_sent_again(url: str, kept: Kept) -> None:
    kept.error = Unavailable("the store is away")
    answer = post(url, SAMPLE_V1)
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) > 0
    kept.error = UserError("no")
    assert post(url, SAMPLE_V1).status_code == 400
