"""Ingest of log files in every input format: records per second through transcoding and make_segments.

The same records are written in each format; the figures are ratios to the same records as OTLP protobuf in the same
run, so that the machine does not matter. The ways take turns, and the best turn of each counts, in CPU time, because
other work on the machine takes turns too. Exit code 1 if a format gives another number of rows.
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from lakerunner.model.organization import DEFAULT_ORGANIZATION
from lakerunner.model.protobuf import varint
from lakerunner.model.signal import LOGS
from lakerunner.model.source import SourceObject
from lakerunner.pipeline.make_segments import Raw, make_segments
from lakerunner.pipeline.transcode.columns import GUESSED
from lakerunner.pipeline.transcode.formats import TRANSCODERS
from lakerunner.pipeline.warm import warm_ingest
from lakerunner_demo.shop import Shop

OPENING_NS = 1_767_225_600_000_000_000  # 2026-01-01
Record = dict[str, Any]


def shop_records(count: int) -> list[Record]:
    """Return the demo shop's logs as flat records."""
    found: list[Record] = []
    for batch in Shop(seed=7, start_ns=OPENING_NS, rate=500).bulk_logs(count, per_file=8192):
        for resource_logs in ExportLogsServiceRequest.FromString(batch.data).resource_logs:
            service = next(a.value.string_value for a in resource_logs.resource.attributes if a.key == "service.name")
            for scope_logs in resource_logs.scope_logs:
                found += (_flat(record, service) for record in scope_logs.log_records)
    return found


def _flat(record: Any, service: str) -> Record:
    flat: Record = {
        "timestamp": record.time_unix_nano,
        "message": record.body.string_value,
        "level": record.severity_text,
        "service": service,
    }
    if record.trace_id:
        flat |= {"trace_id": record.trace_id.hex(), "span_id": record.span_id.hex()}
    for attribute in record.attributes:
        kind = attribute.value.WhichOneof("value")
        flat[attribute.key] = getattr(attribute.value, kind) if kind in _SCALARS else str(attribute.value)
    return flat


_SCALARS = {"string_value", "int_value", "double_value", "bool_value"}
_FIELDS = ("timestamp", "message", "level", "service", "trace_id", "span_id")


def otlp(records: list[Record]) -> bytes:
    return _request(records).SerializeToString()


def _request(records: list[Record]) -> Any:
    # Transcoded, so that all formats say the same; written anew by protobuf.
    return ExportLogsServiceRequest.FromString(
        TRANSCODERS["jsonl"]("logs", memoryview(json_lines(records)), GUESSED).require_complete()
    )


def otlp_json(records: list[Record]) -> bytes:
    """Write requests of a thousand records, one per line, with ids as hex."""
    lines = []
    for start in range(0, len(records), 1000):
        value = MessageToDict(_request(records[start : start + 1000]))
        for record in _records_of(value):
            for name in ("traceId", "spanId"):
                if name in record:
                    record[name] = b64decode(record[name]).hex()
        lines.append(orjson.dumps(value))
    return b"\n".join(lines)


def _records_of(value: Any) -> Iterator[Record]:
    for resource_logs in value["resourceLogs"]:
        for scope_logs in resource_logs["scopeLogs"]:
            yield from scope_logs["logRecords"]


def json_lines(records: list[Record]) -> bytes:
    return b"\n".join(map(orjson.dumps, records))


def tab_separated(records: list[Record]) -> bytes:
    return comma_separated(records, "\t")


def comma_separated(records: list[Record], delimiter: str = ",") -> bytes:
    names = list(dict.fromkeys(name for record in records for name in record))
    out = io.StringIO()
    writer = csv.DictWriter(out, names, delimiter=delimiter)
    writer.writeheader()
    writer.writerows(records)
    return out.getvalue().encode()


def parquet(records: list[Record]) -> bytes:
    names = list(dict.fromkeys(name for record in records for name in record))
    columns = {name: _column([record.get(name) for record in records]) for name in names}
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out, compression="zstd")
    return out.getvalue()


def _column(values: list[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([None if value is None else str(value) for value in values])


def loki_json(records: list[Record]) -> bytes:
    """Write Loki pushes of a thousand lines."""
    frames = []
    for start in range(0, len(records), 1000):
        streams: dict[str, list[Any]] = {}
        for record in records[start : start + 1000]:
            metadata = {name: str(value) for name, value in record.items() if name not in _FIELDS or name[-3:] == "_id"}
            metadata["level"] = record["level"]
            value = [str(record["timestamp"]), record["message"], metadata]
            streams.setdefault(record["service"], []).append(value)
        push = {"streams": [{"stream": {"service": name}, "values": values} for name, values in streams.items()]}
        message = orjson.dumps(push)
        frames.append(varint(len(message)) + message)
    return b"".join(frames)


def loki_protobuf(records: list[Record]) -> bytes:
    """Write the same pushes as the protobuf message that the transcoder reads."""
    from lakerunner.pipeline.transcode.loki import _push_request, split_frames

    out = []
    for _, message in split_frames(memoryview(loki_json(records))):
        push = _push_request()()
        for stream in orjson.loads(message)["streams"]:
            target = push.streams.add(labels=f'{{service="{stream["stream"]["service"]}"}}'.encode())
            for ns, line, metadata in stream["values"]:
                entry = target.entries.add(line=line.encode())
                entry.timestamp.seconds, entry.timestamp.nanos = divmod(int(ns), 10**9)
                for name, value in metadata.items():
                    entry.metadata.add(name=name.encode(), value=value.encode())
        data = push.SerializeToString()
        out.append(varint(len(data)) + data)
    return b"".join(out)


def plain_text(records: list[Record]) -> bytes:
    """Write lines as loggers do: time, level, message."""
    lines = []
    for record in records:
        seconds, nanos = divmod(record["timestamp"], 10**9)
        stamp = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{nanos:09}Z"
        lines.append(f"{stamp} {record['level']} {record['message']}".replace("\n", " ").encode())
    return b"\n".join(lines)


WRITERS: dict[str, Callable[[list[Record]], bytes]] = {
    "otlp": otlp,
    "otlp_json": otlp_json,
    "jsonl": json_lines,
    "csv": comma_separated,
    "tsv": tab_separated,
    "parquet": parquet,
    "text": plain_text,
    "lokipb": loki_protobuf,
    "lokijson": loki_json,
}


def ingest(name: str, data: bytes) -> tuple[float, float]:
    """Return (seconds of transcoding, seconds in all); exit if rows are missing."""
    started = time.process_time()
    content = memoryview(data)
    if name in TRANSCODERS:
        content = memoryview(TRANSCODERS[name]("logs", content, GUESSED).require_complete())
    transcoded = time.process_time() - started
    source = SourceObject("bench", f"x.{name}", "etag", len(data), OPENING_NS)
    made = make_segments(LOGS, DEFAULT_ORGANIZATION.id, "bench", [Raw(source, content)], lambda _path, _data: None)
    if made.failed:
        sys.exit(f"{name}: {made.failed[0][1]}")
    rows = sum(segment.rows for segment in made.segments)
    if rows != ingest.expected:  # type: ignore[attr-defined]
        sys.exit(f"{name} gave {rows} rows")
    return transcoded, time.process_time() - started


def main() -> None:
    pa.set_cpu_count(1)  # as in a Spark task: figures are per core
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    records = shop_records(options.records)
    files = {name: write(records) for name, write in WRITERS.items()}
    ingest.expected = len(records)  # type: ignore[attr-defined]
    warm_ingest()
    best: dict[str, tuple[float, float]] = {}
    for _ in range(options.repeat):
        for name, data in files.items():
            seconds = ingest(name, data)
            best[name] = min(seconds, best.get(name, seconds), key=lambda pair: pair[1])
    print(f"{len(records)} records, best of {options.repeat}")
    for name, (transcoded, total) in best.items():
        print(
            f"{name:10} {len(files[name]) / len(records):6.0f} B/record {len(records) / total:8.0f} records/s, "
            f"{best['otlp'][1] / total:5.2f}x of otlp"
            + (f", transcoding alone {len(records) / transcoded:8.0f} records/s" if name in TRANSCODERS else "")
        )


if __name__ == "__main__":
    main()
