"""Loki's tail: new lines of a log query, over a WebSocket.

A request is checked before the connection becomes a WebSocket, so a client gets Loki's status and words. Then the tail
runs until the client leaves, the server stops, the key is revoked or the query fails; the client is told which.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from uuid import UUID

import anyio
from anyio import to_thread
from starlette.responses import Response
from starlette.routing import BaseRoute, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from lakerunner.api.auth import refuse_other_tenant
from lakerunner.api.loki import loki_operations as operations
from lakerunner.api.loki.log_parameters import LATEST_NS, LogParameters
from lakerunner.api.loki.log_queries import LokiLimits, is_categorized, refuse_many_entries
from lakerunner.api.loki.loki_api import OLD_ROOT, ROOT
from lakerunner.api.loki.loki_errors import LokiError, error_response
from lakerunner.api.query_service import QueryRequest, QueryService
from lakerunner.api.tail.line_follower import LineFollower, Tail
from lakerunner.api.tail.tail_queue import QueueBounds, TailFrame, TailQueue
from lakerunner.logql.log_plan import LogqlQuestion
from lakerunner.logql.stages.pipeline import check_stage
from lakerunner.logql.text.parse import parse_logql
from lakerunner.logql.text.syntax import Pipeline
from lakerunner.model.display import go_quote
from lakerunner.model.errors import LakerunnerError, NotAllowed, NotAuthenticated
from lakerunner.model.organization import Caller, Role

MAX_DELAY = 5
NO_UPGRADE = "Bad Request: this endpoint answers over a WebSocket: send the headers of an upgrade"
NO_METRICS = "only log selector is supported"
SERVER_ERROR, REVOKED = 1011, 1008  # codes of RFC 6455
KEY_SECONDS = 10.0
REASON_MAX_BYTES = 120  # a close frame has room for 123


@dataclass(frozen=True)
class TailLimits:
    """Tails at once of one organization and of the process; what waits for one client."""

    org_tails: int = 10
    tails: int = 100
    queue: QueueBounds = field(default_factory=QueueBounds)


@dataclass(frozen=True)
class TailApi:
    """The endpoints."""

    follower: LineFollower
    service: QueryService
    most: LokiLimits = field(default_factory=LokiLimits)
    tails: TailLimits = field(default_factory=TailLimits)
    _running: Counter[UUID] = field(default_factory=Counter)

    def routes(self) -> list[BaseRoute]:
        paths = [f"{root}/tail" for root in (ROOT, OLD_ROOT)]
        return [
            *(self.service.endpoint(path, _not_upgraded, error_response, GET=operations.TAIL) for path in paths),
            *(WebSocketRoute(path, self._tail_on(path), name=path) for path in paths),
        ]

    def _tail_on(self, path: str):  # type: ignore[no-untyped-def]
        async def tail(socket: WebSocket) -> None:
            await self.tail(socket, legacy=path.startswith(OLD_ROOT))

        return tail

    async def tail(self, socket: WebSocket, *, legacy: bool) -> None:
        try:
            caller = await self.service.authenticator.admit(socket, Role.READ)
            refuse_other_tenant(socket.headers, caller.organization)
            session = _Session(self, socket, caller, legacy=legacy)
            with self._place(caller.organization.id):
                await session.run()
        except _ENDED:
            return
        except Exception as error:  # noqa: BLE001 - reported to the client, and logged if it is a bug
            await _refuse(socket, error)

    @contextmanager
    def _place(self, organization: UUID) -> Iterator[None]:
        """Count a tail of the organization; raise LokiError beyond the limits."""
        most, own = self.tails, self._running[organization]
        for count, limit in ((own, most.org_tails), (self._running.total(), most.tails)):
            if count >= limit:
                raise LokiError(f"max concurrent tail requests limit exceeded, count > limit ({count + 1} > {limit})")
        self._running[organization] += 1
        try:
            yield
        finally:
            self._running[organization] -= 1
            if not self._running[organization]:
                del self._running[organization]


_ENDED = (WebSocketDisconnect, OSError)


class _Session:
    """One tail. Constructed before the upgrade: raises an error of the request."""

    def __init__(self, api: TailApi, socket: WebSocket, caller: Caller, *, legacy: bool) -> None:
        self._api = api
        self._socket = socket
        self._key_of = partial(api.service.authenticator.caller, socket.headers, Role.READ)
        self._some = asyncio.Event()
        self._failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        given = LogParameters.in_query(socket)
        self._write = (
            TailFrame.legacy_json if legacy else partial(TailFrame.json, categorized=is_categorized(socket.headers))
        )
        loop = asyncio.get_running_loop()
        queue = TailQueue(partial(_in_loop, loop, self._some.set), api.tails.queue)
        fail = partial(_in_loop, loop, self._fail)
        limit, question = given.limit(), _question(given, api.service.now_ns(), api.most)
        refuse_many_entries(limit, api.most)
        self._tail = Tail(caller.organization.id, question, limit, _delay(given), queue, fail)

    async def run(self) -> None:
        """Run the tail until it ends, and close the connection with the reason."""
        await self._socket.accept()
        code, reason = SERVER_ERROR, ""
        try:
            code, reason = await self._until_end()
        except LakerunnerError as error:
            reason = str(error)
        finally:
            self._api.follower.leave(self._tail)
        await self._socket.close(code, _cut(reason))

    async def _until_end(self) -> tuple[int, str]:
        """Send frames until the client leaves (WebSocketDisconnect) or the tail ends; return code and reason."""
        works = (self._follow(), self._send(), self._receive(), self._watch_key())
        tasks = [asyncio.ensure_future(work) for work in works]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return done.pop().result()
        finally:
            for task in tasks:
                task.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self) -> tuple[int, str]:
        await to_thread.run_sync(self._api.follower.join, self._tail, abandon_on_cancel=True)
        return SERVER_ERROR, await self._failed

    async def _send(self) -> tuple[int, str]:
        while True:
            await self._some.wait()
            self._some.clear()
            while frame := self._tail.queue.take():
                await self._socket.send_text(self._write(frame))

    async def _receive(self) -> tuple[int, str]:
        while True:
            message = await self._socket.receive()  # clients have nothing to say; what they send is dropped
            if message["type"] == "websocket.disconnect":
                raise WebSocketDisconnect(message.get("code", 1005))

    async def _watch_key(self) -> tuple[int, str]:
        while True:
            await asyncio.sleep(KEY_SECONDS)
            try:
                await to_thread.run_sync(self._key_of)
            except (NotAuthenticated, NotAllowed) as error:
                return REVOKED, str(error)
            except LakerunnerError:  # the index is away: asked again later
                continue

    def _fail(self, reason: str) -> None:
        if not self._failed.done():
            self._failed.set_result(reason)


def _question(given: LogParameters, now_ns: int, most: LokiLimits) -> LogqlQuestion:
    text = given.text("query")
    if not isinstance(parse_logql(text, check_stage), Pipeline):
        raise LokiError(NO_METRICS)
    if regexp := given.text("regexp"):
        text += f" |~ {go_quote(regexp)}"
        parse_logql(text, check_stage)
    start, _ = given.bounds(now_ns)
    return LogqlQuestion(text, start, LATEST_NS, 1, None, "forward", limits=most.query, with_deliveries=True)


def _delay(given: LogParameters) -> float:
    found = given.whole("delay_for", 0)
    if found > MAX_DELAY:
        raise LokiError(f"delay_for can't be greater than {MAX_DELAY}")
    return float(max(0, found))


def _in_loop(loop: asyncio.AbstractEventLoop, call, *given) -> None:  # type: ignore[no-untyped-def]
    with suppress(RuntimeError):  # the loop is closed: the server has stopped
        loop.call_soon_threadsafe(call, *given)


def _cut(reason: str) -> str:
    return reason.encode()[:REASON_MAX_BYTES].decode(errors="ignore")


async def _refuse(socket: WebSocket, error: Exception) -> None:
    """Answer an error of the request in place of the upgrade, or close the connection if it has been upgraded."""
    response = error_response(error)
    with suppress(RuntimeError, *_ENDED):
        if socket.application_state.name == "CONNECTING":
            await socket.send_denial_response(response)
        else:
            await socket.close(SERVER_ERROR, _cut(bytes(response.body).decode()))


async def _not_upgraded(_asked: QueryRequest) -> Response:
    raise LokiError(NO_UPGRADE)
