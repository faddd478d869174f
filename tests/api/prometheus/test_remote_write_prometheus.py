"""A real Prometheus scrapes a page of ours and remote-writes it to our doors, in both versions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.responses import Response
from starlette.routing import Route

from lakerunner.api.app import build_app
from lakerunner.api.server import HttpServer, bind
from lakerunner.model.prometheus import METADATA_ENTRY
from lakerunner.model.signal import METRICS
from lakerunner.model.source import SourceObject
from lakerunner.objects.store import ObjectStore
from lakerunner.pipeline.make_segments import READERS, Raw
from lakerunner.pipeline.steps.take import take
from servers.lake import wait_until
from servers.peers import running_peer
from servers.ports import free_port
from suites.doors import Doors
from suites.pushed import pushed_objects

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("address", ["local"], indirect=True)]
MESSAGES = {"prw1": "prometheus.WriteRequest", "prw2": "io.prometheus.write.v2.Request"}
PAGE = """\
# HELP visits_total Visits so far.
# TYPE visits_total counter
visits_total{page="home"} 42
# TYPE temperature gauge
temperature -1.5
# TYPE wait_seconds histogram
wait_seconds_bucket{le="0.5"} 2
wait_seconds_bucket{le="1"} 5
wait_seconds_bucket{le="+Inf"} 6
wait_seconds_sum 4.5
wait_seconds_count 6
"""
CONFIG = """\
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
  - job_name: shop
    convert_classic_histograms_to_nhcb: true
    static_configs: [{{targets: ["{target}"]}}]
remote_write:
  - url: {url}/api/v1/write
    protobuf_message: {message}
    send_native_histograms: true
    authorization: {{credentials: lrk_acme}}
    metadata_config: {{send_interval: 1s}}
    queue_config: {{batch_send_deadline: 1s}}
"""
COLUMNS = ("metric_name", "metric_type", "service_name", "value", "description", "bucket_counts")
Row = dict[str, Any]


def written(store: ObjectStore, form: str) -> list[Row]:
    """All rows in the store, which are of this form alone."""
    rows: list[Row] = []
    for key, data in pushed_objects(store).items():
        assert f".{form}." in key
        read = READERS["metrics", form]([Raw(SourceObject("b", key, "e", len(data), 0), memoryview(data), form)])
        assert read.failed == ()
        if read.rows is None:
            continue
        order, found = np.arange(read.rows.count, dtype=np.int32), read.rows.columns
        columns = {
            name: take(found[name], read.rows.data, order, METRICS.schema.field(name).type).to_pylist()
            for name in COLUMNS
            if name in found
        }
        rows += [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return rows


def values(rows: list[Row], metric: str) -> set[float | None]:
    """Of its samples; stale markers are None."""
    found = (row["value"] for row in rows if row["metric_name"] == metric and row["value"] is not None)
    return {None if math.isnan(value) else value for value in found}


def types(rows: list[Row], metric: str) -> set[str]:
    return {row["metric_type"] for row in rows if row["metric_name"] == metric}


def entries(rows: list[Row]) -> dict[str, str]:
    """The help of each metric, as the metadata of 1.0 tells it."""
    return {row["metric_name"]: row["description"] for row in rows if row["metric_type"] == METADATA_ENTRY}


@pytest.fixture
def page() -> Iterator[HttpServer]:
    route = Route("/metrics", lambda _request: Response(PAGE, media_type="text/plain; version=0.0.4"))
    server = HttpServer(build_app([route]), bind("127.0.0.1", 0), lambda _reason: None)
    server.start()
    yield server
    server.stop()


@dataclass(frozen=True)
class Case:
    """A way to send, and the types of a counter, a gauge and a converted histogram, whose stale marker is a sample.

    What Prometheus 3.15 does: 1.0 sends types in messages of their own, and histograms with custom buckets not at all.
    2.0 sends types where they are labels; `metadata-wal-records`, which should do that too, does not reach its storage.
    """

    form: str
    features: tuple[str, ...]
    counter: str
    gauge: str
    histogram: frozenset[str]


BOTH = frozenset({"histogram", "unknown"})
CASES = (
    Case("prw1", (), "unknown", "unknown", frozenset({"unknown"})),
    Case("prw2", (), "unknown", "unknown", BOTH),
    Case("prw2", ("--enable-feature=type-and-unit-labels",), "sum", "gauge", frozenset({"histogram"})),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: "".join([case.form, *case.features]))
def test_what_a_real_prometheus_sends_arrives(doors: Doors, page: HttpServer, case: Case, tmp_path: Path) -> None:
    config, listen = tmp_path / "prometheus.yml", f"127.0.0.1:{free_port()}"
    target = page.url.removeprefix("http://")
    config.write_text(CONFIG.format(target=target, url=doors.url, message=MESSAGES[case.form]))
    arguments = [f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'data'}"]
    arguments += [f"--web.listen-address={listen}", *case.features]
    told = {"visits_total": "Visits so far.", "temperature": "", "wait_seconds": ""} if case.form == "prw1" else {}
    rows: list[Row] = []

    def has(metric: str, value: float | None) -> bool:
        rows[:] = written(doors.store, case.form)
        return value in values(rows, metric)

    with running_peer("prometheus", arguments, f"http://{listen}/-/ready", tmp_path / "log") as process:
        wait_until(
            lambda: has("up", 1.0) and has("visits_total", 42.0) and entries(rows) == told, "samples", 90, process.text
        )
        page.stop()
        wait_until(lambda: has("up", 0.0) and has("visits_total", None), "stale markers", 90, process.text)
    assert entries(rows) == told
    rows = [row for row in rows if row["metric_type"] != METADATA_ENTRY]
    assert {row["service_name"] for row in rows} == {"shop"}
    assert values(rows, "visits_total") == {42.0, None}
    assert values(rows, "temperature") == {-1.5, None}
    assert values(rows, "up") == {1.0, 0.0}
    assert types(rows, "visits_total") == {case.counter}
    assert types(rows, "temperature") == {case.gauge}
    assert types(rows, "wait_seconds") == case.histogram
    buckets = {tuple(row.get("bucket_counts") or ()) for row in rows if row["metric_name"] == "wait_seconds"}
    assert buckets == ({(), (2, 3, 1)} if case.form == "prw2" else {()})
