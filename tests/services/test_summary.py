"""A service reports once a minute what it did, from its counters, and nothing if it did nothing."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import suppress

import pyarrow as pa

from lakerunner.model.errors import Busy, Unavailable, UserError
from lakerunner.query.contract.account import Account
from lakerunner.services import meters
from lakerunner.services.logs import configure_logs
from lakerunner.services.meters import Reporter
from lakerunner.services.query_counts import counted_units


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


class Rows:
    """An answer of one batch, or an error; what it read is known."""

    schema = pa.schema([])
    account = Account(bytes_fetched=100, bytes_cached=1000)

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        if self._error:
            raise self._error
        yield pa.record_batch({})

    def close(self) -> None:
        pass


def test_queries_are_counted_by_how_they_end_each_once() -> None:
    reporter, stream = Reporter(["query-worker"]), io.StringIO()
    configure_logs("info", stream)
    errors = [UserError("too many"), Busy("later"), Unavailable("the store is away"), RuntimeError("a bug"), None]
    answers = iter([*map(Rows, errors), Rows(), Rows()])
    run = counted_units(lambda _unit: next(answers))
    for error in errors:
        answer = run(None)  # type: ignore[arg-type]
        with suppress(*[type(error)] if error else []):
            assert len(list(answer)) == 1
        answer.close()
        answer.close()
    run(None).close()  # type: ignore[arg-type]
    half = run(None)  # type: ignore[arg-type]
    assert next(iter(half)).num_rows == 0
    half.close()
    reporter.report()
    reporter.report()
    (line,) = (json.loads(line) for line in stream.getvalue().splitlines())
    assert 0 < line.pop("p95_seconds") <= 0.005
    assert {key: value for key, value in line.items() if key not in ("time", "level")} == {
        "part": "query-worker",
        "message": "units of queries done in the last minute",
        "units": 1,
        "refused": 2,
        "failed": 2,
        "left": 2,
        "bytes_read": 3300,
    }


def test_95_of_100_are_read_from_buckets_as_prometheus_does() -> None:
    reporter, stream = Reporter(["query-api"]), io.StringIO()
    configure_logs("info", stream)
    for seconds, count in ((0.2, 80), (0.8, 18), (400.0, 2)):
        meters.QUERIES.labels("answered").inc(count)
        for _ in range(count):
            meters.QUERY_SECONDS.observe(seconds)
    reporter.report()
    meters.QUERIES.labels("answered").inc()
    meters.QUERY_SECONDS.observe(400.0)
    reporter.report()
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    # 80 are at most 0.25 s, 98 at most 1 s; the 95th is 15 of 18 parts of the way from 0.5 s to 1 s.
    assert [line["p95_seconds"] for line in lines] == [0.917, 300.0]
