"""Serve a query language over HTTP: who asks, the slot of the query, clients that leave, errors in the protocol's form.

A protocol is a class with a `QueryService`, whose `endpoint` wraps its handlers. A handler gets a `QueryRequest`, which
the service has admitted, and returns a response. Whatever happens, a slot is released and a query closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar
from uuid import UUID

import anyio
from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response

from lakerunner.api.auth import Authenticator
from lakerunner.api.body import BodyLimit, read_json
from lakerunner.api.limits import QueryLimits, Slot
from lakerunner.api.openapi import Endpoint, Handler, Operation
from lakerunner.api.stream import Close, Stopping, is_cut_off, while_connected
from lakerunner.model.organization import Caller, Role


class Closable(Protocol):
    """What `respond` closes at the end."""

    def close(self) -> None: ...


A = TypeVar("A", bound=Closable)
T = TypeVar("T")


@dataclass(frozen=True)
class QueryRequest:
    """A request of a caller who may read."""

    http: Request
    caller: Caller
    service: QueryService

    @property
    def organization(self) -> UUID:
        return self.caller.organization.id

    def now_ns(self) -> int:
        return self.service.now_ns()

    async def json(self, limit: BodyLimit) -> dict[str, Any]:
        """Read the body, which must be a JSON object."""
        return await read_json(self.http, limit)

    async def slot(self) -> Slot:
        """Wait for a slot for one query, as long as the client is connected."""
        return await while_connected(self.http, self.service.limits.slot(self.caller))

    async def respond(self, begin: Callable[[], A], write: Callable[[A, Close], Awaitable[Response]]) -> Response:
        """Run one query in a slot. `begin`, which may block, plans the query and returns its answer; `write` returns
        the response, which must call the closing function that `write` got when the answer has ended."""
        slot = await self.slot()
        try:
            answer = await to_thread.run_sync(begin)
        except BaseException:
            slot.release()
            raise
        close = slot.after(answer.close)
        try:
            return await while_connected(self.http, write(answer, close))
        except BaseException:
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(close)
            raise

    async def run(self, work: Callable[[], T]) -> T:
        """Run blocking work in a slot. A client that leaves does not stop it; the slot is held until it has ended."""
        with await self.slot():
            return await to_thread.run_sync(work)


Answer = Callable[[QueryRequest], Awaitable[Response]]
OnError = Callable[[Exception], Response]


@dataclass(frozen=True)
class QueryService:
    """What the query APIs of a process share. `now_ns` is the clock."""

    authenticator: Authenticator
    limits: QueryLimits
    now_ns: Callable[[], int]

    def endpoint(self, path: str, answer: Answer, on_error: OnError | None = None, **operations: Operation) -> Endpoint:
        """Return an endpoint for callers who may read. `on_error` writes every error, a bug or the stop of the server
        too, in the form of its protocol; without it, errors have our form (api/errors.py)."""

        async def admitted(request: Request) -> Response:
            return await answer(QueryRequest(request, await self.authenticator.admit(request, Role.READ), self))

        return Endpoint(path, _converting(admitted, on_error) if on_error else admitted, **operations)


def _converting(handle: Callable[[Request], Awaitable[Response]], on_error: OnError) -> Handler:
    async def converted(request: Request) -> Response:
        try:
            return await handle(request)
        except asyncio.CancelledError:
            if not is_cut_off():
                raise
            return on_error(Stopping())
        except Exception as error:  # noqa: BLE001 - reported to the client, and logged if it is a bug
            return on_error(error)

    return converted
