"""Load the lines of a state through the doors of the product: as Loki push requests (logproto.PushRequest) in raw
objects, which the transcoder and ingest turn into segments.

The lines of each state come in one or several objects, which become segments of their own, in the order of the script:
the first lines in the first one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from uuid import UUID

from conformance.answer import LogEntry
from conformance.logql_script import LogState
from lakerunner.bus.topics import IngestBox
from lakerunner.model.labels import Labels
from lakerunner.model.protobuf import DELIMITED, VARINT, delimited, tag, varint
from lakerunner.model.segment import Segment
from lakerunner.model.source import SourceObject
from lakerunner.objects.open import StoreAddress, open_store
from lakerunner.objects.store import ObjectStore
from lakerunner.pipeline.ingest import BoxResult, IngestLimits, ingest_group

COLLECTOR = "scripts"
LIMITS = IngestLimits(object_max_bytes=64 << 20, task_max_bytes=1)  # every object becomes segments of its own


def parts_of(state: LogState, parts: int) -> list[Sequence[LogEntry]]:
    """Return the lines of each object."""
    size = -(-len(state.lines) // parts) or 1
    return [state.lines[start : start + size] for start in range(0, len(state.lines), size)]


def push_request(lines: Iterable[LogEntry]) -> bytes:
    """Return a request, not compressed. Bytes of a line that are not UTF-8 stay as they are."""
    streams: dict[Labels, list[bytes]] = {}
    for line in lines:
        streams.setdefault(line.stream, []).append(_message(2, _entry(line)))
    return b"".join(_message(1, _message(1, _selector(stream)) + b"".join(own)) for stream, own in streams.items())


def _entry(line: LogEntry) -> bytes:
    seconds, nanos = divmod(line.time, 10**9)
    time = tag(1, VARINT) + varint(seconds) + tag(2, VARINT) + varint(nanos)
    metadata = (_message(3, _message(1, _bytes(name)) + _message(2, _bytes(value))) for name, value in line.metadata)
    return _message(1, time) + _message(2, _bytes(line.text)) + b"".join(metadata)


def _selector(labels: Labels) -> bytes:
    return _bytes("{" + ", ".join(f"{name}={_quoted(value)}" for name, value in labels) + "}")


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _message(field: int, data: bytes) -> bytes:
    return delimited(tag(field, DELIMITED), data)


# ---- objects and segments


def ingested_lines(address: StoreAddress, organization: UUID, state: LogState, parts: int) -> Sequence[Segment]:
    """Return the segments of a state's lines, which come in so many objects. Nothing is committed."""
    put = partial(_put, open_store(address), organization)
    sources = tuple(put(n, part) for n, part in enumerate(parts_of(state, parts)))
    box = IngestBox(organization, COLLECTOR, "logs", sources)
    result = ingest_lines(address, box)
    if result.failed:
        raise AssertionError(f"a script's lines were set aside: {result.failed}")
    return result.segments


def ingest_lines(address: StoreAddress, box: IngestBox) -> BoxResult:
    return ingest_group(box, address, LIMITS)


def _put(store: ObjectStore, organization: UUID, number: int, lines: Sequence[LogEntry]) -> SourceObject:
    request = push_request(lines)
    key = f"otel-raw/{organization}/{COLLECTOR}/logs-{number}.lokipb"
    store.put(key, varint(len(request)) + request)
    meta = store.head(key)
    return SourceObject(store.bucket, key, meta.etag or "", meta.size, meta.modified_ns)
