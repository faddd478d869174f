"""The meters of every process for Prometheus at /metrics, and the summary of a service from the same counters: one info
line for a minute in which it did something. Labels are bounded: signals, states, topics, tiers, levels, the first
thousand names of rules. Single units of work are logged at debug.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.samples import Sample

from lakerunner.services.logs import Log

_ANSWER_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)

ANNOUNCED = Counter("lakerunner_objects_announced", "Raw objects newly recorded", ["signal"])
NOTIFICATIONS = Counter("lakerunner_notifications", "Messages of a queue that were processed and deleted", ["provider"])
FOREIGN = Counter("lakerunner_notifications_foreign", "Objects of other buckets in messages of a queue", ["provider"])
POISON = Counter("lakerunner_notifications_poison", "Messages received that are not notifications", ["provider"])
ENDED = Counter("lakerunner_objects_ended", "Raw objects finished", ["signal", "state"])
REJECTED = Counter("lakerunner_lines_rejected", "Lines of raw objects that could not be read", ["signal"])
ROWS = Counter("lakerunner_rows_ingested", "Rows committed", ["signal"])
SEGMENTS = Counter("lakerunner_segments_committed", "Segments committed", ["signal"])
SEGMENT_BYTES = Counter("lakerunner_segment_bytes", "Bytes of committed segments", ["signal"])
RAW_BYTES = Counter("lakerunner_raw_bytes", "Bytes of raw objects ingested, as stored", ["signal"])
BOXES = Counter("lakerunner_boxes_closed", "Boxes put on the bus", ["signal", "work"])
RELAYED = Counter("lakerunner_outbox_relayed", "Messages published from the outbox")
UNREADABLE = Counter("lakerunner_messages_unreadable", "Messages dropped because they cannot be decoded", ["topic"])
INGEST_LAG = Histogram(
    "lakerunner_ingest_lag_seconds",
    "From the last change of a raw object to the commit of its rows",
    ["signal"],
    buckets=(1, 2, 5, 10, 30, 60, 300, 1800, 3600, 86_400),
)
BOX_SECONDS = Histogram(
    "lakerunner_box_seconds",
    "From taking a box to its commit",
    ["signal"],
    buckets=(0.25, 0.5, 1, 2, 5, 10, 30, 60, 300),
)
# By state: read (of the streams that it selects), matched, failed (its value cannot be read).
RULE_ROWS = Counter("lakerunner_rule_rows", "Rows that a rule was evaluated over", ["rule", "state"])
RULE_SERIES = Counter("lakerunner_rule_series", "Series that a rule made, counted in each segment", ["rule"])
RULE_SECONDS = Counter("lakerunner_rule_cpu_seconds", "CPU time of evaluating a rule", ["rule"])

MERGED = Counter("lakerunner_segments_merged", "Segments replaced by merges", ["signal"])
MERGE_READ_BYTES = Counter("lakerunner_merge_read_bytes", "Bytes of segments replaced by merges", ["signal"])
# Write amplification is (lakerunner_segment_bytes + lakerunner_merge_written_bytes) / lakerunner_segment_bytes.
MERGE_WRITTEN_BYTES = Counter("lakerunner_merge_written_bytes", "Bytes of segments created by merges", ["signal"])
ROLLED = Counter("lakerunner_segments_rolled", "Segments rolled up to a tier", ["tier"])
ROLLUP_ROWS = Counter("lakerunner_rollup_rows", "Rows of windows committed, including windows computed again", ["tier"])
ROLLUP_BYTES = Counter("lakerunner_rollup_bytes", "Bytes of window segments committed", ["tier"])
WORK_SECONDS = Histogram(
    "lakerunner_work_seconds",
    "Duration of the job of a merge or rollup, and its commit",
    ["work"],
    buckets=(0.25, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800),
)
WORK_CONFLICTS = Counter(
    "lakerunner_work_conflicts", "Merges and rollups that another worker committed first", ["work"]
)
WORK_FAILURES = Counter("lakerunner_work_failures", "Failed attempts of merges and rollups", ["work"])
SEGMENTS_ASIDE = Counter("lakerunner_segments_set_aside", "Segments set aside because they cannot be read", ["work"])
REMINDED = Counter("lakerunner_segments_reminded", "Segments overdue for a merge or rollup, queued again", ["work"])
COVERED_SEGMENTS = Counter("lakerunner_covered_segments", "Stored segments that rules were evaluated over", ["signal"])
COVERED_ROWS = Counter("lakerunner_covered_rows", "Rows of them", ["signal"])
LIVE_SEGMENTS = Gauge("lakerunner_live_segments", "Live segments in the index", ["signal", "tier", "level"])
SEGMENTS_PER_HOUR = Gauge(
    "lakerunner_live_segments_per_hour",
    "Live segments per hour of data of the last day, hours without data left out",
    ["signal", "tier", "level"],
)
FAILED_WORK = Gauge(
    "lakerunner_failed_work", "Failed merges and rollups that wait or are set aside", ["topic", "state"]
)
ROLLUP_LAG = Gauge(
    "lakerunner_rollup_lag_seconds", "Age of the oldest segment of a tier that waits for its rollup", ["tier"]
)
SWEEPS = Counter("lakerunner_sweeps", "Sweeps that this process has ended")
SWEPT_OBJECTS = Counter("lakerunner_swept_objects", "Objects that the sweeper deleted", ["kind"])
SWEPT_BYTES = Counter("lakerunner_swept_bytes", "Bytes of them", ["kind"])
# By state: answered, refused (its sender has to change it, or to wait), failed, left (closed before its end).
QUERIES = Counter("lakerunner_queries", "SQL and PromQL queries that have ended", ["state"])
QUERY_SECONDS = Histogram(
    "lakerunner_query_seconds", "From the start of a query to its last row", buckets=_ANSWER_SECONDS
)
QUERY_BYTES = Counter("lakerunner_query_bytes", "Bytes of segments that queries read, by where they were", ["source"])
UNITS = Counter("lakerunner_units", "Units of queries that this worker has ended", ["state"])
UNIT_SECONDS = Histogram("lakerunner_unit_seconds", "From taking a unit to its last row", buckets=_ANSWER_SECONDS)
UNIT_BYTES = Counter("lakerunner_unit_bytes", "Bytes of segments that units read, by where they were", ["source"])
CERTIFICATE_EXPIRES = Gauge(
    "lakerunner_certificate_expires_seconds", "When the certificate of tls_certificate expires, since 1970; 0: no TLS"
)


_MOST_RULES = 1000
_rules: set[str] = set()


def count_rule(name: str, *, rows: int, matched: int, errors: int, series: int, seconds: float) -> None:
    """Count what a rule of this name did, of any organization; names beyond the first thousand as `other`."""
    if len(_rules) < _MOST_RULES:
        _rules.add(name)
    label = name if name in _rules else "other"
    for state, count in (("read", rows), ("matched", matched), ("failed", errors)):
        RULE_ROWS.labels(label, state).inc(count)
    RULE_SERIES.labels(label).inc(series)
    RULE_SECONDS.labels(label).inc(seconds)


SECONDS = 60.0
Meter = Counter | Gauge | Histogram
Counts = Mapping[str, float]


@dataclass(frozen=True)
class Summary:
    """What a service reports: totals by field, each of a counter and, if it has states, of one of them; its lag, the
    mean of a histogram or the largest value of a gauge; and the 95th percentile of seconds."""

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
        """Return the cumulative bucket counts by their upper bound in seconds, as text."""
        if self.seconds is None:
            return {}
        return {s.labels["le"]: s.value for s in _samples(self.seconds) if s.name.endswith("_bucket")}

    def lag_seconds(self, since: Counts) -> float | None:
        """Return the lag; `since` is the growth of `lag_counts`."""
        if isinstance(self.lag, Histogram):
            return since["seconds"] / since["count"] if since["count"] else None
        return max((sample.value for sample in _samples(self.lag)), default=None) if self.lag else None

    def fields(self, since: Counts) -> dict[str, float]:
        """Return the fields of a line besides totals; `since` is the growth of `lag_counts` and `bucket_counts`."""
        lag = self.lag_seconds(since)
        p95 = _quantile(0.95, {le: since[le] for le in self.bucket_counts()})
        found = {"lag_seconds": lag and round(lag, 1), "p95_seconds": p95 and round(p95, 3)}
        return {name: value for name, value in found.items() if value is not None}


def _not_answered(ended: Counter) -> dict[str, tuple[Counter, str]]:
    return {state: (ended, state) for state in ("refused", "failed", "left")}


SUMMARIES: Mapping[str, Summary] = {
    "pubsub": Summary("objects announced in the last minute", {"objects": (ANNOUNCED, "")}),
    "boxer": Summary("boxes closed in the last minute", {"boxes": (BOXES, "")}),
    "ingest": Summary(
        "objects ingested in the last minute",
        {
            "objects": (ENDED, "done"),
            "partial": (ENDED, "partial"),
            "failed": (ENDED, "failed"),
            "rows": (ROWS, ""),
            "segments": (SEGMENTS, ""),
            "raw_bytes": (RAW_BYTES, ""),
            "stored_bytes": (SEGMENT_BYTES, ""),
        },
        INGEST_LAG,
    ),
    "compact": Summary(
        "segments merged in the last minute",
        {
            "segments": (MERGED, ""),
            "bytes_read": (MERGE_READ_BYTES, ""),
            "bytes_written": (MERGE_WRITTEN_BYTES, ""),
        },
    ),
    "rollup": Summary(
        "segments rolled up in the last minute",
        {"segments": (ROLLED, ""), "rows": (ROLLUP_ROWS, "")},
        ROLLUP_LAG,
    ),
    "materialize": Summary(
        "stored segments covered by rules in the last minute",
        {"segments": (COVERED_SEGMENTS, ""), "rows": (COVERED_ROWS, "")},
    ),
    "sweeper": Summary(
        "objects swept in the last minute", {"objects": (SWEPT_OBJECTS, ""), "bytes": (SWEPT_BYTES, "")}
    ),
    "query-api": Summary(
        "queries answered in the last minute",
        {"queries": (QUERIES, "answered"), **_not_answered(QUERIES), "bytes_read": (QUERY_BYTES, "")},
        seconds=QUERY_SECONDS,
    ),
    "query-worker": Summary(
        "units of queries done in the last minute",
        {"units": (UNITS, "answered"), **_not_answered(UNITS), "bytes_read": (UNIT_BYTES, "")},
        seconds=UNIT_SECONDS,
    ),
}


class Reporter:
    """Reports what these services did since the last report. One thread uses it."""

    def __init__(self, services: Collection[str]) -> None:
        self._services = [name for name in services if name in SUMMARIES]
        self._before = {name: _read_meters(SUMMARIES[name]) for name in self._services}

    def report(self) -> None:
        for name in self._services:
            summary = SUMMARIES[name]
            (before, times_before), (now, times) = self._before[name], _read_meters(summary)
            self._before[name] = now, times
            done = {key: int(now[key] - before[key]) for key in now}
            if any(done.values()):
                since = {key: times[key] - times_before[key] for key in times}
                Log(name).info(summary.sentence, **done, **summary.fields(since))


def _read_meters(summary: Summary) -> tuple[Counts, Counts]:
    return summary.counts(), {**summary.lag_counts(), **summary.bucket_counts()}


def _quantile(share: float, buckets: Counts) -> float | None:
    """Return a quantile as Prometheus' histogram_quantile does. `buckets` are cumulative counts by upper bound, in
    ascending order, the last bound infinite."""
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
