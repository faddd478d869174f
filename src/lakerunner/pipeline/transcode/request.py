"""The export request that a transcoder writes: items gathered by the resource they belong to, within limits."""

from __future__ import annotations

from dataclasses import dataclass, field

from lakerunner.model.errors import Corrupt
from lakerunner.model.plural import plural
from lakerunner.model.protobuf import delimited, length

# What the OTLP reader takes of one object. A header, a dictionary or a label set that is written once can come out a
# million times: these bound what a small file may unfold to.
MAX_BYTES = 320 << 20
MAX_RECORDS = 5_000_000

_FIRST, _SECOND = b"\x0a", b"\x12"


@dataclass
class Request:
    """`add` takes items that are complete fields: tag, length, content."""

    _items: dict[bytes, bytearray] = field(default_factory=dict)
    records: int = 0
    _bytes: int = 0

    def add(self, resource: bytes, item: bytes) -> None:
        """An item of the resource whose content this is, counted as one record."""
        self.put(resource, item)
        self.count(len(item), 1)

    def put(self, resource: bytes, item: bytes) -> None:
        """An item whose parts have been counted already."""
        items = self._items.get(resource)
        if items is None:
            items = self._items[resource] = bytearray()
            self.count(len(resource), 0)
        items += item

    def count(self, size: int, records: int) -> None:
        """Take note of bytes and records that will be written. Corrupt past the limits."""
        self._bytes += size
        self.records += records
        if self._bytes > MAX_BYTES:
            raise Corrupt(f"the file expands to more than {MAX_BYTES >> 20} MB of OTLP: send smaller files")
        if self.records > MAX_RECORDS:
            raise Corrupt(f"the file has more than {MAX_RECORDS} records: send smaller files")

    def data(self) -> bytes:
        """The request; each resource has one scope without a name. Without any item it still is a request."""
        if not self._items:
            return _FIRST + length(0)
        parts: list[bytes | bytearray] = []
        for resource, items in self._items.items():
            head = delimited(_FIRST, resource) if resource else b""
            scope = _SECOND + length(len(items))
            parts += [_FIRST, length(len(head) + len(scope) + len(items)), head, scope, items]
        return b"".join(parts)


@dataclass
class Damage:
    """The bad records of an object: where the first stands and what is wrong with it, and how many follow."""

    first: str = ""
    further: int = 0

    def note(self, where: str, reason: str) -> None:
        if self.first:
            self.further += 1
        else:
            self.first = f"{where}: {reason}"

    def refuse(self) -> None:
        """Corrupt if there is any."""
        if self.further:
            raise Corrupt(f"{self.first}; {plural(self.further, 'further bad record')}")
        if self.first:
            raise Corrupt(self.first)
