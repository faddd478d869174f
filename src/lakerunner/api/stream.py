"""Streams to clients: chunks as they come, and an end to the work as soon as the client leaves.

Starlette's own StreamingResponse learns that a client has gone only at its next send, and does not close a generator
then; a query that yields nothing for minutes would run on. Here a watcher cancels the stream, which closes its source.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import TypeVar

import anyio
from anyio import to_thread
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

T = TypeVar("T")


class Broken(Exception):  # noqa: N818 - not an error of ours: it only cuts the connection
    """Raised by a source that has told the client of a failure in its own format: the response is left
    unfinished, so that no client takes it for whole."""


class Stream(Response):
    """A chunked response. `source` is closed in every case."""

    def __init__(self, source: AsyncGenerator[bytes], media_type: str) -> None:
        super().__init__(media_type=media_type, headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self.source = source

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._watch, receive, group.cancel_scope)
                await self._send(send)
                group.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await self.source.aclose()

    async def _watch(self, receive: Receive, scope: anyio.CancelScope) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        scope.cancel()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            async for chunk in self.source:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        except Broken:
            return
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def in_thread(items: Iterator[T], close: Callable[[], None]) -> AsyncGenerator[T]:
    """The items of a blocking iterator, each awaited in a thread; closed in every case, even while it blocks."""
    try:
        while True:
            more, item = await to_thread.run_sync(_next, items, abandon_on_cancel=True)
            if not more or item is None:
                return
            yield item
    finally:
        close()


def _next(items: Iterator[T]) -> tuple[bool, T | None]:
    for item in items:
        return True, item
    return False, None


async def with_heartbeat(source: AsyncGenerator[bytes], beat: bytes, seconds: float) -> AsyncGenerator[bytes]:
    """The source's chunks, and a beat whenever it has been silent this long."""
    try:
        while True:
            pending = asyncio.ensure_future(anext(source, None))
            try:
                while not (await asyncio.wait([pending], timeout=seconds))[0]:
                    yield beat
            except BaseException:
                pending.cancel()
                await asyncio.wait([pending])
                raise
            chunk = pending.result()
            if chunk is None:
                return
            yield chunk
    finally:
        await source.aclose()
