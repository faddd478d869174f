"""How many API keys that stand for nobody may be tried: by one client address, and by all together.

Comes in: the address of a request whose key is not known to this process. Goes out: leave to ask the index for it, or
Busy. What always holds: a key that was good before is never counted, so callers keep working while others at their
address guess; a key that turns out to be good costs nothing. One that was found wrong a moment ago is answered from
memory (key_cache.py) and does not come here.

An address is a token bucket: RATE a second, BURST at once. Of IPv6 the first 64 bits count, as a client has all of
those below them. Behind a proxy all clients have its address, and share its bucket.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextvars import ContextVar
from ipaddress import IPv6Address, ip_address
from threading import Lock
from urllib.parse import unquote

from starlette.types import ASGIApp, Receive, Scope, Send

from lakerunner.model.errors import Busy

RATE = 10.0  # wrong keys a second, of one address
ALL_RATE = 100.0
BURST_SECONDS = 2.0
MAX_ADDRESSES = 10_000

# Of the request that is being answered. Set on the event loop; the threads that work for a request have its context.
client_address: ContextVar[str] = ContextVar("client_address", default="")


class Addressed:
    """ASGI: the wrapped application knows the address of its client."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = scope.get("client")
        client_address.set(client[0] if client else "")
        await self._app(scope, receive, send)


class Guesses:
    """Safe between threads. `clock` counts seconds."""

    def __init__(self, clock: Callable[[], float], rate: float = RATE, all_rate: float = ALL_RATE) -> None:
        self._clock = clock
        self._rate = rate
        self._lock = Lock()
        self._all = _Bucket(all_rate, clock())
        self._addresses: OrderedDict[str, _Bucket] = OrderedDict()  # the least recently used first

    def take(self, address: str) -> _Bucket:
        """Leave to ask for one key. Busy where too many were wrong."""
        with self._lock:
            now = self._clock()
            bucket = self._bucket(_network(address), now)
            wait = max(bucket.wait(now), self._all.wait(now))
            if wait > 0:
                raise Busy("too many wrong API keys: wait, then try again", wait)
            bucket.tokens -= 1
            self._all.tokens -= 1
            return bucket

    def give_back(self, bucket: _Bucket) -> None:
        """The key was good, or could not be asked for."""
        with self._lock:
            bucket.tokens += 1
            self._all.tokens += 1

    def _bucket(self, address: str, now: float) -> _Bucket:
        bucket = self._addresses.get(address)
        if bucket is None:
            bucket = self._addresses[address] = _Bucket(self._rate, now)
            if len(self._addresses) > MAX_ADDRESSES:
                self._addresses.popitem(last=False)
        self._addresses.move_to_end(address)
        return bucket


class _Bucket:
    def __init__(self, rate: float, now: float) -> None:
        self.tokens = rate * BURST_SECONDS
        self._rate = rate
        self._filled_at = now

    def wait(self, now: float) -> float:
        """Seconds until there is a token; 0 if there is one."""
        filled = self.tokens + (now - self._filled_at) * self._rate
        self.tokens, self._filled_at = min(filled, self._rate * BURST_SECONDS), now
        return max(0.0, (1.0 - self.tokens) / self._rate)


def address_of(peer: str) -> str:
    """The address in gRPC's name of a peer: ipv4:10.0.0.1:4711, ipv6:[fe80::1]:4711 (its signs perhaps encoded)."""
    host = unquote(peer).partition(":")[2].rpartition(":")[0]
    return host.strip("[]")


def _network(address: str) -> str:
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, IPv6Address):
        return str(found.ipv4_mapped or IPv6Address(int(found) >> 64 << 64))
    return str(found)
