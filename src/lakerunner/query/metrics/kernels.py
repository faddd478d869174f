"""The numba kernels that turn points of segments into samples of series.

An entry is the points of one stored series in one segment. It has a slot in the samples of its Prometheus series, in
the order of entries, so that of two samples at one time the later one counts. Where their nanoseconds, which are not
here, would decide, `merge` reports it and ties.py decides. After `settle` and `merge` the times of a series ascend
strictly.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from lakerunner.kernel_cache import njit

NS_PER_MS = 1_000_000


class Numbers(NamedTuple):
    """A column of a row group: the number of each row, 0 where there is none. `valid` says which rows have one; empty:
    all."""

    times: Any  # ms
    values: Any
    valid: Any

    @property
    def bytes(self) -> int:
        return int(self.times.nbytes + self.values.nbytes + self.valid.nbytes) + 200


class PointColumns(NamedTuple):
    """The numbers of a row group whose first row is row `base` of the segment. Rows that are not valid are not samples.
    `starts` are in ms, or empty."""

    base: int
    times: Any  # ms
    values: Any
    valid: Any
    starts: Any


class Slots(NamedTuple):
    """Entries: where their points are, where their slots begin, how far these are filled, and whether their times
    ascend."""

    first: Any
    rows: Any
    begin: Any
    cursor: Any
    unsorted: Any


class SampleColumns(NamedTuple):
    """The samples that kernels write. `starts` may be empty: then it is not needed."""

    times: Any
    values: Any
    starts: Any


class Runs(NamedTuple):
    """Runs of samples of one entry: where each run begins, and its stored series."""

    begin: Any
    stored: Any


@njit(cache=True, nogil=True)
def chosen_entries(numbers: Any, head: Any, after: Any) -> Any:
    """Return (row, facet) for all rows whose series has facets: `head` is the first facet of a series, `after` the next
    one of a facet, -1 for none."""
    count = 0  # counted first, because numba's lists are slower than a second pass
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
    """Return (order, offsets) of a stable counting sort of keys below `count`. Those of key k are offsets[k]:offsets[k
    + 1]."""
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
    """Return the entry's points of this row group with a time in `between`, (start, end] in ms. They are in order of
    time."""
    low = max(slots.first[entry] - points.base, 0)
    high = min(slots.first[entry] + slots.rows[entry] - points.base, len(points.times))
    # Linear, not a binary search: most row groups lie inside the range, and nothing is skipped.
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
    """Write to `out` the times (ns) in ms, and for each row the number from whichever of two columns has one. Either
    column may be empty; validities are bits, empty where all are valid. Return how many rows have a number."""
    count = 0
    for row in range(len(times)):
        out.times[row] = times[row] // NS_PER_MS
        # len() first: an empty array has no element to test. Arrow's bits are numbered from the lowest.
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
        # The slot may hold points of an earlier row group; np.int64 keeps the type of `last` one for numba.
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
    """Close the gaps behind slots. `groups` are the offsets of series in the entries. Return the offsets of series in
    the samples, which series have times that do not ascend, and where entries now begin."""
    series = len(groups) - 1
    offsets, unsorted = np.zeros(series + 1, np.int64), np.zeros(series, np.bool_)
    begins = np.zeros(len(slots.begin), np.int64)
    at = 0
    for number in range(series):
        last, any_before = np.int64(0), False
        for entry in range(groups[number], groups[number + 1]):
            begin, size = slots.begin[entry], slots.cursor[entry] - slots.begin[entry]
            begins[entry] = at  # of empty entries too: `run_of` then finds the last entry that begins here
            if size == 0:
                continue
            if slots.unsorted[entry] or (any_before and out.times[begin] <= last):
                unsorted[number] = True
            last, any_before = out.times[begin + size - 1], True
            if begin != at:  # towards the front only, so nothing is overwritten before it is moved
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
    """Return which series have times that do not ascend."""
    found = np.zeros(len(offsets) - 1, np.bool_)
    for number in range(len(found)):
        for place in range(offsets[number] + 1, offsets[number + 1]):
            if times[place] <= times[place - 1]:
                found[number] = True
                break
    return found


@njit(cache=True, nogil=True)
def merge(offsets: Any, unsorted: Any, out: Any, index: Any, entries: Any) -> Any:
    """Sort the unsorted series and keep the last of samples with equal times. Return the new offsets (samples beyond
    the last one are garbage), and the series in which another sample than the last may count, because two entries of
    one stored series differ within one ms."""
    longest = 0
    for number in range(len(unsorted)):
        if unsorted[number]:
            longest = max(longest, offsets[number + 1] - offsets[number])
    # Buffers for the longest unsorted series, allocated once for all.
    runs = np.empty(longest + 1, np.int64)
    order, spare = np.empty(longest, np.int64), np.empty(longest, np.int64)
    times = np.empty(longest, np.int64)
    values = np.empty(longest, np.float64)
    bits = values.view(np.int64)  # bits, not values, are compared: NaN differs from itself, 0.0 equals -0.0
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
        for place in range(size):  # copied, since the samples are written back to the same places
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
                # Histograms (`index`) are not compared: they count as different.
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
    """Return whether two of these samples, in the order of entries, are of one stored series but of two entries."""
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
    """Return the places of these times in ascending order, stably, by a natural merge sort: ascending runs are merged
    two by two. Most series consist of few runs, so this is faster than a general sort."""
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
            end = runs[pair + 2] if pair + 1 < count else middle  # the last run may have no partner
            left, right = begin, middle
            for place in range(begin, end):
                # <= keeps the sort stable: of equal times the later entry stays last, and counts.
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
    points = PointColumns(0, *map(read_only, (*numbers, some)))
    order, offsets = sort_into(some, 1)
    chosen_entries(some, some - 1, some - 1)
    slots = Slots(some, some + 1, some.copy(), some.copy(), np.zeros(1, np.bool_))
    out = SampleColumns(np.zeros(2, np.int64), np.zeros(2), some[:0])
    count_points(order, slots, points, (-1, 1), some.copy())
    place_points(order, slots, points, (-1, 1), out)
    settle(offsets, slots, out, some[:0])
    merge(offsets, disorder(offsets, out.times), out, some[:0], Runs(some, some))


def read_only(array: Any) -> Any:
    """Return a read-only view. Arrow's arrays and cached ones are read-only, which numba takes for another type: with
    one type for all, kernels are compiled once."""
    found = array.view()
    found.flags.writeable = False
    return found
