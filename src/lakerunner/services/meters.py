"""What every process counts, for Prometheus at /metrics. Labels are bounded: signals, states, topics."""

from __future__ import annotations

from prometheus_client import Counter, Histogram

ANNOUNCED = Counter("lakerunner_objects_announced", "Raw objects newly recorded", ["signal"])
NOTIFICATIONS = Counter("lakerunner_notifications", "Messages of a queue that were done with and deleted", ["provider"])
FOREIGN = Counter("lakerunner_notifications_foreign", "Objects of other buckets that a queue named", ["provider"])
POISON = Counter("lakerunner_notifications_poison", "Receives of messages that are no notification", ["provider"])
ENDED = Counter("lakerunner_objects_ended", "Raw objects finished", ["signal", "state"])
ROWS = Counter("lakerunner_rows_ingested", "Rows committed", ["signal"])
SEGMENTS = Counter("lakerunner_segments_committed", "Segments committed", ["signal"])
SEGMENT_BYTES = Counter("lakerunner_segment_bytes", "Bytes of committed segments", ["signal"])
RAW_BYTES = Counter("lakerunner_raw_bytes", "Bytes of raw objects ingested, as stored", ["signal"])
BOXES = Counter("lakerunner_boxes_closed", "Boxes put on the bus", ["signal"])
RELAYED = Counter("lakerunner_outbox_relayed", "Messages published from the outbox")
UNREADABLE = Counter("lakerunner_messages_unreadable", "Messages dropped because they cannot be understood", ["topic"])
BOX_SECONDS = Histogram(
    "lakerunner_box_seconds",
    "From taking a box to its commit",
    ["signal"],
    buckets=(0.25, 0.5, 1, 2, 5, 10, 30, 60, 300),
)
