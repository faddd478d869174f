"""LogQL at one time and over a range: the request, validated as Loki does, and its answer.

Comes in: parameters. Goes out: Loki's JSON. What always holds: an answer is complete or an error status; nothing is
sent before all of it is computed. If the client leaves, its query ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from anyio import to_thread
from starlette.responses import Response

from lakerunner.api.formats.format import WARNINGS_HEADER, header_text
from lakerunner.api.formats.parquet_stream import PARQUET_TYPE
from lakerunner.api.loki.known_rules import KnownRules
from lakerunner.api.loki.log_json import (
    STREAMS,
    Chunks,
    LogEntry,
    StreamGroups,
    answer_chunks,
    legacy_chunks,
    samples_json,
    streams_json,
)
from lakerunner.api.loki.log_parameters import LogParameters
from lakerunner.api.loki.log_parquet import accepts_parquet, samples_parquet, streams_parquet
from lakerunner.api.loki.loki_errors import LokiError, to_query_error
from lakerunner.api.loki.query_stats import query_stats
from lakerunner.api.loki.query_tags import cut_series, is_drilldown, log_tags
from lakerunner.api.openapi import JSON
from lakerunner.api.prometheus.response import account_warnings
from lakerunner.api.query_service import QueryRequest
from lakerunner.api.stream import Close, stream_response
from lakerunner.logql.log_limits import LogLimits
from lakerunner.logql.log_plan import LogqlQuestion, compile_logql
from lakerunner.logql.text.parse import parse_logql
from lakerunner.logql.text.syntax import Pipeline
from lakerunner.model.display import go_quote
from lakerunner.model.errors import TooLarge
from lakerunner.plan.explain import Explain
from lakerunner.query.engine import Engine
from lakerunner.query.options import Options
from lakerunner.query.series_answer import SeriesAnswer

CATEGORIZE = "categorize-labels"
FLAGS_HEADER = "x-loki-response-encoding-flags"


@dataclass(frozen=True)
class LokiLimits:
    """Maximum entries of one answer and bytes of its lines and labels, and what a query may hold."""

    entries: int = 5000
    query: LogLimits = field(default_factory=LogLimits)
    answer_bytes: int = 64 << 20


@dataclass(frozen=True)
class LogRequest:
    """A parsed request. `limit` is the maximum number of entries. `interval_ns`: an entry is left out if it is less
    than this after the one before it. `categorized`: the labels of entries are told apart by kind. `is_parquet`: the
    client wants Parquet. `max_bytes`: of the lines and labels of the answer. `materialized`: points of rules may stand
    for lines. `explain`: the answer is the plan, as lines of text."""

    question: LogqlQuestion
    limit: int
    interval_ns: int = 0
    categorized: bool = False
    is_parquet: bool = False
    max_bytes: int = 64 << 20
    materialized: bool = True
    explain: Explain = Explain.NO

    def told(self, given: LogParameters) -> LogRequest:
        """Return the request with the parameters that Loki does not have."""
        return replace(self, materialized=given.materialized(), explain=given.explain())


@dataclass(frozen=True)
class AnswerBody:
    chunks: Chunks
    media_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class LogQueries:
    """The endpoints of queries."""

    engine: Engine
    most: LokiLimits
    rules: KnownRules

    async def instant(self, asked: QueryRequest, given: LogParameters) -> Response:
        limit = given.limit()
        at = given.time("time", asked.now_ns())
        direction = given.direction()
        question = LogqlQuestion(given.text("query"), at, at, 0, limit, direction, limits=self.most.query)
        parquet = accepts_parquet(asked.http.headers.get("accept", ""))
        request = LogRequest(question, limit, is_parquet=parquet)
        return await self._answer(asked, request.told(given), _body)

    async def range(self, asked: QueryRequest, given: LogParameters) -> Response:
        return await self._answer(asked, self._range_request(asked, given, given.text("query")), _body)

    async def legacy(self, asked: QueryRequest, given: LogParameters) -> Response:
        """Answer /api/prom/query: a log query, with an optional regular expression for its lines."""
        text, regexp = given.text("query"), given.text("regexp")
        if not isinstance(parse_logql(text), Pipeline):
            raise LokiError("legacy endpoints only support streams result type")
        text += f" |~ {go_quote(regexp)}" if regexp else ""
        return await self._answer(asked, self._range_request(asked, given, text), _legacy_body)

    def _range_request(self, asked: QueryRequest, given: LogParameters, text: str) -> LogRequest:
        start, end = given.ordered_bounds(asked.now_ns())
        limit, direction = given.limit(), given.direction()
        step, interval = given.step(start, end), given.interval()
        if isinstance(parse_logql(text), Pipeline):
            refuse_many_entries(limit, self.most)
        # With an interval it is known only afterwards how many lines have to be looked at.
        read = None if interval else limit
        question = LogqlQuestion(text, start, end, step, read, direction, limits=self.most.query)
        headers = asked.http.headers
        parquet = accepts_parquet(headers.get("accept", ""))
        categorized = is_categorized(headers) and not parquet
        request = LogRequest(question, limit, interval, categorized, parquet, self.most.answer_bytes)
        return request.told(given)

    async def _answer(
        self, asked: QueryRequest, parsed: LogRequest, body: Callable[[Any, LogRequest, float], AnswerBody]
    ) -> Response:
        began, now_ns = time.perf_counter(), asked.now_ns()

        def begin() -> Any:
            planning = time.perf_counter()
            cut = replace(parsed.question.limits, cut_answer=is_drilldown(asked.http.headers))
            streams, versions = self.rules.log_rules(asked.organization)
            versions = versions if parsed.materialized else ()
            question = replace(parsed.question, rules=streams, limits=cut, versions=versions)
            plan = compile_logql(question, now_ns)
            planned = time.perf_counter() - planning
            options = Options(now_ns, explain=parsed.explain, text=parsed.question.text, planned=planned)
            return self.engine.answer(asked.organization, plan, options)

        log_tags(asked)

        async def write(answer: Any, close: Close) -> Response:
            made = await to_thread.run_sync(body, answer, parsed, began, abandon_on_cancel=True)
            return await stream_response(asked.http, made.chunks, close, made.media_type, made.headers)

        try:
            return await asked.respond(begin, write)
        except Exception as error:
            raise to_query_error(error) from error


def refuse_many_entries(limit: int, most: LokiLimits) -> None:
    if limit > most.entries:
        raise LokiError(
            f"max entries limit per query exceeded, limit > max_entries_limit_per_query ({limit} > {most.entries})"
        )


def is_categorized(headers: Mapping[str, str]) -> bool:
    """Return whether the client wants the labels of entries apart by kind."""
    return CATEGORIZE in (flag.strip() for flag in headers.get(FLAGS_HEADER, "").split(","))


def _body(answer: Any, parsed: LogRequest, began: float) -> AnswerBody:
    """Compute the answer, and return its text."""
    if parsed.explain is not Explain.NO:
        lines = (f"{row['plan']}\n".encode() for batch in answer for row in batch.to_pylist())
        return AnswerBody(lines, "text/plain; charset=utf-8")
    if isinstance(answer, SeriesAnswer):
        (group,) = answer
        group, cut = cut_series(group, parsed.question.limits.max_series)
        if parsed.is_parquet:
            return _parquet_body(samples_parquet(group), answer, cut)
        kind, result, count = samples_json(group, instant=parsed.question.instant)
        groups = StreamGroups()
    else:
        groups, cut = read_streams(answer, parsed), []
        if parsed.is_parquet:
            return _parquet_body(streams_parquet(groups), answer, cut)
        kind, result, count = STREAMS, streams_json(groups), groups.count
    stats = query_stats(answer.account, time.perf_counter() - began, count)
    warnings = [*account_warnings(answer.account), *cut]
    return AnswerBody(answer_chunks(kind, result, stats, warnings, [CATEGORIZE] if groups.categorized else []))


def _parquet_body(chunks: Chunks, answer: Any, cut: list[str]) -> AnswerBody:
    warnings = "; ".join([*account_warnings(answer.account), *cut])
    headers = {WARNINGS_HEADER: header_text(warnings)} if warnings else {}
    return AnswerBody(chunks, PARQUET_TYPE, headers)


def _legacy_body(answer: Any, parsed: LogRequest, began: float) -> AnswerBody:
    groups = read_streams(answer, parsed)
    return AnswerBody(legacy_chunks(groups, query_stats(answer.account, time.perf_counter() - began, groups.count)))


def _too_many_bytes(limit: int) -> TooLarge:
    return TooLarge(
        f"lines and labels of the answer have more than {limit} bytes: use a smaller `limit` of lines, or line_format"
    )


def read_streams(answer: Any, parsed: LogRequest) -> StreamGroups:
    """Read the entries of an answer, up to the limit, and at most one in each interval. Raise TooLarge once their lines
    and labels have too many bytes."""
    groups = StreamGroups(parsed.categorized)
    last: int | None = None
    size = 0
    for batch in answer:
        for row in batch.to_pylist():
            if last is None or abs(row["timestamp"] - last) >= parsed.interval_ns:
                last = row["timestamp"]
                entry = LogEntry(**row)
                size += sum(len(text.encode()) for text in (entry.line, entry.stream, entry.metadata, entry.parsed))
                if size > parsed.max_bytes:
                    raise _too_many_bytes(parsed.max_bytes)
                groups.add(entry)
                if groups.count == parsed.limit:
                    return groups
    return groups
