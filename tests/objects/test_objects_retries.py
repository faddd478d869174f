"""Stores that fail, by a loopback server that answers as each test tells it."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from lakerunner.model.errors import Absent, Conflict, TooLarge, Unavailable, full_message
from lakerunner.objects.open import StoreAddress, open_store
from lakerunner.objects.store import ObjectStore

RETRIES = 3
HEADERS = {"ETag": '"mark"', "Last-Modified": "Sun, 15 Nov 2026 10:00:00 GMT"}


@dataclass(frozen=True)
class Answer:
    """`claimed` is the length the header states, if not that of the body."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    claimed: int | None = None


@dataclass
class Loopback:
    """`answer` is asked for each request, with its method and path; `requests` are those that came."""

    url: str = ""
    answer: Callable[[str, str], Answer] = lambda method, path: Answer()
    requests: list[str] = field(default_factory=list)

    def answers(self, *answers: Answer) -> None:
        """These in turn, and the last one from then on."""
        self.answer = lambda method, path: answers[min(len(self.requests), len(answers)) - 1]

    def store(self, scheme: str = "s3", **options: str) -> ObjectStore:
        google = {"private_key": "", "private_key_id": "", "client_email": "", "disable_oauth": True}
        config = {
            "s3": {"endpoint": self.url, "access_key_id": "key", "secret_access_key": "secret"},
            "gs": {"service_account_key": json.dumps({**google, "gcs_base_url": self.url})},
            "az": {"endpoint": self.url, "account_name": "account", "sas_key": "sv=1&sig=secret"},
        }[scheme]
        given = (*config.items(), ("allow_http", "true"), *options.items())
        return open_store(StoreAddress(f"{scheme}://lake", given, RETRIES, 30.0))


@pytest.fixture
def loopback() -> Iterator[Loopback]:
    told = Loopback()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            told.requests.append(f"{self.command} {self.path.partition('?')[0]}")
            answer = told.answer(self.command, self.path)
            self.close_connection = answer.claimed is not None
            with suppress(ConnectionError):  # the client may have given up
                self.send(answer)

        def send(self, answer: Answer) -> None:
            self.send_response(answer.status)
            length = len(answer.body) if answer.claimed is None else answer.claimed
            for name, value in {**HEADERS, "Content-Length": str(length), **answer.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = answer  # noqa: N815

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        told.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield told
        server.shutdown()
        thread.join(10)


CALLS: dict[str, Callable[[ObjectStore], object]] = {
    "put": lambda store: store.put("a", b"x"),
    "conditional put": lambda store: store.put("a", b"x", if_absent=True),
    "get": lambda store: store.get("a", max_bytes=10),
    "head": lambda store: store.head("a"),
    "list": lambda store: list(store.list("")),
}
EMPTY_LISTING = Answer(body=b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>")


@pytest.mark.parametrize("status", [429, 500, 503])
@pytest.mark.parametrize("call", CALLS)
def test_what_passes_is_ridden_out(loopback: Loopback, call: str, status: int) -> None:
    loopback.answers(Answer(status), Answer(status), EMPTY_LISTING if call == "list" else Answer(body=b"text"))
    CALLS[call](loopback.store())
    assert len(loopback.requests) == 3


@pytest.mark.parametrize("call", CALLS)
def test_what_stays_is_unavailable_after_bounded_tries(loopback: Loopback, call: str) -> None:
    loopback.answers(Answer(503, b"<Error><Code>SlowDown</Code><Message>Reduce your rate.</Message></Error>"))
    began = time.monotonic()
    with pytest.raises(Unavailable, match="the object store cannot") as raised:
        CALLS[call](loopback.store())
    assert time.monotonic() - began < 60
    assert len(loopback.requests) == 1 + RETRIES
    assert "503 Service Unavailable" in str(raised.value)
    assert "lake" not in str(raised.value)
    assert raised.value.detail.startswith("s3://lake: ")
    assert "SlowDown: Reduce your rate" in raised.value.detail or call == "head"


def test_retrying_ends_with_its_time(loopback: Loopback) -> None:
    loopback.answers(Answer(503))
    given = (("endpoint", loopback.url), ("allow_http", "true"), ("skip_signature", "true"))
    began = time.monotonic()
    with pytest.raises(Unavailable):
        open_store(StoreAddress("s3://lake", given, retries=1000, retry_seconds=3.0)).get("a", max_bytes=1)
    assert time.monotonic() - began < 60
    assert 2 <= len(loopback.requests) < 100  # pauses are random and of 0.1 s at least: 31 tries, but not 1,000


def test_a_silent_server_is_given_up(loopback: Loopback) -> None:
    def silent(method: str, path: str) -> Answer:
        time.sleep(1.0)
        return Answer(body=b"x")

    loopback.answer = silent
    began = time.monotonic()
    with pytest.raises(Unavailable):
        loopback.store(read_timeout="200ms").get("a", max_bytes=1)
    assert time.monotonic() - began < 60


def test_a_body_that_breaks_off_is_fetched_on(loopback: Loopback) -> None:
    rest = Answer(206, b"56789", {"Content-Range": "bytes 5-9/10"})
    loopback.answers(Answer(body=b"01234", claimed=10), rest)
    assert loopback.store().get("a", max_bytes=10) == b"0123456789"


def test_a_refusal_is_not_repeated(loopback: Loopback) -> None:
    loopback.answers(Answer(403))
    with pytest.raises(Unavailable, match="403") as refused:
        loopback.store().get("a", max_bytes=1)
    assert "Check the credentials" in refused.value.detail
    assert len(loopback.requests) == 1


def test_an_object_too_large_is_not_read(loopback: Loopback) -> None:
    loopback.answers(Answer(body=b"the beginning", claimed=1 << 50))
    with pytest.raises(TooLarge, match=f"{1 << 50} bytes"):
        loopback.store().get("a", max_bytes=1 << 20)
    assert loopback.requests == ["GET /lake/a"]


@pytest.mark.parametrize("scheme", ["s3", "gs", "az"])
def test_conflict_is_said_of_conditional_puts_only(loopback: Loopback, scheme: str) -> None:
    loopback.answers(Answer(409 if scheme == "az" else 412))
    store = loopback.store(scheme)
    with pytest.raises(Conflict):
        store.put("a", b"x", if_absent=True)
    with pytest.raises(Unavailable):
        store.put("a", b"x")


@pytest.mark.parametrize("scheme", ["s3", "gs", "az"])
@pytest.mark.parametrize("code", ["NoSuchBucket", "ContainerNotFound"])
def test_an_absent_bucket_is_never_an_absent_object(loopback: Loopback, scheme: str, code: str) -> None:
    store = loopback.store(scheme)
    loopback.answers(Answer(404, f"<Error><Code>{code}</Code></Error>".encode()))
    for call in ("get", "head", "list", "put"):
        with pytest.raises(Unavailable, match="bucket of the object store does not exist") as refused:
            CALLS[call](store)
        assert refused.value.detail == f"{scheme}://lake"
    loopback.answers(Answer(404, b"<Error><Code>NoSuchKey</Code></Error>"))
    for call in ("get", "head"):
        with pytest.raises(Absent, match="the object store holds no object a"):
            CALLS[call](store)


def test_absent_keys_do_not_keep_google_from_deleting_the_others(loopback: Loopback) -> None:
    there = {f"/lake/{number}" for number in range(0, 60, 2)}

    def answer(method: str, path: str) -> Answer:
        if path not in there:
            return Answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        there.remove(path)
        return Answer(204)

    loopback.answer = answer
    loopback.store("gs").delete(str(number) for number in range(60))
    assert there == set()


@pytest.mark.parametrize("key", ["a//b", "a/../b"])
def test_a_listing_names_the_key_that_it_cannot_give(loopback: Loopback, key: str) -> None:
    entry = "<Contents><Key>{}</Key><LastModified>2026-11-15T10:00:00Z</LastModified><Size>1</Size></Contents>"
    entries = "".join(entry.format(name) for name in ("fine", key))
    loopback.answers(Answer(body=f"<ListBucketResult>{entries}</ListBucketResult>".encode()))
    with pytest.raises(Unavailable) as refused:
        list(loopback.store().list(""))
    assert re.search(f'"{key}".*Delete or rename that object', str(refused.value))


def test_signatures_stay_out_of_messages(loopback: Loopback) -> None:
    loopback.answers(Answer(400, b"Bad request"))
    for scheme in ("s3", "gs", "az"):
        for call in CALLS.values():
            with pytest.raises(Unavailable) as raised:
                call(loopback.store(scheme))
            assert "400 Bad Request: Bad request" in raised.value.detail or call is CALLS["head"]
            assert "sig" not in full_message(raised.value)
            assert raised.value.__cause__ is None
