"""The series of segments: each segment's table read once, each series of an organization known once.

Comes in: the file beside a segment (docs/formats/segments.md). Goes out: for each of its rows the number of a series
that is known, and where its points stand. What always holds: the same series in any number of segments of an
organization is one number and one object; a number never means another series. Nothing is shared between
organizations, whose series may have the same digest.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np
import pyarrow as pa

from lakerunner.model.errors import Corrupt
from lakerunner.model.labels.matcher import Matchers
from lakerunner.model.labels.metric_view import Form, SeriesAttribute, StoredSeries
from lakerunner.query.metrics.parquet import ParquetTable
from lakerunner.query.metrics.seen import Matched, Seen
from lakerunner.series.arrays import Ints

_PLACES = ("series", "first_row", "rows")
_TOLD = (
    "series",
    "prometheus_name",
    "prometheus_escaped",
    "metric_name",
    "metric_type",
    "temporality",
    "as_sent",
    "labels",
    "resource",
)
_MATCHED_KEPT = 256


@dataclass(frozen=True, eq=False)
class SeriesTable:
    """Row n: series `numbers[n]` has `rows[n]` points from row `first[n]` of the segment on."""

    numbers: Ints
    first: Ints
    rows: Ints

    @property
    def bytes(self) -> int:
        return 24 * len(self.numbers) + 1000


@contextmanager
def series_file(path: Path, key: str) -> Iterator[ParquetTable]:
    """Corrupt if this is no series table, or one of another version."""
    try:
        file = ParquetTable(path)
        if "as_sent" not in file.leaves:
            raise Corrupt(
                f"{key}: this table of series was written by an earlier version: ingest its metrics "
                "again, into a new home"
            )
        yield file
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        reason = str(error).replace(str(path), key)  # where it lies here is nobody's business
        raise Corrupt(f"{key}: cannot read this table of series: {reason}") from error


class Known:
    """All that is known of an organization's series. `lock` guards it."""

    def __init__(self) -> None:
        self.lock = RLock()
        self.series: list[StoredSeries] = []
        self._numbers: dict[int, int] = {}
        self._seen: dict[Form, Seen] = {}
        self._matched: dict[Matchers, Matched] = {}
        self._pairs: dict[SeriesAttribute, SeriesAttribute] = {}

    def read(self, path: Path, key: str) -> SeriesTable:
        """Corrupt as `series_file` says. What is told of a series is read only where it is told of a new one: most
        segments have the series of those before."""
        with series_file(path, key) as file:
            table = file.read(_PLACES)
            digests = table.column("series").to_pylist()
            with self.lock:
                new = [n for n, digest in enumerate(digests) if digest not in self._numbers]
            if new:
                told = file.read(_TOLD).take(pa.array(new)).combine_chunks()
                with self.lock:
                    self._learn(told)
            first, rows = (table.column(name).to_numpy().astype(np.int64) for name in _PLACES[1:])
            if len(first) and (first[0] or np.any(first[1:] != (first + rows)[:-1])):
                raise ValueError("its rows do not follow each other")
            with self.lock:
                return SeriesTable(np.array([self._numbers[digest] for digest in digests], np.int64), first, rows)

    def matched(self, matchers: Matchers) -> tuple[Matched, Seen]:
        """With the lock held; as far as series are known."""
        matched = self._matched.pop(matchers, None) or Matched(matchers)
        self._matched[matchers] = matched
        if len(self._matched) > _MATCHED_KEPT:
            del self._matched[next(iter(self._matched))]
        seen = self._seen.setdefault(matched.form, Seen(matched.form))
        seen.extend(self.series)
        matched.extend(seen)
        return matched, seen

    def _learn(self, told: pa.Table) -> None:
        for series in self._stored(told):
            self._numbers[series.digest] = len(self.series)
            self.series.append(series)

    def _stored(self, table: pa.Table) -> Iterator[StoredSeries]:
        texts = {name: table.column(name).to_pylist() for name in _TOLD[:-2]}
        labels, resources = (self._attributes(table.column(name).combine_chunks()) for name in ("labels", "resource"))
        for n, digest in enumerate(texts["series"]):
            if digest in self._numbers:  # by another thread meanwhile, or told twice
                continue
            yield StoredSeries(
                digest,
                texts["prometheus_name"][n] or "",
                texts["prometheus_escaped"][n] or "",
                texts["metric_name"][n],
                texts["metric_type"][n],
                texts["temporality"][n] == "delta",
                texts["as_sent"][n],
                labels[n],
                resources[n],
            )

    def _attributes(self, lists: Any) -> list[tuple[SeriesAttribute, ...]]:
        lists = lists.chunk(0) if isinstance(lists, pa.ChunkedArray) else lists
        items = lists.flatten()
        columns = [items.field(name).to_pylist() for name in ("name", "escaped", "value")]
        pairs = [self._pairs.setdefault(one, one) for one in zip(*columns, strict=True)]
        offsets = (lists.offsets.to_numpy() - lists.offsets[0].as_py()).tolist()
        return [tuple(pairs[start:end]) for start, end in pairwise(offsets)]
