"""SQL over HTTP: POST /api/v1/sql asks, GET /api/v1/sql/tables says what can be asked about.

Comes in: a query with its parameters, and the format its rows are wanted in (sql_request.py, formats/). Goes out: an
answer that is whole, or says what it lacks, or is plainly not one. A client that leaves ends its query, at any moment.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lakerunner.api.answering import respond
from lakerunner.api.auth import Authenticator
from lakerunner.api.body import BodyLimit, read_json
from lakerunner.api.limits import QueryLimits
from lakerunner.api.openapi import Endpoint
from lakerunner.api.sql.sql_operations import QUERY, TABLES
from lakerunner.api.sql.sql_request import Asked
from lakerunner.lakeql.describe import described_tables
from lakerunner.model.caller import Role
from lakerunner.query.answer import Answer
from lakerunner.query.sql import Question, SqlQueries

QUERY_LIMIT = BodyLimit(1 << 20, "the limit of a query and its parameters")


@dataclass(frozen=True)
class SqlApi:
    """`now_ns` is the clock, handed in."""

    queries: SqlQueries
    authenticator: Authenticator
    now_ns: Callable[[], int]
    limits: QueryLimits

    def routes(self) -> list[Route]:
        return [
            Endpoint("/api/v1/sql", self.query, POST=QUERY),
            Endpoint("/api/v1/sql/tables", self.tables, GET=TABLES),
        ]

    async def query(self, request: Request) -> Response:
        caller = await self.authenticator.admit(request, Role.READ)
        body = await read_json(request, QUERY_LIMIT)
        asked = Asked.of(body, request.query_params, request.headers.get("accept", "*/*"))

        def begin() -> Answer:
            question = Question(asked.text, self.now_ns(), asked.parameters, asked.partial, asked.engine)
            return self.queries.sql(caller.organization.id, question)

        return await respond(request, self.limits, caller, begin, asked.format.respond)

    async def tables(self, request: Request) -> Response:
        await self.authenticator.admit(request, Role.READ)
        return JSONResponse({"tables": described_tables()})
