"""What segments of traces promise beside their rows: order, times, the side index, what is refused, what is mended."""

from __future__ import annotations

import io
import random
from typing import Any

import pyarrow.parquet as pq
import pytest

from lakerunner.model.segment import INCOMPLETE, digest64, field_fingerprints
from lakerunner.model.signal import TRACES
from lakerunner.model.time import HOUR_NS
from lakerunner.pipeline.read.wire import varint
from pipeline.otlp_oracle import MODIFIED_NS, Row, actual, make, raw_of
from pipeline.traces_oracle import expected, expected_index, index_of, request_type, with_items_by_key

START = 1_760_000_000 * 10**9 // HOUR_NS * HOUR_NS


def spans_of(request: Any, service: str = "shop") -> Any:
    resource_spans = request.resource_spans.add()
    resource_spans.resource.attributes.add(key=b"service.name").value.string_value = service.encode()
    return resource_spans.scope_spans.add().spans


def rows_of(request: Any) -> list[Row]:
    made, files = make(raw_of(request.SerializeToString()), spec=TRACES)
    assert made.failed == ()
    return list(with_items_by_key(actual(made.segments, files)))


def field(number: int, payload: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def test_a_span_stands_where_it_began_else_where_it_ended_else_with_its_object() -> None:
    request = request_type()()
    spans = spans_of(request)
    spans.add(name=b"both", start_time_unix_nano=START + 9, end_time_unix_nano=START + 5)
    spans.add(name=b"start", start_time_unix_nano=START + 3)
    spans.add(name=b"end", end_time_unix_nano=START + 4)
    spans.add(name=b"neither")
    found = {row["name"]: (row["timestamp"], row["end_timestamp"], row["duration"]) for row in rows_of(request)}
    assert found == {
        "both": (START + 9, START + 5, -4),
        "start": (START + 3, None, None),
        "end": (START + 4, START + 4, None),
        "neither": (MODIFIED_NS, None, None),
    }


def test_ids_are_sorted_by_their_bytes_whatever_their_length() -> None:
    ids = [b"", b"\0", b"\0\0", b"a" * 8, b"a" * 8 + b"\0", b"a" * 15 + b"\xff", b"a" * 16, b"\xff" * 16, b"b"]
    for longer in ([], [b"a" * 16 + b"\0", b"a" * 17]):
        request = request_type()()
        spans = spans_of(request)
        shuffled = [*ids, *longer] * 3
        random.Random(5).shuffle(shuffled)
        for number, trace_id in enumerate(shuffled):
            spans.add(trace_id=trace_id, start_time_unix_nano=START + number % 7, name=str(number).encode())
        rows = rows_of(request)
        assert [(row["trace_id"], row["name"]) for row in rows] == [
            (row["trace_id"], row["name"]) for row in expected([request])
        ]
        assert [row["trace_id"] for row in rows] == sorted(shuffled)


def test_the_index_has_a_row_for_each_trace() -> None:
    request = request_type()()
    for number in range(60):
        spans = spans_of(request, f"s{number:02}")
        spans.add(trace_id=b"many", start_time_unix_nano=START + number, end_time_unix_nano=START + 100 - number)
    spans = spans_of(request, "late")
    spans.add(trace_id=b"no root", parent_span_id=b"x", start_time_unix_nano=START + 2).status.code = 2
    spans.add(trace_id=b"no root", parent_span_id=b"x", start_time_unix_nano=START + 1).status.code = 1
    spans.add(trace_id=b"two roots", name=b"second", start_time_unix_nano=START + 9, parent_span_id=b"")
    spans.add(trace_id=b"two roots", name=b"child", start_time_unix_nano=START + 1, parent_span_id=b"y")
    spans.add(trace_id=b"two roots", name=b"first", start_time_unix_nano=START + 5)
    made, files = make(raw_of(request.SerializeToString()), spec=TRACES)
    (segment,) = made.segments
    index = index_of(segment, files)
    assert index == expected_index(actual(made.segments, files))
    many, rootless, two = index
    assert many["services"] == [f"s{number:02}" for number in range(50)]
    assert (many["first_row"], many["spans"]) == (0, 60)
    assert (many["start_timestamp"], many["end_timestamp"]) == (START, START + 100)
    assert (many["root_service_name"], many["root_name"]) == ("s00", "")
    assert (rootless["root_service_name"], rootless["root_name"], rootless["errors"]) == (None, None, 1)
    assert (rootless["first_row"], rootless["end_timestamp"]) == (60, None)
    assert (two["root_name"], two["services"]) == ("first", ["late"])
    side = files[segment.side_path("traces.parquet")]
    assert segment.statistics["side_bytes"] == {"traces.parquet": len(side)}
    sides = pq.ParquetFile(io.BytesIO(side)).metadata.row_group(0)
    assert [column.column_index for column in sides.sorting_columns] == [0]
    assert (sides.column(0).statistics.min, sides.column(0).statistics.max) == (b"many", b"two roots")


def test_the_file_has_row_groups_blooms_and_its_order() -> None:
    request = request_type()()
    spans = spans_of(request)
    for number in range(20_001):
        spans.add(trace_id=number.to_bytes(16, "big"), start_time_unix_nano=START)
    spans[0].events.add(name=b"so that there is a column of events")
    made, files = make(raw_of(request.SerializeToString()), spec=TRACES)
    (segment,) = made.segments
    metadata = pq.ParquetFile(io.BytesIO(files[segment.path])).metadata
    assert [metadata.row_group(number).num_rows for number in range(2)] == [20_000, 1]
    names = [metadata.row_group(0).column(n).path_in_schema for n in range(metadata.num_columns)]
    assert [names[c.column_index] for c in metadata.row_group(0).sorting_columns] == ["trace_id", "timestamp"]
    assert metadata.row_group(0).column(names.index("trace_id")).statistics.max == (19_999).to_bytes(16, "big")
    assert "events.list.element.attributes.key_value.key" in names
    again, others = make(raw_of(request.SerializeToString()), spec=TRACES)
    assert (again, others) == (made, files)


def test_services_and_span_names_prune() -> None:
    request = request_type()()
    spans_of(request, "cart").add(name=b"GET /", start_time_unix_nano=START)
    span = spans_of(request, "pay").add(name=b"POST /", start_time_unix_nano=START)
    span.attributes.add(key=b"http.method").value.string_value = b"POST"
    spans_of(request, "next hour").add(name=b"later", start_time_unix_nano=START + HOUR_NS)
    made, _ = make(raw_of(request.SerializeToString()), spec=TRACES)
    first, second = made.segments
    wanted = {*field_fingerprints("service_name", ["cart", "pay"]), *field_fingerprints("name", ["GET /", "POST /"])}
    assert set(first.fingerprints) == wanted | {digest64("attributes.http.method"), digest64("resource.service.name")}
    assert digest64("name", "later") in second.fingerprints
    told = {name: first.statistics[name] for name in ("services", "service_count", "names", "name_count")}
    assert told == {"services": ["cart", "pay"], "service_count": 2, "names": ["GET /", "POST /"], "name_count": 2}


@pytest.mark.parametrize(("names", "complete"), [(1997, True), (1998, False)])
def test_too_many_names_are_not_listed(names: int, complete: bool) -> None:
    request = request_type()()
    spans = request.resource_spans.add().scope_spans.add().spans
    for number in range(names):
        spans.add(name=str(number).encode(), start_time_unix_nano=START)
    made, _ = make(raw_of(request.SerializeToString()), spec=TRACES)
    (segment,) = made.segments
    assert (segment.fingerprints != (INCOMPLETE,)) == complete
    assert (len(segment.statistics["names"]), segment.statistics["name_count"]) == (100, names)


def test_what_has_no_place_is_kept_beside_it_in_events_and_links_too() -> None:
    request = request_type()()
    span = spans_of(request).add(name=b"a\xff", trace_state=b"\xfe", start_time_unix_nano=2**64 - 1)
    span.end_time_unix_nano = 2**63 - 1
    span.status.message = b"\xc0"
    event = span.events.add(name=b"\xff", time_unix_nano=2**63)
    event.attributes.add(key=b"k\xff").value.string_value = b"\xff"
    span.links.add(trace_state=b"x\xff")
    (row,) = rows_of(request)
    kept = row["attributes"]
    assert (row["name"], row["trace_state"], row["status_message"]) == ("a\ufffd", "\ufffd", "\ufffd")
    assert kept["lakerunner.name"] == ['{"bytesValue":"Yf8="}']
    assert kept["lakerunner.trace_state"] == ['{"bytesValue":"/g=="}']
    assert kept["lakerunner.status.message"] == ['{"bytesValue":"wA=="}']
    assert kept["lakerunner.start_time_unix_nano"] == ['"18446744073709551615"']
    assert kept["lakerunner.end_time_unix_nano"] == ['"9223372036854775807"']
    assert (row["timestamp"], row["end_timestamp"], row["duration"]) == (MODIFIED_NS, None, None)
    (event_found,), (link_found,) = row["events"], row["links"]
    assert (event_found["timestamp"], event_found["name"]) == (None, "\ufffd")
    assert event_found["attributes"] == {
        "k\ufffd": ['{"bytesValue":"/w=="}'],
        "lakerunner.key.k\ufffd": ['{"bytesValue":"a/8="}'],
        "lakerunner.name": ['{"bytesValue":"/w=="}'],
        "lakerunner.time_unix_nano": ['"9223372036854775808"'],
    }
    assert link_found["attributes"] == {"lakerunner.trace_state": ['{"bytesValue":"eP8="}']}


def test_the_last_of_many_texts_in_one_field_wins() -> None:
    """However many there are: room is made for the texts that count."""
    names = [f"name {number}".encode() for number in range(5000)]

    def many(number: int) -> bytes:
        return b"".join(field(number, name) for name in names)

    status = b"".join(field(15, field(2, name)) for name in names)
    span = many(3) + many(5) + field(11, many(2)) + field(13, many(3)) + status
    made, files = make(raw_of(field(1, field(2, field(2, span)))), spec=TRACES)
    (row,) = with_items_by_key(actual(made.segments, files))
    found = [row["trace_state"], row["name"], row["status_message"], row["events"][0]["name"]]
    assert [*found, row["links"][0]["trace_state"]] == ["name 4999"] * 5
