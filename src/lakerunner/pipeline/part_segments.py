"""Write the parts that rules make of a segment as segments of metrics (docs/decisions/0030).

Comes in: the rule versions that were evaluated over row groups of a segment; the parts of each: labels, the end of a
bucket, what was added up. Goes out: a segment of metrics for each version and hour that has parts, in the name of the
version's collector, through `put`; and the rule set of the segment.

What always holds: ids of parts derive from the rule, what makes streams, and the segment that they were made of: the
same work gives the same ids and bytes. A version over its limit of series has no part of the segment and is not in its
rule set. Labels and metric have exactly the names that the rule gives them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.model.errors import Corrupt
from lakerunner.model.metric_rules.metric_rule import BUCKET_MS, OF_FIELD, RuleVersion
from lakerunner.model.segment import Column as SegmentColumn
from lakerunner.model.segment import Segment, segment_id
from lakerunner.model.signal import ATTRIBUTES, METRICS, RESOURCE, SCOPE, SignalSpec
from lakerunner.model.streams.stream_rules import DEFAULT_RULES, StreamRules
from lakerunner.model.time import HOUR_NS, MS_NS
from lakerunner.pipeline.read.memory import PADDING
from lakerunner.pipeline.read.names import names_for, number_all
from lakerunner.pipeline.read.rows import Attached, CodedColumn, Column, ListColumn, NumberColumn, Rows, StructColumn
from lakerunner.pipeline.read.walk import STRING, VALUE
from lakerunner.pipeline.row_segments import Put, draft_segment, write_segment
from lakerunner.pipeline.rule_parts import RuleCount
from lakerunner.pipeline.segment.series_files import FACTS
from lakerunner.pipeline.segment.writer import Consumer, SegmentIdentity
from lakerunner.pipeline.signals import row_of
from lakerunner.pipeline.steps.order import split_and_sort
from lakerunner.pipeline.steps.points import identify_series, place_numbers
from lakerunner.pipeline.steps.series_labels import RowSeries

RuleStop = tuple[int, str]  # a version and why
_MOST_SERIES = 1_000_000  # that a rule may be allowed
_ROW_BYTES = 256  # of a part in memory, beside its histogram buckets
_SIDES = ("positive", "negative")
# Of a number they are only in the columns of parts; of a histogram also in its own.
_ADDED = ("count", "sum", "sum_error", "min", "max")


@dataclass(frozen=True)
class RuleBook:
    """The rule versions that are evaluated over the rows of one organization and signal, and what makes the streams of
    its logs."""

    versions: tuple[RuleVersion, ...] = ()
    streams: StreamRules = DEFAULT_RULES

    def covering(self, segment: Segment) -> tuple[int, ...]:
        """Return the versions of the book that cover a segment."""
        return tuple(one.id for one in self.versions if one.id in segment.rule_set)

    def of(self, segment: Segment) -> RuleBook:
        """Return the part of the book that covers a segment."""
        return replace(self, versions=tuple(one for one in self.versions if one.id in segment.rule_set))

    def wanting(self, segment: Segment) -> RuleBook:
        """Return the part of the book that is to cover a stored segment, and does not."""
        since = (one for one in self.versions if one.since_ns is not None and one.since_ns < segment.time.end_ns)
        return replace(self, versions=tuple(one for one in since if one.id not in segment.rule_set))

    def without_limits(self) -> RuleBook:
        """Return the same for rows that a merge drops: they come from several segments, each within the limit, and all
        of their parts must be taken back."""
        free = (replace(one, rule=replace(one.rule, max_series=_MOST_SERIES)) for one in self.versions)
        return replace(self, versions=tuple(free))


NO_RULES = RuleBook()


@dataclass(frozen=True)
class MadeParts:
    """The segments of the parts of a segment, and its rule set. `stops` are versions that have no parts of it although
    it may have rows of theirs, and why: they must be paused. `counts` are by version."""

    segments: tuple[Segment, ...] = ()
    rule_set: tuple[int, ...] = ()
    stops: tuple[RuleStop, ...] = ()
    counts: tuple[tuple[int, RuleCount], ...] = ()


class SegmentRules:
    """Evaluates the rules of a book over row groups: of a segment while it is written, or rows that a merge drops.
    Without rules nothing is done."""

    def __init__(self, book: RuleBook, spec: SignalSpec, columns: Sequence[SegmentColumn]) -> None:
        self._book = book
        evaluate = row_of(spec).evaluate if book.versions else None
        self._evaluation = evaluate(book.versions, columns, book.streams) if evaluate else None

    @property
    def consumers(self) -> tuple[Consumer, ...]:
        """What must get the row groups."""
        return (self._evaluation,) if self._evaluation else ()

    def write(self, of: Segment, put: Put, sign: int = 1) -> MadeParts:
        """Write the parts of this segment. With sign -1 the row groups were rows that it lacks now: their parts are
        taken back. Call it once, after the last row group."""
        if self._evaluation is None:
            return MadeParts()
        found = [(version, parts) for version, parts in self._evaluation.finish(sign) if parts.num_rows]
        stops = dict(self._evaluation.refused) | {one: _over_limit(one) for one in self._evaluation.over_limit}
        if sign < 0 and stops:
            raise Corrupt(f"rows that came twice cannot be taken from rules: {'; '.join(stops.values())}")
        own = [(version, parts) for version, parts in found if version not in stops]
        made = [one for version, parts in own for one in write_parts(version, self._book.streams, parts, of, put)]
        rule_set = sorted(version.id for version in self._book.versions if version not in stops)
        reasons = sorted((version.id, reason) for version, reason in stops.items())
        counts = tuple((version.id, count) for version, count in self._evaluation.counts.items())
        return MadeParts(tuple(made), tuple(rule_set), tuple(reasons), counts)


def _over_limit(version: RuleVersion) -> str:
    return (
        f"more than {version.rule.max_series} series in one segment, or too large histograms: keep fewer dimensions, "
        "or raise max_series"
    )


def write_parts(
    version: RuleVersion, streams: StreamRules, parts: pa.RecordBatch, of: Segment, put: Put
) -> tuple[Segment, ...]:
    """Write the parts, of which there is one at least, that a version makes of a segment: a segment for each hour, as
    the end of a bucket may be the begin of the next one."""
    rows = identify_series(_rows(version, parts))
    orders = split_and_sort(rows, METRICS)
    rows = place_numbers(rows, orders)
    work = "parts", version.id, orjson.dumps([version.rule.to_json(), streams.to_json()]).decode(), str(of.id)
    made = []
    for order in orders:
        hour = int(rows.column("timestamp", NumberColumn).values[order].min()) // HOUR_NS
        id_ = segment_id(*work, METRICS.sort_version, hour)
        identity = SegmentIdentity(id_, of.organization, version.collector, METRICS)
        draft = draft_segment(METRICS, rows, order)
        made.append(write_segment(draft, identity, put, facts=_PartSeries(rows, order)))
    return tuple(made)


@dataclass(frozen=True)
class _PartSeries:
    """Facts about series of parts: names and labels as the rule gives them, as Prometheus' own would be; but no sender
    of samples made them."""

    rows: Rows
    order: Any

    def of(self, series: pa.Table) -> pa.Table:
        facts = RowSeries(replace(self.rows, prometheus=True), self.order).of(series)
        sent = pa.array(np.zeros(series.num_rows, np.bool_))
        return facts.set_column(list(FACTS).index("as_sent"), "as_sent", sent)


def _rows(version: RuleVersion, parts: pa.RecordBatch) -> Rows:
    """Return the parts as points of delta sums or histograms, whose attributes are the labels."""
    labels = parts.column("labels")
    owner = labels.indices.to_numpy().astype(np.int32)
    data, attributes = _attributes([orjson.loads(one) for one in labels.dictionary.to_pylist()], owner)
    nobody = np.zeros(parts.num_rows, np.int32)
    attached = {
        ATTRIBUTES.map_column: attributes,
        SCOPE.map_column: _no_attributes(nobody),
        RESOURCE.map_column: _no_attributes(nobody),
    }
    ends = parts.column("timestamp").to_numpy()
    is_histogram = parts.column("scale").is_valid().to_numpy(zero_copy_only=False)
    columns = _described(version, nobody, is_histogram) | _added(parts, is_histogram)
    columns["timestamp"] = NumberColumn(ends)
    columns["start_timestamp"] = NumberColumn(ends - BUCKET_MS * MS_NS)
    if is_histogram.any():
        columns |= _histograms(parts, is_histogram)
    sizes = np.full(parts.num_rows, _ROW_BYTES + parts.nbytes // parts.num_rows)
    return Rows(parts.num_rows, data, columns, attached, ends, sizes)


def _attributes(label_sets: Sequence[list[list[str]]], owner: Any) -> tuple[Any, Attached]:
    """Return (the bytes of these sets of labels, the sets as attributes of rows by their owner)."""
    texts = [text.encode() for labels in label_sets for pair in labels for text in pair]
    size = np.fromiter(map(len, texts), np.int32, len(texts))
    at = np.append(0, np.cumsum(size)).astype(np.int32)[:-1]
    data = np.frombuffer(b"".join(texts) + bytes(PADDING), np.uint8)
    keys = names_for(len(texts) // 2)
    values = np.zeros(len(texts) // 2, VALUE)
    values["key"] = number_all(data, np.ascontiguousarray(at[::2]), np.ascontiguousarray(size[::2]), keys)
    values["kind"], values["at"], values["size"] = STRING, at[1::2], size[1::2]
    first = np.append(0, np.cumsum([len(labels) for labels in label_sets])).astype(np.int32)
    return data, Attached(values, keys, first, owner)


def _no_attributes(nobody: Any) -> Attached:
    return Attached(np.zeros(0, VALUE), names_for(0), np.zeros(2, np.int32), nobody)


def _described(version: RuleVersion, nobody: Any, is_histogram: Any) -> dict[str, Column]:
    """Return the columns that are the same in all parts of a version, apart from the type of histograms."""
    rule = version.rule
    texts = {"metric_name": rule.metric, "description": rule.description, "temporality": "delta"}
    empty = ("unit", "service_name", "scope_name", "scope_version", "scope_schema_url", "resource_schema_url")
    texts |= dict.fromkeys(empty, "")
    columns: dict[str, Column] = {
        name: CodedColumn(np.zeros(1, np.int32), pa.array([text]), nobody) for name, text in texts.items()
    }
    kinds = pa.array(["sum", "exponential_histogram"])
    columns["metric_type"] = CodedColumn(is_histogram.astype(np.int32), kinds)
    # Parts that take back go below 0 all the same: added up, the number of a bucket only grows.
    grows = np.full(len(nobody), rule.measure.kind not in OF_FIELD)
    columns["monotonic"] = NumberColumn(grows, ~is_histogram)
    zero = NumberColumn(np.zeros(1, np.uint32), None, nobody)
    return columns | dict.fromkeys(("flags", "scope_dropped_attributes", "resource_dropped_attributes"), zero)


def _added(parts: pa.RecordBatch, is_histogram: Any) -> dict[str, Column]:
    """Return what the parts add up: in their own columns, and as the number or the totals of a histogram."""
    columns: dict[str, Column] = {f"chq_rollup_{name}": _numbers(parts.column(name)) for name in _ADDED}
    whole = parts.column("sum").to_numpy(zero_copy_only=False) + parts.column("sum_error").to_numpy(
        zero_copy_only=False
    )
    columns["value"] = NumberColumn(whole, ~is_histogram)
    if is_histogram.any():
        # What is taken back counts modulo 2^64, as the counts of its buckets.
        counts = parts.column("count").to_numpy().view(np.uint64)
        columns |= {"count": NumberColumn(counts, is_histogram), "sum": NumberColumn(whole, is_histogram)}
        for name in ("min", "max"):
            own = _numbers(parts.column(name))
            columns[name] = replace(own, valid=is_histogram if own.valid is None else own.valid & is_histogram)
    return columns


def _histograms(parts: pa.RecordBatch, is_histogram: Any) -> dict[str, Column]:
    columns: dict[str, Column] = {name: _numbers(parts.column(name)) for name in ("scale", "zero_count")}
    columns["zero_threshold"] = NumberColumn(np.zeros(parts.num_rows), is_histogram)
    return columns | {side: _buckets(parts.column(side)) for side in _SIDES}


def _buckets(side: pa.StructArray) -> StructColumn:
    offset, counts, *_ = side.flatten()
    first = np.append(0, np.cumsum(counts.value_lengths().fill_null(0).to_numpy())).astype(np.int32)
    fields: dict[str, Column] = {
        "offset": _numbers(offset),
        "counts": ListColumn(first, _numbers(counts.flatten()), empty_is_null=False),
    }
    return StructColumn(fields, valid=side.is_valid().to_numpy(zero_copy_only=False))


def _numbers(array: pa.Array) -> NumberColumn:
    if not array.null_count:
        return NumberColumn(array.to_numpy())
    return NumberColumn(pc.fill_null(array, 0).to_numpy(), array.is_valid().to_numpy(zero_copy_only=False))
