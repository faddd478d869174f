"""What the endpoints of the Prometheus API state of themselves, for api/openapi.py."""

from __future__ import annotations

from dataclasses import replace

from lakerunner.api.openapi import ANY, COUNT, JSON, OPEN, TEXT, Body, Operation, Parameter, Reply, Schema

FORM = "application/x-www-form-urlencoded"
_PLAIN, _PROTOBUF = "text/plain", "application/x-protobuf"
_TEXTS: Schema = {"type": "array", "items": TEXT}
_LABELS: Schema = {"type": "object", "additionalProperties": TEXT}
_ERROR: Schema = {
    "type": "object",
    "required": ["status", "errorType", "error"],
    "properties": {
        "status": {"type": "string", "enum": ["error"]},
        "errorType": {"type": "string", "description": "bad_data, execution, timeout, unavailable, ..."},
        "error": TEXT,
    },
}
_STATUSES = (400, 401, 403, 413, 422, 429, 503)
_TIME: Schema = {"type": "string", "description": "seconds since 1970, also with a fraction, or RFC 3339"}


def _time(name: str, means: str, example: str | None = None) -> Parameter:
    return Parameter(name, "query", _TIME, means, example)


def _text(name: str, means: str, example: str | None = None) -> Parameter:
    return Parameter(name, "query", TEXT, means, example)


_QUERY = _text("query", "PromQL", "1 + 1")
_LIMIT = _text("limit", "most series, names or values that are told; 0: all")
_MATCH = Parameter("match[]", "query", TEXT, "a selector of series; more than once: any of them", "up")
_WITHIN = (_time("start", "begin; by default the lake's"), _time("end", "end; by default the lake's"))
_OF_QUERIES = (
    _QUERY,
    _LIMIT,
    _text("timeout", "most seconds, or a duration as 30s"),
    _text("lookback_delta", "how far an instant selector looks back; by default 5m"),
    _text("stats", "true: what the answer took"),
    _text("partial_response", "true: what cannot be read is named in `warnings` instead of being an error"),
    _text("tier", "raw: no rollups are read"),
)


def _success(schema: Schema) -> dict[int, Reply]:
    answer: Schema = {
        "type": "object",
        "required": ["status", "data"],
        "properties": {
            "status": {"type": "string", "enum": ["success"]},
            "data": schema,
            "warnings": _TEXTS,
            "infos": _TEXTS,
        },
    }
    return {200: Reply("The answer.", {JSON: answer})}


def _operation(summary: str, schema: Schema, *parameters: Parameter, description: str = "") -> Operation:
    return Operation(
        tag="prometheus",
        summary=summary,
        description=description,
        parameters=parameters,
        replies=_success(schema),
        errors=_STATUSES,
        error_content={JSON: _ERROR},
    )


def posted(stated: Operation) -> Operation:
    """The same, with its parameters as a form in the body."""
    names = {one.name: {**one.schema, "description": one.description} for one in stated.parameters}
    return replace(stated, parameters=(), body={FORM: Body({"type": "object", "properties": names})})


_RESULT: Schema = {
    "type": "object",
    "required": ["resultType", "result"],
    "properties": {
        "resultType": {"type": "string", "enum": ["vector", "matrix", "scalar", "string"]},
        "result": ANY,
        "stats": {"type": "object"},
    },
}
QUERY = _operation("PromQL at one moment", _RESULT, *_OF_QUERIES, _time("time", "the moment; by default now"))
QUERY_RANGE = _operation(
    "PromQL over a range of time",
    _RESULT,
    *_OF_QUERIES,
    _time("start", "the first step", "1714564800"),
    _time("end", "the last step, or what comes after it", "1714568400"),
    _text("step", "seconds, or a duration as 15s; at most 11,000 steps", "60"),
    description="Whole or an error status. /api/v1/metrics/query streams the same as it is worked out.",
)
EXEMPLARS = _operation(
    "Exemplars of the series that a query reads", {"type": "array", "items": {"type": "object"}}, _QUERY, *_WITHIN
)
SERIES = _operation("Series that match", {"type": "array", "items": _LABELS}, _MATCH, _LIMIT, *_WITHIN)
LABELS = _operation("Names of labels", _TEXTS, replace(_MATCH, example=None), _LIMIT, *_WITHIN)
LABEL_VALUES = _operation(
    "Values of a label",
    _TEXTS,
    Parameter("name", "path", TEXT, "the label, or U__ and its escaped name where it has other signs", "job"),
    replace(_MATCH, example=None),
    _LIMIT,
    *_WITHIN,
)
METADATA = _operation(
    "Types, helps and units of metrics",
    {"type": "object", "additionalProperties": {"type": "array", "items": _LABELS}},
    _text("metric", "of this one alone"),
    _text("limit", "most metrics"),
    _text("limit_per_metric", "most entries of one metric"),
)
FORMAT = _operation("A query, prettily written", TEXT, _QUERY)
PARSE = _operation("A query as a tree", ANY, _QUERY)
_STATS: Schema = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["name", "value"],
        "properties": {"name": TEXT, "value": COUNT},
    },
}
TSDB = _operation(
    "How many series there were in the last two hours, by metric and label",
    {
        "type": "object",
        "required": ["headStats", "seriesCountByMetricName"],
        "properties": {
            "headStats": {"type": "object"},
            "seriesCountByMetricName": _STATS,
            "labelValueCountByLabelName": _STATS,
            "memoryInBytesByLabelName": _STATS,
            "seriesCountByLabelValuePair": _STATS,
        },
    },
    _text("limit", "rows of each list, 10 by default and 10,000 at most", "5"),
)
TARGETS = _operation("Targets: always empty, as nothing is scraped; `infos` say what to do", {"type": "object"})
TARGETS_METADATA = _operation("Metadata of targets: always empty, as nothing is scraped", {"type": "array"})
SCRAPE_POOLS = _operation("Scrape pools: always empty, as nothing is scraped", {"type": "object"})
RULES = _operation("Rules: always empty; Grafana requests them", {"type": "object"})
ALERTS = _operation("Alerts: always empty; Grafana requests them", {"type": "object"})
ALERTMANAGERS = _operation("Alertmanagers: always empty", {"type": "object"})
FEDERATE = Operation(
    tag="prometheus",
    summary="The latest samples of series, as a scrape of Prometheus' /federate",
    parameters=(_MATCH,),
    replies={200: Reply("Text format 0.0.4.", {_PLAIN: TEXT})},
    errors=_STATUSES,
    error_content={JSON: _ERROR},
)
READ = Operation(
    tag="prometheus",
    summary="Samples of series by Prometheus remote read",
    description="A snappy block of prometheus.ReadRequest. Answered with SAMPLES (docs/formats/prometheus_api.md).",
    body={_PROTOBUF: Body()},
    replies={200: Reply("A snappy block of prometheus.ReadResponse.", {_PROTOBUF: {}})},
    errors=_STATUSES,
    error_content={JSON: _ERROR},
)
BUILD = _operation("Which Prometheus this is like, and which Lakerunner it is", _LABELS)


def _probe(summary: str, *bad: int) -> Operation:
    replies = {status: Reply(summary, {_PLAIN: TEXT}) for status in (200, *bad)}
    return Operation("prometheus", summary, replies, errors=(), security=OPEN)


HEALTHY = _probe("Whether the process lives, as Prometheus is asked")
READY = _probe("Whether it can serve, as Prometheus is asked", 503)
