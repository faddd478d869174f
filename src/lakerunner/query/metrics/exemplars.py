"""Exemplars of series, as Prometheus keeps them.

Comes in: segments and matchers. Goes out: for each series its exemplars, in the order of time. Of an OTLP histogram
those of its buckets are where their values belong, those of a counter and of a native histogram all; gauges, summaries,
sums and counts have none, as in Prometheus.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from lakerunner.model.labels import Labels, labels_of
from lakerunner.model.labels.matcher import Matchers, SelectorTest
from lakerunner.model.labels.metric_view import Kind
from lakerunner.model.segment import Segment
from lakerunner.plan.plan import Shard
from lakerunner.query.held import explained
from lakerunner.query.metrics.kernels import NS_PER_MS
from lakerunner.query.metrics.layout import Block, Part
from lakerunner.query.metrics.reading import RowGroup, SegmentFile
from lakerunner.query.metrics.samples import Reading
from lakerunner.query.metrics.segments import MetricSegments
from lakerunner.query.metrics.spread import number_text

_POINTS_AT_ONCE = 4_000_000
_MOST_RUNES = 128  # of all labels of an exemplar: past it the ids alone are kept
_COLUMNS = ("timestamp", "exemplars", "bounds", "metric_type")
_FIELDS = ("double_value", "int_value", "trace_id", "span_id", "attributes")
_HAVE = frozenset({Kind.NUMBER, Kind.SENT, Kind.NATIVE, Kind.BUCKETS})


@dataclass(frozen=True)
class Exemplar:
    """`time` is ms."""

    labels: Labels
    value: float
    time: int


def exemplars_of(
    metrics: MetricSegments, segments: Sequence[Segment], matchers: Matchers, start: int, end: int
) -> Iterator[tuple[Labels, list[Exemplar]]]:
    """Of times of [start, end], in ms. An exemplar that is there several times counts once."""
    ordered, layout = metrics.layout(segments, matchers)
    test = SelectorTest(matchers)
    having = [segment for segment in ordered if any(column.name == "exemplars" for column in segment.columns)]
    if not having:
        return
    for block in layout.blocks(Shard(), _POINTS_AT_ONCE):
        found: dict[Labels, dict[Exemplar, None]] = {}
        with metrics.reading(ordered, block, (-(2**62), 2**62), _COLUMNS) as (reading, _):
            for labels, exemplar in _of_block(block, reading):
                if start <= exemplar.time <= end and test(labels):
                    found.setdefault(labels, {})[exemplar] = None
        for labels, exemplars in found.items():
            yield labels, sorted(exemplars, key=lambda one: in_order(one.time, one.labels, one.value))


def in_order(time: int, labels: Labels, value: float) -> tuple[object, ...]:
    """What exemplars are sorted by: their time, and of one time what does not depend on the segments they are in."""
    return time, labels, value != value, value


def _of_block(block: Block, reading: Reading) -> Iterator[tuple[Labels, Exemplar]]:
    for part in (block.plain, block.spread):
        for number, entries in part.by_table.items():
            file = reading.files.get(number)
            if file is not None and "exemplars" in file.columns:
                with explained(file.segment):
                    yield from _of_segment(part, file, entries)


def _of_segment(part: Part, file: SegmentFile, entries: Any) -> Iterator[tuple[Labels, Exemplar]]:
    of = part.entries
    for number, wanted in file.groups(of.first[entries], of.rows[entries]):
        group = file.read(number, _COLUMNS)
        there = np.flatnonzero(group.valid("exemplars"))
        for entry in entries[wanted].tolist():
            kind = Kind(int(of.kind[entry]))
            first = int(of.first[entry]) - group.base
            rows = there[np.searchsorted(there, first) : np.searchsorted(there, first + int(of.rows[entry]))]
            if kind in _HAVE and len(rows):
                labels = part.labels[int(part.group_of[entry])]
                yield from _of_rows(group, rows, kind, labels)


def _of_rows(group: RowGroup, rows: Any, kind: Kind, labels: Labels) -> Iterator[tuple[Labels, Exemplar]]:
    types, bounds = (_taken(group, name, rows) for name in ("metric_type", "bounds"))
    for n, exemplar in _exemplars(group, rows):
        if kind is Kind.BUCKETS:
            bound = next((b for b in bounds[n] or () if exemplar.value <= b), np.inf)
            yield labels_of({**dict(labels), "le": number_text(bound)}), exemplar
        elif kind is not Kind.NUMBER or types[n] != "gauge":
            yield labels, exemplar


def _taken(group: RowGroup, name: str, rows: Any) -> list[Any]:
    column = group.column(name)
    return [None] * len(rows) if column is None else list(column.take(rows).to_pylist())


def _exemplars(group: RowGroup, rows: Any) -> Iterator[tuple[int, Exemplar]]:
    """With the place of its row among these."""
    lists = group.column("exemplars").take(rows)  # type: ignore[union-attr]
    items = lists.flatten()
    places = np.repeat(np.arange(len(rows)), lists.value_lengths().to_numpy(zero_copy_only=False)).tolist()
    fields = [items.field(name).to_pylist() for name in _FIELDS]
    times = items.field("timestamp").cast(pa.int64()).to_pylist()
    for place, time, *rest in zip(places, times, *fields, strict=True):
        stored = dict(zip(_FIELDS, rest, strict=True))
        ids = {name: stored[name].hex() for name in ("trace_id", "span_id") if stored[name]}
        further = {name: _text(value) for name, value in stored["attributes"] or ()}
        runes = sum(len(name) + len(value) for name, value in {**further, **ids}.items())
        value = float(stored["int_value"]) if stored["double_value"] is None else stored["double_value"]
        labels = labels_of({**further, **ids} if runes <= _MOST_RUNES else ids)
        yield place, Exemplar(labels, value, (time or 0) // NS_PER_MS)


def _text(typed: str) -> str:
    """The plain text of a value that is typed JSON."""
    value = json.loads(typed)
    if isinstance(value, dict) and len(value) == 1 and (odd := value.get("bytesValue", value.get("doubleValue"))):
        return str(odd)
    return value if isinstance(value, str) else "" if value is None else typed
