"""Points of segments to the samples of series: the loops over every point, in machine code.

An entry is the points of one stored series in one segment. It has a slot in the samples of its Prometheus series, in
the order in which segments were ingested: so of two samples of one time the later one counts. What always holds: after
`settle` and `merge` a series' times ascend and none is there twice.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

NS_PER_MS = 1_000_000


class Points(NamedTuple):
    """Some columns of a row group whose first row is row `base` of the segment. A validity of no bytes: all of the
    column, which may have no rows either: then none. A row without a number is 0 where `zero`, else no sample. `starts`
    are ms, or none."""

    base: int
    times: Any  # ns
    doubles: Any
    doubles_valid: Any
    ints: Any
    ints_valid: Any
    starts: Any
    zero: bool


class Slots(NamedTuple):
    """Entries: where their points stand, where their slots begin, how far these are filled, and whether their times
    ascend."""

    first: Any
    rows: Any
    begin: Any
    cursor: Any
    unsorted: Any


class Out(NamedTuple):
    """`starts` and `index` may have no elements: then they are not asked for."""

    times: Any
    values: Any
    starts: Any


@njit(cache=True, nogil=True)
def chosen_entries(numbers: Any, head: Any, after: Any) -> Any:
    """(row, facet) of all rows whose series has facets: `head` is the first facet of a series, `after` the next one of
    a facet, -1 none."""
    count = 0
    for row in range(len(numbers)):
        facet = head[numbers[row]]
        while facet >= 0:
            count += 1
            facet = after[facet]
    rows, facets = np.empty(count, np.int64), np.empty(count, np.int64)
    count = 0
    for row in range(len(numbers)):
        facet = head[numbers[row]]
        while facet >= 0:
            rows[count], facets[count] = row, facet
            count += 1
            facet = after[facet]
    return rows, facets


@njit(cache=True, nogil=True)
def sort_into(keys: Any, count: Any) -> Any:
    """(order, offsets): the places of the keys, which are below `count`, so that keys ascend; equal ones stay in
    order. Those of key k are offsets[k]:offsets[k + 1]."""
    offsets = np.zeros(count + 1, np.int64)
    for key in keys:
        offsets[key + 1] += 1
    for key in range(count):
        offsets[key + 1] += offsets[key]
    at = offsets[:-1].copy()
    order = np.empty(len(keys), np.int64)
    for place in range(len(keys)):
        order[at[keys[place]]] = place
        at[keys[place]] += 1
    return order, offsets


@njit(cache=True, nogil=True)
def _span(entry: Any, slots: Any, points: Any, between: Any) -> Any:
    """The entry's points of this row group with a time of `between`, (start, end] in ms. They are in the order of
    time."""
    low = max(slots.first[entry] - points.base, 0)
    high = min(slots.first[entry] + slots.rows[entry] - points.base, len(points.times))
    while low < high and points.times[low] // NS_PER_MS <= between[0]:
        low += 1
    while low < high and points.times[high - 1] // NS_PER_MS > between[1]:
        high -= 1
    return low, high


@njit(cache=True, nogil=True)
def _all_valid(values: Any, bits: Any, low: Any, high: Any) -> Any:
    if len(values) == 0 or len(bits) == 0:
        return len(values) > 0
    for byte in range(low >> 3, (high + 7) >> 3):
        wanted = 0xFF
        if byte == low >> 3:
            wanted &= 0xFF << (low & 7)
        if byte == high >> 3:
            wanted &= (1 << (high & 7)) - 1
        if bits[byte] & wanted != wanted:
            return False
    return True


@njit(cache=True, nogil=True)
def count_points(entries: Any, slots: Any, points: Any, between: Any, counts: Any) -> Any:
    """Add to each entry's count its points of this row group that may be samples."""
    for entry in entries:
        low, high = _span(entry, slots, points, between)
        counts[entry] += high - low


@njit(cache=True, nogil=True)
def place_points(entries: Any, slots: Any, points: Any, between: Any, out: Any) -> Any:
    """Put the numbers of these entries' points of this row group into their slots."""
    for entry in entries:
        low, high = _span(entry, slots, points, between)
        if low >= high:
            continue
        at = slots.cursor[entry]
        if _all_valid(points.ints, points.ints_valid, low, high):
            for row in range(low, high):
                out.values[at + row - low] = np.float64(points.ints[row])
        elif _all_valid(points.doubles, points.doubles_valid, low, high):
            for row in range(low, high):
                out.values[at + row - low] = points.doubles[row]
        else:
            _place_some(entry, slots, points, (low, high), out)
            continue
        last = out.times[at - 1] if at > slots.begin[entry] else np.int64(-(2**63))
        for row in range(low, high):
            time = points.times[row] // NS_PER_MS
            out.times[at + row - low] = time
            if time <= last:
                slots.unsorted[entry] = True
            last = time
        if len(points.starts):
            out.starts[at : at + high - low] = points.starts[low:high]
        slots.cursor[entry] = at + high - low


@njit(cache=True, nogil=True)
def _place_some(entry: Any, slots: Any, points: Any, rows: Any, out: Any) -> Any:
    """An entry whose numbers stand in both columns, or that has points without one."""
    at = slots.cursor[entry]
    last = out.times[at - 1] if at > slots.begin[entry] else np.int64(-(2**63))
    for row in range(rows[0], rows[1]):
        if _all_valid(points.doubles, points.doubles_valid, row, row + 1):
            value = points.doubles[row]
        elif _all_valid(points.ints, points.ints_valid, row, row + 1):
            value = np.float64(points.ints[row])
        elif points.zero:
            value = 0.0
        else:
            continue
        time = points.times[row] // NS_PER_MS
        out.times[at], out.values[at] = time, value
        if len(points.starts):
            out.starts[at] = points.starts[row]
        if time <= last:
            slots.unsorted[entry] = True
        last = time
        at += 1
    slots.cursor[entry] = at


@njit(cache=True, nogil=True)
def settle(groups: Any, slots: Any, out: Any, index: Any) -> Any:
    """Close the gaps that slots have behind them. `groups` are the offsets of series in the entries. Returns the
    offsets of series in the samples, and which series have times that do not ascend."""
    series = len(groups) - 1
    offsets, unsorted = np.zeros(series + 1, np.int64), np.zeros(series, np.bool_)
    at = 0
    for number in range(series):
        last, any_before = np.int64(0), False
        for entry in range(groups[number], groups[number + 1]):
            begin, size = slots.begin[entry], slots.cursor[entry] - slots.begin[entry]
            if size == 0:
                continue
            if slots.unsorted[entry] or (any_before and out.times[begin] <= last):
                unsorted[number] = True
            last, any_before = out.times[begin + size - 1], True
            if begin != at:
                _move(out, index, begin, at, size)
            at += size
        offsets[number + 1] = at
    return offsets, unsorted


@njit(cache=True, nogil=True)
def _move(out: Any, index: Any, source: Any, target: Any, size: Any) -> Any:
    for place in range(size):
        out.times[target + place] = out.times[source + place]
        out.values[target + place] = out.values[source + place]
        if len(out.starts):
            out.starts[target + place] = out.starts[source + place]
        if len(index):
            index[target + place] = index[source + place]


@njit(cache=True, nogil=True)
def disorder(offsets: Any, times: Any) -> Any:
    """Which series have times that do not ascend."""
    found = np.zeros(len(offsets) - 1, np.bool_)
    for number in range(len(found)):
        for place in range(offsets[number] + 1, offsets[number + 1]):
            if times[place] <= times[place - 1]:
                found[number] = True
                break
    return found


@njit(cache=True, nogil=True)
def merge(offsets: Any, unsorted: Any, out: Any, index: Any) -> Any:
    """Sort the series that are not sorted, of samples of one time keep the last. Returns the new offsets; the samples
    in front of the last of them are what is left."""
    longest = 0
    for number in range(len(unsorted)):
        if unsorted[number]:
            longest = max(longest, offsets[number + 1] - offsets[number])
    runs = np.empty(longest + 1, np.int64)
    order, spare = np.empty(longest, np.int64), np.empty(longest, np.int64)
    times = np.empty(longest, np.int64)
    values = np.empty(longest, np.float64)
    starts = np.empty(longest if len(out.starts) else 0, np.int64)
    indexes = np.empty(longest if len(index) else 0, np.int64)
    moved = np.zeros(len(offsets), np.int64)
    at = 0
    for number in range(len(unsorted)):
        begin, size = offsets[number], offsets[number + 1] - offsets[number]
        if not unsorted[number]:
            if begin != at:
                _move(out, index, begin, at, size)
            at += size
            moved[number + 1] = at
            continue
        sorted_ = _ordered(out.times[begin : begin + size], runs, order, spare)
        for place in range(size):
            times[place], values[place] = out.times[begin + place], out.values[begin + place]
            if len(starts):
                starts[place] = out.starts[begin + place]
            if len(indexes):
                indexes[place] = index[begin + place]
        for place in range(size):
            source = sorted_[place]
            if place + 1 < size and times[sorted_[place + 1]] == times[source]:
                continue
            out.times[at], out.values[at] = times[source], values[source]
            if len(starts):
                out.starts[at] = starts[source]
            if len(indexes):
                index[at] = indexes[source]
            at += 1
        moved[number + 1] = at
    return moved


@njit(cache=True, nogil=True)
def _ordered(times: Any, runs: Any, order: Any, spare: Any) -> Any:
    """The places of these times in ascending order, equal ones as they stand: runs that ascend are merged two by
    two."""
    size = len(times)
    count = 0
    for place in range(size):
        order[place] = place
        if place == 0 or times[place] < times[place - 1]:
            runs[count] = place
            count += 1
    runs[count] = size
    while count > 1:
        merged = 0
        for pair in range(0, count, 2):
            begin = runs[pair]
            middle = runs[pair + 1]
            end = runs[pair + 2] if pair + 1 < count else middle
            left, right = begin, middle
            for place in range(begin, end):
                if right >= end or (left < middle and times[order[left]] <= times[order[right]]):
                    spare[place] = order[left]
                    left += 1
                else:
                    spare[place] = order[right]
                    right += 1
            runs[merged] = begin
            merged += 1
        runs[merged] = size
        count = merged
        order, spare = spare, order
    return order


def warm() -> None:
    """Compile what every query runs, or load it from numba's cache, so that the first query does not wait for it."""
    some = np.zeros(1, np.int64)
    points = _read_only_points()
    order, offsets = sort_into(some, 1)
    chosen_entries(some, some - 1, some - 1)
    slots = Slots(some, some + 1, some.copy(), some.copy(), np.zeros(1, np.bool_))
    out = Out(np.zeros(2, np.int64), np.zeros(2), some[:0])
    count_points(order, slots, points, (-1, 1), some.copy())
    place_points(order, slots, points, (-1, 1), out)
    settle(offsets, slots, out, some[:0])
    merge(offsets, disorder(offsets, out.times), out, some[:0])


def _read_only_points() -> Points:
    ints, doubles, bits = np.zeros(1, np.int64), np.zeros(1), np.zeros(1, np.uint8)
    for array in (ints, doubles, bits):
        array.flags.writeable = False
    return Points(0, ints, doubles, bits, ints, bits, ints, True)
