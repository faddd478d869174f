"""The native API, as Lakerunner's Grafana plugin calls it: tags of logs and spans, their values, what there is to ask.

Bodies are `{"s": ..., "e": ..., "q": ...}`. Lists come as JSON, values as server-sent events. A stream that is whole
ends with `done` and the status ok; one that was cut at its limit says `truncated` there; one that failed ends with
`error`. docs/formats/native_api.md states every shape.
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
from lakerunner.api.native import operations as said
from lakerunner.api.native.ask import Ask, answered
from lakerunner.api.native.lookup import MAX_LISTED, Lookup, Wanted
from lakerunner.api.native.selector import read_selector
from lakerunner.api.openapi import Endpoint, Handler
from lakerunner.api.stream import Stream, in_thread, while_connected, with_signs
from lakerunner.api.time_range import time_range
from lakerunner.model.caller import Caller, Role
from lakerunner.model.errors import LakerunnerError, UserError
from lakerunner.model.labels import NAME
from lakerunner.model.labels.row_view import ROW_VIEWS, RowView
from lakerunner.query.known_segments import Segments
from lakerunner.query.sql import SqlQueries

BODY_LIMIT = BodyLimit(1 << 20, "the limit of a query")
NAME_MAX_CHARACTERS = 4096
HEARTBEAT_SECONDS = 10.0
# What the plugin may ask first; it knows the first of these, people the others.
FEATURES = {"metricsSummarySSE": False, "promql": True, "logql": False, "traceql": False, "sql": True}
_LANGUAGES = {"logs": "LogQL", "traces": "TraceQL"}  # by signal: what its queries will be written in
_logger = logging.getLogger("lakerunner.api.native")


@dataclass(frozen=True)
class NativeApi:
    """`now_ns` is the clock, handed in; `limits` are those of all queries."""

    queries: SqlQueries
    segments: Segments
    authenticator: Authenticator
    now_ns: Callable[[], int]
    limits: QueryLimits

    def routes(self) -> list[Route]:
        routes: list[Route] = [
            Endpoint("/api/v1/ping", self.ping, GET=said.PING),
            Endpoint("/api/v1/features", self.features, GET=said.FEATURES, POST=said.FEATURES),
        ]
        for view in ROW_VIEWS.values():
            path = f"/api/v1/{view.spec.table}"
            routes += [
                Endpoint(f"{path}/query", _of(view, self.query), POST=said.QUERY),
                Endpoint(f"{path}/tags", _of(view, self.tags), POST=said.TAGS),
                Endpoint(f"{path}/tagvalues", _of(view, self.tag_values), POST=said.TAG_VALUES),
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
        ask = Ask(self.queries, caller.organization.id, self.now_ns())
        wanted = _wanted(view, await read_json(request, BODY_LIMIT), ask.now_ns)
        slot = await self._slot(request, caller)
        lookup = Lookup(ask, self.segments)
        found = await answered(request, ask, slot, lambda: lookup.tags(wanted))
        return JSONResponse({"tags": found.items, "truncated": found.truncated} | warned(lookup.warnings))

    async def tag_values(self, request: Request, view: RowView) -> Response:
        caller = await self._caller(request)
        ask = Ask(self.queries, caller.organization.id, self.now_ns())
        name = tag_asked_for(request)
        wanted = _wanted(view, await read_json(request, BODY_LIMIT), ask.now_ns)
        slot = await self._slot(request, caller)
        lookup = Lookup(ask, self.segments)
        events = value_events(lookup.values(wanted, name), lambda: lookup.warnings)
        beating = with_signs(events, lambda _silent: event("heartbeat"), HEARTBEAT_SECONDS)
        return Stream(beating, said.EVENTS, slot.after(ask.close))

    async def _caller(self, request: Request) -> Caller:
        return await self.authenticator.admit(request, Role.READ)

    async def _slot(self, request: Request, caller: Caller) -> Slot:
        return await while_connected(request, self.limits.slot(caller))


def _wanted(view: RowView, body: dict[str, Any], now_ns: int) -> Wanted:
    text = text_in(body, "q")
    matchers = read_selector(text, _LANGUAGES[view.spec.name]) if text else ()
    if any(matcher.name == NAME for matcher in matchers):
        raise UserError(f"q names a metric, but {view.spec.table} have no metrics")
    return Wanted(view, time_range(body, now_ns), matchers)


def _of(view: RowView, endpoint: Callable[[Request, RowView], Awaitable[Response]]) -> Handler:
    async def of_view(request: Request) -> Response:
        return await endpoint(request, view)

    return of_view


async def value_events(parts: Iterator[list[str]], warnings: Callable[[], list[str]]) -> AsyncGenerator[bytes]:
    """`warnings` is asked when all parts are read."""
    left = MAX_LISTED
    try:
        async for part in in_thread(parts):
            yield b"".join(event("result", {"value": value}) for value in part[: max(left, 0)])
            left -= len(part)
    except Exception as error:  # reported to the client, and logged where it is a bug
        if not isinstance(error, LakerunnerError):
            _logger.error("request for tag values failed", exc_info=error)
        told = error_body(error)
        yield event("error", {"message": told["message"], "code": told["kind"]})
        return
    ended = {"status": "ok"} if left >= 0 else {"status": "truncated", "limit": MAX_LISTED}
    yield event("done", ended | warned(warnings()))


def warned(warnings: Sequence[str]) -> dict[str, Any]:
    """What is added to an answer, if there is anything."""
    return {"warnings": list(warnings)} if warnings else {}


def event(type_: str, data: dict[str, Any] | None = None) -> bytes:
    body = {"type": type_} if data is None else {"type": type_, "data": data}
    return b"data: " + orjson.dumps(body) + b"\n\n"


def text_in(body: dict[str, Any], name: str) -> str:
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise UserError(f"{name} must be text")
    return (value or "").strip()


def tag_asked_for(request: Request) -> str:
    name = request.query_params.get("tagName", "")
    if not name:
        raise UserError("tagName is missing: .../tagvalues?tagName=service_name")
    if len(name) > NAME_MAX_CHARACTERS:
        raise UserError(f"tagName is longer than {NAME_MAX_CHARACTERS} characters")
    return name
