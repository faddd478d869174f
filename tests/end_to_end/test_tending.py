"""A lake that tends itself while telemetry comes: small segments become few, metrics get their tiers, and no row is
lost, doubled or changed."""

from __future__ import annotations

import json
import time
from functools import partial
from pathlib import Path

import httpx
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from lakerunner.model.source import SourceState
from servers.lake import Lake, lake, wait_until
from suites.requests import TIME_NS, drop, request_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SOON = {
    "LAKERUNNER_COMPACT_MAX_SECONDS": "1",
    "LAKERUNNER_ROLLUP_MAX_SECONDS": "0.1",
    "LAKERUNNER_BOX_MAX_SECONDS": "0.2",
    "LAKERUNNER_REMINDER_SECONDS": "5",
    "LAKERUNNER_WORK_RETRY_SECONDS": "0.5",
    "LAKERUNNER_WORK_MAX_ATTEMPTS": "2",
}
SECONDS = 240
FILES = 12
POINTS = 20  # of each file, one a second


def points(number: int) -> bytes:
    """A counter that grows by 1 a second, POINTS of it."""
    request = ExportMetricsServiceRequest()
    metric = request.resource_metrics.add().scope_metrics.add().metrics.add()
    metric.name = "requests"
    metric.sum.is_monotonic = True
    metric.sum.aggregation_temporality = 2
    for place in range(number * POINTS, (number + 1) * POINTS):
        point = metric.sum.data_points.add()
        point.start_time_unix_nano = TIME_NS
        point.time_unix_nano = TIME_NS + (place + 1) * 10**9
        point.as_int = place + 1
    return request.SerializeToString()


def gauges(running: Lake, name: str) -> dict[str, float]:
    """Samples of one of our own metrics, by their labels."""
    text = httpx.get(f"{running.url}/metrics", timeout=10).text
    lines = [line.rpartition(" ") for line in text.splitlines() if line.startswith((name + "{", name + " "))]
    return {labels.removeprefix(name): float(value) for labels, _, value in lines}


def total(running: Lake, name: str) -> float:
    return sum(gauges(running, name).values())


def test_small_segments_become_few_and_metrics_get_their_tiers(tmp_path: Path) -> None:
    with lake(tmp_path / "home", SOON) as running:
        for number in range(FILES):
            drop(running, "edge", f"logs-{number}.binpb", request_of(*(f"line {number} {n}" for n in range(5))))
            drop(running, "edge", f"metrics-{number}.binpb", points(number))
            time.sleep(0.4)  # so that they come in several boxes
        wait_until(
            lambda: (
                total(running, "lakerunner_rollup_rows_total") > 0
                and gauges(running, "lakerunner_segments_rolled_total").get('{tier="1d"}', 0) > 0
                and gauges(running, "lakerunner_segments_merged_total").get('{signal="logs"}', 0) > 1
                and gauges(running, "lakerunner_segments_merged_total").get('{signal="metrics"}', 0) > 1
                and _is_quiet(running)
            ),
            "merged and rolled up",
            SECONDS,
            running.process.text,
        )
        rows = running.sql("select message, count(*) as n from logs group by 1")
        assert {row["message"]: row["n"] for row in rows} == {
            f"line {f} {n}": 1 for f in range(FILES) for n in range(5)
        }
        asked = {"query": "requests_total", "time": str(TIME_NS / 1e9 + FILES * POINTS)}
        answer = httpx.get(f"{running.url}/prometheus/api/v1/query", params=asked, timeout=30).json()
        assert [one["value"][1] for one in answer["data"]["result"]] == [str(FILES * POINTS)]
        failed = json.loads(running.command("work", "--format", "json").stdout)
        assert failed == {"work": [], "segments": []}
        checked = running.command("fsck", "--deep")
        assert checked.returncode == 0, checked.stdout + checked.stderr
        assert running.process.stop() == 0


def _is_quiet(running: Lake) -> bool:
    """Whether every object is in, and nothing waits to be rolled up."""
    counts = httpx.get(f"{running.url}/api/v1/objects", timeout=10).json()["counts"]
    lag = gauges(running, "lakerunner_rollup_lag_seconds")
    return counts == dict.fromkeys(SourceState, 0) | {"done": 2 * FILES} and bool(lag) and not any(lag.values())


def test_a_damaged_segment_is_set_aside_and_comes_back_when_it_is_mended(tmp_path: Path) -> None:
    with lake(tmp_path / "home", SOON | {"LAKERUNNER_COMPACT_MAX_SECONDS": "6"}) as running:
        for number in range(3):
            drop(running, "edge", f"logs-{number}.binpb", request_of(f"line {number}"))
            wait_until(partial(_has_ingested, running, number), "ingested", SECONDS, running.process.text)
            if number == 0:
                (path,) = (running.store / "db").rglob("tbl_*.parquet")
                whole = path.read_bytes()
                path.write_bytes(whole[: len(whole) // 2])
        wait_until(lambda: _aside(running) == 1, "one is set aside", SECONDS, running.process.text)
        shown = running.command("work").stdout
        assert "0 waiting, 0 set aside, 1 segment set aside" in shown
        assert path.stem.removeprefix("tbl_")[:12] in shown.replace("\n", "")
        path.write_bytes(whole)
        assert running.command("work", "--requeue").stdout == "queued again: 0 works and 1 segment\n"
        assert _aside(running) == 0
        rows = running.sql("select message from logs order by 1")
        assert [row["message"] for row in rows] == ["line 0", "line 1", "line 2"]


def _has_ingested(running: Lake, number: int) -> bool:
    return _ingested(running) > number


def _ingested(running: Lake) -> int:
    done: int = httpx.get(f"{running.url}/api/v1/objects", timeout=10).json()["counts"]["done"]
    return done


def _aside(running: Lake) -> int:
    return len(httpx.get(f"{running.url}/api/v1/work", timeout=10).json()["segments"])
