"""Loki push requests, as protobuf or JSON, to OTLP logs.

Comes in: requests, each preceded by its length. Goes out: one export request. A stream's labels become attributes of
its resource, and the first of `service_name`, `service`, `app`, `job` among them is its `service.name` too. Structured
metadata become the record's attributes; a trace id, span id or level among them, or a level among the labels, is also
copied to its field. So every label and every pair is kept as it was sent.

The schema URL of the resource is a mark that its attributes are the labels of a stream: LOKI_STREAM_SERVICE if
`service.name` was added to them, else LOKI_STREAM (docs/formats/streams.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from lakerunner.model.errors import Corrupt
from lakerunner.model.labels.selector import STREAM, Fault, Token, read_items, token_in_braces, unquoted
from lakerunner.model.protobuf import delimited
from lakerunner.model.source import OLDEST_NS, TOO_NEW, doubt
from lakerunner.model.streams.log_record import LOKI_STREAM, LOKI_STREAM_SERVICE
from lakerunner.model.time import iso_time
from lakerunner.pipeline.transcode.any_values import Members, Unfit, key_value, key_values
from lakerunner.pipeline.transcode.columns import Columns
from lakerunner.pipeline.transcode.json_text import parse_json
from lakerunner.pipeline.transcode.records import RESOURCE_ATTRIBUTES, SERVICE_NAME, id_in, parse_integer, time_in
from lakerunner.pipeline.transcode.results import Damage, FindingsBuilder, RequestBuilder, Transcoded
from lakerunner.pipeline.transcode.signal_records import encode_body, encode_severity
from lakerunner.pipeline.transcode.times import LAST_NS, Nanoseconds

_RECORD, _ATTRIBUTES = b"\x12", b"\x32"
SERVICE_LABELS = ("service_name", "service", "app", "job")
LEVEL_LABELS = ("level", "detected_level", "severity")
_IDS = ((id_in(9, 16), ("trace_id", "traceID", "traceId")), (id_in(10, 8), ("span_id", "spanID", "spanId")))
_SHOWN_LABELS = 8
_KNOWN_BYTES = 2048  # longer labels are not cached, but parsed each time
_time = time_in(1)

Pairs = Sequence[tuple[str, Any]]


class Entry(NamedTuple):
    """One line of a stream. `given_ns` is None if it has no time; `ns` also if OTLP cannot hold its time."""

    ns: int | None
    line: Any
    metadata: Pairs
    given_ns: int | None


def from_loki(streams: Any, signal: str, data: memoryview, columns: Columns) -> Transcoded:
    """Return the export request of framed push requests; `streams` reads one of them."""
    if signal != "logs":
        raise Corrupt(f"Loki push requests contain logs, not {signal}")
    request, damage, findings = RequestBuilder(), Damage(), FindingsBuilder()
    for at, message in split_frames(data):
        try:
            for labels, entries in streams(message):
                _add_stream(request, labels, _note_doubtful_times(entries, labels, columns.latest_ns, findings))
        except Unfit as error:
            damage.note(f"the message at byte {at}", str(error))
    damage.refuse()
    return findings.build(request.data())


def _note_doubtful_times(
    entries: Iterable[Entry], labels: Pairs, latest_ns: int | None, findings: FindingsBuilder
) -> Iterator[Entry]:
    """Yield the same entries; times that are probably wrong are noted, in Loki's words, because push doors answer with
    them."""
    for entry in entries:
        kind = "" if entry.given_ns is None else doubt(entry.given_ns, latest_ns)
        if kind:
            findings.note(kind, _complaint(entry.given_ns or 0, kind, labels))
        yield entry


def _complaint(ns: int, kind: str, labels: Pairs) -> str:
    stream = "'{" + ", ".join(f'{name}="{value}"' for name, value in labels[:_SHOWN_LABELS])[:200] + "}'"
    when = iso_time(ns) if 0 <= ns <= LAST_NS else f"{str(ns)[:40]} ns"
    if kind == TOO_NEW:
        return f"entry for stream {stream} has timestamp too new: {when}"
    oldest = iso_time(OLDEST_NS)
    return f"entry for stream {stream} has timestamp too old: {when}, oldest acceptable timestamp is: {oldest}"


def _add_stream(request: RequestBuilder, labels: Pairs, entries: Iterable[Entry]) -> None:
    found = dict(labels)
    resource, mark = key_values(RESOURCE_ATTRIBUTES, labels), LOKI_STREAM
    service = next((found[name] for name in SERVICE_LABELS if found.get(name)), None)
    if service is not None and SERVICE_NAME not in found:
        resource, mark = key_value(RESOURCE_ATTRIBUTES, SERVICE_NAME, service) + resource, LOKI_STREAM_SERVICE
    schema_url = mark.encode()
    level = _level(found)
    for entry in entries:
        metadata = dict(entry.metadata)
        parts = [encode_body(entry.line), _level(metadata) or level]
        if entry.ns is not None:
            parts.append(_time(Nanoseconds(entry.ns), "") or b"")
        for place, names in _IDS:
            placed = (place(metadata[name], "") for name in names if name in metadata)
            parts.append(next((data for data in placed if data is not None), b""))
        parts.append(key_values(_ATTRIBUTES, entry.metadata))
        request.add(resource, delimited(_RECORD, b"".join(parts)), schema_url)


def _level(pairs: dict[str, Any]) -> bytes:
    for name in LEVEL_LABELS:
        data = encode_severity(pairs[name]) if pairs.get(name) else None
        if data is not None:
            return data
    return b""


# ---- protobuf


@cache
def _push_request() -> Any:
    """Return the class of logproto.PushRequest. Strings are declared as bytes, so that protobuf does not refuse the
    whole request for one that is not UTF-8."""
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


def protobuf_streams(message: memoryview) -> Iterator[tuple[Pairs, Iterator[Entry]]]:
    """Yield the labels and entries of each stream of a logproto.PushRequest."""
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
    return _make_entry(ns, _text_or_bytes(entry.line), metadata)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def _text_or_bytes(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _make_entry(ns: int | None, line: Any, metadata: list[tuple[str, Any]]) -> Entry:
    """Return an entry; a time that OTLP cannot hold is kept in its metadata."""
    if ns is not None and not 0 < ns <= LAST_NS:
        return Entry(None, line, [*metadata, ("timestamp", str(ns))], ns)
    return Entry(ns, line, metadata, ns)


# ---- JSON


def json_streams(message: memoryview) -> Iterator[tuple[Pairs, Iterator[Entry]]]:
    """Yield the labels and entries of each stream of a push request in JSON."""
    push = parse_json(bytes(message))
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
        ns = parse_integer(value[0])
        if ns is None:
            raise Unfit(f"{here}: time is not in nanoseconds since 1970")
        yield _make_entry(ns, value[1], list(_pairs(value[2] if len(value) == 3 else {}, here)))


# ---- labels


def parse_labels(data: bytes) -> Pairs:
    """Parse `{a="b", c="d"}`. Raise Unfit with the byte of the error."""
    return _cached_labels(data) if len(data) <= _KNOWN_BYTES else _labels(data)


@lru_cache(maxsize=2048)  # clients repeat their streams
def _cached_labels(data: bytes) -> Pairs:
    return _labels(data)


def _labels(data: bytes) -> Pairs:
    text = data.strip().decode(errors="surrogateescape")
    if text[:1] != "{":
        raise Unfit(f"labels {_excerpt(data)} do not start with a brace")
    tokens = _LabelTokens(text, _excerpt(data))
    labels = (item.matcher for item in read_items(tokens, STREAM))
    found = tuple((_text(_bytes(label.name)), _text_or_bytes(_bytes(label.value))) for label in labels)
    if tokens.end < len(text):
        raise tokens.wrong(tokens.end, "nothing may follow the labels")
    return found


class _Token(NamedTuple):
    kind: str
    text: str
    start: int


class _LabelTokens:
    """The tokens of a stream's labels, the opening brace first. `end` is the end of the last one taken."""

    def __init__(self, text: str, shown: str) -> None:
        self.end = 0
        self._text = text
        self._shown = shown
        self._next: _Token | None = _Token("{", "{", 0)

    @property
    def kind(self) -> str:
        return self._peek().kind

    def _peek(self) -> _Token:
        if self._next is None:
            try:
                kind, start, end = token_in_braces(self._text, self.end, STREAM)
            except Fault as fault:
                raise self.wrong(fault.at, fault.message) from None
            self._next = _Token(kind, self._text[start:end], start)
        return self._next

    def take(self) -> _Token:
        token, self._next = self._peek(), None
        self.end = token.start + len(token.text)
        return token

    def value(self, token: Token) -> str:
        return unquoted(token.text)

    def unexpected(self, _context: str, expected: str) -> Unfit:
        return self.wrong(self._peek().start, f"expected {expected}")

    def wrong(self, at: int, message: str) -> Unfit:
        return Unfit(f"labels {self._shown}: {message} at byte {len(_bytes(self._text[:at]))}")


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def _excerpt(data: bytes) -> str:
    return repr(data[:80].decode("utf-8", "backslashreplace"))


_MAX_LENGTH_BYTES = 5


def split_frames(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Yield (position, message) of each message, which is preceded by its length as a varint. Raise Corrupt at the
    first that is longer than the rest of the data."""
    at = 0
    while at < len(data):
        start = at
        size, at = _length(data, at)
        if size > len(data) - at:
            raise Corrupt(f"byte {start}: a message of {size} bytes, but only {len(data) - at} are left")
        yield start, data[at : at + size]
        at += size


def _length(data: memoryview, at: int) -> tuple[int, int]:
    """Return (the varint here, the position behind it)."""
    number = 0
    for place, byte in enumerate(data[at : at + _MAX_LENGTH_BYTES]):
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return number, at + place + 1
    raise Corrupt(f"byte {at}: expected the length of a message")
