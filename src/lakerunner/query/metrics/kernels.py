"""Points of segments to the samples of series: the loops over every point, in machine code.

An entry is the points of one stored series in one segment. It has a slot in the samples of its Prometheus series, in
the order of entries: so of two samples of one time the later one counts. Where that is for their nanoseconds to say,
which are not here, `merge` tells, and ties.py decides. What always holds: after `settle` and `merge` a series' times
ascend and none is there twice.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

NS_PER_MS = 1_000_000


class Numbers(NamedTuple):
    """A column of a row group: of each row the number, 0 where there is none. `valid` says where there is one; no
    elements: everywhere."""

    times: Any  # ms
    values: Any
    valid: Any

    @property
    def bytes(self) -> int:
        return int(self.times.nbytes + self.values.nbytes + self.valid.nbytes) + 200


class Points(NamedTuple):
    """The numbers of a row group whose first row is row `base` of the segment. Rows that are not valid are no samples.
    `starts` are ms, or none."""

    base: int
    times: Any  # ms
    values: Any
    valid: Any
    starts: Any


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


class Runs(NamedTuple):
    """Samples that are of one entry stand together: where each run begins, and the stored series that it is of."""

    begin: Any
    stored: Any


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
    while low < high and points.times[low] <= between[0]:
        low += 1
    while low < high and points.times[high - 1] > between[1]:
        high -= 1
    return low, high


@njit(cache=True, nogil=True)
def _is_valid(bits: Any, row: Any) -> Any:
    return len(bits) == 0 or bits[row >> 3] >> (row & 7) & 1 == 1


@njit(cache=True, nogil=True)
def join_numbers(times: Any, doubles: Any, doubles_valid: Any, ints: Any, ints_valid: Any, out: Any) -> Any:
    """Into `out`: `times` (ns) in ms, of two columns of numbers the one that a row has. Either column may have no rows;
    validities are bits, none where all are valid. How many rows have a number."""
    count = 0
    for row in range(len(times)):
        out.times[row] = times[row] // NS_PER_MS
        if len(doubles) and _is_valid(doubles_valid, row):
            out.values[row], there = doubles[row], True
        elif len(ints) and _is_valid(ints_valid, row):
            out.values[row], there = np.float64(ints[row]), True
        else:
            out.values[row], there = 0.0, False
        out.valid[row] = there
        count += there
    return count


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
        at = slots.cursor[entry]
        last = out.times[at - 1] if at > slots.begin[entry] else np.int64(-(2**63))
        for row in range(low, high):
            if len(points.valid) and not points.valid[row]:
                continue
            time = points.times[row]
            out.times[at], out.values[at] = time, points.values[row]
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
    offsets of series in the samples, which series have times that do not ascend, and where entries now begin."""
    series = len(groups) - 1
    offsets, unsorted = np.zeros(series + 1, np.int64), np.zeros(series, np.bool_)
    begins = np.zeros(len(slots.begin), np.int64)
    at = 0
    for number in range(series):
        last, any_before = np.int64(0), False
        for entry in range(groups[number], groups[number + 1]):
            begin, size = slots.begin[entry], slots.cursor[entry] - slots.begin[entry]
            begins[entry] = at
            if size == 0:
                continue
            if slots.unsorted[entry] or (any_before and out.times[begin] <= last):
                unsorted[number] = True
            last, any_before = out.times[begin + size - 1], True
            if begin != at:
                _move(out, index, begin, at, size)
            at += size
        offsets[number + 1] = at
    return offsets, unsorted, begins


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
def merge(offsets: Any, unsorted: Any, out: Any, index: Any, entries: Any) -> Any:
    """Sort the series that are not sorted, of samples of one time keep the last. Returns the new offsets; the samples
    in front of the last of them are what is left. And the series in which another one than the last may count: two
    entries of one stored series say different things of one ms."""
    longest = 0
    for number in range(len(unsorted)):
        if unsorted[number]:
            longest = max(longest, offsets[number + 1] - offsets[number])
    runs = np.empty(longest + 1, np.int64)
    order, spare = np.empty(longest, np.int64), np.empty(longest, np.int64)
    times = np.empty(longest, np.int64)
    values = np.empty(longest, np.float64)
    bits = values.view(np.int64)
    starts = np.empty(longest if len(out.starts) else 0, np.int64)
    indexes = np.empty(longest if len(index) else 0, np.int64)
    moved, tied = np.zeros(len(offsets), np.int64), np.zeros(len(unsorted), np.bool_)
    at = 0
    for number in range(len(unsorted)):
        begin, size = offsets[number], offsets[number + 1] - offsets[number]
        if not unsorted[number]:
            if begin != at:
                _move(out, index, begin, at, size)
            at += size
            moved[number + 1] = at
            continue
        sorted_ = ordered(out.times[begin : begin + size], runs, order, spare)
        for place in range(size):
            times[place], values[place] = out.times[begin + place], out.values[begin + place]
            if len(starts):
                starts[place] = out.starts[begin + place]
            if len(indexes):
                indexes[place] = index[begin + place]
        differ = False
        for place in range(size):
            source = sorted_[place]
            if place + 1 < size and times[sorted_[place + 1]] == times[source]:
                after = sorted_[place + 1]
                if len(index) or bits[source] != bits[after] or (len(starts) and starts[source] != starts[after]):
                    differ = True
                continue
            if differ:
                first = place
                while first > 0 and times[sorted_[first - 1]] == times[source]:
                    first -= 1
                tied[number] |= _is_tied(begin, sorted_[first : place + 1], entries)
                differ = False
            out.times[at], out.values[at] = times[source], values[source]
            if len(starts):
                out.starts[at] = starts[source]
            if len(indexes):
                index[at] = indexes[source]
            at += 1
        moved[number + 1] = at
    return moved, tied


@njit(cache=True, nogil=True)
def _is_tied(begin: Any, places: Any, entries: Any) -> Any:
    """Whether two of these samples, which are in the order of entries, are of one stored series and of two entries."""
    before = run_of(entries, begin + places[0])
    for place in places[1:]:
        run = run_of(entries, begin + place)
        if run != before and entries.stored[run] == entries.stored[before]:
            return True
        before = run
    return False


@njit(cache=True, nogil=True)
def run_of(runs: Any, place: Any) -> Any:
    return np.searchsorted(runs.begin, place, side="right") - 1


@njit(cache=True, nogil=True)
def ordered(times: Any, runs: Any, order: Any, spare: Any) -> Any:
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
    numbers = Numbers(np.zeros(1, np.int64), np.zeros(1), np.zeros(1, np.bool_))
    bits = np.zeros(1, np.uint8)
    join_numbers(read_only(some), read_only(numbers.values), read_only(bits), read_only(some), read_only(bits), numbers)
    points = Points(0, *map(read_only, (*numbers, some)))
    order, offsets = sort_into(some, 1)
    chosen_entries(some, some - 1, some - 1)
    slots = Slots(some, some + 1, some.copy(), some.copy(), np.zeros(1, np.bool_))
    out = Out(np.zeros(2, np.int64), np.zeros(2), some[:0])
    count_points(order, slots, points, (-1, 1), some.copy())
    place_points(order, slots, points, (-1, 1), out)
    settle(offsets, slots, out, some[:0])
    merge(offsets, disorder(offsets, out.times), out, some[:0], Runs(some, some))


def read_only(array: Any) -> Any:
    """As Arrow's arrays are, and those that queries share: so kernels are compiled once."""
    found = array.view()
    found.flags.writeable = False
    return found
