"""The entries that wait for one client of a tail, within bounds, and their frames as Loki writes them.

Comes in: entries, from any thread. Goes out: frames for the client. What always holds: what waits is bounded in number
and bytes; an entry that finds no room is dropped and named in the next frame, as many as can be named.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from sys import getsizeof
from threading import Lock

import orjson

from lakerunner.api.loki.log_json import LogEntry, StreamGroups, rfc3339, selector_text, streams_json, text_json
from lakerunner.api.loki.log_queries import CATEGORIZE


@dataclass(frozen=True)
class QueueBounds:
    """The most that waits for a client (an entry larger than all of it waits alone), of what one frame has, and of the
    dropped entries that are named."""

    entries: int = 10_000
    bytes: int = 4 << 20
    frame_entries: int = 100
    frame_bytes: int = 512 << 10
    dropped: int = 1000
    dropped_bytes: int = 1 << 20


@dataclass(frozen=True)
class Dropped:
    """An entry that was dropped; its labels are a JSON object."""

    timestamp: int
    labels: str


@dataclass(frozen=True)
class TailFrame:
    entries: tuple[LogEntry, ...]
    dropped: tuple[Dropped, ...] = ()

    def json(self, *, categorized: bool) -> str:
        """Write the frame for clients of /loki/api/v1/tail."""
        groups = self._groups(categorized=categorized)
        streams = b"".join(streams_json(groups)).decode()
        named = ",".join(f'{{"timestamp":"{one.timestamp}","labels":{one.labels}}}' for one in self.dropped)
        flags = f',"encodingFlags":["{CATEGORIZE}"]' if categorized else ""
        return f'{{"streams":{streams}' + (f',"dropped_entries":[{named}]' if named else "") + flags + "}"

    def legacy_json(self) -> str:
        """Write the frame for clients of /api/prom/tail."""
        streams = [
            {
                "labels": selector_text(orjson.loads(labels)),
                "entries": [{"ts": rfc3339(one.timestamp), "line": orjson.loads(text_json(one.line))} for one in own],
            }
            for labels, own in self._groups(categorized=False).sorted()
        ]
        named = [
            {"timestamp": rfc3339(one.timestamp), "labels": selector_text(orjson.loads(one.labels))}
            for one in self.dropped
        ]
        return orjson.dumps({"streams": streams, "dropped_entries": named or None}).decode()

    def _groups(self, *, categorized: bool) -> StreamGroups:
        groups = StreamGroups(categorized)
        for entry in self.entries:
            groups.add(entry)
        return groups


@dataclass
class TailQueue:
    """`wake` tells the reader that there may be something to take. Call it after several entries, so that they come in
    one frame."""

    wake: Callable[[], None]
    most: QueueBounds = field(default_factory=QueueBounds)
    bytes: int = 0
    _waiting: deque[tuple[LogEntry, int]] = field(default_factory=deque)
    _dropped: list[Dropped] = field(default_factory=list)
    _dropped_bytes: int = 0
    _lock: Lock = field(default_factory=Lock)

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, entry: LogEntry) -> bool:
        """Add an entry, or drop it if there is no room. Return False if it could not even be named as dropped."""
        size = sum(map(getsizeof, (entry.line, entry.stream, entry.metadata, entry.parsed)))
        with self._lock:
            full = len(self._waiting) >= self.most.entries or self.bytes + size > self.most.bytes
            if self._waiting and full:
                return self._drop(entry)
            self._waiting.append((entry, size))
            self.bytes += size
        return True

    def take(self) -> TailFrame | None:
        """Return the next frame; None if nothing waits."""
        with self._lock:
            entries: list[LogEntry] = []
            size = 0
            while self._waiting and len(entries) < self.most.frame_entries and size < self.most.frame_bytes:
                entry, own = self._waiting.popleft()
                entries.append(entry)
                size += own
            self.bytes -= size
            dropped, self._dropped, self._dropped_bytes = tuple(self._dropped), [], 0
        return TailFrame(tuple(entries), dropped) if entries or dropped else None

    def _drop(self, entry: LogEntry) -> bool:
        labels = StreamGroups().all_labels(entry)
        if len(self._dropped) >= self.most.dropped or self._dropped_bytes + len(labels) > self.most.dropped_bytes:
            return False
        self._dropped.append(Dropped(entry.timestamp, labels))
        self._dropped_bytes += len(labels)
        return True
