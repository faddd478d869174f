"""Wrong keys are limited by address and in all; callers that are known keep working."""

from __future__ import annotations

import asyncio
from collections import Counter

import httpx
import pytest
from anyio import to_thread
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from lakerunner.api import key_cache as guesses_module
from lakerunner.api.app import build_app
from lakerunner.api.auth import Authenticator
from lakerunner.api.key_cache import (
    ALL_RATE,
    RATE,
    Ages,
    GuessLimiter,
    KeyCache,
    address_of,
    client_address,
)
from lakerunner.api.limits import BURST_SECONDS
from lakerunner.index.api_keys import KeyGrant, digest
from lakerunner.model.errors import Busy, Unavailable
from lakerunner.model.organization import Caller, Role
from suites.pushed import ACME

BURST, ALL_BURST = int(RATE * BURST_SECONDS), int(ALL_RATE * BURST_SECONDS)
GOOD = Caller(ACME, "good", frozenset({Role.READ}))


class Index:
    """Knows one key, and counts what it is asked."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.asked = 0
        self.away = False
        self.cache = KeyCache(self.find, Ages(fresh=30.0, away=600.0), lambda: self.now)

    def find(self, hashed: bytes) -> KeyGrant | None:
        self.asked += 1
        if self.away:
            raise Unavailable("PostgreSQL does not answer")
        return KeyGrant(GOOD) if hashed in (digest("lrk_good"), digest("lrk_new")) else None

    def tried(self, address: str, number: int, name: str = "guess") -> Counter[str]:
        client_address.set(address)
        outcomes: Counter[str] = Counter()
        for n in range(number):
            try:
                outcomes["wrong" if self.cache.caller(f"{name} {address} {n}") is None else "good"] += 1
            except Busy:
                outcomes["busy"] += 1
        return outcomes


@pytest.fixture
def index() -> Index:
    return Index()


def test_past_the_limit_of_its_address_the_index_is_not_asked(index: Index) -> None:
    assert index.tried("10.0.0.1", 1000) == {"wrong": BURST, "busy": 1000 - BURST}
    assert index.asked == BURST
    index.now += 1.0
    assert index.tried("10.0.0.1", 1000, "later") == {"wrong": RATE, "busy": 1000 - RATE}
    assert index.tried("10.0.0.2", 5) == {"wrong": 5}


def test_all_addresses_together_have_a_limit(index: Index) -> None:
    found = sum((index.tried(f"10.0.1.{n}", BURST) for n in range(50)), Counter())
    assert found == {"wrong": ALL_BURST, "busy": 50 * BURST - ALL_BURST}
    assert index.asked == ALL_BURST


def test_a_known_key_of_a_guessing_address_keeps_working(index: Index) -> None:
    client_address.set("10.0.0.1")
    assert index.cache.caller("lrk_good") == GOOD
    index.tried("10.0.0.1", 1000)
    assert index.cache.caller("lrk_good") == GOOD
    index.now += 31  # to be asked for again
    index.tried("10.0.0.1", 1000, "later")
    asked = index.asked
    assert index.cache.caller("lrk_good") == GOOD
    assert index.asked == asked + 1
    with pytest.raises(Busy, match="too many wrong API keys") as refused:
        index.cache.caller("lrk_new")  # not known yet: it is no different from a guess
    assert 0 < refused.value.retry_seconds <= 1
    index.now += 1
    assert index.cache.caller("lrk_new") == GOOD


def test_good_keys_and_those_that_cannot_be_asked_for_cost_nothing(index: Index) -> None:
    client_address.set("10.0.0.1")
    for _ in range(BURST * 2):
        index.cache.forget(ACME.id)
        assert index.cache.caller("lrk_good") == GOOD
    index.away = True
    for n in range(BURST * 2):
        with pytest.raises(Unavailable, match="does not answer"):
            index.cache.caller(f"away {n}")
        index.now += 6  # the index is asked each time
    index.away = False
    index.now += 6
    assert index.tried("10.0.0.1", BURST)["wrong"] == BURST


def test_one_wrong_key_again_and_again_is_answered_from_memory(index: Index) -> None:
    client_address.set("10.0.0.1")
    assert [index.cache.caller("lrk_wrong") for _ in range(1000)] == [None] * 1000
    assert index.asked == 1


def test_addresses_are_networks_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guesses_module, "MAX_ADDRESSES", 3)
    guesses = GuessLimiter(lambda: 0.0, rate=1.0, all_rate=1e9)
    for n in range(2):
        guesses.take(f"2001:db8:0:1::{n}")
    with pytest.raises(Busy):
        guesses.take("2001:db8:0:1:ffff::9")
    guesses.take("2001:db8:0:2::1")
    guesses.take("10.0.0.1")
    guesses.take("::ffff:10.0.0.1")
    with pytest.raises(Busy):
        guesses.take("10.0.0.1")
    for n in range(3):
        guesses.take(f"10.1.0.{n}")
    guesses.take("10.0.0.1")  # three others came since: it is forgotten
    assert len(guesses._addresses) == 3


@pytest.mark.parametrize(
    ("peer", "address"),
    [("ipv4:10.0.0.1:4711", "10.0.0.1"), ("ipv6:[::1]:4711", "::1"), ("ipv6:%5B::1%5D:4711", "::1"), ("unix:", "")],
)
def test_the_address_of_a_grpc_peer(peer: str, address: str) -> None:
    assert address_of(peer) == address


def test_over_http_it_is_429_with_a_time(index: Index) -> None:
    who = Authenticator(index.cache.caller, None)

    async def whoami(request: Request) -> Response:
        caller = await to_thread.run_sync(who.caller, request.headers, Role.READ)
        return PlainTextResponse(caller.organization.name)

    app = build_app([Route("/whoami", whoami)])

    async def ask(address: str, secret: str) -> httpx.Response:
        transport = httpx.ASGITransport(app, client=(address, 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://lake") as client:
            return await client.get("/whoami", headers={"authorization": f"Bearer {secret}"})

    async def run() -> None:
        assert (await ask("10.0.0.1", "lrk_good")).text == ACME.name
        statuses = Counter([(await ask("10.0.0.1", f"guess {n}")).status_code for n in range(BURST + 5)])
        assert statuses == {401: BURST, 429: 5}
        refused = await ask("10.0.0.1", "another")
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert (await ask("10.0.0.1", "lrk_good")).status_code == 200
        assert (await ask("10.0.0.2", "guess")).status_code == 401

    asyncio.run(run())
