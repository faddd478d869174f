"""Random OTLP log requests come back as protobuf decodes them, damaged ones come back as a reason."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from otlp_oracle import actual, assert_same, decoded, expected, make, raw_of, request_type

HOUR = 3_600_000_000_000
NOW = 1_760_000_000_000_000_000

# Where we are stricter than protobuf (docs/formats/segments.md): each of these reasons names what we refuse.
STRICTER = (
    "has wire type",
    "of a wire type that OTLP does not use",
    "a number of more than 64 bits",
    "it holds no ResourceLogs",
)

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


@st.composite
def requests(draw: st.DrawFn) -> Any:
    request = request_type()()
    for _ in range(draw(st.integers(0, 3))):
        resource_logs = request.resource_logs.add()
        if draw(st.booleans()):
            add_pairs(resource_logs.resource.attributes, draw(pairs_of))
            resource_logs.resource.dropped_attributes_count = draw(counts)
            for _ in range(draw(st.integers(0, 1))):
                resource_logs.resource.entity_refs.add(type=draw(strings))
        resource_logs.schema_url = draw(strings)
        for _ in range(draw(st.integers(0, 2))):
            scope_logs = resource_logs.scope_logs.add()
            if draw(st.booleans()):
                scope_logs.scope.name = draw(strings)
                scope_logs.scope.version = draw(strings)
                scope_logs.scope.dropped_attributes_count = draw(counts)
                add_pairs(scope_logs.scope.attributes, draw(pairs_of))
            scope_logs.schema_url = draw(strings)
            for _ in range(draw(st.integers(0, 4))):
                fill_record(draw, scope_logs.log_records.add())
    return request


def fill_record(draw: st.DrawFn, record: Any) -> None:
    record.time_unix_nano = draw(times)
    record.observed_time_unix_nano = draw(times)
    record.severity_number = draw(st.sampled_from([0, 1, 9, 17, 24, 25, -1]))
    record.severity_text = draw(st.one_of(st.sampled_from([b"", b"INFO", b"warning"]), strings))
    body = draw(st.one_of(st.none(), values))
    if body is not None:
        record.body.SetInParent()
        set_value(record.body, body)
    add_pairs(record.attributes, draw(pairs_of))
    record.dropped_attributes_count = draw(counts)
    record.flags = draw(counts)
    record.trace_id, record.span_id = draw(ids), draw(ids)
    record.event_name = draw(strings)


def check(data: bytes) -> str:
    """What we make of these bytes is what protobuf makes of them; our reason if we refuse them."""
    made, files = make(raw_of(data))
    request = decoded(data)
    if made.failed:
        ((_, reason),) = made.failed
        assert files == {}
        assert request is None or any(words in reason for words in STRICTER) or not data, reason
        return reason
    assert request is not None, "we took what protobuf refuses"
    assert_same(actual(made.segments, files), expected([request]))
    return ""


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(requests())
def test_random_requests_come_back(request: Any) -> None:
    data = request.SerializeToString()
    reason = check(data)
    assert reason == "" or not request.resource_logs


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(requests(), requests(), st.randoms(use_true_random=False))
def test_merged_and_reordered_messages_read_as_protobuf_reads_them(one: Any, two: Any, chance: random.Random) -> None:
    """Fields in any order and singular messages that occur twice: take the wire apart and put it together at random."""
    data = shuffled(one.SerializeToString() + two.SerializeToString(), chance, depth=7)
    check(data)


@pytest.fixture(scope="module")
def sample() -> bytes:
    request = request_type()()
    resource_logs = request.resource_logs.add(schema_url=b"https://example.com/schema")
    add_pairs(resource_logs.resource.attributes, [(b"service.name", ("string_value", b"checkout"))])
    scope_logs = resource_logs.scope_logs.add()
    scope_logs.scope.name = b"library"
    for number in range(3):
        record = scope_logs.log_records.add()
        record.time_unix_nano = NOW + number
        record.severity_number = 9
        record.body.string_value = b"x" * 140
        record.trace_id, record.span_id = bytes(range(16)), bytes(range(8))
        inner = [("int_value", -number), ("kvlist_value", [(b"k", ("double_value", 0.5))])]
        add_pairs(record.attributes, [(b"n", ("int_value", 300)), (b"list", ("array_value", inner))])
    return bytes(request.SerializeToString())


def test_a_file_cut_anywhere_is_refused_or_read_as_protobuf_reads_it(sample: bytes) -> None:
    reasons = [check(sample[:length]) for length in range(len(sample))]
    assert reasons[0] == "the file is empty"
    assert all(reasons[1:])
    assert all("byte " in reason for reason in reasons[1:])


def test_flipped_bytes_never_crash_and_never_make_other_rows(sample: bytes) -> None:
    chance = random.Random(11)
    accepted = 0
    for _ in range(600):
        damaged = bytearray(sample)
        for _ in range(chance.randint(1, 3)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        accepted += check(bytes(damaged)) == ""
    assert 0 < accepted < 600


def test_random_bytes_never_crash() -> None:
    chance = random.Random(12)
    for _ in range(500):
        check(chance.randbytes(chance.randint(1, 60)))


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
