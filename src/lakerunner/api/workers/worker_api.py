"""A query worker over HTTP: POST /internal/v1/run with a unit (query/unit.py) as JSON, answered by the frames of
query/answer_frames.py (docs/formats/workers.md). `WorkerApi` is the worker's end. `RemoteWorkers` calls workers
elsewhere as if they were here: run(unit) gives an Answer whose rows come over HTTP.

Whatever keeps a worker from giving a whole answer, but for an error that it states itself, is Lost: another may take
the unit over. A worker's name stands in answers and errors, so it is not its address: only the log names that.
"""

from __future__ import annotations

import hmac
import logging
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from hashlib import blake2b

import httpx
import orjson
from anyio import CapacityLimiter
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lakerunner.api.auth import refuse_foreign
from lakerunner.api.body import BodyLimit, read_body, require_json
from lakerunner.api.errors import log_detail
from lakerunner.api.openapi import JSON, WORKER_KEY, Body, Endpoint, Operation, Reply
from lakerunner.api.schema import ANY
from lakerunner.api.stream import Stream, in_thread
from lakerunner.api.tls import trusting
from lakerunner.api.workers.addresses import Addresses
from lakerunner.model.errors import Busy, LakerunnerError, Lost, NotAuthenticated, Unavailable, error_from_body
from lakerunner.plan.operator import Operator
from lakerunner.query.answer import Answer
from lakerunner.query.answer_frames import FramedAnswer, answer_frames
from lakerunner.query.operator_table import OPERATORS
from lakerunner.query.unit import Unit
from lakerunner.query.workers import Worker

UNIT_LIMIT = BodyLimit(64 << 20, "a unit of work; the setting unit_max_bytes makes units smaller")
KEY_HEADER = "x-lakerunner-worker-key"
RUN = Operation(
    tag="internal",
    summary="Compute one unit of a query",
    body={JSON: Body()},
    replies={
        200: Reply("Frames of rows, ended by an error or an end frame.", {"application/vnd.lakerunner.frames": ANY})
    },
    errors=(401, 403, 413, 415, 422, 503),
    security=WORKER_KEY,
)
_CONNECT_SECONDS = 3.0
_CONNECTIONS = 1024
# Far less than the time after which a worker closes an idle connection (api/http_protocol.py): a unit must not be sent
# into one that just closes.
_IDLE_SECONDS = 2.0
_LATER = {Busy.http_status, Unavailable.http_status}
_logger = logging.getLogger("lakerunner.api.worker")
_client_logger = logging.getLogger("lakerunner.api.workers")


@dataclass(frozen=True)
class WorkerApi:
    """`key` is the secret of this cluster; empty on loopback only, where `names` are further names of this machine
    (`api/auth.py`). `threads`: as many as units may run or wait, and
    a few; with fewer, units that wait would keep those that run from being read."""

    run: Callable[[Unit], Answer]
    key: str
    threads: CapacityLimiter
    names: frozenset[str] = frozenset()
    operators: Mapping[str, type[Operator]] = field(default_factory=lambda: OPERATORS)

    def routes(self) -> list[Route]:
        return [Endpoint("/internal/v1/run", self.execute, POST=RUN)]

    async def execute(self, request: Request) -> Response:
        self._authenticate(request)
        require_json(request)
        unit = Unit.from_bytes(await read_body(request, UNIT_LIMIT), self.operators)
        answer = self.run(unit)
        # A worker that stops is cut off without a frame of its own: it is lost, and another takes the unit over.
        frames = in_thread(answer_frames(answer, unit.leaf.operator, _report), self.threads)
        return Stream(frames, "application/vnd.lakerunner.frames", answer.close)

    def _authenticate(self, request: Request) -> None:
        shown = set(request.headers.getlist(KEY_HEADER)) or {""}
        # As bytes: compare_digest raises for text beyond ASCII. Headers are decoded as Latin-1.
        if len(shown) > 1 or not hmac.compare_digest(shown.pop().encode("latin-1"), self.key.encode()):
            raise NotAuthenticated("this worker only accepts units from a query-api with its worker_key")
        if not self.key:
            refuse_foreign(request.headers.items(), self.names)


def _report(error: Exception) -> None:
    if not isinstance(error, LakerunnerError):
        _logger.error("unit failed", exc_info=error)
    log_detail(error)


def worker_name(url: str, key: str) -> str:
    """The same for the same URL in every query-api of a cluster, so that all give a segment to the same worker. Without
    the cluster's key no address can be tried against it."""
    return f"worker-{blake2b(url.encode(), digest_size=5, key=key.encode()[:64]).hexdigest()}"


class RemoteWorkers:
    """`read_seconds` bounds the silence of a worker: its own query limit, and a little. `trust`: how those that are
    called by https are verified."""

    def __init__(
        self, addresses: Addresses, key: str, read_seconds: float, trust: ssl.SSLContext | None = None
    ) -> None:
        self._addresses = addresses
        self._key = key
        self._names: dict[str, str] = {}  # by URL, of those that were here last
        self._client = httpx.Client(
            headers={KEY_HEADER: key, "content-type": "application/json"},
            timeout=httpx.Timeout(read_seconds, connect=_CONNECT_SECONDS),
            limits=httpx.Limits(max_connections=_CONNECTIONS, keepalive_expiry=_IDLE_SECONDS),
            verify=trust or trusting(""),
        )

    def here(self) -> Sequence[Worker]:
        names = {url: self._names.get(url) or self._named(url) for url in self._addresses.here()}
        self._names = names
        return [_RemoteWorker(name, url, self._client) for url, name in names.items()]

    def close(self) -> None:
        self._client.close()

    def _named(self, url: str) -> str:
        name = worker_name(url, self._key)
        _client_logger.info("query worker %s is at %s", name, url)
        return name


class _RemoteWorker:
    def __init__(self, name: str, url: str, client: httpx.Client) -> None:
        self.name = name
        self._url = url
        self._client = client

    def run(self, unit: Unit) -> Answer:
        request = self._client.build_request("POST", f"{self._url}/internal/v1/run", content=unit.to_bytes())
        try:
            response = self._client.send(request, stream=True)
            if response.status_code == 200:
                return _RemoteAnswer(response, self.name, unit.leaf.operator)
            with closing(response):
                raise _turned_away(self.name, response.status_code, response.read())
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            raise _lost(self.name, "is unreachable", error) from error


def _lost(worker: str, what: str, error: Exception) -> Lost:
    """The error's own text, which may name the address, is for the log."""
    _client_logger.warning("query worker %s %s: %s: %s", worker, what, type(error).__name__, error)
    return Lost(f"query worker {worker} {what}: {type(error).__name__}")


def _turned_away(worker: str, status: int, body: bytes) -> LakerunnerError:
    """Return the error of a worker that began no unit: it is busy, or we cannot use it. The client is not at fault."""
    try:
        error = error_from_body(orjson.loads(body)["error"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return Lost(f"query worker {worker} returned {status}, and not as a query worker does")
    return error if status in _LATER else Lost(f"query worker {worker} refused the unit: {error}")


class _RemoteAnswer(FramedAnswer):
    """An answer over HTTP. Closing the response stops the work."""

    def __init__(self, response: httpx.Response, worker: str, operator: Operator) -> None:
        super().__init__(response.iter_raw(), operator)
        self._response = response
        self._worker = worker

    def close(self) -> None:
        """To close a socket does not wake the thread that reads it; to shut it down does."""
        stream = self._response.extensions.get("network_stream")
        connection = stream.get_extra_info("socket") if stream and not self.is_whole else None
        if connection is not None:
            with suppress(OSError):
                socket.socket.shutdown(connection, socket.SHUT_RDWR)  # that of TLS would first forget its keys
        with suppress(RuntimeError):  # another thread is reading it, and closes it
            self._response.close()

    def _lost(self, error: Exception) -> Lost:
        return _lost(self._worker, "broke off its answer", error)
