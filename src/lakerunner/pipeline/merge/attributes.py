"""Attributes of a scope, moved between columns and map to where the merged segment has them.

Comes in: a batch of an input's map column and the columns that it has of the scope. Goes out: the map and the columns
that the merged segment has. What always holds: an attribute is in one of both, and of several values of a key the first
is the column's if it is of the column's kind, so that equal rows are equal however their segments had shredded them.

Values that move are few: of a key that has a column in one segment and is rare in another, or of other kinds there.
They are moved row by row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.model.signal import OVERFLOW
from lakerunner.model.typed_json import KeyValues, Value, decode_value, encode_value
from lakerunner.pipeline.read.walk import ARRAY, BOOL, BYTES, DOUBLE, INT, KVLIST, NULL, STRING
from lakerunner.pipeline.steps.shred import COLUMN_TYPES

_TEXTS_OF_JSON = (ARRAY, KVLIST)
_Pairs = list[tuple[str, str]]


def move(
    maps: pa.Array, given: Mapping[str, pa.Array], given_kinds: Mapping[str, int], kinds: Mapping[str, int]
) -> tuple[pa.Array, dict[str, pa.Array]]:
    """(map, columns): `given` are the input's columns and `kinds` those of the merged segment, both by key. Columns
    that the input has nothing for are not among them."""
    stay = {key: array for key, array in given.items() if kinds.get(key) == given_kinds[key]}
    leave = {key: array for key, array in given.items() if key not in stay and array.null_count < len(array)}
    rows = np.union1d(_with_values(leave), _with_entries(maps, stay, kinds))
    if len(rows) == 0:
        return maps, stay
    chosen = pa.array(rows)
    pairs: list[_Pairs] = maps.take(chosen).to_pylist()
    for key in sorted(leave, reverse=True):
        _prepend(pairs, key, leave[key].take(chosen).to_pylist(), given_kinds[key])
    columns = dict(stay)
    for key in sorted({key for row in pairs for key, _ in row} & kinds.keys()):
        taken = _taken(pairs, key, kinds[key], stay[key].take(chosen).is_null().to_pylist() if key in stay else None)
        if taken is not None:
            column_type = COLUMN_TYPES[kinds[key]][1]
            before = _plain(stay[key]) if key in stay else pa.nulls(len(maps), column_type)
            fresh = pa.array(taken, column_type)
            moved = rows[fresh.is_valid().to_numpy(zero_copy_only=False)]
            columns[key] = _patched(before, moved, fresh.drop_null())
    return _patched(maps, rows, pa.array(pairs, OVERFLOW)), columns


def kind_of(text: str) -> int:
    """The kind of the value that this typed JSON is."""
    match text[:1]:
        case '"':
            return STRING
        case "t" | "f":
            return BOOL
        case "n":
            return NULL
        case "[":
            return ARRAY
        case "{":
            value = decode_value(text)
            return KVLIST if isinstance(value, KeyValues) else BYTES if isinstance(value, bytes) else DOUBLE
        case _:
            return DOUBLE if any(sign in text for sign in ".eE") else INT


def _with_values(leave: Mapping[str, pa.Array]) -> Any:
    """The rows that have a value in one of these columns."""
    valid = [array.is_valid().to_numpy(zero_copy_only=False) for array in leave.values()]
    return np.flatnonzero(np.logical_or.reduce(valid)) if valid else np.zeros(0, np.int64)


def _with_entries(maps: pa.Array, stay: Mapping[str, pa.Array], kinds: Mapping[str, int]) -> Any:
    """The rows whose map has a key that is a column of the merged segment, which is null there."""
    offsets = maps.offsets.to_numpy()
    keys = maps.keys.slice(offsets[0], offsets[-1] - offsets[0])
    if len(keys) == 0 or not kinds:
        return np.zeros(0, np.int64)
    columns = sorted(kinds)
    place = pc.index_in(keys, pa.array(columns, pa.string())).fill_null(-1).to_numpy(zero_copy_only=False)
    entries = np.flatnonzero(place >= 0)
    rows = np.searchsorted(offsets, entries + offsets[0], "right") - 1
    free = np.ones(len(entries), np.bool_)
    for number in np.unique(place[entries]).tolist():
        if columns[number] in stay:
            these = place[entries] == number
            free[these] = stay[columns[number]].is_null().to_numpy(zero_copy_only=False)[rows[these]]
    return np.unique(rows[free])


def _prepend(pairs: list[_Pairs], key: str, values: list[Any], kind: int) -> None:
    """Before the others of its key: what stood in a column is the first."""
    for row, value in zip(pairs, values, strict=True):
        if value is not None:
            row.insert(0, (key, value if kind in _TEXTS_OF_JSON else encode_value(value)))


def _taken(pairs: list[_Pairs], key: str, kind: int, is_free: list[bool] | None) -> list[Value] | None:
    """Of each row the value of its first entry of this key, which is taken out of the map, where it is of this kind and
    the column is free. None: no row has one."""
    values: list[Value] = [None] * len(pairs)
    found = False
    for number, row in enumerate(pairs):
        if is_free is not None and not is_free[number]:
            continue
        at = next((at for at, (name, _) in enumerate(row) if name == key), None)
        if at is not None and kind_of(row[at][1]) == kind:
            text = row.pop(at)[1]
            values[number] = text if kind in _TEXTS_OF_JSON else decode_value(text)
            found = True
    return values if found else None


def _patched(array: pa.Array, rows: Any, fresh: pa.Array) -> pa.Array:
    """The array with other values in these rows."""
    place = np.arange(len(array))
    place[rows] = len(array) + np.arange(len(rows))
    return pa.concat_arrays([array, fresh]).take(pa.array(place))


def _plain(array: pa.Array) -> pa.Array:
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
