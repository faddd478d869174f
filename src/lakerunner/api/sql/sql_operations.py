"""What the SQL endpoints state of themselves, for api/openapi.py."""

from __future__ import annotations

from lakerunner.api.formats.choose import FORMATS
from lakerunner.api.openapi import ANY, BOOLEAN, COUNT, JSON, TEXT, TIME, Body, Operation, Parameter, Reply, Schema
from lakerunner.api.sql.sql_request import ENGINES

_FORMAT: Schema = {"type": "string", "enum": list(FORMATS)}
_COLUMNS: Schema = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["name", "type"],
        "properties": {"name": TEXT, "type": {"type": "string", "description": "Arrow's name of the type"}},
    },
}
_MISSING: Schema = {
    "type": "array",
    "description": "data that could not be read; empty if the answer is complete",
    "items": {
        "type": "object",
        "required": ["segments", "start", "end", "reason"],
        "properties": {"segments": COUNT, "start": TIME, "end": TIME, "reason": TEXT},
    },
}
_ANSWER: Schema = {
    "type": "object",
    "required": ["columns", "rows", "row_count", "complete", "missing", "degraded", "warnings", "stats"],
    "properties": {
        "columns": _COLUMNS,
        "rows": {"type": "array", "items": {"type": "object"}},
        "row_count": COUNT,
        "complete": BOOLEAN,
        "missing": _MISSING,
        "degraded": {"type": ["string", "null"], "description": "reason why the answer may be out of date"},
        "warnings": {
            "type": "array",
            "items": TEXT,
            "description": "time before which data has expired by retention",
        },
        "stats": {"type": "object", "description": "statistics: segments, row groups, bytes, seconds of each stage"},
    },
}
_ASKED: Schema = {
    "type": "object",
    "required": ["query"],
    "additionalProperties": False,
    "properties": {
        "query": {"type": "string", "description": "one SELECT (docs/formats/lakeql.md)"},
        "parameters": {
            "description": "values of $name, or of $1, $2, ...",
            "oneOf": [{"type": "object"}, {"type": "array"}],
        },
        "partial": {
            "type": "boolean",
            "description": "list data that cannot be read instead of failing; json and sse only. Default: true "
            "for sse, else false",
        },
        "engine": {"type": "string", "enum": list(ENGINES), "default": ENGINES[0]},
        "format": {**_FORMAT, "description": "overrides the Accept header"},
    },
}
_CONTENT: dict[str, Schema] = {one.media_type: ANY for one in FORMATS.values()} | {JSON: _ANSWER}

QUERY = Operation(
    tag="sql",
    summary="Run a SQL query",
    description="Rows in the format of Accept or `format`. json and parquet are complete or an error "
    "status; ndjson, csv and arrow are cut off if the query fails later; sse ends with a "
    "`done` or `error` event (docs/formats/sql_api.md).",
    parameters=(Parameter("format", "query", _FORMAT, "overrides the Accept header", "json"),),
    body={JSON: Body(_ASKED, {"query": "SELECT service_name, count(*) AS n FROM logs GROUP BY ALL ORDER BY ALL"})},
    replies={200: Reply("The rows.", _CONTENT)},
    errors=(400, 401, 403, 406, 413, 415, 429, 503),
)
_DESCRIBED_COLUMNS: Schema = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["name", "type", "description"],
        "properties": {"name": TEXT, "type": TEXT, "description": TEXT},
    },
}
_TABLE: Schema = {
    "type": "object",
    "required": ["name", "description", "columns", "aliases"],
    "properties": {
        "name": TEXT,
        "description": TEXT,
        "columns": _DESCRIBED_COLUMNS,
        "aliases": {"type": "object", "additionalProperties": TEXT},
    },
}
TABLES = Operation(
    tag="sql",
    summary="List the tables, their columns and types",
    replies={
        200: Reply(
            "The tables.",
            {
                JSON: {
                    "type": "object",
                    "required": ["tables"],
                    "properties": {"tables": {"type": "array", "items": _TABLE}},
                }
            },
        )
    },
    errors=(401, 403, 503),
)
