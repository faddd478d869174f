"""The SQL endpoint on a real socket, with answers that are slow, long, partial or fail on the way."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import httpx
import pyarrow as pa

from lakerunner.api.app import build_app
from lakerunner.api.auth import Authenticator
from lakerunner.api.limits import Capacity, QueryLimits
from lakerunner.api.query_service import QueryService
from lakerunner.api.server import HttpServer, bind
from lakerunner.api.sql.sql_api import SqlApi
from lakerunner.model.errors import TooLarge
from lakerunner.model.organization import DEFAULT_ORGANIZATION, Caller
from lakerunner.query.contract.account import Account
from lakerunner.query.sql import Question

SCHEMA = pa.schema([("n", pa.int64())])
FAILURE = "more rows than query_max_rows: add a LIMIT"
Step = Any  # int | str | float | Account | pa.RecordBatch, which has no types


@dataclass
class Scripted:
    """An answer that goes through its script: a row with this number, a batch, `fail`, `wait` (until it is closed or
    `go` is set, which is then cleared; `waits` says that it is there), `bug`, so many seconds, or from here on this
    account."""

    script: list[Step]
    schema: pa.Schema = SCHEMA
    account: Account = field(default_factory=Account)
    closed: threading.Event = field(default_factory=threading.Event)
    go: threading.Event = field(default_factory=threading.Event)
    waits: threading.Event = field(default_factory=threading.Event)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for step in self.script:
            match step:
                case "fail":
                    raise TooLarge(FAILURE)
                case "bug":
                    raise RuntimeError("the secret of the bug")
                case "wait":
                    self.waits.set()
                    while not (self.closed.is_set() or self.go.wait(0.01)):
                        pass
                    self.go.clear()
                case Account():
                    self.account = step
                case float():
                    time.sleep(step)
                case int():
                    yield pa.record_batch([pa.array([step])], SCHEMA)
                case pa.RecordBatch():
                    yield step

    def close(self) -> None:
        self.closed.set()


@dataclass
class ScriptedEngine:
    """Gives the answer that the query's text names, and keeps what it was asked."""

    answers: Mapping[str, Scripted] = field(default_factory=dict)
    asked: list[Question] = field(default_factory=list)

    def sql(self, organization: UUID, question: Question) -> Scripted:
        self.asked.append(question)
        return self.answers[question.text]


def _no_caller(_secret: str) -> Caller | None:
    return None


@contextmanager
def sql_server(engine: Any, organization: Any = DEFAULT_ORGANIZATION, now_ns: Any = time.time_ns) -> Iterator[str]:
    """The base URL of an API with this engine, for one organization, two queries at once."""
    authenticator = Authenticator(_no_caller, organization)
    limits = QueryLimits(Capacity(2, 1000.0, 2, queue_seconds=10.0), time.monotonic)
    api = SqlApi(engine, QueryService(authenticator, limits, now_ns))
    server = HttpServer(build_app(api.routes()), bind("127.0.0.1", 0), lambda reason: None)
    server.start()
    try:
        yield server.url
    finally:
        server.stop()


def events_of(response: httpx.Response) -> list[dict[str, Any]]:
    return [json.loads(line.removeprefix("data: ")) for line in response.text.split("\n\n") if line]
