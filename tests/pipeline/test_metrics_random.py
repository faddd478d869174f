"""Random OTLP metrics requests come back as protobuf decodes them, damaged ones come back as a reason."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.metrics_oracle import actual, decoded, expected, expected_series, make_metrics, request_type, series_rows
from pipeline.otlp_oracle import Row, assert_same
from pipeline.otlp_random import (
    NOW,
    STRICTER,
    add_pairs,
    counts,
    fill_resource,
    fill_scope,
    ids,
    pairs_of,
    shuffled,
    strings,
    thorough,
    times,
)

# Of each kind of double: whole ones, odd ones, those that only their bits tell apart.
stale = struct.unpack("<d", struct.pack("<Q", 0x7FF0000000000002))[0]
doubles = st.one_of(st.floats(), st.sampled_from([0.0, -0.0, 1.0, 2.0**53, 2.0**53 + 2, stale]), st.integers(0, 9))
ints = st.one_of(st.integers(0, 9), st.integers(-(2**63), 2**63 - 1))
unsigned = st.one_of(st.integers(0, 9), st.integers(0, 2**64 - 1))
signed = st.one_of(st.integers(-5, 5), st.integers(-(2**31), 2**31 - 1))
names = st.one_of(st.sampled_from([b"requests", b"size", b"cpu.time"]), strings)


@st.composite
def requests(draw: st.DrawFn) -> Any:
    request = request_type()()
    for _ in range(draw(st.integers(0, 2))):
        resource_metrics = request.resource_metrics.add()
        fill_resource(draw, resource_metrics)
        for _ in range(draw(st.integers(0, 2))):
            scope_metrics = resource_metrics.scope_metrics.add()
            fill_scope(draw, scope_metrics)
            for _ in range(draw(st.integers(0, 3))):
                fill_metric(draw, scope_metrics.metrics.add())
    return request


def fill_metric(draw: st.DrawFn, metric: Any) -> None:
    metric.name, metric.description, metric.unit = (
        draw(names),
        draw(strings),
        draw(st.sampled_from([b"", b"s", b"\xff"])),
    )
    add_pairs(metric.metadata, draw(st.one_of(st.just([]), pairs_of)))
    kind = draw(st.sampled_from(["", "gauge", "sum", "histogram", "exponential_histogram", "summary"]))
    if not kind:
        return
    data = getattr(metric, kind)
    data.SetInParent()
    if hasattr(data, "aggregation_temporality"):
        data.aggregation_temporality = draw(st.sampled_from([0, 1, 2, 3, -1]))
    if kind == "sum":
        data.is_monotonic = draw(st.booleans())
    for _ in range(draw(st.integers(0, 4))):
        point = data.data_points.add()
        fill_point(draw, point)
        {"histogram": fill_histogram, "exponential_histogram": fill_exponential, "summary": fill_summary}.get(
            kind, fill_number
        )(draw, point)


def fill_point(draw: st.DrawFn, point: Any) -> None:
    add_pairs(point.attributes, draw(st.one_of(st.just([(b"k", ("int_value", 1))]), pairs_of)))
    point.time_unix_nano, point.start_time_unix_nano = draw(times), draw(times)
    point.flags = draw(counts)
    for _ in range(draw(st.integers(0, 2)) if hasattr(point, "exemplars") else 0):
        exemplar = point.exemplars.add(time_unix_nano=draw(times), trace_id=draw(ids), span_id=draw(ids))
        add_pairs(exemplar.filtered_attributes, draw(pairs_of))
        set_number(draw, exemplar)


def set_number(draw: st.DrawFn, holder: Any) -> None:
    kind = draw(st.sampled_from(["", "as_double", "as_int"]))
    if kind:
        setattr(holder, kind, draw(doubles if kind == "as_double" else ints))


def fill_number(draw: st.DrawFn, point: Any) -> None:
    set_number(draw, point)


def fill_statistics(draw: st.DrawFn, point: Any) -> None:
    point.count = draw(unsigned)
    for name in draw(st.sets(st.sampled_from(["sum", "min", "max"]))):
        setattr(point, name, draw(doubles))


def fill_histogram(draw: st.DrawFn, point: Any) -> None:
    fill_statistics(draw, point)
    point.bucket_counts.extend(draw(st.lists(unsigned, max_size=4)))
    point.explicit_bounds.extend(draw(st.lists(doubles, max_size=4)))


def fill_exponential(draw: st.DrawFn, point: Any) -> None:
    fill_statistics(draw, point)
    point.scale, point.zero_count, point.zero_threshold = draw(signed), draw(unsigned), draw(doubles)
    for name in draw(st.sets(st.sampled_from(["positive", "negative"]))):
        buckets = getattr(point, name)
        buckets.offset = draw(signed)
        buckets.SetInParent()
        buckets.bucket_counts.extend(draw(st.lists(unsigned, max_size=4)))


def fill_summary(draw: st.DrawFn, point: Any) -> None:
    point.count, point.sum = draw(unsigned), draw(doubles)
    for _ in range(draw(st.integers(0, 3))):
        point.quantile_values.add(quantile=draw(doubles), value=draw(doubles))


def check(data: bytes, *, in_order: bool = True) -> str:
    """What we make of these bytes is what protobuf makes of them; our reason if we refuse them."""
    made, files = make_metrics(data)
    request = decoded(data)
    if made.failed:
        ((_, reason),) = made.failed
        assert files == {}
        assert request is None or any(words in reason for words in STRICTER) or not data, reason
        return reason
    assert request is not None, "we took what protobuf refuses"
    found, wanted = actual(made, files), expected([request])
    if in_order:
        assert_same(found, wanted)
        for segment in made.segments:
            rows, wanted = wanted[: segment.rows], wanted[segment.rows :]
            assert series_rows(segment, files) == expected_series(rows)
    else:
        assert sorted(map(without_series, found)) == sorted(map(without_series, wanted))
    return ""


def without_series(row: Row) -> str:
    """An entity reference is kept as the bytes it came in, and counts in the digest of the series as such."""
    return repr(sorted((name, repr(sorted_by_key(value))) for name, value in row.items() if name != "series"))


def sorted_by_key(value: Any) -> Any:
    if isinstance(value, dict):
        return sorted((key, sorted_by_key(item)) for key, item in value.items())
    return [sorted_by_key(item) for item in value] if isinstance(value, list) else value


@thorough(60)
@given(requests())
def test_random_requests_come_back(request: Any) -> None:
    reason = check(request.SerializeToString())
    assert reason == "" or not request.resource_metrics


@thorough(60)
@given(requests(), requests(), st.randoms(use_true_random=False))
def test_merged_and_reordered_messages_read_as_protobuf_reads_them(one: Any, two: Any, chance: random.Random) -> None:
    """Fields in any order, twice, and among them kinds of data that replace each other."""
    data = shuffled(one.SerializeToString() + two.SerializeToString(), chance, depth=8)
    check(data, in_order=False)


@pytest.fixture(scope="module")
def sample() -> bytes:
    request = request_type()()
    resource_metrics = request.resource_metrics.add(schema_url=b"https://example.com/schema")
    add_pairs(resource_metrics.resource.attributes, [(b"service.name", ("string_value", b"checkout"))])
    metrics = resource_metrics.scope_metrics.add().metrics
    counter = metrics.add(name=b"requests", unit=b"1").sum
    counter.aggregation_temporality, counter.is_monotonic = 2, True
    for number in range(3):
        point = counter.data_points.add(time_unix_nano=NOW + number, as_int=number)
        add_pairs(point.attributes, [(b"n", ("int_value", 300))])
    histogram = metrics.add(name=b"duration").histogram.data_points.add(count=3, sum=1.5, time_unix_nano=NOW)
    histogram.bucket_counts.extend([1, 2])
    histogram.explicit_bounds.append(0.5)
    histogram.exemplars.add(as_double=0.25, trace_id=bytes(range(16)))
    exponential = metrics.add(name=b"size").exponential_histogram.data_points.add(count=3, scale=-1)
    exponential.positive.offset = -3
    exponential.positive.bucket_counts.extend([1, 300])
    quantiles = metrics.add(name=b"old").summary.data_points.add(count=3, sum=2.5).quantile_values
    quantiles.add(quantile=0.5, value=1.25)
    return bytes(request.SerializeToString())


def test_a_file_cut_anywhere_is_refused_or_read_as_protobuf_reads_it(sample: bytes) -> None:
    reasons = [check(sample[:length]) for length in range(len(sample))]
    assert reasons[0] == "the file is empty"
    assert all("byte " in reason for reason in reasons[1:])


def test_flipped_bytes_never_crash_and_never_make_other_rows(sample: bytes) -> None:
    chance = random.Random(11)
    accepted = 0
    for _ in range(300):
        damaged = bytearray(sample)
        for _ in range(chance.randint(1, 3)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        accepted += check(bytes(damaged), in_order=False) == ""
    assert 0 < accepted < 300
