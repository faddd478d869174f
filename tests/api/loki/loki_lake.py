"""A small lake of log lines, pushed as Loki's clients push them, and Loki's API over it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
from starlette.routing import Route

from conformance.answer import LogEntry
from conformance.logql_push import ingested_lines
from conformance.logql_script import LogState
from lakerunner.api.app import build_app
from lakerunner.api.auth import Authenticator
from lakerunner.api.limits import Capacity, QueryLimits
from lakerunner.api.loki.log_queries import LokiLimits
from lakerunner.api.loki.loki_api import LokiApi
from lakerunner.api.query_service import QueryService
from lakerunner.api.server import HttpServer, bind
from lakerunner.model.organization import DEFAULT_ORGANIZATION, EVERY_ROLE, Caller, Organization
from lakerunner.objects.open import StoreAddress
from lakerunner.query.engine import Engine
from lakerunner.query.known_segments import KnownSegments
from lakerunner.query.result_cache import ResultCache
from lakerunner.query.row_answer import Coordinator
from lakerunner.query.workers import OneWorker
from query.sample_lake import HOUR, OTHER, OWN, START, Lake

PARTS = 3
SECOND = 1_000_000_000
NOW = START + HOUR
CART, PAY = (("app", "cart"), ("env", "prod")), (("app", "pay"), ("env", "prod"))
LINES = (
    LogEntry(START + 1 * SECOND, "level=info took=10ms path=/a", CART, (("trace_id", "t1"),)),
    LogEntry(START + 2 * SECOND, "level=error took=250ms path=/b", CART, (("trace_id", "t2"),)),
    LogEntry(START + 5 * SECOND // 2, "level=info paid 7", PAY),
    LogEntry(START + 3 * SECOND, "level=info took=20ms path=/a", CART, (("trace_id", "t1"),)),
    LogEntry(START + 61 * SECOND, "level=warn refused", PAY),
)
SECRET = LogEntry(START + 2 * SECOND, "theirs", (("app", "secret"),))
KEYS = {"own": Organization(OWN, "own"), "other": Organization(OTHER, "other")}


def lines_lake(directory: Path, lines: Sequence[LogEntry] = LINES) -> Lake:
    lake = Lake(directory)
    for organization, own in ((OWN, tuple(lines)), (OTHER, (SECRET,))):
        add_lines(lake, organization, own)
    return lake


def add_lines(lake: Lake, organization: UUID, lines: tuple[LogEntry, ...]) -> None:
    address = StoreAddress((lake.directory / "store").as_uri())
    lake.all += ingested_lines(address, organization, LogState(Path("lines"), 0, lines), PARTS)


@dataclass(frozen=True)
class LokiClient:
    """`url` is that of the server, `routes` are its routes."""

    url: str
    key: str = "own"
    routes: Sequence[Route] = ()

    def send(self, path: str, given: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> httpx.Response:
        return httpx.get(
            f"{self.url}{path}", params=dict(given), headers={"x-api-key": self.key, **(headers or {})}, timeout=120
        )

    def get(self, path: str, headers: Mapping[str, str] | None = None, /, **given: Any) -> httpx.Response:
        return self.send(f"/loki/api/v1/{path}", given, headers)

    def json(self, path: str, headers: Mapping[str, str] | None = None, /, **given: Any) -> Any:
        response = self.get(path, headers, **given)
        assert response.status_code == 200, response.text
        return response.json()

    def data(self, path: str, headers: Mapping[str, str] | None = None, /, **given: Any) -> Any:
        found = self.json(path, headers, **given)
        assert found["status"] == "success"
        return found.get("data")


@contextmanager
def loki_server(
    lake: Lake,
    *,
    keys: Mapping[str, Organization] | None = KEYS,
    most: LokiLimits | None = None,
    results: ResultCache | None = None,
) -> Iterator[LokiClient]:
    """With `keys`, each opens its organization and nothing goes without one. `results`: its cache of answers."""
    callers = {key: Caller(one, key, EVERY_ROLE) for key, one in (keys or {}).items()}
    who = Authenticator(callers.get, None if keys else DEFAULT_ORGANIZATION)
    limits = QueryLimits(Capacity(4, 1000.0, 4, queue_seconds=10.0), lambda: 0.0)
    engine = Engine(KnownSegments(lake), OneWorker(lake.worker()), Coordinator(lake.sandboxes()), results=results)
    api = LokiApi(engine, QueryService(who, limits, lambda: NOW), most or LokiLimits())
    routes = api.routes()
    server = HttpServer(build_app(routes), bind("127.0.0.1", 0), lambda reason: None)
    server.start()
    try:
        yield LokiClient(server.url, routes=routes)
    finally:
        server.stop()
