"""A service reports once a minute what it did, from its counters, and nothing if it did nothing."""

from __future__ import annotations

import io
import json

from lakerunner.services import meters
from lakerunner.services.logs import configure_logs
from lakerunner.services.summary import Reporter


def test_a_minute_of_work_is_one_line_for_each_service_and_a_quiet_one_is_none() -> None:
    meters.ROWS.labels("logs").inc(1000)  # before it began
    meters.ROLLUP_LAG.clear()  # other tests of this process may have set it
    reporter, stream = Reporter(["ingest", "compact", "rollup", "query-api"]), io.StringIO()
    configure_logs("info", stream)
    for signal, rows in (("logs", 20), ("metrics", 3)):
        meters.ROWS.labels(signal).inc(rows)
        meters.SEGMENTS.labels(signal).inc()
        meters.SEGMENT_BYTES.labels(signal).inc(500)
        meters.RAW_BYTES.labels(signal).inc(100)
        meters.ENDED.labels(signal, "done").inc(4)
        meters.INGEST_LAG.labels(signal).observe(rows)
    meters.ENDED.labels("traces", "failed").inc()
    meters.ROLLED.labels("10s").inc(2)
    meters.ROLLUP_ROWS.labels("10s").inc(7)
    meters.ROLLUP_LAG.labels("1h").set(90.04)
    reporter.report()
    reporter.report()
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [{key: value for key, value in line.items() if key != "time"} for line in lines] == [
        {
            "level": "info",
            "part": "ingest",
            "message": "objects ingested in the last minute",
            "objects": 8,
            "partial": 0,
            "failed": 1,
            "rows": 23,
            "segments": 2,
            "raw_bytes": 200,
            "stored_bytes": 1000,
            "lag_seconds": 11.5,
        },
        {
            "level": "info",
            "part": "rollup",
            "message": "segments rolled up in the last minute",
            "segments": 2,
            "rows": 7,
            "lag_seconds": 90.0,
        },
    ]
    meters.ROLLUP_LAG.clear()
