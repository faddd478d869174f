"""What the endpoints of the native API state of themselves, for api/openapi.py."""

from __future__ import annotations

from lakerunner.api.openapi import ANY, BOOLEAN, COUNT, JSON, TEXT, TIME, Body, Operation, Parameter, Reply, Schema

EVENTS = "text/event-stream"
_STATUSES = (400, 401, 403, 413, 415, 429, 503)
_TIME: Schema = {
    "type": ["string", "integer"],
    "description": "s or ms since 1970, an ISO 8601 time, `now` or `now-1h`",
}
_WANTED: Schema = {
    "type": "object",
    "properties": {
        "s": {**_TIME, "description": f"begin: {_TIME['description']}; by default one hour before `e`"},
        "e": {**_TIME, "description": f"end, not included: {_TIME['description']}; by default now"},
        "q": {"type": "string", "description": 'only rows that this selector chooses: `{level="ERROR"}`'},
        "metric": {"type": "string", "description": "of metrics/tags: only points of this metric"},
    },
}
_BODY = {JSON: Body(_WANTED, {"s": "now-1h", "e": "now"})}
_WARNINGS: Schema = {"type": "array", "items": TEXT, "description": "what of this time has expired, if anything"}
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
    summary="Whether the key is good",
    replies={200: Reply("It is.", _answer("status", {"type": "string", "enum": ["ok"]}))},
    errors=(401, 403, 503),
)
FEATURES = Operation(
    tag="native",
    summary="What this server can do",
    replies={200: Reply("By name.", _answer("features", {"type": "object", "additionalProperties": BOOLEAN}))},
    errors=(401, 403, 503),
)
METADATA = Operation(
    tag="native",
    summary="The metrics of a time range, with their types and units",
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
            "now": {**COUNT, "description": "in the last window that was over at its end"},
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
    summary="How many series of each metric were active, window by window",
    description="Estimates of 2.3 % standard error, from rollups and where there are none yet from points "
    "(docs/formats/native_api.md).",
    parameters=(
        Parameter("metric", "query", TEXT, "as it came, or as Prometheus calls it; by default all", "up"),
        Parameter("start", "query", TEXT, f"{_TIME['description']}; by default one hour before `end`", "now-1h"),
        Parameter("end", "query", TEXT, f"{_TIME['description']}; by default now", "now"),
        Parameter("step", "query", TEXT, "how wide windows are, a multiple of 10s; by default a tier that fits", "5m"),
        Parameter("labels", "query", TEXT, "1: also the number of values of each label of the metric", "1"),
        Parameter("limit", "query", COUNT, "of metrics, those with the most series; by default 100", "10"),
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
        "s": {**_TIME, "description": f"the first step: {_TIME['description']}; by default one hour before `e`"},
        "e": {**_TIME, "description": f"the end: {_TIME['description']}; by default now"},
        "step": {"type": ["string", "integer"], "description": "seconds, or 15s; by default one that fits a graph"},
        "instant": {"type": "boolean", "description": "at `e` alone"},
        "partial": {"type": "boolean", "description": "what cannot be read is named; by default true of events"},
        "tier": {"type": "string", "enum": ["raw"], "description": "raw: no rollups are read"},
        "explain": {"type": "boolean", "description": "the last word has `reads`: which tiers were read"},
        "format": {"type": "string", "enum": ["sse", "json"], "description": "instead of the Accept header"},
    },
}
PROMQL = Operation(
    tag="native",
    summary="Ask in PromQL",
    description="Events `result`, one for each point, as they are worked out, then `done` or `error`; or JSON "
    "(docs/formats/native_api.md).",
    body={JSON: Body(_PROMQL, {"q": "1 + 1", "s": "now-1h", "e": "now", "step": "60s"})},
    replies={200: Reply("The points.", {EVENTS: ANY, JSON: ANY})},
    errors=_STATUSES,
)
QUERY = Operation(
    tag="native",
    summary="A query in the signal's own language: not yet",
    description="LogQL and TraceQL are refused by name for now; POST /api/v1/sql answers the same in SQL.",
    body={JSON: Body()},
    replies={400: Reply("The language is not available yet.", {JSON: {"$ref": "#/components/schemas/Error"}})},
    errors=(401, 403, 503),
)
TAGS = Operation(
    tag="native",
    summary="The tags of a time range",
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
    summary="The values of a tag in a time range",
    description="Events `result`, then `done` or `error` (docs/formats/native_api.md).",
    parameters=(Parameter("tagName", "query", TEXT, "which tag", "service_name"),),
    body=_BODY,
    replies={200: Reply("The values, as server-sent events.", {EVENTS: ANY})},
    errors=_STATUSES,
)
