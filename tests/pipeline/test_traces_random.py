"""Random OTLP trace requests come back as protobuf decodes them, damaged ones come back as a reason."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.model.signal import TRACES
from pipeline.otlp_oracle import actual, assert_same, make, raw_of
from pipeline.otlp_random import (
    NOW,
    STRICTER,
    add_pairs,
    counts,
    fill_resource,
    fill_scope,
    pairs_of,
    shuffled,
    strings,
    thorough,
    times,
)
from pipeline.traces_oracle import decoded, expected, expected_index, index_of, request_type, with_items_by_key

# Equal ids, prefixes of each other and ids longer than sixteen bytes: all of them are sorted.
trace_ids = st.one_of(
    st.sampled_from([b"", b"\0", b"a" * 16, b"a" * 15, b"a" * 8 + b"\0", b"a" * 8, b"a" * 17, b"a" * 16 + b"\0"]),
    st.binary(min_size=16, max_size=16),
    st.binary(max_size=20),
)
span_ids = st.one_of(st.just(b""), st.binary(min_size=8, max_size=8), st.binary(max_size=3))
codes = st.sampled_from([0, 1, 2, 3, 5, -1, 2**31 - 1])


@st.composite
def requests(draw: st.DrawFn) -> Any:
    request = request_type()()
    for _ in range(draw(st.integers(0, 3))):
        resource_spans = request.resource_spans.add()
        fill_resource(draw, resource_spans)
        for _ in range(draw(st.integers(0, 2))):
            scope_spans = resource_spans.scope_spans.add()
            fill_scope(draw, scope_spans)
            for _ in range(draw(st.integers(0, 4))):
                fill_span(draw, scope_spans.spans.add())
    return request


def fill_span(draw: st.DrawFn, span: Any) -> None:
    span.trace_id, span.span_id, span.parent_span_id = draw(trace_ids), draw(span_ids), draw(span_ids)
    span.trace_state, span.name = draw(strings), draw(strings)
    span.flags, span.kind = draw(counts), draw(codes)
    span.start_time_unix_nano, span.end_time_unix_nano = draw(times), draw(times)
    add_pairs(span.attributes, draw(pairs_of))
    span.dropped_attributes_count = draw(counts)
    span.dropped_events_count, span.dropped_links_count = draw(counts), draw(counts)
    if draw(st.booleans()):
        span.status.code, span.status.message = draw(codes), draw(strings)
    for _ in range(draw(st.integers(0, 2))):
        event = span.events.add(time_unix_nano=draw(times), name=draw(strings), dropped_attributes_count=draw(counts))
        add_pairs(event.attributes, draw(pairs_of))
    for _ in range(draw(st.integers(0, 2))):
        link = span.links.add(trace_id=draw(trace_ids), span_id=draw(span_ids), trace_state=draw(strings))
        link.flags, link.dropped_attributes_count = draw(counts), draw(counts)
        add_pairs(link.attributes, draw(pairs_of))


def check(data: bytes) -> str:
    """What we make of these bytes is what protobuf makes of them; our reason if we refuse them."""
    made, files = make(raw_of(data), spec=TRACES)
    request = decoded(data)
    if made.failed:
        ((_, reason),) = made.failed
        assert files == {}
        assert request is None or any(words in reason for words in STRICTER) or not data, reason
        return reason
    assert request is not None, "we took what protobuf refuses"
    wanted = expected([request])
    assert_same(with_items_by_key(actual(made.segments, files)), wanted)
    for segment in made.segments:
        rows, wanted = wanted[: segment.rows], wanted[segment.rows :]
        assert index_of(segment, files) == expected_index(rows)
    return ""


@thorough(100)
@given(requests())
def test_random_requests_come_back(request: Any) -> None:
    reason = check(request.SerializeToString())
    assert reason == "" or not request.resource_spans


@thorough(60)
@given(requests(), requests(), st.randoms(use_true_random=False))
def test_merged_and_reordered_messages_read_as_protobuf_reads_them(one: Any, two: Any, chance: random.Random) -> None:
    """Fields in any order and singular messages that occur twice: take the wire apart and put it together at random."""
    check(shuffled(one.SerializeToString() + two.SerializeToString(), chance, depth=7))


@pytest.fixture(scope="module")
def sample() -> bytes:
    request = request_type()()
    resource_spans = request.resource_spans.add(schema_url=b"https://example.com/schema")
    add_pairs(resource_spans.resource.attributes, [(b"service.name", ("string_value", b"checkout"))])
    scope_spans = resource_spans.scope_spans.add()
    scope_spans.scope.name = b"library"
    for number in range(3):
        span = scope_spans.spans.add(name=b"GET /cart", kind=2, flags=0x101, trace_state=b"a=b")
        span.trace_id, span.span_id = bytes(range(16)), bytes(range(8))
        span.start_time_unix_nano, span.end_time_unix_nano = NOW + number, NOW + 5
        span.status.code, span.status.message = 2, b"broken"
        inner = [("int_value", -number), ("kvlist_value", [(b"k", ("double_value", 0.5))])]
        add_pairs(span.attributes, [(b"n", ("int_value", 300)), (b"list", ("array_value", inner))])
        event = span.events.add(time_unix_nano=NOW + 1, name=b"exception")
        add_pairs(event.attributes, [(b"type", ("string_value", b"x" * 130))])
        link = span.links.add(trace_id=bytes(16), span_id=bytes(8), flags=1)
        add_pairs(link.attributes, [(b"why", ("bool_value", True))])
    return bytes(request.SerializeToString())


def test_a_file_cut_anywhere_is_refused_or_read_as_protobuf_reads_it(sample: bytes) -> None:
    reasons = [check(sample[:length]) for length in range(len(sample))]
    assert reasons[0] == "the file is empty"
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
