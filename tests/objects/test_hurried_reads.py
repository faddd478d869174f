"""A store that is away is waited for once; whoever reads it is told, and reads it as soon as it is back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from lakerunner.model.errors import Absent, Unavailable
from lakerunner.objects.open import HurryingStore, StoreAddress, open_store

RETRIES = 2
NOT_THERE = b"<?xml version='1.0'?><Error><Code>NoSuchKey</Code><Message>no</Message></Error>"


@dataclass
class S3:
    """Answers every read with the same bytes, or with `status`; counts requests."""

    status: int = 206
    asked: list[str] = field(default_factory=list)

    def handler(self) -> type[BaseHTTPRequestHandler]:
        s3 = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                s3.asked.append(self.path)
                body = b"rows" if s3.status == 206 else NOT_THERE if s3.status == 404 else b""
                self.send_response(s3.status)
                if s3.status == 206:
                    self.send_header("content-range", "bytes 0-3/4")
                    self.send_header("last-modified", "Thu, 01 Jan 2026 00:00:00 GMT")
                    self.send_header("etag", '"e"')
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        return Handler

    def requests(self) -> int:
        """Since this was asked last."""
        count = len(self.asked)
        self.asked.clear()
        return count


@pytest.fixture
def s3() -> S3:
    return S3()


@pytest.fixture
def store(s3: S3) -> Iterator[HurryingStore]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), s3.handler())
    threading.Thread(target=server.serve_forever, daemon=True).start()
    options = {
        "endpoint": f"http://127.0.0.1:{server.server_port}",
        "region": "r",
        "access_key_id": "a",
        "secret_access_key": "s",
        "allow_http": "true",
    }
    made = [open_store(StoreAddress("s3://lake", tuple(options.items()), retries)) for retries in (RETRIES, 0)]
    yield HurryingStore(made[0], made[1])
    server.shutdown()
    server.server_close()


def read(store: HurryingStore) -> bytes:
    return bytes(store.get_range("db/a", 0, 4))


def test_it_is_waited_for_once_and_found_when_it_is_back(s3: S3, store: HurryingStore) -> None:
    assert (read(store), s3.requests()) == (b"rows", 1)
    s3.status = 503
    for requests in (1 + RETRIES, 1, 1):
        with pytest.raises(Unavailable, match=r"the object store cannot read 'db/a': .*503"):
            read(store)
        assert s3.requests() == requests
    s3.status = 206
    assert (read(store), s3.requests()) == (b"rows", 1)
    s3.status = 503
    with pytest.raises(Unavailable):
        read(store)
    assert s3.requests() == 1 + RETRIES


def test_an_object_that_is_absent_says_nothing_of_the_store(s3: S3, store: HurryingStore) -> None:
    s3.status = 404
    with pytest.raises(Absent):
        read(store)
    s3.requests()
    s3.status = 503
    with pytest.raises(Unavailable):
        read(store)
    assert s3.requests() == 1 + RETRIES
