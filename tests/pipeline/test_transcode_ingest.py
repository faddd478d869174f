"""Objects of every format through a whole ingest task: the same records give the same rows, whatever they came in."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakerunner.bus.topics import IngestBox
from lakerunner.model.protobuf import varint
from lakerunner.model.source import SourceObject
from lakerunner.objects.open import StoreAddress, open_store
from lakerunner.objects.store import ObjectStore
from lakerunner.pipeline.ingest import IngestLimits, ingest_group
from lakerunner.pipeline.transcode.columns import NO_MAPPINGS, Mappings, parse_mappings
from pipeline.transcode_oracle import logs_request

LIMITS = IngestLimits(object_max_bytes=16 << 20, task_max_bytes=8 << 20)
NS = 1_700_000_000_123_456_789
RECORDS = [{"timestamp": NS + n, "message": f"order {n}", "level": "info", "service": "cart"} for n in range(50)]


def parquet() -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(RECORDS), out)
    return out.getvalue()


def loki() -> bytes:
    values = [[str(record["timestamp"]), record["message"], {}] for record in RECORDS]
    stream = {"service": "cart", "level": "info"}
    push = json.dumps({"streams": [{"stream": stream, "values": values}]}).encode()
    return varint(len(push)) + push


def otlp() -> bytes:
    fields = [
        {"time_unix_nano": r["timestamp"], "body": r["message"], "severity_text": "info", "severity_number": 9}
        for r in RECORDS
    ]
    data: bytes = logs_request(*(("cart", one, {}) for one in fields)).SerializeToString()
    return data


def csv() -> bytes:
    lines = [",".join(RECORDS[0]), *(",".join(map(str, record.values())) for record in RECORDS)]
    return "\n".join(lines).encode()


def jsonl() -> bytes:
    return "\n".join(json.dumps(record) for record in RECORDS).encode()


def ingested(tmp_path: Path, files: dict[str, bytes], mappings: Mappings = NO_MAPPINGS) -> tuple[Any, list[Any]]:
    """What became of the objects, and the rows of all segments."""
    address = StoreAddress((tmp_path / "store").as_uri())
    store = open_store(address)
    sources = tuple(_source(store, name, data) for name, data in files.items())
    result = ingest_group(IngestBox(UUID(int=7), "test", "logs", sources), address, LIMITS, mappings)
    columns = ["timestamp", "message", "severity", "severity_number", "service_name"]
    rows = []
    for segment in result.segments:
        table = pq.read_table(io.BytesIO(store.get(segment.path, max_bytes=1 << 24)), columns=columns)
        rows += [tuple(row.values()) for row in table.set_column(0, "t", table[0].cast("int64")).to_pylist()]
    return result, rows


def _source(store: ObjectStore, name: str, data: bytes) -> SourceObject:
    key = f"otel-raw/default/test/{name}"
    store.put(key, data)
    meta = store.head(key)
    return SourceObject(store.bucket, key, meta.etag or "", meta.size, meta.modified_ns)


WANTED = [(NS + n, f"order {n}", "INFO", 9, "cart") for n in range(50)]


def test_every_format_gives_the_same_rows_and_bad_objects_are_set_aside(tmp_path: Path) -> None:
    files = {
        "a.binpb": otlp(),
        "b.jsonl.gz": gzip.compress(jsonl()),
        "c.csv.zst": pa.compress(csv(), "zstd", asbytes=True),
        "d.parquet": parquet(),
        "e.lokijson": loki(),
        "f.json": jsonl(),
        "g.ndjson": b'{"a":1}\nnonsense\n5',
        "h.csv": b"a,b\n1\n",
        "i.xyz": b"what is this",
    }
    result, rows = ingested(tmp_path, files)
    assert sorted(rows) == sorted(WANTED * 6)
    assert {source.key.rpartition("/")[2][0] for source in result.done} == set("abcdef")
    assert [found.rows for _, found in result.findings] == [50] * 6
    failed = {source.key.rpartition("/")[2]: reason for source, reason in result.failed}
    assert failed.keys() == {"g.ndjson", "h.csv", "i.xyz"}
    assert failed["g.ndjson"].startswith("2 of 3 lines cannot be read, first line 2: column 1: not JSON: ")
    assert failed["h.csv"].startswith("1 of 1 line cannot be read, first line 2: 1 cell, the header has 2. ")
    assert "has an unknown ending" in failed["i.xyz"]


def test_spans_come_from_json_lines_too(tmp_path: Path) -> None:
    span = {
        "trace_id": "0102030405060708090a0b0c0d0e0f10",
        "span_id": "0102030405060708",
        "name": "GET /",
        "start": NS,
        "duration": 5,
        "service": "cart",
        "status": "error",
    }
    address = StoreAddress((tmp_path / "store").as_uri())
    store = open_store(address)
    source = _source(store, "spans.jsonl", json.dumps(span).encode())
    result = ingest_group(IngestBox(UUID(int=7), "test", "traces", (source,)), address, LIMITS)
    assert result.done == (source,)
    columns = ["name", "duration", "service_name", "status_code"]
    table = pq.read_table(io.BytesIO(store.get(result.segments[0].path, max_bytes=1 << 24)), columns=columns)
    assert table.to_pylist() == [{"name": "GET /", "duration": 5, "service_name": "cart", "status_code": 2}]


def test_a_mapping_file_is_heeded_by_its_prefix(tmp_path: Path) -> None:
    mappings = parse_mappings('["otel-raw/default/test/m".logs]\nmessage = "said"\nservice = "by"\n', "m.toml")
    files = {
        "mapped.jsonl": f'{{"ts":{NS},"said":"a","by":"cart"}}'.encode(),
        "other.jsonl": f'{{"ts":{NS},"said":"a","msg":"b"}}'.encode(),
    }
    _, rows = ingested(tmp_path, files, mappings)
    assert sorted(rows) == [(NS, "a", "", 0, "cart"), (NS, "b", "", 0, "")]


@pytest.mark.parametrize("text", ["soon", "", "1600-01-01T00:00:00Z"])
def test_a_record_without_a_readable_time_has_that_of_its_object(tmp_path: Path, text: str) -> None:
    result, rows = ingested(tmp_path, {"x.csv": f"time,msg\n{text},a\n".encode()})
    assert rows == [(result.done[0].modified_ns, "a", "", 0, "")]


def test_a_file_without_records_is_done(tmp_path: Path) -> None:
    result, rows = ingested(tmp_path, {"x.csv": b"time,msg\n", "y.jsonl": b"\n\n"})
    assert (len(result.done), result.failed, rows) == (2, (), [])
