"""Which rows make a segment, and in what order they stand in it.

A segment holds the rows of one UTC hour, sorted by the signal's `sort_by`; rows that are equal in that stand in the
order of the input. Where more than MAX_HOURS different hours come at once (a replay of old files), neighbours share a
segment.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow.compute as pc

from lakerunner.model.signal import SignalSpec
from lakerunner.model.time import HOUR_NS
from lakerunner.pipeline.read.rows import Coded, Numbers, Rows

MAX_HOURS = 48


def split_and_sort(rows: Rows, spec: SignalSpec) -> list[Any]:
    """The row numbers of each segment in their order; the segments in the order of time."""
    hours = rows.column("timestamp", Numbers).values // HOUR_NS
    distinct, group = np.unique(hours, return_inverse=True)
    if len(distinct) > MAX_HOURS:
        group = np.minimum(np.arange(len(distinct)) * MAX_HOURS // len(distinct), MAX_HOURS - 1)[group]
    keys = [_narrow(group), *(_sort_key(rows, name) for name in spec.sort_by)]
    order = np.argsort(keys[-1], kind="stable")
    for key in reversed(keys[:-1]):
        order = order[np.argsort(key[order], kind="stable")]
    return np.split(order.astype(np.int32), np.flatnonzero(np.diff(group[order])) + 1)


def _sort_key(rows: Rows, name: str) -> Any:
    """Numbers that order the rows as this column does; texts by their bytes."""
    column = rows.columns[name]
    match column:
        case Numbers(values, None, None):
            return values
        case Coded(codes, values, owner):
            rank = np.empty(len(values), np.int64)
            rank[pc.sort_indices(values).to_numpy()] = np.arange(len(values))
            by_code = rank[codes]
            return _narrow(by_code if owner is None else by_code[owner])
        case _:
            raise TypeError(f"cannot sort by {name}: it is {type(column).__name__}")


def _narrow(key: Any) -> Any:
    """The same key in 16 bits if it fits: such keys sort in linear time."""
    return key.astype(np.uint16) if key.max(initial=0) < 1 << 16 else key
