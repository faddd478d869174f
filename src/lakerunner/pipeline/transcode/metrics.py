"""Records of named values, one data point each, to OTLP metrics.

A point is a gauge unless its type says counter (monotonic) or sum (monotonic if it says so); both are cumulative unless
they say delta. Any other type stays an attribute beside a gauge: one number cannot be a histogram. Points of the same
name, type, unit and description stand in one Metric.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from lakerunner.model.protobuf import delimited, length, tag
from lakerunner.pipeline.transcode.columns import Columns
from lakerunner.pipeline.transcode.reading import Reading
from lakerunner.pipeline.transcode.records import Kept, Place, Records, integer, time_in
from lakerunner.pipeline.transcode.values import Unfit

_METRIC = b"\x12"  # in a ScopeMetrics
_POINT = b"\x0a"  # in a Gauge or Sum
_NAME, _DESCRIPTION, _UNIT, _GAUGE, _SUM = (tag(number, 2) for number in (1, 2, 3, 5, 7))
_DOUBLE, _INT = tag(4, 1), tag(6, 1)
_NO_VALUE = b"\x40\x01"  # flags: the point says that there was none
_TEMPORALITY, _MONOTONIC = b"\x10", b"\x18\x01"

_TEMPORALITIES = {"delta": 1, "1": 1, "cumulative": 2, "2": 2}
_DIGITS = re.compile(r"[+-]?\d+", re.ASCII)
_YES_NO = {"true": True, "1": True, "false": False, "0": False}


class Metrics(Records):
    signal = "metrics"
    attribute_tag = b"\x3a"
    wanted: ClassVar[tuple[str, ...]] = ("timestamp",)
    places: ClassVar[Mapping[str, Place]] = {"timestamp": time_in(3), "start": time_in(2)}

    def __init__(self, columns: Columns, reading: Reading) -> None:
        super().__init__(columns, reading)
        self._points: dict[tuple[bytes, bytes, bytes, bytes], bytearray] = {}

    def add(self, names: tuple[str, ...], values: Sequence[Any]) -> None:
        plan = self.plans(names)
        parts: list[bytes] = []
        left = self.placed(plan, values, parts)
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
    """The point's number. What a double cannot hold of it stays in `left`."""
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
    whole = integer(value)
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
    return Kept(data) if overflowed or _DIGITS.fullmatch(str(value)) else data


def _text(field_tag: bytes, field: str, left: dict[str, Any]) -> bytes:
    return delimited(field_tag, left.pop(field).encode()) if isinstance(left.get(field), str) else b""


def _kind(left: dict[str, Any]) -> tuple[bytes, bytes]:
    """(the tag of the metric's data, what stands in it beside the points), and takes what it used from `left`."""
    word = left.get("type")
    kind = word.lower().rpartition("_")[2] if isinstance(word, str) else ""
    if kind not in ("gauge", "counter", "sum"):
        return _GAUGE, b""
    del left["type"]
    if kind == "gauge":
        return _GAUGE, b""
    temporality = _taken(left, "temporality", _TEMPORALITIES, 2)
    monotonic = _taken(left, "monotonic", _YES_NO, kind == "counter")
    return _SUM, _TEMPORALITY + bytes([temporality]) + (_MONOTONIC if monotonic else b"")


def _taken(left: dict[str, Any], field: str, words: dict[str, Any], default: Any) -> Any:
    """What the field's word, number or boolean means; the default, and the field stays, if it means nothing."""
    found = words.get(str(left.get(field)).lower().rpartition("_")[2])
    if found is None:
        return default
    del left[field]
    return found
