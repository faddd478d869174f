"""Parquet to OTLP: types kept, nested columns as dotted names, however small the row groups."""

from __future__ import annotations

import io
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakerunner.pipeline.transcode import results
from pipeline.transcode_oracle import SPAN_ID, TRACE_ID, logs_request, reason, same, transcoded

NS = 1_700_000_000_123_456_789


def file(columns: dict[str, Any], **options: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out, **options)
    return out.getvalue()


@pytest.mark.parametrize("row_group_size", [1, 2, 100])
@pytest.mark.parametrize("use_dictionary", [True, False])
def test_fields_and_types_are_kept(row_group_size: int, use_dictionary: bool) -> None:
    point = pa.struct([("x", pa.int64()), ("in", pa.struct([("y", pa.string())]))])
    columns = {
        "Timestamp": pa.array([NS, None, -5], pa.timestamp("ns", "Europe/Berlin")),
        "message": ["a", "b", None],
        "level": pa.array(["info", None, "info"]).dictionary_encode(),
        "trace_id": pa.array([TRACE_ID, b"short", None], pa.binary()),
        "span_id": [SPAN_ID.hex(), None, None],
        "service": ["cart", "cart", "cart"],
        "point": pa.array([{"x": 1, "in": {"y": "z"}}, None, {"x": None, "in": None}], point),
        "tags": pa.array([[("k", 1), ("l", None)], None, []], pa.map_(pa.string(), pa.int64())),
        "list": [[1, None], [], None],
        "times": pa.array([[NS], None, None], pa.list_(pa.timestamp("ns"))),
        "structs": [[{"a": 1, "b": None}], None, [None]],
        "maps": pa.array([[[("k", "v")]], None, None], pa.list_(pa.map_(pa.string(), pa.string()))),
        "decimal": [Decimal("12345678901234567890.10"), None, None],
        "bytes": [b"\0\xff", None, b""],
        "unsigned": pa.array([2**64 - 1, 7, None], pa.uint64()),
        "small": pa.array([-8, None, None], pa.int8()),
        "float": pa.array([1.5, None, None], pa.float32()),
        "half": pa.array([0.25, None, None], pa.float16()),
        "yes": [True, False, None],
        "day": [date(2024, 2, 29), None, None],
        "clock": [time(1, 2, 3, 4), None, None],
        "long": pa.array([1500, None, None], pa.duration("ms")),
        "when": pa.array([1_700_000_000_123, None, None], pa.timestamp("ms", "UTC")),
        "local": pa.array([1_700_000_000_123_456, None, None], pa.timestamp("us")),
        "none": pa.nulls(3),
    }
    first = {
        "point.x": 1,
        "point.in.y": "z",
        "tags.k": 1,
        "tags.l": None,
        "list": [1, None],
        "times": ["2023-11-14T22:13:20.123456789"],
        "structs": [{"a": 1}],
        "maps": [{"k": "v"}],
        "decimal": "12345678901234567890.10",
        "bytes": b"\0\xff",
        "unsigned": 2**64 - 1,
        "small": -8,
        "float": 1.5,
        "half": 0.25,
        "yes": True,
        "day": "2024-02-29",
        "clock": "01:02:03.000004",
        "long": "1500ms",
        "when": "2023-11-14T22:13:20.123Z",
        "local": "2023-11-14T22:13:20.123456",
    }
    info = {"severity_text": "info", "severity_number": 9}
    same(
        transcoded("parquet", "logs", file(columns, row_group_size=row_group_size, use_dictionary=use_dictionary)),
        logs_request(
            ("cart", {"time_unix_nano": NS, "body": "a", "trace_id": TRACE_ID, "span_id": SPAN_ID, **info}, first),
            ("cart", {"body": "b"}, {"list": [], "trace_id": b"short", "unsigned": 7, "yes": False}),
            ("cart", info, {"Timestamp": "1969-12-31T23:59:59.999999995Z", "structs": [None], "bytes": b""}),
        ),
    )


@pytest.mark.parametrize(("unit", "factor"), [("s", 10**9), ("ms", 10**6), ("us", 1000), ("ns", 1)])
@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Kolkata"])
def test_a_timestamp_of_any_unit_is_exact_and_never_guessed(unit: str, factor: int, zone: str | None) -> None:
    number = 86_400 * 10**9 // factor + 1  # so small that guessing would take it for another unit
    data = file({"ts": pa.array([number], pa.timestamp(unit, zone))})
    same(transcoded("parquet", "logs", data), logs_request((None, {"time_unix_nano": number * factor}, {})))


def test_integers_texts_and_decimals_are_times_too() -> None:
    for column in (pa.array([NS]), pa.array([str(NS)]), pa.array([Decimal("1700000000.123456789")])):
        found = transcoded("parquet", "logs", file({"ts": column}))
        same(found, logs_request((None, {"time_unix_nano": NS}, {})))


def test_a_struct_of_parts_is_found_under_its_dotted_name() -> None:
    found = transcoded(
        "parquet", "logs", file({"service": [{"name": "cart", "version": "1"}], "log": [{"level": "warn"}]})
    )
    wanted = logs_request(
        ("cart", {"severity_text": "warn", "severity_number": 13}, {"service.version": "1"}),
    )
    same(found, wanted)


def test_columns_that_are_fields_as_a_whole_are_not_taken_apart() -> None:
    columns = {
        "attributes": pa.array([[("a", "b")]], pa.map_(pa.string(), pa.string())),
        "resource": [{"service.name": "cart", "n": 1}],
    }
    wanted = logs_request((None, {}, {"a": "b"}))
    pairs = wanted.resource_logs[0].resource.attributes
    pairs.add(key="service.name").value.string_value = "cart"
    pairs.add(key="n").value.int_value = 1
    same(transcoded("parquet", "logs", file(columns)), wanted)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"PAR1", "after row 0: cannot read Parquet: "),
        (b"not parquet at all, but long enough to look", "after row 0: cannot read Parquet: "),
        (file({"a": list(range(5000))}, compression="zstd")[:-20], "after row 0: cannot read Parquet"),
    ],
)
def test_what_is_no_parquet_is_refused(data: bytes, expected: str) -> None:
    assert reason("parquet", "logs", data).startswith(expected)


def test_text_that_is_not_utf8_is_refused() -> None:
    bad = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")])
    for options in ({"use_dictionary": True}, {"use_dictionary": False}):
        said = reason("parquet", "logs", file({"a": bad}, **options))
        assert said.startswith("after row 0: cannot read Parquet: ")
        assert "utf-8" in said.lower()


def test_a_damaged_page_is_refused_with_the_row() -> None:
    data = bytearray(file({"a": list(range(5000)), "b": ["x" * 50] * 5000}, compression="gzip", row_group_size=2500))
    middle = len(data) // 2
    data[middle - 200 : middle + 200] = bytes(400)
    assert "cannot read Parquet" in reason("parquet", "logs", bytes(data))


def test_a_dictionary_cannot_unfold_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "MAX_BYTES", 8 << 20)
    indices = pa.array([0] * 200_000, pa.int32())
    data = file({"msg": pa.DictionaryArray.from_arrays(indices, pa.array(["x" * 1_000_000]))})
    assert len(data) < 1 << 20
    assert reason("parquet", "logs", data) == "the file expands to more than 8 MB of OTLP: send smaller files"


def test_an_empty_table_holds_no_records() -> None:
    found = transcoded("parquet", "logs", file({"a": pa.array([], pa.int64())}))
    assert [len(resource.scope_logs) for resource in found.resource_logs] == [0]


SCALARS = st.fixed_dictionaries(
    {
        "x-text": st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=9),
        "x-int": st.none() | st.integers(-(2**63), 2**63 - 1),
        "x-double": st.none() | st.floats(allow_nan=False),
        "x-bool": st.none() | st.booleans(),
        "x-bytes": st.none() | st.binary(max_size=9),
        "x-list": st.none() | st.lists(st.none() | st.integers(-5, 5), max_size=3),
        "timestamp": st.none() | st.integers(1, 2**62),
    }
)
TYPES = {
    "x-text": pa.string(),
    "x-int": pa.int64(),
    "x-double": pa.float64(),
    "x-bool": pa.bool_(),
    "x-bytes": pa.binary(),
    "x-list": pa.list_(pa.int64()),
    "timestamp": pa.timestamp("ns", "UTC"),
}


@settings(max_examples=60, deadline=None)
@given(st.lists(SCALARS, min_size=1, max_size=8), st.integers(1, 8))
def test_any_rows_come_back_equal(rows: list[dict[str, Any]], row_group_size: int) -> None:
    columns = {name: pa.array([row[name] for row in rows], kind) for name, kind in TYPES.items()}
    wanted = []
    for row in rows:
        fields = {} if row["timestamp"] is None else {"time_unix_nano": row["timestamp"]}
        kept = {name: value for name, value in row.items() if value is not None and name != "timestamp"}
        wanted.append((None, fields, kept))
    same(transcoded("parquet", "logs", file(columns, row_group_size=row_group_size)), logs_request(*wanted))


def test_dates_of_python_say_the_same_as_ours() -> None:
    when = datetime(2024, 2, 29, 12, 30, 1, 5, UTC)
    same(
        transcoded("parquet", "logs", file({"ts": [when], "x": [when]})),
        logs_request(
            (None, {"time_unix_nano": int(when.timestamp()) * 10**9 + 5000}, {"x": "2024-02-29T12:30:01.000005Z"})
        ),
    )
