"""topk, bottomk, limitk and limit_ratio: keep some of the group's own series.

topk and bottomk choose by value at each step and ignore histograms. The k are found with a heap that moves exactly as
Go's container/heap does, row by row: that decides which of equal values stay. The series of an instant come out by
value, equal ones in the order of the heap. limitk keeps the first k of each group, so that it needs all series at once;
limit_ratio those whose labels' hash falls into the ratio: XXH64, seed 0, of each name and value after its length.

Split of topk and bottomk: a part keeps its own k and all that equal the last of them; the k of those are the k of all.
If more than k are as good as the last, only the order of all rows decides which stay: NotSplit, as with a k that is not
a literal number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from xxhash import xxh64_intdigest

from lakerunner.kernel_cache import njit
from lakerunner.model.labels import Labels
from lakerunner.series.aggregations.aggregation import (
    Aggregation,
    NotSplit,
    Parameter,
    Split,
    checked_count,
    checked_ratio,
    groups_of,
    histograms_in,
)
from lakerunner.series.arrays import Bools, Ints
from lakerunner.series.expression import Aggregate, Kind, Number, bare
from lakerunner.series.notes import Misfit, Notes
from lakerunner.series.values import Partial, Scalar, Vector


def _topk(node: Aggregate, vector: Vector, parameter: Parameter, notes: Notes) -> Vector:
    wanted = checked_count(parameter)
    if wanted is None:
        return vector.rows([])
    floats = _floats(node, vector, wanted, notes)
    return _choose(vector, *_kept(node, vector, floats, wanted))


def _floats(node: Aggregate, vector: Vector, wanted: Ints, notes: Notes) -> Bools:
    histograms = histograms_in(vector)
    if histograms is None:
        return vector.present
    if histograms[:, wanted >= 1].any():
        notes.report(Misfit.HISTOGRAMS_IGNORED, node.span, op=node.op)
    return vector.present & ~histograms


def _kept(node: Aggregate, vector: Vector, floats: Bools, wanted: Ints, *, equals: bool = False) -> tuple[Bools, Ints]:
    """Return which samples stay, and the rows of the last step in the order of the result. `equals`: keep all that are
    as good as the last of the k."""
    ranked = vector.values if node.op == "topk" else -vector.values
    groups = groups_of(node, vector)
    by_group = np.argsort(groups.indexes, kind="stable")
    starts = np.searchsorted(groups.indexes[by_group], np.arange(len(groups) + 1))
    kept = np.zeros(floats.shape, bool)
    order = np.empty(len(vector), np.int64)
    many = _keep_largest(
        np.ascontiguousarray(ranked), np.ascontiguousarray(floats), (by_group, starts), wanted, equals, kept, order
    )
    return kept, order[:many]


def _choose(vector: Vector, kept: Bools, order: Ints) -> Vector:
    chosen = replace(vector, present=kept, histograms=None)
    return chosen.occupied() if kept.shape[1] > 1 else chosen.rows(order)


# ---- the split


def _topk_partial(node: Aggregate, vector: Vector, notes: Notes) -> Partial:
    """Return the series that may be among the k as the groups of the partial."""
    wanted = _literal_k(node, vector)
    if wanted is None:
        candidates = vector.rows([])
    else:
        floats = _floats(node, vector, wanted, notes)
        kept, _ = _kept(node, vector, floats, wanted, equals=True)
        candidates = replace(vector, present=kept, histograms=None).occupied()
    present = candidates.present.astype(float)
    dropped = np.broadcast_to(candidates.drop_name[:, None], present.shape).astype(float)
    return Partial(candidates.labels, {"values": candidates.values, "present": present, "dropped": dropped})


def _fold_topk(node: Aggregate, partials: Sequence[Partial], _notes: Notes) -> Vector:
    vector = Vector(
        [labels for one in partials for labels in one.labels],
        np.concatenate([one.arrays["values"] for one in partials]),
        np.concatenate([one.arrays["present"] for one in partials]) != 0,
        drop_name=np.any(np.concatenate([one.arrays["dropped"] for one in partials]), axis=1),
    )
    vector = vector.rows(sorted(range(len(vector)), key=vector.labels.__getitem__))
    wanted = _literal_k(node, vector)
    if wanted is None:
        raise NotSplit(f"the k of {node.op} is not written as a number")
    kept, order = _kept(node, vector, vector.present, wanted)
    as_good, _ = _kept(node, vector, vector.present, wanted, equals=True)
    if (as_good & ~kept).any():
        raise NotSplit(f"more than k values of {node.op} are as good as the last of them")
    return _choose(vector, kept, order)


def _literal_k(node: Aggregate, vector: Vector) -> Ints | None:
    """Return the k at each step if the text has it as a number."""
    given = None if node.parameter is None else bare(node.parameter)
    if not isinstance(given, Number):
        return None
    steps = vector.values.shape[1]
    wanted = checked_count(Scalar(np.full(steps, given.value)))
    return np.zeros(steps, np.int64) if wanted is None else wanted


# ---- kernels


@njit(cache=True, nogil=True)
def _keep_largest(values: Any, present: Any, members: Any, wanted: Any, equals: Any, kept: Any, order: Any) -> int:
    """Keep the k best rows of each group. The rows of a group are members[0][members[1][group] : members[1][group +
    1]]."""
    rows, starts = members
    heap = np.empty(len(rows), np.int64)
    many = 0
    for step in range(values.shape[1]):
        column = values[:, step]
        many = 0
        for group in range(len(starts) - 1):
            size = 0
            for place in range(starts[group], starts[group + 1]):
                row = rows[place]
                if not present[row, step]:
                    continue
                if size < wanted[step]:
                    heap[size] = row
                    _rise(heap, size, column)
                    size += 1
                elif size > 0 and _is_better(column[row], column[heap[0]]):
                    heap[0] = row
                    _sink(heap, size, column)
            if size == 0:
                continue
            worst = column[heap[0]]
            for place in range(size):
                kept[heap[place], step] = True
            if equals:
                for place in range(starts[group], starts[group + 1]):
                    row = rows[place]
                    if present[row, step] and not _is_better(worst, column[row]):
                        kept[row, step] = True
            _sort_heap(heap, size, column)
            order[many : many + size] = heap[:size]
            many += size
    return many


@njit(cache=True, nogil=True)
def _is_better(one: float, other: float) -> bool:
    return other < one or (np.isnan(other) and not np.isnan(one))


@njit(cache=True, nogil=True)
def _is_less(one: float, other: float) -> bool:
    # NaN is less than everything, itself included. That is Go's order too: it decides where several NaN end up.
    return np.isnan(one) or one < other


@njit(cache=True, nogil=True)
def _rise(heap: Any, place: int, column: Any) -> None:
    while place > 0:
        parent = (place - 1) // 2
        if not _is_less(column[heap[place]], column[heap[parent]]):
            return
        heap[place], heap[parent] = heap[parent], heap[place]
        place = parent


@njit(cache=True, nogil=True)
def _sink(heap: Any, size: int, column: Any) -> None:
    place = 0
    while 2 * place + 1 < size:
        child = 2 * place + 1
        if child + 1 < size and _is_less(column[heap[child + 1]], column[heap[child]]):
            child += 1
        if not _is_less(column[heap[child]], column[heap[place]]):
            return
        heap[place], heap[child] = heap[child], heap[place]
        place = child


@njit(cache=True, nogil=True)
def _sort_heap(heap: Any, size: int, column: Any) -> None:
    """Sort the largest first, NaN last; equal ones keep their order."""
    keys = np.empty(size)
    for place in range(size):
        value = column[heap[place]]
        keys[place] = np.inf if np.isnan(value) else -value
    nans = np.isnan(column[heap[:size]])
    by_value = np.argsort(keys, kind="mergesort")
    was = heap[:size].copy()
    filled = 0
    for last in range(2):
        for place in by_value:
            if nans[place] == (last == 1):
                heap[filled] = was[place]
                filled += 1


TOPK = Aggregation("topk", _topk, Split(_topk_partial, _fold_topk), Kind.SCALAR)
BOTTOMK = Aggregation("bottomk", _topk, Split(_topk_partial, _fold_topk), Kind.SCALAR)


def _limitk(node: Aggregate, vector: Vector, parameter: Parameter, _notes: Notes) -> Vector:
    wanted = checked_count(parameter)
    if wanted is None:
        return vector.rows([])
    groups = groups_of(node, vector)
    kept = np.zeros(vector.present.shape, bool)
    taken = np.zeros((len(groups), vector.present.shape[1]), np.int64)
    _take_first(np.ascontiguousarray(vector.present), groups.indexes, wanted, taken, kept)
    return replace(vector, present=kept).occupied()


@njit(cache=True, nogil=True)
def _take_first(present: Any, of: Any, wanted: Any, taken: Any, kept: Any) -> None:
    for row in range(present.shape[0]):
        so_far = taken[of[row]]
        for step in range(present.shape[1]):
            if present[row, step] and so_far[step] < wanted[step]:
                so_far[step] += 1
                kept[row, step] = True


def _limit_ratio(node: Aggregate, vector: Vector, parameter: Parameter, notes: Notes) -> Vector:
    ratio = checked_ratio(node, parameter, notes)
    if ratio is None:
        return vector.rows([])
    place = (label_hashes(vector.labels).astype(np.float64) / float(2**64))[:, None]
    inside = np.where(ratio >= 0, place < ratio, place >= 1.0 + ratio)
    return replace(vector, present=vector.present & inside).occupied()


def label_hashes(labels: Sequence[Labels]) -> npt.NDArray[np.uint64]:
    written = (b"".join(map(_encode_pair, own)) for own in labels)
    return np.fromiter(map(xxh64_intdigest, written), np.uint64, len(labels))


def _encode_pair(pair: tuple[str, str]) -> bytes:
    name, value = (text.encode() for text in pair)
    return _encode_length(len(name)) + name + _encode_length(len(value)) + value


def _encode_length(size: int) -> bytes:
    return bytes([size]) if size < 255 else b"\xff" + size.to_bytes(3, "little")


LIMITK = Aggregation("limitk", _limitk, parameter=Kind.SCALAR)
LIMIT_RATIO = Aggregation("limit_ratio", _limit_ratio, parameter=Kind.SCALAR)
