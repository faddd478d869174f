"""Samples count once: delivered again, by another collector, in files that overlap; of two that say different things of
one moment that of the later collector by name counts, and of one collector the later one. Seen through PromQL."""

from __future__ import annotations

import time
from typing import Any

import httpx
import pyarrow as pa
import pytest

from conformance.remote_write import request_of
from conformance.script import Sample
from lakerunner.model.labels import labels_of
from servers.lake import Lake, wait_until
from suites.otlp_metrics import CUMULATIVE, DELTA, Api, Otlp, SmallLake, counter, gauge

T0 = 1_767_225_600  # 2026-01-01
EVERY = 15
PROTOBUF = {"content-type": "application/x-protobuf"}
WRITE_2 = {"content-type": "application/x-protobuf;proto=io.prometheus.write.v2.Request", "content-encoding": "snappy"}


def file_of(name: str, numbers: range, plus: float = 0.0) -> bytes:
    """Of the points with these numbers: a gauge that says its number, and deltas of 2."""
    made = Otlp()
    scope = made.resource(service_name="once")
    times = [T0 + EVERY * number for number in numbers]
    gauge(scope, f"{name}.level", [(at, number + plus) for number, at in zip(numbers, times, strict=True)], a="b")
    counter(scope, f"{name}.deltas", [(at - EVERY, at, 2.0) for at in times], DELTA, a="b")
    counter(scope, f"{name}.running", [(T0 - EVERY, at, 3.0 * (at - T0)) for at in times], CUMULATIVE, a="b")
    return made.data


def check(api: Api, name: str, values: list[float]) -> None:
    """Each point once, at its own time; what is counted of them is theirs."""
    end = T0 + EVERY * (len(values) - 1)
    labels = (("__name__", f"{name}_level"), ("a", "b"), ("job", "once"))
    assert api.points(f"{name}_level[1d]", end) == {
        labels: [(T0 + EVERY * number, f"{value:g}") for number, value in enumerate(values)]
    }
    window = f"[{EVERY * len(values)}s]"
    assert api.number(f"count_over_time({name}_deltas_total{window})", end) == len(values)
    assert api.number(f"sum_over_time({name}_deltas_total{window})", end) == 2 * len(values)
    assert api.number(f"increase({name}_deltas_total{window})", end) == pytest.approx(2 * len(values), rel=1e-12)
    assert api.number(f"resets({name}_running_total{window})", end) == 0
    assert api.number(f"count(count_over_time({name}_running_total{window}))", end) == 1


def test_files_that_say_the_same_and_files_that_say_otherwise(small: SmallLake) -> None:
    api = small.api()
    small.add(file_of("twice", range(20)))
    check(api, "twice", list(range(20)))
    small.add(file_of("twice", range(20)))  # the same file
    small.add(file_of("twice", range(20)), "another")  # and of another collector
    small.add(file_of("twice", range(10, 30)), "another")  # and one that overlaps
    check(api, "twice", list(range(30)))
    small.add(file_of("twice", range(5, 15), 0.5))
    check(api, "twice", [number + 0.5 * (5 <= number < 15) for number in range(30)])
    small.add(file_of("twice", range(12, 13), 0.25), "another")  # of two collectors the later one by its name counts
    check(api, "twice", [number + 0.5 * (5 <= number < 15) for number in range(30)])
    small.add(file_of("twice", range(12, 13), 0.25))
    check(api, "twice", [number + 0.5 * (5 <= number < 15) - 0.25 * (number == 12) for number in range(30)])


def push(up: Lake, data: bytes) -> None:
    response = httpx.post(f"{up.url}/v1/metrics", content=data, headers=PROTOBUF, timeout=60)
    assert response.status_code == 200, response.text


def drop(up: Lake, path: str, data: bytes) -> None:
    """A file of a collector's, as it puts it into the store."""
    target = up.store / "otel-raw" / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)


def write(up: Lake, series: Any) -> None:
    body = pa.Codec("snappy").compress(request_of(series), asbytes=True)
    response = httpx.post(f"{up.url}/api/v1/write", content=body, headers=WRITE_2, timeout=60)
    assert response.status_code == 204, response.text


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_through_ingest(up: Lake) -> None:
    """Files that collectors put into the store, and pushes, which say the same over again."""
    with httpx.Client(base_url=up.url, timeout=60) as http:
        api = Api(http)

        def level() -> int:
            found = api.points("whole_level[1d]", T0 + EVERY * 40)
            return sum(len(points) for points in found.values())

        drop(up, "default/edge/metrics_0.binpb", file_of("whole", range(20)))
        wait_until(lambda: level() == 20, "the first file", 120, up.process.text)
        before = up.objects()["counts"]["done"]
        drop(up, "default/edge/metrics_1.binpb", file_of("whole", range(20)))
        drop(up, "default/rim/metrics_0.binpb", file_of("whole", range(20)))
        push(up, file_of("whole", range(10, 30)))
        wait_until(lambda: up.objects()["counts"]["done"] >= before + 3, "three more", 120, up.process.text)
        check(api, "whole", list(range(30)))
        drop(up, "default/rim/metrics_1.binpb", file_of("whole", range(5, 15), 0.5))
        wait_until(lambda: up.objects()["counts"]["done"] >= before + 4, "one more", 120, up.process.text)
        check(api, "whole", [number + 0.5 * (5 <= number < 15) for number in range(30)])


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_remote_write_through_ingest(up: Lake) -> None:
    labels = labels_of({"__name__": "written_level", "job": "once", "a": "b"})
    with httpx.Client(base_url=up.url, timeout=60) as http:
        api = Api(http)
        begun = up.objects()["counts"]["done"]
        for plus, numbers in ((0.0, range(20)), (0.0, range(20)), (0.0, range(10, 30)), (0.5, range(5, 15))):
            write(up, [(labels, [Sample((T0 + EVERY * n) * 1000, n + plus) for n in numbers])])
            time.sleep(3.0)  # in a batch of its own: the later one counts
        wanted = [(T0 + EVERY * n, f"{n + 0.5 * (5 <= n < 15):g}") for n in range(30)]
        wait_until(
            lambda: list(api.points("written_level[1d]", T0 + EVERY * 40).values()) == [wanted],
            "the last one's values",
            120,
            lambda: f"{begun} {up.objects()['counts']} {api.points('written_level[1d]', T0 + EVERY * 40)}",
        )
