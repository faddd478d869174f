"""From a slot to a response: what every endpoint that answers a query does around its language.

What always holds: the slot is given back and the query closed in every case, also when the client leaves at any moment.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

import anyio
from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response

from lakerunner.api.limits import QueryLimits
from lakerunner.api.stream import while_connected
from lakerunner.model.caller import Caller


class Closing(Protocol):
    def close(self) -> None: ...


A = TypeVar("A", bound=Closing)
Close = Callable[[], None]


async def respond(
    request: Request,
    limits: QueryLimits,
    caller: Caller,
    begin: Callable[[], A],
    write: Callable[[A, Close], Awaitable[Response]],
) -> Response:
    """`begin`, which may block, plans the query and returns its answer; `write` makes the response, which calls the
    closing function that it is handed when the answer has ended."""
    slot = await while_connected(request, limits.slot(caller))
    try:
        answer = await to_thread.run_sync(begin)
    except BaseException:
        slot.release()
        raise
    close = slot.after(answer.close)
    try:
        return await while_connected(request, write(answer, close))
    except BaseException:
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(close)
        raise
