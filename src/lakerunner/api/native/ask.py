"""The queries of one request that is not itself a query: taken through the engine one after the other, within the limit
on queries at once, and stopped from any thread when the client leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar
from uuid import UUID

import anyio
from anyio import to_thread
from starlette.requests import Request

from lakerunner.api.limits import Slot
from lakerunner.api.stream import while_connected
from lakerunner.query.answer import Answer
from lakerunner.query.failures import cancelled
from lakerunner.query.sql import Question, SqlQueries

T = TypeVar("T")


class Ask:
    """One organization's queries, one at a time. One thread asks, any thread may close."""

    def __init__(self, queries: SqlQueries, organization: UUID, now_ns: int) -> None:
        self.organization = organization
        self.now_ns = now_ns
        self._queries = queries
        self.warnings: frozenset[str] = frozenset()  # of the answers that were read, so far
        self._running: Answer | None = None
        self._closed = False

    def batches(self, sql: str) -> Iterator[list[dict[str, Any]]]:
        """The rows of the answer as they come, whole or with an error."""
        self._refuse_if_closed()
        self._running = answer = self._queries.sql(self.organization, Question(sql, self.now_ns))
        try:
            self._refuse_if_closed()  # whoever closes sets the flag first: it sees this answer, or we see the flag
            for batch in answer:
                yield batch.to_pylist()
            self.warnings |= answer.account.warnings
        finally:
            answer.close()

    def rows(self, sql: str) -> Iterator[dict[str, Any]]:
        for batch in self.batches(sql):
            yield from batch

    def close(self) -> None:
        """Stop what runs, and let nothing more begin. Closing twice is fine."""
        self._closed = True
        if self._running:
            self._running.close()

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise cancelled()


async def answered(request: Request, ask: Ask, slot: Slot, work: Callable[[], T]) -> T:
    """What the blocking work gives, which asks through `ask`; stopped when the client leaves."""
    try:
        return await while_connected(request, to_thread.run_sync(work, abandon_on_cancel=True))
    finally:
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(slot.after(ask.close))
