"""Metrics in the native API: PromQL as server-sent events, as groups of time are worked out, and what there is to ask
about, under Prometheus' names.

`POST /api/v1/metrics/query` answers with an event for each point, signs of life between them and exactly one closing
event: `done`, which says whether the answer is complete, or `error`. docs/formats/native_api.md states every shape.
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

from lakerunner.api.answering import Close, respond
from lakerunner.api.auth import Authenticator
from lakerunner.api.body import read_json
from lakerunner.api.errors import error_body
from lakerunner.api.formats.format import closing
from lakerunner.api.formats.metric_events import group_events
from lakerunner.api.formats.prometheus_json import result_json
from lakerunner.api.formats.sse import Signs
from lakerunner.api.limits import QueryLimits
from lakerunner.api.native import operations as said
from lakerunner.api.native.cardinality_api import cardinality_json, cardinality_question
from lakerunner.api.native.lookup import MAX_LISTED
from lakerunner.api.native.native_api import (
    BODY_LIMIT,
    HEARTBEAT_SECONDS,
    event,
    tag_asked_for,
    text_in,
    value_events,
    warned,
)
from lakerunner.api.native.steps import PromqlAsked, flag
from lakerunner.api.openapi import JSON, Endpoint
from lakerunner.api.prometheus.lists import Selectors, selectors_in
from lakerunner.api.prometheus.response import notes_texts, streamed
from lakerunner.api.stream import Stream, in_thread, while_connected, with_signs
from lakerunner.api.time_range import time_range
from lakerunner.model.caller import Caller, Role
from lakerunner.model.errors import LakerunnerError, NotFound
from lakerunner.model.labels import NAME
from lakerunner.model.labels.matcher import Matcher
from lakerunner.model.time import MS_NS
from lakerunner.plan.explain import Explain
from lakerunner.promql.parse import parse
from lakerunner.query.answer import Answer
from lakerunner.query.metrics.answer import Listing, MetricsLake
from lakerunner.query.metrics.reads import to_json
from lakerunner.query.series_answer import SeriesAnswer

PROGRESS_SECONDS = 0.5
_ALL = 1 << 62
_SERIES_ENDINGS = ("_bucket", "_sum", "_count", "_total")
_logger = logging.getLogger("lakerunner.api.native")


@dataclass(frozen=True)
class NativeMetricsApi:
    """`now_ns` is the clock, handed in; `limits` are those of all queries."""

    lake: MetricsLake
    authenticator: Authenticator
    now_ns: Callable[[], int]
    limits: QueryLimits

    def routes(self) -> list[Route]:
        return [
            Endpoint("/api/v1/metrics/query", self.query, POST=said.PROMQL),
            Endpoint("/api/v1/metrics/explain", self.explain, POST=said.EXPLAIN),
            Endpoint("/api/v1/metrics/tags", self.tags, POST=said.TAGS),
            Endpoint("/api/v1/metrics/tagvalues", self.tag_values, POST=said.TAG_VALUES),
            Endpoint("/api/v1/metrics/metadata", self.metadata, POST=said.METADATA),
            Endpoint("/api/v1/metrics/cardinality", self.cardinality, GET=said.CARDINALITY),
        ]

    async def query(self, request: Request) -> Response:
        caller = await self._caller(request)
        body = await read_json(request, BODY_LIMIT)
        asked = PromqlAsked.of(body, request.headers.get("accept", ""), self.now_ns())

        async def write(answer: SeriesAnswer, close: Close) -> Response:
            if asked.events:
                return Stream(_events(answer, asked), said.EVENTS, close)
            return await _whole(request, answer, asked, close)

        begin = partial(self.lake.promql, caller.organization.id, asked.question)
        return await respond(request, self.limits, caller, begin, write)

    async def explain(self, request: Request) -> Response:
        caller = await self._caller(request)
        body = await read_json(request, BODY_LIMIT)
        question = PromqlAsked.of(body, JSON, self.now_ns()).question
        how = Explain.ANALYZE if flag(body, "analyze", default=False) else Explain.PLAN

        async def write(answer: Answer, close: Close) -> Response:
            batches = await to_thread.run_sync(list, answer, abandon_on_cancel=True)
            await to_thread.run_sync(close)
            return JSONResponse({"plan": [line for batch in batches for line in batch["plan"].to_pylist()]})

        begin = partial(self.lake.explain, caller.organization.id, question, how)
        return await respond(request, self.limits, caller, begin, write)

    async def tags(self, request: Request) -> Response:
        wanted = await self._wanted(request)
        names = await self._listed(request, wanted, partial(self.lake.label_names, *wanted.where))
        head = await self._metric(request, wanted) if wanted.metric else {}
        return JSONResponse(head | {"tags": names.rows, "truncated": names.truncated} | _warned(names))

    async def tag_values(self, request: Request) -> Response:
        name = tag_asked_for(request)
        wanted = await self._wanted(request)
        organization, *where = wanted.where
        slot = await while_connected(request, self.limits.slot(wanted.caller))

        warnings: list[str] = []

        def parts() -> Iterator[list[str]]:
            most, now_ns = MAX_LISTED + 1, wanted.now_ns
            values = self.lake.label_values(organization, name, *where, limit=most, now_ns=now_ns)
            warnings.extend(sorted(values.account.warnings))
            yield values.rows

        events = value_events(parts(), lambda: warnings)
        beating = with_signs(events, lambda _silent: event("heartbeat"), HEARTBEAT_SECONDS)
        return Stream(beating, said.EVENTS, slot.release)

    async def metadata(self, request: Request) -> Response:
        wanted = await self._wanted(request)
        families, names = await self._families(request, wanted)
        truncated = names.truncated or len(families) > MAX_LISTED
        return JSONResponse({"metrics": families[:MAX_LISTED], "truncated": truncated} | _warned(names))

    async def cardinality(self, request: Request) -> Response:
        caller = await self._caller(request)
        question = cardinality_question(request.query_params, self.now_ns())
        with await while_connected(request, self.limits.slot(caller)):
            found = await to_thread.run_sync(self.lake.cardinality, caller.organization.id, question)
        return JSONResponse(cardinality_json(question, found))

    async def _metric(self, request: Request, wanted: _Wanted) -> dict[str, Any]:
        """The entry of the metric that was asked for; NotFound where there is none in this time."""
        found, _ = await self._families(request, wanted)
        if not found:
            raise NotFound(
                f"metric {wanted.metric!r} not found in this time: /api/v1/metrics/metadata lists all metrics"
            )
        return {"metric": {"name": wanted.metric, "type": found[0]["type"]}}

    async def _families(self, request: Request, wanted: _Wanted) -> tuple[list[dict[str, str]], Listing]:
        """The metrics with a series in this time, what is not known of them is empty; and the list of their names."""
        organization, *where = wanted.where
        names = await self._listed(request, wanted, partial(self.lake.label_values, organization, NAME, *where))
        told = partial(self.lake.metadata, organization, metric=None, limit_per_metric=0)
        stated = await self._listed(request, wanted, told, most=_ALL)
        known: dict[str, list[dict[str, str]]] = {}
        for name, type_, help_, unit in stated.rows:
            known.setdefault(name, []).append({"name": name, "type": type_, "unit": unit, "description": help_})
        found: dict[str, list[dict[str, str]]] = {}
        for name in names.rows:
            family = _family(name, known)
            unknown = [{"name": name, "type": "unknown", "unit": "", "description": ""}]
            found[family] = known.get(family, unknown)
        return [entry for family in sorted(found) for entry in found[family]], names

    async def _wanted(self, request: Request) -> _Wanted:
        caller = await self._caller(request)
        body, now_ns = await read_json(request, BODY_LIMIT), self.now_ns()
        text, metric = text_in(body, "q"), text_in(body, "metric")
        selectors = selectors_in(parse(text)) if text else []
        if metric:
            named = Matcher(NAME, "=", metric)
            selectors = [(named, *matchers) for matchers in selectors] or [(named,)]
        time = time_range(body, now_ns)
        return _Wanted(caller, selectors, -(-time.start_ns // MS_NS), (time.end_ns - 1) // MS_NS, metric, now_ns)

    async def _listed(
        self, request: Request, wanted: _Wanted, work: Callable[..., Listing], most: int = MAX_LISTED
    ) -> Listing:
        """The work is not stopped by a client that leaves; its slot is held until it has ended."""
        with await while_connected(request, self.limits.slot(wanted.caller)):
            return await to_thread.run_sync(lambda: work(limit=most, now_ns=wanted.now_ns))

    async def _caller(self, request: Request) -> Caller:
        return await self.authenticator.admit(request, Role.READ)


@dataclass(frozen=True)
class _Wanted:
    """Times in ms, both included."""

    caller: Caller
    selectors: Selectors
    start: int
    end: int
    metric: str
    now_ns: int

    @property
    def where(self) -> tuple[Any, ...]:
        return self.caller.organization.id, self.selectors, self.start, self.end


def _warned(listing: Listing) -> dict[str, Any]:
    return warned(sorted(listing.account.warnings))


def _family(name: str, known: dict[str, list[dict[str, str]]]) -> str:
    """The metric that a series belongs to: a histogram's series have an ending behind its name."""
    if name in known:
        return name
    return next(
        (name.removesuffix(e) for e in _SERIES_ENDINGS if name.endswith(e) and name.removesuffix(e) in known), name
    )


async def _events(answer: SeriesAnswer, asked: PromqlAsked) -> AsyncGenerator[bytes]:
    signs = Signs(answer, event, HEARTBEAT_SECONDS)
    chunks = in_thread(chunk for group in answer for chunk in group_events(group))
    try:
        async for chunk in with_signs(chunks, signs.after, min(PROGRESS_SECONDS, HEARTBEAT_SECONDS)):
            yield chunk
    except Exception as error:  # told to the client, and logged where it is a bug
        if not isinstance(error, LakerunnerError):
            _logger.error("metrics query failed", exc_info=error)
        told = error_body(error)
        yield event("error", {"code": told.pop("kind"), **told})
        return
    yield event("done", {"status": "ok", **_last_word(answer, asked)})


async def _whole(request: Request, answer: SeriesAnswer, asked: PromqlAsked, close: Callable[[], None]) -> Response:
    groups = await to_thread.run_sync(list, answer, abandon_on_cancel=True)
    kind, result, _ = result_json(groups, asked.question.instant, _ALL)
    head = b'{"resultType":%s,"result":' % orjson.dumps(kind)
    tail = b"," + orjson.dumps(_last_word(answer, asked))[1:]
    return await streamed(request, chain([head], result, [tail]), close)


def _last_word(answer: SeriesAnswer, asked: PromqlAsked) -> dict[str, Any]:
    text = asked.question.text
    notes = {f"{level}s": notes_texts(answer.notes, level, text) for level in ("warning", "info")}
    explained = {"reads": to_json(answer.reads)} if asked.explain else {}
    return {"step": asked.question.steps.step, **closing(answer.account), **notes, **explained}
