"""Patterns of lines, as Loki returns them for Grafana's Logs Drilldown.

Comes in: a log query, mostly a selector alone. Goes out: Loki's JSON: each pattern with its level, and the number of
lines in each interval of `step`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson
from starlette.responses import Response

from lakerunner.api.loki.log_parameters import LogParameters
from lakerunner.api.loki.loki_errors import LokiError, to_query_error
from lakerunner.api.loki.plan_response import PlanResponse
from lakerunner.api.query_service import QueryRequest
from lakerunner.logql.log_lines import LogLines
from lakerunner.logql.log_patterns import LineGroups, LogPatterns, patterns_plan
from lakerunner.logql.pattern_choice import choose_patterns
from lakerunner.logql.stages.pipeline import check_stage
from lakerunner.logql.text.parse import parse_logql
from lakerunner.logql.text.syntax import Pipeline
from lakerunner.model.time import SECOND_NS, TimeRange

LEAST_STEP_NS = 10 * SECOND_NS  # as in Loki


@dataclass(frozen=True)
class PatternList:
    """The endpoint."""

    plans: PlanResponse

    async def patterns(self, asked: QueryRequest, given: LogParameters) -> Response:
        start, end = given.ordered_bounds(asked.now_ns())
        text = given.text("query")
        step = -(-max(given.step(start, end), LEAST_STEP_NS) // SECOND_NS)  # whole seconds
        pipeline = parse_logql(text, check_stage)
        if not isinstance(pipeline, Pipeline):
            raise LokiError("only log selector is supported")
        within = TimeRange(start, max(end, start + 1))
        try:
            return await self.plans.whole(
                asked,
                lambda rules, now_ns: patterns_plan(
                    LogPatterns(LogLines.of(pipeline, rules, now_ns), step * SECOND_NS), within
                ),
                lambda answer: _body(answer, step),
                text,
            )
        except Exception as error:
            raise to_query_error(error) from error


def _body(answer: Any, step: int) -> bytes:
    groups = LineGroups()
    for batch in answer:
        groups.add_batch(batch)
    data = [
        {
            "pattern": one.pattern,
            "level": one.level,
            "samples": [[bucket * step, count] for bucket, count in one.counts.items()],
        }
        for one in choose_patterns(groups.by_key)
    ]
    return orjson.dumps({"status": "success", "data": data})
