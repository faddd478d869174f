"""OTLP messages as grammars for the wire check, and what is said about bytes that are not such a message.

Comes in: the bytes of one file. Goes out: sound bytes that can be walked without looking again, with the number of
messages of each type in them, or Corrupt with the byte where the trouble starts. `KeyValue` appears once per owner,
so that the counts tell how many attributes resources, scopes and records have.

Not known here, and skipped like any field from the future: AnyValue.string_value_strindex and KeyValue.key_strindex,
which only profiles may use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from lakerunner.model.errors import Corrupt
from lakerunner.model.source import SourceObject
from lakerunner.pipeline.read.memory import PADDING
from lakerunner.pipeline.read.repair import repaired
from lakerunner.pipeline.read.rows import Raw
from lakerunner.pipeline.read.walk import ENTITY_REFS
from lakerunner.pipeline.read.wire import (
    BYTES,
    FIXED32,
    FIXED64,
    MESSAGE,
    OK,
    STRING,
    TIME,
    VARINT,
    WRONG_TYPE,
    Field,
    Messages,
    Verdict,
    check,
    check_value,
    checked_varint,
    explain,
    grammar,
)

_KEY_VALUE = {1: Field("key", STRING), 2: Field("value", MESSAGE, "AnyValue", once=1)}
_COMMON: Messages = {
    "Resource": {
        1: Field("attributes", MESSAGE, "Resource.attributes"),
        2: Field("dropped_attributes_count", VARINT),
        3: Field("entity_refs", MESSAGE, "EntityRef"),
    },
    "EntityRef": {number: Field("", BYTES) for number in (1, 2, 3, 4)},  # kept as bytes, whatever they say
    "Resource.attributes": _KEY_VALUE,
    "Scope": {
        1: Field("name", STRING),
        2: Field("version", STRING),
        3: Field("attributes", MESSAGE, "Scope.attributes"),
        4: Field("dropped_attributes_count", VARINT),
    },
    "Scope.attributes": _KEY_VALUE,
    "AnyValue": {
        1: Field("string_value", STRING, once=1),
        2: Field("bool_value", VARINT, once=1),
        3: Field("int_value", VARINT, once=1),
        4: Field("double_value", FIXED64, once=1),
        5: Field("array_value", MESSAGE, "ArrayValue", once=1),
        6: Field("kvlist_value", MESSAGE, "KeyValueList", once=1),
        7: Field("bytes_value", BYTES, once=1),
    },
    "ArrayValue": {1: Field("values", MESSAGE, "AnyValue")},
    "KeyValueList": {1: Field("values", MESSAGE, "KeyValueList.values")},
    "KeyValueList.values": _KEY_VALUE,
}
_LOGS: Messages = {
    "ExportLogsServiceRequest": {1: Field("resource_logs", MESSAGE, "ResourceLogs")},
    "ResourceLogs": {
        1: Field("resource", MESSAGE, "Resource"),
        2: Field("scope_logs", MESSAGE, "ScopeLogs"),
        3: Field("schema_url", STRING),
    },
    "ScopeLogs": {
        1: Field("scope", MESSAGE, "Scope"),
        2: Field("log_records", MESSAGE, "LogRecord"),
        3: Field("schema_url", STRING),
    },
    "LogRecord": {
        1: Field("time_unix_nano", TIME),
        2: Field("severity_number", VARINT),
        3: Field("severity_text", STRING),
        5: Field("body", MESSAGE, "AnyValue", once=1),
        6: Field("attributes", MESSAGE, "LogRecord.attributes"),
        7: Field("dropped_attributes_count", VARINT),
        8: Field("flags", FIXED32),
        9: Field("trace_id", BYTES),
        10: Field("span_id", BYTES),
        11: Field("observed_time_unix_nano", TIME),
        12: Field("event_name", STRING),
    },
    "LogRecord.attributes": _KEY_VALUE,
    **_COMMON,
}


@dataclass(frozen=True)
class Request:
    """One kind of export request: its messages, the first the outermost, and which of them holds the items."""

    signal: str
    messages: Messages
    item: str

    @cached_property
    def tables(self) -> Any:
        return grammar(self.messages)

    def look(self, data: bytes, name: str) -> tuple[int, bool]:
        """What `repaired` asks for."""
        counts = np.zeros(len(self.messages), np.int64)
        verdict = check(np.frombuffer(data, np.uint8), self.tables, list(self.messages).index(name), counts)
        return int(counts.sum()), verdict.odd


LOGS_REQUEST = Request("logs", _LOGS, "LogRecord")

# Positions are 32 bits, also those in texts made of the input, which may be six times as long (steps/json_text.py).
MAX_BYTES = 320 << 20

# Files that come by mistake, by how they begin. Looked at only after the check has failed.
_OTHER_FORMATS = (
    (b"{", "JSON"),
    (b"\x1f\x8b", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"PK\x03\x04", "zip"),
    (b"PAR1", "Parquet"),
)


@dataclass(frozen=True)
class Files:
    """The sound files in one buffer, one after the other up to `end`: concatenated requests are one request.
    `modified_ns` is that of each item's file. `left` did not fit and must be read next."""

    data: Any
    end: int
    counts: Mapping[str, int]
    modified_ns: Any
    done: tuple[SourceObject, ...]
    failed: tuple[tuple[SourceObject, str], ...]
    left: Sequence[Raw]


def joined(raws: Sequence[Raw], request: Request) -> Files:
    """As many of these files as fit, the sound ones of them joined, and why the others are not sound."""
    done, failed, parts, items = [], [], [], []
    total: Counter[str] = Counter()
    left: Sequence[Raw] = ()
    end = 0
    for number, raw in enumerate(raws):
        try:
            part, counts = sound(np.frombuffer(raw.data.toreadonly(), np.uint8), request)
        except Corrupt as error:
            failed.append((raw.source, str(error)))
            continue
        if end + len(part) > MAX_BYTES:
            left = raws[number:]
            break
        end += len(part)
        done.append(raw.source)
        parts.append(part)
        items.append(counts[request.item])
        total.update(counts)
    data = np.concatenate([*parts, ENTITY_REFS, np.zeros(PADDING, np.uint8)])
    modified_ns = np.repeat(np.array([source.modified_ns for source in done], np.int64), items)
    return Files(data, end, total, modified_ns, tuple(done), tuple(failed), left)


def sound(data: Any, request: Request) -> tuple[Any, dict[str, int]]:
    """(bytes, messages per type): the bytes themselves, or where they are unusual yet right, an equal plain form of
    them. Corrupt if they are not such a request."""
    if not len(data):
        raise Corrupt("the file is empty")
    counts = np.zeros(len(request.messages), np.int64)
    verdict = check(data, request.tables, 0, counts)
    if verdict.code == OK and verdict.odd:
        data = np.frombuffer(repaired(data.tobytes(), request.look), np.uint8)
        counts[:] = 0
        verdict = check(data, request.tables, 0, counts)
    if verdict.code != OK:
        raise Corrupt(f"not an OTLP {request.signal} request: {_reason(data, request, verdict)}")
    if len(data) > MAX_BYTES:
        raise Corrupt(f"{len(data)} bytes are more than the {MAX_BYTES} that can be read at once: send smaller files")
    if not counts[1]:
        raise Corrupt(f"not an OTLP {request.signal} request: it holds no {list(request.messages)[1]}")
    return data, dict(zip(request.messages, counts.tolist(), strict=True))


def _reason(data: Any, request: Request, verdict: Verdict) -> str:
    where = explain(data, request.messages, verdict)
    begin = bytes(data[:4])
    for prefix, name in _OTHER_FORMATS:
        if begin.startswith(prefix):
            return f"{where}; this looks like {name}"
    if verdict.code == WRONG_TYPE and list(request.messages)[verdict.message] == request.item:
        other = _signal_of_item(data, verdict)
        if other:
            return f"{where}; this looks like an OTLP {other} request"
    return where


def _signal_of_item(data: Any, verdict: Verdict) -> str:
    """Which signal's item this is, by the fields it has; "" if none that we know."""
    fields = set()
    at, code = verdict.start, OK
    while at < verdict.end and code == OK:
        tag, at, code = checked_varint(data, at, verdict.end)
        field, wire_type = divmod(int(tag), 8)
        fields.add((field, wire_type))
        if code == OK:
            at, code = check_value(data, at, verdict.end, wire_type)
    if (1, 2) in fields and {(7, 1), (8, 1)} & fields:
        return "traces"
    if (1, 2) in fields and {(5, 2), (7, 2), (9, 2), (10, 2), (11, 2)} & fields:
        return "metrics"
    return ""
