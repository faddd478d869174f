"""Descriptions of the endpoints of the native API, for api/openapi.py."""

from __future__ import annotations

from lakerunner.api.openapi import ERROR_REF, JSON, Body, Operation, Parameter, Reply, json_reply
from lakerunner.api.schema import ANY, BOOLEAN, COUNT, TEXT, TIME, Schema, array, flag, one_of, record, text
from lakerunner.query.options import ENGINES

EVENTS = "text/event-stream"
_STATUSES = (400, 401, 403, 413, 415, 429, 503)
_TIME = "s or ms since 1970, an ISO 8601 time, `now` or `now-1h`"


def _time(means: str, default: str) -> Schema:
    return {"type": ["string", "integer"], "description": f"{means}: {_TIME}; default: {default}"}


_WANTED = record(
    "s? e? q? metric?",
    s=_time("start", "one hour before `e`"),
    e=_time("end, excluded", "now"),
    q=text('only rows that this selector matches: `{level="ERROR"}`'),
    metric=text("for metrics/tags: only points of this metric"),
)
_BODY = {JSON: Body(_WANTED, {"s": "now-1h", "e": "now"})}
_WARNINGS = array(TEXT, description="the part of this time that has expired, if any")
_METRIC = record("name type unit? description?")


PING = Operation("native", "Check an API key", json_reply("The key is valid.", record("status", status=one_of(["ok"]))))
FEATURES = Operation(
    "native",
    "Features of this server",
    json_reply("By name.", record("features", features={"type": "object", "additionalProperties": BOOLEAN})),
)
METADATA = Operation(
    "native",
    "List the metrics of a time range with types and units",
    json_reply(
        "The metrics.",
        record("metrics truncated? warnings?", metrics=array(_METRIC), truncated=BOOLEAN, warnings=_WARNINGS),
    ),
    body=_BODY,
    errors=_STATUSES,
)
_WINDOW = record("end tiers over", end=TIME, tiers=array(TEXT), over=BOOLEAN)
_COUNTED = record(
    "metric series now most by_window",
    series={**COUNT, "description": "active at any time of the range"},
    now={**COUNT, "description": "in the last window that was complete at the end"},
    most={**COUNT, "description": "in the window with the most"},
    by_window=array(COUNT),
)
_LABEL = record("label of values exact", of=one_of(("series", "resource")), values=COUNT, exact=BOOLEAN)
CARDINALITY = Operation(
    "native",
    "Count the active series of each metric in each window",
    json_reply(
        "The counts.",
        record(
            "metrics step? windows? labels? truncated?",
            metrics=array(_COUNTED),
            step=COUNT,
            windows=array(_WINDOW),
            labels=array(_LABEL),
            truncated=BOOLEAN,
        ),
    ),
    description="Estimates with a standard error of 2.3 %, from rollups, or from points where there "
    "are no rollups yet (docs/formats/native_api.md).",
    parameters=(
        Parameter(
            "metric", "query", TEXT, "name as it was sent, or Prometheus' name for it; default: all metrics", "up"
        ),
        Parameter("start", "query", TEXT, f"{_TIME}; default: one hour before `end`", "now-1h"),
        Parameter("end", "query", TEXT, f"{_TIME}; default: now", "now"),
        Parameter("step", "query", TEXT, "width of the windows, a multiple of 10s; default: a tier that fits", "5m"),
        Parameter("labels", "query", TEXT, "1: also the number of values of each label of the metric", "1"),
        Parameter("limit", "query", COUNT, "number of metrics, those with the most series; default: 100", "10"),
    ),
    errors=_STATUSES,
)
_FIELDS = "q s? e? step? instant? partial? tier? engine? explain? format?"
_PROMQL: dict[str, Schema] = {
    "q": text("PromQL"),
    "s": _time("first step", "one hour before `e`"),
    "e": _time("end", "now"),
    "step": {"type": ["string", "integer"], "description": "seconds, or 15s; default: one that fits a graph"},
    "instant": flag("only at `e`"),
    "partial": flag("true: list data that cannot be read instead of failing; default: true for events"),
    "tier": one_of(["raw"], description="raw: read no rollups"),
    "engine": one_of(ENGINES, default=ENGINES[0]),
    "explain": flag("true: the last event has `reads`, the tiers that were read"),
    "format": one_of(("sse", "json"), description="overrides the Accept header"),
}
PROMQL = Operation(
    "native",
    "Run a PromQL query",
    {200: Reply("The points.", {EVENTS: ANY, JSON: ANY})},
    description="Events `result`, one for each point, as soon as they are computed, then `done` or "
    "`error`; or JSON (docs/formats/native_api.md).",
    body={JSON: Body(record(_FIELDS, **_PROMQL), {"q": "1 + 1", "s": "now-1h", "e": "now", "step": "60s"})},
    errors=_STATUSES,
)
EXPLAIN = Operation(
    "native",
    "Show the plan of a PromQL query",
    json_reply("The lines of the plan.", record("plan", plan=array(TEXT))),
    description="What workers do for each part of the expression, which segments and rollups are read, and with "
    "`analyze` what running it took (docs/formats/explain.md).",
    body={
        JSON: Body(
            record(f"{_FIELDS} analyze?", **_PROMQL, analyze=flag("true: run the query and add what it took")),
            {"q": "sum(rate(http_requests_total[5m]))", "s": "now-1h", "e": "now", "step": "60s"},
        )
    },
    errors=_STATUSES,
)
LOGQL = Operation(
    "native",
    "Run a LogQL query",
    {200: Reply("Lines or points, as server-sent events.", {EVENTS: ANY})},
    description="Events `result`, one for each line or point, then `done` or `error` (docs/formats/native_api.md).",
    body={
        JSON: Body(
            record(
                "q s? e? step? limit? reverse? fields? materialized?",
                q=text("LogQL"),
                s=_time("start", "one hour before `e`"),
                e=_time("end, excluded", "now"),
                step={"type": ["string", "integer"], "description": "of a metric query: seconds, or 15s"},
                limit={**COUNT, "description": "maximum number of lines; default: 1,000"},
                reverse=flag("true (default): newest lines first"),
                fields=array(TEXT, description="tags to return with lines; default: all"),
                materialized=flag("true (default): metrics of rules may stand for lines"),
            ),
            {"q": '{service_name=~".+"}', "s": "now-1h", "e": "now"},
        )
    },
    errors=_STATUSES,
)
VALIDATE = Operation(
    "native",
    "Check the text of a LogQL query",
    json_reply("Whether it is valid.", record("valid kind? query? error?", valid=BOOLEAN, error={"type": "object"})),
    body={JSON: Body(record("q", q=text("LogQL")), {"q": '{service_name="cart"}'})},
    errors=_STATUSES,
)
QUERY = Operation(
    "native",
    "Query spans: not available yet",
    json_reply("The language is not available yet.", ERROR_REF, 400),
    description="TraceQL is refused with its name; use SQL at POST /api/v1/sql.",
    body={JSON: Body()},
)
TAGS = Operation(
    "native",
    "List the tags of a time range",
    json_reply(
        "Their names.",
        record(
            "tags truncated? metric? warnings?", tags=array(TEXT), truncated=BOOLEAN, metric=_METRIC, warnings=_WARNINGS
        ),
    ),
    body=_BODY,
    errors=(*_STATUSES, 404),
)
TAG_VALUES = Operation(
    "native",
    "List the values of a tag in a time range",
    {200: Reply("The values, as server-sent events.", {EVENTS: ANY})},
    description="Events `result`, then `done` or `error` (docs/formats/native_api.md).",
    parameters=(Parameter("tagName", "query", TEXT, "name of the tag", "service_name"),),
    body=_BODY,
    errors=_STATUSES,
)
