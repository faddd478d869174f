"""Series of remote-write 2.0: references into the symbols of their message to series that all messages share.

A symbol gets the same number in all messages. A series is the run of numbers of its type, help, unit and labels; equal
runs are one series.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from lakerunner.pipeline.read.names import number_of
from lakerunner.pipeline.read.remote_write_fields import (
    HELP,
    LABELS,
    METADATA,
    OF_METRIC,
    REQUEST,
    SERIES,
    SYMBOL,
    TYPE,
    UNIT,
    V2,
    enumerated,
    narrow,
    read_field,
)
from lakerunner.pipeline.read.remote_write_texts import take_label
from lakerunner.pipeline.read.wire import read_varint

_HEAD = 3  # type, help and unit; -1: no text


@njit(cache=True)
def number_symbols(data: Any, frames: Any, texts: Any, numbers: Any) -> Any:
    """The number of each symbol of these messages, one message's after the other's; `texts` are names."""
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
def series_of_symbols(data: Any, shots: Any, frames: Any, symbols: Any, pools: Any, series: Any, labels: Any) -> Any:
    """The series of each TimeSeries; how many there are. `pools`: room for the runs, the same as bytes, and names."""
    pool, pool_bytes, keys = pools
    start, count, before = 0, 0, np.int64(-1)
    for place in range(len(shots)):
        shot = shots[place]
        own = symbols.numbers[frames[shot.frame].symbol :]
        end = _read_run(data, np.int64(shot.at), np.int64(shot.end), own, pool, start)
        before = number_of(pool_bytes, np.int64(4 * start), np.int64(4 * (end - start)), keys, before)
        if before == count:
            _read_series(data, symbols.texts, pool[start:end], count, series, labels)
            start = end
            count += 1
        shot.series = before
    return count


@njit(cache=True)
def _read_run(data: Any, at: Any, end: Any, symbols: Any, pool: Any, start: Any) -> Any:
    """A TimeSeries as a run of numbers in the pool from `start` on; where it ends."""
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
            # Given twice, it is merged as protobuf does.
            while inner < at:
                part, here, inner = read_field(data, inner, V2, METADATA)
                if part == TYPE:
                    pool[start] = enumerated(data, here)
                elif part in (HELP, UNIT):
                    reference = np.uint64(narrow(data, here))
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
