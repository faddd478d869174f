"""Bound the bytes of request bodies that one app holds in memory at the same time.

Each body is bounded by its door, but a thousand connections with a large body each would need more memory than a
machine has. A request beyond the budget, or beyond its organization's share of it (`api/holdings.py`), is refused as
Busy, and may be sent again. Doors know whose a request is before they read its body (`Authenticator.admit`).
"""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lakerunner.api.auth import organization_of
from lakerunner.api.holdings import Holdings

BODIES_MAX_BYTES = 512 << 20


class BodyBudget:
    """ASGI middleware. While no other body is held, a request may have any size that its door accepts."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._held = Holdings(max_bytes, "bytes of bodies that may be received at once")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        holder, own = None, 0

        async def counted() -> Message:
            nonlocal holder, own
            message = await receive()
            if size := len(message.get("body", b"")):
                # Taken whole again, because what a request holds itself never speaks against its next part.
                self._held.give_back(holder, own)
                holder, own, size = organization_of(scope), 0, own + size
                self._held.take(holder, size)
                own = size
            return message

        try:
            await self._app(scope, counted, send)
        finally:
            self._held.give_back(holder, own)
