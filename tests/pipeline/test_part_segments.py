"""Parts as segments of metrics: points, names and labels, ids; and the same segments of the same work."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakerunner.model.metric_rules.metric_rule import RuleVersion
from lakerunner.model.segment import Segment, digest64, segment_id
from lakerunner.model.streams.stream_rules import DEFAULT_RULES
from lakerunner.model.time import HOUR_NS, TimeRange
from lakerunner.pipeline.part_segments import write_parts
from suites.ingested import ORGANIZATION
from suites.rule_values import batch_of, part, version

HOUR = 480_000 * 3600
SOURCE = Segment(
    segment_id("source"), ORGANIZATION, "c", "logs", TimeRange(HOUR * 10**9, HOUR * 10**9 + 1), 1, 1, 1, ()
)


def written(of: RuleVersion, parts: pa.RecordBatch) -> tuple[tuple[Segment, ...], dict[str, bytes]]:
    files: dict[str, bytes] = {}
    return write_parts(of, DEFAULT_RULES, parts, SOURCE, lambda path, data: files.update({path: bytes(data)})), files


def table(data: bytes) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(io.BytesIO(data)).to_pylist()
    return rows


def seconds(time: datetime) -> float:
    """Return the time since the hour."""
    return time.replace(tzinfo=UTC).timestamp() - HOUR


def test_numbers_are_points_of_delta_sums() -> None:
    parts = batch_of(
        part({"b": "2", "_a": "é"}, HOUR + 20, 3, 3, min=1, max=1),
        part({}, HOUR + 10, 2, 2, min=1, max=1),
        part({"b": "2", "_a": "é"}, HOUR + 10, -1, -1),
    )
    (made,), files = written(version(7, description="as told"), parts)
    assert (made.collector, made.signal, made.frequency_ms, made.rows) == ("_rule7.1", "metrics", 0, 3)
    assert made.time == TimeRange((HOUR + 10) * 10**9, (HOUR + 20) * 10**9 + 1)
    assert made.statistics["metrics"] == ["made_7"]
    assert digest64("metric_name", "made_7") in made.fingerprints
    rows = table(files[made.path])
    assert {row["metric_name"] for row in rows} == {"made_7"}
    assert {(row["metric_type"], row["temporality"], row["monotonic"]) for row in rows} == {("sum", "delta", True)}
    assert {row["service_name"] for row in rows} == {""}
    assert {row["description"] for row in rows} == {"as told"}
    assert sorted(
        (row["attributes.b"], seconds(row["timestamp"]), row["int_value"], row["chq_rollup_count"])
        for row in rows
        if row["attributes.b"]
    ) == [("2", 10, -1, -1), ("2", 20, 3, 3)]
    assert all(seconds(row["timestamp"]) - seconds(row["start_timestamp"]) == 10 for row in rows)
    assert [row["chq_rollup_min"] for row in rows if row["int_value"] == -1] == [None]


def test_series_have_the_names_that_the_rule_gives() -> None:
    (made,), files = written(version(7), batch_of(part({"_a": "x", "job": "j", "__error__": "e"}, HOUR + 10, 1, 1)))
    (series,) = table(files[made.side_path("series.parquet")])
    assert (series["prometheus_name"], series["prometheus_escaped"], series["as_sent"]) == ("made_7", "made_7", False)
    assert [(one["name"], one["escaped"], one["value"]) for one in series["labels"]] == [
        ("__error__", "__error__", "e"),
        ("_a", "_a", "x"),
        ("job", "job", "j"),
    ]
    assert series["resource"] == []


def test_a_sum_of_fractions_is_a_double_with_what_its_rounding_lost() -> None:
    parts = batch_of(part({}, HOUR + 10, 2, 0.5, sum_error=0.25, min=0.1, max=0.65))
    (made,), files = written(version(8, "sum(bytes(size))"), parts)
    (row,) = table(files[made.path])
    assert (row["value"], row["chq_rollup_sum"], row["chq_rollup_sum_error"]) == (0.75, 0.5, 0.25)
    assert (row["chq_rollup_min"], row["chq_rollup_max"], row["monotonic"]) == (0.1, 0.65, False)
    assert "int_value" not in row
    assert "count" not in row


def test_histograms_keep_their_buckets_and_errors_are_numbers() -> None:
    wrapped = 2**64 - 1
    side = {"offset": -3, "counts": [1, 0, 2], "float_counts": None}
    taken = {"offset": -3, "counts": [wrapped], "float_counts": None}
    parts = batch_of(
        part(
            {"a": "1"},
            HOUR + 10,
            4,
            6.5,
            min=-1,
            max=4,
            scale=6,
            zero_count=0,
            positive=side,
            negative=taken | {"counts": [1]},
        ),
        part({"a": "1"}, HOUR + 20, -1, -2.5, scale=6, zero_count=0, positive=taken),
        part({"__error__": "SampleExtractionErr"}, HOUR + 10, 5, 0),
    )
    (made,), files = written(version(9, "histogram(latency)"), parts)
    rows = table(files[made.path])
    by_count = {row["chq_rollup_count"]: row for row in rows}
    assert {count: row["metric_type"] for count, row in by_count.items()} == {
        4: "exponential_histogram",
        -1: "exponential_histogram",
        5: "sum",
    }
    full, back, error = by_count[4], by_count[-1], by_count[5]
    assert (full["count"], full["sum"], full["min"], full["max"], full["scale"]) == (4, 6.5, -1, 4, 6)
    assert (full["positive"]["offset"], full["positive"]["counts"]) == (-3, [1, 0, 2])
    assert full["negative"]["counts"] == [1]
    assert (back["count"], back["sum"], back["min"], back["positive"]["counts"]) == (wrapped, -2.5, None, [wrapped])
    assert back["negative"] is None
    assert (error["int_value"], error["count"], error["scale"], error["positive"]) == (0, None, None, None)


def test_the_end_of_an_hour_is_in_the_next_one() -> None:
    parts = batch_of(part({}, HOUR + 3590, 1, 1), part({}, HOUR + 3600, 2, 2))
    made, _ = written(version(7), parts)
    assert [one.time.start_ns // HOUR_NS for one in made] == [480_000, 480_001]
    assert len({one.id for one in made}) == 2


def test_the_same_parts_give_the_same_ids_and_bytes() -> None:
    one, other = part({"a": "1"}, HOUR + 10, 1, 1), part({"a": "2"}, HOUR + 10, 2, 2)
    made, files = written(version(7), batch_of(one, other))
    again, same_files = written(version(7), batch_of(one, other))
    assert (made, files) == (again, same_files)
    for another in (version(8), version(7, max_series=5)):
        assert made[0].id != written(another, batch_of(one, other))[0][0].id


def test_a_slice_of_parts_is_written_alone() -> None:
    parts = batch_of(part({"a": "1"}, HOUR + 10, 1, 1), part({"a": "2"}, HOUR + 10, 2, 2), part({}, HOUR + 10, 4, 4))
    (made,), files = written(version(7), parts.slice(1, 1))
    (row,) = table(files[made.path])
    assert (row["attributes.a"], row["int_value"]) == ("2", 2)
