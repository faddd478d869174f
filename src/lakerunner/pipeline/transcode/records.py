"""Records of named values, from JSON lines, CSV and Parquet, to OTLP: what the three signals share.

Comes in: the names and values of one record after the other. Goes out: an export request. What always holds: each value
goes to its field, or becomes an attribute under its own name; so does a value that its field cannot hold.
"""

from __future__ import annotations

import re
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from lakerunner.model.protobuf import FIXED32, FIXED64, delimited, length, tag
from lakerunner.model.source import doubt
from lakerunner.model.time import iso_time
from lakerunner.pipeline.transcode.any_values import (
    ABSENT,
    SHORT,
    SHORT_VALUES,
    Members,
    any_value,
    key_value,
    key_values,
    short_heads,
)
from lakerunner.pipeline.transcode.columns import TIMES, ColumnPlan, ColumnPlans, Columns
from lakerunner.pipeline.transcode.json_text import parse_embedded
from lakerunner.pipeline.transcode.results import FindingsBuilder, RequestBuilder
from lakerunner.pipeline.transcode.times import parse_instant

SERVICE_NAME = "service.name"
RESOURCE_ATTRIBUTES = b"\x0a"  # of a Resource
_VALUE = b"\x12"  # of a KeyValue
_INTEGER = re.compile(r"[+-]?\d{1,20}", re.ASCII)
_MAX_SERVICES = 4096
_IDS = ("trace_id", "span_id", "parent_span_id")


class Inexact(bytes):
    """An encoded field that does not hold everything of its column: the column stays an attribute as well."""


# From a value and the known unit of its column ("" if unknown) to the encoded field; None if it cannot hold the value.
Place = Callable[[Any, str], bytes | None]


def parse_integer(value: Any) -> int | None:
    """Return a whole number, also from its digits; None for anything else."""
    if type(value) is int:
        return value
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        return int(value)
    return None


def object_members(value: Any) -> Iterable[tuple[str, Any]] | None:
    """Return the members of an object, or of a text that is a JSON object; None for anything else."""
    if isinstance(value, str) and value[:1] == "{":
        value = parse_embedded(value)
    if type(value) is dict:
        return value.items()
    return value if type(value) is Members else None


def text_in(field: int) -> Place:
    field_tag = tag(field, 2)
    return lambda value, _: delimited(field_tag, value.encode()) if isinstance(value, str) else None


_pack_time = struct.Struct("<Q").pack


@dataclass(frozen=True)
class TimeIn:
    """Places a time; dates without a year lie near `near_ns`. `watch` is called with each time that is placed."""

    tag: bytes
    near_ns: int | None = None
    watch: Callable[[int], None] | None = None

    def __call__(self, value: Any, unit: str) -> bytes | None:
        found = parse_instant(value, unit, self.near_ns)
        if found is None:
            return None
        if self.watch is not None:
            self.watch(found.ns)
        data = self.tag + _pack_time(found.ns)
        return data if found.exact else Inexact(data)


def time_in(field: int) -> TimeIn:
    return TimeIn(tag(field, FIXED64))


def id_in(field: int, size: int) -> Place:
    """Return a place for a trace or span id of `size` bytes, given as hex or as bytes; zeros are not an id."""
    field_tag = tag(field, 2) + length(size)

    def place(value: Any, _: str) -> bytes | None:
        data = parse_id(value, size)
        return None if data is None else field_tag + data

    return place


def parse_id(value: Any, size: int) -> bytes | None:
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
        number = parse_integer(value)
        return field_tag + struct.pack("<I", number) if number is not None and 0 <= number < 1 << 32 else None

    return place


class SignalRecords(ABC):
    """Writes the records of one signal into a request."""

    signal: ClassVar[str]
    attribute_tag: ClassVar[bytes]
    row_time: ClassVar[str] = "timestamp"  # the field that becomes the time of the row
    places: ClassVar[Mapping[str, Place]]  # fields of the item itself
    expected: ClassVar[tuple[str, ...]]  # fields whose absence is noted, because something is guessed instead

    def __init__(self, columns: Columns, findings: FindingsBuilder) -> None:
        self.findings = findings
        self.plans = ColumnPlans(self.signal, columns)
        self.near_ns = columns.near_ns
        self._latest_ns = columns.latest_ns
        self._places = {name: self._own_place(name, place) for name, place in self.places.items()}
        self.request = RequestBuilder()
        self._heads = short_heads(self.attribute_tag)
        self._services: dict[str, bytes] = {}

    @abstractmethod
    def add(self, names: tuple[str, ...], values: Sequence[Any]) -> None:
        """Add one record; a value may be ABSENT. Raise Unfit if it cannot be a record of this signal."""

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
            self.findings.note(kind, f"the record has the time {iso_time(ns)}")

    def place_fields(self, plan: ColumnPlan, values: Sequence[Any], parts: list[bytes]) -> dict[str, Any]:
        """Append to `parts` the item's own fields, and the columns without a field as attributes. Return the fields
        that are still to be placed, by name."""
        places = self._places
        open_fields: dict[str, Any] = {}
        for field, index, unit in plan.fields:
            value = values[index]
            if value is ABSENT:
                if field in self.expected:
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
        for field in self.expected:
            if field not in plan.at:
                self._note_missing(field)
        heads = self._heads
        for index, key in plan.rest:
            value = values[index]
            if value is ABSENT:
                continue
            if type(value) is str and (size := len(text := value.encode())) < SHORT and len(key) < 2 * SHORT:
                # Nearly every attribute is short, so it is written without a call.
                parts += (heads[len(key) + 4 + size], key, SHORT_VALUES[size], text)
            else:
                content = any_value(value)
                before = _VALUE + length(len(content))
                parts += (self.attribute_tag, length(len(key) + len(before) + len(content)), key, before, content)
        return open_fields

    def _note_missing(self, field: str) -> None:
        self.findings.note(f"no {field}", f"no column is the {field}")

    def _note_misfit(self, field: str, value: Any) -> None:
        """Note a value that its field cannot hold, unless it means "none": the column stays an attribute."""
        if field in TIMES:
            self.findings.note("time not understood", f"{field} {str(value)[:80]!r} is not a time")
        elif field in _IDS and isinstance(value, str) and value.strip("0"):
            self.findings.note("id not hex", f"{field} {value[:80]!r} is not an id in hex digits")
        elif field == "level" and type(value) is int:
            self.findings.note("level not understood", f"level {str(value)[:80]} is a number, whose meaning is unknown")

    def close(self, open_fields: dict[str, Any], names: Mapping[str, str], parts: list[bytes]) -> bytes:
        """Place the attributes, the resource and the service, and make attributes of all other fields that are left.
        Return the resource's content."""
        spliced = object_members(open_fields.get("attributes"))
        if spliced is not None:
            parts.append(key_values(self.attribute_tag, spliced))
            del open_fields["attributes"]
        resource = self._resource(open_fields)
        for field, value in open_fields.items():
            parts.append(key_value(self.attribute_tag, names[field], value))
        return resource

    def _resource(self, open_fields: dict[str, Any]) -> bytes:
        content, named = b"", False
        pairs = object_members(open_fields.get("resource"))
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
