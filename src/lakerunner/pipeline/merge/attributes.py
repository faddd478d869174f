"""Attributes of a scope, moved between columns and map to where the merged segment has them.

Comes in: a batch of an input's map column and the columns that it has of the scope. Goes out: the map and the columns
that the merged segment has. What always holds: an attribute is in one of both, and of several values of a key the first
is the column's if it is of the column's kind, so that equal rows are equal however their segments had shredded them.

What moves are values of a key that has a column in one segment and is rare in another, or of other kinds there. Each
different one is written or read as typed JSON once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.model.typed_json import KeyValues, decode_value, encode_value
from lakerunner.pipeline.arrays import plain
from lakerunner.pipeline.read.walk import ARRAY, BOOL, BYTES, DOUBLE, INT, KVLIST, NULL, STRING
from lakerunner.pipeline.steps.shred import COLUMN_TYPES

_TEXTS_OF_JSON = (ARRAY, KVLIST)
# Texts that stand in JSON as they are, with quotes around them.
_UNQUOTED, _QUOTED = (rf'^{quote}[^"\\\x00-\x1f]*{quote}$' for quote in ("", '"'))


def move(
    maps: pa.Array, given: Mapping[str, pa.Array], given_kinds: Mapping[str, int], kinds: Mapping[str, int]
) -> tuple[pa.Array, dict[str, pa.Array]]:
    """(map, columns): `given` are the input's columns and `kinds` those of the merged segment, both by key. Columns
    that the input has nothing for are not among them."""
    columns = {key: array for key, array in given.items() if kinds.get(key) == given_kinds[key]}
    leave = {key: array for key, array in given.items() if key not in columns and array.null_count < len(array)}
    entries = _entries(maps)
    is_left = np.ones(len(entries.rows), np.bool_)
    for key, found in _firsts(entries, kinds).items():
        # What stood in a column is the first of its key, of whatever kind it was.
        is_free = _nulls(columns[key] if key in columns else leave.get(key))
        values = _decoded(entries.items.take(pa.array(found)), kinds[key])
        fits = values.is_valid().to_numpy(zero_copy_only=False)
        if is_free is not None:
            fits &= is_free[entries.rows[found]]
        if fits.any():
            before = plain(columns[key]) if key in columns else pa.nulls(len(maps), COLUMN_TYPES[kinds[key]][1])
            columns[key] = _patched(before, entries.rows[found[fits]], values.filter(pa.array(fits)))
            is_left[found[fits]] = False
    if not leave and is_left.all():
        return maps, columns
    left = [_of_column(key, leave[key], given_kinds[key]) for key in sorted(leave)]
    return _map_of([*left, entries.chosen(is_left)], len(maps)), columns


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


class _Entries(NamedTuple):
    """Of maps: the row, the key and the typed JSON of each entry."""

    rows: Any
    keys: pa.Array
    items: pa.Array

    def chosen(self, mask: Any) -> _Entries:
        return _Entries(self.rows[mask], self.keys.filter(pa.array(mask)), self.items.filter(pa.array(mask)))


def _entries(maps: pa.Array) -> _Entries:
    offsets = maps.offsets.to_numpy()
    first, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    rows = np.repeat(np.arange(len(maps)), np.diff(offsets)) if count else np.zeros(0, np.int64)
    return _Entries(rows, maps.keys.slice(first, count), maps.items.slice(first, count))


def _firsts(entries: _Entries, kinds: Mapping[str, int]) -> dict[str, Any]:
    """Of each key that is a column of the merged segment: the entries that are the first of it in their row."""
    if not len(entries.rows) or not kinds:
        return {}
    columns = sorted(kinds)
    place = pc.index_in(entries.keys, pa.array(columns, pa.string())).fill_null(-1).to_numpy(zero_copy_only=False)
    found = np.flatnonzero(place >= 0)
    _, first = np.unique(entries.rows[found] * len(columns) + place[found], return_index=True)
    found = found[first]
    return {columns[number]: found[place[found] == number] for number in np.unique(place[found]).tolist()}


def _of_column(key: str, array: pa.Array, kind: int) -> _Entries:
    """The values of this column as entries of the map."""
    rows = np.flatnonzero(array.is_valid().to_numpy(zero_copy_only=False))
    keys = pa.repeat(pa.scalar(key, pa.string()), len(rows))
    return _Entries(rows, keys, _encoded(plain(array).drop_null(), kind))


def _map_of(parts: list[_Entries], rows: int) -> pa.Array:
    """The map of so many rows, in each of which the entries of these parts stand in their order."""
    row = np.concatenate([part.rows for part in parts])
    order = pa.array(np.argsort(row, kind="stable"))
    offsets = np.append(0, np.cumsum(np.bincount(row, minlength=rows)))
    keys, items = (pa.concat_arrays(arrays).take(order) for arrays in zip(*(part[1:] for part in parts), strict=True))
    return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, items)


def _encoded(values: pa.Array, kind: int) -> pa.Array:
    """The typed JSON of each of these."""
    if kind in _TEXTS_OF_JSON:
        return values
    if kind == INT:
        return values.cast(pa.string())
    # Doubles by their bits: 0.0 is not -0.0.
    coded = (values.view(pa.int64()) if kind == DOUBLE else values).dictionary_encode()
    different = coded.dictionary.view(pa.float64()) if kind == DOUBLE else coded.dictionary
    texts = pc.binary_join_element_wise('"', different, '"', "") if kind == STRING else None
    return _mended(texts, _UNQUOTED, different, encode_value, pa.string()).take(coded.indices)


def _decoded(texts: pa.Array, kind: int) -> pa.Array:
    """The values of this kind that these typed JSONs are; null: one of another kind."""
    coded = texts.dictionary_encode()
    values = pc.utf8_slice_codeunits(coded.dictionary, 1, -1) if kind == STRING else None
    column_type = COLUMN_TYPES[kind][1]
    return _mended(values, _QUOTED, coded.dictionary, partial(_value, kind), column_type).take(coded.indices)


def _mended(
    quick: pa.Array | None, pattern: str, given: pa.Array, convert: Callable[[Any], Any], column_type: pa.DataType
) -> pa.Array:
    """What the given become: `quick` where they match the pattern, all else one by one."""
    if quick is None:
        return pa.array([convert(value) for value in given.to_pylist()], column_type)
    is_odd = pc.invert(pc.match_substring_regex(given, pattern))
    odd = [convert(value) for value in given.filter(is_odd).to_pylist()]
    return pc.replace_with_mask(quick, is_odd, pa.array(odd, column_type))


def _value(kind: int, text: str) -> Any:
    if kind_of(text) != kind:
        return None
    return text if kind in _TEXTS_OF_JSON else decode_value(text)


def _nulls(array: pa.Array | None) -> Any:
    return None if array is None else array.is_null().to_numpy(zero_copy_only=False)


def _patched(array: pa.Array, rows: Any, fresh: pa.Array) -> pa.Array:
    """The array with other values in these rows."""
    place = np.arange(len(array))
    place[rows] = len(array) + np.arange(len(rows))
    return pa.concat_arrays([array, fresh]).take(pa.array(place))
