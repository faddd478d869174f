"""Records of named values, as JSON lines, CSV and Parquet hold them, to OTLP: what the three signals share.

Comes in: the names and values of one record after the other. Goes out: an export request. What always holds: each
value goes to its field, or is an attribute under its own name; a value that its field cannot hold is an attribute too.
"""

from __future__ import annotations

import re
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from lakerunner.model.protobuf import FIXED32, FIXED64, delimited, length, tag
from lakerunner.model.time import iso_time
from lakerunner.pipeline.transcode.columns import TIMES, Columns, Plan, Plans
from lakerunner.pipeline.transcode.json_text import inside
from lakerunner.pipeline.transcode.plausible import doubt
from lakerunner.pipeline.transcode.reading import Reading
from lakerunner.pipeline.transcode.request import Request
from lakerunner.pipeline.transcode.times import instant
from lakerunner.pipeline.transcode.values import (
    ABSENT,
    SHORT,
    SHORT_VALUES,
    Members,
    any_value,
    key_value,
    key_values,
    short_heads,
)

SERVICE_NAME = "service.name"
RESOURCE_ATTRIBUTES = b"\x0a"  # of a Resource
_VALUE = b"\x12"  # of a KeyValue
_INTEGER = re.compile(r"[+-]?\d{1,20}", re.ASCII)
_MAX_SERVICES = 4096
_IDS = ("trace_id", "span_id", "parent_span_id")


class Kept(bytes):
    """A field that does not say all that the column said: the column stays an attribute as well."""


# A value and the unit its column is known to have, "" if none: the field's bytes, or None if it cannot hold the value.
Place = Callable[[Any, str], bytes | None]


def integer(value: Any) -> int | None:
    """A whole number, or the digits of one."""
    if type(value) is int:
        return value
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        return int(value)
    return None


def members(value: Any) -> Iterable[tuple[str, Any]] | None:
    """The members of an object, or of a text that is a JSON object."""
    if isinstance(value, str) and value[:1] == "{":
        value = inside(value)
    if type(value) is dict:
        return value.items()
    return value if type(value) is Members else None


def text_in(field: int) -> Place:
    field_tag = tag(field, 2)
    return lambda value, _: delimited(field_tag, value.encode()) if isinstance(value, str) else None


_pack_time = struct.Struct("<Q").pack


@dataclass(frozen=True)
class TimeIn:
    """The place of a time; dates without a year lie near `near_ns`. `watch` sees each time that is placed."""

    tag: bytes
    near_ns: int | None = None
    watch: Callable[[int], None] | None = None

    def __call__(self, value: Any, unit: str) -> bytes | None:
        found = instant(value, unit, self.near_ns)
        if found is None:
            return None
        if self.watch is not None:
            self.watch(found.ns)
        data = self.tag + _pack_time(found.ns)
        return data if found.exact else Kept(data)


def time_in(field: int) -> TimeIn:
    return TimeIn(tag(field, FIXED64))


def id_in(field: int, size: int) -> Place:
    """A trace or span id of so many bytes, as hex or as bytes; one of zeros is none."""
    field_tag = tag(field, 2) + length(size)

    def place(value: Any, _: str) -> bytes | None:
        data = identifier(value, size)
        return None if data is None else field_tag + data

    return place


def identifier(value: Any, size: int) -> bytes | None:
    if isinstance(value, str) and len(value) == 2 * size and value.isalnum():
        try:
            value = bytes.fromhex(value)
        except ValueError:
            return None
    if isinstance(value, bytes) and len(value) == size and any(value):
        return value
    return None


def fixed32_in(field: int) -> Place:
    field_tag = tag(field, FIXED32)

    def place(value: Any, _: str) -> bytes | None:
        number = integer(value)
        return field_tag + struct.pack("<I", number) if number is not None and 0 <= number < 1 << 32 else None

    return place


class Records(ABC):
    """One signal's records on their way into a request."""

    signal: ClassVar[str]
    attribute_tag: ClassVar[bytes]
    row_time: ClassVar[str] = "timestamp"  # the field that is the time of the row
    places: ClassVar[Mapping[str, Place]]  # fields that stand in the item itself
    wanted: ClassVar[tuple[str, ...]]  # fields without which something is guessed, so it is noted

    def __init__(self, columns: Columns, reading: Reading) -> None:
        self.reading = reading
        self.plans = Plans(self.signal, columns)
        self.near_ns = columns.near_ns
        self._latest_ns = columns.latest_ns
        self._places = {name: self._own_place(name, place) for name, place in self.places.items()}
        self.request = Request()
        self._heads = short_heads(self.attribute_tag)
        self._services: dict[str, bytes] = {}

    @abstractmethod
    def add(self, names: tuple[str, ...], values: Sequence[Any]) -> None:
        """One record; a value may be ABSENT. Unfit if it cannot be one of this signal."""

    def data(self) -> bytes:
        return self.request.data()

    def _own_place(self, field: str, place: Place) -> Place:
        """Return the place of this field in this object's records."""
        if not isinstance(place, TimeIn):
            return place
        return replace(place, near_ns=self.near_ns, watch=self._watch_time if field == self.row_time else None)

    def _watch_time(self, ns: int) -> None:
        kind = doubt(ns, self._latest_ns)
        if kind:
            self.reading.note(kind, f"the record has the time {iso_time(ns)}")

    def placed(self, plan: Plan, values: Sequence[Any], parts: list[bytes]) -> dict[str, Any]:
        """Append to `parts` what stands in the item itself: its own fields, and the columns that are no field.
        What comes back are the fields that are still to be placed, by name."""
        places = self._places
        open_fields: dict[str, Any] = {}
        for field, index, unit in plan.fields:
            value = values[index]
            if value is ABSENT:
                if field in self.wanted:
                    self._note_missing(field)
                continue
            place = places.get(field)
            data = None if place is None else place(value, unit)
            if data is not None:
                parts.append(data)
            elif place is not None:
                self._note_misfit(field, value)
            if type(data) is not bytes:
                open_fields[field] = value
        for field in self.wanted:
            if field not in plan.at:
                self._note_missing(field)
        heads = self._heads
        for index, key in plan.rest:
            value = values[index]
            if value is ABSENT:
                continue
            if type(value) is str and (size := len(text := value.encode())) < SHORT and len(key) < 2 * SHORT:
                # Nearly every attribute, so it is written without a call.
                parts += (heads[len(key) + 4 + size], key, SHORT_VALUES[size], text)
            else:
                content = any_value(value)
                before = _VALUE + length(len(content))
                parts += (self.attribute_tag, length(len(key) + len(before) + len(content)), key, before, content)
        return open_fields

    def _note_missing(self, field: str) -> None:
        self.reading.note(f"no {field}", f"no column is the {field}")

    def _note_misfit(self, field: str, value: Any) -> None:
        """Note a value that says something, and not what its field holds: the column stays an attribute."""
        if field in TIMES:
            self.reading.note("time not understood", f"{field} {str(value)[:80]!r} is not a time")
        elif field in _IDS and isinstance(value, str) and value.strip("0"):
            self.reading.note("id not hex", f"{field} {value[:80]!r} is not hex digits of an id")
        elif field == "level" and type(value) is int:
            self.reading.note("level not understood", f"level {str(value)[:80]} is a number, whose meaning is unknown")

    def close(self, open_fields: dict[str, Any], names: Mapping[str, str], parts: list[bytes]) -> bytes:
        """Take the attributes, the resource and the service of the fields that are left, and make attributes of all
        others. What comes back is the resource's content."""
        spliced = members(open_fields.get("attributes"))
        if spliced is not None:
            parts.append(key_values(self.attribute_tag, spliced))
            del open_fields["attributes"]
        resource = self._resource(open_fields)
        for field, value in open_fields.items():
            parts.append(key_value(self.attribute_tag, names[field], value))
        return resource

    def _resource(self, open_fields: dict[str, Any]) -> bytes:
        content, named = b"", False
        pairs = members(open_fields.get("resource"))
        if pairs is not None:
            pairs = list(pairs)
            content, named = key_values(RESOURCE_ATTRIBUTES, pairs), SERVICE_NAME in dict(pairs)
            del open_fields["resource"]
        service = open_fields.get("service")
        if named or not isinstance(service, str):
            if not named:
                self._note_missing("service")
            return content
        del open_fields["service"]
        found = self._services.get(service)
        if found is None:
            if len(self._services) == _MAX_SERVICES:
                self._services.clear()
            found = self._services[service] = key_value(RESOURCE_ATTRIBUTES, SERVICE_NAME, service)
        return found + content
