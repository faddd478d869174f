"""What the index records about a segment beside its size: time range, rows, statistics, fingerprints.

Comes in: the row groups as they are written, and the files that stand beside the segment. Goes out: all of it, from
these rows alone.

Fingerprints prune: a segment that lacks the fingerprint of `service_name` = x, or of an attribute key, holds no such
row. model/fingerprint.py has for each signal the columns whose values have fingerprints. Where fingerprints would be
too many to keep, INCOMPLETE stands for all of them.

Memory is bounded: of more different texts than `most` only those are held that the statistics list; their count is then
left out, and no fingerprint prunes. Where a merge gives several segments, each has all of their columns. Those without
a value are no labels of a segment, and have no fingerprint, but count as keys: a reader of the columns and labels of a
segment has as many as `key_count` states.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.model.fingerprint import INCOMPLETE, MAX_FINGERPRINTS, VALUES, field_fingerprints
from lakerunner.model.segment import Column
from lakerunner.model.signal import ATTRIBUTES, SCOPES, Scope, SignalSpec
from lakerunner.model.time import TimeRange
from lakerunner.pipeline.arrays import plain

MAX_VALUES = 100  # of a column, in the statistics
MAX_NAME = 256  # characters of a value in the statistics
MOST_HELD = 10_000


@dataclass(frozen=True)
class Summary:
    time: TimeRange
    rows: int
    statistics: dict[str, Any]
    fingerprints: tuple[int, ...]


class Summarizer:
    """`columns` are those of the segment, as `Segment.columns`."""

    def __init__(self, spec: SignalSpec, columns: Sequence[Column], most: int = MOST_HELD) -> None:
        self._words = VALUES[spec.name]
        self._values = {name: _Different(most) for name in self._words}
        self._keys = {scope: _Different(most) for scope in SCOPES}
        self._shredded = {scope: _shredded(scope, columns) for scope in SCOPES}
        self._empty = {scope: dict(named) for scope, named in self._shredded.items()}
        self._rows, self._start, self._end = 0, 1 << 63, -(1 << 63)

    def add(self, batch: pa.RecordBatch) -> None:
        times = batch.column("timestamp").cast(pa.int64()).to_numpy()
        self._rows += len(times)
        self._start, self._end = min(self._start, int(times.min())), max(self._end, int(times.max()) + 1)
        for name, values in self._values.items():
            values.add(plain(pc.unique(batch.column(name))).to_pylist())
        for scope, keys in self._keys.items():
            empty = self._empty[scope]
            filled = [name for name in empty if batch.column(name).null_count < batch.num_rows]
            keys.add(empty.pop(name) for name in filled)
            maps = batch.column(scope.map_column)
            first, last = maps.offsets[0].as_py(), maps.offsets[-1].as_py()
            if last > first:
                keys.add(pc.unique(maps.keys.slice(first, last - first)).to_pylist())

    def finish(self, further: Iterable[Mapping[str, Collection[str]]] = ()) -> Summary:
        """Return the summary; `further` are values of columns that prune too, as SideFile.values."""
        statistics: dict[str, Any] = {}
        listed = {word: self._values[name] for name, word in self._words.items()} | {"label": self._keys[ATTRIBUTES]}
        for word, values in listed.items():
            statistics[f"{word}s"] = [value[:MAX_NAME] for value in sorted(values.found)[:MAX_VALUES]]
            if values.is_whole:
                statistics[f"{word}_count"] = len(values.found)
        if all(keys.is_whole for keys in self._keys.values()):
            statistics["key_count"] = sum(
                len(self._keys[scope].found.union(named.values())) for scope, named in self._shredded.items()
            )
        time = TimeRange(self._start, self._end)
        return Summary(time, self._rows, statistics, self._fingerprints(further))

    def _fingerprints(self, further: Iterable[Mapping[str, Collection[str]]]) -> tuple[int, ...]:
        if not all(texts.is_whole for texts in (*self._values.values(), *self._keys.values())):
            return (INCOMPLETE,)
        found = {name: set(values.found) for name, values in self._values.items()}
        for named in further:
            for name, names in named.items():
                found[name].update(names)
        count = sum(1 + len(values) for values in found.values()) + sum(len(keys.found) for keys in self._keys.values())
        if count > MAX_FINGERPRINTS:
            return (INCOMPLETE,)
        made = {number for name, values in found.items() for number in field_fingerprints(name, values)}
        for scope, keys in self._keys.items():
            made.update(number for key in keys.found for number in field_fingerprints(scope.prefix + key))
        return tuple(sorted(made))


class _Different:
    """Different texts; of more than `most` those that stand first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.found: set[str] = set()
        self.is_whole = True

    def add(self, texts: Iterable[str]) -> None:
        self.found.update(texts)
        if len(self.found) > self._most:
            self.is_whole = False
            self.found = {*nsmallest(MAX_VALUES, self.found)}


def _shredded(scope: Scope, columns: Sequence[Column]) -> dict[str, str]:
    """The keys of this scope that have a column, by its name."""
    return {
        column.name: column.name.removeprefix(scope.prefix)
        for column in columns
        if column.type and column.name.startswith(scope.prefix)
    }
