"""Remote-write requests to rows, against protobuf's own decoder."""

from __future__ import annotations

import math
import struct
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from lakerunner.model.errors import Corrupt
from lakerunner.model.signal import METRICS
from lakerunner.model.source import Note
from lakerunner.pipeline.make_segments import make_segments
from lakerunner.pipeline.read.rows import ReadResult
from lakerunner.pipeline.remote_write.message_check import check_message
from lakerunner.pipeline.remote_write.native_histograms import MAX_BUCKETS
from lakerunner.pipeline.remote_write.reader import READ_V1, READ_V2
from pipeline.remote_write_oracle import MODIFIED_NS, actual, expected, framed, message_type, raw_of

READ = {"prw1": READ_V1, "prw2": READ_V2}
VERSION = {"prw1": 0, "prw2": 1}
LAST_MS = 9223372036854
STALE = struct.unpack("<d", struct.pack("<Q", 0x7FF0000000000002))[0]

texts = st.sampled_from(["", "a", "job", "__name__", "up", "é" * 9, "x" * 200]) | st.text(max_size=5)
times = st.sampled_from([0, 1, -1, LAST_MS, -LAST_MS]) | st.integers(-LAST_MS, LAST_MS)
doubles = st.floats(allow_nan=True, width=64) | st.just(math.inf)
small = st.integers(0, 9)
# Without shrinking: these requests are large, and the difference of two rows says enough.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
ANY = settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck), phases=PHASES)


def read(form: str, *messages: bytes) -> ReadResult:
    return READ[form]([raw_of(framed(*messages), form)])


def assert_reads(form: str, *messages: bytes) -> list[dict[str, Any]]:
    """The rows of these messages, which are those of the oracle."""
    found = read(form, *messages)
    assert found.failed == ()
    assert len(found.done) == 1
    rows = actual(found.rows)
    assert rows == expected(form, messages)
    return rows


def refusal(form: str, *messages: bytes) -> str:
    found = read(form, *messages)
    assert found.rows is None
    assert found.done == ()
    with pytest.raises(Corrupt):
        check_message(messages[-1], VERSION[form])
    return found.failed[0][1]


# ---- any request


@st.composite
def buckets(draw: Any, is_float: bool, low: int) -> dict[str, Any]:
    spans = draw(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=4))
    if spans and low < 0:
        spans[0] = (draw(st.integers(low, 9)), spans[0][1])
    count = sum(length for _, length in spans)
    found = {"spans": [{"offset": offset, "length": length} for offset, length in spans]}
    if is_float:
        return found | {"counts": draw(st.lists(doubles, min_size=count, max_size=count))}
    counts = draw(st.lists(st.integers(0, 2**62), min_size=count, max_size=count))
    return found | {"deltas": [after - before for before, after in zip([0, *counts], counts, strict=False)]}


@st.composite
def histograms(draw: Any, form: str) -> dict[str, Any]:
    is_float, custom = draw(st.booleans()), draw(st.booleans())
    found = {
        "sum": draw(doubles),
        "schema": -53 if custom else draw(st.integers(-4, 8)),
        "zero_threshold": draw(doubles),
        "reset_hint": draw(st.integers(0, 4)),
        "timestamp": draw(times),
    }
    if draw(st.booleans()):
        found["count_float" if is_float else "count_int"] = draw(doubles if is_float else st.integers(0, 2**64 - 1))
        found["zero_count_float" if is_float else "zero_count_int"] = draw(doubles if is_float else small)
    for side in ("positive",) if custom else ("positive", "negative"):
        parts = draw(buckets(is_float, 0 if custom else -30))
        found |= {f"{side}_{name}": value for name, value in parts.items()}
    if custom:
        found["custom_values"] = draw(st.lists(doubles, min_size=40, max_size=41) | st.just([1.0] * 32))
    if form == "prw2":
        found["start_timestamp"] = draw(times)
    return found


@st.composite
def requests(draw: Any, form: str) -> Any:
    if form == "prw1":
        labels = st.lists(st.fixed_dictionaries({"name": texts, "value": texts}), max_size=4)
        label_field: dict[str, Any] = {"labels": labels}
        symbols = None
        sample = st.fixed_dictionaries({"value": doubles, "timestamp": times})
        more: dict[str, Any] = {}
    else:
        symbols = ["", *draw(st.lists(texts, min_size=1, max_size=6))]
        references = st.integers(0, len(symbols) - 1)
        pairs = st.lists(st.tuples(references, references), max_size=4)
        label_field = {"labels_refs": pairs.map(lambda found: [one for pair in found for one in pair])}
        sample = st.fixed_dictionaries({"value": doubles, "timestamp": times, "start_timestamp": times})
        metadata = {"type": st.integers(-1, 9), "help_ref": references, "unit_ref": references}
        more = {"metadata": st.fixed_dictionaries(metadata), "created_timestamp": times}
    exemplar = st.fixed_dictionaries({**label_field, "value": doubles, "timestamp": times})
    series = st.fixed_dictionaries(
        {
            **label_field,
            "samples": st.lists(sample, max_size=3),
            "exemplars": st.lists(exemplar, max_size=2),
            "histograms": st.lists(histograms(form), max_size=1),
        },
        optional=more,
    )
    found = {"timeseries": draw(st.lists(series, max_size=4))}
    if symbols is None:
        entry = {"type": st.integers(-1, 9), "metric_family_name": texts, "help": texts, "unit": texts}
        found["metadata"] = draw(st.lists(st.fixed_dictionaries(entry), max_size=2))
    else:
        found["symbols"] = symbols
    return message_type(form, packed=draw(st.booleans()))(**found).SerializeToString()


@pytest.mark.parametrize("form", ["prw1", "prw2"])
@ANY
@given(data=st.data())
def test_any_requests_give_the_rows_that_protobuf_sees(form: str, data: Any) -> None:
    messages = data.draw(st.lists(requests(form), min_size=1, max_size=3))
    # A series that comes again is found by another way than one that comes first.
    assert_reads(form, *messages, messages[0])


@pytest.mark.parametrize("form", ["prw1", "prw2"])
@ANY
@given(data=st.data())
def test_damaged_requests_are_refused_or_read_as_protobuf_does(form: str, data: Any) -> None:
    message = bytearray(data.draw(requests(form)))
    for _ in range(data.draw(st.integers(1, 3))):
        if message:
            message[data.draw(st.integers(0, len(message) - 1))] = data.draw(st.integers(0, 255))
    found = read(form, bytes(message))
    if found.failed:
        assert "byte" in found.failed[0][1]
        return
    rows = expected(form, [bytes(message)])
    # The oracle tells series before metadata, whatever their order on the wire.
    assert sorted(map(_text, actual(found.rows))) == sorted(map(_text, rows))


def _text(row: dict[str, Any]) -> str:
    return repr(sorted(row.items()))


# ---- samples


def labels(**named: str) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in named.items()]


def v1(*series: dict[str, Any], **more: Any) -> bytes:
    data: bytes = message_type("prw1")(timeseries=series, **more).SerializeToString()
    return data


def v2(*series: dict[str, Any], symbols: tuple[str, ...] = ("", "__name__", "up", "job", "api")) -> bytes:
    data: bytes = message_type("prw2")(timeseries=series, symbols=symbols).SerializeToString()
    return data


def sample(value: float, timestamp: int) -> dict[str, Any]:
    return {"value": value, "timestamp": timestamp}


def test_a_sample_is_a_row_of_its_name_and_labels() -> None:
    series = {"labels": labels(__name__="up", job="api", zone="a"), "samples": [sample(1.5, 1_700_000_000_123)]}
    (row,) = assert_reads("prw1", v1(series))
    assert row == {
        "metric_name": "up",
        "metric_type": "unknown",
        "service_name": "api",
        "attributes": [("job", "api"), ("zone", "a")],
        "timestamp": 1_700_000_000_123_000_000,
        "value": int.from_bytes(struct.pack("<d", 1.5), "little"),
    }


def test_a_stale_marker_keeps_its_bits_and_time_zero_is_1970() -> None:
    rows = assert_reads("prw1", v1({"labels": labels(__name__="up"), "samples": [sample(STALE, 0), sample(-0.0, -1)]}))
    assert [row["value"] for row in rows] == [0x7FF0000000000002, 1 << 63]
    assert [row["timestamp"] for row in rows] == [0, -1_000_000]


def test_labels_are_kept_as_they_come() -> None:
    """Not sorted, twice, without a name or a value; no metric name, and a second one."""
    pairs = [("z", "1"), ("a", "2"), ("a", "3"), ("", "4"), ("b", ""), ("__name__", "up"), ("__name__", "again")]
    message = v1({"labels": [{"name": name, "value": value} for name, value in pairs], "samples": [sample(1, 1)]})
    (row,) = assert_reads("prw1", message)
    assert row["metric_name"] == "up"
    assert row["attributes"] == [*pairs[:5], ("__name__", "again")]
    (row,) = assert_reads("prw1", v1({"labels": labels(a="1"), "samples": [sample(1, 1)]}))
    assert row["metric_name"] == ""


def test_the_same_series_in_many_messages_is_one_owner_of_labels() -> None:
    series = [{"labels": labels(__name__="up", pod=str(number)), "samples": [sample(1, 1)]} for number in range(5)]
    found = read("prw1", v1(*series), v1(*series[::-1]), v1(*series))
    assert found.rows is not None
    assert len(found.rows.attached["attributes"].first) - 1 == 5
    refs = [{"labels_refs": [1, 2, 3, number], "samples": [sample(1, 1)]} for number in (2, 4)]
    other = ("", "job", "api", "up", "__name__")  # the same texts under other numbers
    again = [{"labels_refs": [4, 3, 1, number], "samples": [sample(1, 1)]} for number in (3, 2)]
    found = read("prw2", v2(*refs), v2(*again, symbols=other))
    assert found.rows is not None
    assert len(found.rows.attached["attributes"].first) - 1 == 2
    assert_reads("prw2", v2(*refs), v2(*again, symbols=other))


def test_symbols_may_stand_behind_the_series_that_use_them() -> None:
    request = message_type("prw2")
    series = request(timeseries=[{"labels_refs": [1, 2], "samples": [sample(1, 1)]}]).SerializeToString()
    assert_reads("prw2", series + request(symbols=["", "__name__", "up"]).SerializeToString())


def test_labels_between_samples_are_one_series() -> None:
    one, two = (
        message_type("prw1", "TimeSeries")(labels=labels(**{name: "x"}), samples=[sample(1, 1)]).SerializeToString()
        for name in ("__name__", "b")
    )
    body = one + two
    rows = assert_reads("prw1", b"\x0a" + bytes([len(body)]) + body)
    assert [row["attributes"] for row in rows] == [[("b", "x")]] * 2


def test_counters_of_2_0_are_cumulative_sums_with_their_start() -> None:
    series = {
        "labels_refs": [1, 2],
        "samples": [{"value": 1, "timestamp": 5, "start_timestamp": 3}, sample(2, 6)],
        "metadata": {"type": 1, "help_ref": 4, "unit_ref": 3},
        "created_timestamp": 2,
    }
    rows = assert_reads("prw2", v2(series))
    assert [row["start"] for row in rows] == [3_000_000, 2_000_000]
    for row in rows:
        assert (row["metric_type"], row["temporality"], row["monotonic"]) == ("sum", "cumulative", True)
        assert (row["unit"], row["description"]) == ("job", "api")
        assert row["metadata"] == [("prometheus.type", "counter")]


def test_metadata_of_1_0_is_rows_of_the_objects_time() -> None:
    entry = {"type": 1, "metric_family_name": "up", "help": "is it", "unit": "1"}
    (row, other) = assert_reads("prw1", v1(metadata=[entry, entry | {"type": 99}]))
    assert row["timestamp"] == MODIFIED_NS
    assert (row["metric_type"], row["attributes"]) == ("metadata", [("type", "counter")])
    assert other["attributes"] == [("type", 99)]


def test_times_that_are_probably_wrong_are_noted() -> None:
    late = MODIFIED_NS // 10**6 + 86_400_000
    samples = [sample(0.0, ms) for ms in (late, 0, late + 1, late + 2)]
    data = framed(v1({"labels": labels(__name__="up"), "samples": samples}, metadata=[{"metric_family_name": "up"}]))
    raw = raw_of(data, "prw1")
    made = make_segments(METRICS, UUID(int=1), "edge", [raw], lambda _path, _data: None)
    assert made.notes == (
        (raw.source, Note("time before 2000", 1, 0, "record 2 has the time 1970-01-01T00:00:00.000000000Z")),
        (raw.source, Note("time in the future", 2, 0, "record 3 has the time 2023-11-15T22:13:20.124000000Z")),
    )


def test_exemplars_are_on_the_last_sample_or_a_row_of_their_own() -> None:
    exemplars = [{"labels": labels(trace_id="ab"), "value": 7, "timestamp": number} for number in (1, 2)]
    name = {"labels": labels(__name__="up")}
    both = name | {"samples": [sample(1, 1), sample(2, 2)], "exemplars": exemplars}
    rows = assert_reads("prw1", v1(both, name | {"exemplars": exemplars}, name))
    assert [len(row.get("exemplars", [])) for row in rows] == [0, 2, 2, 0]
    assert ["value" in row for row in rows] == [True, True, False, False]
    assert [row["timestamp"] for row in rows[2:]] == [2_000_000, MODIFIED_NS]


# ---- histograms


def histogram(**fields: Any) -> bytes:
    return v1({"labels": labels(__name__="h"), "histograms": [{"timestamp": 1, **fields}]})


def span(offset: int, length: int) -> dict[str, int]:
    return {"offset": offset, "length": length}


def test_sparse_buckets_become_dense_and_their_index_that_of_otlp() -> None:
    spans = [span(-2, 2), span(3, 1)]
    (row,) = assert_reads("prw1", histogram(count_int=9, positive_spans=spans, positive_deltas=[1, 2, -2]))
    assert row["positive"] == {"offset": -3, "counts": [1, 3, 0, 0, 0, 1], "float_counts": None}
    assert row["metric_type"] == "exponential_histogram"
    assert row["temporality"] == "cumulative"


def test_custom_buckets_are_those_of_a_classic_histogram() -> None:
    spans = [span(1, 1), span(1, 1)]
    fields = {"schema": -53, "custom_values": [1.0, 2.0, 4.0], "positive_spans": spans, "positive_deltas": [5, -1]}
    (row,) = assert_reads("prw1", histogram(count_int=9, **fields))
    assert row["bucket_counts"] == [0, 5, 0, 4]
    assert len(row["bounds"]) == 3
    assert (row["scale"], row["metric_type"]) == (-53, "histogram")
    floats = {"positive_spans": [span(0, 2)], "positive_counts": [1.0, 1.0]}
    (row,) = assert_reads("prw1", histogram(schema=-53, custom_values=[1.0], count_float=2, **floats))
    assert len(row["float_bucket_counts"]) == 2


def test_gaps_are_filled_up_to_a_limit() -> None:
    fits = [span(0, 1), span(MAX_BUCKETS - 2, 1)]
    (row,) = assert_reads("prw1", histogram(positive_spans=fits, positive_deltas=[1, 0]))
    assert len(row["positive"]["counts"]) == MAX_BUCKETS
    beyond = [span(0, 1), span(MAX_BUCKETS - 1, 1)]
    assert f"has more than {MAX_BUCKETS}" in refusal("prw1", histogram(positive_spans=beyond, positive_deltas=[1, 0]))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"positive_spans": [span(0, 2)], "positive_deltas": [1]}, "do not match the number of its counts"),
        ({"positive_spans": [span(0, 4_000_000_000)], "positive_deltas": [1]}, "do not match the number of its counts"),
        ({"positive_spans": [span(0, 1), span(-1, 1)], "positive_deltas": [1, 1]}, "go backwards"),
        ({"negative_spans": [span(-(2**31), 1)], "negative_deltas": [1]}, "out of range"),
        ({"negative_spans": [span(0, 2)], "negative_deltas": [1, -2]}, "below zero"),
        ({"negative_spans": [span(0, 2)], "negative_deltas": [2**62, 2**62]}, "above 63 bits"),
        ({"positive_spans": [span(0, 1)], "positive_deltas": [1], "positive_counts": [1.0]}, "integer and float"),
        ({"schema": -53, "positive_spans": [span(0, 2)], "positive_deltas": [1, 1]}, "outside of its custom bounds"),
        ({"schema": -53, "negative_spans": [span(0, 1)], "negative_deltas": [1]}, "outside of its custom bounds"),
        ({"custom_values": [1.0] * 140_000}, "larger than 1 MB"),
    ],
)
def test_histograms_that_contradict_themselves_are_refused(fields: dict[str, Any], reason: str) -> None:
    assert reason in refusal("prw1", histogram(**fields))


# ---- what is refused


@pytest.mark.parametrize(
    ("form", "message", "reason"),
    [
        (
            "prw1",
            b"\x1a\x06\x08\x80\x80\x80\x80\x08",
            "byte 2: its MetricMetadata has a type whose number does not fit in 32 bits",
        ),
        ("prw1", v1({"samples": [sample(0, LAST_MS + 1)]}), "byte 4: its Sample has a time that no timestamp can hold"),
        ("prw1", v1({"exemplars": [sample(1, -LAST_MS - 1)]}), "its Exemplar has a time"),
        ("prw2", v2({"samples": [{"start_timestamp": LAST_MS + 1}]}), "its Sample has a time"),
        ("prw2", v2({"created_timestamp": -LAST_MS - 1}), "its TimeSeries has a time"),
        ("prw2", v2({"labels_refs": [1, 5]}), "its TimeSeries refers to a symbol that does not exist"),
        ("prw2", v2({"labels_refs": [1, 2, 3]}), "its TimeSeries has a label name without a value"),
        ("prw2", v2({"exemplars": [{"labels_refs": [1]}]}), "its Exemplar has a label name without a value"),
        ("prw2", v2({"metadata": {"unit_ref": 5}}), "its Metadata refers to a symbol"),
        ("prw1", b"\x0a\x07\x0a\x05\x0a\x01\xff\x12\x00", "byte 4: its Label has text that is not UTF-8"),
        ("prw2", b"\x22\x01\xff", "byte 0: it has text that is not UTF-8"),
        ("prw1", b"\x0a\x02\x10\x01", "byte 2: its TimeSeries has field 2 with wire type 0"),
        ("prw1", b"\x0a\x05\x0a", "byte 0: it has a field that is longer than the rest of it"),
        ("prw1", b"\x08", "byte 0: it has field 1 with wire type 0"),
        ("prw1", b"\x0b", "byte 0: it has field 1 with wire type 3"),
        ("prw2", b"\x2a\x03\x0a\x01\x80", "its TimeSeries ends in the middle of a field"),
        ("prw2", b"\x2a\x0d\x0a\x0b" + b"\xff" * 10 + b"\x01", "a number of more than 64 bits"),
    ],
)
def test_damage_is_named_with_its_frame_and_byte(form: str, message: bytes, reason: str) -> None:
    good = v1({"samples": [sample(1, 1)]}) if form == "prw1" else v2({"samples": [sample(1, 1)]})
    found = refusal(form, good, message)
    assert f"frame 1 at byte {len(framed(good)) + 1} " in found
    assert reason in found


def test_a_frame_that_is_longer_than_its_file_is_refused() -> None:
    data = framed(v1({"samples": [sample(1, 1)]}))
    found = READ_V1([raw_of(data[:-1], "prw1"), raw_of(data, "prw1", "whole"), raw_of(b"", "prw1", "empty")])
    assert [reason for _, reason in found.failed] == [
        "frame 0 at byte 0 is not a prometheus.WriteRequest: byte 0: it is longer than the rest of the file",
        "the file is empty",
    ]
    assert [source.key for source in found.done] == ["whole.prw1"]
    assert len(actual(found.rows)) == 1


def test_empty_messages_are_done_and_give_no_rows() -> None:
    found = READ_V2([raw_of(framed(b"", b""), "prw2")])
    assert (found.rows, found.failed, len(found.done)) == (None, (), 1)


def test_counts_are_those_of_the_message() -> None:
    series = {"samples": [sample(1, 1)] * 3, "exemplars": [{}] * 2, "histograms": [{}]}
    counts = check_message(v2(series, series), 1)
    assert (counts.samples, counts.histograms, counts.exemplars, counts.rows) == (6, 2, 4, 8)
