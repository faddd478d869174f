"""SQL over HTTP: POST /api/v1/sql asks, GET /api/v1/sql/tables says what can be asked about.

Comes in: a query with its parameters, and the format its rows are wanted in (sql_request.py, formats/). Goes out: an
answer that is whole, or says what it lacks, or is plainly not one. A client that leaves ends its query, at any moment.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import anyio
from anyio import to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lakerunner.api.auth import Authenticator
from lakerunner.api.body import BodyLimit, read_json
from lakerunner.api.limits import QueryLimits
from lakerunner.api.openapi import Endpoint
from lakerunner.api.sql.sql_operations import QUERY, TABLES
from lakerunner.api.sql.sql_request import Asked
from lakerunner.api.stream import while_connected
from lakerunner.lakeql.describe import described_tables
from lakerunner.model.caller import Role
from lakerunner.query.engine import Engine, Question

QUERY_LIMIT = BodyLimit(1 << 20, "the limit of a query and its parameters")


@dataclass(frozen=True)
class SqlApi:
    """`now_ns` is the clock, handed in."""

    engine: Engine
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
        slot = await while_connected(request, self.limits.slot(caller))
        try:
            question = Question(asked.text, self.now_ns(), asked.parameters, asked.partial, asked.engine)
            answer = await to_thread.run_sync(self.engine.sql, caller.organization.id, question)
        except BaseException:
            slot.release()
            raise
        close = slot.after(answer.close)
        try:
            return await while_connected(request, asked.format.respond(answer, close))
        except BaseException:
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(close)
            raise

    async def tables(self, request: Request) -> Response:
        await self.authenticator.admit(request, Role.READ)
        return JSONResponse({"tables": described_tables()})
