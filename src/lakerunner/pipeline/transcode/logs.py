"""Records of named values to OTLP log records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from lakerunner.model.protobuf import length
from lakerunner.pipeline.steps.severity import LEVELS, severity_of
from lakerunner.pipeline.transcode.records import Place, Records, fixed32_in, id_in, integer, text_in, time_in
from lakerunner.pipeline.transcode.values import any_value

_RECORD = b"\x12"  # in a ScopeLogs
_NUMBER, _BODY = b"\x10", b"\x2a"
_severity_text = text_in(3)


def body(value: Any, _: str = "") -> bytes:
    """A record's body; it can be anything."""
    data = any_value(value)
    return b"".join((_BODY, length(len(data)), data))


def severity(value: Any, _: str = "") -> bytes | None:
    """The text as it is, and the number that OTLP has for it where it is a word that loggers use."""
    text = _severity_text(value, "")
    if text is None:
        return None
    level = severity_of(0, value)
    return text + _NUMBER + bytes([LEVELS.index(level) * 4 + 1]) if level in LEVELS else text


def _severity_number(value: Any, _: str) -> bytes | None:
    number = integer(value)
    return _NUMBER + bytes([number]) if number is not None and 1 <= number <= 24 else None


class Logs(Records):
    """`severity_number` stands behind `level`, so that it decides where there are both: the last one counts. So does
    a time of the record itself over `time_before`, the field of one that it gets without."""

    time_before = b""
    signal = "logs"
    attribute_tag = b"\x32"
    wanted: ClassVar[tuple[str, ...]] = ("timestamp", "message")
    places: ClassVar[Mapping[str, Place]] = {
        "timestamp": time_in(1),
        "observed_timestamp": time_in(11),
        "message": body,
        "level": severity,
        "severity_number": _severity_number,
        "trace_id": id_in(9, 16),
        "span_id": id_in(10, 8),
        "flags": fixed32_in(8),
        "event_name": text_in(12),
    }

    def add(self, names: tuple[str, ...], values: Sequence[Any]) -> None:
        plan = self.plans(names)
        parts: list[bytes] = [self.time_before]
        left = self.placed(plan, values, parts)
        resource = self.close(left, {field: names[plan.at[field]] for field in left}, parts)
        record = b"".join(parts)
        self.request.add(resource, b"".join((_RECORD, length(len(record)), record)))
