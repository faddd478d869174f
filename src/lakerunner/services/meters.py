"""What every process counts, for Prometheus at /metrics. Labels are bounded: signals, states, topics,
tiers, levels."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

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
