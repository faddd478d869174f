"""Which stored series of a metric were active, window by window, and the values of their labels: a worker's part of
counting series.

Input: segments of one organization, and where each tier is read (tiles). Output: for each metric and window a sketch of
the series that had a sample in it (model/hll.py), or the values of each label. A window of a tier counts where the tier
is read, a raw point where raw points are; stale markers are not samples. Rollup segments have their sketches in a side
file; without it, and for raw segments, rows are read: their times, and the columns that distinguish samples from
markers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakerunner.model.condition import Equals
from lakerunner.model.errors import TooLarge
from lakerunner.model.hll import CARDINALITY, REGISTERS, find_registers, pack, sketch, unpack
from lakerunner.model.labels.metric_view import SUFFIXES, Form, StoredSeries, attribute_values, own_labels
from lakerunner.model.prometheus import METADATA_ENTRY
from lakerunner.model.segment import Segment
from lakerunner.model.tier import RAW, Interval, Tiles
from lakerunner.plan.scan import Scan
from lakerunner.promql.operators import Selection
from lakerunner.promql.selection.staleness import is_stale
from lakerunner.query.metrics.kernels import NS_PER_MS
from lakerunner.query.metrics.metric_segments import MetricSegments
from lakerunner.query.metrics.rollup_rows import inside
from lakerunner.query.metrics.segment_file import RowGroup
from lakerunner.query.metrics.series_registry import MetricDescription, SeriesRegistry, SeriesTable
from lakerunner.query.segment_cache.lease import naming_segment
from lakerunner.series.arrays import Bools, Ints

MOST_LISTED = 10_000  # values of a label that are listed; more are sketched
SERIES, RESOURCE = "series", "resource"  # whose labels
_SPREAD_TYPES = ("histogram", "summary")
_ROLLUP_COUNT = "chq_rollup_count"
_SAMPLE = ("flags", "value", "int_value", "sum", "count", "float_count")
LabelRow = tuple[str, str, list[str] | None, bytes | None]


@dataclass(frozen=True)
class SketchRequest:
    """Sketches of these metrics, by their names as sent, all if empty; in windows of `step` (ms), at most `limit` of
    them."""

    metrics: tuple[str, ...]
    step: int
    limit: int


def names_of(metrics: MetricSegments, segments: Sequence[Segment], name: str) -> set[str]:
    """Return the names, as sent, of the metrics with this name: as sent, or in Prometheus."""
    bases = {name.removesuffix(suffix) for suffix in SUFFIXES if name.endswith(suffix)}

    def is_named(one: MetricDescription) -> bool:
        called = {one.name, one.escaped}
        return one.metric == name or name in called or (one.type in _SPREAD_TYPES and bool(bases & called))

    return {one.metric for segment in segments for one in metrics.descriptions(segment).described if is_named(one)}


def sketches_of(
    metrics: MetricSegments, segments: Sequence[Segment], request: SketchRequest, tiles: Tiles
) -> Iterator[tuple[str, int, bytes]]:
    """Yield sketches by metric and the end of the requested window. TooLarge past the limit."""
    cells = SketchTable(request.limit)
    for segment in segments:
        times = tiles.get(segment.frequency_ms, ())
        if not times:
            continue
        if segment.frequency_ms != RAW and CARDINALITY in segment.statistics.get("side_bytes", {}):
            _add_sketches(cells, metrics, segment, request, times)
        else:
            for registry, numbers, times_ms in _active(metrics, segment, request.metrics, times):
                cells.add(registry, numbers, -(-times_ms // request.step) * request.step)
    yield from cells.sketches()


def label_counts(
    metrics: MetricSegments, segments: Sequence[Segment], request: SketchRequest, tiles: Tiles
) -> Iterator[LabelRow]:
    """Yield whose label it is, its name, and its values among the active series of the requested metrics: all of them,
    or a sketch if there are many."""
    active: dict[int, StoredSeries] = {}
    for segment in segments:
        times = tiles.get(segment.frequency_ms, ())
        for registry, numbers, _ in _active(metrics, segment, request.metrics, times) if times else ():
            for number in np.unique(numbers).tolist():
                one = registry.series[number]
                active[one.digest] = one
    values: dict[tuple[str, str], set[str]] = {}
    for one in active.values():
        for whose, own in (
            (SERIES, own_labels(one, Form.ESCAPED)),
            (RESOURCE, attribute_values(one.resource, Form.ESCAPED)),
        ):
            for label, value in own.items():
                values.setdefault((whose, label), set()).add(value)
    for (whose, label), found in sorted(values.items()):
        few = len(found) <= MOST_LISTED
        yield whose, label, sorted(found) if few else None, None if few else value_sketch(found)


def value_sketch(values: Sequence[str] | set[str]) -> bytes:
    digests = b"".join(blake2b(value.encode(), digest_size=8).digest() for value in values)
    return sketch(np.frombuffer(digests, "<i8"))


class SketchTable:
    """A bounded table of sketches, one for each metric and window."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._registers: dict[tuple[str, int], Any] = {}

    def unite(self, metric: str, end: int, one: bytes) -> None:
        registers = self._of(metric, end)
        np.maximum(registers, unpack(one), out=registers)

    def add(self, registry: SeriesRegistry, numbers: Ints, ends: Ints) -> None:
        """Add series, by their numbers, each to the window with this end."""
        windows, place = np.unique(ends, return_inverse=True)
        series, of_series = np.unique(numbers, return_inverse=True)
        pairs = np.unique(place * len(series) + of_series)
        stored = [registry.series[number] for number in series.tolist()]
        names = {name: n for n, name in enumerate(dict.fromkeys(one.metric for one in stored))}
        metric = np.array([names[one.metric] for one in stored], np.int64)
        at, ranks = find_registers(np.array([one.digest for one in stored], np.int64))
        own = pairs % len(series)
        cells = pairs // len(series) * len(names) + metric[own]
        order = np.argsort(cells, kind="stable")
        found, first = np.unique(cells[order], return_index=True)
        named = list(names)
        for cell, part in zip(found.tolist(), np.split(own[order], first[1:]), strict=True):
            end, name = divmod(cell, len(names))
            np.maximum.at(self._of(named[name], int(windows[end])), at[part], ranks[part])

    def sketches(self) -> Iterator[tuple[str, int, bytes]]:
        for (metric, end), registers in sorted(self._registers.items(), key=lambda one: one[0]):
            yield metric, end, pack(registers[np.newaxis])[0]

    def _of(self, metric: str, end: int) -> Any:
        found = self._registers.get((metric, end))
        if found is None:
            if len(self._registers) >= self._most:
                raise TooLarge(
                    f"more than {self._most:,} windows of metrics to count: name a metric, use a longer "
                    "step or a shorter time"
                )
            found = self._registers[metric, end] = np.zeros(REGISTERS, np.uint8)
        return found


def _add_sketches(
    cells: SketchTable, metrics: MetricSegments, segment: Segment, request: SketchRequest, times: Sequence[Interval]
) -> None:
    with metrics.beside([segment], CARDINALITY) as paths, naming_segment(segment):
        file = pq.ParquetFile(paths[segment.id], memory_map=True, page_checksum_verification=True)
        for group in range(file.num_row_groups):
            table = file.read_row_group(group, use_threads=False)
            if request.metrics:
                table = table.filter(pc.is_in(table.column("metric_name"), pa.array(request.metrics, pa.string())))
            ends = table.column("timestamp").cast(pa.int64()).to_numpy() // NS_PER_MS
            kept = inside(ends, times)
            table, ends = table.filter(pa.array(kept)), ends[kept]
            names, sketches = (table.column(name).to_pylist() for name in ("metric_name", "hll"))
            for metric, end, one in zip(
                names, (-(-ends // request.step) * request.step).tolist(), sketches, strict=True
            ):
                cells.unite(metric, end, one)


def _active(
    metrics: MetricSegments, segment: Segment, names: Sequence[str], times: Sequence[Interval]
) -> Iterator[tuple[SeriesRegistry, Ints, Ints]]:
    """Yield for each sample, or window with one, of these metrics in these times the number of its series,
    and its ms."""
    prepared = metrics.prepared([segment])
    (table,), registry = prepared.tables, prepared.registry
    wanted = _matching(table, registry, names)
    if not wanted.any():
        return
    as_sent = np.array([registry.series[number].as_sent for number in table.numbers.tolist()], bool)
    scan, columns = _scan(segment, names, (times[0][0], times[-1][1]))
    with metrics.opened(scan, [segment]) as (files, _), naming_segment(segment):
        if segment.id not in files:
            return
        file = files[segment.id]
        for group, _ in file.groups(table.first[wanted], table.rows[wanted]):
            rows = file.read(group, columns)
            entry = np.searchsorted(table.first, rows.base + np.arange(rows.rows), side="right") - 1
            kept = wanted[entry] & inside(rows.times_ms, times)
            kept &= _has_window(rows) if segment.frequency_ms else _has_sample(rows, as_sent[entry])
            if kept.any():
                yield registry, table.numbers[entry[kept]], rows.times_ms[kept]


def _matching(table: SeriesTable, registry: SeriesRegistry, names: Sequence[str]) -> Bools:
    chosen = frozenset(names)
    series = (registry.series[number] for number in table.numbers.tolist())
    return np.array([one.type != METADATA_ENTRY and (not chosen or one.metric in chosen) for one in series], bool)


def _scan(segment: Segment, names: Sequence[str], between: Interval) -> tuple[Scan, tuple[str, ...]]:
    """Return the scan with the columns that are read."""
    there = {column.name for column in segment.columns}
    time = Selection((), *between).time
    if time is None:
        raise ValueError(f"the interval {between} holds no valid time")
    conditions = (Equals("metric_name", tuple(names)),) if names else ()
    if segment.frequency_ms:
        stored = (_ROLLUP_COUNT,)
        scan = Scan("metrics", "metrics", time, ("timestamp",), conditions=conditions, stored=stored)
        return scan, ("timestamp", *stored)
    columns = ("timestamp", *(name for name in _SAMPLE if name in there))
    return Scan("metrics", "metrics", time, columns, conditions=conditions), columns


def _has_window(rows: RowGroup) -> Bools:
    """Return which windows have samples, as CardinalitySide decides: a window with stale markers alone counts 0
    samples, and histograms have no count."""
    counts = rows.column(_ROLLUP_COUNT)
    found: Bools = (
        np.ones(rows.rows, bool) if counts is None else pc.not_equal(counts, 0).fill_null(True).to_numpy(False)
    )
    return found


def _has_sample(rows: RowGroup, as_sent: Bools) -> Bools:
    """Return which points are samples, as opposed to markers or nothing (docs/formats/rollups.md)."""
    number = rows.numbers()
    stale = is_stale(number.values)
    if len(number.valid):
        stale &= number.valid
    filled = rows.valid("value") | rows.valid("int_value") | rows.valid("count") | rows.valid("float_count")
    found: Bools = (filled | ~as_sent) & ~stale
    if rows.unrecorded is not None:
        found &= ~rows.unrecorded
    total = rows.column("sum")
    if total is not None:
        found &= ~is_stale(total.fill_null(0.0).to_numpy(False))
    return found
