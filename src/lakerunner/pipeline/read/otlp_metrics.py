"""OTLP metrics: the bytes of export requests to Rows, one for each data point.

Comes in: raw objects. Goes out: the points of the valid ones, not yet copied out of their bytes, and the reason for
each damaged one, which has no rows at all. Rows are in the order of the objects and, inside one, of its points. A
Metric without points has no row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from lakerunner.kernel_cache import njit
from lakerunner.model.signal import ATTRIBUTES
from lakerunner.pipeline.read.envelope import read_envelope
from lakerunner.pipeline.read.memory import Bytes, Int32s, Names, Records
from lakerunner.pipeline.read.metric_points import (
    DOUBLE,
    EXEMPLARS,
    EXPONENTIAL,
    GAUGE,
    HAS_MAX,
    HAS_MIN,
    HAS_NEGATIVE,
    HAS_POSITIVE,
    HAS_SUM,
    HISTOGRAM,
    INT,
    QUANTILES,
    SUM,
    SUMMARY,
    TYPES,
    WIDES,
    PointArrays,
    close_points,
    points_for,
    read_point,
)
from lakerunner.pipeline.read.names import names_for, number_of
from lakerunner.pipeline.read.otlp import join_files
from lakerunner.pipeline.read.otlp_requests import METRICS_REQUEST
from lakerunner.pipeline.read.rows import (
    Attached,
    CodedColumn,
    Column,
    ListColumn,
    NumberColumn,
    Raw,
    ReadResult,
    Rows,
    StructColumn,
    TextColumn,
)
from lakerunner.pipeline.read.walk import BYTES, Attributes, attributes_for, contiguous, read_pair, string_array
from lakerunner.pipeline.read.wire import STRING, VARINT, read_size, read_varint, skip_field, tag_of

METADATA = "metadata"  # Metric.metadata: attached like a scope's attributes, and the column made of it
_TEMPORALITIES = {1: "delta", 2: "cumulative"}

_NAME, _DESCRIPTION, _UNIT, _METADATA = (tag_of(number, STRING) for number in (1, 2, 3, 12))
_GAUGE, _SUM, _HISTOGRAM, _EXPONENTIAL, _SUMMARY = (tag_of(number, STRING) for number in (5, 7, 9, 10, 11))
_POINT, _TEMPORALITY, _MONOTONIC = tag_of(1, STRING), tag_of(2, VARINT), tag_of(3, VARINT)

_METRIC = np.dtype(
    [
        ("name", np.int32),  # as a number of MetricTexts.names
        ("description", np.int32),
        ("unit", np.int32),
        ("kind", np.int32),  # as a number of TYPES
        ("temporality", np.int32),
        ("monotonic", np.int32),
        ("first", np.int32),  # its first metadata; they end at the next metric's first
    ]
)


class MetricTexts(NamedTuple):
    """Texts with few different values, as names (read/names.py)."""

    names: Names
    descriptions: Names
    units: Names


class MetricArrays(NamedTuple):
    """The metrics of all requests and their points. `metrics` has one more row at the end that closes the last one's
    metadata. `counts` has the number of metadata so far."""

    metrics: Records
    metadata: Attributes
    words: MetricTexts
    points: PointArrays
    counts: Any


def read_metrics(raws: Sequence[Raw]) -> ReadResult:
    """Read the data points of these objects."""
    files = join_files(raws, METRICS_REQUEST)
    if not len(files.modified_ns):
        return ReadResult(None, files.done, files.failed, files.left, files.items)
    envelope = read_envelope(files, METRICS_REQUEST)
    found = _metrics_for(files.counts, len(files.modified_ns))
    _read_metrics(files.data, envelope.items, found)
    points = found.points.points[:-1]
    metric = points["metric"]
    scope = envelope.items["scope"][metric]
    attached = {
        ATTRIBUTES.map_column: Attached(*found.points.attributes, contiguous(found.points.points["first"])),
        **envelope.attached(scope),
    }
    if found.counts[0]:
        attached[METADATA] = Attached(*found.metadata, contiguous(found.metrics["first"]), metric)
    columns = {
        **_point_columns(points),
        **_metric_columns(found, files.data, metric),
        **envelope.columns(files.data, scope),
    }
    if found.points.counts[WIDES] > 1:
        columns |= _wide_columns(found.points, points["wide"])
    if found.points.counts[EXEMPLARS]:
        columns["exemplars"] = ListColumn(contiguous(found.points.points["exemplar"]), _exemplar_structs(found.points))
    rows = Rows(len(points), files.data, columns, attached, files.modified_ns, points["size"])
    return ReadResult(rows, files.done, files.failed, files.left, files.items)


def _point_columns(points: Records) -> dict[str, Column]:
    return {
        "time_unix_nano": NumberColumn(points["time"]),
        "start_time_unix_nano": NumberColumn(points["start"]),
        "value": NumberColumn(points["bits"].view(np.float64), points["kind"] == DOUBLE),
        "int_value": NumberColumn(points["bits"].view(np.int64), points["kind"] == INT),
        "flags": NumberColumn(points["flags"]),
    }


def _metric_columns(found: MetricArrays, data: Bytes, metric: Int32s) -> dict[str, Column]:
    """Return the columns that a point has from its metric."""
    rows = found.metrics
    known, codes = np.unique(rows["temporality"], return_inverse=True)
    temporalities = [_TEMPORALITIES.get(number, str(number)) for number in known.tolist()]
    return {
        "metric_name": CodedColumn(rows["name"], string_array(found.words.names, data), metric),
        "description": CodedColumn(rows["description"], string_array(found.words.descriptions, data), metric),
        "unit": CodedColumn(rows["unit"], string_array(found.words.units, data), metric),
        "metric_type": CodedColumn(rows["kind"], pa.array(TYPES), metric),
        "temporality": CodedColumn(
            np.where(rows["temporality"] == 0, -1, codes).astype(np.int32), pa.array(temporalities, pa.string()), metric
        ),
        "monotonic": NumberColumn(rows["monotonic"] != 0, rows["kind"] == SUM, metric),
    }


def _wide_columns(found: PointArrays, wide: Int32s) -> dict[str, Column]:
    """Return the columns that only histograms and summaries have. `wide` is each point's row among them, 0 for plain
    numbers."""
    rows, lot = found.wide[: found.counts[WIDES] + 1], found.lot
    # Wide rows are in the order of the points, so the empty list of a plain number begins where the list of the next
    # wide point does.
    following = np.append(1, np.cumsum(wide > 0) + 1)
    has, kind = rows["has"], rows["kind"]
    exponential = kind == EXPONENTIAL

    def numbers(name: str, valid: Any, dtype: type) -> NumberColumn:
        return NumberColumn(rows[name].view(dtype), valid, wide)

    def list_of(values: Any, name: str, dtype: type) -> ListColumn:
        return ListColumn(rows[name][following], NumberColumn(values.view(dtype)))

    def buckets(side: str, values: Any, mark: int) -> StructColumn:
        fields: dict[str, Column] = {
            "offset": NumberColumn(rows[f"{side}_offset"], None, wide),
            "counts": list_of(values, side, np.uint64),
        }
        return StructColumn(fields, None, (has & mark != 0)[wide])

    columns: dict[str, Column] = {
        "count": numbers("count", kind != GAUGE, np.uint64),
        "sum": numbers("sum", has & HAS_SUM != 0, np.float64),
    }
    if (kind == HISTOGRAM).any():
        columns["bounds"] = list_of(lot.bounds, "bounds", np.float64)
        columns["bucket_counts"] = list_of(lot.counts, "counts", np.uint64)
    if exponential.any():
        columns["scale"] = numbers("scale", exponential, np.int32)
        columns["zero_count"] = numbers("zero_count", exponential, np.uint64)
        columns["zero_threshold"] = numbers("zero_threshold", exponential, np.float64)
        columns["positive"] = buckets("positive", lot.positive, HAS_POSITIVE)
        columns["negative"] = buckets("negative", lot.negative, HAS_NEGATIVE)
    if (has & (HAS_MIN | HAS_MAX)).any():
        columns["min"] = numbers("min", has & HAS_MIN != 0, np.float64)
        columns["max"] = numbers("max", has & HAS_MAX != 0, np.float64)
    if found.counts[QUANTILES]:
        columns["quantiles"] = list_of(lot.quantiles, "quantiles", np.float64)
        columns["quantile_values"] = list_of(lot.quantile_values, "quantiles", np.float64)
    return columns


def _exemplar_structs(found: PointArrays) -> StructColumn:
    rows = found.exemplars[: found.counts[EXEMPLARS]]
    return StructColumn(
        {
            "timestamp": NumberColumn(rows["time"].view(np.int64), rows["time"] != 0),
            "double_value": NumberColumn(rows["bits"].view(np.float64), rows["kind"] == DOUBLE),
            "int_value": NumberColumn(rows["bits"].view(np.int64), rows["kind"] == INT),
            "trace_id": TextColumn(BYTES, rows["trace_at"], rows["trace_size"], empty_is_null=True),
            "span_id": TextColumn(BYTES, rows["span_at"], rows["span_size"], empty_is_null=True),
        },
        Attached(*found.exemplar_attributes, contiguous(found.exemplars["first"])),
    )


def _metrics_for(counts: Counter[str], points: int) -> MetricArrays:
    metrics = counts["Metric"]
    return MetricArrays(
        np.zeros(metrics + 1, _METRIC),
        attributes_for(counts["Metadata.attributes"]),
        MetricTexts(names_for(metrics), names_for(metrics), names_for(metrics)),
        points_for(counts, points, sum(counts[name] for name in METRICS_REQUEST.rows[1:])),
        np.zeros(1, np.int64),
    )


@njit(cache=True)
def _read_data(data: Any, at: Any, end: Any, index: Any, found: MetricArrays) -> Any:
    """Read a Gauge, Sum, Histogram, ExponentialHistogram or Summary: its points, temporality and monotonicity."""
    metric = found.metrics[index]
    kind = metric.kind
    while at < end:
        tag = data[at]
        if tag == _POINT:
            start, at = read_size(data, at + 1)
            read_point(data, start, at, index, kind, found.points)
        elif tag == _TEMPORALITY and SUM <= kind <= EXPONENTIAL:
            number, at = read_varint(data, at + 1)
            metric.temporality = np.int32(np.uint32(number & np.uint64(0xFFFFFFFF)))
        elif tag == _MONOTONIC and kind == SUM:
            number, at = read_varint(data, at + 1)
            metric.monotonic = number != 0
        else:
            at = skip_field(data, at)


@njit(cache=True)
def _kind_of(tag: Any) -> Any:
    """Return the number in TYPES of the data in the field with this tag of a Metric; -1 for other fields."""
    if tag == _GAUGE:
        return GAUGE
    if tag == _SUM:
        return SUM
    if tag == _HISTOGRAM:
        return HISTOGRAM
    if tag == _EXPONENTIAL:
        return EXPONENTIAL
    return SUMMARY if tag == _SUMMARY else -1


@njit(cache=True)
def _read_metric(data: Any, at: Any, end: Any, index: Any, found: MetricArrays) -> Any:
    metric = found.metrics[index]
    metric.first = found.counts[0]
    name_at, name_end, text_at, text_end, unit_at, unit_end = at, at, at, at, at, at
    while at < end:
        tag = data[at]
        kind = _kind_of(tag)
        if kind >= 0:
            start, at = read_size(data, at + 1)
            metric.kind = kind
            _read_data(data, start, at, index, found)
        elif tag == _NAME:
            name_at, at = read_size(data, at + 1)
            name_end = at
        elif tag == _DESCRIPTION:
            text_at, at = read_size(data, at + 1)
            text_end = at
        elif tag == _UNIT:
            unit_at, at = read_size(data, at + 1)
            unit_end = at
        elif tag == _METADATA:
            start, at = read_size(data, at + 1)
            read_pair(data, start, at, found.counts[0], found.metadata)
            found.counts[0] += 1
        else:
            at = skip_field(data, at)
    # Senders repeat their metrics in the same order, so the name of the metric before predicts this one.
    before = np.int64(found.metrics[index - 1].name) if index > 0 else np.int64(-1)
    metric.name = number_of(data, name_at, name_end - name_at, found.words.names, before)
    before = np.int64(found.metrics[index - 1].description) if index > 0 else np.int64(-1)
    metric.description = number_of(data, text_at, text_end - text_at, found.words.descriptions, before)
    metric.unit = number_of(data, unit_at, unit_end - unit_at, found.words.units, np.int64(-1))


@njit(cache=True)
def _read_metrics(data: Any, items: Any, found: MetricArrays) -> Any:
    """Read the Metrics at these places, and their points, into their rows."""
    for row in range(len(items)):
        at = np.int64(items[row].at)
        _read_metric(data, at, at + np.int64(items[row].size), row, found)
    close_points(found.points)
    found.metrics[len(items)].first = found.counts[0]
