"""Loki push requests, as protobuf or JSON, to OTLP logs.

Comes in: framed requests. Goes out: one export request. A stream's labels are its resource's attributes, and the first
of `service_name`, `service`, `app`, `job` among them is its `service.name` too. Structured metadata are the record's
attributes; a trace id, span id or level among them, or a level among the labels, also goes to its field. So every label
and every pair stays as it came.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from lakerunner.model.errors import Corrupt
from lakerunner.model.protobuf import delimited
from lakerunner.model.time import iso_time
from lakerunner.pipeline.transcode.columns import Columns
from lakerunner.pipeline.transcode.framed import frames
from lakerunner.pipeline.transcode.json_text import parsed
from lakerunner.pipeline.transcode.logs import body, severity
from lakerunner.pipeline.transcode.plausible import OLDEST_NS, TOO_NEW, doubt
from lakerunner.pipeline.transcode.reading import Reading, Transcoded
from lakerunner.pipeline.transcode.records import RESOURCE_ATTRIBUTES, SERVICE_NAME, id_in, integer, time_in
from lakerunner.pipeline.transcode.request import Damage, Request
from lakerunner.pipeline.transcode.times import LAST_NS, Nanoseconds
from lakerunner.pipeline.transcode.values import Members, Unfit, key_value, key_values

_RECORD, _ATTRIBUTES = b"\x12", b"\x32"
SERVICE_LABELS = ("service_name", "service", "app", "job")
LEVEL_LABELS = ("level", "detected_level", "severity")
_IDS = ((id_in(9, 16), ("trace_id", "traceID", "traceId")), (id_in(10, 8), ("span_id", "spanID", "spanId")))
_SHOWN_LABELS = 8
_time = time_in(1)

Pairs = Sequence[tuple[str, Any]]


class Entry(NamedTuple):
    """`given_ns` is None where no time was given; `ns` also where OTLP cannot hold it."""

    ns: int | None
    line: Any
    metadata: Pairs
    given_ns: int | None


def from_loki_protobuf(signal: str, data: memoryview, columns: Columns) -> Transcoded:
    """The export request of framed logproto.PushRequest messages."""
    return _request(signal, data, columns, _streams_of_protobuf)


def from_loki_json(signal: str, data: memoryview, columns: Columns) -> Transcoded:
    """The export request of framed JSON push requests."""
    return _request(signal, data, columns, _streams_of_json)


def _request(signal: str, data: memoryview, columns: Columns, streams: Any) -> Transcoded:
    if signal != "logs":
        raise Corrupt(f"Loki push requests contain logs, not {signal}")
    request, damage, reading = Request(), Damage(), Reading()
    for at, message in frames(data):
        try:
            for labels, entries in streams(message):
                _add_stream(request, labels, _watched(entries, labels, columns.latest_ns, reading))
        except Unfit as error:
            damage.note(f"the message at byte {at}", str(error))
    damage.refuse()
    return reading.transcoded(request.data())


def _watched(entries: Iterable[Entry], labels: Pairs, latest_ns: int | None, reading: Reading) -> Iterator[Entry]:
    """The same entries; times that are probably wrong are noted, in Loki's words, because doors answer with them."""
    for entry in entries:
        kind = "" if entry.given_ns is None else doubt(entry.given_ns, latest_ns)
        if kind:
            reading.note(kind, _complaint(entry.given_ns or 0, kind, labels))
        yield entry


def _complaint(ns: int, kind: str, labels: Pairs) -> str:
    stream = "'{" + ", ".join(f'{name}="{value}"' for name, value in labels[:_SHOWN_LABELS])[:200] + "}'"
    when = iso_time(ns) if 0 <= ns <= LAST_NS else f"{str(ns)[:40]} ns"
    if kind == TOO_NEW:
        return f"entry for stream {stream} has timestamp too new: {when}"
    oldest = iso_time(OLDEST_NS)
    return f"entry for stream {stream} has timestamp too old: {when}, oldest acceptable timestamp is: {oldest}"


def _add_stream(request: Request, labels: Pairs, entries: Iterable[Entry]) -> None:
    found = dict(labels)
    resource = key_values(RESOURCE_ATTRIBUTES, labels)
    service = next((found[name] for name in SERVICE_LABELS if found.get(name)), None)
    if service is not None and SERVICE_NAME not in found:
        resource = key_value(RESOURCE_ATTRIBUTES, SERVICE_NAME, service) + resource
    level = _level(found)
    for entry in entries:
        metadata = dict(entry.metadata)
        parts = [body(entry.line), _level(metadata) or level]
        if entry.ns is not None:
            parts.append(_time(Nanoseconds(entry.ns), "") or b"")
        for place, names in _IDS:
            placed = (place(metadata[name], "") for name in names if name in metadata)
            parts.append(next((data for data in placed if data is not None), b""))
        parts.append(key_values(_ATTRIBUTES, entry.metadata))
        request.add(resource, delimited(_RECORD, b"".join(parts)))


def _level(pairs: dict[str, Any]) -> bytes:
    for name in LEVEL_LABELS:
        data = severity(pairs[name]) if pairs.get(name) else None
        if data is not None:
            return data
    return b""


# ---- protobuf


@cache
def _push_request() -> Any:
    """logproto.PushRequest. Strings are declared as bytes: one that is not UTF-8 shall not cost the others."""
    proto = descriptor_pb2.FileDescriptorProto(name="lakerunner_loki.proto", package="lakerunner_loki", syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto
    messages: dict[str, Sequence[tuple[int, str, int, str]]] = {
        "Pair": ((1, "name", kinds.TYPE_BYTES, ""), (2, "value", kinds.TYPE_BYTES, "")),
        "Time": ((1, "seconds", kinds.TYPE_INT64, ""), (2, "nanos", kinds.TYPE_INT32, "")),
        "Entry": (
            (1, "timestamp", kinds.TYPE_MESSAGE, "Time"),
            (2, "line", kinds.TYPE_BYTES, ""),
            (3, "metadata", kinds.TYPE_MESSAGE, "Pair*"),
            (4, "parsed", kinds.TYPE_MESSAGE, "Pair*"),
        ),
        "Stream": (
            (1, "labels", kinds.TYPE_BYTES, ""),
            (2, "entries", kinds.TYPE_MESSAGE, "Entry*"),
            (3, "hash", kinds.TYPE_UINT64, ""),
        ),
        "PushRequest": ((1, "streams", kinds.TYPE_MESSAGE, "Stream*"),),
    }
    for name, fields in messages.items():
        message = proto.message_type.add(name=name)
        for number, field, kind, child in fields:
            label = kinds.LABEL_REPEATED if child.endswith("*") else kinds.LABEL_OPTIONAL
            added = message.field.add(name=field, number=number, type=kind, label=label)
            if child:
                added.type_name = f".lakerunner_loki.{child.removesuffix('*')}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(proto)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("lakerunner_loki.PushRequest"))


def _streams_of_protobuf(message: memoryview) -> Iterator[tuple[Pairs, Iterator[Entry]]]:
    try:
        push = _push_request().FromString(bytes(message))
    except DecodeError as error:
        raise Unfit(f"not a Loki push request: {error}") from None
    for stream in push.streams:
        yield parse_labels(stream.labels), (_entry(entry) for entry in stream.entries)


def _entry(entry: Any) -> Entry:
    time = entry.timestamp
    ns = time.seconds * 10**9 + time.nanos if entry.HasField("timestamp") else None
    metadata = [(_text(pair.name), _text_or_bytes(pair.value)) for pair in (*entry.metadata, *entry.parsed)]
    return _timed(ns, _text_or_bytes(entry.line), metadata)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def _text_or_bytes(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _timed(ns: int | None, line: Any, metadata: list[tuple[str, Any]]) -> Entry:
    """An entry whose time, if OTLP cannot hold it, stays in its metadata."""
    if ns is not None and not 0 < ns <= LAST_NS:
        return Entry(None, line, [*metadata, ("timestamp", str(ns))], ns)
    return Entry(ns, line, metadata, ns)


# ---- JSON


def _streams_of_json(message: memoryview) -> Iterator[tuple[Pairs, Iterator[Entry]]]:
    push = parsed(bytes(message))
    streams = push.get("streams") if isinstance(push, dict) else None
    if not isinstance(streams, list):
        raise Unfit("a Loki push request must be an object with a list of streams")
    for number, stream in enumerate(streams):
        where = f"stream {number}"
        if not isinstance(stream, dict) or not isinstance(stream.get("values"), list):
            raise Unfit(f"{where}: expected an object with a list of values")
        yield _pairs(stream.get("stream", {}), where), _entries(stream["values"], where)


def _pairs(value: Any, where: str) -> Pairs:
    if type(value) is Members:
        return value
    if type(value) is not dict:
        raise Unfit(f"{where}: expected an object of labels, found {type(value).__name__}")
    return list(value.items())


def _entries(values: list[Any], where: str) -> Iterator[Entry]:
    for index, value in enumerate(values):
        here = f"{where}, value {index}"
        if type(value) is not list or len(value) not in (2, 3) or not isinstance(value[1], str):
            raise Unfit(f"{here}: expected [time, line] or [time, line, metadata]")
        ns = integer(value[0])
        if ns is None:
            raise Unfit(f"{here}: time is not in nanoseconds since 1970")
        yield _timed(ns, value[1], list(_pairs(value[2] if len(value) == 3 else {}, here)))


# ---- labels

_LABEL = re.compile(
    rb"""\s*(?P<name>[^\W\d][\w:.]*|"(?:[^"\\]|\\.)*")\s*=\s*(?P<value>"(?:[^"\\]|\\.)*"|`[^`]*`)\s*(?P<end>[,}])""",
    re.S,
)
_ESCAPE = re.compile(rb"""\\(?:([abfnrtv\\'"])|x([0-9a-fA-F]{2})|([0-7]{3})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8}))""")
_LETTERS = dict(zip(b"abfnrtv\\'\"", b"\a\b\f\n\r\t\v\\'\"", strict=True))


def parse_labels(data: bytes) -> list[tuple[str, str | bytes]]:
    """`{a="b", c="d"}` as pairs; values are quoted as Go quotes them. Unfit with the byte where it is none."""
    text = data.strip()
    found: list[tuple[str, str | bytes]] = []
    at, end = 1, text[:1]
    if end != b"{":
        raise Unfit(f"labels {_shown(data)} do not start with a brace")
    while end != b"}" and text[at:].strip() != b"}":
        match = _LABEL.match(text, at)
        if match is None:
            raise Unfit(f"labels {_shown(data)}: expected a label at byte {at}")
        name, value, end = match["name"], match["value"], match["end"]
        found.append((_text(_unquoted(name) if name[:1] == b'"' else name), _text_or_bytes(_unquoted(value))))
        at = match.end()
    if end == b"}" and at < len(text):
        raise Unfit(f"labels {_shown(data)}: unexpected end before byte {at}")
    return found


def _shown(data: bytes) -> str:
    return repr(data[:80].decode("utf-8", "backslashreplace"))


def _unquoted(quoted: bytes) -> bytes:
    inner = quoted[1:-1]
    return inner if quoted[:1] == b"`" else _ESCAPE.sub(_unescaped, inner) if b"\\" in inner else inner


def _unescaped(match: re.Match[bytes]) -> bytes:
    letter, byte, octal, short, long = match.groups()
    if letter:
        return bytes([_LETTERS[letter[0]]])
    if byte or octal:
        return bytes([int(byte, 16) if byte else int(octal, 8) & 0xFF])
    try:
        return chr(int(short or long, 16)).encode()
    except (ValueError, UnicodeEncodeError):
        return match.group()
