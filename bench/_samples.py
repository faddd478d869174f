"""Samples of Prometheus for measuring queries: the same remote-write requests make a lake, by the pipeline's own code,
and fill a real Prometheus.

A day of counters `m` and of classic buckets `h_bucket`, a sample each 30 s, a request and a segment for each hour. Kept
under the directory it is made in: a second run with the same size takes what is there.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa

from lakerunner.index.commit import Commit
from lakerunner.index.embedded import EmbeddedPostgres
from lakerunner.index.index import Index
from lakerunner.model.organization import DEFAULT_ORGANIZATION
from lakerunner.model.protobuf import DELIMITED, FIXED64, VARINT, delimited, tag, varint
from lakerunner.model.segment import Segment
from lakerunner.model.signal import METRICS
from lakerunner.model.source import SourceObject
from lakerunner.objects.local import LocalStore
from lakerunner.pipeline.make_segments import Raw, make_segments

OPENING_MS = 1_767_225_600_000  # 2026-01-01
HOUR_MS, STEP_MS, HOURS = 3_600_000, 30_000, 24
PER_HOUR = HOUR_MS // STEP_MS
END_MS = OPENING_MS + HOURS * HOUR_MS
ORGANIZATION = DEFAULT_ORGANIZATION.id
JOBS, BOUNDS, BUCKETED = 10, ("0.01", "0.05", "0.1", "0.25", "0.5", "1", "2.5", "5", "10", "+Inf"), 20
_ONE, _TWO = (tag(number, DELIMITED) for number in (1, 2))
_LOAD_SECONDS, _SETTLE_SECONDS = 300, 240


@dataclass(frozen=True)
class SampleLake:
    directory: Path
    segments: tuple[Segment, ...]
    database_url: str

    @property
    def files(self) -> list[str]:
        return [str(self.directory / "store" / segment.path) for segment in self.segments]

    @property
    def samples(self) -> int:
        return sum(segment.rows for segment in self.segments)

    @property
    def environment(self) -> dict[str, str]:
        """Return the settings of Lakerunner's processes over this lake."""
        return {"DATABASE_URL": self.database_url, "LAKERUNNER_STORE": (self.directory / "store").resolve().as_uri()}


@contextmanager
def sample_lake(directory: Path, series: int, hours: int = HOURS) -> Iterator[SampleLake]:
    (directory / "store").mkdir(parents=True, exist_ok=True)
    marker, size = directory / "made.json", {"series": series, "hours": hours}
    if marker.exists() and json.loads(marker.read_text()) != size:
        sys.exit(f"{directory} holds another lake: {marker.read_text()}")
    if not marker.exists():
        with ProcessPoolExecutor(os.cpu_count()) as pool:
            made = [one for part in pool.map(_hour, [(directory, series, n) for n in range(hours)]) for one in part]
        (directory / "segments.pickle").write_bytes(pickle.dumps(made))
        marker.write_text(json.dumps(size))
    with indexed(directory, pickle.loads((directory / "segments.pickle").read_bytes())) as lake:
        yield lake


@contextmanager
def indexed(directory: Path, segments: Sequence[Segment]) -> Iterator[SampleLake]:
    """Index these segments in a PostgreSQL of their own, for the time of the context."""
    with EmbeddedPostgres(directory / "postgres") as url:
        index = Index.open(url, connections=2)
        try:
            index.migrate()
            if index.organizations.find(str(ORGANIZATION)) is None:
                index.organizations.create(DEFAULT_ORGANIZATION)
                for segment in segments:  # as ingest does: so they stand in the order in which they came
                    index.commit(Commit((segment,), (), ()))
        finally:
            index.close()
        yield SampleLake(directory, tuple(segments), url)


def load_prometheus(url: str, series: int) -> None:
    """Send all requests and wait until Prometheus has cut them into blocks."""
    with httpx.Client(timeout=_LOAD_SECONDS) as client:
        for hour in range(HOURS):
            body = pa.compress(request(series, hour), codec="snappy", asbytes=True)
            headers = {"content-encoding": "snappy", "content-type": "application/x-protobuf"}
            client.post(f"{url}/api/v1/write", content=body, headers=headers).raise_for_status()
        deadline, blocks = time.monotonic() + _SETTLE_SECONDS, ""
        while time.monotonic() < deadline:
            page = client.get(f"{url}/metrics").text
            found = {line.partition(" ")[0]: line.partition(" ")[2] for line in page.splitlines()}
            head = (END_MS - float(found["prometheus_tsdb_head_min_time"])) / HOUR_MS
            if head <= 4 and blocks == found["prometheus_tsdb_compactions_total"]:
                return
            blocks = found["prometheus_tsdb_compactions_total"]
            time.sleep(2)


def request(series: int, hour: int) -> bytes:
    """Return the samples of one hour, series by series."""
    named = [counter(number) for number in range(series)]
    for number in range(BUCKETED):
        own = {"job": f"service-{number % JOBS}", "instance": f"10.0.0.{number}:9100"}
        named += [{"__name__": "h_bucket", **own, "le": bound} for bound in BOUNDS]
    return written(named, np.arange(PER_HOUR) * STEP_MS + OPENING_MS + hour * HOUR_MS, _values(series, hour))


def written(named: Iterable[dict[str, str]], times: Any, values: Any) -> bytes:
    """Build a request with these samples of the series with these labels."""
    blocks = zip(named, _samples(times, values), strict=True)
    return b"".join(delimited(_ONE, _labels(labels) + samples) for labels, samples in blocks)


def counter(number: int) -> dict[str, str]:
    """Return the labels of series n of `m`."""
    instance = number // 7
    own = {"job": f"service-{instance % JOBS}", "instance": f"10.0.{instance // 250}.{instance % 250}:9100"}
    return {"__name__": "m", **own, "path": f"/api/{number % 7}", "zone": "abc"[instance % 3]}


def _labels(named: dict[str, str]) -> bytes:
    return b"".join(
        delimited(_ONE, delimited(_ONE, name.encode()) + delimited(_TWO, value.encode()))
        for name, value in sorted(named.items())
    )


def _values(series: int, hour: int) -> Any:
    """Counters that rise by less than 40 a sample; one in a hundred is reset every hour."""
    chance = np.random.default_rng(hour)
    before = np.where(np.arange(series) % 100 == 0, 0, hour * PER_HOUR * 40)
    counters = before[:, None] + np.cumsum(chance.integers(0, 40, (series, PER_HOUR)), axis=1)
    grown = np.cumsum(chance.integers(0, 40, (BUCKETED, len(BOUNDS), PER_HOUR)), axis=2) + hour * PER_HOUR * 40
    buckets = np.cumsum(grown, axis=1).reshape(-1, PER_HOUR)
    return np.concatenate([counters, buckets]).astype(np.float64)


def _samples(times: Any, values: Any) -> list[bytes]:
    """Encode the samples of each series as in a request: all times take the same number of bytes."""
    stamps = np.frombuffer(b"".join(varint(int(at)) for at in times), np.uint8).reshape(len(times), -1)
    head = delimited(_TWO, bytes(10 + stamps.shape[1]))[:2] + tag(1, FIXED64)
    out = np.zeros((*values.shape, len(head) + 9 + stamps.shape[1]), np.uint8)
    out[..., : len(head)] = np.frombuffer(head, np.uint8)
    out[..., len(head) : len(head) + 8] = values.astype("<f8").view(np.uint8).reshape(*values.shape, 8)
    out[..., len(head) + 8] = tag(2, VARINT)[0]
    out[..., len(head) + 9 :] = stamps
    return [one.tobytes() for one in out.reshape(len(values), -1)]


def _hour(work: tuple[Path, int, int]) -> list[Segment]:
    directory, series, hour = work
    data = request(series, hour)
    source = SourceObject("bench", f"{hour:02}", "etag", len(data), (OPENING_MS + hour * HOUR_MS) * 10**6)
    raw = Raw(source, memoryview(varint(len(data)) + data), "prw1")
    store = LocalStore(directory / "store")
    return list(make_segments(METRICS, ORGANIZATION, "bench", [raw], store.put).segments)
