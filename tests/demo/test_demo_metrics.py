"""Metrics against the spans they measure: the same counts, buckets and sums, pod by pod."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from typing import Any

import pytest

from demo.demo_parsed import Point, Row, attributes_of, points
from lakerunner.model.time import HOUR_NS, MINUTE_NS, SECOND_NS
from lakerunner_demo.metrics import EXPORT_NS
from lakerunner_demo.shop import Shop
from lakerunner_demo.visits import LONGEST_NS

SERVER, CLIENT, CONSUMER = 2, 3, 5
DURATIONS = ("http.server.request.duration", "rpc.server.call.duration", "messaging.process.duration")


@pytest.fixture(scope="module")
def told(shop: Shop) -> list[Point]:
    """From before the deploy to after the rollback; the counters began long before."""
    (incident,) = shop.incidents(shop.start_ns, shop.start_ns + HOUR_NS)
    start, end = incident.deploy_ns - MINUTE_NS, incident.end_ns + MINUTE_NS
    return list(points(shop.batches("metrics", start, end)))


def operation_of(span: Any) -> str:
    return "SendConfirmation" if span.kind == CONSUMER else str(span.name.rsplit("Service/", 1)[-1])


def outcome_of(span: Any) -> str:
    told = attributes_of(span.attributes)
    refused = told.get("http.response.status_code") == 402 or told.get("rpc.grpc.status_code") == 9
    return "error" if span.status.code == 2 else "refused" if refused else "ok"


def test_counters_count_the_spans_that_ended_before_them(told: list[Point], spans: list[Row]) -> None:
    served = defaultdict(list)
    for row in spans:
        if row.record.kind in (SERVER, CONSUMER):
            key = (row.pod, operation_of(row.record), outcome_of(row.record))
            served[key].append(row.record.end_time_unix_nano)
    for ends in served.values():
        ends.sort()
    counters = [p for p in told if p.metric.name == "shop.requests"]
    assert len({p.pod for p in counters}) == 25 + 6  # payment's three releases have three pods each
    for p in counters:
        key = (p.pod, p.attributes["shop.operation"], p.attributes["shop.outcome"])
        assert p.point.as_int == bisect_left(served[key], p.point.time_unix_nano) > 0
        assert p.metric.sum.is_monotonic
    at = max(p.point.time_unix_nano for p in counters)
    live = {p.pod for p in counters if p.point.time_unix_nano == at}
    exported = Counter(p.pod for p in counters if p.point.time_unix_nano == at)
    for (pod, _, _), ends in served.items():
        if pod in live and ends[0] < at:
            exported[pod] -= 1
    assert set(exported.values()) == {0}  # no series is missing


def test_histograms_hold_the_durations_of_the_spans(told: list[Point], spans: list[Row]) -> None:
    at = max(p.point.time_unix_nano for p in told)
    durations = defaultdict(list)
    ids = set()
    for row in spans:
        if row.record.kind in (SERVER, CONSUMER) and row.record.end_time_unix_nano < at:
            took = row.record.end_time_unix_nano - row.record.start_time_unix_nano
            durations[row.pod, operation_of(row.record), outcome_of(row.record)].append(took)
            ids.add((row.record.trace_id, row.record.span_id))
    found: Counter[Any] = Counter()
    for p in told:
        if p.metric.name in DURATIONS and p.point.time_unix_nano == at:
            took = durations[_series(p)]
            bounds = [round(bound * SECOND_NS) for bound in p.point.explicit_bounds]
            counts = Counter(bisect_left(bounds, nanos) for nanos in took)
            assert list(p.point.bucket_counts) == [counts[bucket] for bucket in range(len(bounds) + 1)]
            assert p.point.count == len(took)
            assert p.point.sum == sum(took) / SECOND_NS
            assert all((e.trace_id, e.span_id) in ids for e in p.point.exemplars)
            found[p.metric.name] += len(p.point.exemplars)
    assert set(found) == set(DURATIONS)
    assert min(found["http.server.request.duration"], found["rpc.server.call.duration"]) > 0


def _series(p: Point) -> tuple[str, str, str]:
    told = p.attributes
    if "http.route" in told:
        status = told["http.response.status_code"]
        outcome = {200: "ok", 402: "refused"}.get(status, "error")
        return p.pod, f"{told['http.request.method']} {told['http.route']}", outcome
    if "rpc.method" in told:
        return p.pod, told["rpc.method"], {0: "ok", 9: "refused"}.get(told["rpc.grpc.status_code"], "error")
    return p.pod, "SendConfirmation", "ok"


def test_exponential_histograms_hold_the_last_interval(told: list[Point], spans: list[Row]) -> None:
    calls = defaultdict(list)
    for row in spans:
        held = attributes_of(row.record.attributes)
        if "db.system.name" in held:
            key = (row.pod, held["db.system.name"], held["db.query.summary"], row.record.status.code == 2)
            calls[key].append((row.record.end_time_unix_nano, row.record.start_time_unix_nano))
    exponential = [p for p in told if p.metric.name == "db.client.operation.duration"]
    assert len(exponential) > 500
    for p in exponential:
        since, until = p.point.start_time_unix_nano, p.point.time_unix_nano
        assert until - since == EXPORT_NS
        key = (p.pod, p.attributes["db.system.name"], p.attributes["db.query.summary"], "error.type" in p.attributes)
        took = [end - start for end, start in calls[key] if since <= end < until]
        assert p.point.count == len(took) == sum(p.point.positive.bucket_counts)
        assert p.point.sum == sum(took) / SECOND_NS
        assert (p.point.min, p.point.max) == (min(took) / SECOND_NS, max(took) / SECOND_NS)
        base = 2 ** (1 / 2**p.point.scale)
        first, count = p.point.positive.offset, len(p.point.positive.bucket_counts)
        assert base**first < p.point.min <= base ** (first + 1)
        assert base ** (first + count - 1) < p.point.max <= base ** (first + count)


def test_no_series_has_two_points_at_one_time(told: list[Point]) -> None:
    series = [(p.pod, p.metric.name, tuple(sorted(p.attributes.items())), p.point.time_unix_nano) for p in told]
    assert len(set(series)) == len(series) > 5_000


def test_a_new_release_counts_from_zero_and_the_old_one_falls_silent(shop: Shop, told: list[Point]) -> None:
    (incident,) = shop.incidents(shop.start_ns, shop.start_ns + HOUR_NS)
    payment = [p for p in told if p.service == "payment" and p.metric.name == "shop.requests"]
    starts = {p.point.start_time_unix_nano for p in payment}
    assert starts == {shop.start_ns, incident.deploy_ns, incident.rollback_ns}
    last: dict[int, int] = defaultdict(int)
    for p in payment:
        last[p.point.start_time_unix_nano] = max(last[p.point.start_time_unix_nano], p.point.time_unix_nano)
    assert incident.deploy_ns + LONGEST_NS <= last[shop.start_ns] <= incident.deploy_ns + 30 * SECOND_NS
    others = {p.point.start_time_unix_nano for p in told if p.service == "cart" and p.metric.HasField("histogram")}
    assert others == {shop.start_ns}


def test_gauges_tell_of_the_incident(shop: Shop, told: list[Point]) -> None:
    (incident,) = shop.incidents(shop.start_ns, shop.start_ns + HOUR_NS)

    def connections(at_ns: int, state: str) -> list[int]:
        return [
            p.point.as_int
            for p in told
            if p.service == "payment"
            and p.attributes == {"state": state}
            and at_ns <= p.point.time_unix_nano < at_ns + EXPORT_NS
        ]

    assert connections(incident.begin_ns + 2 * MINUTE_NS, "used") == [50, 50, 50]
    assert connections(incident.begin_ns + 2 * MINUTE_NS, "idle") == [0, 0, 0]
    assert max(connections(incident.deploy_ns - 30 * SECOND_NS, "used")) < 20
    kinds = {p.metric.name: p.metric.WhichOneof("data") for p in told}
    assert kinds == {
        "process.memory.usage": "sum",
        "process.cpu.utilization": "gauge",
        "db.client.connection.count": "sum",
        "shop.queue.length": "gauge",
        "shop.requests": "sum",
        "http.server.request.duration": "histogram",
        "rpc.server.call.duration": "histogram",
        "messaging.process.duration": "histogram",
        "db.client.operation.duration": "exponential_histogram",
    }
    assert all(0 < p.point.as_double < 1 for p in told if p.metric.name == "process.cpu.utilization")
    assert all(p.point.as_int > 50 << 20 for p in told if p.metric.name == "process.memory.usage")


def test_counters_do_not_depend_on_where_the_asking_starts(shop: Shop) -> None:
    """After four hours every service was released anew; asked cold, the totals are those of a long walk."""
    at = shop.start_ns + 4 * HOUR_NS + 10 * MINUTE_NS
    walked = list(points(shop.batches("metrics", at - 12 * MINUTE_NS, at + 1)))
    asked = list(points(shop.batches("metrics", at, at + 1)))
    last = [p for p in walked if p.point.time_unix_nano == at]
    assert [p.point for p in asked] == [p.point for p in last]
    cart = {p.point.start_time_unix_nano for p in asked if p.service == "cart" and p.metric.name == "shop.requests"}
    assert cart == {shop.start_ns + 4 * HOUR_NS}
