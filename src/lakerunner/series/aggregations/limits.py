"""limitk and limit_ratio: some of the series, whatever their values.

limitk takes the first k of each group, so that all series must be seen at once; limit_ratio those whose labels' hash
falls into the ratio: XXH64, seed 0, of each name and value after its length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit
from xxhash import xxh64_intdigest

from lakerunner.model.labels import Labels
from lakerunner.series.aggregations.aggregation import Aggregation, Parameter, groups_of
from lakerunner.series.aggregations.parameters import checked_count, checked_ratio
from lakerunner.series.expression import Aggregate, Kind
from lakerunner.series.notes import Notes
from lakerunner.series.values import Vector


def _first(node: Aggregate, vector: Vector, parameter: Parameter, _notes: Notes) -> Vector:
    wanted = checked_count(parameter)
    if wanted is None:
        return vector.rows([])
    groups = groups_of(node, vector)
    kept = np.zeros(vector.present.shape, bool)
    taken = np.zeros((len(groups), vector.present.shape[1]), np.int64)
    _take_first(np.ascontiguousarray(vector.present), groups.of, wanted, taken, kept)
    return replace(vector, present=kept).occupied()


@njit(cache=True, nogil=True)
def _take_first(present: Any, of: Any, wanted: Any, taken: Any, kept: Any) -> None:
    for row in range(present.shape[0]):
        so_far = taken[of[row]]
        for step in range(present.shape[1]):
            if present[row, step] and so_far[step] < wanted[step]:
                so_far[step] += 1
                kept[row, step] = True


def _share(node: Aggregate, vector: Vector, parameter: Parameter, notes: Notes) -> Vector:
    ratio = checked_ratio(node, parameter, notes)
    if ratio is None:
        return vector.rows([])
    place = (label_hashes(vector.labels).astype(np.float64) / float(2**64))[:, None]
    inside = np.where(ratio >= 0, place < ratio, place >= 1.0 + ratio)
    return replace(vector, present=vector.present & inside).occupied()


def label_hashes(labels: Sequence[Labels]) -> npt.NDArray[np.uint64]:
    written = (b"".join(map(_written, own)) for own in labels)
    return np.fromiter(map(xxh64_intdigest, written), np.uint64, len(labels))


def _written(pair: tuple[str, str]) -> bytes:
    name, value = (text.encode() for text in pair)
    return _length(len(name)) + name + _length(len(value)) + value


def _length(size: int) -> bytes:
    return bytes([size]) if size < 255 else b"\xff" + size.to_bytes(3, "little")


LIMITK = Aggregation("limitk", _first, parameter=Kind.SCALAR)
LIMIT_RATIO = Aggregation("limit_ratio", _share, parameter=Kind.SCALAR)
