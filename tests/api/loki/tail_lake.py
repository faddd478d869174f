"""A lake that clients tail: real segments, committed to a real index while they are connected."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit
from uuid import UUID

from websockets.sync.client import ClientConnection, connect

from api.loki.loki_lake import KEYS, NOW
from conformance.answer import LogEntry
from conformance.logql_push import ingested_lines
from conformance.logql_script import LogState
from lakerunner.api.app import build_app
from lakerunner.api.auth import Authenticator
from lakerunner.api.limits import Capacity, QueryLimits
from lakerunner.api.loki.known_rules import KnownRules
from lakerunner.api.query_service import QueryService
from lakerunner.api.server import HttpServer, bind
from lakerunner.api.tail.line_follower import LineFollower
from lakerunner.api.tail.tail_api import TailApi, TailLimits
from lakerunner.api.tls import Certificate
from lakerunner.index.commit import Commit
from lakerunner.index.index import Index
from lakerunner.model.organization import EVERY_ROLE, Caller
from lakerunner.model.segment import Segment
from lakerunner.objects.open import StoreAddress
from query.sample_lake import OWN, Lake
from servers.postgres import empty_index

WAIT = 30.0  # for an event that must come
Frame = dict[str, Any]


@dataclass
class TailLake:
    """`keys` are the callers by their keys; a test may take one away."""

    lake: Lake
    index: Index
    server: HttpServer
    follower: LineFollower
    keys: dict[str, Caller]
    clients: ExitStack = field(default_factory=ExitStack)

    def ingest(self, *lines: LogEntry, organization: UUID = OWN, parts: int = 1) -> Sequence[Segment]:
        """Make segments, without committing them."""
        address = StoreAddress((self.lake.directory / "store").as_uri())
        return ingested_lines(address, organization, LogState(Path("lines"), 0, lines), parts)

    def commit(self, segments: Sequence[Segment], replaced: tuple[UUID, ...] = ()) -> None:
        self.index.commit(Commit(tuple(segments), (), (), replaced))

    def push(self, *lines: LogEntry, organization: UUID = OWN) -> Sequence[Segment]:
        made = self.ingest(*lines, organization=organization)
        self.commit(made)
        return made

    def tail(
        self, query: str = '{env="prod"}', *, path: str = "/loki/api/v1/tail", key: str = "own", **given: Any
    ) -> ClientConnection:
        """Connect; `headers` and `receive_bytes` (of the socket) are not parameters of the query. With `receive_bytes`
        the client reads one frame ahead, otherwise 16, which may be all that there is."""
        headers, size = given.pop("headers", {}), given.pop("receive_bytes", 0)
        ssl = given.pop("ssl", None)
        address = urlsplit(self.server.url)
        opened = socket.socket()
        if size:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
        opened.connect((address.hostname, address.port))
        scheme = "wss" if address.scheme == "https" else "ws"
        url = f"{scheme}://{address.netloc}{path}?{urlencode({'query': query, **given})}"
        named: dict[str, Any] = {"ssl": ssl, "server_hostname": "localhost"} if ssl else {}
        if size:
            named["max_queue"] = 1
        headers = {"x-api-key": key, **headers} if key else headers
        return self.clients.enter_context(
            connect(url, sock=opened, additional_headers=headers, open_timeout=WAIT, max_size=None, **named)
        )


@contextmanager
def tail_lake(
    url: str, directory: Path, tails: TailLimits | None = None, certificate: Certificate | None = None
) -> Iterator[TailLake]:
    lake = Lake(directory)
    callers = {key: Caller(one, key, EVERY_ROLE) for key, one in KEYS.items()}
    who = Authenticator(callers.get, None)
    service = QueryService(who, QueryLimits(Capacity(4, 1000.0, 4), lambda: 0.0), lambda: NOW)
    with empty_index(url, *KEYS.values()) as index:
        follower = LineFollower(lake.engine().engine, KnownRules(), index.commits, lambda: NOW, seconds=0.05)
        api = TailApi(follower, service, tails=tails or TailLimits())
        app = build_app(api.routes())
        server = HttpServer(app, bind("127.0.0.1", 0), lambda _: None, certificate=certificate)
        server.start()
        opened = TailLake(lake, index, server, follower, callers)
        try:
            with opened.clients:
                yield opened
        finally:
            server.stop()
            follower.close()
            lake.close()


def frame(client: ClientConnection) -> Frame:
    found: Frame = json.loads(client.recv(WAIT))
    return found


def lines_of(found: Frame) -> list[str]:
    return [line for stream in found["streams"] for _, line, *_ in stream["values"]]


def lines(client: ClientConnection, count: int) -> list[str]:
    """Wait for this many lines, and return them in the order of the frames."""
    got: list[str] = []
    while len(got) < count:
        got += lines_of(frame(client))
    return got
