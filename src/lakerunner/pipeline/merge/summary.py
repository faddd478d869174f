"""What the index is told about a segment that a merge or a rollup writes: from its own rows.

Comes in: the row groups as they are written, and the files that stand beside the segment. Goes out: statistics and
fingerprints, as pipeline/steps/summary.py makes them of the same rows. Memory is bounded: of more than 10,000 different
texts only those are held that the statistics list; how many there are is then not told, and no fingerprint prunes.

Where a merge gives several segments, each has all of their columns. Those without a value are no labels of a segment,
and have no fingerprint, but count as keys: who has the columns and labels of a segment has as many as it tells.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import nsmallest
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakerunner.model.fingerprint import INCOMPLETE, MAX_FINGERPRINTS, VALUES, field_fingerprints
from lakerunner.model.prometheus import SERIES_TABLE
from lakerunner.model.segment import Column
from lakerunner.model.signal import ATTRIBUTES, SCOPES, Scope, SignalSpec
from lakerunner.pipeline.merge.arrays import plain
from lakerunner.pipeline.steps.summary import MAX_NAME, MAX_VALUES

MOST_HELD = 10_000
_NAMES = ("prometheus_name", "prometheus_escaped")


class Summary:
    def __init__(self, spec: SignalSpec, columns: Sequence[Column]) -> None:
        """`columns` are those of the segment, as `Segment.columns`."""
        self._words = VALUES[spec.name]
        self._values = {name: _Different() for name in self._words}
        self._keys = {scope: _Different() for scope in SCOPES}
        self._shredded = {scope: _shredded(scope, columns) for scope in SCOPES}
        self._empty = {scope: dict(named) for scope, named in self._shredded.items()}

    def add(self, batch: pa.RecordBatch) -> None:
        """The next row group of the segment."""
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

    def finish(self, files: Mapping[str, Path]) -> tuple[dict[str, Any], tuple[int, ...]]:
        """(statistics, fingerprints); `files` stand beside the segment, by their names."""
        statistics: dict[str, Any] = {}
        told = {word: self._values[name] for name, word in self._words.items()} | {"label": self._keys[ATTRIBUTES]}
        for word, values in told.items():
            statistics[f"{word}s"] = [value[:MAX_NAME] for value in sorted(values.found)[:MAX_VALUES]]
            if values.is_whole:
                statistics[f"{word}_count"] = len(values.found)
        if all(keys.is_whole for keys in self._keys.values()):
            statistics["key_count"] = sum(
                len(self._keys[scope].found.union(named.values())) for scope, named in self._shredded.items()
            )
        return statistics, self._fingerprints(_other_names(files))

    def _fingerprints(self, further: Mapping[str, set[str]]) -> tuple[int, ...]:
        if not all(texts.is_whole for texts in (*self._values.values(), *self._keys.values())):
            return (INCOMPLETE,)
        found = {name: values.found | further.get(name, set()) for name, values in self._values.items()}
        count = sum(1 + len(values) for values in found.values()) + sum(len(keys.found) for keys in self._keys.values())
        if count > MAX_FINGERPRINTS:
            return (INCOMPLETE,)
        made = {number for name, values in found.items() for number in field_fingerprints(name, values)}
        for scope, keys in self._keys.items():
            made.update(number for key in keys.found for number in field_fingerprints(scope.prefix + key))
        return tuple(sorted(made))


class _Different:
    """Different texts; of too many those that stand first, whose number is then not known."""

    def __init__(self) -> None:
        self.found: set[str] = set()
        self.is_whole = True

    def add(self, texts: Iterable[str]) -> None:
        self.found.update(texts)
        if len(self.found) > MOST_HELD:
            self.is_whole = False
            self.found = {*nsmallest(MAX_VALUES, self.found)}


def _shredded(scope: Scope, columns: Sequence[Column]) -> dict[str, str]:
    """The keys of this scope that have a column, by its name."""
    return {
        column.name: column.name.removeprefix(scope.prefix)
        for column in columns
        if column.type and column.name.startswith(scope.prefix)
    }


def _other_names(files: Mapping[str, Path]) -> dict[str, set[str]]:
    """Further values that prune, by their column: the names by which Prometheus knows the metrics."""
    if SERIES_TABLE not in files:
        return {}
    table = pq.read_table(files[SERIES_TABLE], columns=list(_NAMES), read_dictionary=list(_NAMES), use_threads=False)
    return {
        "metric_name": {name for column in table.columns for name in column.unique().to_pylist() if name is not None}
    }
