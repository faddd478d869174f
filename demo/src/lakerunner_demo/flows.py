"""What a visitor can do in the shop, and which calls between the services it takes.

A flow is a tree of calls, written once below and flattened into nodes: one node is one span of the request's trace,
parents before children. A request has one outcome; each node says in which outcomes it takes place, fails or refuses.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

SERVER, CLIENT, PRODUCER, CONSUMER = 2, 3, 4, 5  # as OTLP numbers span kinds


class Outcome(IntEnum):
    """How a request went."""

    FINE = 0
    DEGRADED = 1  # recommendations failed, the page came without them
    BROKEN = 2  # the catalog's database failed
    DECLINED = 3  # the card was refused; nothing is wrong with the shop
    SLOW_DB = 4  # payment's first database attempt timed out, its second succeeded
    RETRIED = 5  # the first charge failed, checkout's second one succeeded
    FAILED = 6  # both charges failed


class State(IntEnum):
    """How a node of the request went."""

    OK = 0
    REFUSED = 1
    ERROR = 2
    ABSENT = 3


FINE, DEGRADED, BROKEN, DECLINED, SLOW_DB, RETRIED, FAILED = Outcome
ALL = frozenset(Outcome)
NONE: frozenset[Outcome] = frozenset()
PAID = frozenset({FINE, SLOW_DB, RETRIED})
UNBROKEN = ALL - {BROKEN}


@dataclass(frozen=True)
class Call:
    """A call of a service. `own_us` is the median time of its own work, `error_us` that of a failing call."""

    service: str
    operation: str
    system: str  # http, grpc, postgresql, redis or kafka
    own_us: int
    calls: tuple[Call, ...] = ()
    error_us: int = 0
    only: frozenset[Outcome] = ALL
    fails: frozenset[Outcome] = NONE
    refuses: frozenset[Outcome] = NONE
    attempt: int = 1


@dataclass(frozen=True)
class Node:
    """One span. `peer` is the service at the other end; `states` has one State per Outcome."""

    index: int
    parent: int  # -1 for the root
    service: str
    peer: str
    call: Call
    kind: int
    own_us: int
    error_us: int
    states: tuple[int, ...]

    @property
    def site(self) -> str:
        """Return the key of this node's log lines; for the client side of a call it is `call X`."""
        calling = self.kind in (CLIENT, PRODUCER) and self.call.system in ("grpc", "kafka")
        return f"call {self.call.operation}" if calling else self.call.operation


@dataclass(frozen=True)
class Flow:
    """`usual` and `incident` weigh the outcomes, in 1/10000; what is left over is FINE."""

    name: str
    weight: int
    root: Call
    usual: dict[Outcome, int]
    incident: dict[Outcome, int]

    def nodes(self) -> tuple[Node, ...]:
        return tuple(_flatten(self.root))


_HOP_US = 700  # network round trip


def _flatten(root: Call) -> Iterator[Node]:
    count = 0

    def walk(call: Call, parent: Node | None) -> Iterator[Node]:
        nonlocal count
        for service, peer, kind, own_us, error_us in _spans(call, parent.service if parent else ""):
            states = _states(call, parent)
            above = parent.index if parent else -1
            parent = Node(count, above, service, peer, call, kind, own_us, error_us, states)
            count += 1
            yield parent
        for inner in call.calls:
            yield from walk(inner, parent)

    yield from walk(root, None)


def _spans(call: Call, caller: str) -> Iterator[tuple[str, str, int, int, int]]:
    """Return (service, peer, kind, own work, own work when failing) of the spans of a call, outermost first."""
    error_us = call.error_us or call.own_us
    match call.system:
        case "http":
            yield call.service, caller, SERVER, call.own_us, error_us
        case "grpc":
            yield caller, call.service, CLIENT, _HOP_US, _HOP_US
            yield call.service, caller, SERVER, call.own_us, error_us
        case "kafka":
            yield caller, call.service, PRODUCER, _HOP_US, _HOP_US
            yield call.service, caller, CONSUMER, call.own_us, error_us
        case _:
            yield call.service, call.service, CLIENT, call.own_us, error_us


def _states(call: Call, parent: Node | None) -> tuple[int, ...]:
    def state(outcome: Outcome) -> State:
        if outcome not in call.only or (parent and parent.states[outcome] == State.ABSENT):
            return State.ABSENT
        if outcome in call.fails:
            return State.ERROR
        return State.REFUSED if outcome in call.refuses else State.OK

    return tuple(state(outcome) for outcome in Outcome)


def _get_product(*, fails: frozenset[Outcome] = NONE, only: frozenset[Outcome] = ALL) -> Call:
    query = Call("catalog", "SELECT products", "postgresql", 2_600, error_us=90_000, fails=fails)
    return Call("catalog", "GetProduct", "grpc", 1_100, (query,), fails=fails, only=only)


def _list_products() -> Call:
    broken = frozenset({BROKEN})
    query = Call("catalog", "SELECT listing", "postgresql", 6_800, error_us=120_000, fails=broken)
    return Call("catalog", "ListProducts", "grpc", 2_400, (query,), fails=broken)


def _recommend() -> Call:
    looked_up = _get_product(only=ALL - {DEGRADED})
    failing = frozenset({DEGRADED})
    return Call("recommendation", "ListRecommendations", "grpc", 9_500, (looked_up,), 250_000, UNBROKEN, failing)


def _ads() -> Call:
    return Call("ad", "GetAds", "grpc", 3_200, only=UNBROKEN)


def _convert() -> Call:
    return Call("currency", "Convert", "grpc", 450, only=UNBROKEN)


def _quote() -> Call:
    return Call("shipping", "GetQuote", "grpc", 3_900, only=UNBROKEN)


def _cart(operation: str, command: str, only: frozenset[Outcome] = UNBROKEN) -> Call:
    return Call("cart", operation, "grpc", 1_300, (Call("cart", command, "redis", 600),), only=only)


def _charge(attempt: int, only: frozenset[Outcome], fails: frozenset[Outcome], slow: frozenset[Outcome]) -> Call:
    """Return the call of a charge. `slow`: its first database attempt times out; `fails`: the second one does too."""
    first = Call("payment", "INSERT payments", "postgresql", 4_200, error_us=1_000_000, fails=slow)
    second = Call("payment", "INSERT payments", "postgresql", 5_000, (), 1_000_000, only=slow, fails=fails, attempt=2)
    declined = frozenset({DECLINED})
    return Call("payment", "Charge", "grpc", 21_000, (first, second), 24_000, only, fails, declined, attempt)


def _place_order() -> Call:
    unlucky, failed = frozenset({RETRIED, FAILED}), frozenset({FAILED})
    calls = (
        _cart("GetCart", "HGETALL", ALL),
        _get_product(),
        _convert(),
        _quote(),
        _charge(1, ALL, fails=unlucky, slow=unlucky | {SLOW_DB}),
        _charge(2, unlucky, fails=failed, slow=failed),
        Call("shipping", "ShipOrder", "grpc", 7_500, only=PAID),
        _cart("EmptyCart", "DEL", PAID),
        Call("email", "SendConfirmation", "kafka", 38_000, only=PAID),
    )
    declined = frozenset({DECLINED})
    return Call("checkout", "PlaceOrder", "grpc", 6_500, calls, fails=failed, refuses=declined)


def _page(route: str, own_us: int, *calls: Call) -> Call:
    return Call("frontend", route, "http", own_us, calls, fails=frozenset({BROKEN}))


_PAGE_TROUBLE = {DEGRADED: 12, BROKEN: 4}
_BROKEN_ONLY = frozenset({BROKEN})

FLOWS = (
    Flow(
        "home",
        30,
        _page("GET /", 5_200, _list_products(), _convert(), _recommend(), _ads()),
        _PAGE_TROUBLE,
        _PAGE_TROUBLE,
    ),
    Flow(
        "product",
        34,
        _page("GET /product/:sku", 4_300, _get_product(fails=_BROKEN_ONLY), _convert(), _recommend(), _ads()),
        _PAGE_TROUBLE,
        _PAGE_TROUBLE,
    ),
    Flow(
        "add to cart",
        13,
        _page("POST /cart", 3_100, _get_product(fails=_BROKEN_ONLY), _cart("AddItem", "HINCRBY")),
        {BROKEN: 4},
        {BROKEN: 4},
    ),
    Flow(
        "view cart",
        11,
        _page("GET /cart", 3_800, _cart("GetCart", "HGETALL", ALL), _get_product(fails=_BROKEN_ONLY), _quote()),
        {BROKEN: 4},
        {BROKEN: 4},
    ),
    Flow(
        "checkout",
        12,
        Call(
            "frontend",
            "POST /checkout",
            "http",
            5_600,
            (_place_order(),),
            fails=frozenset({FAILED}),
            refuses=frozenset({DECLINED}),
        ),
        {DECLINED: 140, SLOW_DB: 20, RETRIED: 4, FAILED: 2},
        {DECLINED: 100, SLOW_DB: 1_800, RETRIED: 1_600, FAILED: 5_200},
    ),
)
