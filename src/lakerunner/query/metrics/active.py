"""Which stored series of a metric were active, window by window, and which values their labels have: what a worker
knows of cardinality.

Comes in: segments of one organization, and where each tier is read (tiles). Goes out: for each metric and window a
sketch of the series that had a sample in it (model/hll.py), or the values of each label. What always holds: a window of
a tier counts where the tier is read, a raw point where raw points are; stale markers are no samples. A rollup segment
has its sketches beside it; where it has none, and of raw segments, rows are read: times and what tells a sample from a
marker, nothing else.
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
from lakerunner.model.hll import CARDINALITY, REGISTERS, packed, places, sketch, unpacked
from lakerunner.model.labels.metric_view import SUFFIXES, Form, StoredSeries, attribute_values, own_labels
from lakerunner.model.prometheus import METADATA_ENTRY
from lakerunner.model.segment import Segment
from lakerunner.model.tier import RAW
from lakerunner.model.tiling import Interval, Tiles
from lakerunner.plan.scan import Scan
from lakerunner.promql.sample_range import Selection
from lakerunner.promql.selection.staleness import is_stale
from lakerunner.query.held import explained
from lakerunner.query.metrics.described import Described
from lakerunner.query.metrics.kernels import NS_PER_MS
from lakerunner.query.metrics.reading import RowGroup
from lakerunner.query.metrics.rollup_rows import inside
from lakerunner.query.metrics.segments import MetricSegments
from lakerunner.query.metrics.series import Known, SeriesTable
from lakerunner.series.arrays import Bools, Ints

MOST_LISTED = 10_000  # values of a label that are named; of more there is a sketch
SERIES, RESOURCE = "series", "resource"  # whose labels
_SPREAD_TYPES = ("histogram", "summary")
_ROLLUP_COUNT = "chq_rollup_count"
_SAMPLE = ("flags", "value", "int_value", "sum", "count", "float_count")
LabelRow = tuple[str, str, list[str] | None, bytes | None]


@dataclass(frozen=True)
class SketchRequest:
    """Sketches of these metrics, by their names as they came, none: of all; in windows of `step` (ms), at most `limit`
    of them."""

    metrics: tuple[str, ...]
    step: int
    limit: int


def names_of(metrics: MetricSegments, segments: Sequence[Segment], name: str) -> set[str]:
    """The names, as they came, of the metrics that are called `name`: as they came, or by Prometheus."""
    bases = {name.removesuffix(suffix) for suffix in SUFFIXES if name.endswith(suffix)}

    def is_meant(one: Described) -> bool:
        called = {one.name, one.escaped}
        return one.metric == name or name in called or (one.type in _SPREAD_TYPES and bool(bases & called))

    return {one.metric for segment in segments for one in metrics.descriptions(segment).described if is_meant(one)}


def sketches_of(
    metrics: MetricSegments, segments: Sequence[Segment], wanted: SketchRequest, tiles: Tiles
) -> Iterator[tuple[str, int, bytes]]:
    """By metric and the end of the window that is wanted. TooLarge past the limit."""
    cells = Cells(wanted.limit)
    for segment in segments:
        times = tiles.get(segment.frequency_ms, ())
        if not times:
            continue
        if segment.frequency_ms != RAW and CARDINALITY in segment.statistics.get("side_bytes", {}):
            _add_sketches(cells, metrics, segment, wanted, times)
        else:
            for known, numbers, times_ms in _active(metrics, segment, wanted.metrics, times):
                cells.add(known, numbers, -(-times_ms // wanted.step) * wanted.step)
    yield from cells.sketches()


def label_counts(
    metrics: MetricSegments, segments: Sequence[Segment], wanted: SketchRequest, tiles: Tiles
) -> Iterator[LabelRow]:
    """Whose, label, and its values among the active series of the metrics that are wanted: all of them, or where they
    are many a sketch."""
    active: dict[int, StoredSeries] = {}
    for segment in segments:
        times = tiles.get(segment.frequency_ms, ())
        for known, numbers, _ in _active(metrics, segment, wanted.metrics, times) if times else ():
            for number in np.unique(numbers).tolist():
                one = known.series[number]
                active[one.digest] = one
    values: dict[tuple[str, str], set[str]] = {}
    for one in active.values():
        for whose, own in ((SERIES, own_labels(one, Form.ESCAPED)), (RESOURCE, _of_resource(one))):
            for label, value in own.items():
                values.setdefault((whose, label), set()).add(value)
    for (whose, label), found in sorted(values.items()):
        few = len(found) <= MOST_LISTED
        yield whose, label, sorted(found) if few else None, None if few else value_sketch(found)


def value_sketch(values: Sequence[str] | set[str]) -> bytes:
    digests = b"".join(blake2b(value.encode(), digest_size=8).digest() for value in values)
    return sketch(np.frombuffer(digests, "<i8"))


class Cells:
    """A sketch for each metric and window, at most so many."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._registers: dict[tuple[str, int], Any] = {}

    def unite(self, metric: str, end: int, one: bytes) -> None:
        registers = self._of(metric, end)
        np.maximum(registers, unpacked(one), out=registers)

    def add(self, known: Known, numbers: Ints, ends: Ints) -> None:
        """Series by their numbers, each in the window with this end."""
        windows, place = np.unique(ends, return_inverse=True)
        series, of_series = np.unique(numbers, return_inverse=True)
        pairs = np.unique(place * len(series) + of_series)
        stored = [known.series[number] for number in series.tolist()]
        names = {name: n for n, name in enumerate(dict.fromkeys(one.metric for one in stored))}
        metric = np.array([names[one.metric] for one in stored], np.int64)
        at, ranks = places(np.array([one.digest for one in stored], np.int64))
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
            yield metric, end, packed(registers[np.newaxis])[0]

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
    cells: Cells, metrics: MetricSegments, segment: Segment, wanted: SketchRequest, times: Sequence[Interval]
) -> None:
    with metrics.beside([segment], CARDINALITY) as paths, explained(segment):
        file = pq.ParquetFile(paths[segment.id], memory_map=True, page_checksum_verification=True)
        for group in range(file.num_row_groups):
            table = file.read_row_group(group, use_threads=False)
            if wanted.metrics:
                table = table.filter(pc.is_in(table.column("metric_name"), pa.array(wanted.metrics, pa.string())))
            ends = table.column("timestamp").cast(pa.int64()).to_numpy() // NS_PER_MS
            kept = inside(ends, times)
            table, ends = table.filter(pa.array(kept)), ends[kept]
            names, sketches = (table.column(name).to_pylist() for name in ("metric_name", "hll"))
            for metric, end, one in zip(names, (-(-ends // wanted.step) * wanted.step).tolist(), sketches, strict=True):
                cells.unite(metric, end, one)


def _active(
    metrics: MetricSegments, segment: Segment, names: Sequence[str], times: Sequence[Interval]
) -> Iterator[tuple[Known, Ints, Ints]]:
    """Of each sample, or window with one, of these metrics in these times: the number of its series, and its ms."""
    prepared = metrics.prepared([segment])
    (table,), known = prepared.tables, prepared.known
    wanted = _wanted(table, known, names)
    if not wanted.any():
        return
    as_sent = np.array([known.series[number].as_sent for number in table.numbers.tolist()], bool)
    scan, columns = _scan(segment, names, (times[0][0], times[-1][1]))
    with metrics.opened(scan, [segment]) as (files, _), explained(segment):
        if segment.id not in files:
            return
        file = files[segment.id]
        for group, _ in file.groups(table.first[wanted], table.rows[wanted]):
            rows = file.read(group, columns)
            entry = np.searchsorted(table.first, rows.base + np.arange(rows.rows), side="right") - 1
            kept = wanted[entry] & inside(rows.times_ms, times)
            kept &= _has_window(rows) if segment.frequency_ms else _has_sample(rows, as_sent[entry])
            if kept.any():
                yield known, table.numbers[entry[kept]], rows.times_ms[kept]


def _wanted(table: SeriesTable, known: Known, names: Sequence[str]) -> Bools:
    chosen = frozenset(names)
    series = (known.series[number] for number in table.numbers.tolist())
    return np.array([one.type != METADATA_ENTRY and (not chosen or one.metric in chosen) for one in series], bool)


def _scan(segment: Segment, names: Sequence[str], between: Interval) -> tuple[Scan, tuple[str, ...]]:
    """With the columns that are read."""
    there = {column.name for column in segment.columns}
    time = Selection((), *between).time
    if time is None:
        raise ValueError(f"no time between {between}")
    conditions = (Equals("metric_name", tuple(names)),) if names else ()
    if segment.frequency_ms:
        stored = (_ROLLUP_COUNT,)
        scan = Scan("metrics", "metrics", time, ("timestamp",), conditions=conditions, stored=stored)
        return scan, ("timestamp", *stored)
    columns = ("timestamp", *(name for name in _SAMPLE if name in there))
    return Scan("metrics", "metrics", time, columns, conditions=conditions), columns


def _has_window(rows: RowGroup) -> Bools:
    """As CardinalitySide has it: what holds stale markers alone counts 0 samples, histograms have no count."""
    counts = rows.column(_ROLLUP_COUNT)
    found: Bools = (
        np.ones(rows.rows, bool) if counts is None else pc.not_equal(counts, 0).fill_null(True).to_numpy(False)
    )
    return found


def _has_sample(rows: RowGroup, as_sent: Bools) -> Bools:
    """docs/formats/rollups.md: which points are samples, which are markers, which are nothing."""
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


def _of_resource(one: StoredSeries) -> dict[str, str]:
    return attribute_values(one.resource, Form.ESCAPED)
