"""The messages of all topics: frozen dataclasses with a version, and their JSON on the wire.

The wire form is `{"type": ..., "version": ..., ...fields}`. A reader accepts its own version only; an unknown type,
version or field is Corrupt, so that an old reader never half-understands a new message. docs/formats/topics.md shows
who sends what to whom.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Any, ClassVar, get_args, get_origin, get_type_hints
from uuid import UUID

import orjson

from lakerunner.model.errors import Corrupt
from lakerunner.model.source import SourceObject

MAX_BYTES = 16 << 20  # of one message on the wire; a box of 1,000 objects takes a few hundred kB


@dataclass(frozen=True)
class ObjectArrived:
    """A raw object to ingest. Topic objstore.ingest.{signal}."""

    version: ClassVar[int] = 1
    organization: UUID
    collector: str
    signal: str
    source: SourceObject


@dataclass(frozen=True)
class IngestBox:
    """Raw objects of one organization and collector to turn into segments. Topic segments.{signal}.ingest."""

    version: ClassVar[int] = 1
    organization: UUID
    collector: str
    signal: str
    sources: tuple[SourceObject, ...]


@dataclass(frozen=True)
class Candidate:
    """A segment with all that a boxer needs to know, so that it does not read the index."""

    id: UUID
    start_ns: int
    bytes: int

    def __post_init__(self) -> None:
        if self.bytes <= 0:
            raise ValueError(f"a segment has bytes: {self.bytes}")


@dataclass(frozen=True)
class SegmentsCommitted:
    """Segments that compaction or rollup may want. Topics boxer.{signal}.compact and boxer.metrics.rollup. `level` is
    that of the merge they are for; no segment has a higher one."""

    version: ClassVar[int] = 2
    organization: UUID
    collector: str
    signal: str
    frequency_ms: int
    level: int
    segments: tuple[Candidate, ...]


@dataclass(frozen=True)
class CompactBox:
    """Segments, of this level at most, to merge into fewer, larger ones of the next level. Topic
    segments.{signal}.compact."""

    version: ClassVar[int] = 1
    organization: UUID
    collector: str
    signal: str
    frequency_ms: int
    level: int
    segments: tuple[UUID, ...]


@dataclass(frozen=True)
class RollupBox:
    """Metric segments to roll up into the next tier. Topic segments.metrics.rollup."""

    version: ClassVar[int] = 1
    organization: UUID
    collector: str
    frequency_ms: int
    target_frequency_ms: int
    segments: tuple[UUID, ...]


Message = ObjectArrived | IngestBox | SegmentsCommitted | CompactBox | RollupBox


def arrivals(signal: str) -> str:
    return f"objstore.ingest.{signal}"


def ingest_boxes(signal: str) -> str:
    return f"segments.{signal}.ingest"


def compact_candidates(signal: str) -> str:
    return f"boxer.{signal}.compact"


def compact_boxes(signal: str) -> str:
    return f"segments.{signal}.compact"


ROLLUP_CANDIDATES = "boxer.metrics.rollup"
ROLLUP_BOXES = "segments.metrics.rollup"


# Reads a JSON value; the text names the value in errors.
_Reader = Callable[[object, str], Any]
_TYPES: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(Message)}


def encode(message: Message) -> bytes:
    """Return the wire form. Raise Corrupt if the message has no wire form: text that is not Unicode, or too large."""
    head = {"type": type(message).__name__, "version": message.version}
    body = {field.name: getattr(message, field.name) for field in fields(message)}
    try:
        payload = orjson.dumps(head | body)
    except orjson.JSONEncodeError as error:
        raise Corrupt(f"{type(message).__name__} cannot be written as a message: {error}") from error
    return _check_size(payload)


def decode(payload: bytes) -> Message:
    """Return the message of a wire form. Raise Corrupt, with the reason, for anything that `encode` does not write."""
    try:
        content = orjson.loads(_check_size(payload))
    except orjson.JSONDecodeError as error:
        raise Corrupt(f"message is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise Corrupt(f"message is {_type_name(content)}, not an object")
    name, version = content.pop("type", None), content.pop("version", None)
    kind = _TYPES.get(name) if isinstance(name, str) else None
    if kind is None:
        raise Corrupt(f"unknown message type {_shorten(name)}: known types are {', '.join(_TYPES)}")
    if type(version) is not int or version != kind.version:
        raise Corrupt(f"{name} has version {_shorten(version)}, this reader knows only version {kind.version}")
    message: Message = _read_fields(kind, content, name)
    return message


def _check_size(payload: bytes) -> bytes:
    if len(payload) > MAX_BYTES:
        raise Corrupt(f"message has {len(payload)} bytes, the limit is {MAX_BYTES}")
    return payload


def _read_fields(kind: Any, value: object, where: str) -> Any:
    """Return a dataclass from a JSON object that has exactly its fields."""
    content = _check_type(dict, value, where)
    readers = _readers(kind)
    if unknown := content.keys() - readers.keys():
        raise Corrupt(f"{where} has an unknown field {_shorten(min(unknown))}")
    if missing := readers.keys() - content.keys():
        raise Corrupt(f"{where} lacks the field {min(missing)}")
    try:
        return kind(**{name: read(content[name], f"{where}.{name}") for name, read in readers.items()})
    except ValueError as error:  # raised by the dataclass's own checks
        raise Corrupt(f"{where}: {error}") from error


@cache
def _readers(kind: Any) -> dict[str, _Reader]:
    hints = get_type_hints(kind)
    return {field.name: _reader(hints[field.name]) for field in fields(kind)}


def _reader(kind: Any) -> _Reader:
    if get_origin(kind) is tuple:
        read = _reader(get_args(kind)[0])
        return lambda value, where: tuple(
            read(item, f"{where}[{place}]") for place, item in enumerate(_check_type(list, value, where))
        )
    if is_dataclass(kind):
        return lambda value, where: _read_fields(kind, value, where)
    if kind is UUID:
        return _read_uuid
    return lambda value, where: _check_type(kind, value, where)


def _read_uuid(value: object, where: str) -> UUID:
    text: str = _check_type(str, value, where)
    try:
        uuid = UUID(text)
    except ValueError:
        raise Corrupt(f"{where} is {_shorten(text)}, not a UUID") from None
    if str(uuid) != text:
        raise Corrupt(f"{where} is {_shorten(text)}, which is not the standard form of a UUID: {uuid}")
    return uuid


def _check_type(kind: type[Any], value: object, where: str) -> Any:
    if type(value) is not kind:  # exactly: a bool is not a number
        raise Corrupt(f"{where} is {_type_name(value)}, not {kind.__name__}")
    return value


def _type_name(value: object) -> str:
    return "null" if value is None else type(value).__name__


def _shorten(value: object) -> str:
    """Return a value of the sender for our message, cut: it may have any size."""
    text = repr(value)
    return text if len(text) <= 80 else text[:80] + "..."
