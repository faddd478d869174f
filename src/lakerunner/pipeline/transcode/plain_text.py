"""Plain text: one log record per line, stack traces joined, time and level guessed from the beginning of the line.

Comes in: a file of lines in UTF-8, or in UTF-16 with a byte order mark. Goes out: an export request. What always holds:
every line that is not blank is part of exactly one record, or rejected; a record's message is its lines exactly as they
are written, without their ends. A record that is one JSON object is read as such.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, ClassVar

from lakerunner.model.errors import Corrupt
from lakerunner.model.protobuf import FIXED64, tag
from lakerunner.pipeline.transcode.any_values import Unfit
from lakerunner.pipeline.transcode.columns import Columns
from lakerunner.pipeline.transcode.json_lines import JsonTarget
from lakerunner.pipeline.transcode.line_formats import (
    LINE_FORMATS,
    ZONE,
    LineFields,
    LineFormat,
    parse_dated,
    parse_undated,
)
from lakerunner.pipeline.transcode.lines import Overlong, as_utf8, lines
from lakerunner.pipeline.transcode.results import FindingsBuilder, Transcoded
from lakerunner.pipeline.transcode.signal_records import LogRecords
from lakerunner.pipeline.transcode.times import parse_instant

# The formats of a file are detected from this many of its first lines, within this many bytes.
SAMPLE_LINES = 100
SAMPLE_BYTES = 1 << 20
# Only the beginning of a longer line is searched, for a time and level.
MAX_PARSED = 64 << 10
_HEAD = 256

_TIME = tag(1, FIXED64)
_RAW_BODY = "lakerunner.body"  # the name that read/repair.py gives the bytes of a body that is not UTF-8


def from_text(signal: str, data: memoryview, columns: Columns) -> Transcoded:
    """Return the export request of these lines, and the lines that are too long."""
    if signal != "logs":
        raise Corrupt(f"plain text files contain logs, not {signal}: rename the file, or send {signal} as JSON lines")
    findings = FindingsBuilder()
    content = as_utf8(data, findings)
    records = _TextLogs(columns, findings)
    target = JsonTarget(signal, records)
    for record in _records(content, _detect_formats(content, columns.near_ns), columns.near_ns):
        findings.begin_record(record.number, record.offset)
        if type(record.lines[0]) is Overlong:
            findings.reject(record.lines[0].reason, record.lines[0])
        elif not _add_json(record, target):
            message = b"\n".join(record.lines)
            names, values = record.fields
            if ZONE in names:
                text = f"time zone {values[names.index(ZONE)]} is ambiguous: its time is read as UTC"
                findings.note("time zone not understood", text)
            try:
                records.add(("message", *names), [message.decode(), *values])
            except UnicodeDecodeError:
                findings.note(
                    "not UTF-8", f"bytes that are not UTF-8 are shown as U+FFFD in the message, and kept as {_RAW_BODY}"
                )
                values = [message.decode(errors="replace"), *values, message]
                records.add(("message", *names, _RAW_BODY), values)
    return findings.build(target.data())


class _Record:
    """The lines of one record; `fields` are read from the first of them."""

    __slots__ = ("fields", "lines", "number", "offset", "size", "trace")

    def __init__(self, number: int, offset: int, line: bytes, fields: LineFields, trace: StackTrace | None) -> None:
        self.number = number
        self.offset = offset
        self.lines = [line]
        self.size = len(line)
        self.fields = fields
        self.trace = trace  # None if no line can continue it

    def takes(self, text: str, line: bytes, blank: Sequence[bytes]) -> bool:
        """Append this line, and the blank ones above it, if it continues the record and the limits allow it."""
        if self.trace is None or not self.trace.continues(text, bool(blank)):
            return False
        size = self.size + len(line) + sum(map(len, blank)) + len(blank) + 1
        if len(self.lines) + len(blank) >= MAX_LINES or size > MAX_BYTES:
            return False
        self.lines += (*blank, line)
        self.size = size
        return True


def _records(data: memoryview, formats: Sequence[LineFormat], near_ns: int | None) -> Iterator[_Record]:
    """Yield the records of the file, each when it is complete."""
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
        fields = _parse_line(text, formats, near_ns)
        if fields is None:
            if record is not None and record.takes(text, line, blank):
                blank = []
                continue
            fields = parse_undated(text)
        if record is not None:
            yield record
        record, blank = _Record(number, offset, line, fields, StackTrace(text)), []
    if record is not None:
        yield record


def _parse_line(text: str, formats: Sequence[LineFormat], near_ns: int | None) -> LineFields | None:
    """Return the fields of the line by the first format that matches; None if it has no time of its own."""
    if text[0] in " \t{":
        return None
    if len(text) > MAX_PARSED:
        return parse_dated(text[:_HEAD], near_ns)
    for parse in formats:
        fields = parse(text, near_ns)
        if fields is not None:
            return fields
    return None


def _detect_formats(data: memoryview, near_ns: int | None) -> tuple[LineFormat, ...]:
    """Return the formats of the file's first lines, the most frequent first; at last any line that begins with a
    time."""
    sample = islice((line for _, _, line in lines(data[:SAMPLE_BYTES]) if line.strip()), SAMPLE_LINES)
    texts = [line[:MAX_PARSED].rstrip(b"\r").decode(errors="replace") for line in sample]
    counts = {parse: sum(parse(text, near_ns) is not None for text in texts) for parse in LINE_FORMATS}
    found = sorted((parse for parse in LINE_FORMATS if counts[parse]), key=lambda parse: -counts[parse])
    return (*found, parse_dated)


def _add_json(record: _Record, target: JsonTarget) -> bool:
    """Add the record if it is a JSON object; return whether it is."""
    if record.lines[0][:1] != b"{" or record.lines[-1].rstrip()[-1:] != b"}":
        return False
    try:
        target.add(b"\n".join(record.lines), record.number, record.offset)
    except (Unfit, UnicodeEncodeError):
        return False
    return True


class _TextLogs(LogRecords):
    """Log records in the order of the file: one without a time gets that of the record above."""

    expected: ClassVar[tuple[str, ...]] = ()  # a missing time has notes of its own, and the whole line is the message

    def add(self, names: tuple[str, ...], values: Sequence[Any]) -> None:
        plan = self.plans(names)
        index = plan.at.get("timestamp")
        own = None if index is None else parse_instant(values[index], plan.units.get("timestamp", ""), self.near_ns)
        super().add(names, values)
        if own is not None:
            self.time_before = _TIME + struct.pack("<Q", own.ns)
        elif self.time_before:
            self.findings.note("no time", "line without a time: it gets the time of the record above")
        else:
            self.findings.note(
                "no time at the beginning", "no time in the line or above it: it gets the time of the object"
            )


# ---- stack traces: which lines continue the record above them (docs/formats/inputs.md)

# Limits of a joined record; the line past them begins another record.
MAX_LINES = 1_000
MAX_BYTES = 1 << 20

_CONTINUES = re.compile(
    r"""[\ \t\})\]]            # indented, or the end of a block
    |at\ |\.\.\.\ \d+\ more     # Java, .NET, JavaScript
    |(?:Caused\ by|Suppressed|Wrapped\ by):
    |Traceback\ \(most\ recent\ call\ last\):
    |During\ handling\ of\ the\ above\ exception
    |The\ above\ exception\ was\ the\ direct\ cause
    |goroutine\ \d+\ \[         # Go
    |(?:[A-Za-z_$][\w$]*\.)+[\w$]*(?:Exception|Error|Throwable)(?::|\s*$)  # java.lang.Error: x
    """,
    re.ASCII | re.X,
)


class StackTrace:
    """The state of one record's lines: Python's last line and Go's calls are known only by the lines above them."""

    def __init__(self, first_line: str) -> None:
        self._in_python = _opens_python(first_line)
        self._in_go = first_line.startswith("goroutine ")

    def continues(self, line: str, after_blank: bool) -> bool:
        """Return whether this line, which has no time, belongs to the record. `after_blank`: blank lines precede
        it."""
        if line[:1] in (" ", "\t"):
            return True
        self._in_go = self._in_go and not after_blank
        if _CONTINUES.match(line):
            self._in_python = _opens_python(line)
            self._in_go = self._in_go or line.startswith("goroutine ")
            return True
        # Python's exception itself is not indented, below the calls that are.
        ended, self._in_python = self._in_python, False
        return (ended and not after_blank) or self._in_go


def _opens_python(line: str) -> bool:
    return line.endswith("Traceback (most recent call last):")
