"""How much of the query service one organization may take: queries a second, and queries at once.

Comes in: who asks. Goes out: a slot to run one query in, or Busy, which names the limit that was reached. A query waits
first for one of its organization's own slots and only then for one of those all share. So however many an organization
sends, it has no more in the common queue than it may run, and others, who come behind these few, get through.

Used on one event loop. Held is one small record per organization that asked, and so many waiting queries of each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from prometheus_client import Gauge

from lakerunner.model.caller import Caller
from lakerunner.model.errors import Busy, Unavailable, UserError
from lakerunner.model.plural import plural

WAITING = Gauge("lakerunner_query_waiting", "Queries that wait for a slot")
WAITING_MAX = 100  # queries of one organization that wait for a slot; the next is refused at once
BURST_SECONDS = 2.0  # so many seconds' worth of queries may come at once, if few came before; always one


@dataclass(frozen=True)
class Capacity:
    """Queries at once over all organizations; what one may take for which nothing else is set; how long to wait."""

    concurrent: int
    org_queries_per_second: float
    org_concurrent: int
    queue_seconds: float = 10.0

    def __post_init__(self) -> None:
        if self.concurrent < 1:
            raise UserError(f"query_concurrency must be 1 or more, not {self.concurrent}")
        if self.org_concurrent < 1:
            raise UserError(
                f"org_concurrent_queries must be 1 or more, or 0 for the default, not {self.org_concurrent}"
            )
        if not self.org_queries_per_second > 0:
            raise UserError(f"org_queries_per_second must be more than 0, not {self.org_queries_per_second:g}")


class QueryLimits:
    """`clock` counts seconds."""

    def __init__(self, capacity: Capacity, clock: Callable[[], float]) -> None:
        self._capacity = capacity
        self._clock = clock
        self._slots = asyncio.Semaphore(capacity.concurrent)
        self._usages: dict[UUID, _Usage] = {}

    async def slot(self, caller: Caller) -> Slot:
        """For one query of the caller; to be released when the query has ended. Busy where a limit of the organization
        is reached, Unavailable where others hold all there is."""
        now, capacity, share = self._clock(), self._capacity, caller.share
        rate = share.queries_per_second or capacity.org_queries_per_second
        usage = self._usages.setdefault(caller.organization.id, _Usage(now))
        usage.spend(now, rate)
        with WAITING.track_inprogress():
            await usage.enter(share.concurrent_queries or capacity.org_concurrent, capacity.queue_seconds)
            try:
                await self._common_slot(capacity.queue_seconds - (self._clock() - now))
            except BaseException:
                usage.leave()
                raise
        return Slot(usage.leave, self._slots.release)

    async def _common_slot(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._slots.acquire()
        except TimeoutError:
            most, waited = self._capacity.concurrent, self._capacity.queue_seconds
            raise Unavailable(
                f"the query could not start within {waited:g} s: {most} queries are running (query_concurrency)"
            ) from None


class Slot:
    """A place to run one query in. Leaving `with`, or `release`, gives it back, from any thread; twice is fine."""

    def __init__(self, *give_back: Callable[[], None]) -> None:
        self._give_back = list(give_back)
        self._loop = asyncio.get_running_loop()

    def release(self) -> None:
        self._loop.call_soon_threadsafe(self._free)

    def after(self, close: Callable[[], None]) -> Callable[[], None]:
        """What closes the query, then gives its slot back, from any thread; twice is fine where closing twice is."""

        def end() -> None:
            try:
                close()
            finally:
                self.release()

        return end

    def _free(self) -> None:
        while self._give_back:
            self._give_back.pop()()

    def __enter__(self) -> Slot:
        return self

    def __exit__(self, *_error: object) -> None:
        self.release()


class _Usage:
    """What one organization takes at this moment. Its limits come with each call: they may have changed."""

    def __init__(self, now: float) -> None:
        self._tokens = float("inf")  # cut to the burst at the first query
        self._filled_at = now
        self._running = 0
        self._waiting = 0
        self._left = asyncio.Event()

    def spend(self, now: float, rate: float) -> None:
        """One query of the burst, which fills again at the rate."""
        filled = self._tokens + (now - self._filled_at) * rate
        self._tokens, self._filled_at = min(max(1.0, BURST_SECONDS * rate), filled), now
        if self._tokens < 1.0:
            wait = (1.0 - self._tokens) / rate
            allowed = f"{plural(rate, 'query', 'queries')} per second (queries_per_second)"
            raise Busy(f"your organization may send {allowed}: wait {wait:.1f} s", wait)
        self._tokens -= 1.0

    async def enter(self, most: int, seconds: float) -> None:
        if self._running >= most and self._waiting >= WAITING_MAX:
            raise Busy(f"{_at_once(most)}, and {self._waiting} are waiting: try again later")
        self._waiting += 1
        try:
            async with asyncio.timeout(seconds):
                while self._running >= most:
                    await self._left.wait()
        except TimeoutError:
            raise Busy(f"{_at_once(most)}, and none of them ended within {seconds:g} s: try again later") from None
        finally:
            self._waiting -= 1
        self._running += 1

    def leave(self) -> None:
        self._running -= 1
        self._left.set()  # wakes all who wait now; each looks whether there is room
        self._left.clear()


def _at_once(most: int) -> str:
    return f"your organization may run {plural(most, 'query', 'queries')} at once (concurrent_queries)"
