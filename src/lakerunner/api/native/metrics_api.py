"""Metrics in the native API: PromQL as server-sent events, sent as they are computed, and lists of tags, values and
metrics under Prometheus' names.

`POST /api/v1/metrics/query` answers with an event for each point, progress and heartbeats between them, and exactly one
closing event: `done`, which says whether the answer is complete, or `error`. docs/formats/native_api.md describes every
body and answer.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import orjson
from anyio import to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lakerunner.api.auth import Authenticator
from lakerunner.api.body import read_json
from lakerunner.api.errors import error_body
from lakerunner.api.formats.format import closing_fields
from lakerunner.api.formats.series_json import group_events, result_json
from lakerunner.api.formats.sse import ProgressEvents
from lakerunner.api.limits import Close, QueryLimits, respond, run_in_slot
from lakerunner.api.native import operations
from lakerunner.api.native.lookup import MAX_LISTED
from lakerunner.api.native.metrics_request import MetricsRequest, boolean_field, cardinality_json, cardinality_question
from lakerunner.api.native.native_api import (
    BODY_LIMIT,
    HEARTBEAT_SECONDS,
    event,
    required_tag,
    text_field,
    value_events,
    warning_fields,
)
from lakerunner.api.openapi import JSON, Endpoint
from lakerunner.api.prometheus.lists import Selectors, selectors_in
from lakerunner.api.prometheus.response import note_texts, stream_response
from lakerunner.api.stream import Stream, in_thread, while_connected, with_idle_events
from lakerunner.api.time_range import time_range
from lakerunner.model.errors import LakerunnerError, NotFound
from lakerunner.model.labels import NAME
from lakerunner.model.labels.matcher import Matcher
from lakerunner.model.organization import Caller, Role
from lakerunner.model.time import MS_NS
from lakerunner.plan.explain import Explain
from lakerunner.promql.parse import parse
from lakerunner.query.answer import Answer
from lakerunner.query.metric_answers import Listing, MetricsLake
from lakerunner.query.reads import to_json
from lakerunner.query.series_answer import SeriesAnswer

PROGRESS_SECONDS = 0.5
_ALL = 1 << 62
_SERIES_ENDINGS = ("_bucket", "_sum", "_count", "_total")
_logger = logging.getLogger("lakerunner.api.native")


@dataclass(frozen=True)
class NativeMetricsApi:
    """The endpoints of metrics. `now_ns` is the clock; `limits` are those of all queries."""

    lake: MetricsLake
    authenticator: Authenticator
    now_ns: Callable[[], int]
    limits: QueryLimits

    def routes(self) -> list[Route]:
        return [
            Endpoint("/api/v1/metrics/query", self.query, POST=operations.PROMQL),
            Endpoint("/api/v1/metrics/explain", self.explain, POST=operations.EXPLAIN),
            Endpoint("/api/v1/metrics/tags", self.tags, POST=operations.TAGS),
            Endpoint("/api/v1/metrics/tagvalues", self.tag_values, POST=operations.TAG_VALUES),
            Endpoint("/api/v1/metrics/metadata", self.metadata, POST=operations.METADATA),
            Endpoint("/api/v1/metrics/cardinality", self.cardinality, GET=operations.CARDINALITY),
        ]

    async def query(self, request: Request) -> Response:
        caller = await self._caller(request)
        body = await read_json(request, BODY_LIMIT)
        parsed = MetricsRequest.parse(body, request.headers.get("accept", ""), self.now_ns())

        async def write(answer: SeriesAnswer, close: Close) -> Response:
            if parsed.events:
                return Stream(_events(answer, parsed), operations.EVENTS, close)
            return await _whole(request, answer, parsed, close)

        begin = partial(self.lake.promql, caller.organization.id, parsed.question)
        return await respond(request, self.limits, caller, begin, write)

    async def explain(self, request: Request) -> Response:
        caller = await self._caller(request)
        body = await read_json(request, BODY_LIMIT)
        question = MetricsRequest.parse(body, JSON, self.now_ns()).question
        how = Explain.ANALYZE if boolean_field(body, "analyze", default=False) else Explain.PLAN

        async def write(answer: Answer, close: Close) -> Response:
            batches = await to_thread.run_sync(list, answer, abandon_on_cancel=True)
            await to_thread.run_sync(close)
            return JSONResponse({"plan": [line for batch in batches for line in batch["plan"].to_pylist()]})

        begin = partial(self.lake.explain, caller.organization.id, question, how)
        return await respond(request, self.limits, caller, begin, write)

    async def tags(self, request: Request) -> Response:
        selection = await self._read_selection(request)
        names = await self._list(request, selection, partial(self.lake.label_names, *selection.where))
        head = await self._metric(request, selection) if selection.metric else {}
        return JSONResponse(head | {"tags": names.rows, "truncated": names.truncated} | _listing_warnings(names))

    async def tag_values(self, request: Request) -> Response:
        name = required_tag(request)
        selection = await self._read_selection(request)
        organization, *where = selection.where
        slot = await while_connected(request, self.limits.slot(selection.caller))

        warnings: list[str] = []

        def parts() -> Iterator[list[str]]:
            most, now_ns = MAX_LISTED + 1, selection.now_ns
            values = self.lake.label_values(organization, name, *where, limit=most, now_ns=now_ns)
            warnings.extend(sorted(values.account.warnings))
            yield values.rows

        events = value_events(parts(), lambda: warnings)
        stream = with_idle_events(events, lambda _silent: event("heartbeat"), HEARTBEAT_SECONDS)
        return Stream(stream, operations.EVENTS, slot.release)

    async def metadata(self, request: Request) -> Response:
        selection = await self._read_selection(request)
        families, names = await self._families(request, selection)
        truncated = names.truncated or len(families) > MAX_LISTED
        return JSONResponse({"metrics": families[:MAX_LISTED], "truncated": truncated} | _listing_warnings(names))

    async def cardinality(self, request: Request) -> Response:
        caller = await self._caller(request)
        question = cardinality_question(request.query_params, self.now_ns())
        work = partial(self.lake.cardinality, caller.organization.id, question)
        found = await run_in_slot(request, self.limits, caller, work)
        return JSONResponse(cardinality_json(question, found))

    async def _metric(self, request: Request, selection: _SeriesSelection) -> dict[str, Any]:
        """Return name and type of the requested metric; raise NotFound if it has no series in this time."""
        found, _ = await self._families(request, selection)
        if not found:
            raise NotFound(
                f"metric {selection.metric!r} not found in this time: /api/v1/metrics/metadata lists all metrics"
            )
        return {"metric": {"name": selection.metric, "type": found[0]["type"]}}

    async def _families(self, request: Request, selection: _SeriesSelection) -> tuple[list[dict[str, str]], Listing]:
        """Return the metrics that have a series in this time, with empty fields if their metadata is unknown, and the
        list of names they come from."""
        organization, *where = selection.where
        names = await self._list(request, selection, partial(self.lake.label_values, organization, NAME, *where))
        metadata = partial(self.lake.metadata, organization, metric=None, limit_per_metric=0)
        stated = await self._list(request, selection, metadata, most=_ALL)
        known: dict[str, list[dict[str, str]]] = {}
        for name, type_, help_, unit in stated.rows:
            known.setdefault(name, []).append({"name": name, "type": type_, "unit": unit, "description": help_})
        found: dict[str, list[dict[str, str]]] = {}
        for name in names.rows:
            family = _family(name, known)
            unknown = [{"name": name, "type": "unknown", "unit": "", "description": ""}]
            found[family] = known.get(family, unknown)
        return [entry for family in sorted(found) for entry in found[family]], names

    async def _read_selection(self, request: Request) -> _SeriesSelection:
        caller = await self._caller(request)
        body, now_ns = await read_json(request, BODY_LIMIT), self.now_ns()
        text, metric = text_field(body, "q"), text_field(body, "metric")
        selectors = selectors_in(parse(text)) if text else []
        if metric:
            named = Matcher(NAME, "=", metric)
            selectors = [(named, *matchers) for matchers in selectors] or [(named,)]
        time = time_range(body, now_ns)
        return _SeriesSelection(
            caller, selectors, -(-time.start_ns // MS_NS), (time.end_ns - 1) // MS_NS, metric, now_ns
        )

    async def _list(
        self, request: Request, selection: _SeriesSelection, work: Callable[..., Listing], most: int = MAX_LISTED
    ) -> Listing:
        run = partial(work, limit=most, now_ns=selection.now_ns)
        return await run_in_slot(request, self.limits, selection.caller, run)

    async def _caller(self, request: Request) -> Caller:
        return await self.authenticator.admit(request, Role.READ)


@dataclass(frozen=True)
class _SeriesSelection:
    """The series that a request is about; `start` and `end` in ms, both included."""

    caller: Caller
    selectors: Selectors
    start: int
    end: int
    metric: str
    now_ns: int

    @property
    def where(self) -> tuple[Any, ...]:
        return self.caller.organization.id, self.selectors, self.start, self.end


def _listing_warnings(listing: Listing) -> dict[str, Any]:
    return warning_fields(sorted(listing.account.warnings))


def _family(name: str, known: dict[str, list[dict[str, str]]]) -> str:
    """Return the metric of a series: the series of a histogram have a suffix after its name."""
    if name in known:
        return name
    return next(
        (name.removesuffix(e) for e in _SERIES_ENDINGS if name.endswith(e) and name.removesuffix(e) in known), name
    )


async def _events(answer: SeriesAnswer, parsed: MetricsRequest) -> AsyncGenerator[bytes]:
    progress = ProgressEvents(answer, event, HEARTBEAT_SECONDS)
    chunks = in_thread(chunk for group in answer for chunk in group_events(group))
    try:
        async for chunk in with_idle_events(chunks, progress.after, min(PROGRESS_SECONDS, HEARTBEAT_SECONDS)):
            yield chunk
    except Exception as error:  # reported to the client, and logged if it is a bug
        if not isinstance(error, LakerunnerError):
            _logger.error("metrics query failed", exc_info=error)
        body = error_body(error)
        yield event("error", {"code": body.pop("kind"), **body})
        return
    yield event("done", {"status": "ok", **_last_word(answer, parsed)})


async def _whole(request: Request, answer: SeriesAnswer, parsed: MetricsRequest, close: Callable[[], None]) -> Response:
    groups = await to_thread.run_sync(list, answer, abandon_on_cancel=True)
    kind, result, _ = result_json(groups, parsed.question.instant, _ALL)
    head = b'{"resultType":%s,"result":' % orjson.dumps(kind)
    tail = b"," + orjson.dumps(_last_word(answer, parsed))[1:]
    return await stream_response(request, chain([head], result, [tail]), close)


def _last_word(answer: SeriesAnswer, parsed: MetricsRequest) -> dict[str, Any]:
    text = parsed.question.text
    notes = {f"{level}s": note_texts(answer.notes, level, text) for level in ("warning", "info")}
    explained = {"reads": to_json(answer.reads)} if parsed.explain else {}
    return {"step": parsed.question.steps.step, **closing_fields(answer.account), **notes, **explained}
