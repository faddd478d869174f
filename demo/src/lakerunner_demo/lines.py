"""Every log line that requests make the services write: where, when, how severe, its text and its attributes.

`{holes}` in a text or a string attribute are facts (facts.py), or of the span that writes: `ms` and
`took` are its duration, `attempt` counts retries. A line
is filed under a service and a site: a server's operation, a database command, or `call X` for the caller's side.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial

from lakerunner_demo.flows import State
from lakerunner_demo.wire import Form, Hole, Value

OK, REFUSED, ERROR = State.OK, State.REFUSED, State.ERROR


class Severity(IntEnum):
    """By OTLP's numbers."""

    DEBUG = 5
    INFO = 9
    WARN = 13
    ERROR = 17


@dataclass(frozen=True, eq=False)
class Line:
    """Written by `percent` of the spans in `state`, when `at` thousandths of the span's own work are done; up to 500
    that is before the calls it makes, then after them."""

    site: str
    body: str | Mapping[str, Value]
    attributes: Mapping[str, Value] = field(default_factory=dict)
    severity: Severity = Severity.INFO
    state: State = OK
    percent: int = 100
    at: int = 980
    event: str = ""


debug = partial(Line, severity=Severity.DEBUG)
info = partial(Line, severity=Severity.INFO)
warn = partial(Line, severity=Severity.WARN)
error = partial(Line, severity=Severity.ERROR, state=ERROR)


def number(name: str) -> Hole:
    return Hole(name, Form.INT)


def double(name: str) -> Hole:
    return Hole(name, Form.DOUBLE)


def flag(name: str) -> Hole:
    return Hole(name, Form.BOOL)


def _http(method: str, route: str, status: int) -> dict[str, Value]:
    return {
        "http.request.method": method,
        "http.route": route,
        "http.response.status_code": status,
        "http.response.body.size": number("bytes"),
        "client.address": "{ip}",
        "user_agent.original": "{agent}",
    }


def _served(method: str, route: str, path: str) -> Iterator[Line]:
    body = f"{{ip}} {method} {path} 200 {{bytes}}b in {{ms}} ms"
    yield info(f"{method} {route}", body, {**_http(method, route, 200), "duration_ms": double("took")})


_MONEY: dict[str, Value] = {"shop.amount": double("cents"), "shop.currency": "{currency}"}
_ORDER: dict[str, Value] = {"shop.order.id": number("order"), **_MONEY}
_POOL: dict[str, Value] = {
    "db.system.name": "postgresql",
    "db.client.connection.pool.name": "payments-db",
    "db.client.connection.max": 50,
    "db.client.connection.pending_requests": number("waiting"),
    "retry.attempt": number("attempt"),
}

# One row per line of the shop; a formatter would spread each over five.
# fmt: off
FRONTEND = (
    *_served("GET", "/", "/"),
    *_served("GET", "/product/:sku", "/product/{sku}"),
    *_served("GET", "/cart", "/cart"),
    *_served("POST", "/cart", "/cart"),
    *_served("POST", "/checkout", "/checkout"),
    debug("GET /", "rendering home for session {session}, experiment {experiment}", percent=35, at=60,
        attributes={"shop.experiment": "{experiment}", "shop.country": "{country}"}),
    debug("GET /product/:sku", "template cache {experiment}/product.html reused for {sku}", percent=35, at=60,
        attributes={"shop.sku": "{sku}", "cache.hit": flag("fresh"), "shop.experiment": "{experiment}"}),
    info("GET /product/:sku", "visitor {user} from {city} looks at {product} ({sku})", percent=60, at=500,
        attributes={"shop.sku": "{sku}", "shop.product.name": "{product}", "geo.locality.name": "{city}"}),
    error("GET /", "GET / failed with 500 after {ms} ms: upstream catalog unavailable",
        attributes={**_http("GET", "/", 500), "exception.type": "UpstreamError"}),
    error("GET /product/:sku", "GET /product/{sku} failed with 500 after {ms} ms: upstream catalog unavailable",
        attributes={**_http("GET", "/product/:sku", 500), "exception.type": "UpstreamError"}),
    error("POST /cart", "POST /cart failed with 500 after {ms} ms: upstream catalog unavailable",
        attributes={**_http("POST", "/cart", 500), "exception.type": "UpstreamError"}),
    error("GET /cart", "GET /cart failed with 500 after {ms} ms: upstream catalog unavailable",
        attributes={**_http("GET", "/cart", 500), "exception.type": "UpstreamError"}),
    warn("POST /checkout", "{ip} POST /checkout 402: card ending {card} was declined", state=REFUSED,
        attributes={**_http("POST", "/checkout", 402), "shop.order.id": number("order")}),
    error("POST /checkout", "POST /checkout failed with 503 after {ms} ms: order {order} could not be placed",
        attributes={**_http("POST", "/checkout", 503), "shop.order.id": number("order"),
        "duration_ms": double("took"), "exception.type": "CheckoutUnavailable"}),
    warn("call ListRecommendations", "no recommendations for {user} after {ms} ms, page goes out without them",
        state=ERROR, attributes={"rpc.service": "shop.RecommendationService", "rpc.grpc.status_code": 4,
        "shop.degraded": True}),
)

CART = (
    info("GetCart", "cart of user {user} loaded: {items} items in {ms} ms",
        {"shop.cart.id": "{cart}", "shop.cart.items": number("items"), "duration_ms": double("took"),
        "shop.cart": {"currency": "{currency}", "lines": [{"sku": "{sku}", "units": number("units")},
        {"sku": "{other_sku}", "units": 1}]}}),
    info("AddItem", "added {units} x {product} ({sku}) to cart {cart}",
        {"shop.cart.id": "{cart}", "shop.sku": "{sku}", "shop.units": number("units"),
        "shop.cart.value": double("cents"), "duration_ms": double("took")}),
    info("EmptyCart", "cart {cart} emptied after order {order}",
        {"shop.cart.id": "{cart}", "shop.order.id": number("order"), "shop.cart.items": number("items")}),
    debug("HGETALL", "redis HGETALL cart:{cart} returned {bytes} bytes in {ms} ms", percent=45,
        attributes={"db.system.name": "redis", "db.operation.name": "HGETALL", "db.response.size": number("bytes"),
        "shop.cart.id": "{cart}"}),
    debug("HINCRBY", "redis HINCRBY cart:{cart} {sku} {units}", percent=45,
        attributes={"db.system.name": "redis", "db.operation.name": "HINCRBY", "shop.sku": "{sku}"}),
    warn("AddItem", "cart {cart} holds {stock} units, more than the stock of {sku}", percent=2, at=700,
        attributes={"shop.cart.id": "{cart}", "shop.sku": "{sku}", "shop.stock": number("stock")}),
)

CHECKOUT = (
    info("PlaceOrder", "placing order {order} for user {user}: {items} items, {cents} {currency}", at=20,
        attributes={**_ORDER, "shop.cart.items": number("items"), "shop.country": "{country}"}),
    info("PlaceOrder", "order {order} placed in {ms} ms, shipped with {carrier} to {city}",
        {**_ORDER, "duration_ms": double("took"), "event.outcome": "success",
        "shop.order": {"id": number("order"), "skus": ["{sku}", "{other_sku}"], "gift": flag("fresh"),
        "shipping": {"carrier": "{carrier}", "cost": double("fee")}}}, event="order.placed"),
    warn("PlaceOrder", "order {order} not placed: payment refused card ending {card}", state=REFUSED,
        attributes={**_ORDER, "event.outcome": "refused", "rpc.grpc.status_code": 9}),
    error("PlaceOrder", "order {order} failed after {ms} ms: payment unavailable, gave up after 2 attempts",
        attributes={**_ORDER, "duration_ms": double("took"), "event.outcome": "failure",
        "rpc.grpc.status_code": 14, "retry.exhausted": True}, event="order.failed"),
    warn("call Charge", "payment attempt {attempt} for order {order} failed after {ms} ms: "
        "rpc error: code = Unavailable desc = connection pool exhausted", state=ERROR,
        attributes={**_ORDER, "retry.attempt": number("attempt"), "rpc.grpc.status_code": 14,
        "duration_ms": double("took"), "server.address": "payment.shop.svc.cluster.local"}),
    debug("call GetQuote", "shipping quote for {items} items to {city}: {fee} EUR", percent=50,
        attributes={"shipping.cost": double("fee"), "shop.currency": "EUR", "geo.locality.name": "{city}"}),
)

PAYMENT = (
    info("Charge", "charging {cents} {currency} to {network} card ending {card} for order {order}", at=30,
        attributes={**_ORDER, "payment.card.network": "{network}", "retry.attempt": number("attempt")}),
    info("Charge", "payment of {cents} {currency} for order {order} captured in {ms} ms",
        {**_ORDER, "payment.card.network": "{network}", "payment.reference": Hole("request", Form.BYTES),
        "duration_ms": double("took"), "event.outcome": "success"}, event="payment.captured"),
    debug("Charge", "fraud score {score} for user {user}, below the threshold", percent=60, at=300,
        attributes={"payment.fraud.score": double("score"), "payment.fraud.threshold": 0.999,
        "shop.order.id": number("order"), "geo.country.iso_code": "{country}"}),
    warn("Charge", "issuer declined {network} card ending {card} for order {order}: insufficient funds",
        state=REFUSED, attributes={**_ORDER, "payment.card.network": "{network}", "payment.decline.code": 51}),
    error("Charge", "charge for order {order} failed after {ms} ms: could not get a database connection",
        attributes={**_ORDER, "exception.type": "java.sql.SQLTransientConnectionException",
        "duration_ms": double("took"), "retry.attempt": number("attempt")}),
    debug("INSERT payments", "INSERT INTO payments took {ms} ms, {idle} connections idle", percent=50,
        attributes={"db.system.name": "postgresql", "db.operation.name": "INSERT",
        "db.client.connection.idle": number("idle"), "shop.order.id": number("order")}),
    error("INSERT payments", "connection pool exhausted: payments-db 50/50 connections in use, {waiting} waiting, "
        "gave up after {ms} ms", _POOL),
    warn("INSERT payments", "statement for order {order} timed out, attempt {attempt} of 2",
        {**_POOL, "shop.order.id": number("order")}, state=ERROR, at=999),
)

CURRENCY = (
    info("Convert", "converted {cents} EUR to {currency} at {rate}", percent=70,
        attributes={**_MONEY, "currency.rate": double("rate"), "currency.from": "EUR"}),
    debug("Convert", "rate table for {currency} is fresh", percent=30, at=200,
        attributes={"shop.currency": "{currency}", "cache.hit": True}),
)

SHIPPING = (
    info("GetQuote", "quote for {items} items to {city}, {country}: {fee} EUR with {carrier}",
        {"shipping.carrier": "{carrier}", "shipping.cost": double("fee"), "shop.cart.items": number("items"),
        "geo.locality.name": "{city}", "geo.country.iso_code": "{country}"}),
    debug("GetQuote", "zone lookup {country} took {ms} ms", percent=25, at=400,
        attributes={"geo.country.iso_code": "{country}", "shipping.zone": number("quantity")}),
    info("ShipOrder", "order {order} handed to {carrier}, tracking {cart}",
        {"shop.order.id": number("order"), "shipping.carrier": "{carrier}", "shipping.tracking_id": "{cart}",
        "geo.locality.name": "{city}", "duration_ms": double("took")}, event="order.shipped"),
    warn("ShipOrder", "address of order {order} in {city} could not be verified, shipping anyway", percent=3,
        at=500, attributes={"shop.order.id": number("order"), "geo.locality.name": "{city}"}),
)

CATALOG = (
    info("GetProduct", "product {sku} served from {country} shard in {ms} ms", percent=80,
        attributes={"shop.sku": "{sku}", "shop.product.name": "{product}", "shop.stock": number("stock"),
        "cache.hit": flag("fresh"), "duration_ms": double("took")}),
    info("ListProducts", "listed {hits} products for {country} in {ms} ms",
        {"catalog.hits": number("hits"), "geo.country.iso_code": "{country}", "duration_ms": double("took"),
        "catalog.facets": ["price", "brand", "{currency}"]}),
    debug("SELECT products", "SELECT products WHERE sku = '{sku}' returned 1 row in {ms} ms", percent=30,
        attributes={"db.system.name": "postgresql", "db.collection.name": "products", "shop.sku": "{sku}"}),
    debug("SELECT listing", "SELECT products returned {hits} rows in {ms} ms", percent=40,
        attributes={"db.system.name": "postgresql", "db.response.returned_rows": number("hits")}),
    warn("GetProduct", "stock of {sku} is low: {quantity} left", percent=2, at=800,
        attributes={"shop.sku": "{sku}", "shop.stock": number("quantity"), "shop.product.name": "{product}"}),
    error("GetProduct", "product {sku} could not be read: canceling statement due to statement timeout",
        {"shop.sku": "{sku}", "exception.type": "*pgconn.PgError", "db.response.status_code": "57014"}),
    error("ListProducts", "listing failed after {ms} ms: canceling statement due to statement timeout",
        {"exception.type": "*pgconn.PgError", "db.response.status_code": "57014"}),
)

RECOMMENDATION = (
    info("ListRecommendations", "recommended {sku}, {other_sku} to {user} with score {score}", percent=75,
        attributes={"recommendation.score": double("score"), "recommendation.skus": ["{sku}", "{other_sku}"],
        "recommendation.model": "als-2024-11", "duration_ms": double("took")}),
    debug("ListRecommendations", "feature vector of {user} read from cache, {features} features", percent=40, at=150,
        attributes={"recommendation.features": number("features"), "cache.hit": flag("fresh")}),
    error("ListRecommendations", "scoring timed out after {ms} ms for user {user}",
        attributes={"exception.type": "TimeoutError", "recommendation.model": "als-2024-11",
        "duration_ms": double("took")}),
)

EMAIL = (
    info("SendConfirmation", "confirmation of order {order} sent to {email} in {ms} ms",
        {"shop.order.id": number("order"), "messaging.system": "kafka", "email.to": "{email}",
        "messaging.kafka.offset": number("offset"), "duration_ms": double("took")}, event="email.sent"),
    debug("SendConfirmation", "template order-confirmation rendered for {email}, {bytes} bytes", percent=50,
        at=400, attributes={"email.template": "order-confirmation", "email.size": number("bytes")}),
    warn("SendConfirmation", "mail server answered 421 for {email}, sent on the second attempt", percent=2,
        at=700, attributes={"email.to": "{email}", "smtp.status_code": 421, "retry.attempt": 2}),
)

AD = (
    info("GetAds", "served campaign {campaign} for {country} in {ms} ms", percent=70,
        attributes={"ad.campaign": "{campaign}", "ad.bid": double("fee"), "ad.contextual": flag("fresh"),
        "geo.country.iso_code": "{country}", "duration_ms": double("took")}),
    debug("GetAds", "{candidates} candidate campaigns, {quantity} after filters", percent=30, at=300,
        attributes={"ad.candidates": number("candidates"), "ad.kept": number("quantity")}),
    warn("GetAds", "campaign {campaign} is over its budget", percent=1, at=600,
        attributes={"ad.campaign": "{campaign}", "ad.budget": double("cents")}),
)
# fmt: on

LINES: Mapping[str, tuple[Line, ...]] = {
    "frontend": FRONTEND,
    "cart": CART,
    "checkout": CHECKOUT,
    "payment": PAYMENT,
    "currency": CURRENCY,
    "shipping": SHIPPING,
    "catalog": CATALOG,
    "recommendation": RECOMMENDATION,
    "email": EMAIL,
    "ad": AD,
}
