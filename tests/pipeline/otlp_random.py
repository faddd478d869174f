"""Random parts of OTLP requests of any signal, and random ways to put their bytes together."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

HOUR = 3_600_000_000_000
NOW = 1_760_000_000_000_000_000

# Where we are stricter than protobuf (docs/formats/segments.md): each of these reasons names what we refuse.
STRICTER = (
    "has wire type",
    "of a wire type that OTLP does not use",
    "a number of more than 64 bits",
    "it has no Resource",
)


def thorough(examples: int) -> settings:
    """Return settings with this many examples."""
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
    return settings(max_examples=examples, deadline=None, suppress_health_check=slow)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12).map(str.encode)
ill_formed = st.binary(max_size=6)
strings = st.one_of(texts, texts, texts, ill_formed)
keys = st.one_of(st.sampled_from([b"a", b"A", b"b", b"c.d", b"", b"bytesValue", b"service.name", b"\xff"]), strings)
times = st.one_of(
    st.integers(NOW, NOW + 3 * HOUR),
    st.sampled_from([0, 1, 2**63 - 2, 2**63 - 1, 2**63, 2**64 - 1]),
)
ids = st.one_of(st.just(b""), st.binary(min_size=16, max_size=16), st.binary(max_size=3))
counts = st.sampled_from([0, 1, 2**31, 2**32 - 1])


def set_value(value: Any, drawn: tuple[str, Any]) -> None:
    kind, content = drawn
    if kind == "array_value":
        value.array_value.SetInParent()
        for item in content:
            set_value(value.array_value.values.add(), item)
    elif kind == "kvlist_value":
        value.kvlist_value.SetInParent()
        add_pairs(value.kvlist_value.values, content)
    elif kind:
        setattr(value, kind, content)


def add_pairs(pairs: Any, drawn: list[tuple[bytes, Any]]) -> None:
    for key, value in drawn:
        pair = pairs.add()
        pair.key = key
        if value is not None:
            pair.value.SetInParent()
            set_value(pair.value, value)


scalars = st.one_of(
    st.just(("", None)),
    st.tuples(st.just("string_value"), strings),
    st.tuples(st.just("bool_value"), st.booleans()),
    st.tuples(st.just("int_value"), st.integers(-(2**63), 2**63 - 1)),
    st.tuples(st.just("double_value"), st.floats()),
    st.tuples(st.just("bytes_value"), st.binary(max_size=9)),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.tuples(st.just("array_value"), st.lists(inner, max_size=3)),
        st.tuples(st.just("kvlist_value"), st.lists(st.tuples(keys, inner), max_size=3)),
    ),
    max_leaves=6,
)
pairs_of = st.lists(st.tuples(keys, st.one_of(st.none(), values)), max_size=5)


def fill_resource(draw: st.DrawFn, resource_items: Any) -> None:
    """The head of a ResourceLogs, ResourceMetrics or ResourceSpans."""
    if draw(st.booleans()):
        add_pairs(resource_items.resource.attributes, draw(pairs_of))
        resource_items.resource.dropped_attributes_count = draw(counts)
        for _ in range(draw(st.integers(0, 1))):
            resource_items.resource.entity_refs.add(type=draw(strings))
    resource_items.schema_url = draw(strings)


def fill_scope(draw: st.DrawFn, scope_items: Any) -> None:
    """The head of a ScopeLogs, ScopeMetrics or ScopeSpans."""
    if draw(st.booleans()):
        scope_items.scope.name = draw(strings)
        scope_items.scope.version = draw(strings)
        scope_items.scope.dropped_attributes_count = draw(counts)
        add_pairs(scope_items.scope.attributes, draw(pairs_of))
    scope_items.schema_url = draw(strings)


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes(out) + bytes([number])


def fields(data: bytes) -> list[tuple[int, int, bytes]] | None:
    """(number, wire type, payload) of each field, or None if these bytes are no message."""
    found, at = [], 0

    def read() -> int:
        nonlocal at
        number = shift = 0
        while True:
            byte = data[at]
            at += 1
            number |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return number

    try:
        while at < len(data):
            number, wire_type = divmod(read(), 8)
            start = at
            if wire_type == 0:
                read()
            elif wire_type == 2:
                size = read()
                start, at = at, at + size
            elif wire_type in (1, 5):
                at += 8 if wire_type == 1 else 4
            if number == 0 or wire_type not in (0, 1, 2, 5) or at > len(data):
                return None
            found.append((number, wire_type, data[start:at]))
    except IndexError:
        return None
    return found


def shuffled(data: bytes, chance: random.Random, depth: int) -> bytes:
    """The same message or an odd one: fields in another order, some twice, some unknown ones between them."""
    found = fields(data)
    if not found or depth == 0:
        return data
    out = []
    for number, wire_type, payload in found:
        if wire_type == 2:
            payload = shuffled(payload, chance, depth - 1)
            payload = varint(len(payload)) + payload
        out.append(varint(number << 3 | wire_type) + payload)
    out += [field for field in out if chance.random() < 0.1]
    out += [varint(99 << 3) + b"\x07" for _ in range(chance.randint(0, 1))]
    chance.shuffle(out)
    return b"".join(out)
