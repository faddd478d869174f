"""What make_segments promises: one segment per hour, in order, the same every time, whatever the neighbours are."""

from __future__ import annotations

import io
import random
import struct
from typing import Any

import pyarrow.parquet as pq
import pytest

from lakerunner.model.segment import INCOMPLETE, digest64, field_fingerprints
from lakerunner.model.signal import LOGS
from lakerunner.model.source import SourceObject
from lakerunner.model.streams.stream_table import STREAM_TABLE
from lakerunner.model.time import HOUR_NS, TimeRange
from lakerunner.pipeline.make_segments import Raw, make_segments
from lakerunner.pipeline.steps import order
from lakerunner.pipeline.warm import warm_ingest
from pipeline.otlp_oracle import (
    MODIFIED_NS,
    ORGANIZATION,
    actual,
    assert_same,
    decoded,
    expected,
    make,
    raw_of,
    request_type,
)

NOT = "not an OTLP logs request:"
START = 1_760_000_000 * 10**9 // HOUR_NS * HOUR_NS


def request_of(rows: list[tuple[str, int, str]]) -> bytes:
    """A record for each (service, time, message), each with a resource of its own."""
    request = request_type()()
    for service, time, message in rows:
        resource_logs = request.resource_logs.add()
        resource_logs.resource.attributes.add(key=b"service.name").value.string_value = service.encode()
        record = resource_logs.scope_logs.add().log_records.add(time_unix_nano=time)
        record.body.string_value = message.encode()
    return bytes(request.SerializeToString())


def contents(segments: Any, files: dict[str, bytes]) -> list[tuple[str, int, str]]:
    return [(row["service_name"], row["timestamp"], row["message"]) for row in actual(segments, files)]


def test_each_hour_gets_its_segment_sorted_by_service_and_time() -> None:
    chance = random.Random(4)
    rows = [(chance.choice(["b", "a", "é", "Z"]), START + chance.randrange(3 * HOUR_NS), str(n)) for n in range(500)]
    made, files = make(raw_of(request_of(rows)))
    assert len(made.segments) == 3
    wanted = sorted(rows, key=lambda row: (row[1] // HOUR_NS, row[0].encode(), row[1]))
    assert contents(made.segments, files) == wanted
    for place, segment in enumerate(made.segments):
        assert START + place * HOUR_NS <= segment.time.start_ns < segment.time.end_ns <= START + (place + 1) * HOUR_NS
        times = [time for _, time, _ in contents([segment], files)]
        assert segment.time == TimeRange(min(times), max(times) + 1)
        assert set(files) >= {segment.path}


def test_rows_equal_in_service_and_time_keep_the_order_of_the_input() -> None:
    rows = [("a", START + number % 2, str(number)) for number in range(50)]
    made, files = make(raw_of(request_of(rows)))
    assert [message for _, _, message in contents(made.segments, files)] == [
        str(number) for number in [*range(0, 50, 2), *range(1, 50, 2)]
    ]


def test_the_last_instant_of_an_hour_belongs_to_it() -> None:
    made, _ = make(raw_of(request_of([("a", START + HOUR_NS - 1, "in"), ("a", START + HOUR_NS, "next")])))
    assert [segment.time.start_ns for segment in made.segments] == [START + HOUR_NS - 1, START + HOUR_NS]


@pytest.mark.parametrize(("hours", "segments"), [(48, 48), (49, 48), (200, 48)])
def test_many_hours_share_48_segments_of_neighbours(hours: int, segments: int) -> None:
    rows = [("a", START + number * 7 * HOUR_NS, str(number)) for number in range(hours)]
    made, files = make(raw_of(request_of(rows)))
    assert len(made.segments) == len({segment.id for segment in made.segments}) == segments
    assert contents(made.segments, files) == rows
    sizes = [segment.rows for segment in made.segments]
    assert max(sizes) - min(sizes) <= 1


def test_times_fall_back_to_observed_then_to_the_object() -> None:
    request = request_type()()
    records = request.resource_logs.add().scope_logs.add().log_records
    records.add(time_unix_nano=START + 5, observed_time_unix_nano=START + 9)
    records.add(observed_time_unix_nano=START + 7)
    records.add()
    records.add(time_unix_nano=2**63 - 1, observed_time_unix_nano=2**64 - 1)
    made, files = make(raw_of(request.SerializeToString(), modified_ns=START + 8))
    rows = actual(made.segments, files)
    assert [(row["timestamp"] - START, row["observed_timestamp"]) for row in rows] == [
        (5, START + 9),
        (7, START + 7),
        (8, None),
        (8, None),
    ]
    assert rows[3]["attributes"] == {
        "lakerunner.time_unix_nano": ['"9223372036854775807"'],
        "lakerunner.observed_time_unix_nano": ['"18446744073709551615"'],
    }


def test_the_same_objects_give_the_same_segments_in_whatever_order() -> None:
    raws = [raw_of(request_of([("s", START + n, f"{n}-{m}") for m in range(50)]), f"file{n}") for n in range(6)]
    made, files = make(*raws)
    again, files_again = make(*reversed(raws), raws[2])
    assert made == again
    assert files == files_again
    assert [source.key for source in made.done] == [f"file{n}" for n in range(6)]


def test_ids_come_from_the_work() -> None:
    data = request_of([("s", START, "x"), ("s", START + HOUR_NS, "y")])
    ids = [segment.id for segment in make(raw_of(data))[0].segments]
    others = [
        make(raw_of(data, "another key"))[0],
        make_segments(LOGS, ORGANIZATION, "another", [raw_of(data)], lambda *_: None),
        make(Raw(SourceObject("bucket", "logs.binpb", "another etag", 1, 1), memoryview(data)))[0],
    ]
    found = [*ids, *(segment.id for made in others for segment in made.segments)]
    assert len(set(found)) == len(found) == 8


def test_a_damaged_object_leaves_its_neighbours_as_they_would_be_without_it() -> None:
    good = [raw_of(request_of([("s", START + n, str(n))]), f"good{n}") for n in range(3)]
    whole = request_of([("s", START, "damaged")])
    bad = [raw_of(whole[:-1], "cut"), raw_of(b"", "empty"), raw_of(whole + b"\xff", "longer")]
    made, files = make(bad[0], good[2], bad[1], good[0], good[1], bad[2])
    alone, files_alone = make(*good)
    assert made.segments == alone.segments
    assert files == files_alone
    assert made.done == alone.done
    assert {source.key: reason for source, reason in made.failed} == {
        "cut": f"{NOT} byte 0: ExportLogsServiceRequest has a field that is longer than the rest of it",
        "empty": "the file is empty",
        "longer": f"{NOT} byte {len(whole)}: ExportLogsServiceRequest ends in the middle of a field",
    }


def test_only_damaged_objects_make_nothing() -> None:
    made, files = make(raw_of(b"\x0a", "a"), raw_of(b"", "b"))
    assert (made.segments, made.done, files, len(made.failed)) == ((), (), {}, 2)


def test_writable_and_read_only_bytes_are_the_same() -> None:
    data = request_of([("s", START, "x")])
    source = SourceObject("bucket", "logs.binpb", "etag", len(data), MODIFIED_NS)
    assert make(Raw(source, memoryview(bytearray(data)))) == make(Raw(source, memoryview(data)))


def test_text_that_is_not_utf8_is_kept_beside_its_field() -> None:
    request = request_type()()
    resource_logs = request.resource_logs.add(schema_url=b"\xff")
    resource_logs.resource.attributes.add(key=b"service.name").value.string_value = b"caf\xe9"
    scope_logs = resource_logs.scope_logs.add()
    scope_logs.scope.name = b"\xfe"
    good, bad = scope_logs.log_records.add(time_unix_nano=1), scope_logs.log_records.add(time_unix_nano=2)
    good.body.string_value = "naïve".encode()
    bad.body.string_value = b"caf\xe9 au lait"
    bad.attributes.add(key=b"k\xff").value.string_value = b"\xf0\x9f"
    data = request.SerializeToString()
    made, files = make(raw_of(data))
    rows = actual(made.segments, files)
    assert_same(rows, expected([decoded(data)]))
    assert [row["message"] for row in rows] == ["naïve", "caf\ufffd au lait"]
    assert rows[1]["attributes"] == {
        "lakerunner.body": ['{"bytesValue":"Y2Fm6SBhdSBsYWl0"}'],
        "k\ufffd": ['{"bytesValue":"8J8="}'],
        "lakerunner.key.k\ufffd": ['{"bytesValue":"a/8="}'],
    }
    assert rows[0]["service_name"] == ""
    assert rows[0]["resource_attributes"] == {
        "service.name": ['{"bytesValue":"Y2Fm6Q=="}'],
        "lakerunner.schema_url": ['{"bytesValue":"/w=="}'],
    }
    assert rows[0]["scope_attributes"] == {"lakerunner.name": ['{"bytesValue":"/g=="}']}


def test_the_index_learns_services_and_fields() -> None:
    request = request_type()()
    for service in ("b", "a"):
        resource_logs = request.resource_logs.add()
        resource_logs.resource.attributes.add(key=b"service.name").value.string_value = service.encode()
        record = resource_logs.scope_logs.add().log_records.add(time_unix_nano=START)
        record.attributes.add(key=b"only." + service.encode()).value.int_value = 1
    (segment,) = make(raw_of(request.SerializeToString()))[0].segments
    statistics = dict(segment.statistics)
    sides = statistics.pop("side_bytes")
    assert sides["text.bin"] == 40
    assert {*sides} == {"text.bin", STREAM_TABLE}
    assert statistics == {
        "services": ["a", "b"],
        "service_count": 2,
        "labels": ["only.a", "only.b"],
        "label_count": 2,
        "key_count": 3,
    }
    wanted = {*field_fingerprints("service_name", ["a", "b"]), digest64("resource.service.name")}
    assert set(segment.fingerprints) == wanted | {digest64("attributes.only.a"), digest64("attributes.only.b")}


def test_what_the_index_learns_is_bounded_and_says_so() -> None:
    rows = [(f"service {number:04} {'x' * 300}", START, "x") for number in range(2100)]
    (segment,) = make(raw_of(request_of(rows)))[0].segments
    assert segment.fingerprints == (INCOMPLETE,)
    assert segment.statistics["service_count"] == 2100
    assert len(segment.statistics["services"]) == 100
    assert max(map(len, segment.statistics["services"])) == 256


def test_one_object_of_many_rows_and_resources_comes_back() -> None:
    """More than one row group, and more resources than fit any small table."""
    rows = [(f"s{number % 7}", START + number % 5000, f"message {number}") for number in range(25_000)]
    made, files = make(raw_of(request_of(rows)))
    wanted = sorted(rows, key=lambda row: (row[0], row[1]))
    assert contents(made.segments, files) == wanted


def test_large_rows_make_small_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "ROW_GROUP_BYTES", 1000)
    rows = [("s", START + number, "x" * size) for number, size in enumerate([10, 400, 400, 400, 2000, 2000, 10, 10])]
    made, files = make(raw_of(request_of(rows)))
    assert contents(made.segments, files) == rows
    (file,) = files.values()
    metadata = pq.ParquetFile(io.BytesIO(file)).metadata
    groups = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
    assert groups == [3, 1, 1, 1, 2]


def test_warming_up_reads_every_kind_of_value() -> None:
    warm_ingest()


def test_doubles_keep_their_bits() -> None:
    request = request_type()()
    records = request.resource_logs.add().scope_logs.add().log_records
    numbers = [0x7FF8000000000001, 0xFFF8000000000000, 0x8000000000000000, 0x7FF0000000000000]
    for place, bits in enumerate(numbers):
        value = records.add(time_unix_nano=place + 1).attributes.add(key=b"d").value
        value.double_value = struct.unpack("<d", struct.pack("<Q", bits))[0]
    _, files = make(raw_of(request.SerializeToString()))
    (file,) = files.values()
    column = pq.read_table(io.BytesIO(file)).column("attributes.d").to_numpy()
    assert column.view("uint64").tolist() == numbers
