"""What a transcoder returns: the export request that it writes, and its findings.

A transcoder of lines calls `begin_record` for each line that is not blank, then adds the line's record, and calls
`reject` if that is Unfit: the other lines are kept. `note` counts records of which something was guessed, or left as an
attribute because its field could not hold it. MAX_REJECTS, MAX_NOTES, MAX_BYTES and MAX_RECORDS bound memory, whatever
the object holds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from lakerunner.model.display import plural
from lakerunner.model.errors import Corrupt
from lakerunner.model.protobuf import delimited, length
from lakerunner.model.source import (
    MAX_EXCERPT,
    MAX_NOTES,
    MAX_REJECTS,
    MAX_TEXT,
    NO_FINDINGS,
    Findings,
    Note,
    Reject,
    Rejects,
)


@dataclass(frozen=True)
class Transcoded:
    """`data` is an OTLP export request of everything that could be read."""

    data: bytes
    findings: Findings = NO_FINDINGS

    def require_complete(self) -> bytes:
        """Return the request. Raise Corrupt if a line could not be read."""
        if self.findings.rejects:
            raise Corrupt(str(self.findings.rejects))
        return self.data


class FindingsBuilder:
    """Collects the findings of one object."""

    def __init__(self) -> None:
        self._line = self._offset = self._lines = self._rejected = 0
        self._first: list[Reject] = []
        self._notes: dict[str, list[Any]] = {}  # kind: count, first line, text

    def begin_record(self, line: int, offset: int) -> None:
        """Start with the record in this line, counted from 1, at this byte of the object."""
        self._line, self._offset = line, offset
        self._lines += 1

    def reject(self, reason: str, content: bytes) -> None:
        """Record that the current line, which begins with this content, could not be read."""
        self._rejected += 1
        if len(self._first) < MAX_REJECTS:
            excerpt = bytes(content[:MAX_EXCERPT]).decode(errors="replace")
            self._first.append(Reject(self._line, self._offset, reason[:MAX_TEXT], excerpt))

    def note(self, kind: str, text: str, line: int = 0) -> None:
        """Count one more record for this kind of note; the line (0: the current one) and text of the first are kept."""
        found = self._notes.get(kind)
        if found is not None:
            found[0] += 1
        elif len(self._notes) < MAX_NOTES:
            self._notes[kind] = [1, line or self._line, text[:MAX_TEXT]]

    def build(self, data: bytes) -> Transcoded:
        """Return the result of the transcoder, with this request."""
        rejects = Rejects(self._rejected, self._lines, tuple(self._first))
        notes = (Note(kind, *values) for kind, values in self._notes.items())
        return Transcoded(data, Findings(rejects, tuple(notes)))


# What the OTLP reader accepts from one object. A header, a dictionary or a label set that is stored once may be written
# a million times: these limits bound how far a small file expands.
MAX_BYTES = 320 << 20
MAX_RECORDS = 5_000_000

_FIRST, _SECOND, _SCHEMA_URL = b"\x0a", b"\x12", b"\x1a"


@dataclass
class RequestBuilder:
    """Gathers items by their resource. Items are complete fields: tag, length, content."""

    _items: dict[tuple[bytes, bytes], bytearray] = field(default_factory=dict)
    records: int = 0
    _bytes: int = 0

    def add(self, resource: bytes, item: bytes, schema_url: bytes = b"") -> None:
        """Add an item of the resource with this content and schema URL, and count it as one record."""
        self.put(resource, item, schema_url)
        self.count(len(item), 1)

    def put(self, resource: bytes, item: bytes, schema_url: bytes = b"") -> None:
        """Add an item whose parts have been counted already."""
        items = self._items.get((schema_url, resource))
        if items is None:
            items = self._items[schema_url, resource] = bytearray()
            self.count(len(resource) + len(schema_url), 0)
        items += item

    def count(self, size: int, records: int) -> None:
        """Count bytes and records that will be written. Raise Corrupt past the limits."""
        self._bytes += size
        self.records += records
        if self._bytes > MAX_BYTES:
            raise Corrupt(f"the file expands to more than {MAX_BYTES >> 20} MB of OTLP: send smaller files")
        if self.records > MAX_RECORDS:
            raise Corrupt(f"the file has more than {MAX_RECORDS} records: send smaller files")

    def data(self) -> bytes:
        """Return the request; each resource has one scope without a name. Without items it is still a valid request."""
        if not self._items:
            return _FIRST + length(0)
        parts: list[bytes | bytearray] = []
        for (schema_url, resource), items in self._items.items():
            # The schema URL comes first: what follows is then the same with and without it (read/otlp_logs.py).
            head = delimited(_SCHEMA_URL, schema_url) if schema_url else b""
            head += delimited(_FIRST, resource) if resource else b""
            scope = _SECOND + length(len(items))
            parts += [_FIRST, length(len(head) + len(scope) + len(items)), head, scope, items]
        return b"".join(parts)


@dataclass
class Damage:
    """The bad records of an object: the place and error of the first, and the number of further ones."""

    first: str = ""
    further: int = 0

    def note(self, where: str, reason: str) -> None:
        if self.first:
            self.further += 1
        else:
            self.first = f"{where}: {reason}"

    def refuse(self) -> None:
        """Raise Corrupt if there is any."""
        if self.further:
            raise Corrupt(f"{self.first}; {plural(self.further, 'further bad record')}")
        if self.first:
            raise Corrupt(self.first)
