"""Objects that are cut into pieces: the same rows as if they were not, all of them or none, under ids that stay."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.model.signal import TRACES
from lakerunner.model.source import Note
from lakerunner.model.time import HOUR_NS
from lakerunner.pipeline.read import otlp, pieces, repair
from lakerunner.pipeline.read.otlp_requests import LOGS_REQUEST
from pipeline import test_segments_random, test_traces_random, traces_oracle
from pipeline.otlp_oracle import actual, assert_same, decoded, expected, make, raw_of, request_type
from pipeline.otlp_random import thorough

START = 1_760_000_400_000_000_000


def bounded(patch: pytest.MonkeyPatch, memory: int, share: int = 1) -> None:
    """Read no more at once than this, as an estimate; the heads may take a share of it."""
    for module in (otlp, pieces):
        patch.setattr(module, "MAX_MEMORY", memory)
    patch.setattr(pieces, "_HEADS_SHARE", share)


@pytest.fixture
def patch() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


def request_of(resources: int, records: int, message: bytes = b"message %d") -> Any:
    request = request_type()()
    for resource in range(resources):
        resource_logs = request.resource_logs.add(schema_url=b"url %d" % resource)
        resource_logs.resource.attributes.add(key=b"service.name").value.string_value = b"service %d" % resource
        scope_logs = resource_logs.scope_logs.add()
        scope_logs.scope.name = b"scope"
        for number in range(records):
            record = scope_logs.log_records.add(time_unix_nano=START + number)
            record.body.string_value = message % number
    return request


def cut(data: bytes) -> list[bytes]:
    return [bytes(piece) for piece in pieces.cut_request(np.frombuffer(data, np.uint8), LOGS_REQUEST)]


@thorough(60)
@given(test_segments_random.requests(), test_segments_random.requests(), st.integers(4000, 20_000))
def test_random_logs_come_back_from_their_pieces(one: Any, two: Any, memory: int) -> None:
    data = one.SerializeToString() + two.SerializeToString()
    with pytest.MonkeyPatch.context() as patch:
        bounded(patch, memory)
        made, files = make(raw_of(data))
    if made.failed:
        assert_refused(made, data)
        return
    rows = actual(made.segments, files)
    rows.sort(key=lambda row: (row["timestamp"] // HOUR_NS, row["service_name"].encode(), row["timestamp"]))
    assert_same(rows, expected([decoded(data)]))


@thorough(60)
@given(test_traces_random.requests(), test_traces_random.requests(), st.integers(4000, 20_000))
def test_random_traces_come_back_from_their_pieces(one: Any, two: Any, memory: int) -> None:
    data = one.SerializeToString() + two.SerializeToString()
    with pytest.MonkeyPatch.context() as patch:
        bounded(patch, memory)
        made, files = make(raw_of(data), spec=TRACES)
    if made.failed:
        assert_refused(made, data)
        return
    rows = traces_oracle.with_items_by_key(actual(made.segments, files))
    rows = sorted(rows, key=lambda row: (row["timestamp"] // HOUR_NS, row["trace_id"], row["timestamp"]))
    assert_same(rows, traces_oracle.expected([traces_oracle.decoded(data)]))


def assert_refused(made: Any, data: bytes) -> None:
    ((_, reason),) = made.failed
    assert made.segments == made.done == ()
    assert not data or "MB of memory" in reason or "it has no Resource" in reason, reason


def test_cuts_are_between_resources_where_that_is_enough(patch: pytest.MonkeyPatch) -> None:
    request = request_of(resources=6, records=2)
    bounded(patch, 2500)
    found = [decoded(piece) for piece in cut(request.SerializeToString())]
    assert [len(piece.resource_logs) for piece in found] == [2, 2, 2]
    assert [resource for piece in found for resource in piece.resource_logs] == list(request.resource_logs)


def test_the_pieces_of_a_resource_repeat_its_heads(patch: pytest.MonkeyPatch) -> None:
    request = request_of(resources=1, records=9)
    whole = request.resource_logs[0]
    bounded(patch, 2100)
    found = [decoded(piece) for piece in cut(request.SerializeToString())]
    assert [len(piece.resource_logs[0].scope_logs[0].log_records) for piece in found] == [4, 4, 1]
    for piece in found:
        (resource_logs,) = piece.resource_logs
        (scope_logs,) = resource_logs.scope_logs
        assert (resource_logs.resource, resource_logs.schema_url) == (whole.resource, whole.schema_url)
        assert scope_logs.scope == whole.scope_logs[0].scope
    records = [record for piece in found for record in piece.resource_logs[0].scope_logs[0].log_records]
    assert records == list(whole.scope_logs[0].log_records)


def test_what_grows_when_it_is_mended_is_cut_again(patch: pytest.MonkeyPatch) -> None:
    """Each record gets an attribute with the bytes of its body."""
    data = request_of(resources=1, records=20, message=b"\xff" * 100 + b"%d").SerializeToString()
    bounded(patch, 8000)
    part = otlp.check_request(np.frombuffer(data, np.uint8), LOGS_REQUEST)
    assert part.odd
    assert not part.fits
    found = [decoded(piece) for piece in cut(data)]
    assert len(found) > part.memory // 8000 + 1
    for piece in found:
        assert otlp.check_request(np.frombuffer(piece.SerializeToString(), np.uint8), LOGS_REQUEST).fits
    assert sum(len(piece.resource_logs[0].scope_logs[0].log_records) for piece in found) == 20


def test_a_large_record_among_odd_ones_is_taken(patch: pytest.MonkeyPatch) -> None:
    """Odd files are cut into smaller pieces; a record that is sound has all the room there is."""
    request = request_of(1, 20)
    records = request.resource_logs[0].scope_logs[0].log_records
    records[3].body.string_value = b"\xff"
    records[7].body.string_value = b"x" * 1000
    bounded(patch, 8000)
    made, files = make(raw_of(request.SerializeToString()))
    assert made.failed == ()
    assert_same(actual(made.segments, files), expected([request]))


def test_each_piece_has_segments_of_its_own_under_the_same_ids_every_time(patch: pytest.MonkeyPatch) -> None:
    data = request_of(resources=3, records=5).SerializeToString()
    whole, _ = make(raw_of(data))
    bounded(patch, 3000)
    made, files = make(raw_of(data))
    again, files_again = make(raw_of(data))
    assert made == again
    assert files == files_again
    ids = [segment.id for segment in made.segments]
    assert len(set(ids)) == len(ids) == 3
    assert whole.segments[0].id not in ids
    assert made.done == whole.done
    assert sum(segment.rows for segment in made.segments) == 15


def test_times_that_are_probably_wrong_are_counted_over_all_pieces(patch: pytest.MonkeyPatch) -> None:
    request = request_of(resources=3, records=5)
    for resource, place in ((0, 2), (1, 0), (2, 4)):
        request.resource_logs[resource].scope_logs[0].log_records[place].time_unix_nano = 1000
    bounded(patch, 3000)
    made, _ = make(raw_of(request.SerializeToString(), modified_ns=START))
    assert made.counts == (15,)
    ((source, note),) = made.notes
    assert source == made.done[0]
    text = "record 3 has the time 1970-01-01T00:00:00.000001000Z"
    assert note == Note("time before 2000", 3, 0, text)


def test_a_record_that_is_too_large_fails_its_object_alone(patch: pytest.MonkeyPatch) -> None:
    good, bad = request_of(1, 4), request_of(1, 4)
    bad.resource_logs[0].scope_logs[0].log_records[2].body.string_value = b"x" * 5000
    bounded(patch, 4000)
    raws = [
        raw_of(good.SerializeToString(), "a"),
        raw_of(bad.SerializeToString(), "b"),
        raw_of(good.SerializeToString(), "c"),
    ]
    made, files = make(*raws)
    assert [source.key for source in made.done] == ["a", "c"]
    ((source, reason),) = made.failed
    assert source.key == "b"
    assert reason.startswith("a LogRecord of 5015 bytes needs 0 MB of memory for ")
    rows = actual(made.segments, files)
    assert len(rows) == 8


def test_heads_that_would_fill_every_piece_are_refused(patch: pytest.MonkeyPatch) -> None:
    request = request_of(1, 30)
    request.resource_logs[0].resource.attributes.add(key=b"k").value.string_value = b"x" * 1000
    bounded(patch, 8000, share=4)
    made, files = make(raw_of(request.SerializeToString()))
    ((_, reason),) = made.failed
    assert reason.startswith(
        "the fields of a ResourceLogs, and of the messages around it, that all its items share take 10"
    )
    assert (made.segments, made.done, files) == ((), (), {})


def test_a_piece_that_cannot_be_read_fails_its_object(patch: pytest.MonkeyPatch) -> None:
    """The last record is odd, and has too many parts to be mended: the pieces before it are written already."""
    request = request_of(1, 9)
    last = request.resource_logs[0].scope_logs[0].log_records[-1]
    last.event_name = b"\xff"
    for _ in range(5):
        last.attributes.add(key=b"k")
    bounded(patch, 3000)
    patch.setattr(repair, "MAX_PARTS", 4)
    made, files = make(raw_of(request.SerializeToString()))
    assert (made.segments, made.done) == ((), ())
    ((_, reason),) = made.failed
    assert "repaired for up to 4 parts" in reason
    assert files != {}  # of no segment: the sweeper takes them away
