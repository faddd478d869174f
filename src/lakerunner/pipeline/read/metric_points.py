"""The data points of OTLP metrics, from checked bytes into flat arrays.

Comes in: the bytes of one point after the other. Goes out: a row of `points` for each, and of `wide` for each histogram
and summary, whose repeated numbers are in `PointLists`. Most points are plain numbers: they share the first row of
`wide`, which is empty, and pay nothing for the fields that only the others have.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lakerunner.kernel_cache import njit
from lakerunner.pipeline.read.memory import load, slice_fields
from lakerunner.pipeline.read.walk import Attributes, attributes_for, read_pair
from lakerunner.pipeline.read.wire import FIXED64, read_size, read_varint, skip_field, tag_of

TYPES = ("gauge", "sum", "histogram", "exponential_histogram", "summary")
GAUGE, SUM, HISTOGRAM, EXPONENTIAL, SUMMARY = range(5)
# Kinds of a point's or exemplar's number.
NONE, DOUBLE, INT = 0, 1, 2
# Bits that mark the presence of optional fields.
HAS_SUM, HAS_MIN, HAS_MAX, HAS_POSITIVE, HAS_NEGATIVE = 1, 2, 4, 8, 16

# These two are the same in every kind of point. Other tags are written out where they are used, because each kind
# numbers its fields differently: 0x3A are attributes in one and bounds in another.
_START, _TIME = (tag_of(number, FIXED64) for number in (2, 3))

_POINT = np.dtype(
    [
        ("time", np.uint64),
        ("start", np.uint64),
        ("bits", np.uint64),  # the number, a double or an int64
        ("kind", np.int32),  # NONE, DOUBLE or INT
        ("size", np.int32),  # of the message, in bytes
        ("first", np.int32),  # its first attribute; they end at the next point's first
        ("exemplar", np.int32),  # its first exemplar; they end at the next point's
        ("metric", np.int32),
        ("wide", np.int32),
        ("flags", np.uint32),
    ]
)
_WIDE = np.dtype(
    [
        ("count", np.uint64),
        ("sum", np.uint64),  # doubles as their bits
        ("min", np.uint64),
        ("max", np.uint64),
        ("zero_count", np.uint64),
        ("zero_threshold", np.uint64),
        ("has", np.int32),
        ("kind", np.int32),  # as a number of TYPES
        ("scale", np.int32),
        ("positive_offset", np.int32),
        ("negative_offset", np.int32),
        ("bounds", np.int32),  # the first of each list, which ends at the next row's first
        ("counts", np.int32),
        ("positive", np.int32),
        ("negative", np.int32),
        ("quantiles", np.int32),
    ]
)
_EXEMPLAR = np.dtype(
    [
        ("time", np.uint64),
        ("bits", np.uint64),
        ("kind", np.int32),
        ("first", np.int32),
        *slice_fields("trace", "span"),
    ]
)
# Places in PointArrays.counts, each the number of rows or values so far.
POINTS, PAIRS, EXEMPLARS, EXEMPLAR_PAIRS, WIDES, _BOUNDS, _COUNTS, _POSITIVES, _NEGATIVES, QUANTILES = range(10)


class PointLists(NamedTuple):
    """The repeated numbers of all points, one after the other: 64 bits each, doubles as their bits."""

    bounds: Any
    counts: Any
    positive: Any
    negative: Any
    quantiles: Any
    quantile_values: Any


class PointArrays(NamedTuple):
    """The points of all requests. `points`, `wide` and `exemplars` have one more row at the end that closes the lists
    of the last one."""

    points: Any
    wide: Any
    exemplars: Any
    lot: PointLists
    attributes: Attributes
    exemplar_attributes: Attributes
    counts: Any


def points_for(counts: Counter[str], points: int, wide: int) -> PointArrays:
    """Return room for this many points, `wide` of them histograms or summaries, and for their lists by `counts`."""

    def numbers(name: str) -> npt.NDArray[np.uint64]:
        return np.zeros(counts[name], np.uint64)

    found = PointArrays(
        np.zeros(points + 1, _POINT),
        np.zeros(wide + 2, _WIDE),
        np.zeros(counts["Exemplar"] + 1, _EXEMPLAR),
        PointLists(
            numbers("explicit_bounds"),
            numbers("bucket_counts"),
            numbers("positive.counts"),
            numbers("negative.counts"),
            numbers("ValueAtQuantile"),
            numbers("ValueAtQuantile"),
        ),
        attributes_for(counts["Point.attributes"]),
        attributes_for(counts["Exemplar.attributes"]),
        np.zeros(10, np.int64),
    )
    found.counts[WIDES] = 1  # row 0 is the empty one of plain numbers
    return found


@njit(cache=True)
def read_point(data: Any, at: Any, end: Any, metric: Any, kind: Any, found: PointArrays) -> Any:
    """Read a point of the metric of this number and kind (of TYPES) into its rows."""
    counts = found.counts
    point = found.points[counts[POINTS]]
    counts[POINTS] += 1
    point.size, point.metric = end - at, metric
    point.first, point.exemplar = counts[PAIRS], counts[EXEMPLARS]
    if kind <= SUM:
        _read_number(data, at, end, point, found)
        return
    point.wide = counts[WIDES]
    counts[WIDES] += 1
    wide = found.wide[point.wide]
    wide.kind = kind
    _begin_lists(wide, counts)
    if kind == HISTOGRAM:
        _read_histogram(data, at, end, point, found)
    elif kind == EXPONENTIAL:
        _read_exponential(data, at, end, point, found)
    else:
        _read_summary(data, at, end, point, found)


@njit(cache=True)
def close_points(found: PointArrays) -> Any:
    """End the lists of the last point, wide row and exemplar."""
    counts = found.counts
    last = found.points[counts[POINTS]]
    last.first, last.exemplar = counts[PAIRS], counts[EXEMPLARS]
    _begin_lists(found.wide[counts[WIDES]], counts)
    found.exemplars[counts[EXEMPLARS]].first = counts[EXEMPLAR_PAIRS]


@njit(cache=True)
def _set_time(point: Any, tag: Any, time: Any) -> Any:
    if tag == _TIME:
        point.time = time
    else:
        point.start = time


@njit(cache=True)
def _set_extreme(wide: Any, is_min: Any, bits: Any) -> Any:
    if is_min:
        wide.min, wide.has = bits, wide.has | HAS_MIN
    else:
        wide.max, wide.has = bits, wide.has | HAS_MAX


@njit(cache=True)
def _zigzag(number: Any) -> Any:
    """Decode an sint32."""
    low = np.int64(number & np.uint64(0xFFFFFFFF))
    return np.int32((low >> 1) ^ -(low & 1))


@njit(cache=True)
def _read_fixed(data: Any, at: Any, out: Any, count: Any) -> Any:
    """Read a field of repeated fixed64 or double, packed or not; return (next position, count with the new ones)."""
    if data[at] & 7 == 1:
        out[count] = load(data, at + 1)
        return at + 9, count + 1
    start, at = read_size(data, at + 1)
    while start < at:
        out[count] = load(data, start)
        start += 8
        count += 1
    return at, count


@njit(cache=True)
def _read_buckets(data: Any, at: Any, end: Any, offset: Any, out: Any, count: Any) -> Any:
    """Read Buckets; return (offset, count with the new ones). A second call for the same point merges, as protobuf
    does."""
    while at < end:
        tag = data[at]
        if tag == 0x08:
            number, at = read_varint(data, at + 1)
            offset = _zigzag(number)
        elif tag == 0x10:
            number, at = read_varint(data, at + 1)
            out[count] = number
            count += 1
        elif tag == 0x12:
            start, at = read_size(data, at + 1)
            while start < at:
                number, start = read_varint(data, start)
                out[count] = number
                count += 1
        else:
            at = skip_field(data, at)
    return offset, count


@njit(cache=True)
def _read_exemplar(data: Any, at: Any, end: Any, found: PointArrays) -> Any:
    exemplar = found.exemplars[found.counts[EXEMPLARS]]
    found.counts[EXEMPLARS] += 1
    exemplar.first = found.counts[EXEMPLAR_PAIRS]
    while at < end:
        tag = data[at]
        if tag == 0x11:
            exemplar.time = load(data, at + 1)
            at += 9
        elif tag == 0x19 or tag == 0x31:
            exemplar.bits, exemplar.kind = load(data, at + 1), DOUBLE if tag == 0x19 else INT
            at += 9
        elif tag == 0x22:
            start, at = read_size(data, at + 1)
            exemplar.span_at, exemplar.span_size = start, at - start
        elif tag == 0x2A:
            start, at = read_size(data, at + 1)
            exemplar.trace_at, exemplar.trace_size = start, at - start
        elif tag == 0x3A:
            start, at = read_size(data, at + 1)
            read_pair(data, start, at, found.counts[EXEMPLAR_PAIRS], found.exemplar_attributes)
            found.counts[EXEMPLAR_PAIRS] += 1
        else:
            at = skip_field(data, at)


@njit(cache=True)
def _read_number(data: Any, at: Any, end: Any, point: Any, found: PointArrays) -> Any:
    """Read a NumberDataPoint into its row."""
    pairs = found.counts[PAIRS]
    while at < end:
        tag = data[at]
        if tag == 0x3A:
            start, at = read_size(data, at + 1)
            read_pair(data, start, at, pairs, found.attributes)
            pairs += 1
        elif tag in (_TIME, _START):
            _set_time(point, tag, load(data, at + 1))
            at += 9
        elif tag == 0x21 or tag == 0x31:
            point.bits, point.kind = load(data, at + 1), DOUBLE if tag == 0x21 else INT
            at += 9
        elif tag == 0x40:
            number, at = read_varint(data, at + 1)
            point.flags = np.uint32(number & np.uint64(0xFFFFFFFF))
        elif tag == 0x2A:
            start, at = read_size(data, at + 1)
            _read_exemplar(data, start, at, found)
        else:
            at = skip_field(data, at)
    found.counts[PAIRS] = pairs


@njit(cache=True)
def _read_histogram(data: Any, at: Any, end: Any, point: Any, found: PointArrays) -> Any:
    """Read a HistogramDataPoint into its rows."""
    counts, wide = found.counts, found.wide[point.wide]
    while at < end:
        tag = data[at]
        if tag == 0x4A:
            start, at = read_size(data, at + 1)
            read_pair(data, start, at, counts[PAIRS], found.attributes)
            counts[PAIRS] += 1
        elif tag in (_TIME, _START):
            _set_time(point, tag, load(data, at + 1))
            at += 9
        elif tag == 0x21:
            wide.count = load(data, at + 1)
            at += 9
        elif tag == 0x29:
            wide.sum, wide.has = load(data, at + 1), wide.has | HAS_SUM
            at += 9
        elif tag == 0x32 or tag == 0x31:
            at, counts[_COUNTS] = _read_fixed(data, at, found.lot.counts, counts[_COUNTS])
        elif tag == 0x3A or tag == 0x39:
            at, counts[_BOUNDS] = _read_fixed(data, at, found.lot.bounds, counts[_BOUNDS])
        elif tag == 0x42:
            start, at = read_size(data, at + 1)
            _read_exemplar(data, start, at, found)
        elif tag == 0x50:
            number, at = read_varint(data, at + 1)
            point.flags = np.uint32(number & np.uint64(0xFFFFFFFF))
        elif tag == 0x59 or tag == 0x61:
            _set_extreme(wide, tag == 0x59, load(data, at + 1))
            at += 9
        else:
            at = skip_field(data, at)


@njit(cache=True)
def _read_exponential(data: Any, at: Any, end: Any, point: Any, found: PointArrays) -> Any:
    """Read an ExponentialHistogramDataPoint into its rows."""
    counts, wide = found.counts, found.wide[point.wide]
    while at < end:
        tag = data[at]
        if tag == 0x0A:
            start, at = read_size(data, at + 1)
            read_pair(data, start, at, counts[PAIRS], found.attributes)
            counts[PAIRS] += 1
        elif tag in (_TIME, _START):
            _set_time(point, tag, load(data, at + 1))
            at += 9
        elif tag == 0x21:
            wide.count = load(data, at + 1)
            at += 9
        elif tag == 0x29:
            wide.sum, wide.has = load(data, at + 1), wide.has | HAS_SUM
            at += 9
        elif tag == 0x30:
            number, at = read_varint(data, at + 1)
            wide.scale = _zigzag(number)
        elif tag == 0x39:
            wide.zero_count = load(data, at + 1)
            at += 9
        elif tag == 0x42:
            start, at = read_size(data, at + 1)
            wide.has |= HAS_POSITIVE
            wide.positive_offset, counts[_POSITIVES] = _read_buckets(
                data, start, at, wide.positive_offset, found.lot.positive, counts[_POSITIVES]
            )
        elif tag == 0x4A:
            start, at = read_size(data, at + 1)
            wide.has |= HAS_NEGATIVE
            wide.negative_offset, counts[_NEGATIVES] = _read_buckets(
                data, start, at, wide.negative_offset, found.lot.negative, counts[_NEGATIVES]
            )
        elif tag == 0x50:
            number, at = read_varint(data, at + 1)
            point.flags = np.uint32(number & np.uint64(0xFFFFFFFF))
        elif tag == 0x5A:
            start, at = read_size(data, at + 1)
            _read_exemplar(data, start, at, found)
        elif tag == 0x61 or tag == 0x69:
            _set_extreme(wide, tag == 0x61, load(data, at + 1))
            at += 9
        elif tag == 0x71:
            wide.zero_threshold = load(data, at + 1)
            at += 9
        else:
            at = skip_field(data, at)


@njit(cache=True)
def _read_quantile(data: Any, at: Any, end: Any, found: PointArrays) -> Any:
    index = found.counts[QUANTILES]
    found.counts[QUANTILES] = index + 1
    while at < end:
        tag = data[at]
        if tag == 0x09:
            found.lot.quantiles[index] = load(data, at + 1)
            at += 9
        elif tag == 0x11:
            found.lot.quantile_values[index] = load(data, at + 1)
            at += 9
        else:
            at = skip_field(data, at)


@njit(cache=True)
def _read_summary(data: Any, at: Any, end: Any, point: Any, found: PointArrays) -> Any:
    """Read a SummaryDataPoint into its rows."""
    counts, wide = found.counts, found.wide[point.wide]
    wide.has = HAS_SUM  # not an optional field here, unlike in histograms
    while at < end:
        tag = data[at]
        if tag == 0x3A:
            start, at = read_size(data, at + 1)
            read_pair(data, start, at, counts[PAIRS], found.attributes)
            counts[PAIRS] += 1
        elif tag in (_TIME, _START):
            _set_time(point, tag, load(data, at + 1))
            at += 9
        elif tag == 0x21:
            wide.count = load(data, at + 1)
            at += 9
        elif tag == 0x29:
            wide.sum = load(data, at + 1)
            at += 9
        elif tag == 0x32:
            start, at = read_size(data, at + 1)
            _read_quantile(data, start, at, found)
        elif tag == 0x40:
            number, at = read_varint(data, at + 1)
            point.flags = np.uint32(number & np.uint64(0xFFFFFFFF))
        else:
            at = skip_field(data, at)


@njit(cache=True)
def _begin_lists(wide: Any, counts: Any) -> Any:
    """Let the lists of this row begin where those of the row before it end."""
    wide.bounds, wide.counts = counts[_BOUNDS], counts[_COUNTS]
    wide.positive, wide.negative = counts[_POSITIVES], counts[_NEGATIVES]
    wide.quantiles = counts[QUANTILES]
