"""Bound what points of a remote-write request share with the others of their series (read/shared.py), from the wire.

Comes in: one message that passed the check. A label counts twice, as an attribute and as the name or service that may
be made of it; equal series of several messages are one, which shares no more than each of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from lakerunner.pipeline.read.remote_write_fields import (
    FAMILIES,
    HELP,
    LABELS,
    METADATA,
    OF_METRIC,
    REQUEST,
    SERIES,
    SYMBOL,
    TIMESERIES,
    UNIT,
    V1,
    V2,
    narrow,
    read_field,
)
from lakerunner.pipeline.read.shared import ENTRY_BYTES
from lakerunner.pipeline.read.wire import read_varint

# What is added to a series: the attributes `type` and `prometheus.type` with their values.
_ADDED_BYTES = 2 * (ENTRY_BYTES + len("prometheus.type") + len("gaugehistogram"))


def most_shared_in_series(message: bytes, version: int, symbols: int) -> int:
    """Return at least as many bytes as any point of this message shares. It has this many symbols."""
    return int(_most_shared(np.frombuffer(message, np.uint8), version, np.zeros(symbols, np.int64)))


@njit(cache=True)
def _most_shared(data: Any, version: Any, sizes: Any) -> Any:
    most, at, end = np.int64(0), np.int64(0), np.int64(len(data))
    if version == V2:
        _measure_symbols(data, sizes)
    while at < end:
        role, start, at = read_field(data, at, version, REQUEST)
        if role == TIMESERIES:
            most = max(most, _shared_by_series(data, start, at, version, sizes))
        elif role == FAMILIES:
            most = max(most, 2 * (at - start))
    return most + _ADDED_BYTES


@njit(cache=True)
def _measure_symbols(data: Any, sizes: Any) -> Any:
    """Set the size of each symbol; they may stand behind the series that refer to them."""
    at, count = np.int64(0), 0
    while at < len(data):
        role, start, at = read_field(data, at, V2, REQUEST)
        if role == SYMBOL:
            sizes[count] = at - start
            count += 1


@njit(cache=True)
def _shared_by_series(data: Any, at: Any, end: Any, version: Any, sizes: Any) -> Any:
    shared = np.int64(0)
    while at < end:
        role, start, at = read_field(data, at, version, SERIES)
        if role == LABELS and version == V1:
            shared += 2 * (at - start) + ENTRY_BYTES
        elif role == LABELS:
            while start < at:
                reference, start = read_varint(data, start)
                shared += 2 * sizes[np.int64(reference & np.uint64(0xFFFFFFFF))] + ENTRY_BYTES
        elif role == OF_METRIC:
            while start < at:
                part, here, start = read_field(data, start, V2, METADATA)
                if part in (HELP, UNIT) and narrow(data, here) > 0:
                    shared += sizes[narrow(data, here)]
    return shared
