"""The operator of listings: series, labels, metadata, exemplars and sketches of metrics, as rows of JSON values.

docs/formats/workers.md has the rows. series: [[name, value], ...]; label_names, label_values: text; metadata: [metric,
type, unit, help]; exemplars: [labels, [[labels, value, ms], ...]], the value as text, since JSON has no NaN;
metric_names: text; sketches: [metric, window's end in ms, sketch in base64]; label_counts: [whose, label, values or
null, sketch of them in base64 or null].

A series is listed if one of the segments has it, even if its points are outside the requested times: Prometheus does
the same with its blocks. Series that differ in `le` or `quantile` are known only from their points, so these are read.

Exemplars are listed as Prometheus stores them: those of an OTLP histogram at the bucket of their value, those of a
counter or a native histogram all; gauges, summaries, sums and counts have none.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from lakerunner.model.labels import Labels, labels_of
from lakerunner.model.labels.matcher import Matchers, SelectorTest
from lakerunner.model.labels.metric_view import FURTHER_LABEL, TARGET_INFO, Form, SampleKind
from lakerunner.model.prometheus import unit_name
from lakerunner.model.segment import Segment
from lakerunner.plan.plan import Shard
from lakerunner.promql.operators import Selection
from lakerunner.query.metrics.active import SketchRequest, label_counts, names_of, sketches_of
from lakerunner.query.metrics.compound_points import number_text
from lakerunner.query.metrics.kernels import NS_PER_MS
from lakerunner.query.metrics.layout import Block, GroupSet, Layout
from lakerunner.query.metrics.metric_segments import MetricSegments
from lakerunner.query.metrics.sample_reader import SampleReader, block_samples
from lakerunner.query.metrics.segment_file import RowGroup, SegmentFile
from lakerunner.query.metrics.series_registry import MetricDescription
from lakerunner.query.metrics.unit_series import UnitSeries
from lakerunner.query.segment_cache.lease import naming_segment
from lakerunner.series.evaluation.pieces import ListingRows, Piece, SeriesOperator

_POINTS_AT_ONCE = 4_000_000
_SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "summary": ("_sum", "_count")}
_MOST_RUNES = 128  # Prometheus' limit for all labels of an exemplar; beyond it only the ids are kept
_COLUMNS = ("timestamp", "exemplars", "bounds", "metric_type")
_FIELDS = ("double_value", "int_value", "trace_id", "span_id", "attributes")
_WITH_EXEMPLARS = frozenset({SampleKind.NUMBER, SampleKind.SENT, SampleKind.NATIVE, SampleKind.BUCKETS})


@dataclass(frozen=True)
class ListSeries(SeriesOperator):
    """List part of what the selection selects; one row beyond `limit` means that there are more. `label`: the one whose
    values are listed. `metrics` and `step` (ms) are for sketches: the metrics by their names as sent, all if empty, and
    the width of the windows."""

    name = "list"

    what: Literal[
        "series", "label_names", "label_values", "metadata", "exemplars", "metric_names", "sketches", "label_counts"
    ]
    selection: Selection
    limit: int
    label: str = ""
    metrics: tuple[str, ...] = ()
    step: int = 0

    def run(self, series: UnitSeries) -> Iterator[Piece]:
        rows = []
        for row in self._rows(series):
            series.check()
            rows.append(row)
            if len(rows) > self.limit:
                break
        series.read_all()
        yield Piece(ListingRows(rows))

    def to_json(self) -> dict[str, Any]:
        return {
            "what": self.what,
            "selection": self.selection.to_json(),
            "limit": self.limit,
            "label": self.label,
            "metrics": self.metrics,
            "step": self.step,
        }

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> ListSeries:
        selection, metrics = Selection.from_json(given["selection"]), tuple(given["metrics"])
        return cls(given["what"], selection, given["limit"], given["label"], metrics, given["step"])

    def lines(self) -> Iterator[str]:
        yield f"list {self.what.replace('_', ' ')}" + (f" of {self.label}" if self.label else "")

    def _rows(self, series: UnitSeries) -> Iterator[Any]:
        metrics, segments, tiles = series.metrics, series.segments, series.tiles
        matchers, between = self.selection.matchers, (self.selection.start, self.selection.end)
        request = SketchRequest(self.metrics, self.step, self.limit)
        match self.what:
            case "series":
                yield from series_of(metrics, segments, matchers, *between)
            case "label_names":
                yield from sorted(label_names(metrics, segments, matchers))
            case "label_values":
                yield from sorted(label_values(metrics, segments, matchers, self.label, between))
            case "metadata":
                for family in metadata_of(metrics, segments):
                    yield [family.name, family.type, family.unit, family.help]
            case "exemplars":
                for labels, exemplars in exemplars_of(metrics, segments, matchers, between[0] + 1, between[1]):
                    yield [labels, [[one.labels, repr(one.value), one.time] for one in exemplars]]
            case "metric_names":
                yield from sorted(names_of(metrics, segments, self.label))
            case "sketches":
                for metric, end, sketch in sketches_of(metrics, segments, request, tiles):
                    yield [metric, end, b64encode(sketch).decode()]
            case "label_counts":
                for whose, label, values, many in label_counts(metrics, segments, request, tiles):
                    yield [whose, label, values, many and b64encode(many).decode()]


@dataclass(frozen=True, order=True)
class MetricFamily:
    """`type` is Prometheus' name of the type."""

    name: str
    type: str
    unit: str
    help: str


def series_of(
    metrics: MetricSegments, segments: Sequence[Segment], matchers: Matchers, start: int, end: int
) -> Iterator[Labels]:
    """Yield each series once. The times, (start, end] in ms, matter only where points are read."""
    ordered, layout = metrics.layout(segments, matchers)
    test = SelectorTest(matchers)
    for n in np.flatnonzero(~layout.spread).tolist():
        yield layout.labels[n]
    for n in np.flatnonzero(layout.spread).tolist():
        if not layout.further[n]:
            yield layout.labels[n]
    for block in _read_blocks(layout):
        with metrics.files(ordered, block.tables, block, (start, end)) as (files, _):
            reading = SampleReader(files, (start, end), metrics.reading_pool)
            yield from block_samples(block, reading, test).labels


def label_names(metrics: MetricSegments, segments: Sequence[Segment], matchers: Matchers) -> set[str]:
    """Return the label names of all selected series, whatever the matchers say about `le` and `quantile`."""
    _, layout = metrics.layout(segments, matchers)
    return {name for labels in layout.labels for name, _ in labels} | {name for name in layout.further if name}


def label_values(
    metrics: MetricSegments, segments: Sequence[Segment], matchers: Matchers, name: str, between: tuple[int, int]
) -> set[str]:
    """Return the values of a label. Points are read only if the label, or a matcher, is `le` or `quantile`."""
    about = {name, *(matcher.name for matcher in matchers)}
    if about & set(FURTHER_LABEL.values()):
        found = (dict(labels).get(name) for labels in series_of(metrics, segments, matchers, *between))
    else:
        _, layout = metrics.layout(segments, matchers)
        found = (dict(labels).get(name) for labels in layout.labels)
    return {value for value in found if value}


def metadata_of(
    metrics: MetricSegments, segments: Sequence[Segment], form: Form = Form.ESCAPED
) -> Iterator[MetricFamily]:
    """Yield what is stated about each metric, each statement once. Segments are read one by one."""
    seen: set[MetricFamily] = set()
    for segment in segments:
        stated = metrics.descriptions(segment)
        families = [_family(one, form) for one in stated.described]
        families += [MetricFamily(one.metric, type_, one.unit, one.help) for type_, one in stated.entries]
        if any(not one.as_sent for one in stated.described):
            families.append(MetricFamily(TARGET_INFO, "gauge", "", "Target metadata"))
        for family in families:
            if family.name and family not in seen:
                seen.add(family)
                yield family


def _read_blocks(layout: Layout) -> Iterator[Block]:
    """Yield the groups whose series are known only from their points."""
    for block in layout.blocks(Shard(), _POINTS_AT_ONCE):
        if any(layout.further[n] for n in block.spread.groups.tolist()):
            yield block.of_further()


def _family(one: MetricDescription, form: Form) -> MetricFamily:
    if one.as_sent:
        type_ = {"sum": "counter", "exponential_histogram": "histogram"}.get(one.type, one.type)
        name = one.name or ""
        suffix = next((end for end in _SUFFIXES.get(type_, ()) if name.endswith(end)), "")
        return MetricFamily(name.removesuffix(suffix), type_, one.unit, one.help)
    name = (one.name if form is Form.UTF8 else one.escaped) or ""
    return MetricFamily(name, _otlp_type(one), unit_name(one.unit), one.help)


def _otlp_type(one: MetricDescription) -> str:
    """Return the type as Prometheus' OTLP receiver states it; it has none for deltas."""
    if one.type == "gauge" or (one.type == "sum" and not one.monotonic and one.temporality != "delta"):
        return "gauge"
    if one.type == "summary":
        return "summary"
    if one.temporality == "delta":
        return "unknown"
    return "counter" if one.type == "sum" else "histogram"


@dataclass(frozen=True)
class Exemplar:
    """`time` is in ms."""

    labels: Labels
    value: float
    time: int


def exemplars_of(
    metrics: MetricSegments, segments: Sequence[Segment], matchers: Matchers, start: int, end: int
) -> Iterator[tuple[Labels, list[Exemplar]]]:
    """Yield the exemplars of each series within [start, end] in ms, in order of time; duplicates count once."""
    ordered, layout = metrics.layout(segments, matchers)
    test = SelectorTest(matchers)
    having = [segment for segment in ordered if any(column.name == "exemplars" for column in segment.columns)]
    if not having:
        return
    for block in layout.blocks(Shard(), _POINTS_AT_ONCE):
        found: dict[Labels, dict[Exemplar, None]] = {}
        with metrics.files(ordered, block.tables, block, (-(2**62), 2**62), _COLUMNS) as (files, _):
            for labels, exemplar in _of_block(block, files):
                if start <= exemplar.time <= end and test(labels):
                    found.setdefault(labels, {})[exemplar] = None
        for labels, exemplars in found.items():
            yield labels, sorted(exemplars, key=lambda one: exemplar_order(one.time, one.labels, one.value))


def exemplar_order(time: int, labels: Labels, value: float) -> tuple[object, ...]:
    """Return the sort key of an exemplar: its time, then what does not depend on the segment that holds it. NaN sorts
    last."""
    return time, labels, value != value, value


def _of_block(block: Block, files: Mapping[int, SegmentFile]) -> Iterator[tuple[Labels, Exemplar]]:
    for part in (block.plain, block.beside_parts, block.spread):
        for number, entries in part.by_table.items():
            file = files.get(number)
            if file is not None and "exemplars" in file.columns:
                with naming_segment(file.segment):
                    yield from _of_segment(part, file, entries)


def _of_segment(part: GroupSet, file: SegmentFile, entries: Any) -> Iterator[tuple[Labels, Exemplar]]:
    of = part.entries
    for number, wanted in file.groups(of.first[entries], of.rows[entries]):
        group = file.read(number, _COLUMNS)
        there = np.flatnonzero(group.valid("exemplars"))
        for entry in entries[wanted].tolist():
            kind = SampleKind(int(of.kind[entry]))
            first = int(of.first[entry]) - group.base
            rows = there[np.searchsorted(there, first) : np.searchsorted(there, first + int(of.rows[entry]))]
            if kind in _WITH_EXEMPLARS and len(rows):
                labels = part.labels[int(part.group_of[entry])]
                yield from _of_rows(group, rows, kind, labels)


def _of_rows(group: RowGroup, rows: Any, kind: SampleKind, labels: Labels) -> Iterator[tuple[Labels, Exemplar]]:
    types, bounds = (_taken(group, name, rows) for name in ("metric_type", "bounds"))
    for n, exemplar in _exemplars(group, rows):
        if kind is SampleKind.BUCKETS:
            bound = next((b for b in bounds[n] or () if exemplar.value <= b), np.inf)
            yield labels_of({**dict(labels), "le": number_text(bound)}), exemplar
        elif kind is not SampleKind.NUMBER or types[n] != "gauge":
            yield labels, exemplar


def _taken(group: RowGroup, name: str, rows: Any) -> list[Any]:
    column = group.column(name)
    return [None] * len(rows) if column is None else list(column.take(rows).to_pylist())


def _exemplars(group: RowGroup, rows: Any) -> Iterator[tuple[int, Exemplar]]:
    """Yield exemplars with the place of their row among `rows`."""
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
    """Return the plain text of a value in typed JSON."""
    value = json.loads(typed)
    if isinstance(value, dict) and len(value) == 1 and (odd := value.get("bytesValue", value.get("doubleValue"))):
        return str(odd)
    return value if isinstance(value, str) else "" if value is None else typed
