"""Stream responses to clients, and end the work of a request as soon as its client leaves or the server stops.

Starlette's StreamingResponse notices that a client has left only at its next send, and does not close the generator
then; a query that yields nothing for minutes would run on. Here a watcher cancels the stream and closes its source.

Answers of query protocols are gzipped if the client accepts it (`whole_response`, `stream_response`): small ones are
sent whole, large ones as they are written.

When a server stops, each running request has some seconds to end. Then its task is cancelled, and its client learns
why: with 503 or, if an answer has begun, in the answer's own format. Code that awaits a thread (`blocking`) turns that
cancellation into Stopping, an error like others, which formats of answers write down; a request that has not been
answered by then is answered by `RunningRequests`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from contextvars import ContextVar
from itertools import chain, islice
from types import MappingProxyType
from typing import TypeVar

import anyio
from anyio import to_thread
from isal import isal_zlib
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lakerunner.api.errors import on_lakerunner_error
from lakerunner.api.openapi import JSON
from lakerunner.model.errors import Unavailable

T = TypeVar("T")
Close = Callable[[], None]
NO_HEADERS: Mapping[str, str] = MappingProxyType({})
_AT_ONCE = 3  # an answer with fewer chunks is small
_GZIP_LEVEL, _GZIP_WINDOW = 1, 31


class Broken(Exception):
    """A source has reported its failure to the client in its own format: the response is left unfinished, so that no
    client takes it for complete."""


class Stream(Response):
    """A chunked response. `close`, which may block, is called in every case, after the source has ended."""

    def __init__(
        self,
        source: AsyncGenerator[bytes],
        media_type: str,
        close: Close,
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
    """Run the work in a thread, one of `threads`, and return its result; raise Stopping if the server stops first.

    If it is cancelled, the thread keeps running: the code that cancels must close what the work reads from.
    """
    try:
        return await to_thread.run_sync(work, abandon_on_cancel=True, limiter=threads)
    except asyncio.CancelledError:
        if is_cut_off():
            raise Stopping from None
        raise


async def in_thread(items: Iterator[T], threads: anyio.CapacityLimiter | None = None) -> AsyncGenerator[T]:
    """Yield the items of a blocking iterator, each awaited in a thread as by `blocking`."""
    while True:
        more, item = await blocking(lambda: _next(items), threads)
        if not more or item is None:
            return
        yield item


def _next(items: Iterator[T]) -> tuple[bool, T | None]:
    """Return whether there is a next item, and the item. StopIteration cannot pass through a future."""
    for item in items:
        return True, item
    return False, None


async def while_connected(request: Request, work: Awaitable[T]) -> T:
    """Return the result of the work; if the client leaves first, cancel the work and raise ClientDisconnect."""
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
        _discard_error(working)


def _discard_error(task: asyncio.Future[T]) -> None:
    """Retrieve the error of a task whose result nobody needs any more: asyncio would log it otherwise."""
    if not task.cancelled():
        task.exception()


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def with_idle_events(
    source: AsyncGenerator[bytes], idle_event: Callable[[float], bytes | None], seconds: float
) -> AsyncGenerator[bytes]:
    """Yield the chunks of the source as they come, and between them what `idle_event` returns.

    `idle_event` is called every `seconds` with the number of seconds since the last send, and returns None if there is
    nothing to send. If the server stops, the source still yields its last chunks.
    """
    clock = asyncio.get_running_loop().time
    sent = called = clock()
    pending = asyncio.ensure_future(anext(source, None))
    try:
        while True:
            try:
                await asyncio.wait([pending], timeout=max(0.0, called + seconds - clock()))
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
            if clock() >= called + seconds:
                called = clock()
                if (chunk := idle_event(called - sent)) is not None:
                    yield chunk
                    sent = clock()
    finally:
        with anyio.CancelScope(shield=True):
            pending.cancel()
            await asyncio.wait([pending])
            _discard_error(pending)
            await source.aclose()


def whole_response(request: Request, body: bytes, media_type: str = JSON) -> Response:
    """Return a response with this body, gzipped if the client accepts that."""
    return _whole(request, b"".join(_packed(request, [body])), media_type, NO_HEADERS)


async def stream_response(
    request: Request,
    chunks: Iterator[bytes],
    close: Close,
    media_type: str = JSON,
    headers: Mapping[str, str] = NO_HEADERS,
) -> Response:
    """Return a response of these chunks. It owns `close`, which may block: it is called when all is sent, or fails."""
    packed = _packed(request, chunks)
    first = await to_thread.run_sync(lambda: list(islice(packed, _AT_ONCE)))
    if len(first) < _AT_ONCE:
        await to_thread.run_sync(close)
        return _whole(request, b"".join(first), media_type, headers)
    return Stream(in_thread(chain(first, packed)), media_type, close, {**_headers(request), **headers})


def _whole(request: Request, body: bytes, media_type: str, headers: Mapping[str, str]) -> Response:
    return Response(body, headers={"content-type": media_type, **_headers(request), **headers})


def _headers(request: Request) -> dict[str, str]:
    always = {"vary": "Accept-Encoding", "cache-control": "no-store"}
    return always | ({"content-encoding": "gzip"} if _takes_gzip(request) else {})


def _takes_gzip(request: Request) -> bool:
    for one in request.headers.get("accept-encoding", "").split(","):
        name, _, rest = one.partition(";")
        if name.strip().lower() == "gzip":
            return rest.replace(" ", "").removeprefix("q=").strip("0.") != "" or not rest
    return False


def _packed(request: Request, chunks: Iterable[bytes]) -> Iterator[bytes]:
    if not _takes_gzip(request):
        yield from chunks
        return
    packer = isal_zlib.compressobj(_GZIP_LEVEL, wbits=_GZIP_WINDOW)
    for chunk in chunks:
        if packed := packer.compress(chunk):
            yield packed
    yield packer.flush()


class Stopping(Unavailable):
    """The request is cut off because the server stops."""

    def __init__(self) -> None:
        super().__init__("the server is stopping: send the request again")


class RunningRequests:
    """An ASGI app that tracks its running requests. Used on one event loop, except `cut_off`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.are_cut = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        begun = False

        async def note(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        assert task is not None  # noqa: S101 - for mypy: a server runs each request in a task
        self._tasks.add(task)
        _requests.set(self)
        try:
            await self._app(scope, receive, note)
        except asyncio.CancelledError:
            if begun or not self.are_cut or scope["type"] != "http":
                raise
            await on_lakerunner_error(None, Stopping())(scope, receive, send)
        finally:
            self._tasks.discard(task)

    def cut_off(self) -> None:
        """Cancel all running requests. May be called from any thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed, so no request is running
                self._loop.call_soon_threadsafe(self._cut_off)

    def _cut_off(self) -> None:
        self.are_cut = True
        for task in self._tasks:
            task.cancel()


_requests: ContextVar[RunningRequests | None] = ContextVar("requests", default=None)


def is_cut_off() -> bool:
    """Return whether the current task is being cancelled because the server stops, not because its client left."""
    requests = _requests.get()
    return requests is not None and requests.are_cut
