"""Which of the rows with equal sort keys are one that came twice.

Metrics and spans: rows that are equal in every column, for a series has one point at a time and a span id names one
span. Logs: rows of one place in one delivery; what has no delivery is never taken for the same, however equal.
Rollups: all, for a window of a series has one row. Of equal rows the last is kept (docs/formats/segments.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.model.signal import LOGS, METRICS, ROLLUPS, SCOPES, TRACES, SignalSpec
from lakerunner.pipeline.merge.digests import digest_rows

Columns = Mapping[str, pa.Array]
_NUMBERS = ("value", "int_value", "is_int")
_DELIVERY = ("delivery", "delivery_row")
_PREFIXES = tuple(scope.prefix for scope in SCOPES)


def kept(spec: SignalSpec, columns: Columns, order: Any, is_same: Any) -> Any:
    """The row numbers of `order`, without those that come again later. `is_same`: whether a row has the sort key of
    the one before it in this order."""
    if not is_same.any():
        return order
    is_candidate = is_same.copy()
    is_candidate[:-1] |= is_same[1:]
    places = np.flatnonzero(is_candidate)
    run = np.cumsum(~is_same)[places]
    digests, has_identity = identities(spec, columns, order[places])
    by_digest = np.lexsort((digests, run))
    comes_again = np.zeros(len(places), np.bool_)
    comes_again[by_digest[:-1]] = (np.diff(run[by_digest]) == 0) & (digests[by_digest[1:]] == digests[by_digest[:-1]])
    keep = np.ones(len(order), np.bool_)
    keep[places[comes_again & has_identity]] = False
    return order[keep]


def identities(spec: SignalSpec, columns: Columns, rows: Any) -> tuple[Any, Any]:
    """(digests, has_identity) of these rows: those of one sort key are the same row where the digests are equal, if
    they have an identity at all."""
    return _IDENTITIES[spec.table](columns, rows)


def _whole_rows(columns: Columns, rows: Any) -> tuple[Any, Any]:
    taken = _taken(columns, rows)
    return digest_rows((taken[name] for name in sorted(taken)), len(rows)), True


def _points(columns: Columns, rows: Any) -> tuple[Any, Any]:
    """A number stands in one of two columns, in another one in another segment: both count as what it came as."""
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


def _deliveries(columns: Columns, rows: Any) -> tuple[Any, Any]:
    if not all(name in columns for name in _DELIVERY):
        return np.zeros(len(rows), np.uint64), False
    taken = _taken({name: columns[name] for name in _DELIVERY}, rows)
    valid = [array.is_valid().to_numpy(zero_copy_only=False) for array in taken.values()]
    return digest_rows(taken.values(), len(rows)), np.logical_and.reduce(valid)


def _all_alike(_: Columns, rows: Any) -> tuple[Any, Any]:
    return np.zeros(len(rows), np.uint64), True


# By the spec's table.
_IDENTITIES: Mapping[str, Callable[[Columns, Any], tuple[Any, Any]]] = {
    LOGS.table: _deliveries,
    METRICS.table: _points,
    TRACES.table: _whole_rows,
    ROLLUPS.table: _all_alike,
}


def _taken(columns: Columns, rows: Any) -> dict[str, pa.Array]:
    places = pa.array(rows)
    return {name: _one_nan(name, array.take(places)) for name, array in columns.items()}


def _one_nan(name: str, array: pa.Array) -> pa.Array:
    """Of an attribute only a column keeps which NaN it is, and it may have been in the map."""
    if not pa.types.is_floating(array.type) or not name.startswith(_PREFIXES):
        return array
    return pc.if_else(pc.is_nan(array), float("nan"), array)
