"""Remote-write into a whole lake: what SQL finds is what was sent, once, however often it was sent."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from lakerunner.model.protobuf import DELIMITED, FIXED64, VARINT, delimited, tag, varint
from servers.lake import Lake, lake, wait_until

START_MS = 1_766_577_984_449
STALE = struct.pack("<Q", 0x7FF0000000000002)
HEADERS = {
    "1.0": {"content-type": "application/x-protobuf"},
    "2.0": {"content-type": "application/x-protobuf;proto=io.prometheus.write.v2.Request"},
}
# (metric, labels, (time after the start in ms, the bits of the value)...)
Series = tuple[str, dict[str, str], list[tuple[int, bytes]]]


def bits(value: float) -> bytes:
    return struct.pack("<d", value)


def series_of(version: str) -> list[Series]:
    """Both versions send the same, each as a job of its own."""
    common = {"instance": "10.0.0.1:9100", "job": f"shop-{version}"}
    return [
        ("visits_total", {**common, "page": "home"}, [(0, bits(41)), (15_000, bits(42)), (30_000, STALE)]),
        ("temperature.celsius", {**common, "größe": "ü"}, [(1, bits(-1.5)), (15_001, bits(0.1 + 0.2))]),
        ("up", common, [(0, bits(1))]),
    ]


def field(number: int, payload: bytes) -> bytes:
    return delimited(tag(number, DELIMITED), payload)


def samples(points: list[tuple[int, bytes]]) -> bytes:
    made = (tag(1, FIXED64) + value + tag(2, VARINT) + varint(START_MS + time) for time, value in points)
    return b"".join(field(2, sample) for sample in made)


def request_1_0(series: list[Series]) -> bytes:
    def label(name: str, value: str) -> bytes:
        return field(1, field(1, name.encode()) + field(2, value.encode()))

    made = (
        b"".join(label(*one) for one in sorted({"__name__": name, **labels}.items())) + samples(points)
        for name, labels, points in series
    )
    return b"".join(field(1, one) for one in made)


def request_2_0(series: list[Series]) -> bytes:
    """The counter with its metadata: its type, and a unit that its name does not have."""
    symbols: dict[str, int] = {"": 0, "seconds": 1}
    made = b""
    for name, labels, points in series:
        pairs = sorted({"__name__": name, **labels}.items())
        numbers = [symbols.setdefault(text, len(symbols)) for pair in pairs for text in pair]
        about = tag(1, VARINT) + varint(1) + tag(4, VARINT) + varint(1)
        metadata = field(5, about) if name == "visits_total" else b""
        made += field(5, field(1, b"".join(map(varint, numbers))) + samples(points) + metadata)
    return b"".join(field(4, text.encode()) for text in symbols) + made


REQUESTS = {"1.0": request_1_0, "2.0": request_2_0}


def push(running: Lake, version: str) -> httpx.Response:
    body = pa.Codec("snappy").compress(REQUESTS[version](series_of(version)), asbytes=True)
    headers = {"content-encoding": "snappy", **HEADERS[version]}
    return httpx.post(f"{running.url}/api/v1/write", content=body, headers=headers, timeout=60)


def rows(running: Lake) -> list[dict[str, Any]]:
    return running.sql(
        "select metric_name, metric_type, unit, service_name, epoch_ms(timestamp) as ms, isnan(value) as stale, "
        "case when isnan(value) then null else value end as value, attributes['instance'] as instance, "
        "attributes['page'] as page, attributes['größe'] as size from metrics order by service_name, metric_name, ms"
    )


def expected() -> list[dict[str, Any]]:
    found = []
    for version in REQUESTS:
        for name, labels, points in sorted(series_of(version)):
            known = version == "2.0" and name == "visits_total"
            found += [
                {
                    "metric_name": name,
                    "metric_type": "sum" if known else "unknown",
                    "unit": "seconds" if known else "",
                    "service_name": labels["job"],
                    "ms": START_MS + time,
                    "stale": value == STALE,
                    "value": None if value == STALE else struct.unpack("<d", value)[0],
                    "instance": labels["instance"],
                    "page": labels.get("page"),
                    "size": labels.get("größe"),
                }
                for time, value in points
            ]
    return found


@pytest.mark.slow
def test_what_was_written_is_there_once_with_every_value(tmp_path: Path) -> None:
    wanted = expected()
    with lake(tmp_path / "home") as running:
        answers = {version: push(running, version) for version in REQUESTS}
        assert {version: answer.status_code for version, answer in answers.items()} == {"1.0": 204, "2.0": 204}
        assert answers["2.0"].headers["x-prometheus-remote-write-samples-written"] == "6"
        wait_until(lambda: len(rows(running)) >= len(wanted), "all samples", 60, running.process.text)
        assert rows(running) == wanted
        counted = running.sql("select service_name, count(distinct series) as n from metrics group by 1")
        assert {row["service_name"]: row["n"] for row in counted} == {"shop-1.0": 3, "shop-2.0": 3}
        assert [push(running, version).status_code for version in REQUESTS] == [204, 204]
        assert running.settle(2) == {**running.objects()["counts"], "seen": 0, "done": 2, "failed": 0}
        assert rows(running) == wanted
