"""When a row happened: its own time, else when it was observed, else when its object was last modified.

A time of 0 means unset, as OTLP says.
"""

from __future__ import annotations

import numpy as np

from lakerunner.pipeline.read.rows import Numbers, Rows


def set_times(rows: Rows) -> Rows:
    """Adds timestamp and observed_timestamp from the OTLP fields."""
    time, observed = (
        rows.column(name, Numbers).values.view(np.int64) for name in ("time_unix_nano", "observed_time_unix_nano")
    )
    timestamp = np.where(time != 0, time, np.where(observed != 0, observed, rows.fallback_time))
    return rows.plus(timestamp=Numbers(timestamp), observed_timestamp=Numbers(observed, observed != 0))
