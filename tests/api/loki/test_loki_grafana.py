"""A session of Grafana's Loki data source, of alerting and of Logs Drilldown with the demo shop: shapes and values.

What is expected is counted in the shop's own records. Places for what Grafana asks of endpoints that have tests of
their own are marked with the endpoint's name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from api.loki.loki_lake import LokiClient, loki_server
from conformance.logql_push import COLLECTOR, ingest_lines
from demo.demo_parsed import Row, rows
from lakerunner.bus.topics import IngestBox
from lakerunner.model.source import SourceObject
from lakerunner.objects.open import StoreAddress, open_store
from lakerunner_demo.shop import Shop
from query.sample_lake import OWN, START, Lake

MINUTE = 60_000_000_000
END = START + 3 * MINUTE
FLAGS = {"X-Loki-Response-Encoding-Flags": "categorize-labels", "X-Query-Tags": "Source=grafana"}
WITHIN: dict[str, Any] = {"start": START, "end": END}
EVERYTHING = '{service_name=~".+"}'
DRILLDOWN = "| json | logfmt | drop __error__, __error_details__"


@pytest.fixture(scope="module")
def batches() -> list[bytes]:
    shop = Shop(seed=7, start_ns=START, rate=0.5)
    return [one.data for one in shop.batches("logs", START, END, per_batch_seconds=60)]


@pytest.fixture(scope="module")
def records() -> list[Row]:
    shop = Shop(seed=7, start_ns=START, rate=0.5)
    return list(rows(shop.batches("logs", START, END, per_batch_seconds=60)))


@pytest.fixture(scope="module")
def loki(tmp_path_factory: pytest.TempPathFactory, batches: list[bytes]) -> Iterator[LokiClient]:
    lake = Lake(tmp_path_factory.mktemp("grafana"))
    address = StoreAddress((lake.directory / "store").as_uri())
    store = open_store(address)
    for number, data in enumerate(batches):
        key = f"otel-raw/{OWN}/{COLLECTOR}/logs-{number}.binpb"
        store.put(key, data)
        meta = store.head(key)
        source = SourceObject(store.bucket, key, meta.etag or "", meta.size, meta.modified_ns)
        lake.all += ingest_lines(address, IngestBox(OWN, COLLECTOR, "logs", (source,))).segments
    with loki_server(lake) as client:
        yield client


def level_of(row: Row) -> str:
    return {"": "unknown"}.get(row.record.severity_text, row.record.severity_text.lower())


def line_of(row: Row) -> str:
    return str(row.record.body.string_value)


def test_health_check(loki: LokiClient) -> None:
    found = loki.data("query", query="vector(1)+vector(1)", time=4)
    assert (found["resultType"], found["result"]) == ("vector", [{"metric": {}, "value": [4, "2"]}])
    assert loki.get("status/buildinfo").json()["version"] == "3.7.0"


def test_explore_shows_lines_and_their_volume_by_level(loki: LokiClient, records: list[Row]) -> None:
    cart = [row for row in records if row.service == "cart"]
    found = loki.data("query_range", FLAGS, **WITHIN, query='{service_name="cart"}', limit=1000)
    assert found["encodingFlags"] == ["categorize-labels"]
    assert {one["stream"]["service_name"] for one in found["result"]} == {"cart"}
    entries = [entry for one in found["result"] for entry in one["values"]]
    assert Counter((int(time), line) for time, line, _ in entries) == Counter(
        (row.record.time_unix_nano, line_of(row)) for row in cart
    )
    kinds = entries[0][2]
    assert kinds.keys() <= {"structuredMetadata", "parsed"}
    assert "detected_level" in kinds["structuredMetadata"]
    volume = loki.data(
        "query_range",
        query='sum by (level, detected_level) (count_over_time({service_name="cart"}[1m]))',
        start=START + MINUTE,
        end=END,
        step="60",
    )
    counts: Counter[str] = Counter()
    for series in volume["result"]:
        assert series["metric"].keys() == {"detected_level"}
        counts[series["metric"]["detected_level"]] += sum(int(value) for _, value in series["values"])
    # A window has its end, not its start: a record at the very start is in none, one at the end would be.
    assert counts == Counter(level_of(row) for row in cart if row.record.time_unix_nano > START)


def test_context_shows_the_lines_around_one(loki: LokiClient, records: list[Row]) -> None:
    """Grafana sends two queries: back from the line, and forward from it, which includes it."""
    chosen = next(row for row in records if row.service == "frontend" and row.record.time_unix_nano > START + MINUTE)
    at, pod = chosen.record.time_unix_nano, chosen.pod
    selector = f'{{service_name="frontend", k8s_pod_name="{pod}"}}'
    own = sorted(row.record.time_unix_nano for row in records if (row.service, row.pod) == ("frontend", pod))
    before = loki.data("query_range", query=selector, start=START, end=at, limit=5, direction="backward")
    after = loki.data("query_range", query=selector, start=at, end=END, limit=6, direction="forward")
    times = [sorted(int(entry[0]) for one in part["result"] for entry in one["values"]) for part in (before, after)]
    assert times[0] == [time for time in own if time < at][-5:]
    assert times[1] == [time for time in own if time >= at][:6]


def test_alert_query(loki: LokiClient, records: list[Row]) -> None:
    expected = Counter(row.service for row in records if level_of(row) == "warn" and row.record.time_unix_nano > START)
    assert expected
    query = f'sum by (service_name) (count_over_time({EVERYTHING} | detected_level="warn" [3m]))'
    found = loki.data("query", query=query, time=END)
    got = {one["metric"]["service_name"]: int(one["value"][1]) for one in found["result"]}
    assert got == expected
    above = loki.data("query", query=f"{query} > 1e9", time=END)
    assert (above["resultType"], above["result"]) == ("vector", [])


def test_drilldown(loki: LokiClient, records: list[Row]) -> None:
    volume = loki.data("index/volume", **WITHIN, query=EVERYTHING, targetLabels="service_name", limit=5000)
    sizes = {one["metric"]["service_name"]: int(one["value"][1]) for one in volume["result"]}
    services = Counter(row.service for row in records)
    assert sizes.keys() == services.keys()
    plain = [row for row in records if row.record.body.WhichOneof("value") == "string_value"]
    for service in {row.service for row in records} - {row.service for row in records if row not in plain}:
        assert sizes[service] == sum(len(line_of(row).encode()) for row in plain if row.service == service), service
    labels = loki.json("detected_labels", **WITHIN, query=EVERYTHING)["detectedLabels"]
    cardinality = {one["label"]: one["cardinality"] for one in labels}
    assert cardinality["service_name"] == len(services)
    assert loki.json("drilldown-limits")["limits"]["max_entries_limit_per_query"] == 5000
    lines = loki.data("query_range", FLAGS, **WITHIN, query=f'{{service_name="payment"}} {DRILLDOWN}', limit=1000)
    entries = [entry for one in lines["result"] for entry in one["values"]]
    assert len(entries) == services["payment"]
    assert not any("__error__" in str(kinds.get("parsed", {})) for *_, kinds in entries)
    query = f'sum by (detected_level) (count_over_time({{service_name="payment"}} {DRILLDOWN} [3m]))'
    counted = loki.data("query", query=query, time=END)
    got = {one["metric"]["detected_level"]: int(one["value"][1]) for one in counted["result"]}
    payment = [row for row in records if row.service == "payment" and row.record.time_unix_nano > START]
    assert got == Counter(map(level_of, payment))
    # Places for Drilldown's other requests: detected_fields, detected_field/{name}/values, patterns; and live: tail.
