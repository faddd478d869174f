"""Share a server between organizations: queries per second, queries at once, and anything else that it holds.

`QueryLimits` gives a caller a slot for one query, or raises Busy, which names the limit that was reached. A query waits
first for a slot of its own organization and only then for one of the slots that all share. So however many queries an
organization sends, it has no more in the common queue than it may run, and the queries of others get through.
`Holdings` shares bytes, requests or calls by one rule.

All of it is used on one event loop. Memory is one small record per organization that sent a query, and at most
WAITING_MAX waiting queries of each.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import UUID

from prometheus_client import Gauge

from lakerunner.model.display import plural
from lakerunner.model.errors import Busy, Unavailable, UserError
from lakerunner.model.organization import Caller

WAITING = Gauge("lakerunner_query_waiting", "Queries that wait for a slot")
WAITING_MAX = 100  # queries of one organization that wait for a slot; the next one is refused immediately
BURST_SECONDS = 2.0  # an idle organization, or address, may use the tokens of this many seconds at once


@dataclass(frozen=True)
class Capacity:
    """Queries at once of all organizations; the default limits of one organization; how long a query waits."""

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
    """Slots for queries. `clock` returns seconds."""

    def __init__(self, capacity: Capacity, clock: Callable[[], float]) -> None:
        self._capacity = capacity
        self._clock = clock
        self._slots = asyncio.Semaphore(capacity.concurrent)
        self._usages: dict[UUID, _Usage] = {}

    async def slot(self, caller: Caller) -> Slot:
        """Wait for a slot for one query of the caller, who releases it when the query has ended.

        Raise Busy if a limit of the organization is reached, Unavailable if other organizations hold all slots.
        """
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
    """Permission to run one query. Leaving `with`, or `release` from any thread, returns it; doing so twice is fine."""

    def __init__(self, *give_back: Callable[[], None]) -> None:
        self._give_back = list(give_back)
        self._loop = asyncio.get_running_loop()

    def release(self) -> None:
        self._loop.call_soon_threadsafe(self._free)

    def after(self, close: Callable[[], None]) -> Callable[[], None]:
        """Return a function that closes the query and then releases the slot; any thread may call it, and repeat it
        if `close` may be repeated."""

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


class TokenBucket:
    """Tokens that are refilled at a rate, up to those of BURST_SECONDS, and at least one; it is full at first."""

    def __init__(self, now: float) -> None:
        self.tokens = float("inf")  # cut to the burst at the first use
        self._filled_at = now

    def wait(self, now: float, rate: float) -> float:
        """Refill the bucket; return the seconds until it has a token, 0 if it has one."""
        filled = self.tokens + (now - self._filled_at) * rate
        self.tokens, self._filled_at = min(max(1.0, BURST_SECONDS * rate), filled), now
        return max(0.0, (1.0 - self.tokens) / rate)


class _Usage:
    """What one organization uses now. Each call passes its limits, because they may have changed."""

    def __init__(self, now: float) -> None:
        self._bucket = TokenBucket(now)
        self._running = 0
        self._waiting = 0
        self._left = asyncio.Event()

    def spend(self, now: float, rate: float) -> None:
        """Take one token from the bucket, which refills at `rate` per second; raise Busy if it is empty."""
        if (wait := self._bucket.wait(now, rate)) > 0:
            allowed = f"{plural(rate, 'query', 'queries')} per second (queries_per_second)"
            raise Busy(f"your organization may send {allowed}: wait {wait:.1f} s", wait)
        self._bucket.tokens -= 1.0

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
        self._left.set()  # wakes all waiting queries; each checks whether there is room
        self._left.clear()


def _at_once(most: int) -> str:
    return f"your organization may run {plural(most, 'query', 'queries')} at once (concurrent_queries)"


class Holdings:
    """What each organization holds of `limit`; not safe between threads. `what` names the limited things in messages.

    The rule: an organization may hold as much as it leaves free. Alone it gets half of the limit, one of n gets the
    (n + 1)th part, and each further organization finds room. One that holds nothing only needs enough free room. An
    unknown holder (None) is bound by the whole limit only.
    """

    def __init__(self, limit: int, what: str) -> None:
        self._limit = limit
        self._what = what
        self._held: Counter[UUID | None] = Counter()
        self._total = 0

    def refusal(self, holder: UUID | None, size: int) -> str | None:
        """Return why the holder cannot take `size` more; None if it can, or if nobody holds anything."""
        total, own = self._total, self._held[holder]
        if total and total + size > self._limit:
            return f"all organizations together use {total} of the {self._limit} {self._what}: send it again later"
        if holder is not None and own and own + size > self._limit - total - size:
            return (
                f"your organization uses {own} of the {self._limit} {self._what}, and may use as many "
                "as are free: send it again later"
            )
        return None

    def take(self, holder: UUID | None, size: int) -> None:
        """Take this much for the holder, or raise Busy."""
        if reason := self.refusal(holder, size):
            raise Busy(reason)
        self._held[holder] += size
        self._total += size

    def give_back(self, holder: UUID | None, size: int) -> None:
        self._held[holder] -= size
        self._total -= size
        if not self._held[holder]:  # otherwise organizations that are gone would stay in memory
            del self._held[holder]

    @contextmanager
    def holding(self, holder: UUID | None, size: int) -> Iterator[None]:
        """Take this much for the duration of the block."""
        self.take(holder, size)
        try:
            yield
        finally:
            self.give_back(holder, size)
