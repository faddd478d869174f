"""Columns of lists, and of the buckets of exponential histograms, as arrays.

Comes in: Arrow's arrays. Goes out: where the list of each row begins, how long it is, and all values together. What
always holds: no row is looked at one by one; arrays of Arrow's memory are read, never written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa


def values_of(array: pa.Array, kind: Any) -> Any:
    """As they stand in memory; where null anything."""
    if array.buffers()[1] is None:
        nothing = np.zeros(len(array), kind)
        nothing.flags.writeable = False  # as Arrow's are: so kernels are compiled once
        return nothing
    return np.frombuffer(array.buffers()[1], kind)[array.offset : array.offset + len(array)]


@dataclass(frozen=True, eq=False)
class Lists:
    """List r is `sizes[r]` of `values` from `begins[r]` on."""

    begins: Any
    sizes: Any
    values: Any

    def __getitem__(self, row: int) -> Any:
        begin = int(self.begins[row])
        return self.values[begin : begin + int(self.sizes[row])]


def lists(array: pa.Array | None, rows: int, kind: Any) -> Lists:
    """Null is an empty one."""
    if array is None:
        return Lists(np.zeros(rows, np.int64), np.zeros(rows, np.int64), np.zeros(0, kind))
    ends = _offsets(array)
    sizes = np.diff(ends).astype(np.int64)
    if array.null_count:
        sizes[~array.is_valid().to_numpy(zero_copy_only=False)] = 0
    inner = array.values
    return Lists(ends[:-1].astype(np.int64), sizes, values_of(inner, kind))


def _offsets(array: pa.Array) -> Any:
    return np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]


@dataclass(frozen=True, eq=False)
class Buckets:
    """One side of exponential histograms: `offset` is the index of the first of the counts."""

    valid: Any
    offset: Any
    counts: Lists


def buckets(array: pa.Array | None, rows: int) -> Buckets:
    if array is None:
        return Buckets(np.zeros(rows, np.bool_), np.zeros(rows, np.int32), lists(None, rows, np.uint64))
    there = array.is_valid().to_numpy(zero_copy_only=False)
    found = lists(array.field("counts"), rows, np.uint64)
    found.sizes[~there] = 0
    return Buckets(there, values_of(array.field("offset"), np.int32), found)
