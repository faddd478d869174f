"""Streams to clients: chunks as they come, and an end to the work as soon as the client leaves.

Starlette's own StreamingResponse learns that a client has gone only at its next send, and does not close a generator
then; a query that yields nothing for minutes would run on. Here a watcher cancels the stream, and what it held is
closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from typing import TypeVar

import anyio
from anyio import to_thread
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from lakerunner.api.stopping import Stopping, is_cut_off

T = TypeVar("T")


class Broken(Exception):
    """Raised by a source that has told the client of a failure in its own format: the response is left
    unfinished, so that no client takes it for whole."""


class Stream(Response):
    """A chunked response. `close`, which may block, is called in every case, once the source has ended."""

    def __init__(
        self,
        source: AsyncGenerator[bytes],
        media_type: str,
        close: Callable[[], None],
        headers: Mapping[str, str] | None = None,
    ) -> None:
        always = {"cache-control": "no-store", "x-accel-buffering": "no"}
        super().__init__(media_type=media_type, headers=always | dict(headers or {}))
        del self.headers["content-length"]
        self.source = source
        self.close = close

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._watch, receive, group.cancel_scope)
                await self._send(send)
                group.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await self.source.aclose()
                await to_thread.run_sync(self.close)

    async def _watch(self, receive: Receive, scope: anyio.CancelScope) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        scope.cancel()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            async for chunk in self.source:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        except (Broken, Stopping):
            return
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def blocking(work: Callable[[], T], threads: anyio.CapacityLimiter | None = None) -> T:
    """What the work gives, done in a thread, one of `threads`; Stopping if the server stops before it is done.
    Cancelled, it leaves the thread where it is: whoever cancels closes what the work reads from."""
    try:
        return await to_thread.run_sync(work, abandon_on_cancel=True, limiter=threads)
    except asyncio.CancelledError:
        if is_cut_off():
            raise Stopping from None
        raise


async def in_thread(items: Iterator[T], threads: anyio.CapacityLimiter | None = None) -> AsyncGenerator[T]:
    """The items of a blocking iterator, each awaited in a thread, as by `blocking`."""
    while True:
        more, item = await blocking(lambda: _next(items), threads)
        if not more or item is None:
            return
        yield item


def _next(items: Iterator[T]) -> tuple[bool, T | None]:
    for item in items:
        return True, item
    return False, None


async def while_connected(request: Request, work: Awaitable[T]) -> T:
    """The work's result; the work is cancelled, and ClientDisconnect raised, when the client leaves before."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.wait({working, leaving})
        _look_at(working)


def _look_at(task: asyncio.Future[T]) -> None:
    """Take the error of a task that ended too late for anybody to want it: asyncio would log it."""
    if not task.cancelled():
        task.exception()


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def with_signs(
    source: AsyncGenerator[bytes], sign: Callable[[float], bytes | None], seconds: float
) -> AsyncGenerator[bytes]:
    """The source's chunks, each as soon as it is there; between them, asked this often, what `sign` has to say. It is
    told for how many seconds nothing has been sent. If the server stops, the source has the last word."""
    clock = asyncio.get_running_loop().time
    sent = asked = clock()
    pending = asyncio.ensure_future(anext(source, None))
    try:
        while True:
            try:
                await asyncio.wait([pending], timeout=max(0.0, asked + seconds - clock()))
            except asyncio.CancelledError:
                if not is_cut_off():
                    raise
                pending.cancel()
                await asyncio.wait([pending])
            if pending.done():
                chunk = pending.result()
                if chunk is None:
                    return
                yield chunk
                sent = clock()
                pending = asyncio.ensure_future(anext(source, None))
            if clock() >= asked + seconds:
                asked = clock()
                if (said := sign(asked - sent)) is not None:
                    yield said
                    sent = clock()
    finally:
        with anyio.CancelScope(shield=True):
            pending.cancel()
            await asyncio.wait([pending])
            _look_at(pending)
            await source.aclose()
