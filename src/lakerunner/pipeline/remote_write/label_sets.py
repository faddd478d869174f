"""The series of remote-write: their labels and metadata into flat arrays, equal ones as one series.

The metric's name is the first label `__name__`, the service the first `job`; all labels but that name are attributes.

In 2.0 a series refers to the symbols of its message. Each symbol gets the same number in all messages; the numbers of a
series' type, help, unit and labels are its key, and equal keys are one series.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lakerunner.kernel_cache import njit
from lakerunner.pipeline.read.memory import PADDING, same, slice_fields
from lakerunner.pipeline.read.names import number_of
from lakerunner.pipeline.read.walk import INT, STRING
from lakerunner.pipeline.read.wire import read_varint
from lakerunner.pipeline.remote_write.fields import (
    FAMILY,
    HELP,
    LABELS,
    METADATA,
    METRIC,
    OF_METRIC,
    REQUEST,
    SERIES,
    SYMBOL,
    TYPE,
    UNIT,
    V1,
    V2,
    read_field,
    read_int32,
    read_uint32,
)

# Texts that are appended to the input, before the padding, so that they can be (at, size) like any other: label names
# to find, names to add, and names of types.
TYPES = ("unknown", "counter", "gauge", "histogram", "gaugehistogram", "summary", "info", "stateset")
_CONSTANTS = ("__name__", "job", "type", "prometheus.type", *TYPES)
_STARTS = np.cumsum([0, *(len(text) for text in _CONSTANTS)])
_NAME_KEY, _JOB_KEY, _TYPE_KEY, ORIGIN_KEY, FIRST_TYPE = range(5)
# The type of a series that comes from a metadata entry of 1.0. It is outside int32, so no sender can state it.
ENTRY = 1 << 40

SERIES_ROW = np.dtype(
    [
        ("first", np.int32),  # its first label; they end at the next series' first
        *slice_fields("name", "job", "unit", "help"),
        ("type", np.int64),
    ]
)


def constants() -> Any:
    """Return the bytes to append to the input."""
    return np.frombuffer("".join(_CONSTANTS).encode(), np.uint8)


def constant_slices(data: Any) -> tuple[Any, Any]:
    """Return (at, size) of each constant."""
    return len(data) - PADDING - _STARTS[-1] + _STARTS[:-1], np.diff(_STARTS)


@njit(cache=True)
def _equals_constant(data: Any, at: Any, size: Any, constant: Any) -> Any:
    start = len(data) - PADDING - _STARTS[-1] + _STARTS[constant]
    return size == _STARTS[constant + 1] - _STARTS[constant] and same(data, at, start, size)


@njit(cache=True)
def take_label(data: Any, label: Any, number: Any, series: Any, labels: Any) -> Any:
    """Add a label, (at, size) of its name and of its value, to the newest series, which has this number. The `first` of
    the next series serves as its count of labels."""
    key_at, key_size, value_at, value_size = label
    row = series[number]
    # No text is at 0, where the length of the first message is: 0 means that there is none yet.
    if row.name_at == 0 and _equals_constant(data, key_at, key_size, _NAME_KEY):
        row.name_at, row.name_size = value_at, value_size
        return
    if row.job_at == 0 and _equals_constant(data, key_at, key_size, _JOB_KEY):
        row.job_at, row.job_size = value_at, value_size
    add_label(data, label, np.int64(series[number + 1].first), labels)
    series[number + 1].first += 1


@njit(cache=True)
def add_label(data: Any, label: Any, place: Any, labels: Any) -> Any:
    """Write a label as the attribute at this place."""
    key_at, key_size, value_at, value_size = label
    before = np.int64(labels.values[place - 1].key) if place > 0 else np.int64(-1)
    row = labels.values[place]
    row.key = number_of(data, np.int64(key_at), np.int64(key_size), labels.keys, before)
    row.kind, row.at, row.size = STRING, value_at, value_size


@njit(cache=True)
def read_families(data: Any, notes: Any, series_of_point: Any, names: Any, series: Any, labels: Any, count: Any) -> Any:
    """Add a series, from number `count` on, for each different metadata entry of 1.0; return the number of series."""
    series_of = np.zeros(len(notes), np.int32)
    seen = 0
    for place in range(len(notes)):
        at, end = np.int64(notes[place].at), np.int64(notes[place].end)
        number = number_of(data, at, end - at, names, np.int64(-1))
        if number == seen:
            series_of[number] = count
            _read_family(data, at, end, count, series, labels)
            count += 1
            seen += 1
        series_of_point[notes[place].row] = series_of[number]
    return count


@njit(cache=True)
def _read_family(data: Any, at: Any, end: Any, number: Any, series: Any, labels: Any) -> Any:
    row = series[number]
    row.type = ENTRY
    kind, type_at, type_end = np.int64(0), at, at
    while at < end:
        role, start, at = read_field(data, at, V1, FAMILY)
        if role == TYPE:
            kind, type_at, type_end = read_int32(data, start), start, at
        elif role == METRIC:
            row.name_at, row.name_size = start, at - start
        elif role == HELP:
            row.help_at, row.help_size = start, at - start
        elif role == UNIT:
            row.unit_at, row.unit_size = start, at - start
    # Its type is an attribute: the name, or the number if that has no name.
    base, place = len(data) - PADDING - _STARTS[-1], np.int64(row.first)
    known = 0 <= kind < len(TYPES)
    if known:
        type_at = base + _STARTS[FIRST_TYPE + kind]
        type_end = base + _STARTS[FIRST_TYPE + kind + 1]
    key_at, key_size = base + _STARTS[_TYPE_KEY], _STARTS[_TYPE_KEY + 1] - _STARTS[_TYPE_KEY]
    add_label(data, (key_at, key_size, type_at, type_end - type_at), place, labels)
    if not known:
        labels.values[place].kind = INT
    series[number + 1].first = place + 1


# ---- series of 2.0

_HEAD = 3  # type, help and unit; -1 for no text


@njit(cache=True)
def number_symbols(data: Any, frames: Any, texts: Any, numbers: Any) -> Any:
    """Number the symbols of these messages, one message after the other; `texts` are names (read/names.py)."""
    count, before = 0, np.int64(-1)
    for frame in range(len(frames)):
        at, end = np.int64(frames[frame].at), np.int64(frames[frame].end)
        frames[frame].symbol = count
        while at < end:
            role, start, at = read_field(data, at, V2, REQUEST)
            if role == SYMBOL:
                before = number_of(data, start, at - start, texts, before)
                numbers[count] = before
                count += 1


@njit(cache=True)
def intern_symbol_series(data: Any, shots: Any, frames: Any, symbols: Any, pools: Any, series: Any, labels: Any) -> Any:
    """Set the series of each TimeSeries; return the number of series. `pools` are room for keys, the same memory as
    bytes, and names of these keys."""
    pool, pool_bytes, keys = pools
    start, count, before = 0, 0, np.int64(-1)
    for place in range(len(shots)):
        shot = shots[place]
        own = symbols.numbers[frames[shot.frame].symbol :]
        end = _read_run(data, np.int64(shot.at), np.int64(shot.end), own, pool, start)
        before = number_of(pool_bytes, np.int64(4 * start), np.int64(4 * (end - start)), keys, before)
        if before == count:  # a new number: keep the key, whose place would otherwise be reused
            _read_series(data, symbols.texts, pool[start:end], count, series, labels)
            start = end
            count += 1
        shot.series = before
    return count


@njit(cache=True)
def _read_run(data: Any, at: Any, end: Any, symbols: Any, pool: Any, start: Any) -> Any:
    """Write the key of a TimeSeries into the pool from `start` on; return where it ends."""
    place = start + _HEAD
    pool[start], pool[start + 1], pool[start + 2] = 0, -1, -1
    while at < end:
        role, inner, at = read_field(data, at, V2, SERIES)
        if role == LABELS:
            while inner < at:
                reference, inner = read_varint(data, inner)
                pool[place] = symbols[np.int64(reference & np.uint64(0xFFFFFFFF))]
                place += 1
        elif role == OF_METRIC:
            # Metadata that occurs twice is merged, as protobuf does.
            while inner < at:
                part, here, inner = read_field(data, inner, V2, METADATA)
                if part == TYPE:
                    pool[start] = read_int32(data, here)
                elif part in (HELP, UNIT):
                    reference = np.uint64(read_uint32(data, here))
                    pool[start + part - HELP + 1] = symbols[np.int64(reference)] if reference > 0 else -1
    return place


@njit(cache=True)
def _read_series(data: Any, texts: Any, run: Any, number: Any, series: Any, labels: Any) -> Any:
    row = series[number]
    series[number + 1].first = row.first
    row.type = run[0]
    if run[1] >= 0:
        row.help_at, row.help_size = texts[run[1] + 1].at, texts[run[1] + 1].size
    if run[2] >= 0:
        row.unit_at, row.unit_size = texts[run[2] + 1].at, texts[run[2] + 1].size
    for place in range(_HEAD, len(run), 2):
        key, value = texts[run[place] + 1], texts[run[place + 1] + 1]
        label = (np.int64(key.at), np.int64(key.size), np.int64(value.at), np.int64(value.size))
        take_label(data, label, number, series, labels)
