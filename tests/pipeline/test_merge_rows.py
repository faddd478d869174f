"""What a merge does with rows that came twice, and with attributes that its inputs have in different places."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakerunner.model.segment import Segment
from lakerunner.model.signal import LOGS, METRICS
from lakerunner.objects.store import ObjectStore
from lakerunner.pipeline.merge.duplicates import by_key, digest_values, drop_repeated
from lakerunner.pipeline.merge.inputs import open_segments
from lakerunner.pipeline.merge.merged_rows import MergedRows
from lakerunner.pipeline.signals import row_of
from pipeline import metrics_oracle, otlp_oracle
from pipeline.merge_oracle import a_store, expected, ingested, merge, read

START = 1_760_000_400_000_000_000
Fill = Callable[[Any], None]


def logs(fill: Fill, rows: int = 1, at: int = 0) -> bytes:
    request = otlp_oracle.request_type()()
    records = request.resource_logs.add().scope_logs.add().log_records
    for number in range(rows):
        fill(records.add(time_unix_nano=START + at + number))
    return bytes(request.SerializeToString())


def gauge(*values: float | int) -> bytes:
    request = metrics_oracle.request_type()()
    metric = request.resource_metrics.add().scope_metrics.add().metrics.add(name=b"g")
    for number, value in enumerate(values):
        point = metric.gauge.data_points.add(time_unix_nano=START + number)
        if isinstance(value, int):
            point.as_int = value
        else:
            point.as_double = value
    return bytes(request.SerializeToString())


def attribute(key: bytes, **value: Any) -> Fill:
    def fill(record: Any) -> None:
        for kind, content in value.items():
            setattr(record.attributes.add(key=key).value, kind, content)

    return fill


def columns_of(segment: Segment) -> dict[str, str]:
    return {column.name: column.type for column in segment.columns if column.type}


def merged_logs(store: ObjectStore, tmp_path: Path, *contents: bytes) -> Segment:
    segments = ingested(store, LOGS, contents)
    found = merge(store, LOGS, segments, tmp_path)
    assert found is not None
    assert read(store, found) == expected(store, LOGS, segments)
    return found


def test_the_kind_that_most_values_have_gets_the_column(tmp_path: Path) -> None:
    text, number = attribute(b"code", string_value=b"4"), attribute(b"code", int_value=4)
    for texts, numbers, kind in ((3, 2, "string"), (2, 3, "int64"), (2, 2, "string")):
        found = merged_logs(a_store(), tmp_path, logs(text, texts), logs(number, numbers, at=1))
        assert columns_of(found) == {"attributes.code": kind}


def test_arrays_and_kvlists_are_two_kinds(tmp_path: Path) -> None:
    def a_list(record: Any) -> None:
        record.attributes.add(key=b"j").value.array_value.values.add().int_value = 1

    def an_object(record: Any) -> None:
        record.attributes.add(key=b"j").value.kvlist_value.values.add(key=b"k").value.int_value = 1

    store = a_store()
    found = merged_logs(store, tmp_path, logs(a_list, 2), logs(an_object, 3, at=5))
    table = pq.read_table(pa.BufferReader(store.get(found.path, max_bytes=1 << 20)))
    assert table.column("attributes.j").to_pylist() == [None, None, '{"k":1}', '{"k":1}', '{"k":1}']
    assert table.column("attributes").to_pylist()[:2] == [[("j", "[1]")]] * 2


def test_of_keys_that_differ_in_case_the_most_frequent_gets_the_column(tmp_path: Path) -> None:
    lower, upper = attribute(b"key", int_value=1), attribute(b"KEY", int_value=2)
    found = merged_logs(a_store(), tmp_path, logs(lower, 2), logs(upper, 3, at=9))
    assert columns_of(found) == {"attributes.KEY": "int64"}


def test_there_are_no_more_columns_than_a_segment_may_have(tmp_path: Path) -> None:
    def keys(start: int) -> Fill:
        def fill(record: Any) -> None:
            for number in range(start, start + 200):
                record.attributes.add(key=b"%03d" % number).value.int_value = number

        return fill

    found = merged_logs(a_store(), tmp_path, logs(keys(0), 2), logs(keys(100), 3, at=9))
    names = sorted(columns_of(found))
    assert len(names) == 256
    assert set(names) >= {f"attributes.{number}" for number in range(100, 300)}  # more frequent than the first


def test_what_is_rare_in_one_input_goes_to_the_column_of_another(tmp_path: Path) -> None:
    def rarely(record: Any) -> None:
        if record.time_unix_nano == START + 7:
            record.attributes.add(key=b"k").value.string_value = b"rare"
            record.attributes.add(key=b"k").value.string_value = b"again"

    store = a_store()
    found = merged_logs(store, tmp_path, logs(rarely, 500), logs(attribute(b"k", string_value=b"x"), 5, at=1000))
    table = pq.read_table(pa.BufferReader(store.get(found.path, max_bytes=1 << 20)))
    assert table.column("attributes.k").to_pylist()[6:9] == [None, "rare", None]
    assert table.column("attributes").to_pylist()[7] == [("k", '"again"')]


def test_logs_that_were_sent_twice_are_kept_once_and_equal_ones_as_often_as_sent(tmp_path: Path) -> None:
    def same(record: Any) -> None:
        record.time_unix_nano = START
        record.body.string_value = b"tick"

    found = merged_logs(a_store(), tmp_path, logs(same, 3), logs(same, 3), logs(same, 2))
    assert found.rows == 3 + 2


def test_a_point_that_stands_as_integer_here_and_as_double_there_is_one(tmp_path: Path) -> None:
    store = a_store()
    segments = ingested(store, METRICS, [gauge(1.0, 2.0), gauge(1.0, 2.0, 0.5)])
    found = merge(store, METRICS, segments, tmp_path)
    assert found is not None
    assert [row["number"] for row in read(store, found)] == [("double", bits(value)) for value in (1.0, 2.0, 0.5)]
    for others in ([gauge(1)], [gauge(-0.0), gauge(0.0)]):
        segments = ingested(a_store_with(store), METRICS, [gauge(1.0), *others])
        found = merge(store, METRICS, segments, tmp_path)
        assert found is not None
        assert found.rows == 1 + len(others)


def a_store_with(store: ObjectStore) -> ObjectStore:
    store.delete([meta.key for meta in store.list("")])
    return store


def bits(value: float) -> int:
    return int(np.float64(value).view(np.uint64))


def test_of_equal_points_the_last_is_kept(tmp_path: Path) -> None:
    """So that what counts of several at one time is what counted before."""
    store = a_store()
    segments = ingested(store, METRICS, [gauge(1.0), gauge(2.0), gauge(1.0)])
    found = merge(store, METRICS, segments, tmp_path)
    assert found is not None
    assert [row["number"] for row in read(store, found)] == [("double", bits(2.0)), ("double", bits(1.0))]


def test_of_the_rows_of_a_window_the_last_is_kept() -> None:
    order, is_same = np.array([4, 0, 2, 1, 3]), np.array([False, False, True, True, False])
    assert drop_repeated(by_key, {"count": pa.array([1, 2, 3, 4, 5])}, order, is_same).tolist() == [4, 1, 3]


def test_a_run_of_equal_keys_may_be_longer_than_the_windows(tmp_path: Path) -> None:
    def same(record: Any) -> None:
        record.time_unix_nano = START
        record.attributes.add(key=b"n").value.int_value = len(record.attributes)

    store = a_store()
    segments = ingested(store, LOGS, [logs(same, 700), logs(same, 400), logs(lambda _: None, 300)])
    found = merge(store, LOGS, segments, tmp_path, memory=1)
    assert found is not None
    assert read(store, found) == expected(store, LOGS, segments)


def test_rows_that_are_not_wanted_are_left_out(tmp_path: Path) -> None:
    store = a_store()
    opened = open_segments(
        store, ingested(store, LOGS, [logs(lambda _: None, 10), logs(lambda _: None, 5, 20)]), tmp_path
    )

    def even(batch: pa.RecordBatch) -> pa.Array:
        return pa.array(batch.column("timestamp").cast(pa.int64()).to_numpy() % 2 == 0)

    rows = MergedRows(LOGS, opened, 1 << 20, row_filter=even, same_row=row_of(LOGS).same_row)
    times = [time for batch in rows for time in batch.column("timestamp").cast(pa.int64()).to_pylist()]
    assert times == [START + number for number in (0, 2, 4, 6, 8, 20, 22, 24)]
    nothing = MergedRows(LOGS, opened, 1 << 20, row_filter=lambda batch: pa.array([False] * batch.num_rows))
    assert list(nothing) == []


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([0.0, -0.0, 1.0, None, float("inf")], pa.float64()),
        (["", "a", "b", None, "ab", "a\0"], pa.string()),
        ([[], [1], [1, 1], [0], None, [None]], pa.list_(pa.int64())),
        (
            [[], [("a", "1")], [("a", "1"), ("a", "1")], [("a", "2"), ("a", "1")], [("a", "1"), ("a", "2")]],
            METRICS.schema.field("attributes").type,
        ),
        (
            [{"x": 1, "y": 2}, {"x": 2, "y": 1}, None, {"x": 1, "y": None}],
            pa.struct([("x", pa.int8()), ("y", pa.int8())]),
        ),
        ([True, False, None], pa.bool_()),
        ([0, 1, 2**32 - 1, None], pa.uint32()),
    ],
)
def test_different_values_have_different_digests(values: list[Any], kind: pa.DataType) -> None:
    array = pa.array([*values, *values], kind)
    digests = digest_values(array)
    assert len(set(digests.tolist())) == len(values)
    assert digests[: len(values)].tolist() == digests[len(values) :].tolist()
    assert digest_values(array.slice(1)).tolist() == digests[1:].tolist()


def test_the_order_of_attributes_of_different_keys_is_none() -> None:
    one, other = digest_values(
        pa.array([[("a", "1"), ("b", "2")], [("b", "2"), ("a", "1")]], METRICS.schema.field("attributes").type)
    )
    assert one == other


def test_a_nan_is_equal_to_itself_and_to_no_other() -> None:
    numbers = np.array([0x7FF8000000000000, 0x7FF8000000000000, 0x7FF0000000000002], np.uint64).view(np.float64)
    one, same, other = digest_values(pa.array(numbers))
    assert one == same != other
