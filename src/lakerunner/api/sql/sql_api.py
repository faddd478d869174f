"""SQL over HTTP: POST /api/v1/sql runs a query, GET /api/v1/sql/tables lists the tables.

A request has a query, its parameters and the format of the answer; unknown fields are refused. The answer is complete,
or lists what it lacks, or is an error. If the client leaves, its query ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lakerunner.api.body import BodyLimit
from lakerunner.api.formats.format import Format
from lakerunner.api.formats.row_formats import FORMATS, format_accepted, format_named
from lakerunner.api.openapi import JSON, Body, Operation, Parameter, Reply, json_reply
from lakerunner.api.query_service import QueryRequest, QueryService
from lakerunner.api.schema import ANY, BOOLEAN, COUNT, OBJECT, TEXT, TIME, array, closed, flag, one_of, record, text
from lakerunner.lakeql.tables import describe_tables
from lakerunner.model.errors import UserError
from lakerunner.query.answer import Answer
from lakerunner.query.options import ENGINES, read_engine
from lakerunner.query.sql import Question, SqlQueries

_FIELDS = ("query", "parameters", "partial", "engine", "format")
_QUERY_STRING = ("format",)
_FORMAT = one_of(FORMATS)
_MISSING = record("segments start end reason", segments=COUNT, start=TIME, end=TIME)
_ANSWER = record(
    "columns rows row_count complete missing degraded warnings stats",
    columns=array(record("name type", type=text("Arrow's name of the type"))),
    rows=array(OBJECT),
    row_count=COUNT,
    complete=BOOLEAN,
    missing={
        "type": "array",
        "description": "data that could not be read; empty if the answer is complete",
        "items": _MISSING,
    },
    degraded={"type": ["string", "null"], "description": "reason why the answer may be out of date"},
    warnings=array(TEXT, description="time before which data has expired by retention"),
    stats={**OBJECT, "description": "statistics: segments, row groups, bytes, seconds of each stage"},
)
_REQUEST = record(
    "query parameters? partial? engine? format?",
    query=text("one SELECT (docs/formats/lakeql.md)"),
    parameters={
        "description": "values of $name, or of $1, $2, ...",
        "oneOf": [{"type": "object"}, {"type": "array"}],
    },
    partial=flag(
        "list data that cannot be read instead of failing; json and sse only. Default: true for sse, else false"
    ),
    engine=one_of(ENGINES, default=ENGINES[0]),
    format={**_FORMAT, "description": "overrides the Accept header"},
)
_EXAMPLE = {"query": "SELECT service_name, count(*) AS n FROM logs GROUP BY ALL ORDER BY ALL"}
QUERY = Operation(
    "sql",
    "Run a SQL query",
    {200: Reply("The rows.", {one.media_type: ANY for one in FORMATS.values()} | {JSON: _ANSWER})},
    description="Rows in the format of Accept or `format`. json and parquet are complete or an error "
    "status; ndjson, csv and arrow are cut off if the query fails later; sse ends with a "
    "`done` or `error` event (docs/formats/sql_api.md).",
    parameters=(Parameter("format", "query", _FORMAT, "overrides the Accept header", "json"),),
    body={JSON: Body(closed(_REQUEST), _EXAMPLE)},
    errors=(400, 401, 403, 406, 413, 415, 429, 503),
)
_TABLE = record(
    "name description columns aliases",
    columns=array(record("name type description")),
    aliases={"type": "object", "additionalProperties": TEXT},
)
TABLES = Operation(
    "sql", "List the tables, their columns and types", json_reply("The tables.", record("tables", tables=array(_TABLE)))
)
QUERY_LIMIT = BodyLimit(1 << 20, "the limit of a query and its parameters")


@dataclass(frozen=True)
class SqlRequest:
    """A parsed request. `parameters` are by name; those of a list have the names 1, 2, ..."""

    text: str
    parameters: Mapping[str, Any]
    partial: bool
    engine: str
    format: Format

    @classmethod
    def parse(cls, body: Mapping[str, Any], query_string: Mapping[str, str], accept: str) -> SqlRequest:
        """Parse a request; raise UserError if it is invalid, HTTPException 406 if no type in Accept is supported."""
        _refuse_unknown(body, _FIELDS, "the body")
        _refuse_unknown(query_string, _QUERY_STRING, "the query string")
        text = body.get("query")
        if not isinstance(text, str):
            raise UserError('the body must be {"query": "select ...", ...}: `query` is not a text')
        chosen = _format(body.get("format"), query_string.get("format"), accept)
        engine = read_engine(body.get("engine"))
        return cls(text, _parameters(body.get("parameters")), _partial(body, chosen), engine, chosen)


def _refuse_unknown(given: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known fields: {', '.join(known)}"
            raise UserError(f"{where} has an unknown field {name!r}: {hint}")


def _format(in_body: Any, in_query_string: str | None, accept: str) -> Format:
    if not isinstance(in_body, str | None):
        raise UserError(f"`format` must be one of {', '.join(FORMATS)}")
    named = {name for name in (in_body, in_query_string) if name is not None}
    if not named:
        return format_accepted(accept)
    if len(named) > 1:
        raise UserError(f"the body names format {in_body!r}, the query string {in_query_string!r}: name only one")
    (name,) = named
    return format_named(name)


def _parameters(given: Any) -> Mapping[str, Any]:
    match given:
        case None:
            return {}
        case dict():
            return given
        case list():
            return {str(number): value for number, value in enumerate(given, 1)}
    raise UserError("`parameters` must be an object of names and values, or a list of the values of $1, $2, ...")


def _partial(body: Mapping[str, Any], chosen: Format) -> bool:
    given = body.get("partial")
    if given is not None and not isinstance(given, bool):
        raise UserError("`partial` must be true or false")
    if given and chosen.partial is None:
        able = " or ".join(name for name, one in FORMATS.items() if one.partial is not None)
        raise UserError(f"{chosen.name} cannot list missing data: request partial answers as {able}")
    return bool(chosen.partial) if given is None else given


@dataclass(frozen=True)
class SqlApi:
    """The endpoints of SQL."""

    queries: SqlQueries
    service: QueryService

    def routes(self) -> list[Route]:
        return [
            self.service.endpoint("/api/v1/sql", self.query, POST=QUERY),
            self.service.endpoint("/api/v1/sql/tables", self.tables, GET=TABLES),
        ]

    async def query(self, asked: QueryRequest) -> Response:
        request = asked.http
        body = await asked.json(QUERY_LIMIT)
        sql = SqlRequest.parse(body, request.query_params, request.headers.get("accept", "*/*"))

        def begin() -> Answer:
            question = Question(sql.text, asked.now_ns(), sql.parameters, sql.partial, sql.engine)
            return self.queries.sql(asked.organization, question)

        return await asked.respond(begin, sql.format.respond)

    async def tables(self, _asked: QueryRequest) -> Response:
        return JSONResponse({"tables": describe_tables()})
