"""Records of named values to OTLP log records, metrics and spans: a class for each signal.

A metric's point is a gauge unless its type is counter (monotonic) or sum (monotonic if stated); both are cumulative
unless stated as delta. Any other type stays an attribute beside a gauge: one number cannot be a histogram. Points of
the same name, type, unit and description share one Metric.

A span's end is taken from its column, else computed from start and duration. A duration that is a bare number has the
unit of a start that is one too; if that is not known, only a mapping file can state it (`duration_unit`), and the
duration stays an attribute.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from lakerunner.model.protobuf import delimited, length, tag
from lakerunner.pipeline.steps.record_columns import LEVELS, severity_of
from lakerunner.pipeline.transcode.any_values import Unfit, any_value, key_value, key_values
from lakerunner.pipeline.transcode.columns import ColumnPlan, Columns, plain_name
from lakerunner.pipeline.transcode.json_text import parse_embedded
from lakerunner.pipeline.transcode.records import (
    Inexact,
    Place,
    SignalRecords,
    fixed32_in,
    id_in,
    object_members,
    parse_integer,
    text_in,
    time_in,
)
from lakerunner.pipeline.transcode.results import FindingsBuilder
from lakerunner.pipeline.transcode.times import LAST_NS, Instant, duration_ns, parse_instant

# ---- logs

_RECORD = b"\x12"  # in a ScopeLogs
_NUMBER, _BODY = b"\x10", b"\x2a"
_severity_text = text_in(3)


def encode_body(value: Any, _: str = "") -> bytes:
    """Encode a record's body, which can be any value."""
    data = any_value(value)
    return b"".join((_BODY, length(len(data)), data))


def encode_severity(value: Any, _: str = "") -> bytes | None:
    """Encode the severity text as it is, and OTLP's number for it if it is a word that loggers use."""
    text = _severity_text(value, "")
    if text is None:
        return None
    level = severity_of(0, value)
    return text + _NUMBER + bytes([LEVELS.index(level) * 4 + 1]) if level in LEVELS else text


def _severity_number(value: Any, _: str) -> bytes | None:
    number = parse_integer(value)
    return _NUMBER + bytes([number]) if number is not None and 1 <= number <= 24 else None


class LogRecords(SignalRecords):
    """In GUESSES, `severity_number` is behind `level`, so that it wins if a record has both: protobuf takes the last
    one. In the same way a record's own time wins over `time_before`, the encoded time for records without one."""

    time_before = b""
    signal = "logs"
    attribute_tag = b"\x32"
    expected: ClassVar[tuple[str, ...]] = ("timestamp", "message")
    places: ClassVar[Mapping[str, Place]] = {
        "timestamp": time_in(1),
        "observed_timestamp": time_in(11),
        "message": encode_body,
        "level": encode_severity,
        "severity_number": _severity_number,
        "trace_id": id_in(9, 16),
        "span_id": id_in(10, 8),
        "flags": fixed32_in(8),
        "event_name": text_in(12),
    }

    def add(self, names: tuple[str, ...], values: Sequence[Any]) -> None:
        plan = self.plans(names)
        parts: list[bytes] = [self.time_before]
        left = self.place_fields(plan, values, parts)
        resource = self.close(left, {field: names[plan.at[field]] for field in left}, parts)
        record = b"".join(parts)
        self.request.add(resource, b"".join((_RECORD, length(len(record)), record)))


# ---- metrics

_METRIC = b"\x12"  # in a ScopeMetrics
_POINT = b"\x0a"  # in a Gauge or Sum
_NAME, _DESCRIPTION, _UNIT, _GAUGE, _SUM = (tag(number, 2) for number in (1, 2, 3, 5, 7))
_DOUBLE, _INT = tag(4, 1), tag(6, 1)
_NO_VALUE = b"\x40\x01"  # flags: no recorded value
_TEMPORALITY, _MONOTONIC = b"\x10", b"\x18\x01"

_TEMPORALITIES = {"delta": 1, "1": 1, "cumulative": 2, "2": 2}
_DIGITS = re.compile(r"[+-]?\d+", re.ASCII)
_YES_NO = {"true": True, "1": True, "false": False, "0": False}


class MetricRecords(SignalRecords):
    """Gathers points by their metric before it writes them."""

    signal = "metrics"
    attribute_tag = b"\x3a"
    expected: ClassVar[tuple[str, ...]] = ("timestamp",)
    places: ClassVar[Mapping[str, Place]] = {"timestamp": time_in(3), "start": time_in(2)}

    def __init__(self, columns: Columns, findings: FindingsBuilder) -> None:
        super().__init__(columns, findings)
        self._points: dict[tuple[bytes, bytes, bytes, bytes], bytearray] = {}

    def add(self, names: tuple[str, ...], values: Sequence[Any]) -> None:
        plan = self.plans(names)
        parts: list[bytes] = []
        left = self.place_fields(plan, values, parts)
        name = left.pop("name", None)
        if not isinstance(name, str) or not name:
            raise Unfit("a metric needs a name: no column of the mapping file and no known column has one")
        parts.append(_value(name, left))
        head = delimited(_NAME, name.encode()) + _text(_DESCRIPTION, "description", left) + _text(_UNIT, "unit", left)
        kind, tail = _kind(left)
        resource = self.close(left, {field: names[plan.at[field]] for field in left}, parts)
        self._add_point((resource, head, kind, tail), delimited(_POINT, b"".join(parts)))

    def _add_point(self, metric: tuple[bytes, bytes, bytes, bytes], point: bytes) -> None:
        points = self._points.get(metric)
        if points is None:
            points = self._points[metric] = bytearray()
            self.request.count(sum(len(part) for part in metric), 0)
        points += point
        self.request.count(len(point), 1)

    def data(self) -> bytes:
        for (resource, head, kind, tail), points in self._points.items():
            data = b"".join((head, kind, length(len(points) + len(tail)), points, tail))
            self.request.put(resource, delimited(_METRIC, data))
        return self.request.data()


def _value(name: str, left: dict[str, Any]) -> bytes:
    """Encode the point's number. A value that a double cannot hold exactly stays in `left` as well."""
    value = left.get("value")
    if value is None:
        return _NO_VALUE
    data = _number(value)
    if data is None:
        raise Unfit(f"the value {str(value)[:80]!r} of {name[:80]!r} is not a number")
    if type(data) is bytes:
        del left["value"]
    return data


def _number(value: Any) -> bytes | None:
    whole = parse_integer(value)
    if whole is not None and -(1 << 63) <= whole < 1 << 63:
        return _INT + struct.pack("<q", whole)
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        double = float(value)
    except (ValueError, OverflowError):
        return None
    data = _DOUBLE + struct.pack("<d", double)
    overflowed = math.isinf(double) and any(character.isdecimal() for character in str(value))
    return Inexact(data) if overflowed or _DIGITS.fullmatch(str(value)) else data


def _text(field_tag: bytes, field: str, left: dict[str, Any]) -> bytes:
    return delimited(field_tag, left.pop(field).encode()) if isinstance(left.get(field), str) else b""


def _kind(left: dict[str, Any]) -> tuple[bytes, bytes]:
    """Return (tag of the metric's data, its content beside the points), and remove what was used from `left`."""
    word = left.get("type")
    kind = word.lower().rpartition("_")[2] if isinstance(word, str) else ""
    if kind not in ("gauge", "counter", "sum"):
        return _GAUGE, b""
    del left["type"]
    if kind == "gauge":
        return _GAUGE, b""
    temporality = _take_word(left, "temporality", _TEMPORALITIES, 2)
    monotonic = _take_word(left, "monotonic", _YES_NO, kind == "counter")
    return _SUM, _TEMPORALITY + bytes([temporality]) + (_MONOTONIC if monotonic else b"")


def _take_word(left: dict[str, Any], field: str, words: dict[str, Any], default: Any) -> Any:
    """Return the meaning of the field's word, number or boolean, and remove the field; the default if it is unknown."""
    found = words.get(str(left.get(field)).lower().rpartition("_")[2])
    if found is None:
        return default
    del left[field]
    return found


# ---- traces

_SPAN = b"\x12"  # in a ScopeSpans
_KIND, _END, _EVENT, _LINK, _STATUS = b"\x30", b"\x41", b"\x5a", b"\x6a", b"\x7a"
_STATUS_MESSAGE, _STATUS_CODE = b"\x12", b"\x18"

_KINDS = ("unspecified", "internal", "server", "client", "producer", "consumer")
_CODES = ("unset", "ok", "error")
_STATUS_MEMBERS = {"code", "message"}


def _enum_number(value: Any, words: Sequence[str]) -> int | None:
    """Return the number of a word, with or without a prefix like SPAN_KIND_, or such a number itself."""
    number = parse_integer(value)
    if number is None and isinstance(value, str):
        word = value.lower().rpartition("_")[2]
        number = words.index(word) if word in words else None
    return number if number is not None and 0 <= number < len(words) else None


def _span_kind(value: Any, _: str) -> bytes | None:
    number = _enum_number(value, _KINDS)
    return None if number is None else _KIND + bytes([number])


# Members of an event and of a link, by their plain names; all others become its attributes.
_EVENT_PLACES: dict[str, Place] = {
    **dict.fromkeys(("timestamp", "time", "ts", "timeunixnano"), time_in(1)),
    "name": text_in(2),
}
_LINK_PLACES: dict[str, Place] = {"traceid": id_in(1, 16), "spanid": id_in(2, 8), "tracestate": text_in(3)}
_EVENT_ATTRIBUTES, _LINK_ATTRIBUTES = b"\x1a", b"\x22"


class SpanRecords(SignalRecords):
    """Writes one span for each record."""

    signal = "traces"
    attribute_tag = b"\x4a"
    row_time = "start"
    expected: ClassVar[tuple[str, ...]] = ("start",)
    places: ClassVar[Mapping[str, Place]] = {
        "trace_id": id_in(1, 16),
        "span_id": id_in(2, 8),
        "trace_state": text_in(3),
        "parent_span_id": id_in(4, 8),
        "name": text_in(5),
        "kind": _span_kind,
        "start": time_in(7),
        "end": time_in(8),
        "flags": fixed32_in(16),
    }

    def add(self, names: tuple[str, ...], values: Sequence[Any]) -> None:
        plan = self.plans(names)
        parts: list[bytes] = []
        left = self.place_fields(plan, values, parts)
        if "duration" in left:
            start, end = (self._instant(field, plan, values) for field in ("start", "end"))
            if start is not None and end is None:
                _place_end(start, plan.units.get("duration", ""), left, parts)
        if "status" in left or "status_message" in left:
            _place_status(left, parts)
        _place_items("events", _event, left, parts)
        _place_items("links", _link, left, parts)
        resource = self.close(left, {field: names[plan.at[field]] for field in left}, parts)
        self.request.add(resource, delimited(_SPAN, b"".join(parts)))

    def _instant(self, field: str, plan: ColumnPlan, values: Sequence[Any]) -> Instant | None:
        index = plan.at.get(field)
        return None if index is None else parse_instant(values[index], plan.units.get(field, ""), self.near_ns)


def _place_end(start: Instant, unit: str, left: dict[str, Any], parts: list[bytes]) -> None:
    long = duration_ns(left["duration"], unit or start.unit)
    if long is not None and start.ns + long <= LAST_NS:
        parts.append(_END + struct.pack("<Q", start.ns + long))
        del left["duration"]


def _place_status(left: dict[str, Any], parts: list[bytes]) -> None:
    """Place a status that is a code, or an object of only code and message; the message may have its own column."""
    status = list(object_members(left.get("status")) or [("code", left.get("status"))])
    found = dict(status)
    if "status_message" in left:
        status.append(("message", left["status_message"]))
        found.setdefault("message", left["status_message"])
    code, message = _enum_number(found.get("code", 0), _CODES), found.get("message", "")
    if code is None or not isinstance(message, str) or len(status) > len(found) or not found.keys() <= _STATUS_MEMBERS:
        return
    data = (delimited(_STATUS_MESSAGE, message.encode()) if message else b"") + _STATUS_CODE + bytes([code])
    parts.append(delimited(_STATUS, data))
    left.pop("status", None)
    left.pop("status_message", None)


def _place_items(field: str, item: Callable[[Any], bytes | None], left: dict[str, Any], parts: list[bytes]) -> None:
    """Place all items of a list, or none: then the list stays an attribute."""
    items = left.get(field)
    if isinstance(items, str) and items[:1] == "[":
        items = parse_embedded(items)
    if type(items) is not list:
        return
    written = [item(one) for one in items]
    if None not in written:
        parts += [one for one in written if one is not None]
        del left[field]


def _event(value: Any) -> bytes | None:
    return _item(value, _EVENT, _EVENT_PLACES, _EVENT_ATTRIBUTES)


def _link(value: Any) -> bytes | None:
    return _item(value, _LINK, _LINK_PLACES, _LINK_ATTRIBUTES)


def _item(value: Any, field_tag: bytes, places: dict[str, Place], attribute_tag: bytes) -> bytes | None:
    pairs = object_members(value)
    if pairs is None:
        return None
    parts: list[bytes] = []
    taken = set()
    for name, member in pairs:
        plain = plain_name(name)
        place = places.get(plain)
        data = place(member, "") if place is not None and place not in taken else None
        if data is not None:
            taken.add(place)
            parts.append(data)
        if type(data) is bytes:
            continue
        inner: Iterable[tuple[str, Any]] | None = object_members(member) if plain == "attributes" else None
        parts.append(key_values(attribute_tag, inner) if inner is not None else key_value(attribute_tag, name, member))
    item = b"".join(parts)
    return b"".join((field_tag, length(len(item)), item))


RECORDS: dict[str, type[SignalRecords]] = {kind.signal: kind for kind in (LogRecords, MetricRecords, SpanRecords)}
