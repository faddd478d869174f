"""Query workers elsewhere, called as if they were here: run(unit) gives an Answer whose rows come over HTTP.

A unit goes to the worker that its first segment hashes to (rendezvous), so a segment's file is cached by one worker;
when that one cannot be reached, to the next. Once rows have come, a failure is the query's failure.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator, Sequence
from contextlib import closing

import httpx
import orjson
import pyarrow as pa

from lakerunner.api.errors import error_from
from lakerunner.api.worker import KEY_HEADER
from lakerunner.model.errors import Unavailable
from lakerunner.model.fingerprint import digest64
from lakerunner.query.answer import Answer
from lakerunner.query.unit import WorkUnit

_CONNECT_SECONDS = 3.0


class RemoteWorkers:
    """`read_seconds` bounds the silence of a worker: its own query limit, and a little."""

    def __init__(self, urls: Sequence[str], key: str, read_seconds: float) -> None:
        self._urls = tuple(urls)
        self._client = httpx.Client(
            headers={KEY_HEADER: key}, timeout=httpx.Timeout(read_seconds, connect=_CONNECT_SECONDS)
        )

    def run(self, unit: WorkUnit) -> Answer:
        body = unit.to_bytes()
        trouble = ""
        for url in self._order(unit):
            request = self._client.build_request("POST", f"{url}/internal/v1/run", content=body)
            try:
                response = self._client.send(request, stream=True)
            except httpx.TransportError as error:
                trouble = f"{url}: {error}"
                continue
            if response.status_code == 200:
                return _RemoteAnswer(response, url)
            with closing(response):
                raise error_from(orjson.loads(response.read())["error"])
        raise Unavailable(f"no query worker can be reached, the last one tried was {trouble}")

    def close(self) -> None:
        self._client.close()

    def _order(self, unit: WorkUnit) -> list[str]:
        first = next((str(s.id) for scan in unit.inputs for s in scan.segments), "")
        return sorted(self._urls, key=lambda url: digest64(url, first))


class _RemoteAnswer:
    """An Answer (query/answer.py) whose work is done elsewhere. Closing the response stops that work."""

    def __init__(self, response: httpx.Response, url: str) -> None:
        self._response = response
        self._frames = _Frames(response, url)
        self._reader: pa.RecordBatchReader | None = None

    @property
    def schema(self) -> pa.Schema:
        return self._open().schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._open()
            self._frames.expect_end()
        finally:
            self.close()

    def close(self) -> None:
        self._response.close()

    def _open(self) -> pa.RecordBatchReader:
        if self._reader is None:
            self._reader = pa.ipc.open_stream(self._frames)
        return self._reader


class _Frames(io.RawIOBase):
    """The Arrow bytes inside the frames, as a file."""

    def __init__(self, response: httpx.Response, url: str) -> None:
        super().__init__()
        self._url = url
        self._chunks = response.iter_raw()
        self._wire = bytearray()
        self._arrow = bytearray()
        self._ended = False

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        while not self._ended and (size < 0 or len(self._arrow) < size):
            self._next_frame()
        take = len(self._arrow) if size < 0 else size
        data = bytes(self._arrow[:take])
        del self._arrow[:take]
        return data

    def expect_end(self) -> None:
        while not self._ended:
            self._next_frame()

    def _next_frame(self) -> None:
        kind, length = struct.unpack(">cI", self._exactly(5))
        data = self._exactly(length)
        if kind == b"A":
            self._arrow += data
        elif kind == b"E":
            raise error_from(orjson.loads(data))
        else:
            self._ended = True

    def _exactly(self, size: int) -> bytes:
        try:
            while len(self._wire) < size:
                self._wire += next(self._chunks)
        except (StopIteration, httpx.HTTPError) as error:
            raise Unavailable(f"query worker {self._url} broke off its answer: {error}") from error
        data = bytes(self._wire[:size])
        del self._wire[:size]
        return data
