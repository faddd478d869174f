"""When a span began and ended, and how long it took.

A time of 0 means unset, as OTLP says. A span without a start stands where it ended, one without both where its object
was last modified.
"""

from __future__ import annotations

import numpy as np

from lakerunner.pipeline.read.rows import Numbers, Rows


def set_span_times(rows: Rows) -> Rows:
    """Adds timestamp, end_timestamp and duration, which is null unless both times are set, and may be negative."""
    start, end = (
        rows.column(name, Numbers).values.view(np.int64) for name in ("start_time_unix_nano", "end_time_unix_nano")
    )
    timestamp = np.where(start != 0, start, np.where(end != 0, end, rows.fallback_time))
    return rows.plus(
        timestamp=Numbers(timestamp),
        end_timestamp=Numbers(end, end != 0),
        duration=Numbers(end - start, (start != 0) & (end != 0)),
    )
