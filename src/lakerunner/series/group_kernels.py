"""Series into groups, at every step: the loops over floats that aggregations are made of.

Comes in: values and presence [series, steps], and the group of each series. Goes out: arrays [groups, steps]. What
always holds: the series of a group are taken in the order of the rows, and the order of operations on numbers is
fixed, so that the bits do not depend on how series are laid out in memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from lakerunner.series.arrays import Bools, Floats, Ints


def counts(present: Bools, of: Ints, groups: int) -> Floats:
    """How many samples there are."""
    found = np.zeros((groups, present.shape[1]))
    _counts(np.ascontiguousarray(present), of, found)
    return found


def sums(values: Floats, present: Bools, of: Ints, groups: int) -> tuple[Floats, Floats, Floats]:
    """The sum, what rounding took from it (Neumaier), and how many samples there are."""
    shape = (groups, values.shape[1])
    total, lost = np.zeros(shape), np.zeros(shape)
    _sums(np.ascontiguousarray(values), np.ascontiguousarray(present), of, total, lost)
    return total, lost, counts(present, of, groups)


def means(values: Floats, present: Bools, of: Ints, groups: int) -> Floats:
    """Of sums that may overflow: from there on the mean itself is carried along."""
    shape = (groups, values.shape[1])
    mean, lost, count = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    _means(np.ascontiguousarray(values), np.ascontiguousarray(present), of, mean, lost, count)
    return mean


def extremes(values: Floats, present: Bools, of: Ints, groups: int, *, largest: bool) -> tuple[Floats, Bools]:
    """The largest or least value, NaN only where there is nothing else; and where there is one."""
    found = np.full((groups, values.shape[1]), np.nan)
    kernel = _maxima if largest else _minima
    kernel(np.ascontiguousarray(values), np.ascontiguousarray(present), of, found)
    return found, counts(present, of, groups) > 0


def variances(values: Floats, present: Bools, of: Ints, groups: int) -> tuple[Floats, Floats]:
    """The mean square deviation from the mean, and how many samples there are."""
    shape = (groups, values.shape[1])
    squares, mean, count = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    _variances(np.ascontiguousarray(values), np.ascontiguousarray(present), of, squares, mean, count)
    with np.errstate(invalid="ignore", divide="ignore"):
        return squares / count, count


@njit(cache=True, nogil=True)
def _counts(present: Any, of: Any, found: Any) -> None:
    for row in range(present.shape[0]):
        into, there = found[of[row]], present[row]
        for step in range(present.shape[1]):
            into[step] += 1.0 if there[step] else 0.0


@njit(cache=True, nogil=True)
def _sums(values: Any, present: Any, of: Any, total: Any, lost: Any) -> None:
    # Without branches inside and with few arrays at once, so that it becomes vector instructions.
    for row in range(values.shape[0]):
        group = of[row]
        sum_, less, own, there = total[group], lost[group], values[row], present[row]
        for step in range(values.shape[1]):
            before, value = sum_[step], own[step]
            after = before + value
            before_is_larger = abs(before) >= abs(value)
            larger = before if before_is_larger else value
            smaller = value if before_is_larger else before
            error = less[step] + ((larger - after) + smaller)
            error = 0.0 if abs(after) == np.inf else error
            sum_[step] = after if there[step] else before
            less[step] = error if there[step] else less[step]


@njit(cache=True, nogil=True)
def added(value: float, total: float, lost: float) -> tuple[float, float]:
    """A Neumaier step: the new sum, and what rounding has taken from it so far."""
    after = total + value
    if abs(after) == np.inf:
        return after, 0.0
    if abs(total) >= abs(value):
        return after, lost + ((total - after) + value)
    return after, lost + ((value - after) + total)


@njit(cache=True, nogil=True)
def _means(values: Any, present: Any, of: Any, mean: Any, lost: Any, count: Any) -> None:
    """`mean` holds the sum until it would overflow."""
    carried = np.zeros(mean.shape, np.bool_)
    for row in range(values.shape[0]):
        group = of[row]
        for step in range(values.shape[1]):
            if not present[row, step]:
                continue
            value = values[row, step]
            count[group, step] += 1.0
            many = count[group, step]
            if many == 1.0:
                mean[group, step] = value
                continue
            if not carried[group, step]:
                after, less = added(value, mean[group, step], lost[group, step])
                if abs(after) != np.inf:
                    mean[group, step], lost[group, step] = after, less
                    continue
                carried[group, step] = True
                mean[group, step] /= many - 1.0
                lost[group, step] /= many - 1.0
            part = (many - 1.0) / many
            mean[group, step], lost[group, step] = added(
                value / many, part * mean[group, step], part * lost[group, step]
            )
    for group in range(mean.shape[0]):
        for step in range(mean.shape[1]):
            if carried[group, step]:
                mean[group, step] += lost[group, step]
            elif count[group, step] > 0.0:
                many = count[group, step]
                mean[group, step] = mean[group, step] / many + lost[group, step] / many


@njit(cache=True, nogil=True)
def _maxima(values: Any, present: Any, of: Any, found: Any) -> None:
    for row in range(values.shape[0]):
        best, own, there = found[of[row]], values[row], present[row]
        for step in range(values.shape[1]):
            value, so_far = own[step], best[step]
            taken = there[step] & ((so_far < value) | (so_far != so_far))
            best[step] = value if taken else so_far


@njit(cache=True, nogil=True)
def _minima(values: Any, present: Any, of: Any, found: Any) -> None:
    for row in range(values.shape[0]):
        best, own, there = found[of[row]], values[row], present[row]
        for step in range(values.shape[1]):
            value, so_far = own[step], best[step]
            taken = there[step] & ((so_far > value) | (so_far != so_far))
            best[step] = value if taken else so_far


@njit(cache=True, nogil=True)
def _variances(values: Any, present: Any, of: Any, squares: Any, mean: Any, count: Any) -> None:
    for row in range(values.shape[0]):
        group = of[row]
        for step in range(values.shape[1]):
            if not present[row, step]:
                continue
            value = values[row, step]
            count[group, step] += 1.0
            if count[group, step] == 1.0:
                mean[group, step] = value
                squares[group, step] = 0.0 if abs(value) < np.inf else np.nan
                continue
            away = value - mean[group, step]
            mean[group, step] += away / count[group, step]
            squares[group, step] += away * (value - mean[group, step])
