"""The native API, as Lakerunner's Grafana plugin calls it: tags of logs and spans, their values, and features.

Bodies are `{"s": ..., "e": ..., "q": ...}`. Lists are JSON, values are server-sent events. A complete stream ends with
`done` and the status ok, one that was cut at its limit with `done` and the status truncated, one that failed with
`error`. docs/formats/native_api.md describes every body and answer.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lakerunner.api.auth import Authenticator
from lakerunner.api.body import BodyLimit, read_json
from lakerunner.api.errors import error_body
from lakerunner.api.limits import QueryLimits, Slot
from lakerunner.api.native import operations
from lakerunner.api.native.lookup import (
    MAX_LISTED,
    Lookup,
    RequestQueries,
    RowSelection,
    read_selector,
    run_cancellable,
)
from lakerunner.api.openapi import Endpoint, Handler
from lakerunner.api.stream import Stream, in_thread, while_connected, with_idle_events
from lakerunner.api.time_range import time_range
from lakerunner.model.errors import LakerunnerError, UserError
from lakerunner.model.labels import NAME
from lakerunner.model.labels.row_view import ROW_VIEWS, RowView
from lakerunner.model.organization import Caller, Role
from lakerunner.query.known_segments import Segments
from lakerunner.query.sql import SqlQueries

BODY_LIMIT = BodyLimit(1 << 20, "the limit of a query")
NAME_MAX_CHARACTERS = 4096
HEARTBEAT_SECONDS = 10.0
# The plugin reads the first of these; the others are for people.
FEATURES = {"metricsSummarySSE": False, "promql": True, "logql": False, "traceql": False, "sql": True}
_LANGUAGES = {"logs": "LogQL", "traces": "TraceQL"}  # the future query language of each signal
_logger = logging.getLogger("lakerunner.api.native")


@dataclass(frozen=True)
class NativeApi:
    """The endpoints of logs and spans. `now_ns` is the clock; `limits` are those of all queries."""

    queries: SqlQueries
    segments: Segments
    authenticator: Authenticator
    now_ns: Callable[[], int]
    limits: QueryLimits

    def routes(self) -> list[Route]:
        routes: list[Route] = [
            Endpoint("/api/v1/ping", self.ping, GET=operations.PING),
            Endpoint("/api/v1/features", self.features, GET=operations.FEATURES, POST=operations.FEATURES),
        ]
        for view in ROW_VIEWS.values():
            path = f"/api/v1/{view.spec.table}"
            routes += [
                Endpoint(f"{path}/query", _for_view(view, self.query), POST=operations.QUERY),
                Endpoint(f"{path}/tags", _for_view(view, self.tags), POST=operations.TAGS),
                Endpoint(f"{path}/tagvalues", _for_view(view, self.tag_values), POST=operations.TAG_VALUES),
            ]
        return routes

    async def ping(self, request: Request) -> Response:
        await self._caller(request)
        return JSONResponse({"status": "ok"})

    async def features(self, request: Request) -> Response:
        await self._caller(request)
        return JSONResponse({"features": FEATURES})

    async def query(self, request: Request, view: RowView) -> Response:
        await self._caller(request)
        raise UserError(f"{_LANGUAGES[view.spec.name]} is not available yet: use SQL at /api/v1/sql")

    async def tags(self, request: Request, view: RowView) -> Response:
        caller = await self._caller(request)
        queries = RequestQueries(self.queries, caller.organization.id, self.now_ns())
        selection = _parse_selection(view, await read_json(request, BODY_LIMIT), queries.now_ns)
        slot = await self._slot(request, caller)
        lookup = Lookup(queries, self.segments)
        found = await run_cancellable(request, queries, slot, lambda: lookup.tags(selection))
        return JSONResponse({"tags": found.items, "truncated": found.truncated} | warning_fields(lookup.warnings))

    async def tag_values(self, request: Request, view: RowView) -> Response:
        caller = await self._caller(request)
        queries = RequestQueries(self.queries, caller.organization.id, self.now_ns())
        name = required_tag(request)
        selection = _parse_selection(view, await read_json(request, BODY_LIMIT), queries.now_ns)
        slot = await self._slot(request, caller)
        lookup = Lookup(queries, self.segments)
        events = value_events(lookup.values(selection, name), lambda: lookup.warnings)
        stream = with_idle_events(events, lambda _silent: event("heartbeat"), HEARTBEAT_SECONDS)
        return Stream(stream, operations.EVENTS, slot.after(queries.close))

    async def _caller(self, request: Request) -> Caller:
        return await self.authenticator.admit(request, Role.READ)

    async def _slot(self, request: Request, caller: Caller) -> Slot:
        return await while_connected(request, self.limits.slot(caller))


def _parse_selection(view: RowView, body: dict[str, Any], now_ns: int) -> RowSelection:
    text = text_field(body, "q")
    matchers = read_selector(text, _LANGUAGES[view.spec.name]) if text else ()
    if any(matcher.name == NAME for matcher in matchers):
        raise UserError(f"q names a metric, but {view.spec.table} have no metrics")
    return RowSelection(view, time_range(body, now_ns), matchers)


def _for_view(view: RowView, endpoint: Callable[[Request, RowView], Awaitable[Response]]) -> Handler:
    async def of_view(request: Request) -> Response:
        return await endpoint(request, view)

    return of_view


async def value_events(parts: Iterator[list[str]], warnings: Callable[[], list[str]]) -> AsyncGenerator[bytes]:
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
