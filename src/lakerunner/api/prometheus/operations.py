"""Descriptions of the endpoints of the Prometheus API, for api/openapi.py."""

from __future__ import annotations

from dataclasses import replace

from lakerunner.api.body import FORM
from lakerunner.api.openapi import JSON, OPEN, Body, Operation, Parameter, Reply, json_reply
from lakerunner.api.schema import ANY, COUNT, OBJECT, TEXT, Schema, array, one_of, record, text

_PLAIN, _PROTOBUF = "text/plain", "application/x-protobuf"
_TEXTS = array(TEXT)
_LABELS: Schema = {"type": "object", "additionalProperties": TEXT}
_ERROR = record(
    "status errorType error", status=one_of(["error"]), errorType=text("bad_data, execution, timeout, unavailable, ...")
)
_STATUSES = (400, 401, 403, 413, 422, 429, 503)
_TIME = text("seconds since 1970, with an optional fraction, or RFC 3339")


def _time(name: str, means: str, example: str | None = None) -> Parameter:
    return Parameter(name, "query", _TIME, means, example)


def _text(name: str, means: str, example: str | None = None) -> Parameter:
    return Parameter(name, "query", TEXT, means, example)


_QUERY = _text("query", "PromQL", "1 + 1")
_LIMIT = _text("limit", "maximum number of series, names or values; 0: all")
_MATCH = Parameter(
    "match[]", "query", TEXT, "a selector of series; may be repeated: series that match any of them", "up"
)
_WITHIN = (_time("start", "start; default: the start of the lake"), _time("end", "end; default: the end of the lake"))
_OF_QUERIES = (
    _QUERY,
    _LIMIT,
    _text("timeout", "maximum seconds, or a duration such as 30s"),
    _text("lookback_delta", "how far an instant selector looks back; default: 5m"),
    _text("stats", "true: statistics of the query"),
    _text("partial_response", "true: list data that cannot be read in `warnings` instead of failing"),
    _text("tier", "raw: read no rollups"),
    _text("engine", "duckdb, or spark: what runs the units of the query"),
)


def _operation(summary: str, schema: Schema, *parameters: Parameter, description: str = "") -> Operation:
    answer = record(
        "status data warnings? infos?", status=one_of(["success"]), data=schema, warnings=_TEXTS, infos=_TEXTS
    )
    return Operation(
        "prometheus",
        summary,
        json_reply("The answer.", answer),
        description=description,
        parameters=parameters,
        errors=_STATUSES,
        error_content={JSON: _ERROR},
    )


def posted(stated: Operation) -> Operation:
    """Return the same operation with its parameters as a form in the body."""
    names = {one.name: {**one.schema, "description": one.description} for one in stated.parameters}
    return replace(stated, parameters=(), body={FORM: Body({"type": "object", "properties": names})})


_RESULT = record(
    "resultType result stats?", resultType=one_of(("vector", "matrix", "scalar", "string")), result=ANY, stats=OBJECT
)
QUERY = _operation(
    "Run a PromQL query at one time", _RESULT, *_OF_QUERIES, _time("time", "time to evaluate at; default: now")
)
QUERY_RANGE = _operation(
    "Run a PromQL query over a time range",
    _RESULT,
    *_OF_QUERIES,
    _time("start", "first step", "1714564800"),
    _time("end", "end; the last step is not after it", "1714568400"),
    _text("step", "seconds, or a duration such as 15s; at most 11,000 steps", "60"),
    description="Complete, or an error status. /api/v1/metrics/query streams the same answer while it is computed.",
)
EXEMPLARS = _operation("List exemplars of the series that a query reads", array(OBJECT), _QUERY, *_WITHIN)
SERIES = _operation("List matching series", array(_LABELS), _MATCH, _LIMIT, *_WITHIN)
LABELS = _operation("List names of labels", _TEXTS, replace(_MATCH, example=None), _LIMIT, *_WITHIN)
LABEL_VALUES = _operation(
    "List values of a label",
    _TEXTS,
    Parameter("name", "path", TEXT, "name of the label, or U__ and its escaped name if it has other characters", "job"),
    replace(_MATCH, example=None),
    _LIMIT,
    *_WITHIN,
)
METADATA = _operation(
    "List types, help texts and units of metrics",
    {"type": "object", "additionalProperties": array(_LABELS)},
    _text("metric", "only this metric"),
    _text("limit", "most metrics"),
    _text("limit_per_metric", "maximum number of entries of one metric"),
)
FORMAT = _operation("Format a query", TEXT, _QUERY)
PARSE = _operation("Parse a query into a tree", ANY, _QUERY)
_STATS = array(record("name value", value=COUNT))
TSDB = _operation(
    "Count the series of the last two hours, by metric and label",
    record(
        "headStats seriesCountByMetricName labelValueCountByLabelName? memoryInBytesByLabelName? "
        "seriesCountByLabelValuePair?",
        headStats=OBJECT,
        seriesCountByMetricName=_STATS,
        labelValueCountByLabelName=_STATS,
        memoryInBytesByLabelName=_STATS,
        seriesCountByLabelValuePair=_STATS,
    ),
    _text("limit", "rows of each list; default: 10, maximum: 10,000", "5"),
)
TARGETS = _operation("Targets: always empty, because nothing is scraped; `infos` says what to do", OBJECT)
TARGETS_METADATA = _operation("Metadata of targets: always empty, because nothing is scraped", {"type": "array"})
SCRAPE_POOLS = _operation("Scrape pools: always empty, because nothing is scraped", OBJECT)
RULES = _operation("Rules: always empty; Grafana requests them", OBJECT)
ALERTS = _operation("Alerts: always empty; Grafana requests them", OBJECT)
ALERTMANAGERS = _operation("Alertmanagers: always empty", OBJECT)
FEDERATE = Operation(
    tag="prometheus",
    summary="Latest samples of series, in the format of Prometheus' /federate",
    parameters=(_MATCH,),
    replies={200: Reply("Text format 0.0.4.", {_PLAIN: TEXT})},
    errors=_STATUSES,
    error_content={JSON: _ERROR},
)
READ = Operation(
    tag="prometheus",
    summary="Read samples of series with Prometheus remote read",
    description="A snappy block of prometheus.ReadRequest. The answer has type SAMPLES "
    "(docs/formats/prometheus_api.md).",
    body={_PROTOBUF: Body()},
    replies={200: Reply("A snappy block of prometheus.ReadResponse.", {_PROTOBUF: {}})},
    errors=_STATUSES,
    error_content={JSON: _ERROR},
)
BUILD = _operation("Versions of Prometheus that this API is compatible with, and of Lakerunner", _LABELS)


def _probe(summary: str, *bad: int) -> Operation:
    replies = {status: Reply(summary, {_PLAIN: TEXT}) for status in (200, *bad)}
    return Operation("prometheus", summary, replies, errors=(), security=OPEN)


HEALTHY = _probe("Whether the process is alive, under Prometheus' path")
READY = _probe("Whether the process can serve requests, under Prometheus' path", 503)
