"""Which of the rows with equal sort keys are one that came twice.

Comes in: rows in the order of a merge. Goes out: for each row whether it is kept, which the last of equal rows is
(docs/formats/segments.md). What tells rows apart is a function for each signal (pipeline/signals.py). Where a run of
equal sort keys is more than memory may hold, the digests of its rows go to unnamed files, those that can be equal to
one, so that memory holds a byte for each row of the run, and of one file at a time the digests that differ.

Metrics and spans: rows that are equal in every column, for a series has one point at a time and a span id names one
span. Logs: rows of one place in one delivery; what has no delivery is never taken for the same, however equal.
Rollups: all, for a bucket of a series has one row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from tempfile import TemporaryFile
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.model.signal import SCOPES
from lakerunner.pipeline.merge.digests import digest_rows

Columns = Mapping[str, pa.Array]
# (digests, has_identity) of these rows: those of one sort key are the same row where the digests are equal, if they
# have an identity at all.
Identify = Callable[[Columns, Any], tuple[Any, Any]]
_NUMBERS = ("value", "int_value", "is_int")
_DELIVERY = ("delivery", "delivery_row")
_PREFIXES = tuple(scope.prefix for scope in SCOPES)
_PAIR = np.dtype([("digest", np.uint64), ("place", np.int64)])
_FILES = 256  # at most, however many rows there are


def kept(identify: Identify, columns: Columns, order: Any, is_same: Any) -> Any:
    """The row numbers of `order`, without those that come again later. `is_same`: whether a row has the sort key of
    the one before it in this order."""
    if not is_same.any():
        return order
    is_candidate = is_same.copy()
    is_candidate[:-1] |= is_same[1:]
    places = np.flatnonzero(is_candidate)
    run = np.cumsum(~is_same)[places]
    digests, has_identity = identify(columns, order[places])
    by_digest = np.lexsort((digests, run))
    comes_again = np.zeros(len(places), np.bool_)
    comes_again[by_digest[:-1]] = (np.diff(run[by_digest]) == 0) & (digests[by_digest[1:]] == digests[by_digest[:-1]])
    keep = np.ones(len(order), np.bool_)
    keep[places[comes_again & has_identity]] = False
    return order[keep]


def kept_of_run(identities: Iterable[tuple[Any, Any]], rows: int, at_once: int) -> Any:
    """Of (digests, has_identity) of a run's rows. It has at most `rows`, of which about `at_once` are looked at
    together."""
    count = min(-(-rows // at_once), _FILES)
    with ExitStack() as stack:
        files: list[BinaryIO] = [stack.enter_context(TemporaryFile()) for _ in range(count)]
        keep = np.ones(_spilled(identities, files), np.bool_)
        for file in files:
            _strike(keep, file, at_once)
    return keep


def _spilled(identities: Iterable[tuple[Any, Any]], files: Sequence[BinaryIO]) -> int:
    """How many rows there are. What has no identity is never the same as another row."""
    rows = 0
    for digests, has_identity in identities:
        pairs = np.empty(len(digests), _PAIR)
        pairs["digest"] = digests
        pairs["place"] = np.arange(rows, rows + len(digests))
        rows += len(digests)
        number = np.where(has_identity, digests % np.uint64(len(files)), len(files))
        for place in np.unique(number[number < len(files)]).tolist():
            files[int(place)].write(pairs[number == place].tobytes())
    return rows


def _strike(keep: Any, file: BinaryIO, at_once: int) -> None:
    """The rows of this file that come again are not kept."""
    file.seek(0)
    last = np.empty(0, _PAIR)  # of each digest so far
    while data := file.read(at_once * _PAIR.itemsize):
        pairs = np.concatenate([last, np.frombuffer(data, _PAIR)])
        order = np.argsort(pairs["digest"], kind="stable")
        digests = pairs["digest"][order]
        again = order[:-1][digests[1:] == digests[:-1]]
        keep[pairs["place"][again]] = False
        last = np.delete(pairs, again)


def by_columns(columns: Columns, rows: Any) -> tuple[Any, Any]:
    """Identify spans: equal in every column."""
    taken = _taken(columns, rows)
    return digest_rows((taken[name] for name in sorted(taken)), len(rows)), True


def by_number(columns: Columns, rows: Any) -> tuple[Any, Any]:
    """Identify points: equal in every column. A number stands in one of two columns, in another one in another segment:
    both count as what it came as."""
    taken = _taken(columns, rows)
    number = [taken.pop(name, None) for name in _NUMBERS]
    arrays = [taken[name] for name in sorted(taken)]
    return digest_rows([*arrays, *_as_came(*number)], len(rows)), True


def _as_came(double: pa.Array | None, whole: pa.Array | None, is_int: pa.Array | None) -> list[pa.Array]:
    """Of each number (whether it came as an integer, the integer, the double)."""
    if is_int is None:
        return []
    double = pa.nulls(len(is_int), pa.float64()) if double is None else double
    whole = pa.nulls(len(is_int), pa.int64()) if whole is None else whole
    # An integer that stands as a double is one that a double holds, and the other way round.
    ints = pc.if_else(is_int, pc.coalesce(whole, pc.cast(double, pa.int64(), safe=False)), None)
    doubles = pc.if_else(is_int, None, pc.coalesce(double, pc.cast(whole, pa.float64(), safe=False)))
    return [is_int, ints, doubles]


def by_delivery(columns: Columns, rows: Any) -> tuple[Any, Any]:
    """Identify records: of one place in one delivery."""
    if not all(name in columns for name in _DELIVERY):
        return np.zeros(len(rows), np.uint64), False
    taken = _taken({name: columns[name] for name in _DELIVERY}, rows)
    valid = [array.is_valid().to_numpy(zero_copy_only=False) for array in taken.values()]
    return digest_rows(taken.values(), len(rows)), np.logical_and.reduce(valid)


def by_key(_: Columns, rows: Any) -> tuple[Any, Any]:
    """Identify rollups: a bucket of a series has one row."""
    return np.zeros(len(rows), np.uint64), True


def _taken(columns: Columns, rows: Any) -> dict[str, pa.Array]:
    places = pa.array(rows)
    return {name: _one_nan(name, array.take(places)) for name, array in columns.items()}


def _one_nan(name: str, array: pa.Array) -> pa.Array:
    """Of an attribute only a column keeps which NaN it is, and it may have been in the map."""
    if not pa.types.is_floating(array.type) or not name.startswith(_PREFIXES):
        return array
    return pc.if_else(pc.is_nan(array), float("nan"), array)
