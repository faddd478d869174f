"""Bound the bytes of request bodies that one app holds in memory at the same time.

Each body is bounded by its door, but a thousand connections with a large body each would need more memory than a
machine has. A request beyond the budget is refused as Busy, and may be sent again.
"""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lakerunner.model.errors import Busy

BODIES_MAX_BYTES = 512 << 20


class BodyBudget:
    """ASGI middleware. While no other body is held, a request may have any size that its door accepts."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        own = 0

        async def counted() -> Message:
            nonlocal own
            message = await receive()
            if size := len(message.get("body", b"")):
                if self._held > own and self._held + size > self._max_bytes:
                    raise Busy(f"bodies of {self._held} bytes are being received: send it later")
                own += size
                self._held += size
            return message

        try:
            await self._app(scope, counted, send)
        finally:
            self._held -= own
