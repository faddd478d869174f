"""Kernels for the increase of counters, extrapolated from the samples of a window to its whole range.

Comes in: a table of windows, in ticks of any length. Goes out: a value for each window that has one, and whether it
has. What always holds: the float operations keep their order, because languages compare the bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lakerunner.kernel_cache import njit


@njit(cache=True, nogil=True)
def starts_new_counter(start_before: Any, time_before: Any, start: Any, time: Any) -> Any:
    """Return whether a sample's start time says that it does not continue the sample before.

    A start time of 0 is unknown, one at or after its sample's time is invalid. One that is exactly the time of the
    sample before is how delta series are written; a cumulative series whose true start is unknown has that too, except
    for its first sample, which has none."""
    if start == start_before or start == 0 or start >= time or start < time_before:
        return False
    if start > time_before:
        return True
    return start_before != 0 and start_before < time_before


@njit(cache=True, nogil=True, error_model="numpy")
def extrapolation(
    range_start: Any, range_end: Any, first_time: Any, last_time: Any, intervals: Any, begun: Any, to_zero: Any
) -> Any:
    """Return the factor by which an increase between two samples grows when it is extrapolated to the whole range.

    `begun`: when the counter was zero, if that is known and inside the range, otherwise 0. `to_zero`: the share of the
    time between the samples that the counter took from zero to the first one; infinite if it does not apply."""
    to_start = (first_time - range_start) / 1000
    to_end = (range_end - last_time) / 1000
    covered = (last_time - first_time) / 1000
    between = covered / intervals if intervals > 0 else 0.0
    # A gap of more than 1.1 average intervals at an end means that the series starts or ends there.
    threshold = between * 1.1
    if begun != 0:
        to_start = 0.0
        covered = (last_time - begun) / 1000
    else:
        if to_start >= threshold:
            to_start = between / 2
        from_zero = covered * to_zero
        # A counter cannot have been below zero: do not extrapolate past the time at which it was zero.
        if from_zero < to_start:
            to_start = from_zero
    if to_end >= threshold:
        to_end = between / 2
    if covered == 0:
        return 1.0
    return (covered + to_start + to_end) / covered


@njit(cache=True, nogil=True, error_model="numpy")
def extrapolate(rows: Any, counter: Any, seconds: Any, values: Any, present: Any, overlapping: Any) -> None:
    """Write the increase over the range into `values` and `present`; per second if `seconds`, the range's length, is
    not zero. Write into `overlapping`, if there are start times, whether some in the window overlap."""
    offsets, times, numbers, starts, ends, range_ = rows
    resets = np.empty(1 + _longest(offsets), np.int64)
    timed = counter and len(starts) > 0
    for series in range(len(offsets) - 1):
        head = tail = seen = 0
        overlap = -1
        a = b = offsets[series]
        stop = offsets[series + 1]
        for step in range(len(ends)):
            while b < stop and times[b] <= ends[step]:
                b += 1
            while a < b and times[a] <= ends[step] - range_:
                a += 1
            if b <= a:
                continue
            increase = numbers[b - 1] - numbers[a]
            begun = 0
            to_zero = np.inf
            if counter:
                # Each sample is read once: windows only move forward.
                fresh, seen = max(seen, a + 1), b
                if timed:
                    tail = _note_starts(times, numbers, starts, fresh, b, resets, tail)
                    overlap = max(overlap, _last_overlap(times, starts, fresh, b))
                    overlapping[series, step] = overlap > a
                else:
                    for at in range(fresh, b):
                        resets[tail] = at  # written always, kept only if it is a reset: no branch to mispredict
                        tail += numbers[at] < numbers[at - 1]
                while head < tail and resets[head] <= a:
                    head += 1
                for place in range(head, tail):
                    increase += numbers[resets[place] - 1]
                if timed and starts[a] != 0 and ends[step] - range_ < starts[a] < times[a]:
                    begun = starts[a]
                    increase += numbers[a]
                if increase > 0 and numbers[a] >= 0:
                    to_zero = numbers[a] / increase
            # One sample gives an increase only if it is known when the counter began.
            if b - a == 1 and begun == 0:
                continue
            factor = extrapolation(ends[step] - range_, ends[step], times[a], times[b - 1], b - a - 1, begun, to_zero)
            if seconds != 0:
                # Divide the factor, not the product: the bits depend on it.
                factor /= seconds
            values[series, step] = increase * factor
            present[series, step] = True


@njit(cache=True, nogil=True)
def _note_starts(times: Any, numbers: Any, starts: Any, first: Any, last: Any, resets: Any, tail: Any) -> Any:
    """Append the resets among these samples, by value or start time, after the `tail` of those before; return the new
    tail."""
    for at in range(first, last):
        if numbers[at] < numbers[at - 1] or starts_new_counter(starts[at - 1], times[at - 1], starts[at], times[at]):
            resets[tail] = at
            tail += 1
    return tail


@njit(cache=True, nogil=True)
def _last_overlap(times: Any, starts: Any, first: Any, last: Any) -> Any:
    """Return the last of these samples that begins before the one before it ended, but not together with it; -1 if
    there is none."""
    for at in range(last - 1, first - 1, -1):
        if starts[at] != 0 and starts[at] < times[at - 1] and starts[at] != starts[at - 1]:
            return at
    return -1


@njit(cache=True, nogil=True)
def _longest(offsets: Any) -> Any:
    longest = 0
    for series in range(len(offsets) - 1):
        longest = max(longest, offsets[series + 1] - offsets[series])
    return longest
