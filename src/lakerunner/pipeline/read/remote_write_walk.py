"""Checked remote-write messages into flat arrays: points, series, exemplars, histograms.

Comes in: the bytes of framed messages that passed the check. Goes out: one point per sample, histogram and metadata
entry, and for a series that has neither sample nor histogram one point without a value, so that its labels and
exemplars stay. Nothing is copied: texts are (at, size) into the data.

A series that was seen before costs one comparison: in 1.0 the bytes of its labels are looked up as they are, in 2.0 the
numbers of its symbols, which are the same in all messages. The series that followed last time is tried first, because
senders send their series in the same order again and again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from lakerunner.pipeline.read.memory import PADDING, load
from lakerunner.pipeline.read.names import names_for, number_of
from lakerunner.pipeline.read.remote_write_check import NS_PER_MS, Counts
from lakerunner.pipeline.read.remote_write_fields import (
    CREATED,
    EXEMPLAR,
    EXEMPLARS,
    FAMILIES,
    FAMILY,
    HELP,
    HISTOGRAMS,
    LABEL,
    LABELS,
    METADATA,
    METRIC,
    NAME,
    NUMBER,
    OF_METRIC,
    REQUEST,
    SAMPLE,
    SAMPLES,
    SERIES,
    START,
    SYMBOL,
    TIME,
    TIMESERIES,
    TYPE,
    UNIT,
    V1,
    V2,
    enumerated,
    narrow,
    read_field,
)
from lakerunner.pipeline.read.remote_write_fields import VALUE as LABEL_VALUE
from lakerunner.pipeline.read.remote_write_histogram import HISTOGRAM_ROW, read_histograms
from lakerunner.pipeline.read.walk import INT, STRING, Attributes, attributes_for
from lakerunner.pipeline.read.wire import read_size, read_varint

# Texts that stand behind the input: the label names we look for, then the types' names.
TYPES = ("unknown", "counter", "gauge", "histogram", "gaugehistogram", "summary", "info", "stateset")
CONSTANTS = ("__name__", "job", "type", *TYPES)
_STARTS = np.cumsum([0, *(len(text) for text in CONSTANTS)])
_NAME_KEY, _JOB_KEY, _TYPE_KEY, _FIRST_TYPE = range(4)
# The type of the series that a metadata entry of 1.0 makes.
ENTRY = -1

EMPTY, SAMPLED, HISTOGRAMMED = range(3)  # what a point holds

POINT = np.dtype(
    [
        ("time", np.int64),  # ns, as is the next
        ("start", np.int64),
        ("value", np.uint64),  # the bits of a double
        ("series", np.int32),
        ("first", np.int32),  # of its exemplars; the next point's first ends them
        ("size", np.int32),  # in bytes
        ("kind", np.int32),
    ]
)
SERIES_ROW = np.dtype(
    [
        ("first", np.int32),  # of its labels; the next series' first ends them
        ("name_at", np.int32),
        ("name_size", np.int32),
        ("job_at", np.int32),
        ("job_size", np.int32),
        ("unit_at", np.int32),
        ("unit_size", np.int32),
        ("help_at", np.int32),
        ("help_size", np.int32),
        ("type", np.int32),
    ]
)
EXEMPLAR_ROW = np.dtype([("time", np.int64), ("value", np.uint64), ("first", np.int32)])


class Known(NamedTuple):
    """How series are found again. `labels` are the label bytes of 1.0, `entries` its metadata, with the series of each;
    for 2.0, `texts` number its symbols, `symbols` are those numbers for the message at hand, and `keys` number runs of
    `pool`: type, help and unit, then the labels. `pool_bytes` is the pool as bytes."""

    labels: Any
    series_of_labels: Any
    entries: Any
    series_of_entries: Any
    texts: Any
    symbols: Any
    keys: Any
    pool: Any
    pool_bytes: Any


class Walked(NamedTuple):
    """All messages, flat. `points`, `series` and `exemplars` have one more row at the end to close the last one's parts.
    `buckets` and `bounds` belong to `histograms`, in their order. `counts` says how many of each there are so far."""

    points: Any
    series: Any
    labels: Attributes
    exemplars: Any
    exemplar_labels: Attributes
    histograms: Any
    buckets: Any
    bounds: Any
    known: Known
    counts: Any


_POINTS, _SERIES, _LABELS, _EXEMPLARS, _EXEMPLAR_LABELS, _HISTOGRAMS, _POOL, _BEFORE, _SIZE = range(9)


def walk(data: Any, end: int, version: int, found: Counts) -> Walked:
    """The messages up to `end`; behind it stand CONSTANTS, then padding. `found` are their counts."""
    out = _room(version, found)
    _walk_frames(data, np.int64(end), version, out)
    histograms = out.histograms
    if len(histograms):
        read_histograms(data, version, histograms, out.buckets, out.bounds)
        for field in ("time", "start"):
            own = histograms[field] * NS_PER_MS
            out.points[field][histograms["row"]] = np.where(own != 0, own, out.points[field][histograms["row"]])
    return out


def constants() -> Any:
    return np.frombuffer("".join(CONSTANTS).encode(), np.uint8)


def _room(version: int, found: Counts) -> Walked:
    """Fresh zero pages cost nothing until they are touched, and repeated series do not touch theirs."""
    one, two = (found.series if version == number else 0 for number in (V1, V2))
    pool = np.zeros(3 * two + 2 * found.labels * version + PADDING, np.int32)
    known = Known(
        names_for(one),
        np.zeros(one, np.int32),
        names_for(found.families),
        np.zeros(found.families, np.int32),
        names_for(found.texts),
        np.zeros(found.texts, np.int32),
        names_for(two),
        pool,
        pool.view(np.uint8),
    )
    return Walked(
        np.zeros(found.rows + 1, POINT),
        np.zeros(found.series + found.families + 1, SERIES_ROW),
        attributes_for(found.labels),
        np.zeros(found.exemplars + 1, EXEMPLAR_ROW),
        attributes_for(found.exemplar_labels),
        np.zeros(found.histograms, HISTOGRAM_ROW),
        np.zeros(found.buckets, np.uint64),
        np.zeros(found.buckets, np.uint64),
        known,
        np.zeros(_SIZE, np.int64),
    )


@njit(cache=True)
def _walk_frames(data: Any, end: Any, version: Any, out: Walked) -> Any:
    at = np.int64(0)
    out.counts[_BEFORE] = -1
    while at < end:
        start, at = read_size(data, at)
        _walk_request(data, start, at, version, out)
    out.points[out.counts[_POINTS]].first = out.counts[_EXEMPLARS]
    out.series[out.counts[_SERIES]].first = out.counts[_LABELS]
    out.exemplars[out.counts[_EXEMPLARS]].first = out.counts[_EXEMPLAR_LABELS]


@njit(cache=True)
def _walk_request(data: Any, at: Any, end: Any, version: Any, out: Walked) -> Any:
    if version == V2:
        _number_symbols(data, at, end, out.known)
    while at < end:
        role, start, at = read_field(data, at, version, REQUEST)
        if role == TIMESERIES:
            _walk_series(data, start, at, version, out)
        elif role == FAMILIES:
            point = out.points[out.counts[_POINTS]]
            point.first, point.size, point.kind = out.counts[_EXEMPLARS], at - start, EMPTY
            point.series = _series_of_entry(data, start, at, out)
            out.counts[_POINTS] += 1


@njit(cache=True)
def _number_symbols(data: Any, at: Any, end: Any, known: Known) -> Any:
    count, before = 0, np.int64(-1)
    while at < end:
        role, start, at = read_field(data, at, V2, REQUEST)
        if role == SYMBOL:
            before = number_of(data, start, at - start, known.texts, before)
            known.symbols[count] = before
            count += 1


@njit(cache=True)
def _walk_series(data: Any, at: Any, end: Any, version: Any, out: Walked) -> Any:
    begin, first_point, first_exemplar = at, out.counts[_POINTS], out.counts[_EXEMPLARS]
    labels_at, labels_end, together, created = at, at, True, np.int64(0)
    while at < end:
        here = at
        role, start, at = read_field(data, at, version, SERIES)
        if role == LABELS:
            if labels_at == labels_end:
                labels_at = here
            elif here != labels_end:
                together = False
            labels_end = at
        elif role == SAMPLES:
            _walk_sample(data, start, at, version, out)
        elif role == HISTOGRAMS:
            _note_histogram(start, at, out)
        elif role == EXEMPLARS:
            _walk_exemplar(data, start, at, version, out)
        elif role == CREATED:
            created = _ns(data, start)
    if out.counts[_POINTS] == first_point:
        _add_empty(first_exemplar, out)
    if version == V2:
        series = _series_of_references(data, begin, end, out)
    elif together:
        series = _series_of_labels(data, labels_at, labels_end, out)
    else:
        series = _new_series(out)
        _read_labels(data, begin, end, series, out)
    count = out.counts[_POINTS] - first_point
    for row in range(first_point, out.counts[_POINTS]):
        point = out.points[row]
        point.series, point.first, point.size = series, first_exemplar, (end - begin) // count
        if point.start == 0:
            point.start = created


@njit(cache=True)
def _walk_sample(data: Any, at: Any, end: Any, version: Any, out: Walked) -> Any:
    point = out.points[out.counts[_POINTS]]
    out.counts[_POINTS] += 1
    point.kind = SAMPLED
    while at < end:
        role, start, at = read_field(data, at, version, SAMPLE)
        if role == NUMBER:
            point.value = load(data, start)
        elif role == TIME:
            point.time = _ns(data, start)
        elif role == START:
            point.start = _ns(data, start)


@njit(cache=True)
def _ns(data: Any, at: Any) -> Any:
    """A time in ms as ns."""
    return np.int64(read_varint(data, at)[0]) * NS_PER_MS


@njit(cache=True)
def _note_histogram(at: Any, end: Any, out: Walked) -> Any:
    """Its point, and where it stands; it is read later."""
    histogram = out.histograms[out.counts[_HISTOGRAMS]]
    out.counts[_HISTOGRAMS] += 1
    histogram.at, histogram.end, histogram.row = at, end, out.counts[_POINTS]
    out.points[out.counts[_POINTS]].kind = HISTOGRAMMED
    out.counts[_POINTS] += 1


@njit(cache=True)
def _add_empty(first_exemplar: Any, out: Walked) -> Any:
    """A point without a value, at the time of the series' last exemplar if there is one."""
    point = out.points[out.counts[_POINTS]]
    out.counts[_POINTS] += 1
    point.kind = EMPTY
    if out.counts[_EXEMPLARS] > first_exemplar:
        point.time = out.exemplars[out.counts[_EXEMPLARS] - 1].time


@njit(cache=True)
def _walk_exemplar(data: Any, at: Any, end: Any, version: Any, out: Walked) -> Any:
    exemplar = out.exemplars[out.counts[_EXEMPLARS]]
    out.counts[_EXEMPLARS] += 1
    count = out.counts[_EXEMPLAR_LABELS]
    exemplar.first = count
    half, key_at, key_size = False, np.int64(0), np.int64(0)
    while at < end:
        role, start, at = read_field(data, at, version, EXEMPLAR)
        if role == NUMBER:
            exemplar.value = load(data, start)
        elif role == TIME:
            exemplar.time = _ns(data, start)
        elif role == LABELS and version == V1:
            key_at, key_size, value_at, value_size = _read_label(data, start, at)
            _add_label(data, key_at, key_size, value_at, value_size, count, out.exemplar_labels)
            count += 1
        elif role == LABELS:
            while start < at:
                reference, start = read_varint(data, start)
                text = out.known.texts[out.known.symbols[np.int64(reference & np.uint64(0xFFFFFFFF))] + 1]
                if half:
                    _add_label(data, key_at, key_size, text.at, text.size, count, out.exemplar_labels)
                    count += 1
                key_at, key_size, half = np.int64(text.at), np.int64(text.size), not half
    out.counts[_EXEMPLAR_LABELS] = count


@njit(cache=True)
def _new_series(out: Walked) -> Any:
    series = out.counts[_SERIES]
    out.series[series].first = out.counts[_LABELS]
    out.counts[_SERIES] += 1
    return series


@njit(cache=True)
def _series_of_labels(data: Any, at: Any, end: Any, out: Walked) -> Any:
    """The series of these label bytes of 1.0."""
    known = out.known
    seen = known.labels[0].size
    number = number_of(data, at, end - at, known.labels, out.counts[_BEFORE])
    out.counts[_BEFORE] = number
    if number == seen:
        series = _new_series(out)
        known.series_of_labels[number] = series
        _read_labels(data, at, end, series, out)
    return np.int64(known.series_of_labels[number])


@njit(cache=True)
def _read_labels(data: Any, at: Any, end: Any, series: Any, out: Walked) -> Any:
    """The labels among these fields of a series of 1.0."""
    while at < end:
        role, start, at = read_field(data, at, V1, SERIES)
        if role == LABELS:
            key_at, key_size, value_at, value_size = _read_label(data, start, at)
            _take_label(data, key_at, key_size, value_at, value_size, series, out)


@njit(cache=True)
def _read_label(data: Any, at: Any, end: Any) -> Any:
    """(at, size) of a label's name and of its value."""
    key_at, key_end, value_at, value_end = at, at, at, at
    while at < end:
        role, start, at = read_field(data, at, V1, LABEL)
        if role == NAME:
            key_at, key_end = start, at
        elif role == LABEL_VALUE:
            value_at, value_end = start, at
    return key_at, key_end - key_at, value_at, value_end - value_at


@njit(cache=True)
def _series_of_references(data: Any, at: Any, end: Any, out: Walked) -> Any:
    """The series of a TimeSeries of 2.0."""
    known, start = out.known, out.counts[_POOL]
    pool, place = known.pool, start + 3
    # -1: no text. Symbols of the message are >= 0.
    pool[start], pool[start + 1], pool[start + 2] = 0, -1, -1
    while at < end:
        role, inner, at = read_field(data, at, V2, SERIES)
        if role == LABELS:
            while inner < at:
                reference, inner = read_varint(data, inner)
                pool[place] = known.symbols[np.int64(reference & np.uint64(0xFFFFFFFF))]
                place += 1
        elif role == OF_METRIC:
            _read_metadata(data, inner, at, known, start)
    seen = known.keys[0].size
    number = number_of(known.pool_bytes, 4 * start, 4 * (place - start), known.keys, out.counts[_BEFORE])
    out.counts[_BEFORE] = number
    if number == seen:
        # Every key makes a series, so that they have the same numbers.
        out.counts[_POOL] = place
        _read_key(data, start, place, _new_series(out), out)
    return number


@njit(cache=True)
def _read_metadata(data: Any, at: Any, end: Any, known: Known, start: Any) -> Any:
    """Metadata of 2.0 into the pool. Given twice, it is merged as protobuf does."""
    while at < end:
        role, inner, at = read_field(data, at, V2, METADATA)
        if role == TYPE:
            known.pool[start] = enumerated(data, inner)
        elif role == HELP or role == UNIT:
            reference = narrow(data, inner)
            known.pool[start + role - HELP + 1] = known.symbols[reference] if reference > 0 else -1


@njit(cache=True)
def _read_key(data: Any, start: Any, end: Any, series: Any, out: Walked) -> Any:
    known, row = out.known, out.series[series]
    pool, texts = known.pool, known.texts
    row.type = pool[start]
    # Row 0 of names is not a text; its size says how many there are.
    if pool[start + 1] >= 0:
        row.help_at, row.help_size = texts[pool[start + 1] + 1].at, texts[pool[start + 1] + 1].size
    if pool[start + 2] >= 0:
        row.unit_at, row.unit_size = texts[pool[start + 2] + 1].at, texts[pool[start + 2] + 1].size
    for place in range(start + 3, end, 2):
        key, value = texts[pool[place] + 1], texts[pool[place + 1] + 1]
        _take_label(data, np.int64(key.at), np.int64(key.size), np.int64(value.at), np.int64(value.size), series, out)


@njit(cache=True)
def _is(data: Any, at: Any, size: Any, constant: Any) -> Any:
    start = len(data) - PADDING - _STARTS[-1] + _STARTS[constant]
    if size != _STARTS[constant + 1] - _STARTS[constant]:
        return False
    for place in range(size):
        if data[at + place] != data[start + place]:
            return False
    return True


@njit(cache=True)
def _take_label(
    data: Any, key_at: Any, key_size: Any, value_at: Any, value_size: Any, series: Any, out: Walked
) -> Any:
    """A label of a series: the first name is the metric's, all others are attributes."""
    row = out.series[series]
    if row.name_at == 0 and _is(data, key_at, key_size, _NAME_KEY):
        # Never 0: a length stands before the first text.
        row.name_at, row.name_size = value_at, value_size
        return
    if row.job_at == 0 and _is(data, key_at, key_size, _JOB_KEY):
        row.job_at, row.job_size = value_at, value_size
    _add_label(data, key_at, key_size, value_at, value_size, out.counts[_LABELS], out.labels)
    out.counts[_LABELS] += 1


@njit(cache=True)
def _add_label(
    data: Any, key_at: Any, key_size: Any, value_at: Any, value_size: Any, place: Any, labels: Attributes
) -> Any:
    before = np.int64(labels.values[place - 1].key) if place > 0 else np.int64(-1)
    label = labels.values[place]
    label.key = number_of(data, np.int64(key_at), np.int64(key_size), labels.keys, before)
    label.kind, label.at, label.size = STRING, value_at, value_size


@njit(cache=True)
def _series_of_entry(data: Any, at: Any, end: Any, out: Walked) -> Any:
    """The series that a metadata entry of 1.0 makes: its type is an attribute."""
    known = out.known
    seen = known.entries[0].size
    number = number_of(data, at, end - at, known.entries, np.int64(-1))
    if number < seen:
        return np.int64(known.series_of_entries[number])
    series = _new_series(out)
    known.series_of_entries[number] = series
    row = out.series[series]
    row.type = ENTRY
    kind, type_at, type_end = np.int64(0), np.int64(0), np.int64(0)
    while at < end:
        role, start, at = read_field(data, at, V1, FAMILY)
        if role == TYPE:
            kind, type_at, type_end = enumerated(data, start), start, at
        elif role == METRIC:
            row.name_at, row.name_size = start, at - start
        elif role == HELP:
            row.help_at, row.help_size = start, at - start
        elif role == UNIT:
            row.unit_at, row.unit_size = start, at - start
    _add_type(data, kind, type_at, type_end, out)
    return series


@njit(cache=True)
def _add_type(data: Any, kind: Any, at: Any, end: Any, out: Walked) -> Any:
    """The attribute `type`: the type's name, or its number where we know no name."""
    base, place = len(data) - PADDING - _STARTS[-1], out.counts[_LABELS]
    key, label = base + _STARTS[_TYPE_KEY], out.labels.values[place]
    _add_label(data, key, _STARTS[_TYPE_KEY + 1] - _STARTS[_TYPE_KEY], at, end - at, place, out.labels)
    if 0 <= kind < len(TYPES):
        constant = _FIRST_TYPE + kind
        label.at, label.size = base + _STARTS[constant], _STARTS[constant + 1] - _STARTS[constant]
    else:
        label.kind = INT
    out.counts[_LABELS] += 1

