"""Spans of requests, with their attributes, events, links and status.

Comes in: requests as played (visits.py). Goes out: per node and state, its rows; encoding makes OTLP Spans of them.
A span is exported when it ends: its end is the time it is filed under.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from lakerunner.model.time import TimeRange
from lakerunner_demo.facts import Facts
from lakerunner_demo.flows import CLIENT, CONSUMER, PRODUCER, SERVER, Node, State
from lakerunner_demo.lines import double, number
from lakerunner_demo.noise import I64
from lakerunner_demo.records import Records, as_column
from lakerunner_demo.services import NAMESPACE, service_named
from lakerunner_demo.visits import FLOW_NODES, Played, Visits
from lakerunner_demo.wire import (
    FIXED32,
    FIXED64,
    VARINT,
    Column,
    Form,
    Hole,
    Part,
    Value,
    encode,
    fixed_column,
    key_values,
    nested,
    tag,
    varint,
)

GRPC_OK, GRPC_DEADLINE, GRPC_PRECONDITION, GRPC_UNAVAILABLE = 0, 4, 9, 14
_START, _END = Hole("start", Form.BYTES), Hole("end", Form.BYTES)
_TRACE_ID, _SPAN_ID, _PARENT_ID = (Hole(name, Form.BYTES) for name in ("trace_id", "span_id", "parent_id"))
_STATUS_ERROR = 2
_SAMPLED_LOCAL, _SAMPLED_REMOTE = 0x101, 0x301  # sampled; and whether the parent is in another process
_QUERIES = {
    "SELECT products": "SELECT sku, name, price, stock FROM products WHERE sku = $1",
    "SELECT listing": "SELECT sku, name, price FROM products WHERE country = $1 ORDER BY rank LIMIT 60",
    "INSERT payments": "INSERT INTO payments (order_id, amount, currency, card) VALUES ($1, $2, $3, $4)",
    "HGETALL": "HGETALL cart:{cart}",
    "HINCRBY": "HINCRBY cart:{cart} {sku} {units}",
    "DEL": "DEL cart:{cart}",
}
_EXCEPTIONS = {
    "INSERT payments": ("java.sql.SQLTransientConnectionException", "connection pool exhausted: payments-db"),
    "SELECT products": ("*pgconn.PgError", "canceling statement due to statement timeout"),
    "SELECT listing": ("*pgconn.PgError", "canceling statement due to statement timeout"),
    "ListRecommendations": ("TimeoutError", "scoring timed out"),
    "Charge": ("com.shop.payment.LedgerUnavailable", "could not get a database connection"),
    "PlaceOrder": ("*status.Error", "payment unavailable, gave up after 2 attempts"),
}


def http_status(state: int, operation: str) -> int:
    failed = 503 if operation == "POST /checkout" else 500
    return {State.OK: 200, State.REFUSED: 402, State.ERROR: failed}[State(state)]


def grpc_status(state: int, operation: str) -> int:
    failed = GRPC_DEADLINE if operation == "ListRecommendations" else GRPC_UNAVAILABLE
    return {State.OK: GRPC_OK, State.REFUSED: GRPC_PRECONDITION, State.ERROR: failed}[State(state)]


def rpc_service(service: str) -> str:
    return f"{NAMESPACE}.{service.capitalize()}Service"


@dataclass(frozen=True)
class SpanRows:
    """The spans of one node that ended in one state. `source` are their rows in the visits."""

    visits: Visits
    facts: Facts
    played: Played
    state: State
    source: I64

    @property
    def end_ns(self) -> I64:
        return self.played.end_ns[self.source]

    def within(self, time: TimeRange) -> SpanRows:
        keep = (self.end_ns >= time.start_ns) & (self.end_ns < time.end_ns)
        return SpanRows(self.visits, self.facts, self.played, self.state, self.source[keep])

    def records(self) -> Records:
        node = self.played.node
        parts = _PARTS[self.visits.flow.name, node.index, self.state]
        data = encode(parts, self._column, len(self.source))
        return Records(self.end_ns, self.visits.ids[self.source], self.played.resource[self.source], as_column(data))

    def _column(self, hole: Hole) -> Column:
        match hole.name:
            case "start":
                return fixed_column(self.played.start_ns[self.source])
            case "end":
                return fixed_column(self.end_ns)
            case "trace_id":
                return Column(self.visits.trace_id[self.source])
            case "span_id":
                return fixed_column(self.played.span_id[self.source])
            case "parent_id":
                parent = self.visits.played[self.played.node.parent]
                return fixed_column(parent.span_id[self.source])
        return self.facts.column(hole).take(self.source)


def span_rows(visits: Visits) -> Iterator[SpanRows]:
    """Yield every span of these requests."""
    facts = Facts(visits.schedule.world, visits.ids)
    for played in visits.played:
        for state in (State.OK, State.REFUSED, State.ERROR):
            source = np.flatnonzero(played.state == state)
            if len(source):
                yield SpanRows(visits, facts, played, state, source)


def _span(node: Node, state: State) -> Part:
    """Return a Span as field 2 of ScopeSpans, in the order of field numbers."""
    parent = [nested(4, _PARENT_ID)] if node.parent >= 0 else []
    flags = _SAMPLED_REMOTE if node.kind in (SERVER, CONSUMER) and parent else _SAMPLED_LOCAL
    failed = state == State.ERROR
    status = [nested(15, nested(2, _message(node)), tag(3, VARINT) + varint(_STATUS_ERROR))] if failed else []
    return nested(
        2,
        nested(1, _TRACE_ID),
        nested(2, _SPAN_ID),
        *parent,
        nested(5, _name(node).encode()),
        tag(6, VARINT) + varint(node.kind),
        tag(7, FIXED64),
        _START,
        tag(8, FIXED64),
        _END,
        *key_values(9, _attributes(node, state)),
        *_events(node, failed),
        *_links(node),
        *status,
        tag(16, FIXED32) + flags.to_bytes(4, "little"),
    )


def _name(node: Node) -> str:
    match node.call.system:
        case "grpc":
            return f"{rpc_service(node.call.service)}/{node.call.operation}"
        case "kafka":
            return "publish orders" if node.kind == PRODUCER else "process orders"
    return node.call.operation


def _message(node: Node) -> bytes:
    return _EXCEPTIONS.get(node.call.operation, ("", "upstream unavailable"))[1].encode()


def _attributes(node: Node, state: State) -> dict[str, Value]:
    operation = node.call.operation
    match node.call.system:
        case "http":
            return _http_attributes(operation, http_status(state, operation))
        case "grpc":
            return _grpc_attributes(node, grpc_status(state, operation))
        case "kafka":
            return {
                "messaging.system": "kafka",
                "messaging.destination.name": "orders",
                "messaging.operation.type": "publish" if node.kind == PRODUCER else "process",
                "messaging.destination.partition.id": "{partition}",
                "messaging.kafka.offset": number("offset"),
                "messaging.message.body.size": number("bytes"),
                "shop.order.id": number("order"),
            }
    return _database_attributes(node)


def _http_attributes(operation: str, status: int) -> dict[str, Value]:
    method, route = operation.split(" ", 1)
    return {
        "http.request.method": method,
        "http.route": route,
        "url.scheme": "https",
        "url.path": route.replace(":sku", "{sku}"),
        "http.response.status_code": status,
        "http.response.body.size": number("bytes"),
        "client.address": "{ip}",
        "client.port": number("port"),
        "user_agent.original": "{agent}",
        "session.id": "{session}",
        "user.id": "u-{user}",
        "network.protocol.version": "2",
    }


def _grpc_attributes(node: Node, status: int) -> dict[str, Value]:
    shared: dict[str, Value] = {
        "rpc.system": "grpc",
        "rpc.service": rpc_service(node.call.service),
        "rpc.method": node.call.operation,
        "rpc.grpc.status_code": status,
        "server.address": f"{node.call.service}.{NAMESPACE}.svc.cluster.local",
        "server.port": service_named(node.call.service).port,
    }
    if node.kind == CLIENT:
        return {**shared, "retry.attempt": node.call.attempt, "rpc.message.sent.size": number("bytes")}
    return {
        **shared,
        "shop.request.id": number("request"),
        "user.id": "u-{user}",
        **_BUSINESS.get(node.call.operation, {}),
    }


_BUSINESS: Mapping[str, dict[str, Value]] = {
    "Charge": {
        "shop.order.id": number("order"),
        "shop.amount": double("cents"),
        "shop.currency": "{currency}",
        "payment.card.network": "{network}",
    },
    "PlaceOrder": {
        "shop.order.id": number("order"),
        "shop.amount": double("cents"),
        "shop.skus": ["{sku}", "{other_sku}"],
    },
    "GetProduct": {"shop.sku": "{sku}", "cache.hit": Hole("fresh", Form.BOOL)},
    "ListProducts": {"catalog.hits": number("hits")},
    "Convert": {"shop.currency": "{currency}", "currency.rate": double("rate")},
    "GetAds": {"ad.campaign": "{campaign}"},
    "ListRecommendations": {"recommendation.model": "als-2024-11", "recommendation.score": double("score")},
    "GetQuote": {"shipping.carrier": "{carrier}", "shipping.cost": double("fee")},
    "ShipOrder": {"shipping.carrier": "{carrier}", "shipping.tracking_id": "{cart}"},
}


def _database_attributes(node: Node) -> dict[str, Value]:
    redis = node.call.system == "redis"
    return {
        "db.system.name": node.call.system,
        "db.namespace": "0" if redis else node.service,
        "db.operation.name": node.call.operation.split(" ")[0],
        "db.query.summary": node.call.operation,
        "db.query.text": _QUERIES[node.call.operation],
        "server.address": f"{node.service}-{'redis' if redis else 'db'}.{NAMESPACE}.svc.cluster.local",
        "server.port": 6379 if redis else 5432,
        "retry.attempt": node.call.attempt,
    }


def _events(node: Node, failed: bool) -> Iterator[Part]:
    kind, message = _EXCEPTIONS.get(node.call.operation, ("", ""))
    if not failed or not kind or node.kind not in (SERVER, CLIENT) or node.site.startswith("call "):
        return
    frame = f"{kind}: {message}\n\tat {service_named(node.service).package}.{node.call.operation.split(' ')[0]}"
    attributes: dict[str, Value] = {
        "exception.type": kind,
        "exception.message": message,
        "exception.stacktrace": frame,
        "exception.escaped": True,
    }
    yield nested(11, tag(1, FIXED64), _END, nested(2, b"exception"), *key_values(3, attributes))


def _links(node: Node) -> Iterator[Part]:
    """Link a consumer to the message it received."""
    if node.kind == CONSUMER:
        reason: dict[str, Value] = {"messaging.operation.type": "receive"}
        yield nested(13, nested(1, _TRACE_ID), nested(2, _PARENT_ID), *key_values(4, reason))


_PARTS = {
    (flow, node.index, state): (_span(node, state),)
    for flow, nodes in FLOW_NODES.items()
    for node in nodes
    for state in (State.OK, State.REFUSED, State.ERROR)
}
