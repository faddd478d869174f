"""Whether the shop is believable: its traces hang together, its logs belong to them, and the incident shows."""

from __future__ import annotations

from collections import Counter, defaultdict
from statistics import mean, median

from demo.demo_parsed import Row, attributes_of, value_of
from lakerunner.model.time import HOUR_NS, MINUTE_NS
from lakerunner_demo.flows import CONSUMER, FLOWS, Outcome
from lakerunner_demo.noise import MOST_SPREAD, SPREAD_UNIT
from lakerunner_demo.services import SERVICES, service_named
from lakerunner_demo.shop import Batch, Incident, Shop
from lakerunner_demo.visits import FLOW_NODES, LONGEST_NS

CLIENT, SERVER = 3, 2


def incident_of(shop: Shop) -> Incident:
    (incident,) = shop.incidents(shop.start_ns, shop.start_ns + HOUR_NS)
    return incident


def during(incident: Incident, time_ns: int) -> bool:
    return incident.begin_ns <= time_ns < incident.end_ns


def test_ten_services_with_two_or_three_pods_each(logs: list[Row], spans: list[Row]) -> None:
    pods: dict[tuple[str, str], set[str]] = defaultdict(set)
    for row in (*logs, *spans):
        pods[row.service, row.version].add(row.pod)
    assert {service for service, _ in pods} == {service.name for service in SERVICES}
    assert len(SERVICES) == 10
    good, bad = pods.pop(("payment", "2.7.3")), pods.pop(("payment", "2.8.0"))
    assert len(good) == 6  # before the deploy and after the rollback
    assert len(bad) == 3
    assert {len(names) for names in pods.values()} == {2, 3}


def test_traces_are_trees_of_their_requests(shop: Shop, spans: list[Row]) -> None:
    traces: dict[bytes, list[Row]] = defaultdict(list)
    for row in spans:
        traces[row.record.trace_id].append(row)
    assert len({row.record.span_id for row in spans}) == len(spans)
    cut = shop.start_ns + HOUR_NS - LONGEST_NS
    whole = [trace for trace in traces.values() if min(s.record.start_time_unix_nano for s in trace) < cut]
    assert len(whole) > 8_000
    for trace in whole:
        by_id = {row.record.span_id: row.record for row in trace}
        roots = [row for row in trace if not row.record.parent_span_id]
        assert [(row.service, row.record.kind) for row in roots] == [("frontend", SERVER)]
        for span in by_id.values():
            assert span.start_time_unix_nano < span.end_time_unix_nano
            if span.parent_span_id:
                above = by_id[span.parent_span_id]
                assert above.start_time_unix_nano <= span.start_time_unix_nano
                if span.kind != CONSUMER:
                    assert span.end_time_unix_nano <= above.end_time_unix_nano


def test_consumers_link_to_the_message_they_took(spans: list[Row]) -> None:
    consumers = [row.record for row in spans if row.record.kind == CONSUMER]
    assert len(consumers) > 500
    assert all(
        [(link.trace_id, link.span_id) for link in span.links] == [(span.trace_id, span.parent_span_id)]
        for span in consumers
    )


def test_logs_are_written_by_spans_of_their_service(logs: list[Row], spans: list[Row]) -> None:
    writers = {(row.pod, row.record.trace_id, row.record.span_id): row.record for row in spans}
    traced = [row for row in logs if row.record.trace_id]
    assert 0.85 < len(traced) / len(logs) < 1
    found = 0
    for row in traced:
        span = writers.get((row.pod, row.record.trace_id, row.record.span_id))
        if span:  # the last seconds of the hour hold logs of spans that end in the next
            assert span.start_time_unix_nano <= row.record.time_unix_nano <= span.end_time_unix_nano
            found += 1
    assert found > len(traced) - 200
    assert all(row.record.observed_time_unix_nano > row.record.time_unix_nano for row in logs)


def test_log_records_look_like_a_real_shop_s(hour_of_logs: list[Batch], logs: list[Row]) -> None:
    size = sum(len(batch.data) for batch in hour_of_logs) / len(logs)
    attributes = [attributes_of(row.record.attributes) for row in logs]
    print(f"{len(logs)} log records of {size:.0f} bytes and {mean(map(len, attributes)):.1f} attributes")
    assert 400 <= size <= 800
    assert 9 <= mean(map(len, attributes)) <= 14
    kinds = {type(value) for held in attributes for value in held.values()}
    assert kinds == {str, int, float, bool, bytes, list, dict}
    assert max(held.get("shop.request.id", 0) for held in attributes) > 2**62
    severities = Counter(row.record.severity_text for row in logs)
    assert 0.55 < severities["INFO"] / len(logs) < 0.8
    assert 0.1 < severities["DEBUG"] / len(logs) < 0.35
    assert 0.002 < severities["WARN"] / len(logs) < 0.1
    assert 0.002 < severities["ERROR"] / len(logs) < 0.05
    assert len({held["user.id"] for held in attributes if "user.id" in held}) > 5_000
    lines = {(held["code.file.path"], held["code.line.number"]) for held in attributes}
    assert len(lines) > 60
    assert not any("{" in value_of(row.record.body) for row in logs if row.record.body.HasField("string_value"))


def test_the_incident_shows_in_logs(shop: Shop, logs: list[Row]) -> None:
    incident = incident_of(shop)
    inside = [row for row in logs if during(incident, row.record.time_unix_nano)]
    outside = [row for row in logs if not during(incident, row.record.time_unix_nano)]

    def errors(rows: list[Row]) -> float:
        return sum(row.record.severity_text == "ERROR" for row in rows) / len(rows)

    def exhausted(rows: list[Row]) -> float:
        return sum("connection pool exhausted" in row.record.body.string_value for row in rows) / len(rows)

    print(f"errors per record: {errors(inside):.4f} in the incident, {errors(outside):.5f} outside")
    assert errors(inside) >= 5 * errors(outside)
    assert exhausted(inside) >= 20 * exhausted(outside)
    events = {row.record.event_name: row.record.time_unix_nano for row in logs if row.record.event_name}
    assert incident.deploy_ns <= events["deployment.started"] < events["deployment.finished"] < incident.begin_ns
    assert incident.rollback_ns <= events["deployment.rollback"] < incident.end_ns


def test_the_incident_shows_in_traces(shop: Shop, spans: list[Row]) -> None:
    incident = incident_of(shop)
    checkouts = [row.record for row in spans if row.record.name == "POST /checkout"]
    height = [s for s in checkouts if incident.begin_ns + MINUTE_NS <= s.start_time_unix_nano < incident.rollback_ns]
    usual = [s for s in checkouts if not during(incident, s.start_time_unix_nano)]
    others = [row.record for row in spans if row.record.kind == SERVER and row.service == "ad"]
    failed_usually = sum(s.status.code == 2 for s in usual) / len(usual)
    assert sum(s.status.code == 2 for s in height) / len(height) > max(0.4, 5 * failed_usually)
    took = [median(s.end_time_unix_nano - s.start_time_unix_nano for s in held) for held in (height, usual)]
    assert took[0] > 5 * took[1]
    assert not any(s.status.code == 2 for s in others)
    timeouts = [row for row in spans if row.record.name == "INSERT payments" and row.record.status.code == 2]
    assert all([event.name for event in row.record.events] == ["exception"] for row in timeouts)
    assert all(1e9 <= row.record.end_time_unix_nano - row.record.start_time_unix_nano < 1.1e9 for row in timeouts)
    serving = (incident.begin_ns, incident.rollback_ns)
    at_height = [row for row in timeouts if serving[0] <= row.record.start_time_unix_nano < serving[1]]
    assert {row.version for row in at_height} == {"2.8.0"}
    assert len(at_height) > 0.8 * len(timeouts)


def test_no_request_outlives_what_a_walk_looks_back() -> None:
    """LONGEST_NS against the worst luck there is: every step at its slowest, in any outcome."""

    def worst_us(flow: str, outcome: Outcome) -> float:
        total = 0.0
        for node in FLOW_NODES[flow]:
            own = (node.own_us, node.own_us, node.error_us, 0)[node.states[outcome]]
            slow = 1 + service_named(node.service).slowdown / 10
            total += own + 20_000 if own >= 1_000_000 else own * MOST_SPREAD / SPREAD_UNIT * slow + 2
        return total + 400_000  # the longest wait in the queue

    worst = max(worst_us(flow.name, outcome) for flow in FLOWS for outcome in Outcome)
    assert worst * 1000 < LONGEST_NS
