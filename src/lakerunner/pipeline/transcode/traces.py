"""Records of named values, one span each, to OTLP spans.

The end is taken, or else start and duration make it. A duration that is a bare number has the unit of a start that is
one too; where that does not tell, only a mapping file can (`duration_unit`), and the duration stays an attribute.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from lakerunner.model.protobuf import delimited, length
from lakerunner.pipeline.transcode.columns import Plan, plain_name
from lakerunner.pipeline.transcode.json_text import inside
from lakerunner.pipeline.transcode.records import Place, Records, fixed32_in, id_in, integer, members, text_in, time_in
from lakerunner.pipeline.transcode.times import LAST_NS, Instant, duration_ns, instant
from lakerunner.pipeline.transcode.values import key_value, key_values

_SPAN = b"\x12"  # in a ScopeSpans
_KIND, _END, _EVENT, _LINK, _STATUS = b"\x30", b"\x41", b"\x5a", b"\x6a", b"\x7a"
_STATUS_MESSAGE, _STATUS_CODE = b"\x12", b"\x18"

_KINDS = ("unspecified", "internal", "server", "client", "producer", "consumer")
_CODES = ("unset", "ok", "error")
_STATUS_MEMBERS = {"code", "message"}


def _named(value: Any, words: Sequence[str]) -> int | None:
    """The number of a word, as it is or behind a prefix like SPAN_KIND_, or such a number itself."""
    number = integer(value)
    if number is None and isinstance(value, str):
        word = value.lower().rpartition("_")[2]
        number = words.index(word) if word in words else None
    return number if number is not None and 0 <= number < len(words) else None


def _kind(value: Any, _: str) -> bytes | None:
    number = _named(value, _KINDS)
    return None if number is None else _KIND + bytes([number])


# Members of an event and of a link, by their plain names; all others are its attributes.
_EVENT_PLACES: dict[str, Place] = {
    **dict.fromkeys(("timestamp", "time", "ts", "timeunixnano"), time_in(1)),
    "name": text_in(2),
}
_LINK_PLACES: dict[str, Place] = {"traceid": id_in(1, 16), "spanid": id_in(2, 8), "tracestate": text_in(3)}
_EVENT_ATTRIBUTES, _LINK_ATTRIBUTES = b"\x1a", b"\x22"


class Traces(Records):
    signal = "traces"
    attribute_tag = b"\x4a"
    row_time = "start"
    wanted: ClassVar[tuple[str, ...]] = ("start",)
    places: ClassVar[Mapping[str, Place]] = {
        "trace_id": id_in(1, 16),
        "span_id": id_in(2, 8),
        "trace_state": text_in(3),
        "parent_span_id": id_in(4, 8),
        "name": text_in(5),
        "kind": _kind,
        "start": time_in(7),
        "end": time_in(8),
        "flags": fixed32_in(16),
    }

    def add(self, names: tuple[str, ...], values: Sequence[Any]) -> None:
        plan = self.plans(names)
        parts: list[bytes] = []
        left = self.placed(plan, values, parts)
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

    def _instant(self, field: str, plan: Plan, values: Sequence[Any]) -> Instant | None:
        index = plan.at.get(field)
        return None if index is None else instant(values[index], plan.units.get(field, ""), self.near_ns)


def _place_end(start: Instant, unit: str, left: dict[str, Any], parts: list[bytes]) -> None:
    long = duration_ns(left["duration"], unit or start.unit)
    if long is not None and start.ns + long <= LAST_NS:
        parts.append(_END + struct.pack("<Q", start.ns + long))
        del left["duration"]


def _place_status(left: dict[str, Any], parts: list[bytes]) -> None:
    """A code, or an object of nothing but code and message; a message of its own column."""
    status = list(members(left.get("status")) or [("code", left.get("status"))])
    found = dict(status)
    if "status_message" in left:
        status.append(("message", left["status_message"]))
        found.setdefault("message", left["status_message"])
    code, message = _named(found.get("code", 0), _CODES), found.get("message", "")
    if code is None or not isinstance(message, str) or len(status) > len(found) or not found.keys() <= _STATUS_MEMBERS:
        return
    data = (delimited(_STATUS_MESSAGE, message.encode()) if message else b"") + _STATUS_CODE + bytes([code])
    parts.append(delimited(_STATUS, data))
    left.pop("status", None)
    left.pop("status_message", None)


def _place_items(field: str, item: Callable[[Any], bytes | None], left: dict[str, Any], parts: list[bytes]) -> None:
    """All items of a list, or none: then the list stays an attribute."""
    items = left.get(field)
    if isinstance(items, str) and items[:1] == "[":
        items = inside(items)
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
    pairs = members(value)
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
        inner: Iterable[tuple[str, Any]] | None = members(member) if plain == "attributes" else None
        parts.append(key_values(attribute_tag, inner) if inner is not None else key_value(attribute_tag, name, member))
    item = b"".join(parts)
    return b"".join((field_tag, length(len(item)), item))
