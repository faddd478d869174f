"""Checked remote-write messages into flat arrays: points, series, exemplars, histograms.

Comes in: the bytes of framed messages that passed the check. Goes out: one point per sample, histogram and metadata
entry, and one point without a value for a series that has neither sample nor histogram, so that its labels and
exemplars are kept. Nothing is copied: texts are (at, size) into the data.

The first pass reads the samples and notes the places of everything else; the other passes visit only these places. A
series that occurred before costs one comparison: in 1.0 the bytes of its labels are looked up as they are, in 2.0 the
numbers of its symbols, which are the same in all messages. The series that followed last time is tried first, because
senders repeat their series in the same order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from lakerunner.kernel_cache import njit
from lakerunner.model.time import MS_NS
from lakerunner.pipeline.read.memory import PADDING, load
from lakerunner.pipeline.read.names import names_for, number_of
from lakerunner.pipeline.read.walk import Attributes, attributes_for
from lakerunner.pipeline.read.wire import read_size, read_varint
from lakerunner.pipeline.remote_write.fields import (
    CREATED,
    EXEMPLAR,
    EXEMPLARS,
    FAMILIES,
    FAMILY,
    HISTOGRAM,
    HISTOGRAMS,
    LABEL,
    LABELS,
    NAME,
    NUMBER,
    PLAIN_TIME,
    REQUEST,
    SAMPLE,
    SAMPLES,
    SERIES,
    START,
    TIME,
    TIMESERIES,
    V1,
    V2,
    read_field,
    starts_plain,
)
from lakerunner.pipeline.remote_write.fields import VALUE as LABEL_VALUE
from lakerunner.pipeline.remote_write.label_sets import (
    SERIES_ROW,
    add_label,
    intern_symbol_series,
    number_symbols,
    read_families,
    take_label,
)
from lakerunner.pipeline.remote_write.message_check import MessageCounts
from lakerunner.pipeline.remote_write.native_histograms import HISTOGRAM_ROW, read_histograms

EMPTY, SAMPLED, HISTOGRAMMED = range(3)  # what a point holds

POINT = np.dtype(
    [
        ("time", np.int64),  # ns, also start
        ("start", np.int64),
        ("value", np.uint64),  # the bits of a double
        ("series", np.int32),
        ("first", np.int32),  # its first exemplar; they end at the next point's first
        ("size", np.int32),  # its share of the TimeSeries, in bytes
        ("kind", np.int32),
    ]
)
# One occurrence of a series, a TimeSeries message: its place, the place of its labels if they are `together`, its first
# point and the number of its points, its frame, and the number of its series.
OCCURRENCE = np.dtype(
    [
        ("at", np.int32),
        ("end", np.int32),
        ("labels_at", np.int32),
        ("labels_end", np.int32),
        ("together", np.int32),
        ("point", np.int32),
        ("points", np.int32),
        ("frame", np.int32),
        ("series", np.int32),
    ]
)
# The place of an exemplar, histogram or metadata entry; `row` is its point.
NOTE = np.dtype([("message", np.int32), ("at", np.int32), ("end", np.int32), ("row", np.int32), ("frame", np.int32)])
EXEMPLAR_ROW = np.dtype([("time", np.int64), ("value", np.uint64), ("first", np.int32)])
FRAME = np.dtype([("at", np.int32), ("end", np.int32), ("symbol", np.int32)])


class MessageArrays(NamedTuple):
    """All messages. `points`, `series` and `exemplars` have one more row at the end that closes the lists of the last
    one. `buckets` and `bounds` belong to `histograms`, in their order."""

    points: Any
    series: Any
    labels: Attributes
    exemplars: Any
    exemplar_labels: Attributes
    histograms: Any
    buckets: Any
    bounds: Any


class _Symbols(NamedTuple):
    """The number of each symbol, which has its text in `texts`; those of a frame begin at the frame's `symbol`."""

    texts: Any
    numbers: Any


def walk(data: Any, end: int, version: int, found: MessageCounts) -> MessageArrays:
    """Read the messages up to `end`, behind which are the constants of label_sets.py. `found` are their counts."""
    # Fresh zero pages cost nothing until they are touched, and repeated series do not touch theirs.
    points = np.zeros(found.rows + 1, POINT)
    occurrences = np.zeros(found.series, OCCURRENCE)
    notes = np.zeros(found.exemplars + found.histograms + found.families, NOTE)
    frames = np.zeros(found.frames, FRAME)
    _note_places(data, np.int64(end), version, (points, occurrences, notes, frames))
    series = np.zeros(found.series + found.families + 1, SERIES_ROW)
    labels = attributes_for(found.labels)
    symbols = _Symbols(names_for(found.texts), np.zeros(found.texts, np.int32))
    if version == V2:
        number_symbols(data, frames, symbols.texts, symbols.numbers)
        pool = np.zeros(3 * found.series + 2 * found.labels + PADDING, np.int32)
        pools = pool, pool.view(np.uint8), names_for(found.series)
        count = intern_symbol_series(data, occurrences, frames, symbols, pools, series, labels)
    else:
        count = _intern_label_series(data, occurrences, names_for(found.series), series, labels)
    _assign_series(occurrences, points)
    families = notes[notes["message"] == FAMILY]
    if len(families):
        count = read_families(data, families, points["series"], names_for(len(families)), series, labels, count)
    walked = MessageArrays(
        points,
        series[: count + 1],
        labels,
        np.zeros(found.exemplars + 1, EXEMPLAR_ROW),
        attributes_for(found.exemplar_labels),
        np.zeros(found.histograms, HISTOGRAM_ROW),
        np.zeros(found.buckets, np.uint64),
        np.zeros(found.buckets, np.uint64),
    )
    _walk_rare(data, version, walked, notes, (frames, symbols))
    return walked


def _walk_rare(data: Any, version: int, walked: MessageArrays, notes: Any, texts: tuple[Any, _Symbols]) -> None:
    """Read what few messages have: exemplars and histograms."""
    points, exemplars, histograms = walked.points, walked.exemplars, walked.histograms
    if len(exemplars) > 1:
        chosen = notes[notes["message"] == EXEMPLAR]
        _read_exemplars(data, chosen, version, *texts, exemplars, walked.exemplar_labels)
        # A point without a value has the time of its last exemplar.
        alone = (points["kind"][:-1] == EMPTY) & (np.diff(points["first"]) > 0)
        last = points["first"][1:][alone] - 1
        points["time"][:-1][alone] = exemplars["time"][last]
    if len(histograms):
        chosen = notes[notes["message"] == HISTOGRAM]
        for field in ("at", "end", "row"):
            histograms[field] = chosen[field]
        read_histograms(data, version, histograms, walked.buckets, walked.bounds)
        for field in ("time", "start"):
            own = histograms[field] * MS_NS
            points[field][chosen["row"]] = np.where(own != 0, own, points[field][chosen["row"]])


@njit(cache=True)
def _ns(data: Any, at: Any) -> Any:
    """Return a time in ms as ns."""
    return np.int64(read_varint(data, at)[0]) * MS_NS


@njit(cache=True)
def _note_places(data: Any, end: Any, version: Any, out: Any) -> Any:
    """Read the samples, and note the places of everything else."""
    points, _, notes, frames = out
    at, frame = np.int64(0), 0
    point, occurrence, note, exemplar = np.int64(0), 0, 0, 0
    while at < end:
        inner, at = read_size(data, at)
        frames[frame].at, frames[frame].end = inner, at
        while inner < at:
            role, start, inner = read_field(data, inner, version, REQUEST)
            if role == TIMESERIES:
                point, note, exemplar = _note_series(
                    data, start, inner, version, (point, occurrence, note, exemplar, frame), out
                )
                occurrence += 1
            elif role == FAMILIES:
                notes[note].message, notes[note].at, notes[note].end, notes[note].row = FAMILY, start, inner, point
                points[point].first, points[point].size, points[point].kind = exemplar, inner - start, EMPTY
                note += 1
                point += 1
        frame += 1
    points[point].first = exemplar


@njit(cache=True)
def _note_series(data: Any, at: Any, end: Any, version: Any, counts: Any, out: Any) -> Any:
    """Note a TimeSeries; return the numbers of points, notes and exemplars so far."""
    points, occurrences, notes, _ = out
    point, number, note, exemplar, frame = counts
    occurrence, begin, before, first = occurrences[number], at, exemplar, point
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
            row = points[point]
            row.value, row.time, row.start = _read_sample(data, start, at, version)
            row.kind = SAMPLED
            point += 1
        elif role == CREATED:
            created = _ns(data, start)
        elif role in (HISTOGRAMS, EXEMPLARS):
            notes[note].at, notes[note].end, notes[note].row, notes[note].frame = start, at, point, frame
            notes[note].message = HISTOGRAM if role == HISTOGRAMS else EXEMPLAR
            note += 1
            if role == HISTOGRAMS:
                points[point].kind = HISTOGRAMMED
                point += 1
            else:
                exemplar += 1
    if point == first:  # neither sample nor histogram
        points[point].kind = EMPTY
        point += 1
    for place in range(first, point):
        row = points[place]
        row.first, row.size = before, (end - begin) // (point - first)
        if row.start == 0:  # a start of its own wins over that of the series
            row.start = created
    occurrence.at, occurrence.end, occurrence.labels_at, occurrence.labels_end, occurrence.together = (
        begin,
        end,
        labels_at,
        labels_end,
        together,
    )
    occurrence.point, occurrence.points, occurrence.frame = first, point - first, frame
    return point, note, exemplar


@njit(cache=True)
def _read_sample(data: Any, at: Any, end: Any, version: Any) -> Any:
    """Return (bits of the value, time, start) of a Sample."""
    if starts_plain(data, at, end):
        number, stop = read_varint(data, at + PLAIN_TIME)
        if stop == end:
            return load(data, at + 1), np.int64(number) * MS_NS, np.int64(0)
    bits, time, began = np.uint64(0), np.int64(0), np.int64(0)
    while at < end:
        role, start, at = read_field(data, at, version, SAMPLE)
        if role == NUMBER:
            bits = load(data, start)
        elif role == TIME:
            time = _ns(data, start)
        elif role == START:
            began = _ns(data, start)
    return bits, time, began


@njit(cache=True)
def _assign_series(occurrences: Any, points: Any) -> Any:
    """Set the series of each point."""
    for number in range(len(occurrences)):
        occurrence = occurrences[number]
        for place in range(occurrence.point, occurrence.point + occurrence.points):
            points[place].series = occurrence.series


@njit(cache=True)
def _intern_label_series(data: Any, occurrences: Any, names: Any, series: Any, labels: Any) -> Any:
    """Set the series of each TimeSeries of 1.0; return the number of series. Labels that are not together are not
    compared: each such TimeSeries is a series of its own, and identify_series joins equal ones later."""
    series_of = np.zeros(len(occurrences), np.int32)
    count, before, seen = 0, np.int64(-1), 0
    for place in range(len(occurrences)):
        occurrence = occurrences[place]
        at, end = np.int64(occurrence.labels_at), np.int64(occurrence.labels_end)
        if occurrence.together:
            before = number_of(data, at, end - at, names, before)
            if before < seen:
                occurrence.series = series_of[before]
                continue
            series_of[before] = count
            seen += 1
        else:
            at, end = np.int64(occurrence.at), np.int64(occurrence.end)
        occurrence.series = count
        _read_labels(data, at, end, count, series, labels)
        count += 1
    return count


@njit(cache=True)
def _read_labels(data: Any, at: Any, end: Any, number: Any, series: Any, labels: Any) -> Any:
    """Add a new series with the labels among these fields of a TimeSeries of 1.0."""
    series[number + 1].first = series[number].first
    while at < end:
        role, start, at = read_field(data, at, V1, SERIES)
        if role == LABELS:
            key_at, key_size, value_at, value_size = _read_label(data, start, at)
            take_label(data, (key_at, key_size, value_at, value_size), number, series, labels)


@njit(cache=True)
def _read_label(data: Any, at: Any, end: Any) -> Any:
    """Return (at, size) of a label's name and of its value."""
    key_at, key_end, value_at, value_end = at, at, at, at
    while at < end:
        role, start, at = read_field(data, at, V1, LABEL)
        if role == NAME:
            key_at, key_end = start, at
        elif role == LABEL_VALUE:
            value_at, value_end = start, at
    return key_at, key_end - key_at, value_at, value_end - value_at


@njit(cache=True)
def _read_exemplars(data: Any, notes: Any, version: Any, frames: Any, symbols: Any, exemplars: Any, labels: Any) -> Any:
    count = np.int64(0)
    for number in range(len(notes)):
        at, end = np.int64(notes[number].at), np.int64(notes[number].end)
        exemplar = exemplars[number]
        exemplar.first = count
        half, key_at, key_size = False, np.int64(0), np.int64(0)
        while at < end:
            role, start, at = read_field(data, at, version, EXEMPLAR)
            if role == NUMBER:
                exemplar.value = load(data, start)
            elif role == TIME:
                exemplar.time = _ns(data, start)
            elif role == LABELS and version == V1:
                add_label(data, _read_label(data, start, at), count, labels)
                count += 1
            elif role == LABELS:
                first = frames[notes[number].frame].symbol
                while start < at:
                    reference, start = read_varint(data, start)
                    symbol = symbols.numbers[first + np.int64(reference & np.uint64(0xFFFFFFFF))]
                    text_at, text_size = (
                        np.int64(symbols.texts[symbol + 1].at),
                        np.int64(symbols.texts[symbol + 1].size),
                    )
                    if half:  # references come in pairs: a name, then its value
                        add_label(data, (key_at, key_size, text_at, text_size), count, labels)
                        count += 1
                    key_at, key_size, half = text_at, text_size, not half
    exemplars[len(notes)].first = count
