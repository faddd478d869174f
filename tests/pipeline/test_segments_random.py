"""Random OTLP log requests come back as protobuf decodes them, damaged ones come back as a reason."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.otlp_oracle import actual, assert_same, decoded, expected, make, raw_of, request_type
from pipeline.otlp_random import (
    NOW,
    STRICTER,
    add_pairs,
    counts,
    fill_resource,
    fill_scope,
    ids,
    pairs_of,
    set_value,
    shuffled,
    strings,
    thorough,
    times,
    values,
)


@st.composite
def requests(draw: st.DrawFn) -> Any:
    request = request_type()()
    for _ in range(draw(st.integers(0, 3))):
        resource_logs = request.resource_logs.add()
        fill_resource(draw, resource_logs)
        for _ in range(draw(st.integers(0, 2))):
            scope_logs = resource_logs.scope_logs.add()
            fill_scope(draw, scope_logs)
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


@thorough(100)
@given(requests())
def test_random_requests_come_back(request: Any) -> None:
    data = request.SerializeToString()
    reason = check(data)
    assert reason == "" or not request.resource_logs


@thorough(60)
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
