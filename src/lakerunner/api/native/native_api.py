"""The native API, as Lakerunner's Grafana plugin calls it: tags of logs and spans, their values, and features.

Bodies are `{"s": ..., "e": ..., "q": ...}`. Lists are JSON, values are server-sent events. A complete stream ends with
`done` and the status ok, one that was cut at its limit with `done` and the status truncated, one that failed with
`error`. docs/formats/native_api.md describes every body and answer.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lakerunner.api.body import BodyLimit
from lakerunner.api.errors import error_body
from lakerunner.api.native import operations
from lakerunner.api.native.lookup import (
    MAX_LISTED,
    Lookup,
    RequestQueries,
    RowSelection,
    read_selector,
    run_cancellable,
)
from lakerunner.api.query_service import QueryRequest, QueryService
from lakerunner.api.stream import Close, Stream, in_thread, with_idle_events
from lakerunner.api.time_range import time_range
from lakerunner.model.errors import LakerunnerError, UserError
from lakerunner.model.labels import NAME
from lakerunner.model.labels.row_view import ROW_VIEWS, RowView
from lakerunner.query.known_segments import Segments
from lakerunner.query.sql import SqlQueries

BODY_LIMIT = BodyLimit(1 << 20, "the limit of a query")
NAME_MAX_CHARACTERS = 4096
HEARTBEAT_SECONDS = 10.0
# The plugin reads the first of these; the others are for people.
FEATURES = {"metricsSummarySSE": False, "promql": True, "logql": True, "traceql": False, "sql": True}
_LANGUAGES = {"logs": "LogQL", "traces": "TraceQL"}  # the query language of each signal
_UNAVAILABLE = ("traces",)  # signals whose language is not available yet
_logger = logging.getLogger("lakerunner.api.native")


@dataclass(frozen=True)
class NativeApi:
    """The endpoints of logs and spans."""

    queries: SqlQueries
    segments: Segments
    service: QueryService

    def routes(self) -> list[Route]:
        endpoint = self.service.endpoint
        routes: list[Route] = [
            endpoint("/api/v1/ping", self.ping, GET=operations.PING),
            endpoint("/api/v1/features", self.features, GET=operations.FEATURES, POST=operations.FEATURES),
        ]
        for view in ROW_VIEWS.values():
            path = f"/api/v1/{view.spec.table}"
            if view.spec.name in _UNAVAILABLE:
                routes.append(endpoint(f"{path}/query", partial(self.query, view), POST=operations.QUERY))
            routes += [
                endpoint(f"{path}/tags", partial(self.tags, view), POST=operations.TAGS),
                endpoint(f"{path}/tagvalues", partial(self.tag_values, view), POST=operations.TAG_VALUES),
            ]
        return routes

    async def ping(self, _asked: QueryRequest) -> Response:
        return JSONResponse({"status": "ok"})

    async def features(self, _asked: QueryRequest) -> Response:
        return JSONResponse({"features": FEATURES})

    async def query(self, view: RowView, _asked: QueryRequest) -> Response:
        raise UserError(f"{_LANGUAGES[view.spec.name]} is not available yet: use SQL at /api/v1/sql")

    async def tags(self, view: RowView, asked: QueryRequest) -> Response:
        queries = RequestQueries(self.queries, asked.organization, asked.now_ns())
        selection = _parse_selection(view, await asked.json(BODY_LIMIT), queries.now_ns)
        lookup = Lookup(queries, self.segments)
        tags, truncated = await run_cancellable(asked, queries, lambda: lookup.tags(selection))
        return JSONResponse({"tags": tags, "truncated": truncated} | warning_fields(lookup.warnings))

    async def tag_values(self, view: RowView, asked: QueryRequest) -> Response:
        queries = RequestQueries(self.queries, asked.organization, asked.now_ns())
        name = required_tag(asked.http)
        selection = _parse_selection(view, await asked.json(BODY_LIMIT), queries.now_ns)
        slot = await asked.slot()
        lookup = Lookup(queries, self.segments)
        return value_stream(lookup.values(selection, name), lambda: lookup.warnings, slot.after(queries.close))


def _parse_selection(view: RowView, body: dict[str, Any], now_ns: int) -> RowSelection:
    text = text_field(body, "q")
    matchers = read_selector(text, _LANGUAGES[view.spec.name]) if text else ()
    if any(matcher.name == NAME for matcher in matchers):
        raise UserError(f"q names a metric, but {view.spec.table} have no metrics")
    return RowSelection(view, time_range(body, now_ns), matchers)


def value_stream(parts: Iterator[list[str]], warnings: Callable[[], list[str]], close: Close) -> Stream:
    """Respond with the values as events, and heartbeats between them."""
    events = _value_events(parts, warnings)
    stream = with_idle_events(events, lambda _silent: event("heartbeat"), HEARTBEAT_SECONDS)
    return Stream(stream, operations.EVENTS, close)


async def _value_events(parts: Iterator[list[str]], warnings: Callable[[], list[str]]) -> AsyncGenerator[bytes]:
    """Yield the values as events, then `done` or `error`. `warnings` is called after all parts are read."""
    left = MAX_LISTED
    try:
        async for part in in_thread(parts):
            yield b"".join(event("result", {"value": value}) for value in part[: max(left, 0)])
            left -= len(part)
    except Exception as error:  # reported to the client, and logged if it is a bug
        if not isinstance(error, LakerunnerError):
            _logger.error("request for tag values failed", exc_info=error)
        body = error_body(error)
        yield event("error", {"message": body["message"], "code": body["kind"]})
        return
    status = {"status": "ok"} if left >= 0 else {"status": "truncated", "limit": MAX_LISTED}
    yield event("done", status | warning_fields(warnings()))


def warning_fields(warnings: Sequence[str]) -> dict[str, Any]:
    """Return the field `warnings` of an answer; nothing if there are none."""
    return {"warnings": list(warnings)} if warnings else {}


def event(type_: str, data: dict[str, Any] | None = None) -> bytes:
    """Encode a server-sent event."""
    body = {"type": type_} if data is None else {"type": type_, "data": data}
    return b"data: " + orjson.dumps(body) + b"\n\n"


def text_field(body: dict[str, Any], name: str) -> str:
    """Return a text field of a body without surrounding space; "" if it is missing."""
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise UserError(f"{name} must be text")
    return (value or "").strip()


def required_tag(request: Request) -> str:
    """Return the parameter tagName."""
    name = request.query_params.get("tagName", "")
    if not name:
        raise UserError("tagName is missing: .../tagvalues?tagName=service_name")
    if len(name) > NAME_MAX_CHARACTERS:
        raise UserError(f"tagName is longer than {NAME_MAX_CHARACTERS} characters")
    return name
