"""The summary of a service: one info line for a minute in which it did something, from the counters that /metrics has.

A line is a constant sentence with fields: how much since the line before. Single units of work are logged at debug.
"""

from __future__ import annotations

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
    """What a service reports: totals by field, each of a counter and, where it has states, of one of them; and its lag,
    the mean of what a histogram observed, or the largest value of a gauge."""

    sentence: str
    totals: Mapping[str, tuple[Counter, str]]
    lag: Histogram | Gauge | None = None

    def counts(self) -> Counts:
        """Return the totals since the process started."""
        return {name: _sum(counter, "_total", state) for name, (counter, state) in self.totals.items()}

    def lag_counts(self) -> Counts:
        if not isinstance(self.lag, Histogram):
            return {}
        return {"seconds": _sum(self.lag, "_sum"), "count": _sum(self.lag, "_count")}

    def lag_seconds(self, since: Counts) -> float | None:
        """Return the lag; `since` is what `lag_counts` has grown by."""
        if isinstance(self.lag, Histogram):
            return since["seconds"] / since["count"] if since["count"] else None
        return max((sample.value for sample in _samples(self.lag)), default=None) if self.lag else None


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
}


class Reporter:
    """Reports on these services: what they did since it last reported. Used by one thread."""

    def __init__(self, services: Collection[str]) -> None:
        self._services = [name for name in services if name in SUMMARIES]
        self._before = {name: (SUMMARIES[name].counts(), SUMMARIES[name].lag_counts()) for name in self._services}

    def report(self) -> None:
        for name in self._services:
            summary = SUMMARIES[name]
            before, lag_before = self._before[name]
            now, lag_now = self._before[name] = (summary.counts(), summary.lag_counts())
            done = {key: int(now[key] - before[key]) for key in now}
            if not any(done.values()):
                continue
            lag = summary.lag_seconds({key: lag_now[key] - lag_before[key] for key in lag_now})
            Log(name).info(summary.sentence, **done, **({} if lag is None else {"lag_seconds": round(lag, 1)}))


def _sum(meter: Meter, suffix: str, state: str = "") -> float:
    return sum(
        sample.value
        for sample in _samples(meter)
        if sample.name.endswith(suffix) and state in ("", sample.labels.get("state"))
    )


def _samples(meter: Meter) -> Iterator[Sample]:
    return (sample for family in meter.collect() for sample in family.samples)
