"""What remote-write says about series: labels, and the metadata entries of 1.0, into flat arrays.

The metric's name is the first label `__name__`, the service the first `job`; all labels but that name are attributes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from lakerunner.pipeline.read.memory import PADDING, same
from lakerunner.pipeline.read.names import number_of
from lakerunner.pipeline.read.remote_write_fields import FAMILY, HELP, METRIC, TYPE, UNIT, V1, enumerated, read_field
from lakerunner.pipeline.read.walk import INT, STRING

# Texts that stand behind the input, before the padding: the label names we look for, those we add, the types' names.
TYPES = ("unknown", "counter", "gauge", "histogram", "gaugehistogram", "summary", "info", "stateset")
_CONSTANTS = ("__name__", "job", "type", "prometheus.type", *TYPES)
_STARTS = np.cumsum([0, *(len(text) for text in _CONSTANTS)])
_NAME_KEY, _JOB_KEY, _TYPE_KEY, ORIGIN_KEY, FIRST_TYPE = range(5)
# The type of the series that a metadata entry of 1.0 makes; no int32.
ENTRY = 1 << 40

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
        ("type", np.int64),
    ]
)


def constants() -> Any:
    return np.frombuffer("".join(_CONSTANTS).encode(), np.uint8)


def constant_slices(data: Any) -> tuple[Any, Any]:
    """(at, size) of each constant."""
    return len(data) - PADDING - _STARTS[-1] + _STARTS[:-1], np.diff(_STARTS)


@njit(cache=True)
def _is(data: Any, at: Any, size: Any, constant: Any) -> Any:
    start = len(data) - PADDING - _STARTS[-1] + _STARTS[constant]
    return size == _STARTS[constant + 1] - _STARTS[constant] and same(data, at, start, size)


@njit(cache=True)
def take_label(data: Any, label: Any, number: Any, series: Any, labels: Any) -> Any:
    """One more label, (at, size) of its name and of its value, of the newest series: this number. The first of the next
    series counts them."""
    key_at, key_size, value_at, value_size = label
    row = series[number]
    # A text never stands at 0: the length of its message does.
    if row.name_at == 0 and _is(data, key_at, key_size, _NAME_KEY):
        row.name_at, row.name_size = value_at, value_size
        return
    if row.job_at == 0 and _is(data, key_at, key_size, _JOB_KEY):
        row.job_at, row.job_size = value_at, value_size
    add_label(data, label, np.int64(series[number + 1].first), labels)
    series[number + 1].first += 1


@njit(cache=True)
def add_label(data: Any, label: Any, place: Any, labels: Any) -> Any:
    key_at, key_size, value_at, value_size = label
    before = np.int64(labels.values[place - 1].key) if place > 0 else np.int64(-1)
    row = labels.values[place]
    row.key = number_of(data, np.int64(key_at), np.int64(key_size), labels.keys, before)
    row.kind, row.at, row.size = STRING, value_at, value_size


@njit(cache=True)
def read_families(data: Any, notes: Any, series_of_point: Any, names: Any, series: Any, labels: Any, count: Any) -> Any:
    """The series that metadata entries of 1.0 make, equal ones the same, from number `count` on; how many series there
    are now."""
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
            kind, type_at, type_end = enumerated(data, start), start, at
        elif role == METRIC:
            row.name_at, row.name_size = start, at - start
        elif role == HELP:
            row.help_at, row.help_size = start, at - start
        elif role == UNIT:
            row.unit_at, row.unit_size = start, at - start
    # Its type is an attribute: the name, or the number where we know no name.
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
