"""What a log row that is sent twice is known by: the digest of the message that brought it, and its place there."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lakerunner.model.protobuf import delimited
from lakerunner.model.streams.log_record import LOKI_STREAM, LOKI_STREAM_SERVICE
from lakerunner.pipeline.transcode.columns import GUESSED
from lakerunner.pipeline.transcode.formats import TRANSCODERS
from pipeline.otlp_oracle import Row, actual, make, raw_of, request_type
from pipeline.otlp_random import thorough
from pipeline.test_read_pieces import START, bounded, request_of
from pipeline.test_segments_random import requests

MASK = 2**64 - 1


def digest(data: bytes) -> int:
    """As pipeline/read/memory.py has it, in plain Python, as an int64."""

    def folded(one: int, other: int) -> int:
        product = one * other
        return (product ^ product >> 64) & MASK

    value = folded(0x9E3779B97F4A7C15, len(data) ^ 0xE7037ED1A0B428DB)
    words = [int.from_bytes(data[at : at + 8], "little") for at in range(0, len(data), 8)]
    for number, word in enumerate(words):
        last = number == len(words) - 1
        value = folded(value ^ word, 0x8EBC6AF09C88C6E3 if last else 0xA0761D6478BD642F)
    return value - (1 << 64) if value >> 63 else value


def rows_of(*contents: bytes) -> list[Row]:
    made, files = make(*(raw_of(data, f"logs_{n}.binpb") for n, data in enumerate(contents)))
    assert made.failed == ()
    return actual(made.segments, files)


def sent(row: Row) -> tuple[int, int]:
    return row["delivery"], row["delivery_row"]


def wanted(request: Any) -> list[tuple[int, int]]:
    """Of all records of these resources."""
    return [
        (digest(resource_logs.SerializeToString()), number)
        for resource_logs in request.resource_logs
        for number in range(sum(len(scope_logs.log_records) for scope_logs in resource_logs.scope_logs))
    ]


def test_a_row_knows_the_message_that_brought_it_and_its_place_in_it() -> None:
    request = request_of(resources=3, records=4)
    second = request.resource_logs[1].scope_logs.add()  # its records are counted on
    second.log_records.add(time_unix_nano=START + 10).body.string_value = b"message 10"
    rows = rows_of(request.SerializeToString())
    assert sorted(map(sent, rows)) == sorted(wanted(request))
    last = next(row for row in rows if row["message"] == "message 10")
    assert sent(last) == (digest(request.resource_logs[1].SerializeToString()), 4)


def test_what_is_sent_again_is_known_whatever_it_stands_beside() -> None:
    request = request_of(resources=3, records=2)
    again = request_type()()
    again.resource_logs.append(request.resource_logs[2])
    again.resource_logs.append(request.resource_logs[0])
    rows = rows_of(request.SerializeToString())
    repeated = rows_of(again.SerializeToString())
    assert {sent(row) for row in repeated} < {sent(row) for row in rows}
    assert len({sent(row) for row in repeated}) == 4


@pytest.mark.parametrize("mark", [LOKI_STREAM, LOKI_STREAM_SERVICE])
def test_the_mark_of_a_loki_stream_is_no_part_of_the_delivery(mark: str) -> None:
    """Releases before the mark wrote the same message without it."""
    request = request_of(resources=3, records=2)
    request.resource_logs[1].ClearField("schema_url")
    own = [resource_logs.SerializeToString() for resource_logs in request.resource_logs]
    field = delimited(b"\x1a", mark.encode())
    for head, tail, is_mark in ((field, b"", True), (b"", field, False), (delimited(b"\x1a", b"urn:x"), b"", False)):
        marked = [own[0], head + own[1] + tail, own[2]]
        rows = rows_of(b"".join(delimited(b"\x0a", message) for message in marked))
        second = digest(own[1] if is_mark else marked[1])
        assert sorted(map(sent, rows)) == sorted(
            (one, row) for one in (digest(own[0]), second, digest(own[2])) for row in range(2)
        )


def test_equal_records_of_one_message_are_told_apart() -> None:
    request = request_type()()
    scope_logs = request.resource_logs.add().scope_logs.add()
    for _ in range(3):
        scope_logs.log_records.add(time_unix_nano=START).body.string_value = b"twice is not once"
    assert [row["delivery_row"] for row in rows_of(request.SerializeToString())] == [0, 1, 2]


@pytest.mark.parametrize("change", ["message", "time", "service", "one more"])
def test_another_content_is_another_delivery(change: str) -> None:
    one, other = (request_of(resources=1, records=3) for _ in range(2))
    scope_logs = other.resource_logs[0].scope_logs[0]
    match change:
        case "message":
            scope_logs.log_records[1].body.string_value = b"message X"
        case "time":
            scope_logs.log_records[1].time_unix_nano += 1
        case "service":
            other.resource_logs[0].resource.attributes[0].value.string_value = b"service 1"
        case _:
            scope_logs.log_records.add(time_unix_nano=START)
    deliveries = [{row["delivery"] for row in rows_of(r.SerializeToString())} for r in (one, other)]
    assert list(map(len, deliveries)) == [1, 1]
    assert deliveries[0] != deliveries[1]


@thorough(30)
@given(requests(), requests())
def test_random_requests_are_the_same_deliveries_each_time(one: Any, two: Any) -> None:
    """What is odd is written anew before it is read, so that its digest is that of other bytes."""
    data = one.SerializeToString() + two.SerializeToString()
    assume(data)
    rows, again = rows_of(data), rows_of(data)
    assert list(map(sent, rows)) == list(map(sent, again))
    places: dict[int, list[int]] = {}
    for row in rows:
        places.setdefault(row["delivery"], []).append(row["delivery_row"])
    for found in places.values():
        assert set(found) == set(range(max(found) + 1))


@thorough(10)
@given(st.integers(4000, 12_000))
def test_pieces_of_an_object_are_the_same_deliveries_each_time(memory: int) -> None:
    data = request_of(resources=2, records=40).SerializeToString()
    with pytest.MonkeyPatch.context() as patch:
        bounded(patch, memory)
        one, two = ([sent(row) for row in rows_of(data)] for _ in range(2))
    assert one == two
    assert len(set(one)) == 80


def test_other_formats_have_the_digests_of_the_otlp_that_is_made_of_them() -> None:
    data = b'{"timestamp": "2026-01-01T00:00:00Z", "message": "a", "service": "x"}\n' * 3
    one, two = (TRANSCODERS["jsonl"]("logs", memoryview(data), GUESSED).require_complete() for _ in range(2))
    rows = rows_of(one)
    assert [row["delivery_row"] for row in rows] == [0, 1, 2]
    assert {row["delivery"] for row in rows} == {
        digest(request_type().FromString(one).resource_logs[0].SerializeToString())
    }
    assert list(map(sent, rows)) == list(map(sent, rows_of(two)))
