"""Add the columns of metric points: the digest of their series, their numbers as stored, their metadata.

Series: two points belong to one series if they are equal in metric name, type, unit, temporality and monotonic, in the
attributes of point, resource and scope with their types, and in the scope's name and version. Of points that Prometheus
sent, only name and labels count, because it sends metadata only at times. The digest of 64 bits is the same on every
worker and in every release, in any order of the attributes; docs/formats/segments.md states how it is made.

Numbers keep every bit. A number is in `int_value` if all numbers of its series in the segment are whole: integers, or
doubles that are integers of at most 2^53, except -0.0. Counters are then small differences, which take a byte each. If
one of them is not whole, all are doubles in `value`, except an integer that no double holds. `is_int` tells whether the
number was sent as an integer.

Equal sets of attributes are stored once: rows share one owner for each distinct set, in the order of first occurrence,
and each owner has the digest of its set. Two digests, the second with a seed that no sender can foresee, make 128 bits
together, so that two different sets are never taken for one.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc

from lakerunner.kernel_cache import njit
from lakerunner.model.prometheus import METADATA_ENTRY
from lakerunner.model.signal import SCOPES
from lakerunner.pipeline.read.memory import PADDING, digest, digest_slices, fold_product, load, mix_into
from lakerunner.pipeline.read.names import slices_of_names
from lakerunner.pipeline.read.otlp_metrics import METADATA
from lakerunner.pipeline.read.rows import Attached, CodedColumn, NumberColumn, Rows
from lakerunner.pipeline.read.walk import ARRAY, BOOL, BYTES, DOUBLE, INT, KVLIST, STRING
from lakerunner.pipeline.read.wire import read_varint
from lakerunner.pipeline.steps.arrow_columns import padded_texts
from lakerunner.pipeline.steps.json_text import stack
from lakerunner.pipeline.steps.take import flattened, map_array, take_json

_DOUBLE, _INT = 1, 2  # what a number was sent as, and what it is stored as
_WHOLE = 2.0**53


def add_metadata(rows: Rows) -> Rows:
    """Add metadata: one map for each metric that has any, instead of one for each of its points."""
    if METADATA not in rows.attached:
        return rows
    shared, _ = share_owners(rows.attached[METADATA], rows.data)
    everyone = np.arange(len(shared.first) - 1, dtype=np.int32)
    pairs, offsets = flattened(shared.first, everyone)
    maps = map_array(shared, pairs, offsets, rows.data)
    codes = np.where(np.diff(shared.first) > 0, everyone, np.int32(-1))
    attached = {name: one for name, one in rows.attached.items() if name != METADATA}
    return replace(rows, attached=attached).plus(**{METADATA: CodedColumn(codes, maps, shared.owner)})


class StoredNumbers(NamedTuple):
    """For each row: what its number was sent as, the number as both types, what it is stored as, and the stored
    values."""

    came: Any
    doubles: Any
    ints: Any
    stored: Any
    values: Any
    whole: Any


def place_numbers(rows: Rows, orders: Sequence[Any]) -> Rows:
    """Add value and int_value as these segments store them, and is_int."""
    came, bits = np.zeros(rows.count, np.int8), np.zeros(rows.count, np.uint64)
    for name, kind in (("value", _DOUBLE), ("int_value", _INT)):
        if name in rows.columns:
            column = rows.column(name, NumberColumn)
            chosen = slice(None) if column.valid is None else column.valid
            came[chosen] = kind
            bits[chosen] = column.values.view(np.uint64)[chosen]
    zeros = np.zeros(rows.count, np.uint64)
    placed = StoredNumbers(came, *_as_both(bits), came.copy(), *_as_both(zeros))
    series = rows.column("series", NumberColumn).values
    for order in orders:
        _place(order, series, placed)
    return rows.plus(
        value=NumberColumn(placed.values, placed.stored == _DOUBLE),
        int_value=NumberColumn(placed.whole, placed.stored == _INT),
        is_int=NumberColumn(came == _INT, came != 0),
    )


def _as_both(bits: Any) -> tuple[Any, Any]:
    return bits.view(np.float64), bits.view(np.int64)


@njit(cache=True)
def _is_whole(number: Any) -> Any:
    if not abs(number) <= _WHOLE or np.floor(number) != number:
        return False
    return number != 0.0 or not np.signbit(number)


@njit(cache=True)
def _fits(number: Any) -> Any:
    """Return whether a double holds this integer exactly."""
    double = np.float64(number)
    return abs(double) < 2.0**63 and np.int64(double) == number


@njit(cache=True)
def _place(order: Any, series: Any, placed: StoredNumbers) -> Any:
    """Decide for each run of one series in this order, and store its numbers."""
    start = 0
    while start < len(order):
        stop, all_whole = start, True
        while stop < len(order) and series[order[stop]] == series[order[start]]:
            row = order[stop]
            if placed.came[row] == _DOUBLE and not _is_whole(placed.doubles[row]):
                all_whole = False
            stop += 1
        for place in range(start, stop):
            row = order[place]
            if placed.came[row] == _DOUBLE:
                if all_whole:
                    placed.stored[row] = _INT
                    placed.whole[row] = np.int64(placed.doubles[row])
                else:
                    placed.values[row] = placed.doubles[row]
            elif placed.came[row] == _INT:
                if all_whole or not _fits(placed.ints[row]):
                    placed.whole[row] = placed.ints[row]
                else:
                    placed.stored[row] = _DOUBLE
                    placed.values[row] = np.float64(placed.ints[row])
        start = stop


# Stored digests depend on these: they never change.
_START, _MIX, TEXT_SEED = np.uint64(0x73657269657331), np.uint64(0x9FB21C651E98DF25), np.uint64(0x74657874)
_SERIES_TEXTS = ("metric_name", "metric_type", "unit", "temporality", "scope_name", "scope_version")
_PROMETHEUS_TEXTS = ("metric_name", "metric_type")
_NO_TEXT = np.uint64(0)


def identify_series(rows: Rows) -> Rows:
    """Add series; from here on rows with equal attributes share their owner."""
    series = np.full(rows.count, _START)
    for name in _SERIES_TEXTS:
        if name in rows.columns and (name in _PROMETHEUS_TEXTS or not rows.prometheus):
            column = rows.column(name, CodedColumn)
            digests = digest_slices(*padded_texts(column.values), TEXT_SEED)
            if rows.prometheus and name == "metric_type":
                # A metadata entry is not of the series that has its name.
                digests[pc.not_equal(column.values, METADATA_ENTRY).to_numpy(zero_copy_only=False)] = _NO_TEXT
            table = np.append(digests, _NO_TEXT)  # a code of -1 is the last one
            by_owner = table[column.codes]
            mix_into(series, by_owner if column.owner is None else by_owner[column.owner], _MIX)
        else:
            mix_into(series, np.full(rows.count, _NO_TEXT), _MIX)
    mix_into(series, _monotonic(rows), _MIX)
    attached = dict(rows.attached)
    for scope in SCOPES:
        attached[scope.map_column], digests = share_owners(attached[scope.map_column], rows.data)
        mix_into(series, digests[attached[scope.map_column].owner], _MIX)
    return replace(rows, attached=attached).plus(series=NumberColumn(series.view(np.int64)))


def _monotonic(rows: Rows) -> Any:
    """Return 0 if unset, else 1 (false) or 2 (true)."""
    if rows.prometheus or "monotonic" not in rows.columns:
        return np.zeros(rows.count, np.uint64)
    column = rows.column("monotonic", NumberColumn)
    valid = np.ones(len(column.values), np.bool_) if column.valid is None else column.valid
    said = np.where(valid, np.where(column.values, 2, 1), 0).astype(np.uint64)
    return said if column.owner is None else said[column.owner]


# Stored digests depend on these: they never change.
KEY_SEED, VALUE_SEED = np.uint64(0x6B657973), np.uint64(0x76616C75)
PAIR_MIX, NUMBER_MIX = np.uint64(0xD6E8FEB86659FD93), np.uint64(0xA24BAED4963EE407)


def share_owners(attached: Attached, data: Any) -> tuple[Attached, Any]:
    """Return (the attributes with equal sets shared, the digest of each owner)."""
    secret = np.uint64(secrets.randbits(63))
    nested = _digest_nested(attached.values, data, secret)
    at, size = slices_of_names(attached.keys)
    keys = digest_slices(data, at, size, KEY_SEED)
    first = np.ascontiguousarray(attached.first)
    digests = _digest_owners(data, attached.values, first, keys, nested, secret)
    group, kept = _group(digests)
    values, first = _gather(attached.values, first, kept)
    owner = group if attached.owner is None else group[attached.owner]
    return Attached(values, attached.keys, first, owner), digests[kept, 0]


def _digest_nested(values: Any, data: Any, secret: Any) -> Any:
    """Return both digests of each array or kvlist, in their order: of typed JSON, because the wire has many forms of
    it."""
    nested = values[(values["kind"] == ARRAY) | (values["kind"] == KVLIST)]
    if not len(nested):
        return np.zeros((0, 2), np.uint64)
    kind, at, size = (np.ascontiguousarray(nested[field]) for field in ("kind", "at", "size"))
    offsets, texts, _ = take_json(data, kind, at, size, stack())
    padded = np.concatenate([texts, np.zeros(PADDING, np.uint8)])
    sizes = np.diff(offsets)
    return np.stack([digest_slices(padded, offsets, sizes, seed) for seed in (VALUE_SEED, secret)], axis=1)


@njit(cache=True)
def _digest_owners(data: Any, values: Any, first: Any, keys: Any, nested: Any, secret: Any) -> Any:
    """Return the (public, secret) digest of each owner's set: the sum of its pairs' digests, so that their order does
    not count. The second of two equal keys has another digest than the first, because their order has a meaning."""
    count = len(first) - 1
    out = np.zeros((count, 2), np.uint64)
    seen, times = np.full(len(keys), -1, np.int32), np.zeros(len(keys), np.int32)
    place = 0
    for owner in range(count):
        for index in range(first[owner], first[owner + 1]):
            value = values[index]
            key, kind, at = value.key, value.kind, np.int64(value.at)
            times[key] = times[key] + 1 if seen[key] == owner else 0
            seen[key] = owner
            if kind in (STRING, BYTES):
                one = digest(data, at, np.int64(value.size), VALUE_SEED)
                other = digest(data, at, np.int64(value.size), secret)
            elif kind in (ARRAY, KVLIST):
                one, other = nested[place, 0], nested[place, 1]
                place += 1
            else:
                number = np.uint64(0)
                if kind == DOUBLE:
                    number = load(data, at)
                elif kind in (INT, BOOL):
                    number, _ = read_varint(data, at)
                    if kind == BOOL:
                        number = np.uint64(number != 0)
                one = fold_product(number ^ VALUE_SEED, NUMBER_MIX)
                other = fold_product(number ^ secret, NUMBER_MIX)
            mark = fold_product(keys[key] ^ np.uint64(kind | times[key] << 3), PAIR_MIX)
            out[owner, 0] += fold_product(mark ^ one, PAIR_MIX)
            out[owner, 1] += fold_product(mark ^ other, PAIR_MIX)
    return out


@njit(cache=True)
def _group(digests: Any) -> Any:
    """Return (the number of each owner's set, the first owner of each set)."""
    count = len(digests)
    size = 16
    while size < 2 * count:
        size *= 2
    table = np.full(size, -1, np.int32)
    group, kept = np.empty(count, np.int32), np.empty(count, np.int32)
    known = 0
    for owner in range(count):
        place = np.int64(digests[owner, 1] & np.uint64(size - 1))
        while True:
            number = table[place]
            if number < 0:
                table[place] = known
                kept[known] = owner
                group[owner] = known
                known += 1
                break
            same = kept[number]
            if digests[same, 1] == digests[owner, 1] and digests[same, 0] == digests[owner, 0]:
                group[owner] = number
                break
            place = (place + 1) & (size - 1)
    return group, kept[:known].copy()


@njit(cache=True)
def _gather(values: Any, first: Any, kept: Any) -> Any:
    """Return (values, first) of these owners only."""
    total = 0
    for owner in kept:
        total += first[owner + 1] - first[owner]
    out, starts = np.empty(total, values.dtype), np.empty(len(kept) + 1, np.int32)
    at = 0
    for place in range(len(kept)):
        starts[place] = at
        for index in range(first[kept[place]], first[kept[place] + 1]):
            out[at] = values[index]
            at += 1
    starts[len(kept)] = at
    return out, starts
