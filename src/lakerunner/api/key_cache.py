"""Cache the callers of API keys for a short time, so that few requests query PostgreSQL, and limit guesses of keys.

An answer of the index is used for `fresh` seconds, so a revoked key stops working within them and the time of one
lookup, which one request does for all. While the index is unavailable, a caller that it returned before is let in for
up to `away` seconds. A secret with an end stops working at that end in either case. Only digests of secrets are held,
and a limited number of them: unknown keys evict unknown keys, never a caller.

`GuessLimiter` limits how often unknown keys are looked up, per client address and in total, by token buckets of RATE
per second and BURST_SECONDS. A key that was valid before is never counted, so callers keep working while others at
their address guess, and a key that turns out to be valid costs nothing. Of an IPv6 address the first 64 bits count,
because a client usually has all addresses below them. Behind a proxy all clients have its address and share its bucket.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from threading import Lock
from typing import NoReturn
from urllib.parse import unquote
from uuid import UUID

from starlette.types import ASGIApp, Receive, Scope, Send

from lakerunner.api.limits import TokenBucket
from lakerunner.index.api_keys import KeyGrant, digest
from lakerunner.model.errors import Busy, Unavailable
from lakerunner.model.organization import Caller

KNOWN_MAX = 10_000
UNKNOWN_MAX = 1_000
UNKNOWN_SECONDS = 5.0
ASK_AGAIN_SECONDS = 5.0  # while the index is unavailable, one request in this time checks whether it still is
RATE = 10.0  # wrong keys per second from one address
ALL_RATE = 100.0
MAX_ADDRESSES = 10_000
# Address of the client of the current request. It is set on the event loop; threads of a request inherit its context.
client_address: ContextVar[str] = ContextVar("client_address", default="")


@dataclass(frozen=True)
class Ages:
    """How long an answer of the index is used, in seconds: normally, and while the index is unavailable."""

    fresh: float
    away: float


@dataclass(frozen=True)
class _Answer:
    known: KeyGrant | None
    asked_at: float

    @property
    def caller(self) -> Caller | None:
        return self.known.caller if self.known else None

    def is_good(self, now: float, age: float) -> bool:
        ends = self.known.seconds if self.known else UNKNOWN_SECONDS
        return now - self.asked_at < (age if ends is None else min(age, ends))


class KeyCache:
    """Callers by the digests of their secrets; safe between threads. `find` queries the index; `clock` returns
    seconds."""

    def __init__(
        self,
        find: Callable[[bytes], KeyGrant | None],
        ages: Ages,
        clock: Callable[[], float],
        guesses: GuessLimiter | None = None,
    ) -> None:
        self._find = find
        self._ages = ages
        self._clock = clock
        self._guesses = guesses or GuessLimiter(clock)
        self._lock = threading.Lock()
        self._known: dict[bytes, _Answer] = {}  # oldest answer first, as in _unknown
        self._unknown: dict[bytes, _Answer] = {}
        self._asking: set[bytes] = set()
        self._away: Unavailable | None = None
        self._ask_at = 0.0
        self._changes = 0

    def caller(self, secret: str) -> Caller | None:
        """Return the caller of a secret; None if the secret is unknown. Blocks on the index if it has to.

        Raise Unavailable if the index is unavailable and nothing is cached, Busy if too many unknown keys were tried.
        """
        return self.caller_by(digest(secret))

    def caller_by(self, hashed: bytes) -> Caller | None:
        """Do as `caller`, for the digest of a secret."""
        with self._lock:
            now = self._clock()
            held = self._known.get(hashed) or self._unknown.get(hashed)
            if held is not None and held.is_good(now, self._ages.fresh):
                return held.caller
            if hashed in self._asking and (before := self._fallback(held)):
                return before
            if self._away is not None:
                if now < self._ask_at:
                    return self._fallback(held) or _raise(self._away)
                self._ask_at = now + ASK_AGAIN_SECONDS  # this request checks the index; others do not meanwhile
            is_guess = hashed not in self._known
            leave = self._guesses.take(client_address.get()) if is_guess else None
            self._asking.add(hashed)
            changes = self._changes
        caller: Caller | None = None
        try:
            caller = self._ask(hashed, now, changes)
            return caller
        except Unavailable as error:
            if leave:
                self._guesses.give_back(leave)
            with self._lock:
                self._away, self._ask_at = error, self._clock() + ASK_AGAIN_SECONDS
            return self._fallback(held) or _raise(error)
        finally:
            if leave and caller:
                self._guesses.give_back(leave)
            with self._lock:
                self._asking.discard(hashed)

    def _ask(self, hashed: bytes, now: float, changes: int) -> Caller | None:
        answer = _Answer(self._find(hashed), now)
        with self._lock:
            self._away = None
            if changes == self._changes:
                self._keep(hashed, answer)
        return answer.caller

    def forget(self, organization: UUID) -> None:
        """Drop the cached keys of an organization whose keys changed; lookups that are running are not cached."""
        with self._lock:
            self._changes += 1
            for hashed, answer in list(self._known.items()):
                if answer.known and answer.known.caller.organization.id == organization:
                    del self._known[hashed]

    def _fallback(self, held: _Answer | None) -> Caller | None:
        return held.caller if held is not None and held.is_good(self._clock(), self._ages.away) else None

    def _keep(self, hashed: bytes, answer: _Answer) -> None:
        for answers in (self._known, self._unknown):
            answers.pop(hashed, None)
        answers, most = (self._known, KNOWN_MAX) if answer.known else (self._unknown, UNKNOWN_MAX)
        answers[hashed] = answer
        if len(answers) > most:
            del answers[next(iter(answers))]


def _raise(error: Unavailable) -> NoReturn:
    """Raise a copy of the error: several threads may raise it, and each adds its own traceback."""
    raise Unavailable(str(error), detail=error.detail) from error


class ClientAddressMiddleware:
    """ASGI middleware that sets `client_address`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = scope.get("client")
        client_address.set(client[0] if client else "")
        await self._app(scope, receive, send)


class GuessLimiter:
    """Token buckets of lookups of unknown keys; safe between threads. `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float], rate: float = RATE, all_rate: float = ALL_RATE) -> None:
        self._clock = clock
        self._rate, self._all_rate = rate, all_rate
        self._lock = Lock()
        self._all = TokenBucket(clock())
        self._addresses: OrderedDict[str, TokenBucket] = OrderedDict()  # the least recently used first

    def take(self, address: str) -> TokenBucket:
        """Take a token for the lookup of one key; raise Busy if too many were wrong."""
        with self._lock:
            now = self._clock()
            bucket = self._bucket(_network(address), now)
            wait = max(bucket.wait(now, self._rate), self._all.wait(now, self._all_rate))
            if wait > 0:
                raise Busy("too many wrong API keys: wait, then try again", wait)
            bucket.tokens -= 1
            self._all.tokens -= 1
            return bucket

    def give_back(self, bucket: TokenBucket) -> None:
        """Return the token: the key was valid, or could not be looked up."""
        with self._lock:
            bucket.tokens += 1
            self._all.tokens += 1

    def _bucket(self, address: str, now: float) -> TokenBucket:
        bucket = self._addresses.get(address)
        if bucket is None:
            bucket = self._addresses[address] = TokenBucket(now)
            if len(self._addresses) > MAX_ADDRESSES:
                self._addresses.popitem(last=False)
        self._addresses.move_to_end(address)
        return bucket


def address_of(peer: str) -> str:
    """Return the address in gRPC's name of a peer: ipv4:10.0.0.1:4711, ipv6:[fe80::1]:4711, perhaps URL-encoded."""
    host = unquote(peer).partition(":")[2].rpartition(":")[0]
    return host.strip("[]")


def _network(address: str) -> str:
    """Return what identifies a client: an IPv4 address, or the first 64 bits of an IPv6 address."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, IPv6Address):
        return str(found.ipv4_mapped or IPv6Address(int(found) >> 64 << 64))
    return str(found)
