"""Plain text: one log record per line, stack traces joined, time and level guessed from how the line begins.

Comes in: a file of lines in any encoding that its first bytes state, else UTF-8. Goes out: an export request. What
always holds: every line that is not blank is part of exactly one record, or rejected; a record's message is its lines
exactly as they are written, but for their ends. A record that is one JSON object is read as such.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, ClassVar

from lakerunner.model.errors import Corrupt
from lakerunner.model.protobuf import FIXED64, tag
from lakerunner.pipeline.transcode.columns import Columns
from lakerunner.pipeline.transcode.encodings import as_utf8
from lakerunner.pipeline.transcode.json_lines import JsonTarget
from lakerunner.pipeline.transcode.line_formats import LINE_FORMATS, ZONE, LineFormat, Said, dated, undated
from lakerunner.pipeline.transcode.lines import Overlong, lines
from lakerunner.pipeline.transcode.logs import Logs
from lakerunner.pipeline.transcode.reading import Reading, Transcoded
from lakerunner.pipeline.transcode.stack_traces import MAX_BYTES, MAX_LINES, StackTrace
from lakerunner.pipeline.transcode.times import instant
from lakerunner.pipeline.transcode.values import Unfit

# The formats of a file are those of its first lines, within its first bytes.
SAMPLE_LINES = 100
SAMPLE_BYTES = 1 << 20
# Of a longer line only the beginning is looked at, for a time and level.
MAX_PARSED = 64 << 10
_HEAD = 256

_TIME = tag(1, FIXED64)
_RAW_BODY = "lakerunner.body"  # as the reader calls the bytes of a body that is not UTF-8


def from_text(signal: str, data: memoryview, columns: Columns) -> Transcoded:
    """The export request of these lines, and those that are too long."""
    if signal != "logs":
        raise Corrupt(f"plain text files contain logs, not {signal}: rename the file, or send {signal} as JSON lines")
    reading = Reading()
    content = as_utf8(data, reading)
    records = _TextLogs(columns, reading)
    target = JsonTarget(signal, records)
    for record in _records(content, _formats(content, columns.near_ns), columns.near_ns):
        reading.at(record.number, record.offset)
        if type(record.lines[0]) is Overlong:
            reading.reject(record.lines[0].reason, record.lines[0])
        elif not _is_json(record, target):
            message = b"\n".join(record.lines)
            names, values = record.said
            if ZONE in names:
                text = f"time zone {values[names.index(ZONE)]} may be several: its time is read as UTC"
                reading.note("time zone not understood", text)
            try:
                records.add(("message", *names), [message.decode(), *values])
            except UnicodeDecodeError:
                reading.note(
                    "not UTF-8", f"bytes that are not UTF-8 are shown as U+FFFD in the message, and kept as {_RAW_BODY}"
                )
                values = [message.decode(errors="replace"), *values, message]
                records.add(("message", *names, _RAW_BODY), values)
    return reading.transcoded(target.data())


class _Record:
    """What one record is made of; `said` is what its first line says beside the message."""

    __slots__ = ("lines", "number", "offset", "said", "size", "trace")

    def __init__(self, number: int, offset: int, line: bytes, said: Said, trace: StackTrace | None) -> None:
        self.number = number
        self.offset = offset
        self.lines = [line]
        self.size = len(line)
        self.said = said
        self.trace = trace  # None where nothing can go on with it

    def takes(self, text: str, line: bytes, blank: Sequence[bytes]) -> bool:
        """Append this line, and the blank ones above it, if it goes on with the record and the limits allow it."""
        if self.trace is None or not self.trace.goes_on(text, bool(blank)):
            return False
        size = self.size + len(line) + sum(map(len, blank)) + len(blank) + 1
        if len(self.lines) + len(blank) >= MAX_LINES or size > MAX_BYTES:
            return False
        self.lines += (*blank, line)
        self.size = size
        return True


def _records(data: memoryview, formats: Sequence[LineFormat], near_ns: int | None) -> Iterator[_Record]:
    """The records of the file, each when it is complete."""
    record: _Record | None = None
    blank: list[bytes] = []
    for number, offset, raw in lines(data):
        if type(raw) is Overlong:
            if record is not None:
                yield record
            yield _Record(number, offset, raw, ((), []), None)
            record, blank = None, []
            continue
        line = raw[:-1] if raw[-1:] == b"\r" else raw
        if not line or line.isspace():
            if len(blank) < MAX_LINES:
                blank.append(line)
            continue
        text = line.decode(errors="replace")
        said = _said(text, formats, near_ns)
        if said is None:
            if record is not None and record.takes(text, line, blank):
                blank = []
                continue
            said = undated(text)
        if record is not None:
            yield record
        record, blank = _Record(number, offset, line, said, StackTrace(text)), []
    if record is not None:
        yield record


def _said(text: str, formats: Sequence[LineFormat], near_ns: int | None) -> Said | None:
    """Return what the line says by the first format that it is of; None where it has no time of its own."""
    if text[0] in " \t{":
        return None
    if len(text) > MAX_PARSED:
        return dated(text[:_HEAD], near_ns)
    for parse in formats:
        said = parse(text, near_ns)
        if said is not None:
            return said
    return None


def _formats(data: memoryview, near_ns: int | None) -> tuple[LineFormat, ...]:
    """The formats of the file's first lines, that of most of them first; then any line that begins with a time."""
    sample = islice((line for _, _, line in lines(data[:SAMPLE_BYTES]) if line.strip()), SAMPLE_LINES)
    texts = [line[:MAX_PARSED].rstrip(b"\r").decode(errors="replace") for line in sample]
    counts = {parse: sum(parse(text, near_ns) is not None for text in texts) for parse in LINE_FORMATS}
    found = sorted((parse for parse in LINE_FORMATS if counts[parse]), key=lambda parse: -counts[parse])
    return (*found, dated)


def _is_json(record: _Record, target: JsonTarget) -> bool:
    """Whether the record is a JSON object, and has been added as such."""
    if record.lines[0][:1] != b"{" or record.lines[-1].rstrip()[-1:] != b"}":
        return False
    try:
        target.add(b"\n".join(record.lines), record.number, record.offset)
    except (Unfit, UnicodeEncodeError):
        return False
    return True


class _TextLogs(Logs):
    """Records in the order of the file: one without a time gets that of the record above."""

    wanted: ClassVar[tuple[str, ...]] = ()  # a missing time is noted here, and the whole line is the message

    def add(self, names: tuple[str, ...], values: Sequence[Any]) -> None:
        plan = self.plans(names)
        index = plan.at.get("timestamp")
        own = None if index is None else instant(values[index], plan.units.get("timestamp", ""), self.near_ns)
        super().add(names, values)
        if own is not None:
            self.time_before = _TIME + struct.pack("<Q", own.ns)
        elif self.time_before:
            self.reading.note("no time", "line without a time: it gets the time of the record above")
        else:
            self.reading.note("no time at the beginning", "no time in the line, nor above: it has that of the object")
