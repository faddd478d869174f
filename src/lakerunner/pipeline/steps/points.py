"""The numbers and the metadata of metric points.

A number keeps every bit. It stands in `int_value` if all numbers of its series in the segment are whole: integers, or
doubles that are integers of at most 2^53, -0.0 not among them. Counters are then small differences, and need a byte
each. Where one of them is not whole, all stand as doubles in `value`, but for an integer that no double holds.
`is_int` says whether it came as an integer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from lakerunner.pipeline.read.otlp_metrics import METADATA
from lakerunner.pipeline.read.rows import Coded, Numbers, Rows
from lakerunner.pipeline.steps.owners import share_owners
from lakerunner.pipeline.steps.take import flattened, map_array

_DOUBLE, _INT = 1, 2  # what a number came as, and what it is stored as
_WHOLE = 2.0**53


def add_metadata(rows: Rows) -> Rows:
    """Add metadata, one map for each metric that has any, in the place of one for each of its points."""
    if METADATA not in rows.attached:
        return rows
    shared, _ = share_owners(rows.attached[METADATA], rows.data)
    everyone = np.arange(len(shared.first) - 1, dtype=np.int32)
    pairs, offsets = flattened(shared.first, everyone)
    maps = map_array(shared, pairs, offsets, rows.data)
    codes = np.where(np.diff(shared.first) > 0, everyone, np.int32(-1))
    attached = {name: one for name, one in rows.attached.items() if name != METADATA}
    return replace(rows, attached=attached).plus(**{METADATA: Coded(codes, maps, shared.owner)})


class Placed(NamedTuple):
    """For each row: what its number came as, its bits, what it is stored as, and it as both."""

    came: Any
    doubles: Any
    ints: Any
    stored: Any
    values: Any
    whole: Any


def place_numbers(rows: Rows, orders: Sequence[Any]) -> Rows:
    """value and int_value as these segments store them, and is_int."""
    came, bits = np.zeros(rows.count, np.int8), np.zeros(rows.count, np.uint64)
    for name, kind in (("value", _DOUBLE), ("int_value", _INT)):
        if name in rows.columns:
            column = rows.column(name, Numbers)
            chosen = slice(None) if column.valid is None else column.valid
            came[chosen] = kind
            bits[chosen] = column.values.view(np.uint64)[chosen]
    zeros = np.zeros(rows.count, np.uint64)
    placed = Placed(came, *_both(bits), came.copy(), *_both(zeros))
    series = rows.column("series", Numbers).values
    for order in orders:
        _place(order, series, placed)
    return rows.plus(
        value=Numbers(placed.values, placed.stored == _DOUBLE),
        int_value=Numbers(placed.whole, placed.stored == _INT),
        is_int=Numbers(came == _INT, came != 0),
    )


def _both(bits: Any) -> tuple[Any, Any]:
    return bits.view(np.float64), bits.view(np.int64)


@njit(cache=True)
def _is_whole(number: Any) -> Any:
    if not abs(number) <= _WHOLE or np.floor(number) != number:
        return False
    return number != 0.0 or not np.signbit(number)


@njit(cache=True)
def _fits(number: Any) -> Any:
    """Whether a double holds this integer."""
    double = np.float64(number)
    return abs(double) < 2.0**63 and np.int64(double) == number


@njit(cache=True)
def _place(order: Any, series: Any, placed: Placed) -> Any:
    """Decide for each run of one series in this order, and put its numbers where they are stored."""
    start = 0
    while start < len(order):
        stop, all_whole = start, True
        while stop < len(order) and series[order[stop]] == series[order[start]]:
            row = order[stop]
            if placed.came[row] == _DOUBLE and not _is_whole(placed.doubles[row]):
                all_whole = False
            stop += 1
        for place in range(start, stop):
            row = order[place]
            if placed.came[row] == _DOUBLE:
                if all_whole:
                    placed.stored[row] = _INT
                    placed.whole[row] = np.int64(placed.doubles[row])
                else:
                    placed.values[row] = placed.doubles[row]
            elif placed.came[row] == _INT:
                if all_whole or not _fits(placed.ints[row]):
                    placed.whole[row] = placed.ints[row]
                else:
                    placed.stored[row] = _DOUBLE
                    placed.values[row] = np.float64(placed.ints[row])
        start = stop
