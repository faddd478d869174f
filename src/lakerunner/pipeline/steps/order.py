"""Split rows into segments, and sort them.

A segment holds the rows of one UTC hour, sorted by the signal's `sort_by`; rows that are equal in it stay in input
order. If more than MAX_HOURS different hours come at once (a replay of old files), neighbours share a segment. Its row
groups are runs of these rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.kernel_cache import njit
from lakerunner.model.signal import SignalSpec
from lakerunner.model.time import HOUR_NS
from lakerunner.pipeline.read.memory import load, tail
from lakerunner.pipeline.read.names import names_for, number_all, slices_of_names
from lakerunner.pipeline.read.rows import CodedColumn, NumberColumn, Rows, TextColumn
from lakerunner.pipeline.read.walk import BYTES
from lakerunner.pipeline.steps.take import Slices, slices_array

MAX_HOURS = 48
ROW_GROUP_BYTES = 32 << 20  # of input; reached only where rows are large


def split_and_sort(rows: Rows, spec: SignalSpec) -> list[Any]:
    """Return the row numbers of each segment in their order; the segments in the order of time."""
    hours = rows.column("timestamp", NumberColumn).values // HOUR_NS
    distinct, group = np.unique(hours, return_inverse=True)
    if len(distinct) > MAX_HOURS:
        group = np.minimum(np.arange(len(distinct)) * MAX_HOURS // len(distinct), MAX_HOURS - 1)[group]
    keys = [_narrow(group), *(_sort_key(rows, name) for name in spec.sort_by)]
    order = np.argsort(keys[-1], kind="stable")
    for key in reversed(keys[:-1]):
        order = order[np.argsort(key[order], kind="stable")]
    return np.split(order.astype(np.int32), np.flatnonzero(np.diff(group[order])) + 1)


def row_groups(order: Any, sizes: Any, most: int) -> list[Any]:
    """Return the row numbers of each row group of a segment, `most` at a time; `sizes` are the rows' bytes of input."""
    ends = np.cumsum(sizes, dtype=np.int64)
    groups, start = [], 0
    while start < len(order):
        before = ends[start] - sizes[start]
        fit = int(np.searchsorted(ends, before + ROW_GROUP_BYTES, "right"))
        stop = min(start + most, max(fit, start + 1))
        groups.append(order[start:stop])
        start = stop
    return groups


def _sort_key(rows: Rows, name: str) -> Any:
    """Return numbers that order the rows as this column does; texts by their bytes."""
    column = rows.columns[name]
    match column:
        case NumberColumn(values, None, None):
            return values
        case CodedColumn(codes, values, owner):
            rank = np.empty(len(values), np.int64)
            rank[pc.sort_indices(values).to_numpy()] = np.arange(len(values))
            by_code = rank[codes]
            return _narrow(by_code if owner is None else by_code[owner])
        case TextColumn(_, at, size, False):
            names = names_for(len(at))
            codes = number_all(rows.data, at, size, names)
            return _narrow(_rank(rows.data, *slices_of_names(names))[codes])
        case _:
            raise TypeError(f"cannot sort by {name}: it is {type(column).__name__}")


def _rank(data: Any, at: Any, size: Any) -> Any:
    """Return the rank of each of these texts, which are all different, in the order of their bytes."""
    order: Any
    if size.max(initial=0) > 16:
        order = pc.sort_indices(slices_array(Slices(BYTES, at, size), data, pa.binary())).to_numpy()
    else:
        high, low = _words(data, at, size).byteswap()
        order = np.argsort(high)
        if (high[order[1:]] == high[order[:-1]]).any():
            # Texts shorter than two words are padded with zeros: of equal words the shorter text is a prefix.
            order = np.lexsort((size, low, high))
    rank: Any = np.empty(len(at), np.int64)
    rank[order] = np.arange(len(at))
    return rank


@njit(cache=True)
def _words(data: Any, at: Any, size: Any) -> Any:
    """Return the first eight bytes of each text and the next eight, as numbers; after a byte swap they compare as
    bytes."""
    words = np.zeros((2, len(at)), np.uint64)
    for row in range(len(at)):
        for word in range(2):
            left = min(np.int64(size[row]) - 8 * word, np.int64(8))
            if left > 0:
                words[word, row] = tail(load(data, np.int64(at[row]) + 8 * word), left)
    return words


def _narrow(key: Any) -> Any:
    """Return the same key in 16 bits if it fits: numpy sorts such keys in linear time (radix sort)."""
    return key.astype(np.uint16) if key.max(initial=0) < 1 << 16 else key
