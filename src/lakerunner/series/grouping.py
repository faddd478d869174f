"""Group series by labels, and fold the series of each group: for aggregations and for match groups of binary operators.

Comes in: the labels of series, then values and presence [series, steps]. Goes out: the group of each series, the labels
of each group, and arrays [groups, steps]. What always holds: groups are numbered in the order of their first series; a
name that is only marked to be dropped still counts. Kernels take the series of a group in the order of the rows with a
fixed order of float operations, so that the bits do not depend on the memory layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lakerunner.kernel_cache import njit
from lakerunner.model.labels import NAME, NO_LABELS, Labels
from lakerunner.model.lru import LruCache
from lakerunner.series.arrays import Bools, Floats, Ints

_MAX_SERIES = 2_000_000  # series of all remembered groupings; a dashboard repeats few groupings over the same series


@dataclass(frozen=True)
class Groups:
    """`indexes` holds the group of each series, `labels` the labels of each group."""

    indexes: Ints
    labels: Sequence[Labels]

    def __len__(self) -> int:
        return len(self.labels)


# Series are recognized by identity: sequences of labels are never written to, and a selector gives the same object from
# query to query. An entry holds the sequence, so that its id cannot be reused.
_CACHE: LruCache[tuple[Sequence[Labels], Groups]] = LruCache(_MAX_SERIES)


def group_series(labels: Sequence[Labels], names: tuple[str, ...], without: bool) -> Groups:
    """Group series by these labels, or by all but these and the metric's name."""
    if not names and not without:
        return Groups(np.zeros(len(labels), np.int64), [NO_LABELS] if labels else [])
    key = (id(labels), names, without)
    known = _CACHE.get(key)
    if known is None:
        known = labels, _compute_groups(labels, frozenset(names), without)
        _CACHE.put(key, known, 1 + len(labels))
    return known[1]


def _compute_groups(labels: Sequence[Labels], names: frozenset[str], without: bool) -> Groups:
    if len(names) == 1 and not without:
        return _group_by_one_label(labels, *names)
    found: dict[Labels, int] = {}
    gone = names | {NAME}
    if without:
        own = (tuple([pair for pair in one if pair[0] not in gone]) for one in labels)
    else:
        own = (tuple([pair for pair in one if pair[0] in names]) for one in labels)
    of = [found.setdefault(one, len(found)) for one in own]
    return Groups(np.array(of, np.int64), list(found))


def _group_by_one_label(labels: Sequence[Labels], name: str) -> Groups:
    """Group by one label. This is the usual case and takes half the time or less: no tuple is built per series."""
    found: dict[tuple[str, str] | None, int] = {}
    of = []
    for one in labels:
        for pair in one:
            if pair[0] == name:
                of.append(found.setdefault(pair, len(found)))
                break
        else:
            of.append(found.setdefault(None, len(found)))
    return Groups(np.array(of, np.int64), [(pair,) if pair else NO_LABELS for pair in found])


def counts(present: Bools, of: Ints, groups: int) -> Floats:
    """Count the samples of each group."""
    found = np.zeros((groups, present.shape[1]))
    _counts(np.ascontiguousarray(present), of, found)
    return found


def sums(values: Floats, present: Bools, of: Ints, groups: int) -> tuple[Floats, Floats, Floats]:
    """Return the sum of each group, its rounding error (Neumaier) and the number of samples."""
    shape = (groups, values.shape[1])
    total, lost = np.zeros(shape), np.zeros(shape)
    _sums(np.ascontiguousarray(values), np.ascontiguousarray(present), of, total, lost)
    return total, lost, counts(present, of, groups)


def means(values: Floats, present: Bools, of: Ints, groups: int) -> Floats:
    """Return the mean of each group. From the sample on that would make the sum overflow, a running mean is carried
    along."""
    shape = (groups, values.shape[1])
    mean, lost, count = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    _means(np.ascontiguousarray(values), np.ascontiguousarray(present), of, mean, lost, count)
    return mean


def extremes(values: Floats, present: Bools, of: Ints, groups: int, *, largest: bool) -> tuple[Floats, Bools]:
    """Return the largest or smallest value of each group (NaN only if there is nothing else), and where there is
    one."""
    found = np.full((groups, values.shape[1]), np.nan)
    kernel = _maxima if largest else _minima
    kernel(np.ascontiguousarray(values), np.ascontiguousarray(present), of, found)
    return found, counts(present, of, groups) > 0


def variances(values: Floats, present: Bools, of: Ints, groups: int) -> tuple[Floats, Floats]:
    """Return the population variance of each group, and the number of samples."""
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
    # No branches and few arrays, so that LLVM vectorizes the loop: absent samples add 0 by selection.
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
            # inf - inf would leave NaN in the error, and with it in the sum.
            error = 0.0 if abs(after) == np.inf else error
            sum_[step] = after if there[step] else before
            less[step] = error if there[step] else less[step]


@njit(cache=True, nogil=True)
def add_compensated(value: float, total: float, lost: float) -> tuple[float, float]:
    """Add a value in Neumaier's way: return the new sum and the rounding error so far."""
    after = total + value
    if abs(after) == np.inf:
        return after, 0.0
    if abs(total) >= abs(value):
        return after, lost + ((total - after) + value)
    return after, lost + ((value - after) + total)


@njit(cache=True, nogil=True)
def _means(values: Any, present: Any, of: Any, mean: Any, lost: Any, count: Any) -> None:
    """Compute running means. `mean` holds the sum until that would overflow."""
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
                after, less = add_compensated(value, mean[group, step], lost[group, step])
                if abs(after) != np.inf:
                    mean[group, step], lost[group, step] = after, less
                    continue
                carried[group, step] = True
                mean[group, step] /= many - 1.0
                lost[group, step] /= many - 1.0
            # Dividing before adding keeps the mean finite. This is the reference implementation's order: do not factor
            # it out.
            part = (many - 1.0) / many
            mean[group, step], lost[group, step] = add_compensated(
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
            taken = there[step] & ((so_far < value) | (so_far != so_far))  # NaN is replaced by anything
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
                # The variance of an infinite value is NaN, which Welford's update would miss for the first one.
                squares[group, step] = 0.0 if abs(value) < np.inf else np.nan
                continue
            away = value - mean[group, step]
            mean[group, step] += away / count[group, step]
            squares[group, step] += away * (value - mean[group, step])
