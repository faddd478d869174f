"""What a metrics segment promises beside the rows it holds: its series, how numbers stand, what the index learns."""

from __future__ import annotations

import io
import itertools
import random
from typing import Any

import pyarrow.parquet as pq
import pytest

from lakerunner.model.segment import digest64
from lakerunner.model.time import HOUR_NS
from lakerunner.pipeline.read import otlp, pieces
from lakerunner.pipeline.read.wire import varint
from lakerunner.pipeline.steps import layout
from pipeline.metrics_oracle import actual, decoded, expected, expected_series, make_metrics, request_type, series_rows
from pipeline.otlp_oracle import assert_same
from pipeline.otlp_random import add_pairs

START = 1_760_000_000 * 10**9 // HOUR_NS * HOUR_NS
Pairs = list[tuple[bytes, Any]]


def field(number: int, payload: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def request_of(metrics: bytes) -> bytes:
    return field(1, field(2, metrics))


def gauge(*points: tuple[Pairs, float | int], name: bytes = b"gauge", resource: Pairs | None = None) -> bytes:
    """A point a second of each of these attributes and numbers."""
    request = request_type()()
    resource_metrics = request.resource_metrics.add()
    add_pairs(resource_metrics.resource.attributes, resource or [])
    data = resource_metrics.scope_metrics.add().metrics.add(name=name).gauge
    for second, (pairs, number) in enumerate(points):
        point = data.data_points.add(time_unix_nano=START + second * 10**9)
        add_pairs(point.attributes, pairs)
        if isinstance(number, int):
            point.as_int = number
        else:
            point.as_double = number
    return bytes(request.SerializeToString())


def rows_of(*contents: bytes) -> list[dict[str, Any]]:
    made, files = make_metrics(*contents)
    assert made.failed == ()
    rows = actual(made, files)
    assert_same(rows, expected(map(decoded, contents)))
    return rows


A, B, C = ((key, ("string_value", b"1")) for key in (b"a", b"b", b"c"))


def test_a_series_does_not_depend_on_the_order_of_its_attributes() -> None:
    points = [(list(pairs), 1) for pairs in itertools.permutations([A, B, C])]
    assert len({row["series"] for row in rows_of(gauge(*points))}) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([A], [B]),
        ([A], [(b"a", ("string_value", b"2"))]),
        ([A], [(b"a", ("int_value", 1))]),
        ([A], [(b"a", ("bytes_value", b"1"))]),
        ([(b"a", ("int_value", 1))], [(b"a", ("double_value", 1.0))]),
        ([(b"a", ("bool_value", False))], [(b"a", ("", None))]),
        ([A], [A, A]),
        ([A, (b"a", ("string_value", b"2"))], [(b"a", ("string_value", b"2")), A]),
        ([A, (b"b", ("string_value", b"2"))], [(b"a", ("string_value", b"2")), B]),
        ([(b"a", ("array_value", [("int_value", 1)]))], [(b"a", ("array_value", [("int_value", 2)]))]),
        ([], [A]),
    ],
)
def test_other_attributes_are_another_series(one: Pairs, other: Pairs) -> None:
    rows = rows_of(gauge((one, 1), (other, 1)))
    assert len({row["series"] for row in rows}) == 2


def test_the_resource_and_the_name_are_part_of_a_series() -> None:
    contents = [gauge(([A], 1)), gauge(([A], 1), name=b"other"), gauge(([A], 1), resource=[B])]
    assert len({row["series"] for row in rows_of(*contents)}) == 3
    assert len({row["series"] for row in rows_of(gauge(([A], 1)), gauge(([A], 2)))}) == 1


def test_a_digest_never_changes() -> None:
    """Series are stored, and compared across segments and releases."""
    (row,) = rows_of(gauge(([A, (b"n", ("int_value", 7))], 1), resource=[(b"service.name", ("string_value", b"shop"))]))
    assert row["series"] == DIGEST


DIGEST = -5733896337023462070


@pytest.mark.parametrize(
    ("numbers", "stored"),
    [
        ([1, 2, 3], "int"),
        ([1, 2.0, 3], "int"),
        ([1.0, 2.0**53, -(2.0**53)], "int"),
        ([1.0, 2.0**53 + 2], "double"),
        ([1, 2.5], "double"),
        ([1, -0.0], "double"),
        ([1, float("nan")], "double"),
        ([1, float("inf")], "double"),
    ],
)
def test_whole_numbers_of_a_series_are_stored_as_integers(numbers: list[float], stored: str) -> None:
    rows = rows_of(gauge(*(([], number) for number in numbers)))
    assert {row["int_value"] is not None for row in rows} == {stored == "int"}
    assert [row["is_int"] for row in rows] == [isinstance(number, int) for number in numbers]


def test_each_hour_decides_for_itself_and_a_large_integer_stays_whole() -> None:
    request = request_type()()
    data = request.resource_metrics.add().scope_metrics.add().metrics.add(name=b"m").gauge
    for hour, numbers in enumerate([(1, 2.0), (2**60 + 1, 0.5, 2**60)]):
        for place, number in enumerate(numbers):
            point = data.data_points.add(time_unix_nano=START + hour * HOUR_NS + place)
            setattr(point, "as_int" if isinstance(number, int) else "as_double", number)
    rows = rows_of(request.SerializeToString())
    assert [row["int_value"] for row in rows] == [1, 2, 2**60 + 1, None, None]


def test_packed_and_unpacked_numbers_are_the_same_and_parts_are_joined() -> None:
    eight = [number.to_bytes(8, "little") for number in (5, 6, 7)]
    packed, single = field(6, b"".join(eight[:2])), varint(6 << 3 | 1) + eight[2]
    point = packed + field(7, b"\0" * 8) + single
    buckets = field(2, bytes([1, 2])) + varint(2 << 3) + bytes([3])
    exponential = field(8, buckets) + field(9, bytes([8, 3])) + field(8, bytes([8, 4]) + field(2, b"\x80\x01"))
    metrics = field(2, field(1, b"a") + field(9, field(1, point)))
    metrics += field(2, field(1, b"b") + field(10, field(1, exponential)))
    first, second = rows_of(request_of(metrics))
    assert (first["bucket_counts"], first["bounds"]) == ([5, 6, 7], [("double", 0)])
    assert second["positive"] == {"offset": 2, "counts": [1, 2, 3, 128], "float_counts": None}
    assert second["negative"] == {"offset": -2, "counts": None, "float_counts": None}


def test_the_last_kind_of_data_wins_and_equal_kinds_are_merged() -> None:
    def data(number: int, *values: int) -> bytes:
        return field(number, b"".join(field(1, b"\x31" + value.to_bytes(8, "little")) for value in values))

    metric = data(5, 1) + data(7, 2) + data(5, 3) + field(1, b"name") + data(5, 4, 5)
    rows = rows_of(request_of(field(2, metric) + field(2, data(7, 6) + data(7, 7))))
    assert sorted((row["metric_type"], row["int_value"]) for row in rows) == [
        ("gauge", 3),
        ("gauge", 4),
        ("gauge", 5),
        ("sum", 6),
        ("sum", 7),
    ]


@pytest.mark.parametrize(
    ("metrics", "reason"),
    [
        (field(2, field(9, field(1, field(6, bytes(7))))), "byte 10: HistogramDataPoint ends in the middle of a field"),
        (field(2, field(9, field(1, b"\x30\x01"))), "HistogramDataPoint.bucket_counts has wire type 0, not 2"),
        (field(2, field(10, field(1, field(8, field(2, b"\xff"))))), "positive ends in the middle of a field"),
        (
            field(2, field(10, field(1, field(8, field(2, b"\xff" * 11))))),
            "positive has a number of more than 64 bits",
        ),
        (field(2, field(5, field(1, b"\x19\x01"))), "NumberDataPoint ends in the middle of a field"),
    ],
)
def test_damage_is_said_with_its_place(metrics: bytes, reason: str) -> None:
    made, files = make_metrics(request_of(metrics))
    assert files == {}
    ((_, said),) = made.failed
    assert said.startswith("not an OTLP metrics request: byte ")
    assert said.endswith(reason)


def test_metrics_without_points_leave_no_row() -> None:
    made, files = make_metrics(request_of(field(2, field(1, b"name")) + field(2, field(5, b""))))
    assert (len(made.done), made.failed, made.segments, files) == (1, (), (), {})


def test_a_point_of_many_tiny_buckets_is_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (otlp, pieces):
        monkeypatch.setattr(module, "MAX_MEMORY", 1 << 20)
    data = request_of(field(2, field(10, field(1, field(8, field(2, bytes(100_000)))))))
    made, _ = make_metrics(data)
    ((_, reason),) = made.failed
    assert reason.startswith("a ExponentialHistogramDataPoint of 100")
    assert "needs 2 MB of memory for 100006 parts; the limit is 64 MB of input and 1 MB of memory" in reason


def test_a_file_too_large_to_be_read_at_once_is_cut_between_points(monkeypatch: pytest.MonkeyPatch) -> None:
    data = gauge(*(([A, (b"n", ("int_value", number))], number) for number in range(60)), resource=[B])
    points = b"".join(
        field(1, b"\x19" + bytes([n + 1]) + bytes(7) + b"\x31" + bytes([n]) + bytes(7)) for n in range(60)
    )
    twice = request_of(field(2, field(1, b"twice") + field(7, field(1, b"")) + field(5, points)))
    for module in (otlp, pieces):
        monkeypatch.setattr(module, "MAX_BYTES", 400)
    for given in (data, twice):
        made, files = make_metrics(given)
        assert made.failed == ()
        assert len(made.segments) > 1
        found, wanted = actual(made, files), expected([decoded(given)])
        assert_same(*(sorted(rows, key=lambda row: (row["series"], row["timestamp"])) for rows in (found, wanted)))


def test_only_columns_that_a_row_fills_are_there() -> None:
    made, files = make_metrics(gauge(([A], 1), ([A], 2)))
    (segment,) = made.segments
    names = [column.name for column in segment.columns]
    assert names == pq.ParquetFile(io.BytesIO(files[segment.path])).schema_arrow.names
    assert {"start_timestamp", "temporality", "monotonic", "value", "count", "exemplars", "metadata"}.isdisjoint(names)
    assert {"int_value", "is_int", "attributes.a"} <= set(names)


def test_attributes_of_many_series_are_placed_run_by_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "MAX_OWNERS", 20)
    chance = random.Random(3)
    values: list[Any] = [
        ("string_value", b"x"),
        ("int_value", 5),
        ("double_value", 0.5),
        ("bool_value", True),
        ("", None),
    ]
    points = []
    for number in range(300):
        pairs = [(b"id", ("string_value", str(number % 50).encode())), (b"v", values[number % 50 % 5])]
        points.append(([*pairs, (b"rare", ("int_value", 1))] if number % 150 == 0 else pairs, chance.random()))
    made, files = make_metrics(gauge(*points))
    wanted = expected([decoded(gauge(*points))])
    assert_same(actual(made, files), wanted)
    (segment,) = made.segments
    assert series_rows(segment, files) == expected_series(wanted)


def test_the_index_learns_names_labels_and_services() -> None:
    request = request_type()()
    resource_metrics = request.resource_metrics.add()
    add_pairs(resource_metrics.resource.attributes, [(b"service.name", ("string_value", b"cart"))])
    metric = resource_metrics.scope_metrics.add().metrics.add(name=b"cpu.time", unit=b"s")
    metric.sum.is_monotonic = True
    add_pairs(metric.sum.data_points.add(time_unix_nano=START, as_int=1).attributes, [A])
    (segment,) = make_metrics(request.SerializeToString())[0].segments
    statistics = dict(segment.statistics)
    assert statistics.pop("side_bytes")["series.parquet"] > 0
    assert statistics == {
        "services": ["cart"],
        "service_count": 1,
        "metrics": ["cpu.time"],
        "metric_count": 1,
        "labels": ["a"],
        "label_count": 1,
        "key_count": 2,
    }
    names = ("cpu.time", "cpu.time_seconds_total", "cpu_time_seconds_total")
    wanted = {digest64("metric_name"), digest64("service_name"), digest64("service_name", "cart")}
    wanted |= {digest64("metric_name", name) for name in names}
    wanted |= {digest64("attributes.a"), digest64("resource.service.name")}
    assert set(segment.fingerprints) == wanted


def test_job_and_instance_win_over_attributes_and_equal_keys_are_joined() -> None:
    def text(value: str) -> tuple[str, bytes]:
        return "string_value", value.encode()

    resource = [
        (b"service.name", text("cart")),
        (b"service.namespace", text("shop")),
        (b"service.instance.id", text("i")),
    ]
    own = [
        (b"job", text("mine")),
        (b"k", text("1")),
        (b"k", ("int_value", 2)),
        (b"", text("nameless")),
        (b"no", text("")),
    ]
    data = gauge((own, 1), resource=resource)
    made, files = make_metrics(data)
    (segment,) = made.segments
    (row,) = series_rows(segment, files)
    assert [(label["name"], label["value"]) for label in row["labels"]] == [
        ("", "nameless"),
        ("instance", "i"),
        ("job", "shop/cart"),
        ("k", "1;2"),
    ]
    assert [row] == expected_series(expected([decoded(data)]))


def test_regular_counters_take_little_room() -> None:
    request = request_type()()
    scope_metrics = request.resource_metrics.add().scope_metrics.add()
    chance = random.Random(5)
    totals = [0] * 200
    for second in range(0, 3600, 15):
        data = scope_metrics.metrics.add(name=b"requests").sum
        data.aggregation_temporality, data.is_monotonic = 2, True
        for number in range(200):
            totals[number] += chance.randrange(40)
            point = data.data_points.add(time_unix_nano=START + second * 10**9, as_int=totals[number])
            add_pairs(point.attributes, [(b"route", ("string_value", f"/{number}".encode()))])
    raw = request.SerializeToString()
    made, files = make_metrics(raw)
    stored = sum(map(len, files.values()))
    assert stored / made.segments[0].rows <= 2.5
    assert stored * 10 <= len(raw)
