"""Descriptions of the endpoints of the native API, for api/openapi.py."""

from __future__ import annotations

from lakerunner.api.openapi import ANY, BOOLEAN, COUNT, JSON, TEXT, TIME, Body, Operation, Parameter, Reply, Schema
from lakerunner.query.options import ENGINES

EVENTS = "text/event-stream"
_STATUSES = (400, 401, 403, 413, 415, 429, 503)
_TIME: Schema = {
    "type": ["string", "integer"],
    "description": "s or ms since 1970, an ISO 8601 time, `now` or `now-1h`",
}
_WANTED: Schema = {
    "type": "object",
    "properties": {
        "s": {**_TIME, "description": f"start: {_TIME['description']}; default: one hour before `e`"},
        "e": {**_TIME, "description": f"end, excluded: {_TIME['description']}; default: now"},
        "q": {"type": "string", "description": 'only rows that this selector matches: `{level="ERROR"}`'},
        "metric": {"type": "string", "description": "for metrics/tags: only points of this metric"},
    },
}
_BODY = {JSON: Body(_WANTED, {"s": "now-1h", "e": "now"})}
_WARNINGS: Schema = {"type": "array", "items": TEXT, "description": "the part of this time that has expired, if any"}
_METRIC: Schema = {
    "type": "object",
    "required": ["name", "type"],
    "properties": {"name": TEXT, "type": TEXT, "unit": TEXT, "description": TEXT},
}


def _answer(name: str, schema: Schema, **more: Schema) -> dict[str, Schema]:
    properties = {name: schema, **more}
    return {JSON: {"type": "object", "required": [name], "properties": properties}}


PING = Operation(
    tag="native",
    summary="Check an API key",
    replies={200: Reply("The key is valid.", _answer("status", {"type": "string", "enum": ["ok"]}))},
    errors=(401, 403, 503),
)
FEATURES = Operation(
    tag="native",
    summary="Features of this server",
    replies={200: Reply("By name.", _answer("features", {"type": "object", "additionalProperties": BOOLEAN}))},
    errors=(401, 403, 503),
)
METADATA = Operation(
    tag="native",
    summary="List the metrics of a time range with types and units",
    body=_BODY,
    replies={
        200: Reply(
            "The metrics.",
            _answer("metrics", {"type": "array", "items": _METRIC}, truncated=BOOLEAN, warnings=_WARNINGS),
        )
    },
    errors=_STATUSES,
)
_WINDOWS: Schema = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["end", "tiers", "over"],
        "properties": {"end": TIME, "tiers": {"type": "array", "items": TEXT}, "over": BOOLEAN},
    },
}
_COUNTED: Schema = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["metric", "series", "now", "most", "by_window"],
        "properties": {
            "metric": TEXT,
            "series": {**COUNT, "description": "active at any time of the range"},
            "now": {**COUNT, "description": "in the last window that was complete at the end"},
            "most": {**COUNT, "description": "in the window with the most"},
            "by_window": {"type": "array", "items": COUNT},
        },
    },
}
_LABELS: Schema = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["label", "of", "values", "exact"],
        "properties": {
            "label": TEXT,
            "of": {"type": "string", "enum": ["series", "resource"]},
            "values": COUNT,
            "exact": BOOLEAN,
        },
    },
}
CARDINALITY = Operation(
    tag="native",
    summary="Count the active series of each metric in each window",
    description="Estimates with a standard error of 2.3 %, from rollups, or from points where there "
    "are no rollups yet (docs/formats/native_api.md).",
    parameters=(
        Parameter(
            "metric", "query", TEXT, "name as it was sent, or Prometheus' name for it; default: all metrics", "up"
        ),
        Parameter("start", "query", TEXT, f"{_TIME['description']}; default: one hour before `end`", "now-1h"),
        Parameter("end", "query", TEXT, f"{_TIME['description']}; default: now", "now"),
        Parameter("step", "query", TEXT, "width of the windows, a multiple of 10s; default: a tier that fits", "5m"),
        Parameter("labels", "query", TEXT, "1: also the number of values of each label of the metric", "1"),
        Parameter("limit", "query", COUNT, "number of metrics, those with the most series; default: 100", "10"),
    ),
    replies={
        200: Reply(
            "The counts.",
            _answer("metrics", _COUNTED, step=COUNT, windows=_WINDOWS, labels=_LABELS, truncated=BOOLEAN),
        )
    },
    errors=_STATUSES,
)
_PROMQL: Schema = {
    "type": "object",
    "required": ["q"],
    "properties": {
        "q": {"type": "string", "description": "PromQL"},
        "s": {**_TIME, "description": f"first step: {_TIME['description']}; default: one hour before `e`"},
        "e": {**_TIME, "description": f"end: {_TIME['description']}; default: now"},
        "step": {"type": ["string", "integer"], "description": "seconds, or 15s; default: one that fits a graph"},
        "instant": {"type": "boolean", "description": "only at `e`"},
        "partial": {
            "type": "boolean",
            "description": "true: list data that cannot be read instead of failing; default: true for events",
        },
        "tier": {"type": "string", "enum": ["raw"], "description": "raw: read no rollups"},
        "engine": {"type": "string", "enum": list(ENGINES), "default": ENGINES[0]},
        "explain": {"type": "boolean", "description": "true: the last event has `reads`, the tiers that were read"},
        "format": {"type": "string", "enum": ["sse", "json"], "description": "overrides the Accept header"},
    },
}
PROMQL = Operation(
    tag="native",
    summary="Run a PromQL query",
    description="Events `result`, one for each point, as soon as they are computed, then `done` or "
    "`error`; or JSON (docs/formats/native_api.md).",
    body={JSON: Body(_PROMQL, {"q": "1 + 1", "s": "now-1h", "e": "now", "step": "60s"})},
    replies={200: Reply("The points.", {EVENTS: ANY, JSON: ANY})},
    errors=_STATUSES,
)
EXPLAIN = Operation(
    tag="native",
    summary="Show the plan of a PromQL query",
    description="What workers do for each part of the expression, which segments and rollups are read, and with "
    "`analyze` what running it took (docs/formats/explain.md).",
    body={
        JSON: Body(
            {
                **_PROMQL,
                "properties": {
                    **_PROMQL["properties"],
                    "analyze": {"type": "boolean", "description": "true: run the query and add what it took"},
                },
            },
            {"q": "sum(rate(http_requests_total[5m]))", "s": "now-1h", "e": "now", "step": "60s"},
        )
    },
    replies={200: Reply("The lines of the plan.", _answer("plan", {"type": "array", "items": TEXT}))},
    errors=_STATUSES,
)
QUERY = Operation(
    tag="native",
    summary="Query in the language of the signal: not available yet",
    description="LogQL and TraceQL are refused with their name; use SQL at POST /api/v1/sql.",
    body={JSON: Body()},
    replies={400: Reply("The language is not available yet.", {JSON: {"$ref": "#/components/schemas/Error"}})},
    errors=(401, 403, 503),
)
TAGS = Operation(
    tag="native",
    summary="List the tags of a time range",
    body=_BODY,
    replies={
        200: Reply(
            "Their names.",
            _answer("tags", {"type": "array", "items": TEXT}, truncated=BOOLEAN, metric=_METRIC, warnings=_WARNINGS),
        )
    },
    errors=(*_STATUSES, 404),
)
TAG_VALUES = Operation(
    tag="native",
    summary="List the values of a tag in a time range",
    description="Events `result`, then `done` or `error` (docs/formats/native_api.md).",
    parameters=(Parameter("tagName", "query", TEXT, "name of the tag", "service_name"),),
    body=_BODY,
    replies={200: Reply("The values, as server-sent events.", {EVENTS: ANY})},
    errors=_STATUSES,
)
