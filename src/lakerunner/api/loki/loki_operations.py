"""Descriptions of the endpoints of the Loki API, for api/openapi.py."""

from __future__ import annotations

from dataclasses import replace

from lakerunner.api.formats.parquet_stream import PARQUET_TYPE
from lakerunner.api.openapi import JSON, OPEN, Operation, Parameter, Reply, json_reply
from lakerunner.api.prometheus.operations import posted as in_form
from lakerunner.api.schema import ANY, BOOLEAN, COUNT, OBJECT, TEXT, Schema, array, one_of, record, text

_PLAIN, _YAML = "text/plain", "application/yaml"
_NDJSON = "application/x-ndjson"
_LABELS: Schema = {"type": "object", "additionalProperties": TEXT}
_STATUSES = (400, 401, 403, 413, 429, 503)
_TIME = text("seconds since 1970 (up to 10 digits, or with a fraction), nanoseconds (more digits), or RFC 3339")


def _text(name: str, means: str, example: str | None = None) -> Parameter:
    return Parameter(name, "query", TEXT, means, example)


def _time(name: str, means: str, example: str | None = None) -> Parameter:
    return Parameter(name, "query", _TIME, means, example)


def posted(stated: Operation) -> Operation:
    """Return the same operation with its parameters, except those of the path, as a form in the body."""
    in_path = tuple(one for one in stated.parameters if one.where == "path")
    asked = tuple(one for one in stated.parameters if one.where != "path")
    return replace(in_form(replace(stated, parameters=asked)), parameters=in_path)


_WITHIN = (
    _time("start", "start; default: an hour before the end"),
    _time("end", "end, which is not included; default: now"),
    _text("since", "how long before the end the start is, such as 6h; default: 1h"),
)
_LIMIT = _text("limit", "maximum number of entries of a log query; default: 100, at most 5,000")
_DIRECTION = _text("direction", "backward (default): newest first; forward: oldest first")
_STEP = _text("step", "seconds, or a duration such as 1m; default: about 250 steps")
_SELECTOR = _text("query", "a selector of streams", '{service_name=~".+"}')
_MAYBE_SELECTOR = replace(_SELECTOR, example=None)
_VOLUME = (
    _SELECTOR,
    _text("limit", "maximum number of series, the largest ones; default: 100"),
    _text("targetLabels", "labels to add up by, with commas between them; default: those of the selector"),
    _text("aggregateBy", "series (default), or labels: by the names of labels alone"),
    *_WITHIN,
)


def _operation(
    summary: str, schema: Schema, *parameters: Parameter, description: str = "", parquet: bool = False
) -> Operation:
    """Describe an endpoint with answers in JSON, or in Parquet if the client accepts that."""
    return Operation(
        "loki",
        summary,
        {200: Reply("The answer.", {JSON: schema} | ({PARQUET_TYPE: ANY} if parquet else {}))},
        description=description,
        parameters=parameters,
        errors=_STATUSES,
        error_content={_PLAIN: TEXT},
    )


def _answer(data: Schema, names: str = "status data warnings?") -> Schema:
    return record(names, status=one_of(["success"]), data=data, **({"warnings": array(TEXT)} if "w" in names else {}))


def _list(summary: str, data: Schema, *parameters: Parameter) -> Operation:
    return _operation(summary, _answer(data, "status data?"), *parameters, *_WITHIN)


_RESULT = record(
    "resultType result stats encodingFlags?",
    resultType=one_of(("streams", "vector", "matrix", "scalar")),
    result=ANY,
    stats=OBJECT,
    encodingFlags=array(TEXT),
)
_NAME = Parameter("name", "path", TEXT, "name of the label", "service_name")
_OWN = (
    _text("materialized", "off: metrics that rules made of lines are not read in their place"),
    _text("explain", "plan, or analyze: return the plan as lines of text, instead of the answer or after running it"),
)
QUERY = _operation(
    "Run a LogQL metric query at one time",
    _answer(_RESULT),
    _text("query", "LogQL that gives numbers", "vector(1)+vector(1)"),
    _time("time", "time to evaluate at; default: now"),
    _LIMIT,
    _DIRECTION,
    *_OWN,
    parquet=True,
)
QUERY_RANGE = _operation(
    "Run a LogQL query over a time range",
    _answer(_RESULT),
    _text("query", "LogQL", '{service_name=~".+"}'),
    *_WITHIN,
    _STEP,
    _LIMIT,
    _DIRECTION,
    _text("interval", "return at most one entry in this time, such as 10s"),
    *_OWN,
    description="Header X-Loki-Response-Encoding-Flags: categorize-labels tells the labels of entries apart by kind.",
    parquet=True,
)
LABELS = _list("List names of stream labels", array(TEXT), _MAYBE_SELECTOR)
LABEL_VALUES = _list("List values of a stream label", array(TEXT), _NAME, _MAYBE_SELECTOR)
SERIES = _list(
    "List streams",
    array(_LABELS),
    _text("match[]", "a selector of streams; may be repeated: streams that match any of them"),
    _text("match", "the same as match[]"),
)
STATS = _operation(
    "Count streams, lines and bytes",
    record("streams chunks entries bytes", streams=COUNT, chunks=COUNT, entries=COUNT, bytes=COUNT),
    _SELECTOR,
    *_WITHIN,
    description="`chunks` are the segments that were read.",
)
VOLUME = _operation("Add up bytes of lines by labels", _answer(_RESULT), *_VOLUME)
VOLUME_RANGE = _operation("Add up bytes of lines by labels and time", _answer(_RESULT), *_VOLUME, _STEP)
DETECTED_LABELS = _operation(
    "List stream labels with the number of their values",
    record("detectedLabels", detectedLabels=array(record("label cardinality", cardinality=COUNT))),
    _MAYBE_SELECTOR,
    *_WITHIN,
)
FORMAT = replace(
    _operation("Format a query", record("status data?"), _text("query", "LogQL", '{app="a"}|="b"')),
    replies={
        200: Reply("The formatted query.", {JSON: record("status data")}),
        400: Reply("The query is invalid.", {JSON: record("status error")}),
    },
    errors=(401, 403, 413, 429, 503),
)
BUILD = _operation("Version of Loki that this API is compatible with, and of Lakerunner", _LABELS)
DRILLDOWN = _operation(
    "Limits that Grafana's Logs Drilldown asks for",
    record("limits pattern_ingester_enabled version", limits=OBJECT, pattern_ingester_enabled=BOOLEAN),
)
LIMITS = replace(
    _operation("Limits of the caller's organization, under Loki's names", ANY),
    replies={200: Reply("YAML.", {_YAML: TEXT})},
)
RULES = replace(LIMITS, summary="Rules: always empty; Grafana requests them")
DELETE = replace(
    LIMITS,
    summary="Delete lines by a query: not available",
    replies={501: Reply("Why, and what to do.", {_PLAIN: TEXT})},
)
LEGACY_QUERY = _operation(
    "Run a log query, for old clients",
    record("streams stats", streams=array(OBJECT), stats=OBJECT),
    _text("query", "LogQL", '{service_name=~".+"}'),
    _text("regexp", "a regular expression that lines match"),
    *_WITHIN,
    _LIMIT,
    _DIRECTION,
)
_VALUES = record("values", values=array(TEXT))
LEGACY_LABELS = _operation("List names of stream labels, for old clients", _VALUES, *_WITHIN)
LEGACY_VALUES = _operation("List values of a stream label, for old clients", _VALUES, _NAME, *_WITHIN)
READY = Operation(
    "loki",
    "Whether the process can serve requests, under Loki's path",
    {status: Reply("Whether it can.", {_PLAIN: TEXT}) for status in (200, 503)},
    errors=(),
    security=OPEN,
)
_SAMPLE = (
    _text("query", "a log query", '{service_name=~".+"}'),
    _text("line_limit", "number of newest lines that are looked at; default: 100, at most 5,000"),
    *_WITHIN,
    _STEP,
)
_FIELD = record(
    "label type cardinality parsers jsonPath?",
    type=one_of(("int", "float", "boolean", "duration", "bytes", "string")),
    cardinality=COUNT,
    parsers={"type": ["array", "null"], "items": TEXT, "description": "null for metadata"},
    jsonPath=array(TEXT),
)
DETECTED_FIELDS = _operation(
    "List fields of lines: metadata, and what json or logfmt finds",
    record("fields? limit?", fields=array(_FIELD), limit=COUNT),
    _text("limit", "maximum number of fields; default: 1,000"),
    *_SAMPLE,
)
DETECTED_VALUES = _operation(
    "List values of a field of lines",
    record("values? limit?", values=array(TEXT), limit=COUNT),
    replace(_NAME, description="name of the field"),
    _text("limit", "maximum number of values; default: 1,000"),
    *_SAMPLE,
)
_PATTERN = record(
    "pattern level samples",
    samples=array(array(COUNT), description="start of the interval in seconds, and the number of lines"),
)
PATTERNS = _operation(
    "List patterns of lines, the most frequent first",
    _answer(array(_PATTERN), "status data"),
    _text("query", "a log query, mostly a selector alone", '{service_name=~".+"}'),
    *_WITHIN,
    _STEP,
)
_NATIVE_STATUSES = (400, 401, 403, 413, 429, 503)
EXPORT = Operation(
    "native",
    "Export all lines of a log query",
    {200: Reply("The lines.", dict.fromkeys((_NDJSON, "text/csv", PARQUET_TYPE), ANY))},
    description="Every line with its labels by kind, without a limit, streamed. An export that fails is cut off "
    "(docs/formats/native_api.md).",
    parameters=(
        _text("query", "a log query", '{service_name=~".+"}'),
        *_WITHIN,
        _DIRECTION,
        Parameter("format", "query", one_of(("ndjson", "csv", "parquet")), "default: ndjson", "ndjson"),
    ),
    errors=_NATIVE_STATUSES,
)
_LINE = record(
    "timestamp line metadata position",
    timestamp=text("ns since 1970"),
    metadata=_LABELS,
    position=text("tells lines of equal time apart"),
)
CONTEXT = Operation(
    "native",
    "Show the lines before and after a line of its stream",
    json_reply(
        "The lines, oldest first.",
        record("stream before at after", stream=_LABELS, before=array(_LINE), at=array(_LINE), after=array(_LINE)),
    ),
    parameters=(
        _text("stream", "the labels of the stream, as a selector", '{service_name="cart"}'),
        _time("time", "time of the line", "1714564800000000000"),
        _text("before", "number of lines before it; default: 10, at most 5,000"),
        _text("after", "number of lines after it; default: 10, at most 5,000"),
        _text("position", "which of the lines of this time is meant; default: all of them"),
        _time("start", "do not look further back; default: a day before the time"),
        _time("end", "do not look further ahead; default: a day after the time"),
    ),
    errors=_NATIVE_STATUSES,
)
TAIL = replace(
    _operation(
        "Follow new lines of a log query, over a WebSocket",
        ANY,
        _text("query", "LogQL that gives lines", '{service_name=~".+"}'),
        _time("start", "oldest time of lines; default: an hour ago"),
        _text("limit", "lines of those that are there to begin with; default: 100"),
        _text("delay_for", "seconds to wait for late lines, at most 5; default: 0"),
    ),
    description="A request without the headers of an upgrade is refused.",
    replies={101: Reply("Frames as in docs/formats/loki_api.md.", {})},
)
