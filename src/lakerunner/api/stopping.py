"""Requests that are under way when a server stops: each has some seconds to end, then it is cut off and its client
learns why, with 503 or, where an answer has begun, in the words of its format.

A request is cut off by cancelling its task. Whatever awaits a thread (`blocking` in api/stream.py) turns that into
Stopping, an error like others, which formats of answers write down; what is not answered then is answered here.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from contextvars import ContextVar

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lakerunner.api.errors import on_lakerunner_error
from lakerunner.model.errors import Unavailable


class Stopping(Unavailable):
    """The request is cut off because the server stops."""

    def __init__(self) -> None:
        super().__init__("the server is stopping: send the request again")


class Requests:
    """The app, and its requests that are under way. Used on one event loop, but for `cut_off`."""

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
            if begun or not self.are_cut:
                raise
            await on_lakerunner_error(None, Stopping())(scope, receive, send)
        finally:
            self._tasks.discard(task)

    def cut_off(self) -> None:
        """From any thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended, and with it every request
                self._loop.call_soon_threadsafe(self._cut_off)

    def _cut_off(self) -> None:
        self.are_cut = True
        for task in self._tasks:
            task.cancel()


_requests: ContextVar[Requests | None] = ContextVar("requests", default=None)


def is_cut_off() -> bool:
    """Return whether a task that is being cancelled is so because the server stops, not because its client left."""
    requests = _requests.get()
    return requests is not None and requests.are_cut
