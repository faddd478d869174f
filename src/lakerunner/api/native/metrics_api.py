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

from lakerunner.api.errors import error_body
from lakerunner.api.formats.format import closing_fields
from lakerunner.api.formats.row_formats import ProgressEvents
from lakerunner.api.formats.series_json import group_events, result_json
from lakerunner.api.native import operations
from lakerunner.api.native.lookup import MAX_LISTED
from lakerunner.api.native.metrics_request import MetricsRequest, boolean_field, cardinality_json, cardinality_question
from lakerunner.api.native.native_api import (
    BODY_LIMIT,
    HEARTBEAT_SECONDS,
    event,
    required_tag,
    text_field,
    value_stream,
    warning_fields,
)
from lakerunner.api.openapi import JSON
from lakerunner.api.prometheus.lists import Selectors, selectors_in
from lakerunner.api.prometheus.response import note_texts
from lakerunner.api.query_service import QueryRequest, QueryService
from lakerunner.api.stream import Close, Stream, in_thread, stream_response, with_idle_events
from lakerunner.api.time_range import time_range
from lakerunner.model.errors import LakerunnerError, NotFound
from lakerunner.model.labels import NAME
from lakerunner.model.labels.matcher import Matcher
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
    """The endpoints of metrics."""

    lake: MetricsLake
    service: QueryService

    def routes(self) -> list[Route]:
        endpoint = self.service.endpoint
        return [
            endpoint("/api/v1/metrics/query", self.query, POST=operations.PROMQL),
            endpoint("/api/v1/metrics/explain", self.explain, POST=operations.EXPLAIN),
            endpoint("/api/v1/metrics/tags", self.tags, POST=operations.TAGS),
            endpoint("/api/v1/metrics/tagvalues", self.tag_values, POST=operations.TAG_VALUES),
            endpoint("/api/v1/metrics/metadata", self.metadata, POST=operations.METADATA),
            endpoint("/api/v1/metrics/cardinality", self.cardinality, GET=operations.CARDINALITY),
        ]

    async def query(self, asked: QueryRequest) -> Response:
        body = await asked.json(BODY_LIMIT)
        parsed = MetricsRequest.parse(body, asked.http.headers.get("accept", ""), asked.now_ns())

        async def write(answer: SeriesAnswer, close: Close) -> Response:
            if parsed.events:
                return Stream(_events(answer, parsed), operations.EVENTS, close)
            return await _whole(asked.http, answer, parsed, close)

        return await asked.respond(partial(self.lake.promql, asked.organization, parsed.question), write)

    async def explain(self, asked: QueryRequest) -> Response:
        body = await asked.json(BODY_LIMIT)
        question = MetricsRequest.parse(body, JSON, asked.now_ns()).question
        how = Explain.ANALYZE if boolean_field(body, "analyze", default=False) else Explain.PLAN

        async def write(answer: Answer, close: Close) -> Response:
            batches = await to_thread.run_sync(list, answer, abandon_on_cancel=True)
            await to_thread.run_sync(close)
            return JSONResponse({"plan": [line for batch in batches for line in batch["plan"].to_pylist()]})

        return await asked.respond(partial(self.lake.explain, asked.organization, question, how), write)

    async def tags(self, asked: QueryRequest) -> Response:
        selection = await _read_selection(asked)
        names = await selection.list(partial(self.lake.label_names, *selection.where))
        head = await self._metric(selection) if selection.metric else {}
        return JSONResponse(head | {"tags": names.rows, "truncated": names.truncated} | _listing_warnings(names))

    async def tag_values(self, asked: QueryRequest) -> Response:
        name = required_tag(asked.http)
        selection = await _read_selection(asked)
        organization, *where = selection.where
        slot = await asked.slot()
        warnings: list[str] = []

        def parts() -> Iterator[list[str]]:
            most, now_ns = MAX_LISTED + 1, selection.now_ns
            values = self.lake.label_values(organization, name, *where, limit=most, now_ns=now_ns)
            warnings.extend(sorted(values.account.warnings))
            yield values.rows

        return value_stream(parts(), lambda: warnings, slot.release)

    async def metadata(self, asked: QueryRequest) -> Response:
        families, names = await self._families(await _read_selection(asked))
        truncated = names.truncated or len(families) > MAX_LISTED
        return JSONResponse({"metrics": families[:MAX_LISTED], "truncated": truncated} | _listing_warnings(names))

    async def cardinality(self, asked: QueryRequest) -> Response:
        question = cardinality_question(asked.http.query_params, asked.now_ns())
        found = await asked.run(partial(self.lake.cardinality, asked.organization, question))
        return JSONResponse(cardinality_json(question, found))

    async def _metric(self, selection: _SeriesSelection) -> dict[str, Any]:
        """Return name and type of the requested metric; raise NotFound if it has no series in this time."""
        found, _ = await self._families(selection)
        if not found:
            raise NotFound(
                f"metric {selection.metric!r} not found in this time: /api/v1/metrics/metadata lists all metrics"
            )
        return {"metric": {"name": selection.metric, "type": found[0]["type"]}}

    async def _families(self, selection: _SeriesSelection) -> tuple[list[dict[str, str]], Listing]:
        """Return the metrics that have a series in this time, with empty fields if their metadata is unknown, and the
        list of names they come from."""
        organization, *where = selection.where
        names = await selection.list(partial(self.lake.label_values, organization, NAME, *where))
        metadata = partial(self.lake.metadata, organization, metric=None, limit_per_metric=0)
        stated = await selection.list(metadata, most=_ALL)
        known: dict[str, list[dict[str, str]]] = {}
        for name, type_, help_, unit in stated.rows:
            known.setdefault(name, []).append({"name": name, "type": type_, "unit": unit, "description": help_})
        found: dict[str, list[dict[str, str]]] = {}
        for name in names.rows:
            family = _family(name, known)
            unknown = [{"name": name, "type": "unknown", "unit": "", "description": ""}]
            found[family] = known.get(family, unknown)
        return [entry for family in sorted(found) for entry in found[family]], names


@dataclass(frozen=True)
class _SeriesSelection:
    """The series that a request is about; `start` and `end` in ms, both included."""

    asked: QueryRequest
    selectors: Selectors
    start: int
    end: int
    metric: str
    now_ns: int

    @property
    def where(self) -> tuple[Any, ...]:
        return self.asked.organization, self.selectors, self.start, self.end

    async def list(self, work: Callable[..., Listing], most: int = MAX_LISTED) -> Listing:
        return await self.asked.run(partial(work, limit=most, now_ns=self.now_ns))


async def _read_selection(asked: QueryRequest) -> _SeriesSelection:
    body, now_ns = await asked.json(BODY_LIMIT), asked.now_ns()
    text, metric = text_field(body, "q"), text_field(body, "metric")
    selectors = selectors_in(parse(text)) if text else []
    if metric:
        named = Matcher(NAME, "=", metric)
        selectors = [(named, *matchers) for matchers in selectors] or [(named,)]
    time = time_range(body, now_ns)
    return _SeriesSelection(asked, selectors, -(-time.start_ns // MS_NS), (time.end_ns - 1) // MS_NS, metric, now_ns)


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
