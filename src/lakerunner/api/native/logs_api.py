"""LogQL in the native API: lines or points as server-sent events, and a check of a query's text.

`POST /api/v1/logs/query` answers with an event for each line of a log query, or for each point of a metric query, whose
series are named COUNTS, and one closing event: `done` or `error`. docs/formats/native_api.md describes both endpoints.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lakerunner.api.errors import error_body
from lakerunner.api.formats.format import closing_fields
from lakerunner.api.formats.row_formats import ProgressEvents
from lakerunner.api.formats.series_json import as_vector, group_events
from lakerunner.api.loki.known_rules import KnownRules
from lakerunner.api.loki.log_queries import LokiLimits
from lakerunner.api.native import operations
from lakerunner.api.native.metrics_api import PROGRESS_SECONDS
from lakerunner.api.native.metrics_request import MAX_POINTS, boolean_field, default_step, parse_step
from lakerunner.api.native.native_api import BODY_LIMIT, HEARTBEAT_SECONDS, event
from lakerunner.api.query_service import QueryRequest, QueryService
from lakerunner.api.stream import Close, Stream, in_thread, with_idle_events
from lakerunner.api.time_range import time_range
from lakerunner.logql.log_plan import LogqlQuestion, compile_logql
from lakerunner.logql.stages.pipeline import check_stage
from lakerunner.logql.text.parse import parse_logql
from lakerunner.logql.text.printer import query_text
from lakerunner.logql.text.syntax import Pipeline
from lakerunner.model.errors import LakerunnerError, UserError
from lakerunner.model.labels import NAME
from lakerunner.model.time import MS_NS
from lakerunner.query.engine import Engine
from lakerunner.query.options import Options
from lakerunner.query.series_answer import SeriesAnswer, StepGroup
from lakerunner.series.values import Steps

COUNTS = "__logql_logs_total"  # the name of the series of a metric query
DEFAULT_LIMIT = 1000
MAX_FIELDS = 100
_logger = logging.getLogger("lakerunner.api.native")


@dataclass(frozen=True)
class LogsRequest:
    """A parsed request. `fields`: the tags that lines are returned with; None: all. `materialized`: points of
    rules may stand for lines."""

    question: LogqlQuestion
    fields: frozenset[str] | None = None
    materialized: bool = True

    @classmethod
    def parse(cls, body: Mapping[str, Any], now_ns: int, most: LokiLimits) -> LogsRequest:
        text, time = _query(body), time_range(body, now_ns)
        step = (parse_step(body.get("step")) or default_step((time.end_ns - time.start_ns) // MS_NS)) * MS_NS
        if (time.end_ns - time.start_ns) // step > MAX_POINTS:
            raise UserError(f"this step gives more than {MAX_POINTS} points in this time: use a longer step")
        limit = body.get("limit", DEFAULT_LIMIT)
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= most.entries:
            raise UserError(f"`limit` must be a number of lines from 1 to {most.entries}")
        backward = boolean_field(body, "reverse", default=True)
        direction: Any = "backward" if backward else "forward"
        question = LogqlQuestion(text, time.start_ns, time.end_ns, step, limit, direction, limits=most.query)
        return cls(question, _fields(body), boolean_field(body, "materialized", default=True))


def _query(body: Mapping[str, Any]) -> str:
    text = body.get("q")
    if not isinstance(text, str) or not text.strip():
        raise UserError('the body must be {"q": "{service_name=\\"cart\\"}", ...}: `q` is not LogQL')
    return text


def _fields(body: Mapping[str, Any]) -> frozenset[str] | None:
    given = body.get("fields")
    if given is None or given == []:
        return None
    if not isinstance(given, list) or len(given) > MAX_FIELDS or not all(isinstance(one, str) for one in given):
        raise UserError(f"`fields` must be a list of up to {MAX_FIELDS} names of tags")
    return frozenset(given)


@dataclass(frozen=True)
class NativeLogsApi:
    """The endpoints of LogQL."""

    engine: Engine
    service: QueryService
    most: LokiLimits = field(default_factory=LokiLimits)
    rules: KnownRules = field(default_factory=KnownRules)

    def routes(self) -> list[Route]:
        endpoint = self.service.endpoint
        return [
            endpoint("/api/v1/logs/query", self.query, POST=operations.LOGQL),
            endpoint("/api/v1/logql/validate", self.validate, POST=operations.VALIDATE),
        ]

    async def query(self, asked: QueryRequest) -> Response:
        now_ns = asked.now_ns()
        parsed = LogsRequest.parse(await asked.json(BODY_LIMIT), now_ns, self.most)
        text = parsed.question.text

        def begin() -> Any:
            streams, versions = self.rules.log_rules(asked.organization)
            question = replace(parsed.question, rules=streams, versions=versions if parsed.materialized else ())
            options = Options(now_ns, text=text)
            return self.engine.answer(asked.organization, compile_logql(question, now_ns), options)

        async def write(answer: Any, close: Close) -> Response:
            return Stream(_events(answer, parsed), operations.EVENTS, close)

        return await asked.respond(begin, write)

    async def validate(self, asked: QueryRequest) -> Response:
        """Answer whether a text is LogQL: 200 in both cases, with the canonical text or the error and its position."""
        text = _query(await asked.json(BODY_LIMIT))
        try:
            query = parse_logql(text, check_stage)
        except UserError as error:
            return JSONResponse({"valid": False, "error": error_body(error)})
        kind = "logs" if isinstance(query, Pipeline) else "metrics"
        return JSONResponse({"valid": True, "kind": kind, "query": query_text(query)})


async def _events(answer: Any, parsed: LogsRequest) -> AsyncGenerator[bytes]:
    progress = ProgressEvents(answer, event, HEARTBEAT_SECONDS)
    chunks = _points(answer) if isinstance(answer, SeriesAnswer) else _lines(answer, parsed.fields)
    try:
        async for chunk in with_idle_events(in_thread(chunks), progress.after, PROGRESS_SECONDS):
            yield chunk
    except Exception as error:  # reported to the client, and logged if it is a bug
        if not isinstance(error, LakerunnerError):
            _logger.error("logs query failed", exc_info=error)
        body = error_body(error)
        yield event("error", {"code": body.pop("kind"), **body})
        return
    yield event("done", {"status": "ok", **closing_fields(answer.account)})


def _lines(answer: Any, fields: frozenset[str] | None) -> Iterator[bytes]:
    for batch in answer:
        yield b"".join(_line(row, fields) for row in batch.to_pylist())


def _line(row: Mapping[str, Any], fields: frozenset[str] | None) -> bytes:
    kinds = (orjson.loads(row[kind]) for kind in ("stream", "metadata", "parsed"))
    tags = {name: value for own in kinds for name, value in own.items() if fields is None or name in fields}
    line = row["line"].encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    times = {"timestamp": row["timestamp"] // MS_NS, "timestamp_ns": str(row["timestamp"])}
    return event("result", {**times, "message": line, "tags": tags})


def _points(answer: SeriesAnswer) -> Iterator[bytes]:
    for group in answer:
        vector, steps = as_vector(group), group.steps
        named = [tuple(sorted(((NAME, COUNTS), *labels))) for labels in vector.labels]
        in_ms = Steps(steps.start // MS_NS, steps.end // MS_NS, max(1, steps.step // MS_NS))
        yield from group_events(StepGroup(in_ms, replace(vector, labels=named)))
