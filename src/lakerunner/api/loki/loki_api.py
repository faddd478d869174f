"""Loki's HTTP API below /loki, so that Grafana, logcli and every client of Loki can query the lake's logs.

Requests and answers are those of Loki; the API key alone determines the organization whose lines are read, and
X-Scope-OrgID may name no other one. docs/formats/loki_api.md describes every endpoint.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

import orjson
from anyio import to_thread
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from lakerunner.api.auth import refuse_other_tenant
from lakerunner.api.loki import loki_operations as operations
from lakerunner.api.loki.detected_fields import DetectedFields
from lakerunner.api.loki.known_rules import KnownRules
from lakerunner.api.loki.log_context import LogContext
from lakerunner.api.loki.log_export import LogExport
from lakerunner.api.loki.log_parameters import LogParameters
from lakerunner.api.loki.log_queries import LogQueries, LokiLimits
from lakerunner.api.loki.loki_errors import LokiError, error_response
from lakerunner.api.loki.pattern_list import PatternList
from lakerunner.api.loki.plan_response import PlanResponse
from lakerunner.api.loki.stream_lists import StreamLists
from lakerunner.api.openapi import JSON, Endpoint, Operation
from lakerunner.api.query_service import QueryRequest, QueryService
from lakerunner.api.stream import whole_response
from lakerunner.logql.text.parse import parse_logql
from lakerunner.logql.text.pretty import format_query
from lakerunner.model.errors import UserError
from lakerunner.model.streams.line_level import LEVEL_NAMES
from lakerunner.model.streams.stream_rules import StreamRules
from lakerunner.query.engine import Engine

ROOT = "/loki/api/v1"
OLD_ROOT = "/api/prom"
COMPATIBLE = "3.7.0"  # the version of Loki's API and LogQL; clients choose their requests by it
NO_DELETION = (
    "lines cannot be deleted by a query: the setting `retention` says how long lines are kept, and an admin deletes "
    "an organization as a whole"
)
_YAML = "application/yaml"
Answer = Callable[[QueryRequest, LogParameters], Awaitable[Response]]


@dataclass(frozen=True)
class LokiApi:
    """The endpoints. `ready`: whether it can serve."""

    engine: Engine
    service: QueryService
    most: LokiLimits = field(default_factory=LokiLimits)
    ready: Callable[[], bool] = lambda: True
    rules: KnownRules = field(default_factory=KnownRules)

    def routes(self) -> list[Route]:
        queries = LogQueries(self.engine, self.most, self.rules)
        lists = StreamLists(self.engine, self.most, self.rules)
        return [
            *self._both(ROOT, _current(queries, lists)),
            *self._both(OLD_ROOT, _old(queries, lists)),
            self._endpoint(f"{ROOT}/status/buildinfo", _always(build()), GET=operations.BUILD),
            self._endpoint(f"{ROOT}/drilldown-limits", self.drilldown_limits, GET=operations.DRILLDOWN),
            self._endpoint("/config/tenant/v1/limits", self.tenant_limits, GET=operations.LIMITS),
            *(self._endpoint(f"{root}/rules", _no_rules, GET=operations.RULES) for root in (ROOT, OLD_ROOT)),
            self._endpoint(
                f"{ROOT}/delete",
                _no_deletion,
                **dict.fromkeys(("GET", "POST", "PUT", "DELETE"), operations.DELETE),
            ),
            Endpoint("/ready", self.is_ready, GET=operations.READY),
            *self._both(ROOT, self._samples()),
            *self._of_lines(),
        ]

    def _of_lines(self) -> list[Route]:
        """Return the endpoints of the native API that Loki lacks: the export of all lines, and the context of one."""
        plans = PlanResponse(self.engine, self.rules)
        export, context = LogExport(plans).export, LogContext(plans, self.most).context
        return [
            self.service.endpoint("/api/v1/logs/context", context, GET=operations.CONTEXT),
            self.service.endpoint(
                "/api/v1/logs/export", export, GET=operations.EXPORT, POST=operations.posted(operations.EXPORT)
            ),
        ]

    def _samples(self) -> dict[str, tuple[Answer, Operation]]:
        """Return the endpoints that look at a sample of lines."""
        plans = PlanResponse(self.engine, self.rules)
        fields = DetectedFields(plans, self.most)
        return {
            "detected_fields": (fields.fields, operations.DETECTED_FIELDS),
            "detected_field/{name}/values": (fields.values, operations.DETECTED_VALUES),
            "patterns": (PatternList(plans).patterns, operations.PATTERNS),
        }

    async def is_ready(self, _request: Request) -> Response:
        ready = self.ready()
        return PlainTextResponse("ready\n" if ready else "not ready\n", 200 if ready else 503)

    async def drilldown_limits(self, asked: QueryRequest, _given: LogParameters) -> Response:
        limits = await self._limits(asked)
        found = {"limits": limits, "pattern_ingester_enabled": True, "version": COMPATIBLE}
        return whole_response(asked.http, orjson.dumps(found))

    async def tenant_limits(self, asked: QueryRequest, _given: LogParameters) -> Response:
        limits = await self._limits(asked)
        lines = (f"{name}: {orjson.dumps(value).decode()}\n" for name, value in limits.items())  # JSON is YAML
        return whole_response(asked.http, "".join(lines).encode(), _YAML)

    async def _limits(self, asked: QueryRequest) -> dict[str, Any]:
        """Return those of Loki's limits that the lake has; 0 means no limit, as in Loki."""
        rules: StreamRules = await to_thread.run_sync(self.rules.of, asked.organization)
        return {
            "discover_log_levels": rules.detect_levels,
            "discover_service_name": list(rules.service_labels),
            "log_level_fields": list(LEVEL_NAMES),
            "max_entries_limit_per_query": self.most.entries,
            "max_line_size_truncate": False,
            "max_query_bytes_read": "0B",
            "max_query_length": "0s",
            "max_query_lookback": "0s",
            "max_query_range": "0s",
            "max_query_series": self.most.query.max_series,
            "metric_aggregation_enabled": False,
            "pattern_persistence_enabled": False,
            "retention_period": "0s",
            "retention_stream": [],
            "volume_enabled": True,
            "volume_max_series": self.most.query.max_series,
        }

    def _both(self, root: str, endpoints: dict[str, tuple[Answer, Operation]]) -> list[Route]:
        return [
            self._endpoint(f"{root}/{path}", answer, GET=stated, POST=operations.posted(stated))
            for path, (answer, stated) in endpoints.items()
        ]

    def _endpoint(self, path: str, answer: Answer, **stated: Operation) -> Endpoint:
        async def with_parameters(asked: QueryRequest) -> Response:
            refuse_other_tenant(asked.http.headers, asked.caller.organization)
            return await answer(asked, await LogParameters.read(asked.http))

        return self.service.endpoint(path, with_parameters, error_response, **stated)


def _current(queries: LogQueries, lists: StreamLists) -> dict[str, tuple[Answer, Operation]]:
    return {
        "query": (queries.instant, operations.QUERY),
        "query_range": (queries.range, operations.QUERY_RANGE),
        "labels": (lists.label_names, operations.LABELS),
        "label": (lists.label_names, operations.LABELS),
        "label/{name}/values": (lists.label_values, operations.LABEL_VALUES),
        "series": (lists.series, operations.SERIES),
        "index/stats": (lists.stats, operations.STATS),
        "index/volume": (lists.volume, operations.VOLUME),
        "index/volume_range": (lists.volume_range, operations.VOLUME_RANGE),
        "detected_labels": (lists.detected_labels, operations.DETECTED_LABELS),
        "format_query": (_format_query, operations.FORMAT),
    }


def _old(queries: LogQueries, lists: StreamLists) -> dict[str, tuple[Answer, Operation]]:
    return {
        "query": (queries.legacy, operations.LEGACY_QUERY),
        "label": (lists.legacy_names, operations.LEGACY_LABELS),
        "label/{name}/values": (lists.legacy_values, operations.LEGACY_VALUES),
        "series": (lists.series, operations.SERIES),
    }


async def _format_query(asked: QueryRequest, given: LogParameters) -> Response:
    try:
        formatted = format_query(parse_logql(given.text("query")))
    except UserError as error:
        return Response(orjson.dumps({"status": "invalid-query", "error": error.message}), 400, media_type=JSON)
    return whole_response(asked.http, orjson.dumps({"status": "success", "data": formatted}))


async def _no_rules(asked: QueryRequest, _given: LogParameters) -> Response:
    return whole_response(asked.http, b"{}\n", _YAML)


async def _no_deletion(_asked: QueryRequest, _given: LogParameters) -> Response:
    raise LokiError(NO_DELETION, 501)


def _always(data: Any) -> Answer:
    """Return an endpoint with a constant answer."""

    async def answer(asked: QueryRequest, _given: LogParameters) -> Response:
        return whole_response(asked.http, orjson.dumps(data))

    return answer


def build() -> dict[str, str]:
    """Return the build information; Grafana chooses its requests by the version."""
    own = version("lakerunner")
    return {
        "version": COMPATIBLE,
        "revision": f"lakerunner-{own}",
        "branch": "",
        "buildUser": "Lakerunner",
        "buildDate": "",
        "goVersion": "",
    }
