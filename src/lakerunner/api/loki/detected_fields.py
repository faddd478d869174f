"""Fields of sampled lines, and the values of one field, as Loki lists them for Grafana's Logs Drilldown.

Comes in: a log query, and how many of its newest lines are looked at. Goes out: Loki's JSON. What always holds: what
the lines hold is found by logql/field_detection.py; an empty list has no member, as in Loki.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import orjson
from starlette.responses import Response

from lakerunner.api.loki.log_json import LogEntry, StreamGroups, text_json
from lakerunner.api.loki.log_parameters import DEFAULT_LIMIT, LogParameters
from lakerunner.api.loki.log_queries import LokiLimits
from lakerunner.api.loki.loki_errors import LokiError, to_query_error
from lakerunner.api.loki.plan_response import PlanResponse
from lakerunner.api.query_service import QueryRequest
from lakerunner.logql.field_detection import DetectedField, SampledLine, detect_fields, detect_values
from lakerunner.logql.log_plan import LogqlQuestion, compile_logql
from lakerunner.logql.text.parse import parse_logql
from lakerunner.logql.text.syntax import Pipeline

DEFAULT_FIELDS = 1000
Write = Callable[[Iterable[SampledLine], int], Any]


@dataclass(frozen=True)
class DetectedFields:
    """The endpoints."""

    plans: PlanResponse
    most: LokiLimits

    async def fields(self, asked: QueryRequest, given: LogParameters) -> Response:
        return await self._answer(asked, given, _fields)

    async def values(self, asked: QueryRequest, given: LogParameters) -> Response:
        name = given.path["name"]
        return await self._answer(asked, given, lambda lines, limit: _values(detect_values(lines, name, limit), limit))

    async def _answer(self, asked: QueryRequest, given: LogParameters, write: Write) -> Response:
        start, end = given.ordered_bounds(asked.now_ns())
        limit = given.count("limit", given.count("field_limit", DEFAULT_FIELDS))
        lines, text = given.count("line_limit", DEFAULT_LIMIT), given.text("query")
        if lines > self.most.entries:
            raise LokiError(
                "max entries limit per query exceeded, limit > max_entries_limit_per_query "
                f"({lines} > {self.most.entries})"
            )
        if not isinstance(parse_logql(text), Pipeline):
            raise LokiError("only log selector is supported")
        step = given.step(start, end)
        question = LogqlQuestion(text, start, end, step, lines, limits=self.most.query)
        try:
            return await self.plans.whole(
                asked,
                lambda rules, now_ns: compile_logql(replace(question, rules=rules), now_ns),
                lambda answer: orjson.dumps(write(sampled_lines(answer), limit)),
                text,
            )
        except Exception as error:
            raise to_query_error(error) from error


def sampled_lines(answer: Any) -> list[SampledLine]:
    """Return the lines of an answer in Loki's order: by stream, each in the order of the answer."""
    groups = StreamGroups(categorized=True)
    for batch in answer:
        for row in batch.to_pylist():
            groups.add(LogEntry(**row))
    return [
        SampledLine(entry.line, orjson.loads(labels), orjson.loads(entry.metadata), orjson.loads(entry.parsed))
        for labels, entries in groups.sorted()
        for entry in entries
    ]


def _fields(lines: Iterable[SampledLine], limit: int) -> dict[str, Any]:
    found = detect_fields(lines, limit)
    return {"fields": [_field(name, found[name]) for name in sorted(found)], "limit": limit} if found else {}


def _field(name: str, one: DetectedField) -> dict[str, Any]:
    path = {"jsonPath": list(one.path)} if one.path else {}
    return {
        "label": name,
        "type": one.type,
        "cardinality": len(one.values),
        "parsers": one.parsers or None,
        **path,
    }


def _values(values: list[str], limit: int) -> dict[str, Any]:
    shown = [orjson.loads(text_json(value)) for value in values]
    return {"values": shown, "limit": limit} if shown else {}
