"""One test for each row of docs/formats/limits.md, through a store and a task as they are. In every box stands a sound
object beside the bad one, and comes through."""

from __future__ import annotations

import bz2
import gzip
import inspect
import io
import json
import lzma
import math
import re
import struct
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pyarrow.parquet as pq
import pytest
from google.protobuf.json_format import MessageToJson
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from lakerunner.bus.topics import IngestBox
from lakerunner.model.source import Note, SourceObject
from lakerunner.objects.open import StoreAddress, shared_store
from lakerunner.pipeline.ingest import BoxResult, IngestLimits, ingest_group
from lakerunner.pipeline.transcode.columns import GUESSED
from lakerunner.pipeline.transcode.formats import TRANSCODERS

DOCS = Path(__file__).resolve().parents[2] / "docs" / "formats" / "limits.md"
START = 1_760_000_400_000_000_000
LAST_TIME = 2**63 - 2
OLDEST = 946_684_800 * 10**9  # 2000-01-01
LIMITS = IngestLimits(object_max_bytes=256 << 20, task_max_bytes=64 << 20)
MB = 1 << 20


class Signal(NamedTuple):
    """How a request of one record is made: the request's type, the names on the way to its owner, how the owner gets
    it, and the name of its time."""

    name: str
    request: Any
    way: tuple[str, str]
    add: Callable[[Any], Any]
    time: str

    def made(self, fill: Callable[[Any], None] = lambda record: None) -> bytes:
        """A request of one record, filled by the caller."""
        request = self.request()
        resource, scope = self.way
        resource_items = getattr(request, resource).add()
        resource_items.resource.attributes.add(key="service.name").value.string_value = "limits"
        record = self.add(getattr(resource_items, scope).add())
        setattr(record, self.time, START)
        fill(record)
        return bytes(request.SerializeToString())


SIGNALS = (
    Signal(
        "logs",
        ExportLogsServiceRequest,
        ("resource_logs", "scope_logs"),
        lambda scope: scope.log_records.add(),
        "time_unix_nano",
    ),
    Signal(
        "metrics",
        ExportMetricsServiceRequest,
        ("resource_metrics", "scope_metrics"),
        lambda scope: scope.metrics.add(name="limits").gauge.data_points.add(as_double=0.5),
        "time_unix_nano",
    ),
    Signal(
        "traces",
        ExportTraceServiceRequest,
        ("resource_spans", "scope_spans"),
        lambda scope: scope.spans.add(),
        "start_time_unix_nano",
    ),
)


class Lake:
    """A store and what a task makes of the objects in it."""

    def __init__(self, folder: Path, signal: Signal) -> None:
        self.signal = signal
        self.address = StoreAddress(folder.as_uri())
        self.store = shared_store(self.address)

    def put(self, data: bytes, name: str = "bad.binpb") -> SourceObject:
        key = f"otel-raw/default/limits/{name}"
        self.store.put(key, data)
        meta = self.store.head(key)
        return SourceObject(self.store.bucket, key, meta.etag or "", meta.size, meta.modified_ns)

    def ingest(self, *sources: SourceObject, limits: IngestLimits = LIMITS) -> BoxResult:
        """Of these and a sound object, which must come through."""
        sound = self.put(self.signal.made(), "sound.binpb")
        box = IngestBox(UUID(int=1), "limits", self.signal.name, (*sources, sound))
        result = ingest_group(box, self.address, limits)
        assert sound in result.done
        assert len(result.done) + len(result.failed) + len(result.rerouted) == len(sources) + 1
        return result

    def reason(self, source: SourceObject, limits: IngestLimits = LIMITS) -> str:
        """Why it is set aside; and nothing of it is in a segment."""
        result = self.ingest(source, limits=limits)
        ((failed, reason),) = result.failed
        assert failed == source
        assert sum(segment.rows for segment in result.segments) == 1
        return reason

    def row(self, fill: Callable[[Any], None], change: Callable[[bytes], bytes] = bytes) -> dict[str, Any]:
        """The row of the one record that is filled so; its attributes by key, each with all of its values."""
        source = self.put(change(self.signal.made(fill)))
        result = self.ingest(source)
        assert result.failed == ()
        (row,) = (row for segment in result.segments for row in self.rows(segment.path) if len(row["own"]))
        return row

    def rows(self, path: str) -> list[dict[str, Any]]:
        table = pq.read_table(io.BytesIO(self.store.get(path, max_bytes=512 * MB)))
        place = table.column_names.index("timestamp")
        table = table.set_column(place, "timestamp", table.column("timestamp").cast("int64"))
        rows: list[dict[str, Any]] = table.to_pylist()
        for row in rows:
            columns = {name.partition(".")[2]: row[name] for name in row if name.startswith("attributes.")}
            row["own"] = {key: [value] for key, value in columns.items() if value is not None}
            for key, text in row["attributes"]:
                row["own"].setdefault(key, []).append(text)
        return rows


@pytest.fixture(params=SIGNALS, ids=lambda signal: signal.name)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return Lake(tmp_path, request.param)


@pytest.fixture
def logs(tmp_path: Path) -> Lake:
    """For input that only logs can be."""
    return Lake(tmp_path, SIGNALS[0])


def text_rows(lake: Lake, data: bytes) -> tuple[SourceObject, list[dict[str, Any]]]:
    """The object of this text, and its rows in their order."""
    source = lake.put(data, "bad.log")
    result = lake.ingest(source)
    assert result.failed == ()
    rows = [row for segment in result.segments for row in lake.rows(segment.path) if row["service_name"] != "limits"]
    return source, sorted(rows, key=lambda row: (row["timestamp"], row["delivery_row"]))


def test_corrupt_protobuf(lake: Lake) -> None:
    whole = lake.signal.made()
    assert "byte 0: " in lake.reason(lake.put(whole[:-1]))
    assert re.search(rf"byte {len(whole)}: ", lake.reason(lake.put(whole + b"\xff")))


def test_another_signal(lake: Lake) -> None:
    other = next(signal for signal in SIGNALS if signal.name in ("logs", "traces") and signal != lake.signal)
    data = other.made(lambda record: setattr(record, "trace_id", bytes(16)))
    own, another = ("x", "metrics") if lake.signal.name == "logs" else (lake.signal.name, "x")
    for content, name in (
        (data, f"{own}.binpb"),
        (MessageToJson(other.request.FromString(data)).encode(), f"{own}.json"),
    ):
        source = lake.put(content, name)
        result = lake.ingest(source)
        assert (result.rerouted, result.failed) == (((source, other.name),), ())
        assert sum(segment.rows for segment in result.segments) == 1
    # Where the name does not tell this signal, a folder has stated it, or the object was sent on before.
    assert f"this looks like an OTLP {other.name} request" in lake.reason(lake.put(data, f"{another}.binpb"))


def test_name_that_tells_a_signal(lake: Lake) -> None:
    reason = lake.reason(lake.put(b"\xff", f"{lake.signal.name}.binpb"))
    because = f" (read as {lake.signal.name} because its name contains '{lake.signal.name}')"
    assert reason.endswith(because) == (lake.signal.name != "logs")


def test_truncated_gzip(lake: Lake) -> None:
    packed = gzip.compress(lake.signal.made())
    assert lake.reason(lake.put(packed[:-5], "bad.binpb.gz")) == "the gzip file is cut short"


def test_other_packings(lake: Lake) -> None:
    for ending, compress in ((".bz2", bz2.compress), (".xz", lzma.compress)):
        packed = compress(lake.signal.made())
        assert lake.ingest(lake.put(packed, f"packed.binpb{ending}")).failed == ()
        assert lake.ingest(lake.put(packed, "packed-but-not-named-so.binpb")).failed == ()
        name = {".bz2": "bzip2", ".xz": "xz"}[ending]
        assert lake.reason(lake.put(packed[:-5], f"bad.binpb{ending}")) == f"the {name} file is cut short"
        bomb = lake.put(compress(bytes(16 * MB)), f"bad.binpb{ending}")
        assert f"more than {MB} bytes" in lake.reason(bomb, IngestLimits(MB, MB))


def test_zip_archive(logs: Lake) -> None:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as out:
        out.writestr("x.log", "one line\n")
    assert logs.reason(logs.put(archive.getvalue(), "bad.log")).startswith("this is a zip archive: unpack it")


def test_cut_frame_of_the_file_exporter(lake: Lake) -> None:
    whole = lake.signal.made()
    framed = len(whole).to_bytes(4, "big") + whole
    assert lake.ingest(lake.put(framed * 2, "frames.binpb")).failed == ()
    reason = lake.reason(lake.put((framed * 2)[:-1]))
    assert reason == f"byte {len(framed)}: a frame of the collector's file exporter is cut short"


def test_rotated_name(logs: Lake) -> None:
    line = b"2020-01-01T00:00:00Z a\n"
    for name, data in (("app.log.1", line), ("app.log-20261117.gz", gzip.compress(line))):
        assert logs.ingest(logs.put(data, name)).failed == ()


def test_zip_bomb(lake: Lake) -> None:
    bomb = lake.put(gzip.compress(bytes(64 * MB)), "bad.binpb.gz")
    assert bomb.size < MB
    reason = lake.reason(bomb, IngestLimits(MB, MB))
    assert reason == f"the file unpacks to more than {MB} bytes: raise object_max_bytes to ingest it"


def test_attribute_of_10_mb(lake: Lake) -> None:
    text = "0123456789" * MB
    row = lake.row(lambda record: set_text(record, "large", text))
    assert row["own"] == {"large": [text]}


def test_attribute_of_more_than_64_mb(lake: Lake) -> None:
    data = lake.signal.made(lambda record: set_text(record, "large", "x" * (64 * MB + 1)))
    reason = lake.reason(lake.put(data))
    assert re.search(r"byte \d+: .* has a field of more than 64 MB", reason)


def test_100k_attributes(lake: Lake) -> None:
    def fill(record: Any) -> None:
        for number in range(100_000):
            record.attributes.add(key=f"key {number}").value.int_value = number

    row = lake.row(fill)
    assert len(row["own"]) == 100_000
    assert {int(key.removeprefix("key ")) for key in row["own"]} == {int(value) for (value,) in row["own"].values()}
    assert sum(name.startswith("attributes.") for name in row) == 256


def test_nan_infinity_and_minus_zero(lake: Lake) -> None:
    numbers = {"nan": math.nan, "inf": math.inf, "minus inf": -math.inf, "minus zero": -0.0, "tiny": 5e-324}

    def fill(record: Any) -> None:
        for key, number in numbers.items():
            record.attributes.add(key=key).value.double_value = number

    own = lake.row(fill)["own"]
    assert {key: struct.pack("<d", value) for key, (value,) in own.items()} == {
        key: struct.pack("<d", number) for key, number in numbers.items()
    }


def test_int64_extremes(lake: Lake) -> None:
    def fill(record: Any) -> None:
        record.attributes.add(key="least").value.int_value = -(2**63)
        record.attributes.add(key="most").value.int_value = 2**63 - 1

    assert lake.row(fill)["own"] == {"least": [-(2**63)], "most": [2**63 - 1]}


def test_invalid_utf8(lake: Lake) -> None:
    def fill(record: Any) -> None:
        set_text(record, "value", "PLACE")
        set_text(record, "KEY", "x")

    row = lake.row(fill, lambda data: data.replace(b"PLACE", b"caf\xe9!").replace(b"KEY", b"k\xffy"))
    assert row["own"] == {
        "value": [b"caf\xe9!"],
        "k\ufffdy": ["x"],
        "lakerunner.key.k\ufffdy": [b"k\xffy"],
    }


def test_timestamp_0(lake: Lake) -> None:
    def fill(record: Any) -> None:
        setattr(record, lake.signal.time, 0)
        set_text(record, "k", "v")

    row = lake.row(fill)
    source = lake.put(lake.signal.made(fill), "again.binpb")
    assert abs(row["timestamp"] - source.modified_ns) < 600 * 10**9  # that of the object before, put a moment ago


def test_timestamp_past_2262(lake: Lake) -> None:
    for number in (LAST_TIME + 1, 2**64 - 1):
        row = lake.row(at(lake.signal, number))
        assert row["own"] == {f"lakerunner.{lake.signal.time}": [str(number)]}
        assert START < row["timestamp"] < LAST_TIME

    def fill(record: Any) -> None:
        at(lake.signal, LAST_TIME)(record)
        set_text(record, "k", "v")

    last = lake.row(fill)
    assert last["timestamp"] == LAST_TIME


def test_timestamp_in_the_future(lake: Lake) -> None:
    future = 4_102_444_800_000_000_000  # 2100-01-01
    source = lake.put(lake.signal.made(at(lake.signal, future)))
    result = lake.ingest(source)
    (segment,) = (segment for segment in result.segments if segment.time.start_ns == future)
    assert f"/21000101/{lake.signal.name}/00/" in segment.path
    assert [row["timestamp"] for row in lake.rows(segment.path)] == [future]


def test_timestamp_without_a_year(lake: Lake) -> None:
    name = {"logs": "time", "metrics": "time", "traces": "start"}[lake.signal.name]
    record = {name: "Nov 14 22:13:20.5", "name": "n", "value": 1}
    source = replace(lake.put(json.dumps(record).encode(), "a.jsonl"), modified_ns=1_705_000_000 * 10**9)
    result = lake.ingest(source)
    times = [row["timestamp"] for segment in result.segments for row in lake.rows(segment.path)]
    assert sorted(times) == [1_700_000_000_500_000_000, START]


def test_timestamp_that_is_probably_wrong(lake: Lake) -> None:
    modified = 1_794_916_800 * 10**9  # 2026-11-17T12:00:00Z
    day = 86_400 * 10**9
    name = {"logs": "time", "metrics": "time", "traces": "start"}[lake.signal.name]
    times = [modified + day, modified + day + 1, 2**62, OLDEST, OLDEST - 1]
    data = "".join(json.dumps({name: ns, "name": "n", "value": 1}) + "\n" for ns in times).encode()
    notes = TRANSCODERS["jsonl"](lake.signal.name, memoryview(data), GUESSED.near(modified)).findings.notes
    assert [(note.kind, note.count, note.line, note.text) for note in notes if note.kind.startswith("time ")] == [
        ("time in the future", 2, 2, "the record has the time 2026-11-18T12:00:00.000000001Z"),
        ("time before 2000", 1, 5, "the record has the time 1999-12-31T23:59:59.999999999Z"),
    ]
    result = lake.ingest(replace(lake.put(data, "a.jsonl"), modified_ns=modified))
    kept = [row["timestamp"] for segment in result.segments for row in lake.rows(segment.path)]
    assert sorted(kept) == sorted([*times, START])
    assert [note for note in result.findings[0][1].notes if note.kind.startswith("time ")] == list(notes)[-2:]


def test_timestamp_that_is_probably_wrong_in_otlp(lake: Lake) -> None:
    modified = 1_794_916_800 * 10**9  # 2026-11-17T12:00:00Z
    day = 86_400 * 10**9
    times = [0, modified + day, modified + day + 10**6, 2**62, OLDEST, OLDEST - 10**6]
    data = b"".join(lake.signal.made(at(lake.signal, ns)) for ns in times)
    text = MessageToJson(lake.signal.request.FromString(data)).encode()
    sources = [
        replace(lake.put(content, name), modified_ns=modified)
        for name, content in (("a.binpb", data), ("a.json", text), ("b.binpb", lake.signal.made()))
    ]
    result = lake.ingest(*sources)
    found = {source.key.rpartition("/")[2]: list(findings.notes) for source, findings in result.findings}
    expected = [
        Note("time before 2000", 1, 0, "record 6 has the time 1999-12-31T23:59:59.999000000Z"),
        Note("time in the future", 2, 0, "record 3 has the time 2026-11-18T12:00:00.001000000Z"),
    ]
    assert found == {"a.binpb": expected, "a.json": expected, "b.binpb": [], "sound.binpb": []}
    kept = [row["timestamp"] for segment in result.segments for row in lake.rows(segment.path)]
    assert sorted(kept) == sorted([*times[1:], modified] * 2 + [START] * 2)


def test_duplicate_keys(lake: Lake) -> None:
    def fill(record: Any) -> None:
        for text in ("first", "second"):
            set_text(record, "twice", text)

    assert lake.row(fill)["own"] == {"twice": ["first", '"second"']}


def test_empty_file(lake: Lake) -> None:
    empty = {
        "empty.binpb": b"",
        "empty.jsonl.gz": gzip.compress(b""),
        "blank.jsonl": b"\n \r\n",
        "blank.csv": b"\r\n",
        "header.csv": b"name,value\n",
    }
    sources = [lake.put(data, name) for name, data in empty.items()]
    result = lake.ingest(*sources)
    assert result.failed == ()
    assert sum(segment.rows for segment in result.segments) == 1
    rows = {source: found.rows for source, found in result.findings}
    assert [rows[source] for source in sources] == [0] * len(empty)


GOOD = b'{"name": "n", "value": 5}\n'


def test_bad_line_in_a_file_of_lines(lake: Lake) -> None:
    for name, data, bad, reason in (
        ("cut.jsonl", GOOD * 1000 + b'{"name": "n", "va', 1001, "column 18: not JSON: unexpected end of data"),
        ("bytes.jsonl", GOOD + GOOD.replace(b"n", b"\xff") + GOOD, 2, "byte 3: not UTF-8"),
        ("width.csv", b"name,value\nn,5\nn\nn,6\n", 3, "1 cell, the header has 2"),
        ("quote.csv", b'name,value\nn,5\nn,"6\nn,7\n', 3, "not CSV: unexpected end of data"),
    ):
        source = lake.put(data, name)
        one, two = lake.ingest(source), lake.ingest(source)
        assert (one.failed, {part.id for part in one.segments}) == ((), {part.id for part in two.segments})
        found = dict(one.findings)[source]
        assert found == dict(two.findings)[source]
        (reject,) = found.rejects.first
        lines = data.splitlines(keepends=True)
        assert (reject.line, reject.reason) == (bad, reason)
        assert reject.offset == sum(map(len, lines[: bad - 1]))
        assert found.rejects.count == 1
        assert found.rows == found.rejects.lines - 1 == sum(segment.rows for segment in one.segments) - 1


def test_mostly_bad_lines(lake: Lake) -> None:
    source = lake.put(GOOD + b"no\nno\n" + GOOD, "half.jsonl")
    assert dict(lake.ingest(source).findings)[source].rejects.count == 2
    assert lake.reason(lake.put(GOOD + b"5\n5\n", "bad.jsonl")) == (
        "2 of 3 lines cannot be read, first line 2: expected a JSON object as a record, found a number. "
        "A file is ingested if at most 50% of its lines are bad (bad_lines_max_share)"
    )
    none = IngestLimits(LIMITS.object_max_bytes, LIMITS.task_max_bytes, bad_lines_max_share=0)
    assert "1 of 2 lines cannot be read, first line 2: " in lake.reason(lake.put(GOOD + b"no\n", "bad.jsonl"), none)


def test_line_of_more_than_64_mb(lake: Lake) -> None:
    line = b'{"name": "' + b"n" * (64 * MB) + b'"}\n'
    source = lake.put(GOOD + line + GOOD, "long.jsonl")
    found = dict(lake.ingest(source).findings)[source]
    (reject,) = found.rejects.first
    assert (reject.line, reject.offset, reject.reason) == (2, len(GOOD), "longer than 64 MB")
    assert reject.excerpt == line[:200].decode()
    assert found.rows == 2


def test_guessed_fields(lake: Lake) -> None:
    line = b'{"name": "n", "value": 5, "start": "soon", "timestamp": "soon", "trace_id": "xyz"}\n'
    source = lake.put(line * 3, "guessed.jsonl")
    found = dict(lake.ingest(source).findings)[source]
    kinds = {note.kind for note in found.notes}
    expected = {"time not understood", "no service"}
    if lake.signal.name != "metrics":
        expected.add("id not hex")
    assert kinds - {"no message"} == expected
    assert ("no message" in kinds) == (lake.signal.name == "logs")
    assert {note.line for note in found.notes} == {1}
    assert all(note.count % 3 == 0 for note in found.notes)


def test_unknown_ending(lake: Lake) -> None:
    reason = lake.reason(lake.put(lake.signal.made(), "bad.xyz"))
    assert "has an unknown ending. Known are " in reason
    assert ".binpb" in reason


def test_deleted_object(lake: Lake) -> None:
    source = lake.put(lake.signal.made())
    lake.store.delete([source.key])
    assert "bad.binpb" in lake.reason(source)


def test_overwritten_object(lake: Lake) -> None:
    source = lake.put(lake.signal.made())
    lake.put(lake.signal.made(lambda record: set_text(record, "k", "another")))
    assert lake.reason(source) == "the object has changed since it was announced"


def test_nested_json(lake: Lake) -> None:
    long = "k" * 100_000
    record = {"name": "n", "value": 1, "a": {"b": {"c": 500}, "d.e": [{"f": 1}]}, "z": {long: dict.fromkeys("1234", 1)}}
    source = lake.put(json.dumps(record).encode(), "bad.jsonl")
    segments = lake.ingest(source).segments
    (row,) = (row for segment in segments for row in lake.rows(segment.path) if "a.b.c" in row["own"])
    assert (row["own"]["a.b.c"], row["own"]["a.d.e"]) == ([500], ['[{"f":1}]'])
    assert [key for key in row["own"] if key[0] == "z"] == [f"z.{long}.{digit}" for digit in "1234"]
    record["z"] = {long: dict.fromkeys("0123456789x", 1)}
    source = lake.put(json.dumps(record).encode(), "bad.jsonl")
    segments = lake.ingest(source).segments
    (row,) = (row for segment in segments for row in lake.rows(segment.path) if "a" in row["own"])
    assert row["own"]["a"] == ['{"b":{"c":500},"d.e":[{"f":1}]}']
    deep = b'{"name":"n","a":' + b'{"b":' * 31 + b"1" + b"}" * 32
    rejects = TRANSCODERS["jsonl"](lake.signal.name, memoryview(deep), GUESSED).findings.rejects
    assert str(rejects) == "line 1: a value is nested deeper than 30 levels"


def test_ambiguous_delimiter(lake: Lake) -> None:
    data = b"name;value;k|1\nn;1;a,b\n"
    notes = TRANSCODERS["csv"](lake.signal.name, memoryview(data), GUESSED).findings.notes
    doubt = (
        "cells are separated by semicolon; the header has semicolon 2 times, comma 0 times, tab 0 times, pipe 1 time"
    )
    assert Note("delimiter", 1, 1, doubt) in notes
    result = lake.ingest(lake.put(data, "bad.csv"))
    (row,) = (row for segment in result.segments for row in lake.rows(segment.path) if "k|1" in row["own"])
    assert row["own"]["k|1"] == ["a,b"]


def test_text_without_times(logs: Lake) -> None:
    source, rows = text_rows(logs, b"a\n2020-01-01T00:00:00Z ERROR b\nc\n")
    start = 1_577_836_800 * 10**9
    assert [(row["timestamp"], row["message"], row["severity"]) for row in rows] == [
        (start, "2020-01-01T00:00:00Z ERROR b", "ERROR"),
        (start, "c", ""),
        (source.modified_ns, "a", ""),
    ]


def test_text_not_utf8(logs: Lake) -> None:
    _, (row,) = text_rows(logs, b"2020-01-01T00:00:00Z caf\xe9")
    assert (row["message"], row["own"]) == (
        "2020-01-01T00:00:00Z caf\ufffd",
        {"lakerunner.body": [b"2020-01-01T00:00:00Z caf\xe9"]},
    )


def test_text_in_utf16(logs: Lake) -> None:
    _, (row,) = text_rows(logs, "2020-01-01T00:00:00Z \u0142\r\n".encode("utf-16"))
    assert row["message"] == "2020-01-01T00:00:00Z \u0142"


def test_json_in_utf16(logs: Lake) -> None:
    line = '{"time": "2020-01-01T00:00:00Z", "message": "\u0142"}\n'
    result = logs.ingest(logs.put(line.encode("utf-16"), "bad.jsonl"))
    assert result.failed == ()
    assert "\u0142" in {row["message"] for segment in result.segments for row in logs.rows(segment.path)}


def test_document_of_records(logs: Lake) -> None:
    document = {"Records": [{"eventTime": f"2020-01-01T00:00:0{n}Z", "eventName": "e"} for n in range(3)]}
    result = logs.ingest(logs.put(json.dumps(document).encode(), "bad.json"))
    times = {row["timestamp"] for segment in result.segments for row in logs.rows(segment.path)}
    assert times == {START, *((1_577_836_800 + n) * 10**9 for n in range(3))}


def test_text_with_an_ambiguous_zone(logs: Lake) -> None:
    source, (row,) = text_rows(logs, b"2020-01-01 00:00:00 CST a\n")
    assert (row["timestamp"], row["own"]["time.zone"]) == (1_577_836_800 * 10**9, ["CST"])
    assert [note.kind for _, found in logs.ingest(source).findings for note in found.notes if "zone" in note.kind] == [
        "time zone not understood"
    ]


def test_text_with_nul(logs: Lake) -> None:
    _, (row,) = text_rows(logs, b"2020-01-01T00:00:00Z a\0b\0")
    assert row["message"] == "2020-01-01T00:00:00Z a\0b\0"


def test_endless_stack_trace(logs: Lake) -> None:
    _, rows = text_rows(logs, b"2020-01-01T00:00:00Z a\n" + b"\tat b\n" * 2500)
    assert [row["message"].count("\n") + 1 for row in rows] == [1000, 1000, 501]
    assert {row["timestamp"] for row in rows} == {1_577_836_800 * 10**9}


def at(signal: Signal, ns: int) -> Callable[[Any], None]:
    """What sets the time of a record."""
    return lambda record: setattr(record, signal.time, ns)


def set_text(record: Any, key: str, text: str) -> None:
    record.attributes.add(key=key).value.string_value = text


def test_every_row_of_the_page_has_its_test_and_every_test_its_row() -> None:
    inputs, _, _questions = DOCS.read_text().partition("\n# ")
    all_rows = [line.strip("|").split("|") for line in inputs.splitlines() if line.startswith("| ")][1:]
    rows = [row for row in all_rows if " in `" not in row[-1]]
    for row in all_rows:
        if row not in rows:
            test, file = re.findall("`([^`]+)`", row[-1])
            assert f"def {test}(" in (Path(__file__).parent / file).read_text()
    named = [row[-1].strip().strip("`") for row in rows]
    here = [name for name in globals() if name.startswith("test_") and not name.startswith("test_every_row")]
    assert named == here
    everything = ", ".join(signal.name for signal in SIGNALS)
    for row in rows:
        assert row[-2].strip() == (
            "logs" if "logs" in inspect.signature(globals()[row[-1].strip(" `")]).parameters else everything
        )
