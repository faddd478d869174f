"""The summary of a service: one info line for a minute in which it did something, from the counters that /metrics has.

A line is a constant sentence with fields: how much since the line before. Single units of work are logged at debug.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.samples import Sample

from lakerunner.services import meters
from lakerunner.services.logs import Log

SECONDS = 60.0
Meter = Counter | Gauge | Histogram
Counts = Mapping[str, float]


@dataclass(frozen=True)
class Summary:
    """What a service reports: totals by field, each of a counter and, where it has states, of one of them; its lag, the
    mean of what a histogram observed, or the largest value of a gauge; and the time in which 95 of 100 were done."""

    sentence: str
    totals: Mapping[str, tuple[Counter, str]]
    lag: Histogram | Gauge | None = None
    seconds: Histogram | None = None

    def counts(self) -> Counts:
        """Return the totals since the process started."""
        return {name: _sum(counter, "_total", state) for name, (counter, state) in self.totals.items()}

    def lag_counts(self) -> Counts:
        if not isinstance(self.lag, Histogram):
            return {}
        return {"seconds": _sum(self.lag, "_sum"), "count": _sum(self.lag, "_count")}

    def bucket_counts(self) -> Counts:
        """Return how many took at most so many seconds, by that number as text."""
        if self.seconds is None:
            return {}
        return {s.labels["le"]: s.value for s in _samples(self.seconds) if s.name.endswith("_bucket")}

    def lag_seconds(self, since: Counts) -> float | None:
        """Return the lag; `since` is what `lag_counts` has grown by."""
        if isinstance(self.lag, Histogram):
            return since["seconds"] / since["count"] if since["count"] else None
        return max((sample.value for sample in _samples(self.lag)), default=None) if self.lag else None

    def fields(self, since: Counts) -> dict[str, float]:
        """Return what a line has besides totals; `since` is what `lag_counts` and `bucket_counts` have grown by."""
        lag = self.lag_seconds(since)
        p95 = _quantile(0.95, {le: since[le] for le in self.bucket_counts()})
        found = {"lag_seconds": lag and round(lag, 1), "p95_seconds": p95 and round(p95, 3)}
        return {name: value for name, value in found.items() if value is not None}


SUMMARIES: Mapping[str, Summary] = {
    "pubsub": Summary("objects announced in the last minute", {"objects": (meters.ANNOUNCED, "")}),
    "boxer": Summary("boxes closed in the last minute", {"boxes": (meters.BOXES, "")}),
    "ingest": Summary(
        "objects ingested in the last minute",
        {
            "objects": (meters.ENDED, "done"),
            "partial": (meters.ENDED, "partial"),
            "failed": (meters.ENDED, "failed"),
            "rows": (meters.ROWS, ""),
            "segments": (meters.SEGMENTS, ""),
            "raw_bytes": (meters.RAW_BYTES, ""),
            "stored_bytes": (meters.SEGMENT_BYTES, ""),
        },
        meters.INGEST_LAG,
    ),
    "compact": Summary(
        "segments merged in the last minute",
        {
            "segments": (meters.MERGED, ""),
            "bytes_read": (meters.MERGE_READ_BYTES, ""),
            "bytes_written": (meters.MERGE_WRITTEN_BYTES, ""),
        },
    ),
    "rollup": Summary(
        "segments rolled up in the last minute",
        {"segments": (meters.ROLLED, ""), "rows": (meters.ROLLUP_ROWS, "")},
        meters.ROLLUP_LAG,
    ),
    "sweeper": Summary(
        "objects swept in the last minute", {"objects": (meters.SWEPT_OBJECTS, ""), "bytes": (meters.SWEPT_BYTES, "")}
    ),
    "query-api": Summary(
        "queries answered in the last minute",
        {
            "queries": (meters.QUERIES, "answered"),
            "refused": (meters.QUERIES, "refused"),
            "failed": (meters.QUERIES, "failed"),
            "left": (meters.QUERIES, "left"),
            "bytes_read": (meters.QUERY_BYTES, ""),
        },
        seconds=meters.QUERY_SECONDS,
    ),
    "query-worker": Summary(
        "units of queries done in the last minute",
        {
            "units": (meters.UNITS, "answered"),
            "refused": (meters.UNITS, "refused"),
            "failed": (meters.UNITS, "failed"),
            "left": (meters.UNITS, "left"),
            "bytes_read": (meters.UNIT_BYTES, ""),
        },
        seconds=meters.UNIT_SECONDS,
    ),
}


class Reporter:
    """Reports on these services: what they did since it last reported. Used by one thread."""

    def __init__(self, services: Collection[str]) -> None:
        self._services = [name for name in services if name in SUMMARIES]
        self._before = {name: _now(SUMMARIES[name]) for name in self._services}

    def report(self) -> None:
        for name in self._services:
            summary = SUMMARIES[name]
            (before, times_before), (now, times) = self._before[name], _now(summary)
            self._before[name] = now, times
            done = {key: int(now[key] - before[key]) for key in now}
            if any(done.values()):
                since = {key: times[key] - times_before[key] for key in times}
                Log(name).info(summary.sentence, **done, **summary.fields(since))


def _now(summary: Summary) -> tuple[Counts, Counts]:
    return summary.counts(), {**summary.lag_counts(), **summary.bucket_counts()}


def _quantile(share: float, buckets: Counts) -> float | None:
    """Return the value below which this share of what was observed lies, as Prometheus' histogram_quantile does;
    `buckets` are how many were at most so large, in the order of size, the last of any size."""
    total = max(buckets.values(), default=0.0)
    lower, below = 0.0, 0.0
    for text, count in buckets.items():
        upper = float(text)
        if total and count >= share * total:
            return lower if math.isinf(upper) else lower + (upper - lower) * (share * total - below) / (count - below)
        lower, below = upper, count
    return None


def _sum(meter: Meter, suffix: str, state: str = "") -> float:
    return sum(
        sample.value
        for sample in _samples(meter)
        if sample.name.endswith(suffix) and state in ("", sample.labels.get("state"))
    )


def _samples(meter: Meter) -> Iterator[Sample]:
    return (sample for family in meter.collect() for sample in family.samples)
